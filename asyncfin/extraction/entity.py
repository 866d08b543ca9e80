"""The unit of an extraction: what one entity has of a question, of one publication."""

from __future__ import annotations

from asyncfin import checks
from asyncfin.client import Client
from asyncfin.extraction.question import SharedQuestion
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import PeriodSelection
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer
from asyncfin.wire.protocol import check_entity_id

check_client = checks.instance_of(Client)


async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: ValueVersion = "original",
    fill_cache: bool = False,
) -> EntityAnswer:
    """Return one entity's answer to a question that is asked of many: the unit for any engine.

    Unlike `Client.query`, it does not refuse ids, words and periods that the entity's catalogue does not
    have: `missing` names them, and the panel contains the rest. If the publication changes, the read starts
    over, at most three times. Unlike `extract`, it writes nothing, and accepts a Select with `where` and no
    `name`.

    Requests: one for the metadata, one for each 100 series of the catalogue, and those of the question.

    Args:
        client: the client.
        entity_id: the entity.
        select: the series.
        periods: `Exact`, `FiscalRange`, `Trailing`, `Annual` or `Quarterly`.
        value_version: ``"original"`` or ``"latest_restated"``.
        fill_cache: whether the client keeps the catalogue, and its cache what is read. What a cache holds
            is used all the same.

    Raises:
        SelectionError: an argument is not as described, before a request is spent.
        DatasetChangedError: the publication changed too often.
        MalformedAnswerError: an answer breaks the spec; values are decoded when they are looked at.
        IncompleteResultError: the service lost series.
        ServiceError, TransportError: a request failed, after its retries.
    """
    check_client("client", client)
    check_entity_id(entity_id)
    checks.flag("fill_cache", fill_cache)
    question = SharedQuestion(select, periods, value_version)
    return await read(client, question, entity_id, "read_entity", fill_cache=fill_cache)


async def read(
    client: Client,
    question: SharedQuestion,
    entity_id: str,
    operation: str,
    dataset: Dataset | None = None,
    *,
    fill_cache: bool = False,
) -> EntityAnswer:
    """Return an entity's answer of its current publication, starting over if it changes meanwhile.

    `dataset` is its metadata, if they have just been read; `operation` is what observers are told.
    """
    async for attempt in client.whole_read(entity_id, operation):
        async with attempt:
            if fill_cache:
                current: Dataset = await client.catalogue(entity_id)
            else:
                # The given metadata serve once: after a restart they are those of the old publication.
                current, dataset = dataset or await client.dataset(entity_id), None
            async with attempt.pinned_to(current.dataset_id):
                # A catalogue that is read for a Dataset is not kept: a night's run would evict what the
                # client's other users need. So would its values from a cache, which is used in either case.
                catalogue = current if isinstance(current, Catalogue) else await client.catalogue(current)
                answer = await client.entity_answer(
                    Question(
                        catalogue,
                        question.select,
                        question.periods,
                        question.value_version,
                        fill_cache=fill_cache,
                        known_only=True,
                    )
                )
    return answer
