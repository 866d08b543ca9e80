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
    zstd,
)
from asyncfin.table.grid import Grid
from asyncfin.table.panel import Panel
from asyncfin.tasks import decoding_lock
from asyncfin.wire.values import PlannedPage, series_path

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
        self.unlisted = publication.unlisted_ids[plan.question.value_version]
        self._missing_ids = set(map(_series_id, plan.series))
        # One axis for all pages that list the same periods, while a block has it.
        self._axes: WeakValueDictionary[tuple[Period, ...], Axis] = (
            WeakValueDictionary()
        )
        self._uncompressed: set[PageText] = set()  # the texts held as received
        self.anchor: Period | None = None

    def list_missing(
        self, *, include_unlisted: bool = False
    ) -> tuple[CatalogueSeries, ...]:
        """Return the wanted series that are not received, without or with the unlisted
        ones.
        """
        missing_ids = self._missing_ids
        if not include_unlisted:
            missing_ids = missing_ids - self.unlisted
        # Looking at each of 3,000 takes a millisecond.
        if not missing_ids:
            return ()
        if len(missing_ids) == len(self.plan.series):
            return self.plan.series
        return tuple(
            series for series in self.plan.series if series.series_id in missing_ids
        )

    def take(self, blocks: Collection[Block]) -> list[Block]:
        """Return the wanted series that are not received yet, from blocks with all
        their periods.
        """
        parts: list[Block] = []
        for block in blocks:
            if self._missing_ids.isdisjoint(block.series_ids):
                continue
            # Two reads may have requested the same series; each must be in the answer
            # once.
            part = _pick_series(block, self._missing_ids)
            if part is not None:
                parts.append(self._receive(part))
        return parts

    async def add(
        self, page: PlannedPage, *, home: Set[str], request_periods: Resolved
    ) -> tuple[Block | None, Block | None]:
        """Return the series of a page that are at home in its batch, and all that were
        read of it, for the cache.

        `request_periods` are those of the batch. They need not be the query's: trailing
        months are requested as a range.

        Raises:
            MalformedAnswerError: the page does not match the plan or the catalogue.
        """
        series = self._find_series(page)
        # Without series of interest the text is not held, so it takes no room.
        text = await self._hold_text(page.body if page.wanted.indices else b"")
        axis = self._axes.get(page.periods)
        if axis is None:
            axis = Axis.of(page.periods)
            self._axes[page.periods] = axis
        block = block_of(axis, page, text) if page.wanted.indices else None
        part = block and _pick_series(block, home)
        outside = part and _find_outside(part, request_periods)
        if outside:
            raise MalformedAnswerError(
                f"a value at {period} is outside of {request_periods} @ $.series"
                for period in sorted(outside)
            )
        # No query is about a foreign series: with such values it is not cached.
        if (
            block is not part
            and block is not None
            and _find_outside(block, request_periods)
        ):
            block = part
        self._record_listed(series, request_periods)
        if part is None:
            self._uncompressed.discard(text)  # no wanted series holds it
        return part and self._receive(part), block

    async def _hold_text(self, body: bytes) -> PageText:
        """Return the text of a page, as received while there is room for it, otherwise
        compressed.
        """
        text = PageText((body,), is_compressed=False)
        held_bytes = len(body)
        for page in self._uncompressed:
            held_bytes += len(page.pieces[0])
        if held_bytes <= _WHOLE_BYTES:
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
        return PageText(tuple(frames), is_compressed=True)

    def release(self, block: Block) -> Block:
        """Count the text of a block no longer as held: from now on it is the
        consumer's.
        """
        self._uncompressed.discard(block.text)
        return block

    def _receive(self, block: Block) -> Block:
        """Make a block of wanted series a part of the answer."""
        self._missing_ids.difference_update(block.series_ids)
        if isinstance(self.plan.periods, Trailing) and block.positions:
            candidates = set(block.populated())
            if self.anchor is not None:
                candidates.add(self.anchor)
            self.anchor = max(candidates)
        return block

    def _find_series(self, page: PlannedPage) -> list[CatalogueSeries]:
        """Return the series of a page in the catalogue.

        One that is described as another series, even a foreign one, is a
        MalformedAnswerError. Texts may differ: those of the catalogue count.
        """
        catalogue = self.plan.catalogue
        places = map(catalogue.places.__getitem__, map(_series_id, page.heads))
        listed_series = list(map(catalogue.series.__getitem__, places))
        page_triples = map(triple, page.heads)
        if all(map(eq, page_triples, map(triple, listed_series))):
            return listed_series
        pairs = zip(page.heads, listed_series, strict=True)
        raise MalformedAnswerError(
            f"expected {getattr(series, name)!r} as in the catalogue, got "
            f"{getattr(head, name)!r}"
            f" @ {series_path(index, head.series_id)}.{name}"
            for index, (head, series) in enumerate(pairs)
            for name in IDENTITY
            if getattr(head, name) != getattr(series, name)
        )

    def _record_listed(
        self, series: list[CatalogueSeries], request_periods: Resolved
    ) -> None:
        """Record which series a response has listed, foreign ones too."""
        series_ids = list(map(_series_id, series))
        self.unlisted.difference_update(series_ids)
        every_period = set(self.plan.catalogue.periods)
        if _cut_to_window(request_periods, every_period, None) == every_period:
            version = self.plan.question.value_version
            self.publication.listed_ids[version].update(series_ids)

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
        is_whole: bool = True,
    ) -> Panel:
        """Return some of the wanted series as a Panel, with the values that blocks
        hold.

        Those that are not received are its `unlisted`, if anything could be requested.
        `is_whole` is False for a piece of a stream.
        """
        plan = self.plan
        if isinstance(plan.periods, Exact):
            periods: Set[Period] = set(plan.periods.periods)
        else:
            # Missing series were requested again over all periods: some may not be the
            # question's.
            value_periods: set[Period] = set().union(
                *(block.populated() for block in blocks)
            )
            periods = _cut_to_window(plan.periods, value_periods, self.anchor)
        unlisted_ids: tuple[str, ...] = ()
        if plan.periods is not None and self._missing_ids:
            unlisted_ids = tuple(
                item.series_id for item in series if item.series_id in self._missing_ids
            )
        question = plan.question
        grid = Grid(
            plan.catalogue,
            question.value_version,
            series,
            tuple(sorted(periods)),
            Store(blocks),
            question.select,
            query_periods=_select_periods(plan, self.anchor),
            unlisted_ids=unlisted_ids,
            anchor=self.anchor,
            is_whole=is_whole,
        )
        return Panel(grid, requests, confirmed_at)


def _select_periods(plan: Plan, anchor: Period | None) -> tuple[Period, ...]:
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
    catalogue_periods, end_of = plan.catalogue.periods, attrgetter("fiscal_end")
    begin = bisect_left(catalogue_periods, first, key=end_of)
    return catalogue_periods[begin : bisect_right(catalogue_periods, last, key=end_of)]


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


def _pick_series(block: Block, series_ids: Set[str]) -> Block | None:
    """Return the part of a block with some series, if it has any of them."""
    foreign_ids = set(block.series_ids) - series_ids
    return drop_series(block, foreign_ids) if foreign_ids else block


def _find_outside(block: Block, request_periods: Resolved) -> Set[Period]:
    """Return the periods in which a block has a value and which were not requested."""
    value_periods = block.populated()
    return value_periods - _cut_to_window(request_periods, value_periods, None)
