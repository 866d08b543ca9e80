"""The obvious lines of pandas give the right numbers: each against plain code over the values."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin import (
    Annual,
    Client,
    Comparison,
    Period,
    Select,
    concat,
)
from asyncfin.sandbox import Sandbox
from tests import answers, examples, handmade

pandas = pytest.importorskip("pandas")

Numbers = Mapping[str, Mapping[str, float]]
IDS = [f"O-{digit * 32}" for digit in "312"]
NAMES = ["Zeta", "Alpha", "Mid"]
QUARTERS = [Period(year, month, 3) for year in range(2019, 2024) for month in (3, 6, 9, 12)]
EPS = {
    "Zeta": {"FY2022": 6.11, "FY2023": 6.13, "FY2024": 6.08},
    "Alpha": {"FY2022": 4.56, "FY2023": 5.8},
    "Mid": {"FY2023": 1.76, "FY2024": 12.05},
}


def companies(**metrics: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return a dataset for each company, with the numbers of each metric by company and label."""
    found = []
    for entity_id, name in zip(IDS, NAMES, strict=True):
        numbers = {(metric, "all"): by_name[name] for metric, by_name in metrics.items() if name in by_name}
        found.append(handmade.dataset(numbers, entity_id=entity_id) | {"name": name})
    return found


async def compared(*datasets: Any, select: Select, periods: Any, faults: Any = ()) -> Comparison:
    async with (
        Sandbox(*datasets, faults=faults) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        return await client.compare(IDS[: len(datasets)], select, periods)


def mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


async def test_mean_is_of_numbers_alone() -> None:
    """Neither a year nor a duration is among the numbers, also after the table has been in a Parquet file."""
    result = await compared(*companies(EPS=EPS), select=Select("EPS"), periods=Annual())
    labels = sorted({label for numbers in EPS.values() for label in numbers})
    expected = [mean([numbers[label] for numbers in EPS.values() if label in numbers]) for label in labels]
    frames = {
        "labels": concat(result, "wide", labels=True).to_pandas(),
        "ids": concat(result, "wide").to_pandas(),
        "comparison": result.to_pandas(),
        "one company": concat([*result][:1], "wide").to_pandas(),
    }
    for name in ("labels", "ids", "comparison"):
        assert frames[name].mean(axis=1).tolist() == pytest.approx(expected)
    assert frames["labels"].index.tolist() == labels
    assert frames["one company"].mean(axis=1).tolist() == pytest.approx([*EPS["Zeta"].values()])


def four(numbers: Mapping[Period, float], at: Period) -> list[float] | None:
    """Return the numbers of the year to a quarter; None if one of the four has none."""
    ends = [at.fiscal_end - 3 * step for step in range(4)]
    by_end = {period.fiscal_end: number for period, number in numbers.items()}
    return [by_end[end] for end in ends] if all(end in by_end for end in ends) else None


def is_near(found: float, wanted: float | None) -> bool:
    return math.isnan(found) if wanted is None else math.isclose(found, wanted, abs_tol=1e-6)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(QUARTERS), st.integers(1, 1_000), min_size=1), min_size=1, max_size=3
    )
)
def test_four_quarters_are_a_year(numbers: list[dict[Period, float]]) -> None:
    """`rolling(4)` and `pct_change(4)`, in wide frames, whatever is missing."""
    series = {f"m{number}.g": found for number, found in enumerate(numbers)}
    listed = sorted({period for found in numbers for period in found})
    panel = asyncio.run(answers.panel_of(series, listed))
    wide = panel.to_pandas("wide")
    for series_id, found in series.items():
        sums, growth = wide[series_id].rolling(4).sum(), wide[series_id].pct_change(4, fill_method=None)
        for (year, month, months), total in sums.items():
            at, before = Period(year, month, months), Period(year - 1, month, months)
            year_of = four(found, at)
            assert is_near(total, year_of and sum(year_of))
            wanted = found[at] / found[before] - 1 if at in found and before in found else None
            assert is_near(growth[(year, month, months)], wanted)
