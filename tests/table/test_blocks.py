"""The numbers of a page, with some of its series dropped."""

import asyncio

from hypothesis import given, strategies as st

from asyncfin.model.period import Period
from asyncfin.table.block import Store, drop_series
from tests.answers import EVER, Numbers, Stitched, catalogue_of, encoded, page_json

PERIODS = [Period(year, 12, 12) for year in range(2018, 2024)]
IDS = [f"m{at}.annual" for at in range(6)]
tables = st.dictionaries(
    st.sampled_from(IDS), st.dictionaries(st.sampled_from(PERIODS), st.integers(1, 10**6)), min_size=1
)


@given(tables, st.sets(st.sampled_from(IDS)))
def test_dropping_series_leaves_other_values(numbers: Numbers, dropped: set[str]) -> None:
    """Also those that come after a dropped series, and those without values."""

    async def run() -> None:
        catalogue = catalogue_of(numbers, PERIODS)
        answer = Stitched(catalogue, catalogue.series, EVER)
        await answer.add(encoded(page_json(PERIODS, numbers)), home=frozenset(numbers), asked=EVER)
        (block,) = answer.blocks
        rest = drop_series(block, dropped)
        if rest is None:
            assert dropped >= set(numbers)
            return
        store = Store([rest])
        for series_id, found in numbers.items():
            place = store.find(series_id)
            assert (place is None) == (series_id in dropped)
            if place is not None:
                positions, observed = place[0].observations(place[1])
                periods = [rest.axis.periods[at] for at in positions]
                assert dict(zip(periods, observed, strict=True)) == found
                values = zip(rest.axis.periods, store.values(*place), strict=True)
                assert {period: value.number for period, value in values if value is not None} == found

    asyncio.run(run())
