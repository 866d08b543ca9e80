"""Pages of several ranges of one query, joined: as the page of a query over all of them."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.selection import FiscalRange
from asyncfin.wire.ranges import joined_ranges
from asyncfin.wire.tolerance import Tolerance
from asyncfin.wire.values import PlannedPage, read_planned_page
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json

PERIODS = [
    Period(year, month, duration)
    for year in (2021, 2022, 2023, 2024)
    for month, duration in ((6, 3), (6, 6), (12, 12))
]
IDS = [f"m{at}.annual" for at in range(5)]
HOME = frozenset(IDS[:3])
NUMBERS = st.integers(-(10**9), 10**9) | st.just(0) | st.floats(-1e9, 1e9)
publications = st.dictionaries(
    st.sampled_from(IDS), st.dictionaries(st.sampled_from(PERIODS), NUMBERS, max_size=8), min_size=1
)


async def read(document: dict[str, Any]) -> PlannedPage:
    return await read_planned_page(encoded(document), HOME, "original", Tolerance(), keep_foreign=True)


def within(year: int, last: int | None = None) -> FiscalRange:
    return FiscalRange((year, 1), (last or year, 12))


@given(publications, st.data())
def test_joined_pages_have_each_value_once_at_its_series_and_period(
    publication: dict[str, dict[Period, Any]], data: st.DataObject
) -> None:
    """Whatever each range lists, in whatever order; foreign series are kept where they are wanted."""
    pages = []
    for first, last in ((2023, 2024), (2022, 2022), (2021, 2021)):
        populated = {p for found in publication.values() for p in found if first <= p.year <= last}
        periods = data.draw(st.permutations(sorted(populated)))
        # A series without values in a range may be missing there.
        listed = {
            series_id: {p: number for p, number in found.items() if p in populated}
            for series_id, found in publication.items()
            if populated & found.keys() or first == data.draw(st.sampled_from((2021, 2022, 2023)))
        }
        pages.append((within(first, last), page_json(periods, listed)))
    only = data.draw(st.none() | st.sets(st.sampled_from(PERIODS)))
    keeps: bool = data.draw(st.booleans())

    async def joined() -> PlannedPage:
        given = [(each, await read(page)) for each, page in pages]
        return await joined_ranges(given, HOME, "original", Tolerance(), periods=only, keep_foreign=keeps)

    page = asyncio.run(joined())
    kept = {p for found in publication.values() for p in found if only is None or p in only}
    assert {*page.periods} == kept
    assert {head.series_id for head in page.heads} >= {one for one, found in publication.items() if found}
    for rows, ids in ((page.wanted, HOME), (page.foreign, {*IDS} - HOME if keeps else set())):
        found = {
            (page.heads[index].series_id, page.periods[at], number)
            for index, start, end in zip(
                rows.indices, rows.numbers.starts, rows.numbers.starts[1:], strict=False
            )
            for at, number in zip(
                rows.numbers.positions[start:end], rows.numbers.numbers[start:end], strict=True
            )
        }
        expected = {
            (one, period, float(number))
            for one, values in publication.items()
            for period, number in values.items()
            if one in ids and period in kept
        }
        assert found == expected


def test_all_fields_of_the_values_are_those_of_the_ranges() -> None:
    """They are decoded later, from the joined text."""
    numbers: dict[str, dict[Period, Any]] = {
        "m0.annual": {PERIODS[2]: 1, PERIODS[-1]: 2.5},
        "m1.annual": {PERIODS[5]: 0},
    }

    async def panels() -> list[Any]:
        pages = [
            (
                within(year),
                await read(
                    page_json(
                        [p for p in PERIODS if p.year == year],
                        {
                            one: {p: v for p, v in found.items() if p.year == year}
                            for one, found in numbers.items()
                        },
                    )
                ),
            )
            for year in (2024, 2023, 2022, 2021)
        ]
        joined = await joined_ranges(pages, {*numbers}, "original", Tolerance())
        whole = await read(page_json(PERIODS, numbers))
        found = []
        for page in (joined, whole):
            answer = Stitched(catalogue_of(numbers), catalogue_of(numbers).series, EVER)
            await answer.add(page.body, home=frozenset(numbers), asked=EVER)
            found.append({each.series_id: list(each.observations()) for each in answer.panel()})
        return found

    joined, whole = asyncio.run(panels())
    assert joined == whole
    assert sum(map(len, joined.values())) == 3


@pytest.mark.parametrize("series_id", [IDS[0], IDS[4]])
def test_a_value_outside_of_its_range_is_malformed_and_dropped_of_a_foreign_series(series_id: str) -> None:
    """Also where it would be inside of another one: which of two values counts is not guessed."""
    outside, inside = PERIODS[2], PERIODS[-1]

    async def joined() -> PlannedPage:
        numbers: dict[str, dict[Period, Any]] = {IDS[1]: {inside: 1}, series_id: {outside: 2}}
        pages = [
            (within(2024), await read(page_json([outside, inside], numbers))),
            (within(2021), await read(page_json([outside], {IDS[1]: {outside: 3}}))),
        ]
        return await joined_ranges(pages, HOME, "original", Tolerance(), keep_foreign=True)

    if series_id in HOME:
        with pytest.raises(MalformedAnswerError, match=f"{series_id} has a value at FY2021, outside of"):
            asyncio.run(joined())
    else:
        page = asyncio.run(joined())
        assert not page.foreign.numbers.numbers
        assert [*page.wanted.numbers.numbers] == [1, 3]


def test_a_series_that_two_ranges_describe_as_two_series_is_malformed() -> None:
    async def joined() -> PlannedPage:
        pages = []
        for year, group in ((2024, "annual"), (2023, "quarterly")):
            document = page_json([Period(year, 12, 12)], {IDS[0]: {Period(year, 12, 12): 1}})
            document["series"][0]["reporting_group_id"] = group
            pages.append((within(year), await read(document)))
        return await joined_ranges(pages, HOME, "original", Tolerance())

    with pytest.raises(MalformedAnswerError, match="another range describes it as another series"):
        asyncio.run(joined())


def test_what_is_repaired_in_ranges_is_a_deviation_of_the_joined_page_and_is_not_announced_again() -> None:
    announced: list[object] = []
    tolerance = Tolerance(announce=announced.append)

    async def joined() -> PlannedPage:
        pages = []
        for year in (2024, 2023):
            document = page_json([Period(year, 12, 12)], {IDS[0]: {Period(year, 12, 12): 1}})
            document["series"][0]["label"] = None
            page = await read_planned_page(encoded(document), HOME, "original", tolerance)
            pages.append((within(year), page))
        return await joined_ranges(pages, HOME, "original", tolerance)

    page = asyncio.run(joined())
    assert [(each.path, each.count) for each in page.deviations] == [("$.series[*].label", 1)]
    assert len(announced) == 2
