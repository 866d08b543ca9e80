"""Makes one panel of pages of any batches, in any order, each with a `periods` array of its own.

Decides which series of a page are kept, which values may be in it, and which periods a panel has. Values
are placed by period, never by position.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from operator import attrgetter
from typing import Any

from attrs import frozen

from asyncfin.errors import MalformedAnswerError
from asyncfin.fanout.plan import Plan
from asyncfin.fanout.publications import Publication
from asyncfin.model.period import Exact, FiscalRange, Period, Resolved, Trailing, describe
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.block import Axis, Block, Store, blocks_of, without
from asyncfin.table.grid import Grid
from asyncfin.table.panel import Panel
from asyncfin.wire.tasks import decoding_lock
from asyncfin.wire.values import QueryPage, RawSeries, series_path

_TEXTS = ("metric_id", "reporting_group_id", "label", "basis", "number_format", "period_meaning")
_texts = attrgetter(*_TEXTS)
_scopes = attrgetter("scopes")
_ref = attrgetter("scope_group_id", "scope_id")


@frozen(eq=False)
class Arrival:
    """What one page brought of the series that are at home in its batch.

    Attributes:
        blocks: their values.
        populated: the periods in which one of them has a value.
        foreign: the values of the other series, where they are kept.
    """

    blocks: tuple[Block, ...]
    populated: Set[Period]
    foreign: tuple[Block, ...] = ()

    def series_ids(self) -> Iterator[str]:
        """Yield the ids of the series."""
        return chain.from_iterable(block.series_ids for block in self.blocks)


class Stitch:
    """The answer to a planned question while it arrives: what has come, and what may still come.

    The values are with the caller, as arrivals. What its pages show of the publication is recorded there.
    """

    def __init__(self, plan: Plan, publication: Publication) -> None:
        self.plan = plan
        self.publication = publication
        self._wanted = {series.series_id for series in plan.series}
        self._arrived: set[str] = set()
        # One object for each period, however many pages list it.
        self._known: dict[Period, Period] = {}
        # Of each batch for trailing months, by its home: the first and the last period with a value.
        self._reach: dict[frozenset[str], tuple[Period, Period]] = {}
        self.anchor: Period | None = None

    @property
    def absent(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that have not come."""
        return tuple(each for each in self.plan.series if each.series_id not in self._arrived)

    @property
    def missing(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that have not come, apart from those that the service has left out twice."""
        return tuple(each for each in self.absent if each.series_id not in self.publication.left_out)

    def take(self, blocks: Iterable[Block]) -> list[Arrival]:
        """Return what blocks of series with all their periods hold of what has not come."""
        arrivals = []
        for block in blocks:
            # Two readers may have brought the same series; each must stand in the answer once.
            new = block if self._arrived.isdisjoint(block.series_ids) else without(block, self._arrived)
            if new is not None and (found := self._wanted.intersection(new.series_ids)):
                arrivals.append(self._arrive((new,), _populated(new, found)))
        return arrivals

    async def add(
        self, page: QueryPage, *, home: frozenset[str], asked: Resolved, keep_foreign: bool = False
    ) -> Arrival:
        """Return what a page brings.

        Decodes the numbers in slices of about half a millisecond, one page at a time.

        Args:
            home: the ids of the batch's home series.
            asked: the periods that the batch asked for. They need not be the question's: a question for
                trailing months can be asked as a range.
            keep_foreign: whether the other series are kept too, as far as their values are sound.

        Raises:
            MalformedAnswerError: a series came before, is another one than in the catalogue, or has
                too few or too many values; or there is a value outside what the batch asked for.
        """
        mine = [(at, raw) for at, raw in enumerate(page.raw_series) if raw.series_id in home]
        self._refuse_repeated(mine)
        axis = Axis.of(tuple(self._known.setdefault(period, period) for period in page.periods))
        foreign: list[Block] = []
        async with decoding_lock():
            self._refuse_strangers(page)
            blocks = await _blocks(axis, mine)
            if keep_foreign:
                others = [(at, raw) for at, raw in enumerate(page.raw_series) if raw.series_id not in home]
                foreign = await _sound_blocks(axis, others, asked)
        populated = frozenset(axis.periods[at] for block in blocks for at in set(block.positions))
        if outside := self._outside(populated, home, asked):
            raise MalformedAnswerError(
                f"series {_first_at(blocks, period)} has a value at {period}, outside of"
                f" {describe(asked)} @ $.series"
                for period in sorted(outside)
            )
        self.publication.record([raw.series_id for raw in page.raw_series], asked)
        return self._arrive(tuple(blocks), populated, tuple(foreign))

    def _arrive(
        self, blocks: tuple[Block, ...], populated: Set[Period], foreign: tuple[Block, ...] = ()
    ) -> Arrival:
        """Make blocks a part of the answer."""
        arrival = Arrival(blocks, populated, foreign)
        self._arrived |= self._wanted.intersection(arrival.series_ids())
        if isinstance(self.plan.periods, Trailing) and populated:
            self.anchor = max(populated if self.anchor is None else {*populated, self.anchor})
        return arrival

    def _refuse_repeated(self, mine: list[tuple[int, RawSeries]]) -> None:
        if repeated := [(at, raw) for at, raw in mine if raw.series_id in self._arrived]:
            raise MalformedAnswerError(
                f"the series came before @ {series_path(at, raw.series_id)}" for at, raw in repeated
            )

    def _refuse_strangers(self, page: QueryPage) -> None:
        """Refuse series that the catalogue describes as others, foreign ones included."""
        catalogue = self.plan.catalogue
        came = [(at, raw) for at, raw in enumerate(page.raw_series) if raw.series_id in catalogue]
        listed = [catalogue[raw.series_id] for _, raw in came]
        if _heads([raw for _, raw in came]) == _heads(listed):  # one comparison: nearly always all is well
            return
        raise MalformedAnswerError(
            f"expected {getattr(listed, name)!r} as in the catalogue, got {getattr(raw, name)!r}"
            f" @ {series_path(at, raw.series_id)}.{name}"
            for (at, raw), listed in zip(came, listed, strict=True)
            for name in (*_TEXTS, "scopes")
            if getattr(raw, name) != getattr(listed, name)
        )

    def _outside(self, populated: frozenset[Period], home: frozenset[str], asked: Resolved) -> Set[Period]:
        """Return the periods with a value that the batch of these home series did not ask for."""
        if not isinstance(asked, Trailing):
            return populated - _within(asked, populated, None)
        if not populated:
            return populated
        # The service anchors the window of a batch at the batch's own latest value, over all its pages.
        known = populated.union(self._reach.get(home, ()))
        self._reach[home] = (min(known), max(known))
        return known - _within(asked, known, max(known))

    def series_of(self, arrival: Arrival) -> tuple[CatalogueSeries, ...]:
        """Return the series that a page brought, in catalogue order."""
        came = {*arrival.series_ids()}
        return tuple(each for each in self.plan.series if each.series_id in came)

    def panel(
        self, arrivals: Iterable[Arrival], series: tuple[CatalogueSeries, ...], *, requests: int = 0
    ) -> Panel:
        """Return some of the wanted series as a Panel, with the values that arrivals hold.

        Those of the series that have not come are its `unlisted`, if anything could be asked for.
        """
        arrivals = list(arrivals)
        plan = self.plan
        blocks = [block for arrival in arrivals for block in arrival.blocks]
        asked = plan.periods is not None and plan.catalogue.periods
        return Panel(
            Grid(plan.catalogue, plan.question.value_version, series, self._shown(arrivals), Store(blocks)),
            plan.question.select,
            tuple(each.series_id for each in series if each.series_id not in self._arrived) if asked else (),
            self.anchor,
            requests,
            self.publication.confirmed,
        )

    def _shown(self, arrivals: list[Arrival]) -> tuple[Period, ...]:
        """Return the panel's periods, oldest first.

        What was asked for again was asked for over all periods, so there may be more than the question's.
        """
        if isinstance(self.plan.periods, Exact):
            return tuple(sorted(self.plan.periods.periods))
        populated: set[Period] = set().union(*(arrival.populated for arrival in arrivals))
        return tuple(sorted(_within(self.plan.periods, populated, self.anchor)))


def _within(selection: Resolved | None, periods: Set[Period], anchor: Period | None) -> Set[Period]:
    """Return which of the periods a selection means; the window of a `Trailing` ends at the anchor."""
    match selection:
        case Exact(periods=exact):
            return periods & set(exact)
        case FiscalRange(start=Period() as start, end=Period() as end):
            return {each for each in periods if start.fiscal_end <= each.fiscal_end <= end.fiscal_end}
        case Trailing() as trailing if anchor is not None:
            return {each for each in periods if trailing.reaches(each, anchor)}
    return set()


async def _blocks(axis: Axis, series: Iterable[tuple[int, RawSeries]]) -> list[Block]:
    blocks = []
    for block in blocks_of(axis, series):
        blocks.append(block)
        await asyncio.sleep(0)  # a slice of about half a millisecond
    return blocks


async def _sound_blocks(axis: Axis, series: list[tuple[int, RawSeries]], asked: Resolved) -> list[Block]:
    """Return the blocks of series whose values are sound: one that nobody asked for fails no question."""
    try:
        blocks = await _blocks(axis, series)
    except MalformedAnswerError:
        if len(series) == 1:
            return []
        return [block for each in series for block in await _sound_blocks(axis, [each], asked)]
    periods = [frozenset(axis.periods[at] for at in set(block.positions)) for block in blocks]
    return [
        block for block, found in zip(blocks, periods, strict=True) if found <= _within(asked, found, None)
    ]


def _populated(block: Block, series_ids: Set[str]) -> Set[Period]:
    """Return the periods in which one of these series of a block has a value."""
    if len(series_ids) == len(block.series_ids):
        found = set(block.positions)
    else:
        rows = [row for row, each in enumerate(block.series_ids) if each in series_ids]
        found = {at for row in rows for at in block.positions[block.starts[row] : block.starts[row + 1]]}
    return {block.axis.periods[at] for at in found}


def _heads(series: Sequence[RawSeries] | Sequence[CatalogueSeries]) -> tuple[list[Any], ...]:
    """Return what one publication says of series in its catalogue and its pages alike.

    It stands in parts that compare without a call for each.
    """
    paths = list(map(_scopes, series))
    return (
        list(map(_texts, series)),
        list(map(len, paths)),
        list(map(_ref, chain.from_iterable(paths))),
    )


def _first_at(blocks: Iterable[Block], period: Period) -> str:
    """Return the id of a series with a value at a period."""
    for block in blocks:
        for row, series_id in enumerate(block.series_ids):
            start, end = block.starts[row : row + 2]
            if any(block.axis.periods[at] == period for at in block.positions[start:end]):
                return series_id
    return "of an earlier page"
