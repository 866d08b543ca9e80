"""Stitches the pages of any batches, in any order, to one panel. Each page has a separate `periods` array.

Decides which series of a page are kept, which values may be in it, and which periods a panel has. Values
are placed by period, never by position.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Set
from datetime import datetime
from itertools import chain
from operator import attrgetter, eq
from weakref import WeakValueDictionary

from attrs import frozen

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.deviation import Deviation, merged
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved, Trailing, describe, resolve
from asyncfin.model.series import IDENTITY, PAGE_FIELDS, CatalogueSeries
from asyncfin.plan.plan import Plan
from asyncfin.read.publications import Publication
from asyncfin.table.block import LEVEL, Axis, Block, PageText, Store, block_of, drop_series
from asyncfin.table.grid import Grid
from asyncfin.table.panel import Panel
from asyncfin.tasks import decoding_lock
from asyncfin.wire.tolerance import Tolerance
from asyncfin.wire.values import PlannedPage, series_path
from asyncfin.wire.zstd import zstd

# What a page and the catalogue both say of a series.
_NAMES = tuple(name for name in PAGE_FIELDS if name != "series_id")
_fields = attrgetter(*_NAMES)
_series_id = attrgetter("series_id")
# How much of the pages' texts a result holds as received; what is more is compressed.
_WHOLE_BYTES = 4 * 1024 * 1024
# How many pieces of a text are compressed without a stop in between: it takes a millisecond.
_PIECES_AT_ONCE = 8


@frozen(eq=False)
class Arrival:
    """One page's contribution to the answer."""

    blocks: tuple[Block, ...]  # the values of its wanted series
    populated: Set[Period]  # the periods in which one of these series has a value
    foreign: tuple[Block, ...] = ()  # the values of the other series, where they are kept
    whole_bytes: int = 0  # the size of the page's text, if it is held as received

    def series_ids(self) -> Iterator[str]:
        """Yield the ids of the series."""
        return chain.from_iterable(block.series_ids for block in self.blocks)


class Stitch:
    """The answer to a planned question while its pages are received.

    The values are with the caller, as arrivals. What its pages show of the publication is recorded there.
    """

    def __init__(self, plan: Plan, publication: Publication, tolerance: Tolerance = Tolerance()) -> None:
        self._tolerance = tolerance.of("query", plan.catalogue.entity_id)
        self.plan = plan
        self.publication = publication
        self.unlisted = publication.unlisted(plan.question.value_version)
        # A byte for each series of the catalogue: a stream must not grow with what the consumer has received.
        self._received = bytearray(len(plan.catalogue))
        self._left = len(plan.series)
        # One object for each period, however many pages list it; and for each axis, while a block has it.
        self._known: dict[Period, Period] = {}
        self._axes: WeakValueDictionary[tuple[Period, ...], Axis] = WeakValueDictionary()
        self._room = _WHOLE_BYTES
        self.anchor: Period | None = None

    def _has_received(self, series_id: str) -> bool:
        # A cached block can hold series that a catalogue made by the caller does not list.
        place = self.plan.catalogue.places.get(series_id)
        return place is not None and bool(self._received[place])

    @property
    def not_received(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that are not received."""
        return self._not_received_of(self.plan.series)

    def _not_received_of(self, series: tuple[CatalogueSeries, ...]) -> tuple[CatalogueSeries, ...]:
        # Usually all or none of them, and looking at each of 3,000 takes a millisecond.
        if self._left in (0, len(self.plan.series)):
            return series if self._left else ()
        received, places = self._received, self.plan.catalogue.places
        return tuple([each for each in series if not received[places[each.series_id]]])

    @property
    def missing(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that are not received, apart from the unlisted ones."""
        return tuple(each for each in self.not_received if each.series_id not in self.unlisted)

    def take(self, blocks: Collection[Block]) -> list[Arrival]:
        """Return the arrivals of series that are not received yet, from blocks with all their periods."""
        arrivals: list[Arrival] = []
        places = self.plan.catalogue.places
        wanted = {series.series_id for series in self.not_received} if blocks else set()
        for block in blocks:
            if not (found := wanted.intersection(block.series_ids)):
                continue
            # Two reads may have requested the same series; each must be in the answer once. Of a block
            # of which no series is received, as of nearly all, nothing is dropped.
            whole = len(found) == len(block.series_ids)
            known = set() if whole else set(filter(self._has_received, block.series_ids))
            if (new := drop_series(block, known) if known else block) is not None:
                wanted -= found
                arrivals.append(
                    self._arrive([places[each] for each in found], (new,), _populated(new, found))
                )
        return arrivals

    async def add(self, page: PlannedPage, *, asked: Resolved) -> Arrival:
        """Return the arrival of a page; MalformedAnswerError: it does not match the plan or the catalogue.

        `asked` are the periods that the batch requested. They need not be the question's: trailing months are
        requested as a range.
        """
        # Without series of interest the text is not held, so it takes no room.
        places, differences = self._places(page)
        deviations = merged((*page.deviations, *differences))
        text = await self._text(page.body if page.wanted.indices or page.foreign.indices else b"", deviations)
        # Nothing below waits, so that of two pages that are added at once the second sees the first.
        if repeated := [index for index in page.wanted.indices if self._received[places[index]]]:
            raise MalformedAnswerError(
                f"the series came before @ {series_path(index, page.heads[index].series_id)}"
                for index in repeated
            )
        # The same axis for all pages that list the same periods in the same order.
        if (axis := self._axes.get(page.periods)) is None:
            axis = Axis.of(tuple(self._known.setdefault(period, period) for period in page.periods))
            self._axes[page.periods] = axis
        blocks = [block_of(axis, page, page.wanted, text)] if page.wanted.indices else []
        foreign = [block_of(axis, page, page.foreign, text)] if page.foreign.indices else []
        populated = frozenset(axis.periods[at] for block in blocks for at in set(block.positions))
        if outside := populated - _cut_to_window(asked, populated, None):
            raise MalformedAnswerError(
                f"series {_first_at(blocks, period)} has a value at {period}, outside of"
                f" {describe(asked)} @ $.series"
                for period in sorted(outside)
            )
        self._tolerance.report(differences)
        self.publication.record_listed(self.plan.question.value_version, places, asked)
        wanted_places = [places[index] for index in page.wanted.indices]
        return self._arrive(
            wanted_places,
            tuple(blocks),
            populated,
            tuple(_valid_foreign(foreign, asked)),
            0 if text.compressed else len(text.pieces[0]),
        )

    async def _text(self, body: bytes, deviations: tuple[Deviation, ...]) -> PageText:
        """Return the text of a page, as received while there is room for it, otherwise compressed."""
        text = PageText((body,), compressed=False, head_deviations=deviations)
        if len(body) <= self._room:
            self._room -= len(body)
            return text
        # Here, and not in a thread, which would wait for the GIL after each piece: with that, results took up
        # to a seventh more CPU time, and a tenth more memory, for more pages waited to be compressed.
        frames = []
        async with decoding_lock():  # not while another page is decoded
            for frame in text.frames(zstd.ZstdCompressor(LEVEL)):
                frames.append(frame)
                if len(frames) % _PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return PageText(tuple(frames), compressed=True, head_deviations=deviations)

    def release(self, arrival: Arrival) -> Arrival:
        """Count an arrival's text no longer as held: from now on it is the consumer's."""
        self._room += arrival.whole_bytes
        return arrival

    def _arrive(
        self,
        places: Collection[int],
        blocks: tuple[Block, ...],
        populated: Set[Period],
        foreign: tuple[Block, ...] = (),
        whole_bytes: int = 0,
    ) -> Arrival:
        """Make the blocks of wanted series a part of the answer."""
        arrival = Arrival(blocks, populated, foreign, whole_bytes)
        self._left -= len(places)
        for place in places:
            self._received[place] = True
        if isinstance(self.plan.periods, Trailing) and populated:
            self.anchor = max(populated if self.anchor is None else {*populated, self.anchor})
        return arrival

    def _places(self, page: PlannedPage) -> tuple[list[int], tuple[Deviation, ...]]:
        """Return the places of a page's series in the catalogue, and the texts that differ from it.

        One that is described as another series, even a foreign one, is a MalformedAnswerError.
        """
        catalogue = self.plan.catalogue
        places = list(map(catalogue.places.__getitem__, map(_series_id, page.heads)))
        listed = list(map(catalogue.series.__getitem__, places))
        # Usually all are equal. One by one: texts of the catalogue are rarely in the processor's cache.
        if all(map(eq, map(_fields, page.heads), map(_fields, listed))):
            return places, ()
        refused = IDENTITY if not self._tolerance.strict else _NAMES
        differing = [
            (index, name)
            for index, (head, known) in enumerate(zip(page.heads, listed, strict=True))
            for name in _NAMES
            if getattr(head, name) != getattr(known, name)
        ]
        if any(name in refused for _, name in differing):
            raise MalformedAnswerError(
                f"expected {getattr(listed[index], name)!r} as in the catalogue,"
                f" got {getattr(page.heads[index], name)!r}"
                f" @ {series_path(index, page.heads[index].series_id)}.{name}"
                for index, name in differing
                if name in refused
            )
        # A text that the page or the catalogue does not have is counted there.
        paths = {each.path for each in catalogue.deviations}
        counts = Counter(
            name
            for index, name in differing
            if getattr(page.heads[index], name)
            and (getattr(listed[index], name) or f"$.groups[*].series[*].{name}" not in paths)
        )
        return places, tuple(
            Deviation(f"$.series[*].{name}", "differs from the catalogue", count)
            for name, count in counts.items()
        )

    def series_of(self, arrival: Arrival) -> tuple[CatalogueSeries, ...]:
        """Return the series of an arrival, in catalogue order."""
        catalogue = self.plan.catalogue
        # Looking at all series for each page would be quadratic. What is not received was not wanted.
        places = [catalogue.places[each] for each in arrival.series_ids() if self._has_received(each)]
        return tuple(catalogue.series[place] for place in sorted(places))

    def panel(
        self,
        arrivals: Iterable[Arrival],
        series: tuple[CatalogueSeries, ...],
        *,
        requests: int = 0,
        confirmed_at: datetime | None = None,
        whole: bool = True,
    ) -> Panel:
        """Return some of the wanted series as a Panel, with the values that arrivals hold.

        Those that are not received are its `unlisted`, if anything could be requested. A piece of a stream is
        not `whole`.
        """
        arrivals = list(arrivals)
        plan = self.plan
        blocks = [block for arrival in arrivals for block in arrival.blocks]
        asked = plan.periods is not None and plan.catalogue.periods
        if isinstance(plan.periods, Exact):
            periods: Set[Period] = set(plan.periods.periods)
        else:
            # Missing series were requested again over all periods: some may not be the question's.
            populated: set[Period] = set().union(*(arrival.populated for arrival in arrivals))
            periods = _cut_to_window(plan.periods, populated, self.anchor)
        question = plan.question
        grid = Grid(
            plan.catalogue,
            question.value_version,
            series,
            tuple(sorted(periods)),
            Store(blocks, self._tolerance),
            asked=_asked(plan, self.anchor),
            whole=whole,
        )
        return Panel(
            grid,
            question.select,
            tuple(each.series_id for each in self._not_received_of(series)) if asked else (),
            self.anchor,
            requests,
            confirmed_at,
        )


def _asked(plan: Plan, anchor: Period | None) -> tuple[Period, ...]:
    """Return the periods of a question, oldest first: of a range or window, those that the catalogue has."""
    # A plan without series has no periods; its question has.
    asked = plan.question.periods
    match plan.periods or resolve(asked, plan.catalogue.periods) or asked:
        case Exact(periods=periods):
            return tuple(sorted(periods))
        case FiscalRange(start=Period() as start, end=Period() as end):
            first, last = start.fiscal_end, end.fiscal_end
        case Trailing(months=months) if anchor is not None:
            first, last = anchor.fiscal_end - months + 1, anchor.fiscal_end
        case _:
            return ()
    # The catalogue's periods are oldest first: a question that the cache answers takes 70 us in all.
    listed, end_of = plan.catalogue.periods, attrgetter("fiscal_end")
    return listed[bisect_left(listed, first, key=end_of) : bisect_right(listed, last, key=end_of)]


def _cut_to_window(selection: Resolved | None, periods: Set[Period], anchor: Period | None) -> Set[Period]:
    """Return which of the periods a selection means; the window of a `Trailing` ends at the anchor."""
    match selection:
        case Exact(periods=exact):
            return periods & set(exact)
        case FiscalRange(start=Period() as start, end=Period() as end):
            first, last = start.fiscal_end, end.fiscal_end
            return {each for each in periods if first <= each.fiscal_end <= last}
        case Trailing() as trailing if anchor is not None:
            return {each for each in periods if trailing.contains(each, anchor)}
    return set()


def _valid_foreign(blocks: Iterable[Block], asked: Resolved) -> Iterator[Block]:
    """Yield the valid blocks of foreign series: an invalid one does not fail the question."""
    for block in blocks:
        periods = frozenset(block.axis.periods[at] for at in set(block.positions))
        if periods <= _cut_to_window(asked, periods, None):
            yield block


def _populated(block: Block, series_ids: Set[str]) -> Set[Period]:
    """Return the periods in which one of these series of a block has a value."""
    if len(series_ids) == len(block.series_ids):
        found = set(block.positions)
    else:
        rows = [row for row, each in enumerate(block.series_ids) if each in series_ids]
        found = {at for row in rows for at in block.observations(row)[0]}
    return {block.axis.periods[at] for at in found}


def _first_at(blocks: Iterable[Block], period: Period) -> str:
    """Return the id of a series with a value at a period."""
    return next(
        series_id
        for block in blocks
        for row, series_id in enumerate(block.series_ids)
        if period in _populated(block, {series_id})
    )
