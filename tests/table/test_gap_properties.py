"""Gaps against the obvious way: walk from each period to the next of its duration, month by month."""

import asyncio
import itertools

from hypothesis import given, settings, strategies as st

from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved
from asyncfin.table.grid import MOST_ROWS
from tests import examples
from tests.answers import EVER, panel_of

PERIODS = [
    Period(year, month, duration)
    for year in range(2000, 2012)
    for month, duration in ((2, 3), (3, 3), (6, 3), (9, 3), (12, 3), (6, 6), (12, 6), (12, 12), (6, 0))
]
some_periods = st.lists(st.sampled_from(PERIODS), unique=True, max_size=40)


def expected_gaps(periods: list[Period], asked: set[Period], listed: list[Period]) -> set[Period]:
    """Return the gaps, by the words of their definition."""
    gaps = set()
    for duration in (3, 12):
        ours = sorted(
            each.year * 12 + each.end_month
            for each in {*periods}.intersection(listed)
            if each.duration_months == duration
        )
        for first, last in itertools.pairwise(ours):
            for month in range(first + 1, last):
                year, end = (month // 12, month % 12) if month % 12 else (month // 12 - 1, 12)
                period = Period(year, end, duration)
                on_the_way = (month - first) % duration == 0
                if on_the_way and period not in periods and (period in asked or period not in listed):
                    gaps.add(period)
    return gaps


@settings(max_examples=examples(100))
@given(
    observed=some_periods,
    more=some_periods,
    asked=st.just(EVER)
    | st.builds(Exact, some_periods.filter(bool))
    | st.builds(FiscalRange, st.just((2002, 4)), st.just((2008, 9))),
)
def test_gaps_are_as_defined(observed: list[Period], more: list[Period], asked: Resolved) -> None:
    """Gaps are as defined, and the wide table has exactly the periods and the gaps, in order."""
    listed = sorted({*observed, *more})
    covered = set(asked.periods) if isinstance(asked, Exact) else set(listed)
    if isinstance(asked, FiscalRange) and asked is not EVER:
        covered = {each for each in listed if (2002, 4) <= (each.year, each.end_month) <= (2008, 9)}
    values = {"sales.quarterly": {period: 1 for period in observed if period in covered}}
    panel = asyncio.run(panel_of(values, sorted(values["sales.quarterly"]), listed=listed, asked=asked))
    assert set(panel.periods_asked) == covered
    gaps = expected_gaps(list(panel.periods), covered, listed)
    assert panel.gaps == tuple(sorted(gaps))
    wide = panel.to_arrow("wide")
    rows = list(zip(*(wide[name].to_pylist() for name in wide.column_names[:3]), strict=True))
    if len(gaps) <= MOST_ROWS:
        assert rows == [(e.year, e.end_month, e.duration_months) for e in sorted({*panel.periods, *gaps})]
