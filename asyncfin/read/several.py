"""One question to several entities, as one comparison, in periods that are the same for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Generic, TypeVar

from attrs import define, evolve, field, frozen

from asyncfin import checks
from asyncfin.errors import AsyncfinError, SelectionError, ends_all
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.model.judge import complaint, missing_in_all, named, unknown_names
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import Exact, PeriodSelection, Rule, check_period_selection
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.attempts import Attempts
from asyncfin.read.many import Turns
from asyncfin.read.reads import Reads, everything
from asyncfin.read.span import QuestionSpan
from asyncfin.read.turn import Turn
from asyncfin.table.comparison import Comparison
from asyncfin.table.panel import Panel
from asyncfin.tasks import bounded

T = TypeVar("T")


def _distinct(entity_ids: Iterable[str]) -> tuple[str, ...]:
    ids = tuple(entity_ids)
    for each in ids:
        checks.instance_of(str)("each of entity_ids", each)
    return tuple(dict.fromkeys(ids))


@frozen
class SeveralQuestion:
    """Which series, over which periods, in which version, of several entities."""

    entity_ids: tuple[str, ...] = field(converter=_distinct)
    select: Select
    periods: PeriodSelection
    value_version: ValueVersion = "original"
    max_age: float | None = None

    def __attrs_post_init__(self) -> None:
        if not self.entity_ids:
            raise SelectionError("entity_ids must name at least one entity")
        check_select(self.select)
        check_period_selection(self.periods)
        check_value_version(self.value_version)
        checks.seconds_or_none("max_age", self.max_age)

    def of(self, entity_id: str) -> Question:
        """Return the question to one entity; SelectionError: the id is malformed."""
        return Question(
            entity_id, self.select, self.periods, self.value_version, self.max_age, known_only=True
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
    reads: Reads,
    entity_ids: Sequence[str],
    read: Callable[[str, Turn, Callable[[], None]], Awaitable[T]],
    turn: Turn = nullcontext,
    *,
    in_order: bool = False,
) -> Each[T]:
    """Read something of several entities at once, as many as there may be requests in flight.

    Requests of entities given first go first. What would fail every other entity too ends the reading: then
    those not read have this error.

    Args:
        reads: what they are read with.
        entity_ids: distinct ids.
        read: reads one entity, given its turn, and a function to call before a wait for other entities.
        turn: the caller's turn, as for `Reads`.
        in_order: send one request after the other, all of an entity before those of the next.
    """
    turns = Turns(1 if in_order else reads.limit, waits=reads.waits)
    each = Each[T]({}, {})

    async def read_one(number: int, entity_id: str) -> None:
        try:
            each.found[entity_id] = await read(
                entity_id, turns.turn_of(number, turn), partial(turns.end, number)
            )
        except AsyncfinError as error:
            # Without its traceback, whose frames would keep everything that was read of the entity.
            each.failed[entity_id] = error.with_traceback(None)
            if each.ended is None and ends_all(error, waits=reads.waits):
                each.ended = error
        finally:
            turns.end(number)

    # All are begun: they wait for turns, and for each other where a rule is resolved.
    jobs = [partial(read_one, *numbered) for numbered in enumerate(entity_ids)]
    async with bounded(jobs, max(len(jobs), 1)) as ends:
        async for _ in ends:
            pass
    each.found = {entity_id: each.found[entity_id] for entity_id in entity_ids if entity_id in each.found}
    each.failed = {entity_id: each.failed[entity_id] for entity_id in entity_ids if entity_id in each.failed}
    return each


async def datasets_of(reads: Reads, entity_ids: Sequence[str]) -> Each[Dataset]:
    """Return the metadata of several entities."""

    async def read(entity_id: str, turn: Turn, _: Callable[[], None]) -> Dataset:
        return (await reads.read(everything(entity_id), "dataset", turn).metadata()).dataset

    return await read_each(reads, entity_ids, read)


async def catalogues_of(
    reads: Reads, entity_ids: Sequence[str], *, turn: Turn = nullcontext, max_age: float | None = None
) -> Each[Catalogue]:
    """Return the current catalogues of several entities; with a turn, which may end the reading, in order."""

    async def read(entity_id: str, turn: Turn, _: Callable[[], None]) -> Catalogue:
        async for attempt in reads.attempts(entity_id, "catalogue", turn, max_age=max_age):
            async with attempt:
                catalogue = await attempt.catalogue()
        return catalogue

    # Where the number of requests is limited, few catalogues are of more use than a page of each.
    return await read_each(reads, entity_ids, read, turn, in_order=turn is not nullcontext)


async def plans_of(
    reads: Reads,
    catalogues: Iterable[Catalogue],
    select: Select,
    periods: PeriodSelection,
    versions: Sequence[ValueVersion],
) -> list[Plan]:
    """Return the plans of what each catalogue has of a question, in each version. No request."""
    catalogues = tuple(catalogues)
    if isinstance(periods, Rule):
        periods = periods.resolve(catalogues)
    plans = []
    for catalogue in catalogues:
        for version in versions:
            question = Question(catalogue, select, periods, version, known_only=True)
            async for attempt in Attempts(reads.read(question, "plan")):
                async with attempt:
                    plans.append(await attempt.plan(question))
    return plans


async def compare(reads: Reads, question: SeveralQuestion, *, turn: Turn = nullcontext) -> Comparison:
    """Return what several entities have of a question. It is returned also if all of them failed.

    Raises:
        SelectionError: a rule selects no period of any entity.
    """
    reading = _Reading(reads, question)
    each = await read_each(reads, question.entity_ids, reading.panel, turn)
    if reading.refused is not None and each.ended is None:
        raise reading.refused
    return reading.comparison(each)


async def cached_comparison(reads: Reads, question: SeveralQuestion) -> Comparison | None:
    """Return a comparison if all of it is cached, and younger than `max_age`. No request.

    A rule must have been resolved.
    """
    panels: dict[str, Panel] = {}
    for entity_id in question.entity_ids:
        if (panel := await reads.cached_panel(question.of(entity_id))) is None:
            return None
        panels[entity_id] = panel
    return _Reading(reads, question).comparison(Each(panels, {}))


def check_any(comparison: Comparison) -> None:
    """Raise an error if a comparison shows nothing.

    Raises:
        AsyncfinError: what ended the reading, or the error of the first entity, if all failed.
        SelectionError: none failed, and none has a series of the question.
    """
    if not len(comparison):
        raise comparison.ended or next(iter(comparison.failed.values()))
    if not comparison.failed and not any(map(len, comparison)):
        raise nothing_of(comparison)


def nothing_of(comparison: Comparison) -> SelectionError:
    """Return the error for a question of which no entity that was read has a series."""
    missing = missing_in_all(comparison.missing.get(each.dataset.entity_id, {}) for each in comparison)
    count = len(comparison)
    who = f"none of the {count:,} entities" if count > 1 else next(iter(comparison)).dataset.entity_id
    has = "has" if count > 1 else "does not have"
    if not missing:
        return SelectionError(f"{who} {has} anything of the question")
    near = complaint(next(iter(comparison)).catalogue, missing)
    return SelectionError(f"{who} {has} {named(missing)}; {near}", missing=missing)


class _Meeting:
    """Where all entities wait for each other; those that have left are not waited for."""

    def __init__(self, entity_ids: Sequence[str], decide: Callable[[], Exact]) -> None:
        self._waiting: dict[str, asyncio.Future[Exact] | None] = dict.fromkeys(entity_ids)
        self._decide = decide

    async def decision(self, entity_id: str) -> Exact:
        """Wait until all others wait too or have left; then return what is decided for all."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Exact] = loop.create_future()
        self._waiting[entity_id] = waiting
        # Not at once: the last one would go on before the others, whose requests go first.
        loop.call_soon(self._check)
        return await waiting

    def leave(self, entity_id: str) -> None:
        """Do not wait for an entity any more."""
        del self._waiting[entity_id]
        self._check()

    def _check(self) -> None:
        waiting = [each for each in self._waiting.values() if each is not None and not each.done()]
        if not waiting or len(waiting) < len(self._waiting):
            return
        try:
            decided = self._decide()
        except SelectionError as error:
            for each in waiting:
                each.set_exception(error)
        else:
            for each in waiting:
                each.set_result(decided)


@define(eq=False)
class _Reading:
    """The reading of a question to several entities."""

    _reads: Reads
    _question: SeveralQuestion
    refused: SelectionError | None = None  # that the rule selects no period of any catalogue
    _spans: dict[str, QuestionSpan] = field(factory=dict)
    # With a rule: the last catalogue of each entity, and the publications over which the rule was resolved.
    _catalogues: dict[str, Catalogue] = field(factory=dict)
    _resolved_over: dict[str, str] = field(factory=dict)
    _periods: Exact | None = None  # that it was resolved to
    _meeting: _Meeting = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._meeting = _Meeting(self._question.entity_ids, self._resolve)

    async def panel(self, entity_id: str, turn: Turn, pause: Callable[[], None]) -> Panel:
        """Return the panel of one entity, all of one publication."""
        try:
            question = self._question.of(entity_id)
            async with self._reads.span("compare", entity_id) as span:
                self._spans[entity_id] = span
                # Of a single entity the rule needs no other catalogue.
                if isinstance(self._question.periods, Rule) and len(self._question.entity_ids) > 1:
                    return await self._by_rule(question, turn, span, pause)
                return await self._reads.answered(question, turn=turn, span=span)
        finally:
            self._meeting.leave(entity_id)

    async def _by_rule(
        self, question: Question, turn: Turn, span: QuestionSpan, pause: Callable[[], None]
    ) -> Panel:
        async for attempt in self._attempts(question, turn):
            async with attempt:
                self._catalogues[question.entity_id] = await attempt.catalogue()
        pause()
        periods = await self._meeting.decision(question.entity_id)
        panel = await self._at(periods, question, turn, span)
        # Another entity may have been published during the read, and the rule then select other periods.
        pause()
        if (again := await self._meeting.decision(question.entity_id)) != periods:
            span.restart()
            panel = await self._at(again, question, turn, span)
        return panel

    async def _at(self, periods: Exact, question: Question, turn: Turn, span: QuestionSpan) -> Panel:
        """Return what an entity has at some periods, from its last catalogue unless that is replaced."""
        entity_id = question.entity_id
        async for attempt in self._attempts(question, turn):
            async with attempt:
                if attempt.is_restart:
                    self._catalogues[entity_id] = await attempt.catalogue()
                catalogue = self._catalogues[entity_id]
                of_publication = evolve(question, source=catalogue, periods=periods)
                async with attempt.pinned_to(catalogue.dataset_id):
                    panel = await self._reads.answered(of_publication, turn=turn, span=span)
        return panel

    def _attempts(self, question: Question, turn: Turn) -> Attempts:
        everything_of = everything(question.entity_id, question.max_age)
        return Attempts(self._reads.read(everything_of, "compare", turn))

    def _resolve(self) -> Exact:
        """Resolve the rule over the catalogues of all entities that could be read."""
        rule = self._question.periods
        assert isinstance(rule, Rule)
        try:
            periods = rule.resolve(self._catalogues.values())
        except SelectionError as error:
            self.refused = error
            raise
        self._periods = periods
        self._resolved_over = {each.entity_id: each.dataset_id for each in self._catalogues.values()}
        return periods

    def _replaced(self) -> Iterator[str]:
        """Yield a line for each entity whose last publication would change the periods of the rule."""
        rule = self._question.periods
        if not isinstance(rule, Rule) or self._periods is None:
            return
        if rule.resolve(self._catalogues.values()) == self._periods:
            return
        for entity_id, catalogue in self._catalogues.items():
            if not is_same_publication(catalogue.dataset_id, self._resolved_over[entity_id]):
                yield (
                    f"{catalogue.name} ({entity_id}) was replaced by publication {catalogue.dataset_id}"
                    " during the read, over which the question has other periods; those of before are shown"
                )

    def _question_of(self, entity_id: str, catalogue: Catalogue) -> Question:
        """Return the question to an entity, at the resolved periods if its catalogue has none of them."""
        question = self._question.of(entity_id)
        if self._periods is None or not set(self._periods.periods).isdisjoint(catalogue.periods):
            return question
        return evolve(question, periods=self._periods)

    def comparison(self, each: Each[Panel]) -> Comparison:
        """Return the comparison of what was read."""
        question, spans = self._question, self._spans
        panels = {
            entity_id: evolve(panel, requests=spans[entity_id].requests) if entity_id in spans else panel
            for entity_id, panel in each.found.items()
        }
        missing = {
            entity_id: found
            for entity_id, panel in panels.items()
            if (found := self._question_of(entity_id, panel.catalogue).missing(panel.catalogue))
        }
        return Comparison(
            panels,
            each.failed,
            missing,
            unknown_names(question.select, [missing.get(entity_id, {}) for entity_id in panels]),
            question.select,
            question.value_version,
            sum(span.requests for span in spans.values()),
            each.ended,
            tuple(self._replaced()),
            {entity_id: catalogue.name for entity_id, catalogue in self._catalogues.items()},
        )
