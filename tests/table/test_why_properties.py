"""Reasons for empty cells, compared with all values of the publication."""

import asyncio

from hypothesis import given, settings, strategies as st

from asyncfin.model.period import Exact, FiscalRange, Period, Resolved
from tests.answers import EVER, panel_of

PERIODS = [
    Period(year, month, duration)
    for year in range(2020, 2024)
    for month, duration in ((3, 3), (6, 3), (6, 6), (12, 12), (12, 0))
]
IDS = [f"m{at}.{group}" for at in range(3) for group in ("annual", "quarterly")]
publications = st.dictionaries(
    st.sampled_from(IDS), st.sets(st.sampled_from(PERIODS), max_size=8), min_size=1, max_size=4
)
questions = (
    st.just(EVER)
    | st.builds(Exact, st.lists(st.sampled_from(PERIODS), min_size=1, unique=True))
    | st.just(FiscalRange((2021, 1), (2022, 6)))
)


def selected(asked: Resolved, period: Period) -> bool:
    if isinstance(asked, Exact):
        return period in asked.periods
    return asked is EVER or (2021, 1) <= (period.year, period.end_month) <= (2022, 6)


@settings(max_examples=200)
@given(publications, st.sets(st.sampled_from(PERIODS), min_size=1), questions)
def test_no_reason_is_false(publication: dict[str, set[Period]], more: set[Period], asked: Resolved) -> None:
    """Values that the question did not ask for count too, and every empty cell has a reason."""
    listed = sorted(more.union(*publication.values()))
    numbers = {
        each: {period: 1 for period in found if selected(asked, period)}
        for each, found in publication.items()
    }
    panel = asyncio.run(panel_of(numbers, listed, asked=asked))
    for series_id, values in publication.items():
        for period in PERIODS:
            alike = sorted(each for each in values if each.duration_months == period.duration_months)
            why = panel.why(series_id, period)
            if period in values:
                assert (why is None) == selected(asked, period)
                assert why is None or why.startswith("not requested: ")
                continue
            assert why is not None
            match why.partition(":")[0]:
                case "outside the catalogue's span":
                    assert not listed[0].fiscal_end <= period.fiscal_end <= listed[-1].fiscal_end
                case "values for other durations only":
                    assert values
                    assert "as far as" in why or not alike
                case "before the first value of the series":
                    assert period < alike[0]
                    assert why.endswith(f" {alike[0]}")
                case "after the last value of the series":
                    assert period > alike[-1]
                    assert why.endswith(f" {alike[-1]}")
                case "not requested":
                    assert not selected(asked, period)
                case "no value":
                    assert any(period in found for found in publication.values())
                case reason:
                    assert reason == f"no value in any series of the panel in {period}"
                    assert not any(period in found for found in publication.values())
            if asked is EVER and alike and listed[0].fiscal_end <= period.fiscal_end <= listed[-1].fiscal_end:
                between = alike[0] < period < alike[-1]
                assert why.startswith(("before ", "after ")) != between
