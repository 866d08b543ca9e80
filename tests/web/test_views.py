"""The views of the explorer: each number and text against plain code over the values."""

import csv
import io
import math
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from asyncfin import Client, FiscalRange, Panel, Period, Select
from asyncfin.sandbox import Sandbox
from asyncfin.web.download import view_csv
from asyncfin.web.views import Cell, Chart, Group, bodies_of, charts_of, groups_of
from tests import handmade

YEARS = [f"FY{year}" for year in range(2018, 2026)]
NINE_MONTHS = [f"FY{year}-9M" for year in range(2022, 2026)]


def entity(number: int) -> str:
    return "O-" + str(number) * 32


async def panels_of(*companies: handmade.Numbers, version: Any = "original") -> list[Panel]:
    """Return a panel of everything for each company, in order, read from a service."""
    labels = tuple(dict.fromkeys(label for each in companies for found in each.values() for label in found))
    datasets = [
        handmade.dataset(each, periods=labels, entity_id=entity(at)) | {"name": f"Company {at}"}
        for at, each in enumerate(companies, 1)
    ]
    async with Sandbox(*datasets) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        return [
            await client.query(each["entity_id"], Select(), FiscalRange(), value_version=version)
            for each in datasets
        ]


def of_one(metric: str = "Revenue", **numbers: float) -> handmade.Numbers:
    return {(metric, "all"): numbers}


def texts(group: Group, periods: Sequence[Period]) -> list[list[str]]:
    return [[group.cell(row, period).text for period in periods] for row in group.rows]


def charts(panels: Sequence[Panel], *, log: bool = False, most: int = 12, **view: Any) -> list[Chart]:
    groups = groups_of(panels, **{"view": "values", "order": "metric", **view})
    return charts_of(groups, most=most, is_log=log)


def randomly_filled(rng: random.Random) -> handmade.Numbers:
    """Return two metrics of some years and nine months, with zeros and losses among them."""
    number = lambda: rng.choice([0, -3.5, rng.randint(-50, 5_000), rng.uniform(0, 10)])  # noqa: E731
    return {
        (metric, "all"): {label: number() for label in YEARS + NINE_MONTHS if rng.random() < 0.7}
        or {"FY2025": 1.0}
        for metric in ("Revenue", "Cost")
    }


def numbers_of(panel: Panel, metric: str) -> Mapping[Period, Any]:
    return {
        period: value.number
        for series in panel
        if series.metric_id == metric
        for period, value in series.observations()
    }


@pytest.mark.parametrize("seed", range(12))
async def test_growth_index_and_ratio_are_those_of_plain_arithmetic(seed: int) -> None:
    """Every cell of three companies, by fractions."""
    rng = random.Random(seed)
    panels = await panels_of(*(randomly_filled(rng) for _ in range(3)))
    over = ("Cost", "all", "company=all")
    views = {view: groups_of(panels, view=view, order="metric", over=over) for view in ("growth", "index")}
    views["ratio"] = groups_of(panels, view="ratio", order="metric", over=over)
    assert [len(group.rows) for group in views["ratio"]] == [3]  # the divisor is not shown
    for view, groups in views.items():
        for group in groups:
            for row in group.rows:
                metric = row.series.metric_id
                have = numbers_of(row.panel, metric)
                for period in row.panel.catalogue.periods:
                    cell = group.cell(row, period)
                    wanted = expected(view, panels, row.panel, metric, have, period)
                    if isinstance(wanted, str) or wanted is None:
                        assert (cell.number, cell.text) == (None, wanted or cell.text)
                        assert cell.text in ("", "·") if wanted is None else True
                    else:
                        assert cell.number is not None
                        assert math.isclose(cell.number, wanted, rel_tol=1e-9, abs_tol=1e-9)


def expected(
    view: str, panels: Sequence[Panel], panel: Panel, metric: str, have: Mapping[Period, Any], period: Period
) -> float | str | None:
    """Return the number of a view, the reason in its place, or None for an empty cell."""
    if period not in have:
        return None
    number = Fraction(have[period])
    if view == "growth":
        before = have.get(Period(period.year - 1, period.end_month, period.duration_months))
        if before is None:
            return None
        if before <= 0:
            return "from zero" if before == 0 else "from a loss"
        return float((number / Fraction(before) - 1) * 100)
    if view == "ratio":
        by = numbers_of(panel, "Cost").get(period)
        if by is None:
            return None
        if by == 0:
            return "divided by zero"
        quotients = [
            Fraction(value) / Fraction(divisor)
            for each in panels
            for at, value in numbers_of(each, metric).items()
            if (divisor := numbers_of(each, "Cost").get(at))
        ]
        factor = 100 if all(abs(each) < 10 for each in quotients) else 1
        return float(number / Fraction(by) * factor)
    lines = [numbers_of(each, metric) for each in panels]
    ends = sorted({at for line in lines for at in line if at.duration_months == period.duration_months})
    above = {at: sum(line.get(at, 0) > 0 for line in lines) for at in ends}
    best = max(above.values())
    if best == 0:
        return "not above zero"
    base = next(at for at in ends if above[at] == best)
    if base not in have:
        return f"no value in {base.label}"
    if have[base] <= 0:
        return f"not above zero in {base.label}"
    return float(number / Fraction(have[base]) * 100)


async def test_growth_uses_values_that_the_page_does_not_show() -> None:
    """The first column of the page is not empty where the value of the year before was read."""
    (panel,) = await panels_of(of_one(FY2023=100, FY2024=110, FY2025=99))
    (group,) = groups_of([panel], view="growth", order="company")
    assert texts(group, panel.periods[1:]) == [["+10.0%", "-10.0%"]]


async def test_growth_of_the_first_fiscal_year_is_empty() -> None:
    """There is no year before it."""
    (panel,) = await panels_of(of_one(FY0001=100, FY0002=110))
    (group,) = groups_of([panel], view="growth", order="company")
    assert texts(group, panel.periods) == [["", "+10.0%"]]


async def test_what_rounds_to_zero_has_no_sign() -> None:
    """Neither +0.0% nor -0.0%."""
    (panel,) = await panels_of(of_one(FY2023=100_000, FY2024=100_001, FY2025=100_000))
    (group,) = groups_of([panel], view="growth", order="company")
    assert texts(group, panel.periods) == [["", "0.0%", "0.0%"]]


async def test_the_index_begins_where_all_lines_are_above_zero() -> None:
    """And is said; a later loss is a negative index."""
    panels = await panels_of(of_one(FY2023=-5, FY2024=10, FY2025=20), of_one(FY2023=5, FY2024=4, FY2025=-2))
    (group,) = groups_of(panels, view="index", order="metric")
    assert group.described == "index, FY2024 = 100"
    assert texts(group, panels[0].periods) == [["-50.0", "100.0", "200.0"], ["125.0", "100.0", "-50.0"]]


async def test_a_line_without_the_base_says_so() -> None:
    """The base is where most are above zero, if there is no period at which all are."""
    panels = await panels_of(of_one(FY2024=1, FY2025=2), of_one(FY2024=3), of_one(FY2025=3), of_one(FY2024=0))
    (group,) = groups_of(panels, view="index", order="metric")
    periods = [Period.parse("FY2024"), Period.parse("FY2025")]
    assert texts(group, periods)[2:] == [["·", "no value in FY2024"], ["not above zero in FY2024", "·"]]


async def test_ratios_below_ten_are_percentages_and_others_have_four_digits() -> None:
    """Of the whole chart, not of a line."""
    rows = {("Part", "all"): {"FY2024": 2, "FY2025": 12_346}, ("Whole", "all"): {"FY2024": 8, "FY2025": 1}}
    (panel,) = await panels_of(rows)
    (group,) = groups_of([panel], view="ratio", order="metric", over=("Whole", "all", "company=all"))
    assert texts(group, panel.periods) == [["0.2500", "12,350"]]
    assert group.described == "ratio to Whole"
    (small,) = await panels_of(rows | {("Part", "all"): {"FY2024": 0.36519, "FY2025": 12_346}})
    (group,) = groups_of([small], view="ratio", order="metric", over=("Whole", "all", "company=all"))
    assert texts(group, panel.periods) == [["0.04565", "12,350"]]
    (other,) = await panels_of({("Part", "all"): {"FY2024": 2}, ("Whole", "all"): {"FY2024": 8}})
    (group,) = groups_of([other], view="ratio", order="metric", over=("Whole", "all", "company=all"))
    assert texts(group, other.periods) == [["25.0%"]]


async def test_a_chart_is_a_metric_of_several_companies_or_a_company() -> None:
    """And its lines are named by what differs."""
    numbers = of_one(FY2025=1) | of_one("Cost", FY2025=2)
    panels = await panels_of(numbers, numbers)
    by_metric = charts(panels, order="metric")
    assert [each.title for each in by_metric] == ["Revenue", "Cost"]
    assert [[line["label"] for line in each.lines] for each in by_metric] == [["Company 1", "Company 2"]] * 2
    by_company = charts(panels, order="company")
    assert [each.title for each in by_company] == ["Company 1", "Company 2"]
    assert [[line["label"] for line in each.lines] for each in by_company] == [["Revenue", "Cost"]] * 2


async def test_a_company_has_one_colour() -> None:
    """In all charts of a question, also where one before it has no value; the legend names that one."""
    panels = await panels_of(
        of_one(FY2025=1),
        {("Revenue", "all"): {}, ("Cost", "all"): {"FY2025": 2}},
        of_one(FY2025=3) | of_one("Cost", FY2025=4),
    )
    revenue, cost = charts(panels)
    colours = {
        chart.title: {str(line["label"]): line["colour"] for line in chart.lines} for chart in (revenue, cost)
    }
    assert colours == {
        "Revenue": {"Company 1": 0, "Company 3": 2},
        "Cost": {"Company 2": 1, "Company 3": 2},
    }
    assert (revenue.without, cost.without) == (["Company 2"], ["Company 1"])
    (chart,) = charts(await panels_of(of_one(FY2025=1), {("Revenue", "all"): {}}, of_one(FY2025=3)))
    assert [line["colour"] for line in chart.lines] == [0, 2]


async def test_lines_of_a_company_have_own_colours() -> None:
    """In the order of the question, company after company."""
    numbers = of_one(FY2025=1) | of_one("Cost", FY2025=2)
    panels = await panels_of(numbers, numbers)
    drawn = charts(panels, order="company")
    assert [[line["colour"] for line in chart.lines] for chart in drawn] == [[0, 1], [2, 3]]
    assert [chart.without for chart in drawn] == [[], []]


async def test_a_value_is_read_with_the_label_of_its_period() -> None:
    """A quarter that ends with nine months is named as a quarter: the tick has the longest of the chart."""
    (panel,) = await panels_of({("Revenue", "all"): {"FY2025-Q3": 2, "FY2025-9M": 6, "FY2025-Q2": 1}})
    (chart,) = charts([panel])
    assert chart.labels == ["FY2025-Q2", "FY2025-9M"]
    readings = {line["months"]: line["readings"] for line in chart.lines}
    assert readings == {3: ["FY2025-Q2: 1", "FY2025-Q3: 2"], 9: ["", "FY2025-9M: 6"]}


async def test_the_x_axis_has_only_ends_of_the_charts_own_lines() -> None:
    """A metric of some years does not stretch the chart of another."""
    (panel,) = await panels_of(of_one(FY2018=1, FY2025=2))
    (other,) = await panels_of({("Cost", "all"): {"FY2025-Q1": 1, "FY2025-Q2": 2}})
    assert [each.labels for each in charts([panel], order="metric")] == [["FY2018", "FY2025"]]
    assert [each.labels for each in charts([other], order="metric")] == [["FY2025-Q1", "FY2025-Q2"]]


async def test_a_logarithmic_chart_leaves_out_what_is_not_above_zero() -> None:
    """It says so where that is the line's last; only a line without any value has no value."""
    (panel,) = await panels_of(of_one(FY2023=0, FY2024=10, FY2025=-1))
    (chart,) = charts([panel], log=True)
    (line,) = chart.lines
    assert line["numbers"] == [None, 10, None]
    assert line["latest"] == "FY2025: not above zero"


async def test_twelve_lines_are_drawn_and_the_others_counted() -> None:
    """With the chart that they belong to."""
    panels = await panels_of({("Revenue", f"s{at}"): {"FY2025": at + 1} for at in range(15)})
    (chart,) = charts(panels)
    assert (len(chart.lines), chart.hidden) == (12, 3)


async def test_the_table_has_the_order_of_the_charts() -> None:
    """A heading for each metric with a row for each company below it, or a heading for each company."""
    numbers = of_one(FY2025=1) | of_one("Cost", FY2025=2)
    panels = await panels_of(numbers, numbers)

    def table(order: str, most: int = 200) -> list[tuple[str, list[str]]]:
        bodies = bodies_of(
            groups_of(panels, view="values", order=order), panels[0].periods, order=order, most=most
        )
        return [(body.heading, [name for _, name, _, _ in body.rows]) for body in bodies]

    companies = ["Company 1", "Company 2"]
    assert table("metric") == [("Revenue", companies), ("Cost", companies)]
    assert table("company") == [("Company 1", ["Revenue", "Cost"]), ("Company 2", ["Revenue", "Cost"])]
    assert table("metric", most=3) == [("Revenue", companies), ("Cost", ["Company 1"])]


async def test_a_value_without_a_text_shows_its_number() -> None:
    """A blank next to gaps reads as a gap."""
    (panel,) = await panels_of(of_one(FY2024=1_234_567, FY2025=0))
    (group,) = groups_of([panel], view="values", order="company")
    row = group.rows[0]
    blank = row.values[panel.periods[0]]
    row.values[panel.periods[0]] = msgspec.structs.replace(blank, text=" ")
    assert group.cell(row, panel.periods[0]) == Cell("1234567", 1_234_567)


async def test_what_was_not_requested_is_not_shown_as_a_gap() -> None:
    """In every view."""
    (panel,) = await panels_of(of_one(FY2023=1, FY2024=1, FY2025=1))
    cut = panel.during("FY2025")
    for view in ("values", "growth", "index", "ratio"):
        (group,) = groups_of([cut], view=view, order="company")
        assert texts(group, panel.periods)[0][0] == "?"


async def test_below_a_chart_are_its_publications() -> None:
    """Each with its company where the dates differ, and that fiscal periods are not calendar periods."""
    panels = await panels_of(of_one(FY2025=1), of_one(FY2025=2))
    (chart,) = charts(panels)
    assert chart.below == (
        "fiscal periods; publication of 2025-02-01; the same fiscal period can be different months"
    )
    assert chart.credit == "Source: dataset of Company 1, Company 2, publication of 2025-02-01; asyncfin"


async def test_a_chart_has_one_unit() -> None:
    """Axis, cells and legend are divided alike; what is not divided is drawn by itself."""
    numbers = {("Revenue", "all"): {"FY2025": 12_345_678_901}, ("Ratio", "all"): {"FY2025": 1.5}}
    (panel,) = await panels_of(numbers)
    groups = groups_of([panel], view="values", order="company", unit="billions")
    assert [texts(group, panel.periods) for group in groups] == [[["12.3"]], [["2"]]]
    assert [group.unit for group in groups] == ["billions", None]
    revenue, ratio = charts_of(groups, most=12, is_log=False)
    assert (revenue.viewed, ratio.viewed) == ("in billions", "")
    assert [line["numbers"] for line in (*revenue.lines, *ratio.lines)] == [[12.345678901], [1.5]]
    assert [line["label"] for line in (*revenue.lines, *ratio.lines)] == ["Revenue", "Ratio (not divided)"]
    assert revenue.lines[0]["latest"] == "FY2025: 12.3"
    assert revenue.lines[0]["readings"] == ["FY2025: 12.345678901"]
    (body,) = bodies_of(groups, panel.periods, order="company", most=200)
    assert [name for _, name, _, _ in body.rows] == ["Revenue", "Ratio (not divided)"]


async def test_large_and_small_negative_numbers_are_numbers_in_a_file_too() -> None:
    """A spreadsheet takes what has an apostrophe before it for a text."""
    numbers = [-1_500_000_000_000.0, -0.000012, 1_234_567_890_123.0, 2.5]
    panels = await panels_of(of_one(**dict(zip(YEARS, numbers, strict=False))))
    file = csv.DictReader(io.StringIO(view_csv(groups_of(panels, view="values", order="metric"))))
    assert [row["shown"] for row in file] == ["-1500000000000", "-1.2e-05", "1234567890123", "2.5"]


async def test_a_file_has_all_digits_of_values_and_twelve_of_what_is_computed() -> None:
    """More digits of a growth or ratio would be those of the arithmetic."""
    panels = await panels_of(of_one(FY2024=1_000_000_000_003.0, FY2025=1_234_567_890_123.0))
    expected = {
        "": ("1000000000003", "1234567890123"),
        "millions": ("1000000.000003", "1234567.890123"),
        "growth": ("", "23.4567890119"),
    }
    for view, shown in expected.items():
        options = {"view": "growth"} if view == "growth" else {"view": "values", "unit": view or None}
        text = view_csv(groups_of(panels, order="metric", **options))
        assert tuple(row["shown"] for row in csv.DictReader(io.StringIO(text))) == shown
