"""What one entity has of a question that several entities are asked, and what it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from attrs import evolve, field, frozen

from asyncfin.errors import AsyncfinError
from asyncfin.model.judge import Missing
from asyncfin.model.query import ValueVersion
from asyncfin.plan.question import Question
from asyncfin.read.attempts import Attempts
from asyncfin.read.read import Metadata
from asyncfin.read.reads import Reads
from asyncfin.read.span import QuestionSpan
from asyncfin.read.turn import Turn
from asyncfin.table.panel import Panel


@frozen
class EntityAnswer:
    """The answer of one entity.

    Attributes:
        entity_id: the entity.
        panel: what the entity has of the question, of one publication; without series if it has nothing.
            None: there was an error.
        restated: the same with the restated values, where both versions were requested; otherwise None.
        missing: the ids, words and periods of the question that the entity does not have, by field; paths in
            their text form.
        error: why `panel` is None. None: it is not.
    """

    entity_id: str
    panel: Panel | None
    restated: Panel | None = None
    missing: Missing = field(factory=dict)
    error: AsyncfinError | None = None


async def answer_of(
    reads: Reads,
    question: Question,
    versions: Sequence[ValueVersion],
    *,
    operation: str,
    metadata: Metadata | None = None,
    turn: Turn = nullcontext,
) -> EntityAnswer:
    """Return what an entity has of a question, in each of the versions, all of one publication.

    It starts over if the publication changes. Observers see one question.

    Args:
        reads: what it is read with.
        question: by entity id, with `known_only`; its version is ignored.
        versions: the original values first, if both are wanted.
        operation: the name of the question in events.
        metadata: the entity's metadata, if they have just been read.
        turn: as for `Reads`.
    """
    async with reads.span(operation, question.entity_id) as span:
        if len(versions) == 1 and question.fill_cache and metadata is None:
            panels = [await reads.answered(evolve(question, value_version=versions[0]), turn=turn, span=span)]
        else:
            attempts = Attempts(reads.read(question, operation, turn), metadata)
            panels = await _of_one_publication(reads, attempts, question, versions, turn, span)
    first, *others = panels
    missing = question.missing(first.catalogue)
    return EntityAnswer(question.entity_id, first, others[0] if others else None, missing)


async def _of_one_publication(
    reads: Reads,
    attempts: Attempts,
    question: Question,
    versions: Sequence[ValueVersion],
    turn: Turn,
    span: QuestionSpan,
) -> list[Panel]:
    async for attempt in attempts:
        async with attempt:
            if question.fill_cache:
                catalogue = await attempt.catalogue()
            else:
                # A night's run would evict what the client's other users need. So would its values from a
                # cache, which is used in either case.
                catalogue = await attempt.unkept_catalogue()
            async with attempt.pinned_to(catalogue.dataset_id):
                panels = [
                    await reads.answered(
                        evolve(question, source=catalogue, value_version=version), turn=turn, span=span
                    )
                    for version in versions
                ]
    return panels
