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
from sys import maxsize
from typing import TypeAlias

from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import MAX_LINES, Cells, SeriesByCell, View, count_by_line

CountsOfLines: TypeAlias = Mapping[int, Mapping[int, int]]


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
    for view_group in filter(None, map(list, (islice(views, 1), views))):
        for side in (0, 1):
            homes: list[Sequence[CatalogueSeries]] = []
            for view in view_group:
                # A way is left as soon as it has as many batches as the best one.
                homes += islice(_pack_homes(view, side, sparse), limit - len(homes))
            if len(homes) < limit:
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
    by_side = count_by_line(view.cells)[side]
    # The lines of a block share their first crossing line, wherever they are in the
    # catalogue.
    order = sorted(by_side)
    if sparse:
        order.sort(key=lambda line: min(by_side[line]))
    for lines, pages in _cut_strips(view.counts[side], by_side, order, side):
        for page in pages:
            home: list[CatalogueSeries] = []
            for line in lines:
                for crossing in page:
                    if crossing in by_side[line]:
                        cell = (line, crossing) if side == 0 else (crossing, line)
                        home += view.cells[cell]
            yield home


def _cut_strips(
    all_counts: CountsOfLines,
    wanted_counts: CountsOfLines,
    lines: Sequence[int],
    side: int,
) -> Iterator[tuple[Sequence[int], list[list[int]]]]:
    """Yield the lines of each strip, and the lines of the other side on each of its
    pages.
    """
    max_others = MAX_LINES[1 - side]
    start = 0
    while start < len(lines):
        widths = []
        for width, gain, total, costs in _try_widths(
            all_counts, wanted_counts, lines[start : start + MAX_LINES[side]]
        ):
            fewest = max(ceil(total / MAX_PAGE_SIZE), ceil(len(costs) / max_others))
            widths.append((gain / fewest, width, gain, costs.copy()))
        # The width with the most wanted series a page, of equals the smallest. Each
        # strip is judged alone: what is left for the next ones depends little on where
        # it ends. Packing takes longest, so widths that may have the most come first,
        # and those that can't have it are not packed.
        best, best_width, pages = 0.0, 0, list[list[int]]()
        widths.sort(key=lambda item: (-item[0], item[1]))
        for potential, width, gain, costs in widths:
            if potential < best:
                break
            if potential == best and width > best_width:
                continue
            packed_pages = _pack_pages(costs, max_others)
            share = gain / len(packed_pages)
            if (share, -width) > (best, -best_width):
                best, best_width, pages = share, width, packed_pages
        yield lines[start : start + best_width], pages
        start += best_width


def _try_widths(
    all_counts: CountsOfLines, wanted_counts: CountsOfLines, lines: Sequence[int]
) -> Iterator[tuple[int, int, int, dict[int, int]]]:
    """Yield each possible width of a strip, with its counts of wanted and of matched
    series, and the latter by crossing line.

    The last is changed when the next width is taken.
    """
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
                costs[crossing] = all_costs[crossing]
                total += costs[crossing]
                changed_lines.append(crossing)
        if max(map(costs.__getitem__, changed_lines)) > MAX_PAGE_SIZE:
            return  # a crossing line fits on no page, in this width or a greater one
        yield width, gain, total, costs


def _pack_pages(costs: Mapping[int, int], max_lines: int) -> list[list[int]]:
    """Pack lines into pages of at most 100 series: the largest first, each on the first
    page with room.
    """
    pages: list[list[int]] = []
    rooms: list[int] = []
    index = last = 0
    # By their costs, and lines of equal costs in order: sorting is stable.
    for line in sorted(sorted(costs), key=costs.__getitem__, reverse=True):
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
