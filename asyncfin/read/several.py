"""One question to several entities, as one comparison, in periods that are the same for
all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from attrs import define, evolve, field, frozen

from asyncfin import checks
from asyncfin.errors import AsyncfinError, DatasetChangedError, SelectionError, ends_all
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.judge import complaint, missing_in_all, named, unknown_names
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import (
    Exact,
    PeriodSelection,
    Rule,
    check_period_selection,
)
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publications
from asyncfin.read.query import (
    plan_for,
    read_cached,
    read_current_catalogue,
    read_panel,
    read_shared,
    share,
)
from asyncfin.read.read import Read, everything
from asyncfin.table.comparison import Comparison
from asyncfin.table.panel import Panel
from asyncfin.tasks import bounded

T = TypeVar("T")
Source: TypeAlias = str | Catalogue


def _by_entity(sources: Iterable[Source]) -> dict[str, Source]:
    """Return the sources by entity id; the first one of an entity counts."""
    by_entity: dict[str, Source] = {}
    for source in sources:
        checks.instance_of(str, Catalogue)("each of entity_ids", source)
        entity_id = source if isinstance(source, str) else source.entity_id
        by_entity.setdefault(entity_id, source)
    return by_entity


@frozen
class SeveralQuestion:
    """Which series, over which periods, in which version, of several entities."""

    sources: Mapping[str, Source] = field(converter=_by_entity)
    select: Select
    periods: PeriodSelection
    value_version: ValueVersion = "original"
    max_age: float | None = None

    def __attrs_post_init__(self) -> None:
        if not self.sources:
            raise SelectionError("entity_ids must name at least one entity")
        check_select(self.select)
        check_period_selection(self.periods)
        check_value_version(self.value_version)
        checks.seconds_or_none("max_age", self.max_age)

    @property
    def entity_ids(self) -> tuple[str, ...]:
        """The ids of the entities, in their order."""
        return tuple(self.sources)

    def of(self, entity_id: str) -> Question:
        """Return the question to one entity; SelectionError: the id is malformed."""
        return Question(
            self.sources[entity_id],
            self.select,
            self.periods,
            self.value_version,
            self.max_age,
            allow_missing=True,
        )


@define
class Each(Generic[T]):
    """What was read of several entities, in the order in which they were given.

    Attributes:
        found: what was read, by entity id.
        failed: the errors of the others.
        ended: what ended the reading. None: all were read or failed by themselves.
    """

    found: dict[str, T]
    failed: dict[str, AsyncfinError]
    ended: AsyncfinError | None = None


async def read_each(
    publications: Publications,
    entity_ids: Sequence[str],
    read: Callable[[str], Awaitable[T]],
) -> Each[T]:
    """Read something of several distinct entities, as many at once as there may be
    requests in flight.

    What would fail every other entity too ends the reading: those not begun then have
    this error.
    """
    each, waits = Each[T]({}, {}), publications.sender.lane == "bulk"

    async def read_one(entity_id: str) -> None:
        try:
            if each.ended is not None:
                raise each.ended
            each.found[entity_id] = await read(entity_id)
        except AsyncfinError as error:
            # Without its traceback, whose frames would keep everything that was read of
            # the entity.
            each.failed[entity_id] = error.with_traceback(None)
            if each.ended is None and ends_all(error, waits=waits):
                each.ended = error

    jobs = [partial(read_one, entity_id) for entity_id in entity_ids]
    async with bounded(jobs, publications.limit) as ends:
        async for _ in ends:
            pass
    each.found = {
        entity_id: each.found[entity_id]
        for entity_id in entity_ids
        if entity_id in each.found
    }
    each.failed = {
        entity_id: each.failed[entity_id]
        for entity_id in entity_ids
        if entity_id in each.failed
    }
    return each


async def datasets_of(
    publications: Publications, entity_ids: Sequence[str]
) -> Each[Dataset]:
    """Return the metadata of several entities."""

    async def read(entity_id: str) -> Dataset:
        return (
            await Read(publications, everything(entity_id), "dataset").metadata()
        ).dataset

    return await read_each(publications, entity_ids, read)


async def catalogues_of(
    publications: Publications,
    entity_ids: Sequence[str],
    *,
    max_age: float | None = None,
) -> Each[Catalogue]:
    """Return the current catalogues of several entities."""

    async def read(entity_id: str) -> Catalogue:
        return await read_current_catalogue(
            Read(publications, everything(entity_id, max_age), "catalogue")
        )

    return await read_each(publications, entity_ids, read)


async def read_cached_catalogue(
    publications: Publications, entity_id: str, *, max_age: float | None = None
) -> Catalogue | None:
    """Return the catalogue if it is cached, and younger than `max_age`. No request."""
    fresh = await Read(
        publications, everything(entity_id, max_age), "catalogue"
    ).fresh_publication()
    return None if fresh is None else fresh.publication.catalogue


async def plans_of(
    publications: Publications,
    catalogues: Iterable[Catalogue],
    select: Select,
    periods: PeriodSelection,
    versions: Sequence[ValueVersion],
) -> list[Plan]:
    """Return the plans of what each catalogue has of a question, in each version. No
    request.
    """
    catalogues = tuple(catalogues)
    if isinstance(periods, Rule):
        periods = periods.resolve(catalogues)
    plans = []
    for catalogue in catalogues:
        for version in versions:
            question = Question(catalogue, select, periods, version, allow_missing=True)
            plans.append(
                await plan_for(
                    Read(publications, question, "plan"),
                    question,
                    publications.of(catalogue),
                )
            )
    return plans


async def compare(publications: Publications, question: SeveralQuestion) -> Comparison:
    """Return what several entities have of a question. It is returned also if all of
    them failed.

    Raises:
        SelectionError: a rule selects no period of any entity.
    """
    reads: dict[str, Read] = {}
    # Of a single entity the rule needs no other catalogue.
    is_rule = isinstance(question.periods, Rule) and len(question.entity_ids) > 1
    catalogues: dict[str, Catalogue] = {}
    periods: Exact | None = None
    async with AsyncExitStack() as announced:
        failed: dict[str, AsyncfinError] = {}
        for entity_id in question.entity_ids:
            try:
                read = Read(publications, question.of(entity_id), "compare")
            except SelectionError as error:
                failed[entity_id] = error
            else:
                reads[entity_id] = await announced.enter_async_context(read.announced())
        if is_rule:
            each, periods = await _read_by_rule(
                publications, question, reads, catalogues
            )
        else:
            each = await read_each(
                publications, [*reads], lambda entity_id: read_shared(reads[entity_id])
            )
        for entity_id in each.failed:
            reads[entity_id].error = each.failed[entity_id]
        for entity_id, panel in each.found.items():
            reads[entity_id].add(panel)
    each.found = {
        entity_id: evolve(panel, requests=reads[entity_id].requests)
        for entity_id, panel in each.found.items()
    }
    failed |= each.failed
    each.failed = {
        entity_id: failed[entity_id]
        for entity_id in question.entity_ids
        if entity_id in failed
    }
    requests = sum(read.requests for read in reads.values())
    return _comparison(question, each, periods, requests, catalogues)


async def cached_comparison(
    publications: Publications, question: SeveralQuestion
) -> Comparison | None:
    """Return a comparison if all of it is cached, and younger than `max_age`. No
    request.

    A rule must have been resolved.
    """
    panels: dict[str, Panel] = {}
    for entity_id in question.entity_ids:
        if (panel := await read_cached(publications, question.of(entity_id))) is None:
            return None
        panels[entity_id] = panel
    return _comparison(question, Each(panels, {}), None, 0, {})


async def _read_by_rule(
    publications: Publications,
    question: SeveralQuestion,
    reads: Mapping[str, Read],
    catalogues: dict[str, Catalogue],
) -> tuple[Each[Panel], Exact | None]:
    """Read the catalogues, resolve the rule over all of them, and query each entity at
    its periods.

    An entity that changes meanwhile is read again, at most three times; the others only
    if the rule then resolves to other periods. `catalogues` receives the last ones.
    """
    rule = question.periods
    assert isinstance(rule, Rule)
    periods: Exact | None = None
    changes: dict[str, DatasetChangedError] = {}
    panels, failed = dict[str, Panel](), dict[str, AsyncfinError]()

    async def read_catalogue(entity_id: str) -> Catalogue:
        read = reads[entity_id]
        if (change := changes.pop(entity_id, None)) is not None:
            await read.restart(change)
        return await read_current_catalogue(read)

    async def read_one(entity_id: str) -> Panel:
        read, catalogue = reads[entity_id], catalogues[entity_id]
        pinned = evolve(read.question, source=catalogue, periods=periods or rule)

        async def lead() -> Panel:
            publication = publications.of(catalogue)
            plan = await plan_for(read, pinned, publication, batches=False)
            return await read_panel(read, plan)

        return await share(read, pinned.key, lead)

    changed, ended = [*reads], None
    while changed and ended is None:
        read = await read_each(publications, changed, read_catalogue)
        failed |= read.failed
        catalogues |= read.found
        if read.ended is not None or not catalogues:
            ended = read.ended
            break
        resolved = rule.resolve(catalogues.values())
        repeated = [*catalogues] if resolved != periods else changed
        periods = resolved
        entity_ids = [entity_id for entity_id in repeated if entity_id not in failed]
        each = await read_each(publications, entity_ids, read_one)
        panels |= each.found
        ended = each.ended
        changes |= {
            entity_id: error
            for entity_id, error in each.failed.items()
            if isinstance(error, DatasetChangedError)
        }
        failed |= {
            entity_id: error
            for entity_id, error in each.failed.items()
            if entity_id not in changes
        }
        changed = [*changes]
    failed |= changes
    found = {
        entity_id: panels[entity_id]
        for entity_id in reads
        if entity_id in panels and entity_id not in failed
    }
    return Each(found, failed, ended), periods


def _comparison(
    question: SeveralQuestion,
    each: Each[Panel],
    periods: Exact | None,
    requests: int,
    catalogues: Mapping[str, Catalogue],
) -> Comparison:
    """Return the comparison of what was read. `periods` are those of a rule, resolved
    over all entities.
    """
    missing = {}
    for entity_id, panel in each.found.items():
        of_entity = question.of(entity_id)
        if periods is not None and set(periods.periods).isdisjoint(
            panel.catalogue.periods
        ):
            of_entity = evolve(of_entity, periods=periods)
        if names := of_entity.missing(panel.catalogue):
            missing[entity_id] = names
    return Comparison(
        each.found,
        each.failed,
        missing,
        unknown_names(
            question.select, [missing.get(entity_id, {}) for entity_id in each.found]
        ),
        question.select,
        question.value_version,
        requests,
        each.ended,
        {entity_id: catalogue.name for entity_id, catalogue in catalogues.items()},
    )


def check_any(comparison: Comparison) -> None:
    """Raise an error if a comparison shows nothing.

    Raises:
        AsyncfinError: what ended the reading, or the error of the first entity, if all
            failed.
        SelectionError: none failed, and none has a series of the question.
    """
    if not len(comparison):
        raise comparison.ended or next(iter(comparison.failed.values()))
    if not comparison.failed and not any(map(len, comparison)):
        raise nothing_of(comparison)


def nothing_of(comparison: Comparison) -> SelectionError:
    """Return the error for a question of which no entity that was read has a series."""
    missing = missing_in_all(
        comparison.missing.get(each.dataset.entity_id, {}) for each in comparison
    )
    count = len(comparison)
    who = (
        f"none of the {count:,} entities"
        if count > 1
        else next(iter(comparison)).dataset.entity_id
    )
    has = "has" if count > 1 else "does not have"
    if not missing:
        return SelectionError(f"{who} {has} anything of the question")
    near = complaint(next(iter(comparison)).catalogue, missing)
    return SelectionError(f"{who} {has} {named(missing)}; {near}", missing=missing)
