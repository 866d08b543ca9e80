"""What the page shows of rows: every face has the texts and numbers of `panel.rows`."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, Panel, Select
from asyncfin.sandbox import Sandbox, load
from asyncfin.typing import Unit
from asyncfin.web.question import Question, row_text
from asyncfin.web.views import Chart, group_entries, list_entries, make_bodies, make_charts
from tests.handmade import dataset

FORMATS = ["$#,##0", "#,##0.00", '0.0"%"', "#,##0"]
IDS = tuple("O-" + name * 32 for name in "123")


def company(rng: random.Random, entity_id: str) -> dict[str, Any]:
    """Return a dataset of random magnitudes, formats and gaps."""
    labels = [f"FY{year}" for year in range(2018, 2025)] + ["FY2023-Q4", "FY2024-Q4"]
    numbers = {}
    for metric in ("Sales", "Cost", "Rate"):
        for scope in rng.sample(["whole", "north", "south"], rng.randint(1, 3)):
            scale = 10.0 ** rng.randint(-9, 15)
            row = {label: round(rng.uniform(-3, 9) * scale, 9) for label in labels if rng.random() < 0.7}
            numbers[metric, scope] = row
    file = dataset(numbers, entity_id=entity_id, periods=tuple(labels))
    for series in file["publications"][0]["groups"][0]["series"]:
        series |= {"label": series["metric_id"], "number_format": rng.choice(FORMATS)}
    file["name"] = f"Company {entity_id[2]}"
    return file


async def read_panels(seed: int) -> list[Panel]:
    rng = random.Random(seed)
    files = [load(company(rng, entity_id)) for entity_id in IDS[: rng.randint(1, 3)]]
    async with Sandbox(*files) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        return [*await client.compare(sandbox.entities, Select(), FiscalRange())]


def charts_of(panels: list[Panel], unit: Unit | None, *, by_metric: bool) -> list[Chart]:
    groups = group_entries(list_entries(panels, unit), by_metric=by_metric)
    return make_charts(groups, by_metric=by_metric)


def lines_of(chart: Chart) -> Iterator[Any]:
    yield from chart.drawing["lines"]  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(24))
async def test_every_face_shows_the_rows(seed: int) -> None:
    """Cells, legends, readings and axes, in each unit and order."""
    panels = await read_panels(seed)
    rng = random.Random(seed)
    unit: Unit | None = rng.choice([None, "thousands", "millions", "billions"])
    by_metric = rng.random() < 0.5
    periods = sorted({period for panel in panels for period in panel.periods_with_gaps})
    rows = {
        (panel.dataset.entity_id, row.series.series_id): row
        for panel in panels
        for row in panel.rows(unit=unit)
    }
    groups = group_entries(list_entries(panels, unit), by_metric=by_metric)
    entries = [entry for group in groups for entry in group]
    keys = [(entry.row.entity_id, entry.row.series.series_id) for entry in entries]
    assert sorted(keys) == sorted(rows)
    for body in make_bodies(groups, periods, by_metric=by_metric):
        for entry, name, _, cells in body.rows:
            row = rows[entry.row.entity_id, entry.row.series.series_id]
            assert [cell.text for cell in cells] == [row.cell(period) for period in periods]
            assert name.endswith(row.scale.suffix)
    drawn = 0
    for chart in make_charts(groups, by_metric=by_metric):
        ends: Any = chart.drawing["ends"]
        for line in lines_of(chart):
            drawn += 1
            readings = dict(zip(ends, line["readings"], strict=True))
            found = []
            for row in rows.values():
                values = {
                    period: value
                    for period, value in row.values.items()
                    if period.duration_months == line["months"]
                }
                numbers = [number for number in line["numbers"] if isinstance(number, float | int)]
                if not values or numbers != [row.scale.number(value) for value in values.values()]:
                    continue
                latest = max(values)
                assert line["latest"] == f"{latest}: {row.scale.text(values[latest])}"
                for period, value in values.items():
                    assert readings[period.fiscal_end] == f"{period}: {row.scale.exact(value)}"
                found.append(row)
            assert found, line
            assert chart.drawing["divided"] == (found[0].unit is not None)
    durations = {(key, period.duration_months) for key, row in rows.items() for period in row.values}
    assert drawn == len(durations)


@pytest.mark.parametrize(
    ("first", "colours"),
    [({"FY2024": 2}, [[1, 2], [0, 1, 2]]), ({}, [[0, 1], [0, 1]])],
)
async def test_company_has_one_colour(first: Any, colours: list[list[int]]) -> None:
    """In all charts of metrics, also where one before it has no value, in one or in any of them."""
    files = [
        dataset(
            {
                ("Sales", "all"): {"FY2024": 1} if name != IDS[0] else {},
                ("Cost", "all"): {"FY2024": 2} if name != IDS[0] else first,
            },
            entity_id=name,
            periods=("FY2024",),
        )
        for name in IDS
    ]
    async with Sandbox(*map(load, files)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        panels = [await client.query(name, Select(), FiscalRange()) for name in sandbox.entities]
    sales, cost = charts_of(panels, None, by_metric=True)
    assert [[line["colour"] for line in lines_of(chart)] for chart in (sales, cost)] == colours
    assert sales.empty_names


async def test_lines_are_named_by_differences() -> None:
    """Label, scope and duration, where they differ; a heading is not repeated."""
    file = dataset({("Sales", "north"): {"FY2024": 1, "FY2024-Q4": 2}, ("Sales", "south"): {"FY2024": 3}})
    async with Sandbox(load(file)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        panel = await client.query(sandbox.entities[0], Select(), FiscalRange())
    (chart,) = charts_of([panel], None, by_metric=False)
    names = [line["label"] for line in lines_of(chart)]
    assert names == ["north / 12 months", "north / 3 months", "south / 12 months"]
    assert chart.title == "Sales"
    groups = group_entries(list_entries([panel], None), by_metric=True)
    (body,) = make_bodies(groups, panel.periods, by_metric=True)
    assert (body.heading, [name for _, name, _, _ in body.rows]) == (
        "Sales",
        ["Example / north", "Example / south"],
    )


async def test_row_text_selects_the_series() -> None:
    """In a catalogue of hostile ids too."""
    file = dataset({("a/b", "x y"): {"FY2024": 1}, ("a%2Fb", "x=y"): {"FY2024": 2}})
    async with Sandbox(load(file)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        catalogue = await client.catalogue(sandbox.entities[0])
    for series in catalogue:
        question = Question((catalogue.entity_id,), (row_text(catalogue, series),))
        assert list(question.find_series(catalogue).values()) == [series]
        assert catalogue.select(question.select) == (series,)
