"""Reasons for empty cells, compared with all values of the publication."""

import asyncio

import msgspec
from attrs import evolve
from hypothesis import assume, given, settings, strategies as st

from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved
from tests import examples
from tests.answers import EVER, panel_of
from tests.table.panels import with_fields

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


@settings(max_examples=examples(200))
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
                case reason if "catalogue" in reason:
                    assert reason == f"the catalogue does not have {period}"
                    assert period not in listed
                case reason:
                    assert reason == f"no requested series has a value in {period}"
                    assert period in listed
                    assert not any(period in found for found in publication.values())
            if asked is EVER and alike and listed[0].fiscal_end <= period.fiscal_end <= listed[-1].fiscal_end:
                between = alike[0] < period < alike[-1]
                assert why.startswith(("before ", "after ")) != between


MONTHS = [Period(year, month, 0) for year in (2021, 2022) for month in range(1, 13)]


def _months(period: Period) -> set[int]:
    """Return the months of a period, counted from the year 0; one of no duration is in its last month."""
    last = 12 * period.year + period.end_month
    return {last - back for back in range(max(1, period.duration_months))}


@settings(max_examples=examples(300))
@given(st.none() | st.sampled_from(MONTHS), st.none() | st.sampled_from(MONTHS), st.sampled_from(range(15)))
def test_inactive_scope_has_no_active_month(start: Period | None, end: Period | None, duration: int) -> None:
    """It is active from its first month to its last, both included, as spec 2.3 says."""
    assume(start is None or end is None or start <= end)
    listed = [Period(2020, 1, 0), *MONTHS, Period(2023, 12, 0)]
    panel = asyncio.run(panel_of({IDS[0]: {}}, listed))
    (group,) = panel.catalogue.scope_groups
    scope = msgspec.structs.replace(group.scopes[0], active_start=start, active_end=end)
    catalogue = evolve(panel.catalogue, scope_groups=(evolve(group, scopes=(scope,)),))
    panel = with_fields(panel, catalogue=catalogue)
    for month in MONTHS:
        period = Period(month.year, month.end_month, duration)
        active = {
            each
            for each in _months(period)
            if (start is None or min(_months(start)) <= each) and (end is None or each <= max(_months(end)))
        }
        why = panel.why(IDS[0], period)
        assert why is not None
        assert why.startswith("inactive scope: ") == (not active)
