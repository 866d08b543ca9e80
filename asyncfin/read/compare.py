"""A query of several entities as one comparison, in periods that are the same for
all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeAlias

from attrs import define, evolve, field

from asyncfin import checks
from asyncfin.errors import AsyncfinError, DatasetChangedError, SelectionError, ends_all
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import Missing, explain, find_common_missing
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import (
    Exact,
    PeriodSelection,
    Rule,
    check_period_selection,
)
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publications
from asyncfin.read.query import plan_for, read_panel, read_shared, share
from asyncfin.read.read import Read
from asyncfin.table.comparison import Comparison
from asyncfin.table.panel import Panel
from asyncfin.tasks import bounded
from asyncfin.words import listed

Source: TypeAlias = str | Catalogue


async def compare(
    publications: Publications,
    sources: Iterable[Source],
    select: Select,
    periods: PeriodSelection,
    value_version: ValueVersion,
    max_age: float | None,
) -> Comparison:
    """Read what several entities have of a query, as `Client.compare` describes."""
    by_entity = _index_by_entity(sources)
    check_select(select)
    check_period_selection(periods)
    check_value_version(value_version)
    checks.seconds_or_none("max_age", max_age)
    state = _Comparing(publications)
    reads = state.reads
    async with AsyncExitStack() as announcements:
        for entity_id, source in by_entity.items():
            try:
                question = Question(
                    source, select, periods, value_version, max_age, allow_missing=True
                )
            except SelectionError as error:
                state.errors[entity_id] = error
                continue
            read = Read(publications, question, "compare")
            await announcements.enter_async_context(read.announce())
            reads[entity_id] = read
        # Of a single entity the rule needs no other catalogue.
        if isinstance(periods, Rule) and len(by_entity) > 1:
            await state.read_by_rule(periods)
        else:
            await state.run(state.read_entity, reads)
        panels = {}
        for entity_id, read in reads.items():
            read.error = state.errors.get(entity_id)
            if read.error is None:
                panel = evolve(state.panels[entity_id], requests=read.requests)
                panels[entity_id] = panel
                read.add(panel)
    missing = {name: state.list_missing(panel) for name, panel in panels.items()}
    common = find_common_missing(missing.values())
    # Periods that do not exist yet are not a mistake.
    unknown = {name: names for name, names in common.items() if name != "periods"}
    comparison = Comparison(
        panels,
        {name: state.errors[name] for name in by_entity if name in state.errors},
        {name: names for name, names in missing.items() if names},
        unknown,
        select,
        value_version,
        sum(read.requests for read in reads.values()),
        state.end_error,
        {name: catalogue.name for name, catalogue in state.catalogues.items()},
    )
    _check_any(comparison, common)
    return comparison


def _index_by_entity(sources: Iterable[Source]) -> dict[str, Source]:
    """Return the sources by entity id; the first one of an entity counts."""
    by_entity: dict[str, Source] = {}
    for source in sources:
        checks.instance_of(str, Catalogue)("each of entity_ids", source)
        entity_id = source if isinstance(source, str) else source.entity_id
        by_entity.setdefault(entity_id, source)
    if not by_entity:
        raise SelectionError("entity_ids must name at least one entity")
    return by_entity


@define
class _Comparing:
    """The reads of a comparison, and what came of them, by entity id.

    Attributes:
        periods: those of a rule, resolved over the catalogues of all entities.
        end_error: what ended the reading: it would fail every other entity too.
    """

    publications: Publications
    reads: dict[str, Read] = field(factory=dict)
    catalogues: dict[str, Catalogue] = field(factory=dict)
    panels: dict[str, Panel] = field(factory=dict)
    errors: dict[str, AsyncfinError] = field(factory=dict)
    periods: Exact | None = None
    end_error: AsyncfinError | None = None

    async def run(
        self, work: Callable[[str], Awaitable[None]], entity_ids: Iterable[str]
    ) -> bool:
        """Do some work for entities, for as many at once as there may be requests.

        Return whether more can be read.
        """
        waits = self.publications.sender.lane == "bulk"

        async def run_one(entity_id: str) -> None:
            try:
                if self.end_error is not None:
                    raise self.end_error
                await work(entity_id)
            except AsyncfinError as error:
                # Without its traceback, whose frames would keep everything that was
                # read of the entity.
                self.errors[entity_id] = error.with_traceback(None)
                if self.end_error is None and ends_all(error, waits=waits):
                    self.end_error = error

        jobs = [partial(run_one, entity_id) for entity_id in entity_ids]
        async with bounded(jobs, self.publications.limit) as ends:
            async for _ in ends:
                pass
        return self.end_error is None

    async def read_entity(self, entity_id: str) -> None:
        """Read an entity at its own periods."""
        self.panels[entity_id] = await read_shared(self.reads[entity_id])

    async def read_by_rule(self, rule: Rule) -> None:
        """Read the catalogues, resolve the rule over all of them, and query each entity
        at its periods.

        An entity that changes meanwhile is read again, at most three times; the others
        only if the rule then resolves to other periods.
        """
        changed_ids = [*self.reads]
        while changed_ids:
            may_continue = await self.run(self._read_catalogue, changed_ids)
            # A failed entity may have a catalogue of an earlier round.
            catalogues = {
                entity_id: catalogue
                for entity_id, catalogue in self.catalogues.items()
                if entity_id not in self.errors
            }
            if not may_continue or not catalogues:
                return
            periods = rule.resolve(catalogues.values())
            repeated_ids = changed_ids if periods == self.periods else catalogues
            self.periods = periods
            entity_ids = [name for name in repeated_ids if name in catalogues]
            if not await self.run(self._read_panel, entity_ids):
                return
            changed_ids = [
                entity_id
                for entity_id in entity_ids
                if isinstance(self.errors.get(entity_id), DatasetChangedError)
            ]

    async def _read_catalogue(self, entity_id: str) -> None:
        read = self.reads[entity_id]
        change = self.errors.pop(entity_id, None)
        if isinstance(change, DatasetChangedError):
            await read.restart(change)
        self.catalogues[entity_id] = await read.attempt(read.catalogue)

    async def _read_panel(self, entity_id: str) -> None:
        read = self.reads[entity_id]
        catalogue = self.catalogues[entity_id]
        assert self.periods is not None
        question = evolve(read.question, source=catalogue, periods=self.periods)

        async def work() -> Panel:
            plan = await plan_for(read, question, catalogue)
            return await read_panel(read, plan)

        self.panels[entity_id] = await share(read, question.key, work)

    def list_missing(self, panel: Panel) -> Missing:
        """List what an entity does not have, by field."""
        catalogue = panel.catalogue
        question = self.reads[catalogue.entity_id].question
        periods = self.periods
        if periods and set(periods.periods).isdisjoint(catalogue.periods):
            question = evolve(question, periods=periods)
        return question.missing(catalogue)


def _check_any(comparison: Comparison, missing: Missing) -> None:
    """Raise an error if a comparison shows nothing; no entity has what is missing.

    Raises:
        AsyncfinError: what ended the reading, or the error of the first entity, if all
            failed.
        SelectionError: none failed, and none has a series of the query.
    """
    panels = [*comparison]
    if not panels:
        first_error = next(iter(comparison.failed.values()))
        raise comparison.ended or first_error
    if comparison.failed or any(map(len, panels)):
        return
    if not missing:
        reasons = listed(comparison.notes, 5, between="; ")
        raise SelectionError(f"no entity has anything of the query: {reasons}")
    message = explain(panels[0].catalogue, missing, "no entity")
    raise SelectionError(message, missing=missing)
