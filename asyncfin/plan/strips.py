"""Cut a dense table of metrics and scope paths into strips, and strips into pages.

A strip is a run of lines of one side. The lines of the other side that have a wanted
cell in it are packed into pages, and a strip is as wide as fills its pages best.
Growing batches one by one (see `grow`) makes squares of a dense table, which leave
ragged remainders: up to two fifths more requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from operator import itemgetter
from sys import maxsize
from typing import NamedTuple, TypeAlias

from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import (
    MAX_LINES,
    Cells,
    Counts,
    SeriesByCell,
    View,
    count_by_line,
)

# How many series match on a crossing line, and the crossing lines on each page.
Costs: TypeAlias = Mapping[int, int]
Pages: TypeAlias = list[list[int]]


class _Width(NamedTuple):
    """How wide a strip may be, and what it then has.

    Attributes:
        width: the number of its lines.
        gain: how many wanted series it has.
        total: how many series match, on the crossing lines with a wanted one.
        costs: the same by crossing line.
    """

    width: int
    gain: int
    total: int
    costs: Costs

    def bound_share(self, max_lines: int) -> float:
        """Return how many wanted series a page may have at most, with so many lines."""
        least_pages = ceil(self.total / MAX_PAGE_SIZE)
        return self.gain / max(least_pages, ceil(len(self.costs) / max_lines))


_read_limit = itemgetter(0)


def pack_strips(
    cells: Cells,
    series_by_cell: SeriesByCell,
    *,
    enough: int,
    limit: int = maxsize,
    sparse: bool = False,
) -> list[Sequence[CatalogueSeries]] | None:
    """Return the home series of batches of a page each that together hold the wanted
    series.

    Either side is cut, over all groups at once and over sets of groups that share no
    cell; of a `sparse` table with lines next to each other that share crossing lines.
    The way with the fewest batches is taken, or the first with at most `enough`. None:
    no way has fewer than `limit`.
    """
    views = cells.make_views(series_by_cell)
    best: list[Sequence[CatalogueSeries]] | None = None
    # The views of sets are made only if the first one is not enough.
    for part in (islice(views, 1), views):
        view_group = list(part)
        if not view_group:
            continue
        for side in (0, 1):
            homes: list[Sequence[CatalogueSeries]] = []
            for view in view_group:
                # A way is left as soon as it has as many batches as the best one.
                room = limit - len(homes)
                homes += islice(_pack_homes(view, side, sparse), room)
            if len(homes) >= limit:
                continue
            best, limit = homes, len(homes)
            if limit <= enough:
                return best
    return best


def _pack_homes(
    view: View, side: int, sparse: bool
) -> Iterator[Sequence[CatalogueSeries]]:
    """Yield the home series of each page, with the lines of one side cut into
    strips.
    """
    wanted_counts = count_by_line(view.cells)[side]
    lines = sorted(wanted_counts)
    if sparse:
        # The lines of a block share their first crossing line, wherever they are in the
        # catalogue.
        lines.sort(key=lambda line: min(wanted_counts[line]))
    strips = _cut_strips(view.counts[side], wanted_counts, lines, side)
    for strip, pages in strips:
        for page in pages:
            home: list[CatalogueSeries] = []
            for line in strip:
                for crossing in page:
                    if crossing not in wanted_counts[line]:
                        continue
                    cell = line, crossing
                    if side == 1:
                        cell = crossing, line
                    home += view.cells[cell]
            yield home


def _cut_strips(
    all_counts: Counts,
    wanted_counts: Counts,
    lines: Sequence[int],
    side: int,
) -> Iterator[tuple[Sequence[int], Pages]]:
    """Yield the lines of each strip, and the lines of the other side on each of its
    pages.
    """
    max_others = MAX_LINES[1 - side]
    start = 0
    while start < len(lines):
        end = start + MAX_LINES[side]
        widths = []
        for width in _try_widths(all_counts, wanted_counts, lines[start:end]):
            widths.append((width.bound_share(max_others), width))
        # The width with the most wanted series a page, of equals the smallest. Each
        # strip is judged alone: what is left for the next ones depends little on where
        # it ends. Packing takes longest, so widths that may have the most come first,
        # and those that can't have it are not packed.
        widths.sort(key=_read_limit, reverse=True)
        best_share = 0.0
        best_width = 0
        best_pages: Pages = []
        for limit, width in widths:
            if limit < best_share:
                break
            if limit == best_share and width.width > best_width:
                continue
            pages = _pack_pages(width.costs, max_others)
            share = width.gain / len(pages)
            is_smaller = share == best_share and width.width < best_width
            if share > best_share or is_smaller:
                best_share, best_width, best_pages = share, width.width, pages
        yield lines[start : start + best_width], best_pages
        start += best_width


def _try_widths(
    all_counts: Counts, wanted_counts: Counts, lines: Sequence[int]
) -> Iterator[_Width]:
    """Yield each possible width of a strip."""
    # A crossing line without a wanted cell in the strip is on none of its pages, and
    # costs nothing. It is counted nevertheless: a wider strip may contain a wanted cell
    # of it, and then all its cells cost.
    gain = total = 0
    all_costs: dict[int, int] = {}
    costs: dict[int, int] = {}
    for width, line in enumerate(lines, 1):
        changed_lines = []
        for crossing, count in all_counts[line].items():
            all_costs[crossing] = all_costs.get(crossing, 0) + count
            if crossing in costs:
                costs[crossing] += count
                total += count
                changed_lines.append(crossing)
        for crossing, count in wanted_counts[line].items():
            gain += count
            if crossing not in costs:
                cost = all_costs[crossing]
                costs[crossing] = cost
                total += cost
                changed_lines.append(crossing)
        if max(map(costs.__getitem__, changed_lines)) > MAX_PAGE_SIZE:
            return  # a crossing line fits on no page, in this width or a greater one
        yield _Width(width, gain, total, costs.copy())


def _pack_pages(costs: Costs, max_lines: int) -> Pages:
    """Pack lines into pages of at most 100 series: the largest first, each on the first
    page with room.
    """
    pages: Pages = []
    rooms: list[int] = []
    index = last = 0
    # By their costs, and lines of equal costs in order: sorting is stable.
    lines = sorted(costs)
    lines.sort(key=costs.__getitem__, reverse=True)
    for line in lines:
        cost = costs[line]
        # A page without room for one of these costs has none for the next.
        if cost != last:
            index, last = 0, cost
        while index < len(pages):
            if rooms[index] >= cost and len(pages[index]) < max_lines:
                break
            index += 1
        else:
            pages.append([])
            rooms.append(MAX_PAGE_SIZE)
        pages[index].append(line)
        rooms[index] -= cost
    return pages
