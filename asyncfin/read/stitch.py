"""Stitches the pages of any batches, in any order, to one panel. Each page has a
separate `periods` array.

Decides which series of a page are kept, which values may be in it, and which periods a
panel has. Values are placed by period, never by position.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Set
from datetime import datetime
from operator import attrgetter, eq
from weakref import WeakValueDictionary

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.selection import (
    Exact,
    FiscalRange,
    Resolved,
    Trailing,
    resolve,
)
from asyncfin.model.series import IDENTITY, CatalogueSeries, triple
from asyncfin.plan.plan import Plan
from asyncfin.read.publications import Publication
from asyncfin.table.block import (
    LEVEL,
    Axis,
    Block,
    PageText,
    Store,
    block_of,
    drop_series,
)
from asyncfin.table.grid import Grid
from asyncfin.table.panel import Panel
from asyncfin.tasks import decoding_lock
from asyncfin.wire.values import PlannedPage, series_path
from asyncfin.wire.zstd import zstd

_series_id = attrgetter("series_id")
# How much of the pages' texts a result holds as received; what is more is compressed.
_WHOLE_BYTES = 4 * 1024 * 1024
# How many pieces of a text are compressed without a stop in between: it takes a
# millisecond.
_PIECES_AT_ONCE = 8


class Stitch:
    """The answer to a planned question while its pages are received.

    The values are with the caller, as blocks of wanted series. What its pages show of
    the publication is recorded there.
    """

    def __init__(self, plan: Plan, publication: Publication) -> None:
        self.plan = plan
        self.publication = publication
        self.unlisted = publication.unlisted(plan.question.value_version)
        # A byte for each series of the catalogue: a stream must not grow with what the
        # consumer has received.
        self._received = bytearray(len(plan.catalogue))
        self._left = len(plan.series)
        # One object for each period, however many pages list it; and for each axis,
        # while a block has it.
        self._periods: dict[Period, Period] = {}
        self._axes: WeakValueDictionary[tuple[Period, ...], Axis] = (
            WeakValueDictionary()
        )
        self._uncompressed: set[PageText] = set()  # the texts held as received
        self.anchor: Period | None = None

    @property
    def not_received(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that are not received."""
        return self._find_not_received(self.plan.series)

    def _find_not_received(
        self, series: tuple[CatalogueSeries, ...]
    ) -> tuple[CatalogueSeries, ...]:
        # Usually all or none of them, and looking at each of 3,000 takes a millisecond.
        if self._left in (0, len(self.plan.series)):
            return series if self._left else ()
        received, places = self._received, self.plan.catalogue.places
        return tuple([item for item in series if not received[places[item.series_id]]])

    @property
    def missing(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that are not received, apart from the unlisted ones."""
        return tuple(
            series
            for series in self.not_received
            if series.series_id not in self.unlisted
        )

    def take(self, blocks: Collection[Block]) -> list[Block]:
        """Return the wanted series that are not received yet, from blocks with all
        their periods.
        """
        taken: list[Block] = []
        if not blocks:
            return taken
        missing_ids = {series.series_id for series in self.not_received}
        for block in blocks:
            # Two reads may have requested the same series; each must be in the answer
            # once.
            others = set(block.series_ids) - missing_ids
            part = drop_series(block, others) if others else block
            if part is not None:
                missing_ids.difference_update(part.series_ids)
                taken.append(self._receive(part))
        return taken

    async def add(
        self, page: PlannedPage, *, home: Set[str], asked: Resolved
    ) -> tuple[Block | None, Block | None]:
        """Return the series of a page that are at home in its batch, and all that were
        read of it, for the cache.

        `asked` are the periods that the batch requested. They need not be the query's:
        trailing months are requested as a range.

        Raises:
            MalformedAnswerError: the page does not match the plan or the catalogue.
        """
        places = self._find_places(page)
        # Without series of interest the text is not held, so it takes no room.
        text = await self._text(page.body if page.wanted.indices else b"")
        # The same axis for all pages that list the same periods in the same order.
        if (axis := self._axes.get(page.periods)) is None:
            axis = Axis.of(
                tuple(
                    self._periods.setdefault(period, period) for period in page.periods
                )
            )
            self._axes[page.periods] = axis
        block = block_of(axis, page, text) if page.wanted.indices else None
        part = block and _pick_home(block, home)
        if part is not None and (outside := _outside(part, asked)):
            raise MalformedAnswerError(
                f"series {_first_at(part, period)} has a value at {period}, outside of "
                f"{asked} @ $.series"
                for period in sorted(outside)
            )
        # No query is about a foreign series: with such values it is not cached.
        if block is not part and block is not None and _outside(block, asked):
            block = part
        self.publication.record_listed(self.plan.question.value_version, places, asked)
        if part is None:
            self._uncompressed.discard(text)  # no wanted series holds it
        return part and self._receive(part), block

    async def _text(self, body: bytes) -> PageText:
        """Return the text of a page, as received while there is room for it, otherwise
        compressed.
        """
        text = PageText((body,), compressed=False)
        held_bytes = sum(len(page.pieces[0]) for page in self._uncompressed)
        if held_bytes + len(body) <= _WHOLE_BYTES:
            self._uncompressed.add(text)
            return text
        # Here, and not in a thread, which would wait for the GIL after each piece: with
        # that, results took up to a seventh more CPU time, and a tenth more memory, for
        # more pages waited to be compressed.
        frames = []
        async with decoding_lock():  # not while another page is decoded
            for frame in text.frames(zstd.ZstdCompressor(LEVEL)):
                frames.append(frame)
                if len(frames) % _PIECES_AT_ONCE == 0:
                    await asyncio.sleep(0)
        return PageText(tuple(frames), compressed=True)

    def release(self, block: Block) -> Block:
        """Count the text of a block no longer as held: from now on it is the
        consumer's.
        """
        self._uncompressed.discard(block.text)
        return block

    def _receive(self, block: Block) -> Block:
        """Make a block of wanted series a part of the answer."""
        places = self.plan.catalogue.places
        self._left -= len(block.series_ids)
        for series_id in block.series_ids:
            self._received[places[series_id]] = True
        if isinstance(self.plan.periods, Trailing) and block.positions:
            candidates = set(block.populated())
            if self.anchor is not None:
                candidates.add(self.anchor)
            self.anchor = max(candidates)
        return block

    def _find_places(self, page: PlannedPage) -> list[int]:
        """Return the places of a page's series in the catalogue.

        One that is described as another series, even a foreign one, is a
        MalformedAnswerError. Texts may differ: those of the catalogue count.
        """
        catalogue = self.plan.catalogue
        places = list(map(catalogue.places.__getitem__, map(_series_id, page.heads)))
        listed = list(map(catalogue.series.__getitem__, places))
        if all(map(eq, map(triple, page.heads), map(triple, listed))):
            return places
        raise MalformedAnswerError(
            f"expected {getattr(series, name)!r} as in the catalogue, got "
            f"{getattr(head, name)!r}"
            f" @ {series_path(index, head.series_id)}.{name}"
            for index, (head, series) in enumerate(zip(page.heads, listed, strict=True))
            for name in IDENTITY
            if getattr(head, name) != getattr(series, name)
        )

    def series_of(self, block: Block) -> tuple[CatalogueSeries, ...]:
        """Return the series of a block, in catalogue order."""
        catalogue = self.plan.catalogue
        # Looking at all series for each page would be quadratic.
        places = sorted(catalogue.places[series_id] for series_id in block.series_ids)
        return tuple(catalogue.series[place] for place in places)

    def panel(
        self,
        blocks: Collection[Block],
        series: tuple[CatalogueSeries, ...],
        *,
        requests: int = 0,
        confirmed_at: datetime | None = None,
        whole: bool = True,
    ) -> Panel:
        """Return some of the wanted series as a Panel, with the values that blocks
        hold.

        Those that are not received are its `unlisted`, if anything could be requested.
        A piece of a stream is not `whole`.
        """
        plan = self.plan
        if isinstance(plan.periods, Exact):
            periods: Set[Period] = set(plan.periods.periods)
        else:
            # Missing series were requested again over all periods: some may not be the
            # question's.
            populated: set[Period] = set().union(
                *(block.populated() for block in blocks)
            )
            periods = _cut_to_window(plan.periods, populated, self.anchor)
        unlisted: tuple[str, ...] = ()
        if plan.periods is not None:
            unlisted = tuple(item.series_id for item in self._find_not_received(series))
        question = plan.question
        grid = Grid(
            plan.catalogue,
            question.value_version,
            series,
            tuple(sorted(periods)),
            Store(blocks),
            question.select,
            asked=_asked(plan, self.anchor),
            unlisted=unlisted,
            anchor=self.anchor,
            whole=whole,
        )
        return Panel(grid, requests, confirmed_at)


def _asked(plan: Plan, anchor: Period | None) -> tuple[Period, ...]:
    """Return the periods of a question, oldest first: of a range or window, those that
    the catalogue has.
    """
    # A plan without series has no periods; its question has.
    selection = plan.question.periods
    match plan.periods or resolve(selection, plan.catalogue.periods) or selection:
        case Exact(periods=periods):
            return tuple(sorted(periods))
        case FiscalRange(start=Period() as start, end=Period() as end):
            first, last = start.fiscal_end, end.fiscal_end
        case Trailing(months=months) if anchor is not None:
            first, last = anchor.fiscal_end - months + 1, anchor.fiscal_end
        case _:
            return ()
    # The catalogue's periods are oldest first: a question that the cache answers takes
    # 70 us in all.
    listed, end_of = plan.catalogue.periods, attrgetter("fiscal_end")
    return listed[
        bisect_left(listed, first, key=end_of) : bisect_right(listed, last, key=end_of)
    ]


def _cut_to_window(
    selection: Resolved | None, periods: Set[Period], anchor: Period | None
) -> Set[Period]:
    """Return which of the periods a selection means; the window of a `Trailing` ends at
    the anchor.
    """
    match selection:
        case Exact(periods=exact):
            return periods & set(exact)
        case FiscalRange(start=Period() as start, end=Period() as end):
            first, last = start.fiscal_end, end.fiscal_end
            return {period for period in periods if first <= period.fiscal_end <= last}
        case Trailing() as trailing if anchor is not None:
            return {period for period in periods if trailing.contains(period, anchor)}
    return set()


def _pick_home(block: Block, home: Set[str]) -> Block | None:
    """Return the series of a block that are at home in its batch."""
    foreign = set(block.series_ids) - home
    return drop_series(block, foreign) if foreign else block


def _outside(block: Block, requested: Resolved) -> Set[Period]:
    """Return the periods in which a block has a value and which were not requested."""
    populated = block.populated()
    return populated - _cut_to_window(requested, populated, None)


def _first_at(block: Block, period: Period) -> str:
    """Return the id of the first series with a value at a period."""
    place = block.positions.index(block.axis.periods.index(period))
    return block.series_ids[bisect_right(block.starts, place) - 1]
