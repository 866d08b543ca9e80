"""The unit of an extraction: what one entity has of a question, of one publication."""

from __future__ import annotations

from typing import overload

from attrs import evolve, frozen

from asyncfin import checks
from asyncfin.client import Client
from asyncfin.extraction.question import AskedVersion, SharedQuestion
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.model.period import PeriodSelection
from asyncfin.model.select import Select
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer
from asyncfin.wire.protocol import check_entity_id

check_client = checks.instance_of(Client)
_check_unless = checks.Check(
    "the dataset_id of a publication", lambda value: isinstance(value, str) and value != ""
).optional()


@frozen
class Unchanged:
    """The current publication of an entity is the one that the caller has.

    Attributes:
        entity_id: the entity.
        dataset_id: its publication, as the service writes it now.
    """

    entity_id: str
    dataset_id: str


@overload
async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: None = None,
    fill_cache: bool = False,
) -> EntityAnswer: ...


@overload
async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: str | None,
    fill_cache: bool = False,
) -> EntityAnswer | Unchanged: ...


async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: str | None = None,
    fill_cache: bool = False,
) -> EntityAnswer | Unchanged:
    """Return what one entity has of a question that many entities are asked: the unit for any engine.

    Unlike `Client.query`, it does not refuse ids, words and periods that the entity's catalogue does not
    have: `missing` names them, and the panel contains the rest. If the publication changes, the read starts
    over, at most three times. Unlike `extract`, it writes nothing, and accepts a Select with `where` and no
    `name`.

    Requests: one for the metadata, one for each 100 series of the catalogue unless the client still has it,
    and those of the question.

    Args:
        client: the client.
        entity_id: the entity.
        select: the series.
        periods: `Exact`, `FiscalRange`, `Trailing`, `Annual` or `Quarterly`.
        value_version: ``"original"``, ``"latest_restated"`` or ``"both"``: then the catalogue is read once,
            `EntityAnswer.panel` has the original values, and `EntityAnswer.restated` the others.
        unless: the ``dataset_id`` of the publication that the caller has: if it is still the current one,
            `Unchanged` is returned after the metadata request.
        fill_cache: whether the client keeps the catalogue, and its cache what is read. Cached data is used
            in either case.

    Raises:
        SelectionError: an argument is not as described, before a request is spent.
        DatasetChangedError: the publication changed too often.
        MalformedAnswerError: a response violates the spec; values are decoded on first access.
        IncompleteResultError: the service lost series.
        ServiceError, TransportError: a request failed, after its retries.
    """
    check_client("client", client)
    check_entity_id(entity_id)
    checks.flag("fill_cache", fill_cache)
    _check_unless("unless", unless)
    question = SharedQuestion(select, periods, value_version)
    dataset = None
    if unless is not None:
        dataset = await client.dataset(entity_id)
        if is_same_publication(dataset.dataset_id, unless):
            return Unchanged(entity_id, dataset.dataset_id)
    return await read(client, question, entity_id, "read_entity", dataset, fill_cache=fill_cache)


async def read(
    client: Client,
    question: SharedQuestion,
    entity_id: str,
    operation: str,
    dataset: Dataset | None = None,
    *,
    fill_cache: bool = False,
) -> EntityAnswer:
    """Return what an entity has of a question in its current publication, starting over if that changes.

    `dataset` is its metadata, if they have just been read; `operation` is for observers.
    """
    async with client.asking(entity_id, operation) as span:
        async for attempt in client.whole_read(entity_id, operation):
            async with attempt:
                if fill_cache:
                    current: Dataset = await client.catalogue(entity_id)
                else:
                    # The given metadata serve once: after a restart they are those of the old publication.
                    current, dataset = dataset or await client.dataset(entity_id), None
                async with attempt.pinned_to(current.dataset_id):
                    # A catalogue that is read for a Dataset is not kept: a night's run would evict what the
                    # client's other users need. So would its values from a cache, which is used in either
                    # case.
                    catalogue = current if isinstance(current, Catalogue) else await client.catalogue(current)
                    first, *others = [
                        await client.entity_answer(
                            Question(
                                catalogue,
                                question.select,
                                question.periods,
                                version,
                                fill_cache=fill_cache,
                                known_only=True,
                            ),
                            span=span,
                        )
                        for version in question.versions
                    ]
    return evolve(first, restated=others[0].panel) if others else first
