"""Gaps: the periods that are missing between the first and the last of a duration."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, groupby, pairwise

from asyncfin.model.period import Period
from asyncfin.model.selection import unusual_years
from asyncfin.words import counted, listed as listed_texts, spanned

# The distances of quarters and of years, whatever a catalogue has.
_STEPS = {3: 3, 12: 12}
# A longer run is only named: rows for it would be most of a table.
MOST_ROWS = 40
# How many runs a line of text names.
_NAMED = 6

GapRun = tuple[Period, ...]


def steps(periods: Iterable[Period]) -> dict[int, int]:
    """Return the months from one period to the next, by duration.

    Quarters and years follow each other at their own length. For other durations it is
    the most frequent distance, of equally frequent ones the larger. Not the smallest: a
    few periods that overlap others would make a gap of each year between half-years.
    """
    ends: dict[int, set[int]] = {}
    for period in periods:
        ends.setdefault(period.duration_months, set()).add(period.fiscal_end)
    found = dict(_STEPS)
    for duration in ends.keys() - _STEPS.keys():
        distances = Counter(
            after - before for before, after in pairwise(sorted(ends[duration]))
        )
        if distances:
            found[duration] = max(distances, key=lambda each: (distances[each], each))
    return found


def _neighbours(
    periods: Sequence[Period], listed: Set[Period]
) -> Iterator[tuple[int, Period, Period]]:
    """Yield neighbours of one duration with their step, by duration, oldest first."""
    by_duration: dict[int, list[Period]] = {}
    for period in periods:
        by_duration.setdefault(period.duration_months, []).append(period)
    for duration, step in sorted(steps(listed).items()):
        for before, after in pairwise(by_duration.get(duration, ())):
            yield step, before, after


def gap_runs(
    periods: Sequence[Period], asked: Set[Period], listed: Set[Period]
) -> tuple[GapRun, ...]:
    """Return the missing periods in uninterrupted runs, by duration, oldest first.

    Args:
        periods: the periods of a panel, oldest first.
        asked: the periods of its question.
        listed: the periods of its catalogue. A period is missing if it was requested or
            is not listed.
    """
    return tuple(
        run
        for step, before, after in _neighbours(periods, listed)
        for run in _runs(before, after, step, asked, listed)
    )


def uneven(periods: Sequence[Period], listed: Set[Period]) -> Iterator[str]:
    """Yield a line for each duration with neighbours nearer than its step, or at no
    multiple of it.
    """
    places: dict[int, list[str]] = {}
    for step, before, after in _neighbours(periods, listed):
        if (months := after.fiscal_end - before.fiscal_end) < step or months % step:
            text = f"{before} to {after}: {counted(months, 'month')}"
            places.setdefault(before.duration_months, []).append(text)
    for duration, named in places.items():
        yield (
            f"uneven distances between periods of {counted(duration, 'month')},"
            f" in {counted(len(named), 'place')}: "
            f"{listed_texts(named, _NAMED, between='; ')}"
        )


def _runs(
    before: Period, after: Period, step: int, asked: Set[Period], listed: Set[Period]
) -> Iterator[GapRun]:
    between = (
        Period.ending(end, before.duration_months)
        for end in range(before.fiscal_end + step, after.fiscal_end, step)
    )
    for is_missing, run in groupby(
        between, lambda period: period in asked or period not in listed
    ):
        if is_missing:
            yield tuple(run)


def described(runs: Sequence[GapRun], listed: Iterable[Period]) -> str:
    """Return the gaps as a line of text: how many there are, and which; "" without any.

    For a missing year it names what the catalogue has with the same fiscal end and 11,
    13 or 14 months.
    """
    if not runs:
        return ""
    number = sum(map(len, runs))
    named = ", ".join(spanned(run) for run in sorted(runs)[:_NAMED])
    more = (
        f" and {counted(len(runs) - _NAMED, 'more run')}" if len(runs) > _NAMED else ""
    )
    years = [year.label for year in unusual_years(chain.from_iterable(runs), listed)]
    instead = (
        f"; the same fiscal end has {listed_texts(years, _NAMED)}" if years else ""
    )
    return (
        f"{counted(number, 'gap')}, where no series has a value: {named}{more}{instead}"
    )
