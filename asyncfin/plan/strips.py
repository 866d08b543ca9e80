"""Cut a dense table of metrics and scope paths into strips, and strips into pages.

A strip is a run of lines of one side. The lines of the other side that have a wanted cell in it are packed
into pages, and a strip is as wide as fills its pages best. Growing batches one by one (see `grow`) makes
squares of a dense table, which leave ragged remainders: up to two fifths more requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from math import ceil
from typing import TypeAlias

from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import MAX_LINES, Cells, SeriesByCell, View, by_line

CountsOfLines: TypeAlias = Mapping[int, Mapping[int, int]]


def strips(
    cells: Cells, wanted: SeriesByCell, *, enough: int, sparse: bool = False
) -> list[Sequence[CatalogueSeries]]:
    """Return the home series of batches of a page each that together hold the wanted series.

    Either side is cut, over all groups at once and over sets of groups that share no cell; of a `sparse`
    table also over sets of groups that fill pages, with lines next to each other that share crossing lines.
    The way with the fewest batches is taken, or the first with at most `enough`.
    """
    views = cells.views(wanted)
    made = chain(map(list, (islice(views, 1), views)), [cells.views_by_groups(wanted)] if sparse else [])
    ways = (
        [home for view in together for home in _homes(view, side, sparse)]
        for together in made
        if together
        for side in (0, 1)
    )
    best = next(ways)
    while len(best) > enough and (homes := next(ways, None)) is not None:
        best = min(best, homes, key=len)
    return best


def _homes(view: View, side: int, sparse: bool) -> Iterator[Sequence[CatalogueSeries]]:
    """Yield the home series of each page, with the lines of one side cut into strips."""
    by_side = by_line(view.wanted)[side]
    # The lines of a block share their first crossing line, wherever they are in the catalogue.
    order = sorted(by_side, key=lambda line: (min(by_side[line]), line) if sparse else (0, line))
    for lines, pages in _strips(view.matched[side], by_side, order, side):
        for page in pages:
            cells = [(line, other) for line in lines for other in page if other in by_side[line]]
            yield [series for cell in cells for series in view.wanted[cell if side == 0 else cell[::-1]]]


def _strips(
    matched: CountsOfLines, wanted: CountsOfLines, lines: Sequence[int], side: int
) -> Iterator[tuple[Sequence[int], list[list[int]]]]:
    """Yield the lines of each strip, and the lines of the other side on each of its pages."""
    max_others = MAX_LINES[1 - side]
    start = 0
    while start < len(lines):
        # The width with the most wanted series a page. Each strip is judged alone: what is left for the next
        # ones depends little on where it ends.
        best = 0.0
        for width, gain, costs in _widths(matched, wanted, lines[start : start + MAX_LINES[side]]):
            # No packing has fewer pages, so a width that is not better even then is not packed.
            at_least = max(ceil(sum(costs.values()) / MAX_PAGE_SIZE), ceil(len(costs) / max_others))
            if gain / at_least <= best:
                continue
            pages = _pages(costs, max_others)
            if gain / len(pages) > best:
                best, chosen = gain / len(pages), (lines[start : start + width], pages)
        yield chosen
        start += len(chosen[0])


def _widths(
    matched: CountsOfLines, wanted: CountsOfLines, lines: Sequence[int]
) -> Iterator[tuple[int, int, dict[int, int]]]:
    """Yield each possible width of a strip, its wanted series, and what each crossing line matches in it."""
    # A crossing line without a wanted cell in the strip is on none of its pages, and costs nothing. It is
    # counted nevertheless: a wider strip may contain a wanted cell of it, and then all its cells cost.
    gain = 0
    all_costs: dict[int, int] = {}
    costs: dict[int, int] = {}
    for width, line in enumerate(lines, 1):
        for other, count in matched[line].items():
            all_costs[other] = all_costs.get(other, 0) + count
            if other in costs:
                costs[other] = all_costs[other]
        for other, count in wanted[line].items():
            gain += count
            costs[other] = all_costs[other]
        if max(costs.values()) > MAX_PAGE_SIZE:
            return  # that line fits on no page, in this width or a greater one
        yield width, gain, dict(costs)


def _pages(costs: Mapping[int, int], max_lines: int) -> list[list[int]]:
    """Pack lines into pages of at most 100 series: the largest first, each on the first page with room."""
    pages: list[list[int]] = []
    rooms: list[int] = []
    for line in sorted(costs, key=lambda line: (-costs[line], line)):
        for at, room in enumerate(rooms):
            if costs[line] <= room and len(pages[at]) < max_lines:
                break
        else:
            at = len(pages)
            pages.append([])
            rooms.append(MAX_PAGE_SIZE)
        pages[at].append(line)
        rooms[at] -= costs[line]
    return pages
