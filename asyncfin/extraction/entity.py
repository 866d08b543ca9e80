"""`read_entity`: what an extraction reads of one entity, for programs that write it
themselves.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, overload

from attrs import frozen

from asyncfin import checks
from asyncfin.checks import check_entity_id
from asyncfin.client import Client, publications_of
from asyncfin.model.catalogue import is_same_publication
from asyncfin.model.query import VALUE_VERSIONS, ValueVersion
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import PeriodSelection, check_period_selection
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer, read_versions
from asyncfin.read.read import Read

AskedVersion: TypeAlias = ValueVersion | Literal["both"]
check_client = checks.instance_of(Client)
_check_version = checks.one_of(*VALUE_VERSIONS, "both").as_selection_error()
_check_unless = checks.text("the dataset_id of a publication").optional()


@frozen
class Unchanged:
    """The current publication of an entity is the one that the caller has.

    Attributes:
        entity_id: the entity.
        dataset_id: its publication, as the service writes it now.
    """

    entity_id: str
    dataset_id: str


def check_question(
    select: Select, periods: PeriodSelection, value_version: AskedVersion
) -> None:
    """Raise SelectionError unless all parts of a question are as described."""
    check_select(select)
    check_period_selection(periods)
    _check_version("value_version", value_version)


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
    """Return what one entity has of a question that many entities are asked: the unit
    for any engine.

    Unlike `Client.query`, it accepts ids, words and periods that the entity's catalogue
    does not have: `missing` names them, and the panel contains the rest. If the
    publication changes, the read starts over, at most three times. Unlike `extract`, it
    writes nothing, and accepts a Select with `where` and no `name`. The client's cache
    is read, and never filled.

    Requests: one for each 100 series of the catalogue, and those of the question; with
    `unless` one more, for the metadata. If the catalogue is cached, only the metadata
    and what else is missing.

    Args:
        client: the client.
        entity_id: the entity.
        select: the series.
        periods: `Exact`, `FiscalRange`, `Trailing` or a rule such as `Annual`.
        value_version: ``"original"``, ``"latest_restated"`` or ``"both"``: then the
            catalogue is read once, `EntityAnswer.panel` has the original values, and
            `EntityAnswer.restated` the others.
        unless: the ``dataset_id`` of the publication that the caller has: if it is
            still the current one, `Unchanged` is returned after the metadata request.

    Raises:
        SelectionError: an argument is not as described, before a request is spent.
        DatasetChangedError: the publication changed too often.
        MalformedAnswerError: a response violates the spec; values are decoded on first
            access.
        IncompleteResultError: the service lost series.
        ServiceError, TransportError: a request failed, after its retries.
    """
    check_client("client", client)
    check_entity_id(entity_id)
    check_question(select, periods, value_version)
    _check_unless("unless", unless)
    versions = VALUE_VERSIONS if value_version == "both" else (value_version,)
    question = Question(
        entity_id, select, periods, versions[0], fill_cache=False, known_only=True
    )
    publications, metadata = publications_of(client), None
    if unless is not None:
        metadata = await Read(publications, question, "dataset").metadata()
        if is_same_publication(current := metadata.dataset.dataset_id, unless):
            return Unchanged(entity_id, current)
    return await read_versions(
        publications, question, versions, operation="read_entity", metadata=metadata
    )
