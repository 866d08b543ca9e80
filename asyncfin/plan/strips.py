"""Cut a dense table of metrics and scope paths into strips, and strips into pages.

A strip is a run of lines of one side. The lines of the other side that hold a wanted cell in it are packed
into pages as full as they get, and a strip is as wide as fills its pages best. Growing batches one by one
(see `grow`) would make squares of a dense table, which leave ragged rests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice, product
from math import ceil
from typing import TypeAlias

from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import MAX_LINES, Cells, SeriesByCell, View, by_line

# Finding each line's nearest neighbour takes time with the square of the number of kinds of lines.
_KINDS_COMPARED = 200
# A page of n lines and s series is bit n * _STRIDE + s of an int. No two pages together reach the stride.
_STRIDE = 256
_PAGE = (1 << MAX_PAGE_SIZE + 1) - 1
_ALLOWED = sum(_PAGE << lines * _STRIDE for lines in range(max(MAX_LINES) + 1))

WantedByLine: TypeAlias = Mapping[int, Mapping[int, int]]


def strips(cells: Cells, wanted: SeriesByCell, *, enough: int) -> list[Sequence[CatalogueSeries]]:
    """Return the home series of batches of a page each that together hold the wanted series.

    Either side is cut, its lines in several orders, over all groups at once and over sets of groups that
    share no cell; the way with the fewest batches is taken.

    Args:
        wanted: what is to be assigned, without what fits on no page by itself.
        enough: take a way with at most this many batches without trying further ones.
    """
    views = cells.views(wanted)
    # No order is best for all tables, and trying them all costs little beside a request that one saves.
    ways = (
        [home for view in together for home in _homes(view, side, order)]
        for together in map(list, (islice(views, 1), views))
        if together
        for side, order in product((0, 1), _ORDERS)
    )
    best = next(ways)
    while len(best) > enough and (homes := next(ways, None)) is not None:
        best = min(best, homes, key=len)
    return best


def _homes(
    view: View, side: int, order: Callable[[WantedByLine], list[int]]
) -> Iterator[Sequence[CatalogueSeries]]:
    """Yield the home series of each page, with the lines of one side cut into strips in that order."""
    by_side = by_line({cell: len(series) for cell, series in view.wanted.items()})[side]
    for lines, pages in _strips(view.matched[side], by_side, order(by_side), side):
        for page in pages:
            cells = [(line, other) for line in lines for other in page if other in by_side[line]]
            yield [series for cell in cells for series in view.wanted[cell if side == 0 else cell[::-1]]]


def _strips(
    matched: WantedByLine, wanted: WantedByLine, lines: list[int], side: int
) -> Iterator[tuple[list[int], list[list[int]]]]:
    """Yield the lines of each strip, and the lines of the other side on each of its pages."""
    start = 0
    while start < len(lines):
        # The width with the most wanted series a page. A strip is judged by itself: what is left for the next
        # ones depends little on where it ends.
        best = 0.0
        for width, gain, costs in _widths(matched, wanted, lines[start : start + MAX_LINES[side]]):
            # No packing has fewer pages, so a width that is no better even then is not packed.
            at_least = max(ceil(sum(costs.values()) / MAX_PAGE_SIZE), ceil(len(costs) / MAX_LINES[1 - side]))
            if gain / at_least <= best:
                continue
            pages = _pages(costs, MAX_LINES[1 - side])
            if gain / len(pages) > best:
                best, chosen = gain / len(pages), (lines[start : start + width], pages)
        yield chosen
        start += len(chosen[0])


def _widths(
    matched: WantedByLine, wanted: WantedByLine, lines: list[int]
) -> Iterator[tuple[int, int, dict[int, int]]]:
    """Yield each possible width of a strip, its wanted series, and what each crossing line matches in it."""
    # A crossing line without a wanted cell in the strip is on none of its pages, and costs nothing. It is
    # counted all the same: a wider strip may hold a wanted cell of it, and then all its cells cost.
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
            return  # that line fits on no page any more, in this width or a greater one
        yield width, gain, dict(costs)


def _pages(costs: Mapping[int, int], max_lines: int) -> list[list[int]]:
    """Pack lines into pages of at most 100 series, each as full as the lines that are left make it."""
    by_cost: dict[int, list[int]] = {}
    for line, cost in costs.items():
        by_cost.setdefault(cost, []).append(line)
    pages: list[list[int]] = []
    while by_cost:
        counts = {cost: len(lines) for cost, lines in by_cost.items()}
        fullest = _fullest(counts, max_lines)
        # The same page is taken as often as the lines last: in a dense table nearly all are the same.
        pages += (
            [by_cost[cost].pop() for cost, n in fullest.items() for _ in range(n)]
            for _ in range(min(counts[cost] // n for cost, n in fullest.items()))
        )
        by_cost = {cost: lines for cost, lines in by_cost.items() if lines}
    return pages


def _fullest(counts: Mapping[int, int], max_lines: int) -> Counter[int]:
    """Return how many lines of each cost fill a page best: a subset sum over the bits of an int.

    Args:
        counts: how many lines there are of each cost.
    """
    steps = [
        (cost, n)
        for cost, count in sorted(counts.items(), reverse=True)
        for n in _binary(min(count, MAX_PAGE_SIZE // cost, max_lines))
    ]
    # What several steps reach together is what the earlier ones reach, and the same moved by the last one.
    # The mask drops what has too many lines or too many series.
    mask = _ALLOWED & (1 << (max_lines + 1) * _STRIDE) - 1
    reached = list(
        accumulate(steps, lambda bits, step: bits | bits << step[1] * (_STRIDE + step[0]) & mask, initial=1)
    )
    by_lines = [reached[-1] >> lines * _STRIDE & _PAGE for lines in range(max_lines + 1)]
    series = max(by_lines).bit_length() - 1
    lines = [lines for lines, bits in enumerate(by_lines) if bits >> series & 1]
    # Of what runs out first, lines or series, a page of the same size takes the more.
    short_of_lines = sum(counts.values()) * MAX_PAGE_SIZE > max_lines * sum(c * n for c, n in counts.items())
    at = (lines[-1] if short_of_lines else lines[0]) * _STRIDE + series
    # Backwards: a step was needed where the steps before it do not reach the page by themselves.
    fullest: Counter[int] = Counter()
    for (cost, n), before in zip(reversed(steps), reversed(reached[:-1]), strict=True):
        if not before >> at & 1:
            fullest[cost] += n
            at -= n * (_STRIDE + cost)
    return fullest


def _binary(count: int) -> Iterator[int]:
    """Yield numbers whose sums are all the numbers up to `count`: 1, 2, 4, ... and the rest."""
    # Seven steps for a hundred equal lines, where one step a line would be a hundred.
    part = 1
    while count:
        yield (part := min(part, count))
        count -= part
        part *= 2


def _most_wanted_first(wanted: WantedByLine) -> list[int]:
    return sorted(wanted, key=lambda line: (-len(wanted[line]), line))


def _neighbours(wanted: WantedByLine) -> list[int]:
    """Return the lines so that those with nearly the same wanted cells stand side by side."""
    # Lines with the very same wanted cells are of one kind: a table of thousands of lines has few kinds.
    kinds: dict[int, list[int]] = {}
    for line in sorted(wanted):
        kinds.setdefault(sum(1 << other for other in wanted[line]), []).append(line)
    if len(kinds) > _KINDS_COMPARED:
        return [line for kind in sorted(kinds) for line in kinds[kind]]
    # From the fullest kind always on to the nearest one left, by the number of cells in which two differ.
    kind = max(kinds, key=int.bit_count)
    lines = kinds.pop(kind)
    while kinds:
        kind = min(kinds, key=lambda other: (kind ^ other).bit_count())
        lines += kinds.pop(kind)
    return lines


_ORDERS: tuple[Callable[[WantedByLine], list[int]], ...] = (sorted, _most_wanted_first, _neighbours)
