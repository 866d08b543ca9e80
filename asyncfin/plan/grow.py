"""Grow batches of one page over a sparse table of metrics and scope paths.

A batch is grown from a hub, the line that most unassigned cells share. If a hub has
more partners than the caps allow, those are taken whose unassigned series come closest
to what each free line still has to add to fill the page, so that partners with few and
with many series are used up together. Then the batch takes the lines that waste least
of the page and add most. When nothing near fits any more, the next hub starts in the
same batch, on the side with fewer lines left.

Batches are grown in several views of the table (see `Cells.make_views`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from math import inf
from operator import attrgetter
from typing import TypeAlias

from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import (
    MAX_LINES,
    Cell,
    Cells,
    CountsByLine,
    SeriesByCell,
    View,
    count_by_line,
)

# Bounds on the time that one batch takes to plan; more of each changed no plan of a
# real catalogue.
_HUBS_TRIED = 60
_PARTNERS_TRIED = 10
_PARTNERS_WEIGHED = 1000

_series_id = attrgetter("series_id")


def grow(
    cells: Cells,
    series_by_cell: SeriesByCell,
    *,
    enough: int,
    limit: float = inf,
    spare: int = 0,
) -> list[Sequence[CatalogueSeries]] | None:
    """Return the home series of batches of a page each that together hold the wanted
    series.

    A batch with `enough` home series is not grown in further views. The partners of its
    first hub leave `spare` lines of each side free, so that a hub of the other side can
    cross it. None: more than `limit` batches would be needed, if the next ones are like
    the last two. No cell of the wanted series is larger than a page.
    """
    # A copy, from which assigned series are removed: the caller continues with the
    # original.
    unassigned_cells = dict(series_by_cell)
    unassigned_count = sum(map(len, unassigned_cells.values()))
    views = cells.make_views(unassigned_cells)
    growths = [_Growth(next(views), spare)]
    homes: list[Sequence[CatalogueSeries]] = []
    largest_count = MAX_PAGE_SIZE
    while unassigned_count > 0:
        if unassigned_count > largest_count * (limit - len(homes)):
            return None
        # The first view, of all groups, is usually the best; the others are made only
        # if it leaves room.
        best_growth = growths[0]
        best = best_growth.list_series()
        if len(best) < enough:
            for view in views:
                growths.append(_Growth(view, spare))
            for growth in growths[1:]:
                # Most sets of groups have fewer series left than the best batch: none
                # of theirs is better.
                if growth.left <= len(best):
                    continue
                series = growth.list_series()
                if len(series) > len(best):
                    best_growth, best = growth, series
                if len(best) >= enough:
                    break
        if not best:
            return None
        batch = best_growth.make_batch()
        assigned_ids = set(map(_series_id, best))
        for growth in growths:
            growth.assign(batch, assigned_ids)
        unassigned_count -= len(best)
        homes.append(best)
        # Batches rarely become larger, so the rest needs at least about as many of this
        # size.
        largest_count = max(map(len, homes[-2:]))
    return homes


class _Growth:
    """The unassigned series of one view, and the batch that would take most of them."""

    def __init__(self, view: View, spare: int) -> None:
        self._unassigned = view.cells
        self._spare = spare
        self.left = sum(map(len, view.cells.values()))
        # A cell with more series than a page fits into no batch of one page, so it must
        # not attract one.
        fitting: SeriesByCell = {}
        for cell, series in view.cells.items():
            metric, path = cell
            if view.counts[0][metric][path] <= MAX_PAGE_SIZE:
                fitting[cell] = series
        self._table = _Counts(view.counts, fitting)
        self._batch: list[Cell] | None = None

    def make_batch(self) -> list[Cell]:
        if self._batch is None:
            growing_batch = _GrowingBatch(self._table, self._spare)
            self._batch = growing_batch.list_cells()
        return self._batch

    def list_series(self) -> list[CatalogueSeries]:
        series: list[CatalogueSeries] = []
        for cell in self.make_batch():
            series += self._unassigned[cell]
        return series

    def assign(self, cells: list[Cell], assigned_ids: set[str]) -> None:
        """Drop the assigned series of these cells."""
        for cell in cells:
            series = self._unassigned.get(cell, [])
            remainder = [item for item in series if item.series_id not in assigned_ids]
            count = len(series) - len(remainder)
            if count == 0:
                continue  # the batch that was grown for this view is still valid
            self._table.assign(cell, count)
            self.left -= count
            self._batch = None
            if remainder:
                self._unassigned[cell] = remainder
            else:
                del self._unassigned[cell]


# A line that may be a hub: its number of partners, below 0 as a heap begins with the
# least, and the line.
_Hub: TypeAlias = tuple[int, int]


class _Counts:
    """How many series each cell matches, and how many of them are unassigned.

    `total` counts the unassigned series of each line. Every unassigned cell fits on a
    page by itself.
    """

    def __init__(self, counts: CountsByLine, unassigned_cells: SeriesByCell) -> None:
        self.matched = counts
        self.unassigned = count_by_line(unassigned_cells)
        self.total: list[dict[int, int]] = []
        self._hubs: list[list[_Hub]] = []
        for side in self.unassigned:
            totals: dict[int, int] = {}
            hubs: list[_Hub] = []
            for line, cells in side.items():
                totals[line] = sum(cells.values())
                hubs.append((-len(cells), line))
            heapify(hubs)
            self.total.append(totals)
            self._hubs.append(hubs)

    def assign(self, cell: Cell, count: int) -> None:
        """Subtract assigned series from a cell; one that does not fit on a page is not
        in the table.
        """
        metric, path = cell
        if path not in self.unassigned[0].get(metric, ()):
            return
        for side in (0, 1):
            line, crossing = cell[side], cell[1 - side]
            self.total[side][line] -= count
            cells = self.unassigned[side][line]
            cells[crossing] -= count
            if cells[crossing]:
                continue
            del cells[crossing]
            if not cells:
                del self.unassigned[side][line]

    def find_largest_hub(self) -> tuple[int, int] | None:
        """Return the side and the line with the most partners left."""
        tops = []
        for side in (0, 1):
            top = self._find_hub(side)
            if top is not None:
                tops.append((*top, side))
        if not tops:
            return None
        _, line, side = min(tops)
        return side, line

    def _find_hub(self, side: int) -> _Hub | None:
        """Return the line of a side with the most partners left."""
        hubs = self._hubs[side]
        while hubs:
            hub = hubs[0]
            line = hub[1]
            partners = self.unassigned[side].get(line, ())
            current_hub = -len(partners), line
            if hub == current_hub:
                return hub
            # The heap is updated only when an outdated entry reaches its top.
            if partners:
                heapreplace(hubs, current_hub)
            else:
                heappop(hubs)
        return None

    def iterate_hubs(self, side: int) -> Generator[int, None, None]:
        """Yield the lines with the most partners left, in that order."""
        hubs = self._hubs[side]
        hubs_seen: list[_Hub] = []
        try:
            while len(hubs_seen) < _HUBS_TRIED:
                hub = self._find_hub(side)
                if hub is None:
                    break
                hubs_seen.append(heappop(hubs))
                yield hub[1]
        finally:
            for hub in hubs_seen:
                heappush(hubs, hub)


class _GrowingBatch:
    """A batch while it grows: the lines chosen so far, and the room left on its
    page.
    """

    def __init__(self, table: _Counts, spare: int) -> None:
        self._table = table
        self._spare = spare  # the lines of each side that are left free for now
        self._room = MAX_PAGE_SIZE
        # By side: the chosen lines, and what a line that is not chosen would add.
        self._chosen: list[dict[int, None]] = [{}, {}]
        self._gain: list[dict[int, int]] = [{}, {}]
        # The same as a heap of (waste, -gain, side, line).
        self._near: list[tuple[float, int, int, int]] = []
        self._hubs = [table.iterate_hubs(0), table.iterate_hubs(1)]
        # Several hubs in the same batch: lines without neighbours would otherwise leave
        # pages half empty.
        hub = table.find_largest_hub()
        while hub is not None:
            self.start(*hub)
            self._fill()
            self._spare = 0  # only the first hub leaves lines to another
            hub = self.find_next_hub()
        for hubs in self._hubs:
            hubs.close()

    def list_cells(self) -> list[Cell]:
        """Return the unassigned cells of the chosen lines."""
        metrics, paths = self._chosen
        paths_of = self._table.unassigned[0]
        cells: list[Cell] = []
        for metric in metrics:
            for path in paths_of.get(metric, ()):
                if path in paths:
                    cells.append((metric, path))
        return cells

    def _count_free(self, side: int) -> int:
        return MAX_LINES[side] - len(self._chosen[side]) - self._spare

    def _count_cost(self, side: int, line: int) -> int:
        """Return how many more series the batch would match with this line."""
        # Planning spends most of its time here: walk along whichever of the two is
        # shorter.
        cells = self._table.matched[side][line]
        lines = self._chosen[1 - side]
        if len(lines) < len(cells):
            return sum([cells[crossing] for crossing in lines if crossing in cells])
        return sum([count for crossing, count in cells.items() if crossing in lines])

    def choose(self, side: int, line: int, cost: int) -> None:
        self._room -= cost
        self._chosen[side][line] = None
        other_side = 1 - side
        gain = self._gain[other_side]
        crossings = self._chosen[other_side]
        counts = self._table.unassigned[side].get(line, {})
        for crossing, count in counts.items():
            if crossing in crossings:
                continue
            count += gain.get(crossing, 0)
            gain[crossing] = count
            heappush(self._near, (0, -count, other_side, crossing))

    def start(self, side: int, hub: int) -> None:
        """Choose a hub and, where its partners are too many, the ones that fill the
        page evenly.
        """
        partners = self._table.unassigned[side][hub]
        cost = self._count_cost(side, hub)
        if len(partners) <= self._count_free(1 - side):
            self.choose(side, hub, cost)
            return
        self._room -= cost
        self._chosen[side][hub] = None
        self.fill_evenly(1 - side, partners)

    def fill_evenly(self, side: int, lines: Iterable[int]) -> None:
        lines_by_total: dict[int, list[int]] = {}
        for line in islice(lines, _PARTNERS_WEIGHED):
            if line in self._chosen[side]:
                continue
            total = self._table.total[side][line]
            lines_by_total.setdefault(total, []).append(line)
        totals = sorted(lines_by_total)
        missing = self._room
        while totals and self._room:
            free_count = self._count_free(side)
            if not free_count:
                break
            total = _find_closest(totals, missing / free_count)
            line = lines_by_total[total].pop()
            if not lines_by_total[total]:
                totals.remove(total)
            cost = self._count_cost(side, line)
            if cost <= self._room:
                self.choose(side, line, cost)
                missing -= total

    def _fill(self) -> None:
        """Choose lines next to the chosen ones: the least waste first, then the most
        unassigned series.
        """
        near = self._near
        while near and self._room:
            waste, gain, side, line = heappop(near)
            # When the gain of a line changes, its old entry stays in the heap next to a
            # newer one.
            if self._gain[side][line] != -gain:
                continue
            if line in self._chosen[side] or not self._count_free(side):
                continue
            cost = self._count_cost(side, line)
            if cost > self._room:
                continue
            # An entry's waste may be outdated, and waste only grows: examine it again
            # when it is the least.
            now = cost / -gain - 1
            if now > waste:
                heappush(near, (now, gain, side, line))
            else:
                self.choose(side, line, cost)

    def find_next_hub(self) -> tuple[int, int] | None:
        """Return the side and line of the next hub that fits; one that does not fit now
        never will.
        """
        if not self._room or not self._count_free(0) or not self._count_free(1):
            return None
        # A hub takes one line of its side and many of the other, so the scarcer side is
        # the hub's.
        for side in sorted((0, 1), key=self._count_free):
            for line in self._hubs[side]:
                if line in self._chosen[side]:
                    continue
                if self._can_fit(side, line):
                    return side, line
        return None

    def _can_fit(self, side: int, line: int) -> bool:
        """Return whether a hub fits together with one of its first partners."""
        room = self._room - self._count_cost(side, line)
        cells = self._table.matched[side][line]
        partners = self._table.unassigned[side][line]
        for partner in islice(partners, _PARTNERS_TRIED):
            cost = self._count_cost(1 - side, partner)
            if cost + cells[partner] <= room:
                return True
        return False


def _find_closest(ascending: list[int], number: float) -> int:
    """Return the entry closest to a number, the larger one of two."""
    index = bisect_left(ascending, number)
    if index == 0:
        return ascending[0]
    smaller = ascending[index - 1]
    if index == len(ascending):
        return smaller
    larger = ascending[index]
    if number - smaller < larger - number:
        return smaller
    return larger
