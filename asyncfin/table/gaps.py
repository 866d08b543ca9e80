"""Gaps: the quarters and the years that are missing between the first and the last."""

from collections.abc import Iterator, Sequence, Set
from itertools import groupby, pairwise

from asyncfin.model.period import Period
from asyncfin.words import counted, listed as list_names, spanned

# The durations whose periods follow each other at their own length. Of others, such as
# half-years that overlap, none is missed.
DURATIONS = (3, 12)
# A longer run is only named: rows for it would be most of a table.
MOST_ROWS = 40
# How many runs a note names.
_MOST_RUNS = 6

GapRun = tuple[Period, ...]


def gap_runs(
    periods: Sequence[Period],
    query_periods: Set[Period],
    catalogue_periods: Set[Period],
) -> tuple[GapRun, ...]:
    """Return the missing periods in uninterrupted runs, by duration, oldest first.

    A period that the catalogue has nowhere begins or ends no gap.

    Args:
        periods: the periods of a panel, oldest first.
        query_periods: those of its query.
        catalogue_periods: those of its catalogue. A period is missing if it was
            requested, or the catalogue does not have it.
    """

    def is_missing(period: Period) -> bool:
        was_requested = period in query_periods or period not in catalogue_periods
        return was_requested and period not in panel_periods

    panel_periods = set(periods)
    runs = []
    listed_periods = list(filter(catalogue_periods.__contains__, periods))
    for earlier, later in _pair_periods(listed_periods):
        duration = earlier.duration_months
        ends = range(earlier.fiscal_end + duration, later.fiscal_end, duration)
        between = (Period.ending(end, duration) for end in ends)
        for is_gap, run in groupby(between, is_missing):
            if is_gap:
                runs.append(tuple(run))
    return tuple(runs)


def _pair_periods(periods: Sequence[Period]) -> Iterator[tuple[Period, Period]]:
    """Yield each quarter and each year with the next one."""
    for duration in DURATIONS:
        yield from pairwise(
            period for period in periods if period.duration_months == duration
        )


def describe_uneven(periods: Sequence[Period]) -> str:
    """Name the quarters and years that do not follow the one before at a multiple of
    their length; "" if all do. Four rows are then no year.
    """
    spans = []
    for earlier, later in _pair_periods(periods):
        if (later.fiscal_end - earlier.fiscal_end) % earlier.duration_months:
            spans.append(spanned([earlier, later]))
    if not spans:
        return ""
    return f"uneven distances: {list_names(spans, _MOST_RUNS)}"


def describe_gaps(runs: Sequence[GapRun]) -> str:
    """Describe the gaps in a line: how many there are, and which; "" without any."""
    if not runs:
        return ""
    number = sum(map(len, runs))
    spans = list_names(list(map(spanned, sorted(runs))), _MOST_RUNS)
    return f"{counted(number, 'gap')}, where no series has a value: {spans}"
