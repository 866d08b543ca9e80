"""What one entity has of a query of several entities, and what it does not have."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

from attrs import evolve, field, frozen

from asyncfin.errors import AsyncfinError
from asyncfin.model.catalogue import is_same_publication
from asyncfin.model.judge import Missing
from asyncfin.model.query import ValueVersion
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publications
from asyncfin.read.query import plan_for, read_panel
from asyncfin.read.read import Read
from asyncfin.table.panel import Panel

AskedVersion: TypeAlias = ValueVersion | Literal["both"]


@frozen
class EntityAnswer:
    """The answer of one entity.

    Attributes:
        entity_id: the entity.
        panel: what the entity has of the question, of one publication; without series
            if it has nothing. None: there was an error.
        restated: the same with the restated values, where both versions were requested;
            otherwise None.
        missing: the ids, words and periods of the question that the entity does not
            have, by field; paths in their text form.
        error: why `panel` is None. None: it is not.
    """

    entity_id: str
    panel: Panel | None
    restated: Panel | None = None
    missing: Missing = field(factory=dict)
    error: AsyncfinError | None = None


@frozen
class Unchanged:
    """The current publication of an entity is the one that the caller has.

    Attributes:
        entity_id: the entity.
        dataset_id: its publication, as the service writes it now.
        confirmed_at: when the request that showed it was sent, aware UTC.
    """

    entity_id: str
    dataset_id: str
    confirmed_at: datetime


async def read_versions(
    publications: Publications,
    question: Question,
    versions: Sequence[ValueVersion],
    *,
    unless: str | None = None,
) -> EntityAnswer | Unchanged:
    """Read an entity's part of a query in each of the versions, of one publication.

    The cache is read and not filled: a night's run would evict what other users need.

    Args:
        publications: what the client has.
        question: by entity id, with `allow_missing`; its version is ignored.
        versions: the original values first, if both are wanted.
        unless: as for `read_entity`.
    """
    read = Read(publications, question, "read_entity", stores=False)
    async with read.announce():
        if unless is not None:
            current = await read.metadata()
            if is_same_publication(current.dataset_id, unless):
                assert read.confirmed is not None  # by the metadata
                confirmed_at = read.confirmed.sent_at
                return Unchanged(current.entity_id, current.dataset_id, confirmed_at)
            read.successor = current
        panels = await read.attempt(partial(_read_panels, read, versions))
        for panel in panels:
            read.add(panel)
    first, *restated_panels = panels
    missing = question.missing(first.catalogue)
    return EntityAnswer(
        question.entity_id,
        first,
        restated_panels[0] if restated_panels else None,
        missing,
    )


async def _read_panels(read: Read, versions: Sequence[ValueVersion]) -> list[Panel]:
    catalogue = await read.catalogue()
    panels: list[Panel] = []
    request_count = 0
    for version in versions:
        question = evolve(read.question, value_version=version)
        plan = await plan_for(read, question, catalogue)
        panel = await read_panel(read, plan)
        # The requests of each, which are counted for the whole read.
        panels.append(evolve(panel, requests=read.requests - request_count))
        request_count = read.requests
    return panels
