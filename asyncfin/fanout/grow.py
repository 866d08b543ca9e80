"""Grow batches of one page over a sparse table of metrics and scope paths.

A batch is grown from a hub, the metric or path that most homeless series share. Where a hub has more
partners than the caps let in, those are taken whose homeless series come closest to what each free
place still has to bring to fill the page, so that partners with few and with many series are used up
together; then comes whatever wastes least of the page and brings most. When nothing near fits any more,
the next hub starts in the same batch, on the side that is shorter of places.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from itertools import islice
from typing import TypeAlias

PLACES = (50, 50)
PAGE = 100
_HUBS_TRIED = 60
_PARTNERS_TRIED = 10
_PARTNERS_WEIGHED = 1000

Cell: TypeAlias = tuple[int, int]
Lines: TypeAlias = tuple[dict[int, dict[int, int]], dict[int, dict[int, int]]]


def lines(cells: Mapping[Cell, int]) -> Lines:
    """Return the counts by metric and path, and by path and metric."""
    by_metric: defaultdict[int, dict[int, int]] = defaultdict(dict)
    by_path: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for (metric, path), count in cells.items():
        by_metric[metric][path] = by_path[path][metric] = count
    return dict(by_metric), dict(by_path)


class Table:
    """How many series each (metric, path) matches, and how many of them want a home.

    Side 0 holds the metrics, side 1 the paths; a line is a metric or a path. Every cell that wants a
    home fits on a page by itself.
    """

    def __init__(self, matched: Lines, homeless: Mapping[Cell, int]) -> None:
        self.matched = matched
        self.homeless = lines(homeless)
        self.bring = tuple(
            {line: sum(cells.values()) for line, cells in side.items()} for side in self.homeless
        )
        self._hubs = [[(-len(cells), line) for line, cells in side.items()] for side in self.homeless]
        for hubs in self._hubs:
            heapify(hubs)

    def settle(self, cell: Cell, count: int) -> None:
        """Take note that so many series of a cell have found a home, if any wanted one here."""
        metric, path = cell
        if path not in self.homeless[0].get(metric, ()):
            return
        for homeless, bring, line, other in (
            (self.homeless[0], self.bring[0], metric, path),
            (self.homeless[1], self.bring[1], path, metric),
        ):
            cells = homeless[line]
            bring[line] -= count
            cells[other] -= count
            if not cells[other]:
                del cells[other]
                if not cells:
                    del homeless[line]

    def largest_hub(self) -> tuple[int, int] | None:
        """Return the side and the line with the most partners left."""
        tops = [(*top, side) for side in (0, 1) if (top := self._hub(side)) is not None]
        return (min(tops)[2], min(tops)[1]) if tops else None

    def _hub(self, side: int) -> tuple[int, int] | None:
        """Return the line of a side with the most partners left, as (-partners, line)."""
        hubs = self._hubs[side]
        while hubs:
            partners = len(self.homeless[side].get(hubs[0][1], ()))
            if partners == -hubs[0][0]:
                return hubs[0]
            if partners:
                heapreplace(hubs, (-partners, hubs[0][1]))
            else:
                heappop(hubs)
        return None

    def hubs(self, side: int) -> Generator[int, None, None]:
        """Return the lines with the most partners left, in that order."""
        seen: list[tuple[int, int]] = []
        try:
            while len(seen) < _HUBS_TRIED and (top := self._hub(side)) is not None:
                seen.append(heappop(self._hubs[side]))
                yield top[1]
        finally:
            for each in seen:
                heappush(self._hubs[side], each)


class Batch:
    """A batch while it grows: the lines chosen so far, and the room left on its page."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._chosen: tuple[dict[int, None], dict[int, None]] = ({}, {})
        self._gain: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self._near: list[tuple[float, int, int, int]] = []
        self._room = PAGE
        self._hubs = (table.hubs(0), table.hubs(1))
        hub = table.largest_hub()
        while hub is not None:
            self._start(*hub)
            self._fill()
            hub = self._next_hub()
        for hubs in self._hubs:
            hubs.close()

    def cells(self) -> list[Cell]:
        """Return the cells that find their home here."""
        homeless, paths = self._table.homeless[0], self._chosen[1]
        return [(m, p) for m in self._chosen[0] for p in homeless.get(m, ()) if p in paths]

    def _free(self, side: int) -> int:
        return PLACES[side] - len(self._chosen[side])

    def _cost(self, side: int, line: int) -> int:
        """Return how many more series the batch would match with this line."""
        cells, others = self._table.matched[side][line], self._chosen[1 - side]
        if len(others) < len(cells):
            return sum([cells[other] for other in others if other in cells])
        return sum([count for other, count in cells.items() if other in others])

    def _choose(self, side: int, line: int, cost: int) -> None:
        self._room -= cost
        self._chosen[side][line] = None
        other_side, gain = 1 - side, self._gain[1 - side]
        chosen, near = self._chosen[other_side], self._near
        for other, count in self._table.homeless[side].get(line, {}).items():
            if other not in chosen:
                gain[other] = count = gain.get(other, 0) + count
                heappush(near, (0, -count, other_side, other))

    def _next_hub(self) -> tuple[int, int] | None:
        """Return the side and line of the next hub that still fits: what doesn't never will in this batch."""
        if not self._room or not self._free(0) or not self._free(1):
            return None
        short = 0 if self._free(0) <= self._free(1) else 1
        for side in (short, 1 - short):
            for line in self._hubs[side]:
                if line not in self._chosen[side] and self._fits(side, line):
                    return side, line
        return None

    def _fits(self, side: int, line: int) -> bool:
        """Say whether there is room for a line and one of its partners."""
        room = self._room - self._cost(side, line)
        cells = self._table.matched[side][line]
        partners = islice(self._table.homeless[side][line], _PARTNERS_TRIED)
        return any(self._cost(1 - side, other) + cells[other] <= room for other in partners)

    def _start(self, side: int, hub: int) -> None:
        """Choose a hub and, where its partners are too many, the ones that fill the page evenly."""
        partners = self._table.homeless[side][hub]
        if len(partners) <= self._free(1 - side):
            self._choose(side, hub, self._cost(side, hub))
            return
        self._room -= self._cost(side, hub)
        self._chosen[side][hub] = None
        self._fill_evenly(1 - side, partners)

    def _fill_evenly(self, side: int, lines: Iterable[int]) -> None:
        by_bring: dict[int, list[int]] = {}
        for line in islice(lines, _PARTNERS_WEIGHED):
            if line not in self._chosen[side]:
                by_bring.setdefault(self._table.bring[side][line], []).append(line)
        brings = sorted(by_bring)
        missing = self._room
        while brings and self._room and (free := self._free(side)):
            bring = _closest(brings, missing / free)
            line = by_bring[bring].pop()
            if not by_bring[bring]:
                brings.remove(bring)
            if (cost := self._cost(side, line)) <= self._room:
                self._choose(side, line, cost)
                missing -= bring

    def _fill(self) -> None:
        """Choose lines next to the chosen ones: the least waste first, then the most homeless series."""
        near = self._near
        while near and self._room:
            waste, gain, side, line = heappop(near)
            if line in self._chosen[side] or self._gain[side][line] != -gain or not self._free(side):
                continue
            cost = self._cost(side, line)
            now = cost / -gain - 1
            if cost > self._room:
                continue
            if now > waste:
                heappush(near, (now, gain, side, line))
            else:
                self._choose(side, line, cost)


def _closest(ascending: list[int], number: float) -> int:
    """Return the entry closest to a number, the larger one of two."""
    at = bisect_left(ascending, number)
    around = ascending[max(at - 1, 0) : at + 1]
    return around[0] if len(around) == 1 or number - around[0] < around[1] - number else around[1]
