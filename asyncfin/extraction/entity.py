"""`read_entity`: what an extraction reads of one entity, for programs that write it themselves."""

from __future__ import annotations

from typing import overload

from attrs import frozen

from asyncfin import checks
from asyncfin.checks import check_entity_id
from asyncfin.client import Client, publications_of
from asyncfin.extraction.question import AskedVersion, SharedQuestion
from asyncfin.model.catalogue import is_same_publication
from asyncfin.model.select import Select
from asyncfin.model.selection import PeriodSelection
from asyncfin.read.entity import EntityAnswer, read_versions
from asyncfin.read.read import Read

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
) -> EntityAnswer | Unchanged: ...


async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: str | None = None,
) -> EntityAnswer | Unchanged:
    """Return what one entity has of a question that many entities are asked: the unit for any engine.

    Unlike `Client.query`, it does not refuse ids, words and periods that the entity's catalogue does not
    have: `missing` names them, and the panel contains the rest. If the publication changes, the read starts
    over, at most three times. Unlike `extract`, it writes nothing, and accepts a Select with `where` and no
    `name`.

    Requests: one for each 100 series of the catalogue, and those of the question; with `unless` one more, for
    the metadata. If the catalogue is cached, only the metadata and what else is missing. The client's cache
    is read, and not filled.

    Args:
        client: the client.
        entity_id: the entity.
        select: the series.
        periods: `Exact`, `FiscalRange`, `Trailing` or a rule such as `Annual`.
        value_version: ``"original"``, ``"latest_restated"`` or ``"both"``: then the catalogue is read once,
            `EntityAnswer.panel` has the original values, and `EntityAnswer.restated` the others.
        unless: the ``dataset_id`` of the publication that the caller has: if it is still the current one,
            `Unchanged` is returned after the metadata request.

    Raises:
        SelectionError: an argument is not as described, before a request is spent.
        DatasetChangedError: the publication changed too often.
        MalformedAnswerError: a response violates the spec; values are decoded on first access.
        IncompleteResultError: the service lost series.
        ServiceError, TransportError: a request failed, after its retries.
    """
    check_client("client", client)
    check_entity_id(entity_id)
    _check_unless("unless", unless)
    shared, publications = SharedQuestion(select, periods, value_version), publications_of(client)
    question, metadata = shared.of(entity_id), None
    if unless is not None:
        metadata = await Read(publications, question, "dataset").metadata()
        if is_same_publication(current := metadata.dataset.dataset_id, unless):
            return Unchanged(entity_id, current)
    return await read_versions(
        publications, question, shared.versions, operation="read_entity", metadata=metadata
    )
