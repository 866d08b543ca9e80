"""Gaps: the periods that are missing between the first and the last of a duration."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import groupby, pairwise

from asyncfin.model.period import Period
from asyncfin.model.words import counted, spanned

# A longer run is only named: rows for it would be most of a table.
MOST_ROWS = 40
# How many runs a line of text names.
_NAMED = 6

Run = tuple[Period, ...]


def steps(periods: Iterable[Period], *, annual: bool = False) -> dict[int, int]:
    """Return the months from one period to the next, by duration: the most frequent distance.

    Not the smallest: a few periods that overlap others would make a gap of each year between quarters.

    Args:
        annual: of 12 months, only fiscal years count.
    """
    ends: dict[int, set[int]] = {}
    for period in periods:
        if not (annual and period.duration_months == 12 and period.end_month != 12):
            ends.setdefault(period.duration_months, set()).add(period.fiscal_end)
    found = {}
    for duration, known in ends.items():
        distances = Counter(after - before for before, after in pairwise(sorted(known)))
        if distances:
            found[duration] = max(distances, key=lambda each: (distances[each], each))
    return found


def gap_runs(
    periods: Sequence[Period], asked: Set[Period], listed: Set[Period], *, annual: bool
) -> tuple[Run, ...]:
    """Return the missing periods in uninterrupted runs, by duration, oldest first.

    Args:
        periods: the periods of a panel, oldest first.
        asked: the periods of its question.
        listed: the periods of its catalogue. A period is missing if it was requested or is not listed.
        annual: whether the question is for fiscal years.
    """
    by_duration: dict[int, list[Period]] = {}
    for period in periods:
        by_duration.setdefault(period.duration_months, []).append(period)
    return tuple(
        run
        for duration, step in sorted(steps(listed, annual=annual).items())
        for before, after in pairwise(by_duration.get(duration, ()))
        if (after.fiscal_end - before.fiscal_end) % step == 0
        for run in _runs(before, after, step, asked, listed)
    )


def _runs(before: Period, after: Period, step: int, asked: Set[Period], listed: Set[Period]) -> Iterator[Run]:
    # From a count of months back to year and month: month 12 must not become month 0.
    between = (
        Period((end - 1) // 12, (end - 1) % 12 + 1, before.duration_months)
        for end in range(before.fiscal_end + step, after.fiscal_end, step)
    )
    for is_missing, run in groupby(between, lambda period: period in asked or period not in listed):
        if is_missing:
            yield tuple(run)


def described(runs: Sequence[Run]) -> str:
    """Return the gaps as a line of text: how many there are, and which; "" without any."""
    if not runs:
        return ""
    number = sum(map(len, runs))
    named = ", ".join(spanned(run) for run in sorted(runs)[:_NAMED])
    more = f" and {counted(len(runs) - _NAMED, 'more run')}" if len(runs) > _NAMED else ""
    return f"{counted(number, 'gap')}, where no series has a value: {named}{more}"
