"""The last twelve months against plain arithmetic over the values of panels."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from asyncfin import (
    ArgumentError,
    Client,
    FiscalRange,
    Panel,
    Period,
    Select,
    SelectionError,
    last_twelve_months,
)
from asyncfin.sandbox import Sandbox, load
from tests import examples
from tests.answers import ENTITY_ID, panel_of

REAL = sorted((Path(__file__).parents[2] / "../shared/data").glob("[bt]*.json.gz"))
Key = tuple[int, int, int]


def of(label: str) -> Period:
    return Period.parse(label)


async def panel_with(
    numbers: Mapping[str, Mapping[Period, float]], *, entity_id: str = ENTITY_ID, **fields: str
) -> Panel:
    """Return a panel of these series, which have one description and these fields."""
    periods = sorted({period for found in numbers.values() for period in found})
    panel = await panel_of(numbers, periods)
    groups = tuple(
        evolve(
            group,
            series=tuple(
                msgspec.structs.replace(each, description="Unit: USD.", **fields) for each in group.series
            ),
        )
        for group in panel.catalogue.groups
    )
    catalogue = evolve(panel.catalogue, groups=groups, entity_id=entity_id)
    grid = evolve(panel._grid, catalogue=catalogue, series=catalogue.series)
    return evolve(panel, grid=grid)


def key(period: Period) -> Key:
    return period.year, period.end_month, period.duration_months


def earlier(year: int, month: int, months: int) -> tuple[int, int]:
    """Return the fiscal end so many months before."""
    for _ in range(months):
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    return year, month


def parts_of(year: int, month: int) -> list[list[Key]]:
    """Return the ways in which the first months of a fiscal year are published in parts."""
    quarters = [(year, each, 3) for each in range(3, month + 1, 3)]
    ways = [quarters, [(year, month - 3, month - 3), (year, month, 3)]]
    return ways + ([[(year, 6, 6), (year, 12, 6)]] if month == 12 else [])


def evidence(exact: Mapping[Key, Decimal]) -> tuple[int, set[int]]:
    """Return how many periods are the sum of parts, and the others: as years times 100 and months."""
    proofs, contrary = 0, set()
    for year, month, months in exact:
        if months != month or months not in (6, 9, 12):
            continue
        stated = exact[year, month, months]
        sums = [
            sum(exact[part] for part in way)
            for way in parts_of(year, month)
            if all(part in exact for part in way) and any(exact[part] for part in way)
        ]
        fits = [abs(each - stated) * 50 <= max(abs(each), abs(stated)) for each in sums]
        first = max(exact.get((year, each, each), Decimal()) for each in (3, 6, 9))
        is_less = month == 12 and min(exact.values()) >= 0 and (first - stated) * 50 > first
        if any(fits):
            proofs += 1
        elif fits or is_less:
            contrary.add(year * 100 + month)
    return proofs, contrary


def expected(numbers: Mapping[Key, float], at: tuple[int, int], form: str) -> tuple[Any, ...]:
    """Return how, operands and number of the twelve months to a fiscal end, as they are defined."""
    year, month = at
    exact = {each: Decimal(repr(float(number))) for each, number in numbers.items()}
    if (year, month, 12) in exact:
        return "year", [(year, month, 12)], exact[year, month, 12]
    if "%" in form:
        return None, [], None
    proofs, contrary = evidence(exact)
    quarters = [(*earlier(year, month, back), 3) for back in (9, 6, 3, 0)]
    so_far = [(year - 1, 12, 12), (year, month, month), (year - 1, month, month)]
    if all(each in exact for each in quarters):
        how, operands, signs = "quarters", quarters, [1, 1, 1, 1]
        # Of the year before, no period from its start is within the twelve months.
        within = {each for each in contrary if year * 100 <= each <= year * 100 + month}
    elif month < 12 and all(each in exact for each in so_far):
        how, operands, signs = "year to date", so_far, [1, 1, -1]
        within = {each for each in contrary if (year - 1) * 100 <= each <= year * 100 + month}
    else:
        return None, [], None
    if within or (proofs <= len(contrary) and any(exact[each] for each in operands)):
        return None, [], None
    added = sum(sign * exact[each] for sign, each in zip(signs, operands, strict=True))
    if added < 0 <= min(exact.values()):
        return None, [], None
    return how, operands, added


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    """Return what a table says of each line and fiscal end."""
    return [
        (
            *(row["entity_id"], row["asked_version"], tuple(row["series_ids"])),
            (row["year"], row["end_month"]),
            *(row["how"], row["operands"], row["number"], row["reason"] is None),
        )
        for row in table.to_pylist()
    ]


def oracle(panels: Iterable[Panel], meanings: Iterable[str] = ("over_period",)) -> Iterator[tuple[Any, ...]]:
    """Yield what the table has to say, from the values of one panel each."""
    for panel in panels:
        numbers = {
            series.series_id: {key(period): float(value.number) for period, value in series.observations()}
            for series in panel
        }
        alike: dict[Any, list[str]] = {}
        for series in panel.catalogue.series:
            if series.series_id in numbers:
                same = msgspec.structs.replace(series, series_id="", reporting_group_id="")
                alike.setdefault(same, []).append(series.series_id)
        lines = []
        for same, ids in alike.items():
            seen: dict[Key, set[float]] = {}
            for each in ids:
                for period, number in numbers[each].items():
                    seen.setdefault(period, set()).add(number)
            joined = all(len(each) == 1 for each in seen.values())
            lines += [(ids, same)] if joined else [([each], same) for each in ids]
        order = {each.series_id: at for at, each in enumerate(panel.catalogue.series)}
        ends = sorted(
            {
                (each.year, each.end_month)
                for each in (*panel.periods, *panel.gaps)
                if each.duration_months in (3, 12) or each.duration_months == each.end_month
            }
        )
        for ids, same in sorted(lines, key=lambda line: order[line[0][0]]):
            found = {period: number for each in ids for period, number in numbers[each].items()}
            if same.period_meaning not in meanings or not found:
                continue
            begins = min(period[:2] for period in found)
            for at in ends:
                if at >= begins:
                    how, operands, number = expected(found, at, same.number_format)
                    labels = [Period(*each).label for each in operands]
                    value = None if number is None else float(number)
                    identity = (panel.dataset.entity_id, panel.value_version, tuple(ids), at)
                    yield *identity, how, labels, value, number is not None


PERIODS = [
    Period(year, month, duration)
    for year in range(2020, 2024)
    for month in (3, 6, 9, 12)
    for duration in sorted({3, 12, month})
]
some_numbers = st.dictionaries(
    st.sampled_from(PERIODS), st.sampled_from([0, 1, 2, 3, 2.97, 3.03, -1, 0.1, 0.2, 7e11]), max_size=30
)
# Quarters that add up, of which some are missing.
quarterly = st.tuples(
    st.lists(st.integers(1, 9), min_size=16, max_size=16), st.sets(st.sampled_from(PERIODS), max_size=12)
)


def adding_up(quarters: list[int], missing: set[Period]) -> dict[Period, float]:
    found = {}
    for period in PERIODS:
        last = (period.year - 2020) * 4 + period.end_month // 3
        parts = quarters[max(0, last - period.duration_months // 3) : last]
        if period.duration_months in (3, period.end_month) and period not in missing:
            found[period] = sum(parts)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(some_numbers, quarterly.map(lambda each: adding_up(*each))),
    some_numbers,
    st.sampled_from(["#,##0", "0.0%"]),
)
def test_every_row_is_as_defined(one: dict[Period, float], other: dict[Period, float], form: str) -> None:
    """Of two groups, which are one line where their numbers agree; each number of published values."""
    numbers = {"Sales.annual": one, "Sales.quarterly": other}
    panel = asyncio.run(panel_with(numbers, number_format=form))
    table = last_twelve_months(panel)
    assert rows_of(table) == list(oracle([panel]))
    for row in table.to_pylist():
        assert (row["number"] is None) == (row["how"] is None) == (row["reason"] is not None)
        assert row["duration_months"] == 12


async def test_columns_are_those_of_long_table() -> None:
    """With the same types, and what the sum is made of after them."""
    numbers = {"Sales.annual": {of("FY2023"): 10}, "Sales.quarterly": {Period(2024, 3, 3): 3}}
    panel = await panel_with(numbers)
    table, long = last_twelve_months(panel), panel.to_arrow().schema
    assert table.column_names[-6:] == ["number", "text", "how", "operands", "series_ids", "reason"]
    names = [name for name in table.column_names if name in long.names]
    assert len(names) == len(table.column_names) - 4
    assert [table.schema.field(name).type for name in names] == [long.field(name).type for name in names]
    about = json.loads(table.schema.metadata[b"asyncfin"])
    assert (about["left_out"], about["panels"][0]["entity_id"]) == (0, panel.dataset.entity_id)
    assert table["text"].to_pylist()[0] == "10"
    assert table["series_ids"].to_pylist() == [["Sales.annual", "Sales.quarterly"]] * len(table)


HALVES = {Period(2024, 6, 6): 40, Period(2024, 12, 6): 60, of("FY2024"): 100, Period(2025, 6, 6): 45}


async def latest(numbers: Mapping[Period, float], **options: Any) -> dict[str, Any]:
    """Return the last row of one line."""
    panel = await panel_with({"Sales.annual": numbers})
    (*_, row) = last_twelve_months(panel, **options).to_pylist()
    return dict(row)


async def test_series_of_one_group_stay_apart() -> None:
    """Only groups say the same of a company twice: two series of a group are two lines."""
    proof = {Period(2023, month, 3): 100.0 for month in (3, 6, 9, 12)}
    numbers = {
        "Sales.annual": proof | {of("FY2023"): 400.0, Period(2024, 3, 3): 100.0},
        "Sales.quarterly": {Period(2024, month, 3): 7.0 for month in (6, 9, 12)},
    }
    joined = last_twelve_months(await panel_with(numbers)).to_pylist()
    assert joined[-1]["number"] == 121
    panel = await panel_with(numbers, reporting_group_id="annual")
    rows = last_twelve_months(panel).to_pylist()
    sums = {(row["year"], row["end_month"]): row["number"] for row in rows}
    assert (sums[2024, 3], sums[2024, 12]) == (400, None)
    assert {len(row["series_ids"]) for row in rows} == {1}


async def test_halves_prove_that_line_adds_up() -> None:
    """40 and 60 are 100: 45 after it makes 105. Without the second half nothing shows it."""
    proven = await latest(HALVES)
    assert (proven["number"], proven["how"], proven["text"]) == (105, "year to date", None)
    bare = {period: number for period, number in HALVES.items() if number != 60}
    row = await latest(bare)
    assert (row["number"], row["reason"]) == (None, "nothing published shows that its parts add up")
    assert (await latest(bare, unproven=True))["number"] == 105


async def test_sums_are_not_negative() -> None:
    """A year of 10 that is proven, and then a first half of 1 after one of 12."""
    halves = {Period(2023, 6, 6): 40, Period(2023, 12, 6): 60, of("FY2023"): 100}
    numbers = halves | {Period(2022, 6, 6): 5, Period(2022, 12, 6): 5, of("FY2022"): 10}
    wrong = numbers | {of("FY2024"): 10, Period(2024, 6, 6): 12, Period(2025, 6, 6): 1}
    row = await latest(wrong, unproven=True)
    assert row["reason"] == "FY2024 is 10, its first 6 months are 12"
    close = numbers | {of("FY2024"): 10, Period(2024, 6, 6): 10.1, Period(2025, 6, 6): 0}
    row = await latest(close)
    assert row["reason"] == "the sum is -0.1, and no published value is below 0"


async def test_a_contradiction_nulls_its_own_sums() -> None:
    """Earnings per share across a split: the sums of other years stay."""
    numbers: dict[Period, float] = {}
    for year in (2021, 2022, 2023, 2024):
        numbers |= {Period(year, month, 3): 2 for month in (3, 6, 9, 12)} | {of(f"FY{year}"): 8}
        numbers |= {Period(year, 6, 6): 4, Period(year, 9, 9): 6}
    numbers[Period(2024, 6, 6)] = 1
    table = last_twelve_months(await panel_with({"EPS.annual": numbers})).to_pylist()
    found = {(row["year"], row["end_month"]): row for row in table}
    assert found[2023, 6]["number"] == found[2024, 3]["number"] == 8
    assert found[2024, 6]["reason"] == f"{Period(2024, 6, 6)} is 1, FY2024-Q1 and FY2024-Q2 add up to 4"
    assert found[2024, 12]["how"] == "year"


async def test_missing_operand_is_named() -> None:
    """The one of the way that needs the fewest more."""
    numbers = {"Sales.quarterly": {Period(2024, month, 3): 1.0 for month in (3, 6, 12)}}
    (*_, last) = last_twelve_months(await panel_with(numbers)).to_pylist()
    third = Period(2024, 9, 3)
    assert last["reason"] == f"{third} has no value in these panels"
    assert (last["how"], last["operands"]) == (None, [])


async def test_lines_of_another_meaning_are_counted() -> None:
    """Without any that adds up, the error names the words that there are."""
    flow = await panel_with({"Sales.annual": {of("FY2024"): 1}})
    other = "O-" + "f" * 32
    stock = await panel_with({"Cash.annual": {of("FY2024"): 1}}, period_meaning="at_end", entity_id=other)
    table = last_twelve_months([flow, stock])
    assert table["metric_id"].to_pylist() == ["Sales"]
    assert json.loads(table.schema.metadata[b"asyncfin"])["left_out"] == 1
    assert last_twelve_months([flow, stock], period_meanings=["at_end", "over_period"]).num_rows == 2
    assert last_twelve_months(stock, period_meanings="at_end").num_rows == 1
    with pytest.raises(SelectionError, match=r"has the period meaning 'over_period', .*; they have 'at_end'"):
        last_twelve_months(stock)
    for wrong in ([], [5], 5):
        with pytest.raises(SelectionError, match="period_meanings"):
            last_twelve_months(flow, period_meanings=wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="each of panels must be a Panel"):
        last_twelve_months([5])  # type: ignore[list-item]
    assert last_twelve_months([]).num_rows == 0


@pytest.mark.skipif(not REAL, reason="../shared/data is not there")
@pytest.mark.parametrize("path", REAL[:1], ids=lambda path: path.stem)
async def test_real_companies_are_as_defined(path: Path) -> None:
    """All lines of a company, in both versions."""
    async with Sandbox(load(path)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        panels = [
            await client.query(sandbox.entities[0], Select(), FiscalRange(), value_version=version)
            for version in ("original", "latest_restated")  # type: ignore[arg-type]
        ]
    assert rows_of(last_twelve_months(panels)) == list(oracle(panels))
