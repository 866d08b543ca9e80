"""Strips: how lines are packed into pages, and what each width of a strip matches."""

from hypothesis import given, strategies as st

from asyncfin.plan.strips import _pack_pages, _try_widths


@given(st.dictionaries(st.integers(0, 40), st.integers(1, 100)), st.integers(1, 6))
def test_lines_fill_the_first_page(costs: dict[int, int], max_lines: int) -> None:
    """The largest first, and of equal ones the first."""
    pages: list[list[int]] = []
    for line in sorted(costs, key=lambda line: (-costs[line], line)):
        fits = (
            p for p in pages if len(p) < max_lines and sum(costs[each] for each in p) + costs[line] <= 100
        )
        if (page := next(fits, None)) is None:
            pages.append(page := [])
        page.append(line)
    assert _pack_pages(costs, max_lines) == pages


Lines = st.dictionaries(st.integers(0, 9), st.integers(1, 30), min_size=1)


@given(st.lists(st.tuples(Lines, st.sets(st.integers(0, 9))), min_size=1, max_size=12))
def test_width_counts_matches_of_its_strip(lines: list[tuple[dict[int, int], set[int]]]) -> None:
    """In all, and by each line that has a wanted cell in it, until one fits on no page."""
    matched = {at: counts for at, (counts, _) in enumerate(lines)}
    wanted = {
        at: {other: count for other, count in counts.items() if other in some} or counts
        for at, (counts, some) in enumerate(lines)
    }
    found = []
    for width in range(1, len(lines) + 1):
        crossing = {other for at in range(width) for other in wanted[at]}
        costs = {other: sum(matched[at].get(other, 0) for at in range(width)) for other in crossing}
        if max(costs.values()) > 100:
            break
        gain = sum(sum(wanted[at].values()) for at in range(width))
        found.append((width, gain, sum(costs.values()), costs))
    assert [
        (*facts, dict(costs)) for *facts, costs in _try_widths(matched, wanted, range(len(lines)))
    ] == found
