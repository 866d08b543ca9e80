"""The demo dataset: its figures are those that the companies reported, and they agree with each other."""

from __future__ import annotations

from functools import cache

import pytest

from asyncfin.sandbox.dataset import DatasetFile, Publication
from asyncfin.sandbox.demo import demo_datasets
from tests.demo import demo_id

APPLE, NVIDIA, ALPHABET = range(3)
MILLION = 1_000_000

# As printed in the annual reports, in millions of dollars; by fiscal year.
REPORTED = {
    (APPLE, "Revenue/annual"): {2015: 233_715, 2020: 274_515, 2024: 391_035},
    (APPLE, "NetIncome/annual"): {2015: 53_394, 2020: 57_411, 2024: 93_736},
    (APPLE, "OperatingIncome/annual"): {2020: 66_288, 2024: 123_216},
    (APPLE, "Revenue/iPhone/annual"): {2020: 137_781, 2024: 201_183},
    (APPLE, "Revenue/Greater China/annual"): {2020: 40_308, 2024: 66_952},
    (APPLE, "Assets/annual"): {2020: 323_888, 2024: 364_980},
    (NVIDIA, "Revenue/annual"): {2017: 6_910, 2020: 10_918, 2025: 130_497},
    (NVIDIA, "NetIncome/annual"): {2017: 1_666, 2020: 2_796, 2025: 72_880},
    (NVIDIA, "Revenue/Data center/annual"): {2023: 15_005, 2025: 115_186},
    (ALPHABET, "Revenue/annual"): {2016: 90_272, 2019: 161_857, 2024: 350_018},
    (ALPHABET, "NetIncome/annual"): {2017: 12_662, 2019: 34_343, 2024: 100_118},
    (ALPHABET, "Revenue/Google Cloud/annual"): {2022: 26_280, 2024: 43_229},
    (ALPHABET, "Revenue/Google Services/YouTube ads/annual"): {2022: 29_243, 2024: 36_147},
    (ALPHABET, "OperatingIncome/Google Cloud/annual"): {2022: -1_922, 2024: 6_112},
}


@cache
def datasets() -> tuple[DatasetFile, ...]:
    """The demo datasets, read once."""
    return demo_datasets()


def current(company: int) -> Publication:
    """The current publication of a company."""
    return datasets()[company].publications[-1]


def numbers(company: int, name: str) -> dict[tuple[int, int, int], float]:
    """The original numbers of a series by period."""
    publication = current(company)
    rows = publication.values[demo_id(name, company)]
    return {publication.periods[index]: value["number"] for index, value, _ in rows}


def years(company: int, name: str) -> dict[int, float]:
    """The original numbers of an annual series by fiscal year."""
    return {year: number for (year, _, _), number in numbers(company, name).items()}


@pytest.mark.parametrize(("company", "name"), REPORTED, ids=lambda part: str(part))
def test_figures_are_those_of_annual_reports(company: int, name: str) -> None:
    """Sample figures, copied here from the printed reports, to the million."""
    figures = years(company, name)
    reported = REPORTED[company, name]
    assert {year: figures[year] / MILLION for year in reported} == reported


@pytest.mark.parametrize("company", range(3))
@pytest.mark.parametrize("metric", ["Revenue", "NetIncome"])
def test_quarters_add_up_to_year(company: int, metric: str) -> None:
    """Four quarters, reported or derived, are the fiscal year, but for what was restated within it."""
    quarters = numbers(company, f"{metric}/quarterly")
    sums = {
        year: sum(quarters[year, month, 3] for month in (3, 6, 9, 12))
        for year, number in years(company, f"{metric}/annual").items()
        if all((year, month, 3) in quarters for month in (3, 6, 9, 12))
    }
    annual = years(company, f"{metric}/annual")
    close = [year for year, total in sums.items() if total == pytest.approx(annual[year], rel=0.002)]
    assert len(sums) >= 8
    assert len(close) >= len(sums) - 2


def test_series_have_units_and_sources() -> None:
    """The unit ends the description; every value names a filing, two where it is a difference."""
    for company in range(3):
        publication = current(company)
        for group in publication.groups:
            for series in group["series"]:
                unit = series["description"].rpartition("Unit: ")[2]
                assert unit in {"USD.", "USD per share.", "shares.", "ratio."}
        for rows in publication.values.values():
            for _, value, _ in rows:
                assert len(value["sources"]) >= (2 if value["fill_type"] == "derived" else 1)
