"""Pages of any batches, in any order, with whatever `periods` arrays -> one Panel (design: exactness).

Each page lists its own periods, so values are placed by period, never by position. Here is decided
which series of a page are kept, which values may be in it, and which periods a panel has.
"""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter, eq
from typing import Any

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Exact, FiscalRange, Period, Resolved, Trailing, describe
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.block import Axis, Block, Store, blocks_of
from asyncfin.table.grid import Grid
from asyncfin.table.panel import Panel
from asyncfin.wire.tasks import decoding_lock
from asyncfin.wire.values import QueryPage, RawSeries, series_path

_TEXTS = ("metric_id", "reporting_group_id", "label", "basis", "number_format", "period_meaning")
_texts = attrgetter(*_TEXTS)
_scopes = attrgetter("scopes")
_ref = attrgetter("scope_group_id", "scope_id")


class Stitch:
    """The answer to one question while it arrives.

    Args:
        catalogue: of the publication that all pages are of.
        series: the wanted series, in catalogue order.
        periods: what the question selects. None: a rule that means no period here, so nothing is asked.

    Attributes:
        lists_empty: whether a series has come with only nulls, a foreign one included.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        series: tuple[CatalogueSeries, ...],
        periods: Resolved | None,
    ) -> None:
        self._catalogue = catalogue
        self.series = series
        self._periods = periods
        self._blocks: list[Block] = []
        self._arrived: set[str] = set()
        self._known: dict[Period, Period] = {}
        self._populated: set[Period] = set()
        self._reach: dict[frozenset[str], tuple[Period, Period]] = {}
        self.lists_empty = False

    @property
    def absent(self) -> tuple[CatalogueSeries, ...]:
        """The wanted series that have not come."""
        return tuple(each for each in self.series if each.series_id not in self._arrived)

    @property
    def anchor(self) -> Period | None:
        """The latest period with a value so far."""
        return max(self._populated, default=None)

    async def add(self, page: QueryPage, *, home: frozenset[str], asked: Resolved) -> None:
        """Keep those series of a page that are at home in its batch; drop the foreign ones.

        `asked` is what the batch asked for, which for a `Trailing` question can be a range to cut from.

        Decodes the numbers in slices of about half a millisecond, one page at a time.

        Raises:
            MalformedAnswerError: a series came before, is another one than in the catalogue, or has
                too few or too many values; or there is a value outside what the batch asked for.
        """
        mine = [(at, raw) for at, raw in enumerate(page.raw_series) if raw.series_id in home]
        self._refuse_repeated(mine)
        axis = Axis.of(tuple(self._known.setdefault(period, period) for period in page.periods))
        blocks = []
        async with decoding_lock():
            self._refuse_strangers(page)
            for block in blocks_of(axis, mine):
                blocks.append(block)
                await asyncio.sleep(0)
        self._take(axis, blocks, home, asked)
        self.lists_empty = self.lists_empty or any(map(_lists_empty, blocks)) or _is_foreign_empty(page, home)

    def _refuse_repeated(self, mine: list[tuple[int, RawSeries]]) -> None:
        if repeated := [(at, raw) for at, raw in mine if raw.series_id in self._arrived]:
            raise MalformedAnswerError(
                f"the series came before @ {series_path(at, raw.series_id)}" for at, raw in repeated
            )

    def _refuse_strangers(self, page: QueryPage) -> None:
        """Refuse series that the catalogue describes as others, foreign ones included."""
        came = [(at, raw) for at, raw in enumerate(page.raw_series) if raw.series_id in self._catalogue]
        listed = [self._catalogue[raw.series_id] for _, raw in came]
        if _heads([raw for _, raw in came]) == _heads(listed):  # one comparison: nearly always all is well
            return
        raise MalformedAnswerError(
            f"expected {getattr(listed, name)!r} as in the catalogue, got {getattr(raw, name)!r}"
            f" @ {series_path(at, raw.series_id)}.{name}"
            for (at, raw), listed in zip(came, listed, strict=True)
            for name in (*_TEXTS, "scopes")
            if getattr(raw, name) != getattr(listed, name)
        )

    def _take(self, axis: Axis, blocks: list[Block], home: frozenset[str], asked: Resolved) -> None:
        """Make a page's blocks part of the answer, if their values may be there."""
        positions: set[int] = set().union(*(block.positions for block in blocks))
        populated = {axis.periods[position] for position in positions}
        if outside := self._outside(populated, home, asked):
            raise MalformedAnswerError(
                f"series {_first_at(blocks, period)} has a value at {period}, outside of"
                f" {describe(asked)} @ $.series"
                for period in sorted(outside)
            )
        self._blocks += blocks
        self._arrived.update(series_id for block in blocks for series_id in block.series_ids)
        self._populated |= populated

    def _outside(self, populated: set[Period], home: frozenset[str], asked: Resolved) -> set[Period]:
        """Return the periods with a value that the batch of these home series did not ask for."""
        match asked:
            case Exact(periods=exact):
                return populated.difference(exact)
            case FiscalRange(start=Period() as start, end=Period() as end):
                return {
                    each for each in populated if not start.fiscal_end <= each.fiscal_end <= end.fiscal_end
                }
            case Trailing() as trailing if populated:
                return self._out_of_reach(trailing, populated, home)
        return set()

    def _out_of_reach(self, trailing: Trailing, populated: set[Period], home: frozenset[str]) -> set[Period]:
        """Return the periods outside a batch's own window, which ends at the batch's own anchor."""
        known = {*populated, *self._reach.get(home, ())}
        anchor = max(known)
        self._reach[home] = (min(known), anchor)
        return {period for period in known if not trailing.reaches(period, anchor)}

    def panel(
        self,
        *,
        select: Select,
        value_version: str,
        requests: int = 0,
        anchor: Period | None = None,
    ) -> Panel:
        """Return what has come so far as a Panel.

        The wanted series that have not come are its `unlisted`, if anything could be asked for.

        Args:
            anchor: where the window of a `Trailing` ends, if other pieces of the answer decide it;
                None: at the latest period with a value here.
        """
        window = None
        if isinstance(self._periods, Trailing):
            window = anchor or self.anchor
        asked = self._periods is not None and self._catalogue.periods
        return Panel(
            Grid(self._catalogue, value_version, self.series, self._shown(window), Store(self._blocks)),
            select,
            tuple(each.series_id for each in self.absent) if asked else (),
            window,
            requests,
        )

    def _shown(self, window: Period | None) -> tuple[Period, ...]:
        """Return the panel's periods, oldest first."""
        match self._periods:
            case Exact(periods=exact):
                return tuple(sorted(exact))
            case Trailing() as trailing:
                return tuple(
                    sorted(each for each in self._populated if window and trailing.reaches(each, window))
                )
        return tuple(sorted(self._populated))


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


def _lists_empty(block: Block) -> bool:
    """Say whether a series of a block came with only nulls."""
    return any(map(eq, block.starts, block.starts[1:]))


def _is_foreign_empty(page: QueryPage, home: frozenset[str]) -> bool:
    """Say whether a series of a page that is dropped came with only nulls."""
    return any(b"{" not in bytes(raw.values) for raw in page.raw_series if raw.series_id not in home)


def _first_at(blocks: Iterable[Block], period: Period) -> str:
    """Return the id of a series with a value at a period."""
    for block in blocks:
        for row, series_id in enumerate(block.series_ids):
            start, end = block.starts[row : row + 2]
            if any(block.axis.periods[at] == period for at in block.positions[start:end]):
                return series_id
    return "of an earlier page"
