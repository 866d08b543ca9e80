"""What was known by a report, from one publication."""

import json
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client, Exact, Panel, Period, Select, SelectionError, known_by
from asyncfin.sandbox import Sandbox
from benchmarks.history import REAL, Rebuilt, rebuilt
from tests.nights import LABELS, Cell, Content, Key, Restated, entity, publication
from tests.services.altering import altered

REVENUE, EPS = Key("S-1"), Key("S-2", "EPS")
YEARS = Exact(LABELS)


async def both(original: Content, restated: Restated, change: Any = None) -> tuple[Panel, Panel]:
    """The panels of both versions; `change` alters responses on their way."""
    async with (
        Sandbox(publication(original, restated=restated)) as sandbox,
        altered(sandbox, change or (lambda *_: None)) as base_url,
        Client(base_url, sandbox.token) as client,
    ):
        catalogue = await client.catalogue(entity(1))
        return (
            await client.query(catalogue, Select(), YEARS),
            await client.query(catalogue, Select(), YEARS, value_version="latest_restated"),
        )


def cells(table: Any) -> dict[tuple[str, str], tuple[float, bool]]:
    names = ("metric_id", "period_label", "number", "certain")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return {(metric, label): (number, certain) for metric, label, number, certain in rows}


async def test_later_value_counts_from_report_on() -> None:
    """Before the restatement the original is shown, flagged; before the original nothing; zero is a value."""
    original = {REVENUE: {"FY2022": Cell(10, report=(2022, 12)), "FY2023": Cell(0, report=(2023, 12))}}
    restated = {REVENUE: {"FY2022": Cell(12, report=(2024, 6))}}
    panels = await both(original, restated)
    for reported, expected in {
        "FY2021": {},
        "FY2022": {("Revenue", "FY2022"): (10, False)},
        "FY2023": {("Revenue", "FY2022"): (10, False), ("Revenue", "FY2023"): (0, True)},
        "FY2024-Q1": {("Revenue", "FY2022"): (10, False), ("Revenue", "FY2023"): (0, True)},
        "FY2024-Q2": {("Revenue", "FY2022"): (12, True), ("Revenue", "FY2023"): (0, True)},
    }.items():
        assert cells(known_by(*panels, reported)) == expected, reported
        assert cells(known_by(*panels, Period.parse(reported))) == expected


async def test_known_table_is_a_long_table() -> None:
    """Rows of both versions are ordered by series and period; the last column is `certain`."""
    late = Cell(9, report=(2024, 12))
    original = {key: {label: Cell(1, report=(2021, 12)) for label in LABELS} for key in (EPS, REVENUE)}
    table = known_by(*await both(original, {EPS: {"FY2021": late}, REVENUE: {"FY2023": late}}), "FY2023")
    assert table.column("metric_id").to_pylist() == ["EPS"] * 5 + ["Revenue"] * 5
    assert table.column("period_label").to_pylist() == [*LABELS, *LABELS]
    assert [at for at, sure in enumerate(table.column("certain").to_pylist()) if not sure] == [1, 8]
    assert table.column_names[30:] == ["certain"]
    assert json.loads(table.schema.metadata[b"asyncfin"])["unreported"] == 0


@pytest.mark.parametrize("what", ["order", "publication", "selection", "period", "questions"])
async def test_other_pairs_are_rejected(what: str) -> None:
    """The message names the difference."""
    original, restated = await both({REVENUE: {"FY2022": Cell(1)}, EPS: {}}, {})
    arguments: dict[str, tuple[Any, ...]] = {
        "order": (restated, original, "FY2022", "'original' and 'latest_restated'"),
        "selection": (original.where(lambda each: each.metric_id == "EPS"), restated, "FY2022", "series"),
        "questions": (original.during("FY2022"), restated, "FY2022", "periods"),
        "period": (original, restated, "2022", 'write "FY2022"'),
    }
    if what == "publication":
        async with (
            Sandbox(publication({REVENUE: {"FY2022": Cell(1)}, EPS: {}}, number=2)) as sandbox,
            Client(sandbox.base_url, sandbox.token) as client,
        ):
            other = await client.query(entity(1), Select(), YEARS, value_version="latest_restated")
        arguments[what] = (original, other, "FY2022", "publication: ")
    *given, match = arguments[what]
    with pytest.raises(SelectionError, match=match):
        known_by(*given)


@pytest.mark.skipif(not REAL.is_dir(), reason=f"{Path('../shared/data')} is not there")
async def test_earlier_publications_are_rebuilt() -> None:
    """Of a few companies; `python -m benchmarks history` rebuilds all."""
    found: Rebuilt = await rebuilt(sorted(REAL.glob("[bt]*.json.gz")))
    assert found.publications >= 4
    assert found.wrong <= 2
    assert found.flagged_wrong <= found.flagged < found.certain / 100


async def test_cells_without_report_period_are_counted() -> None:
    """A restated value without one may have come later; where it is not needed it is ignored."""

    def change(operation: str, sent: Any, answer: dict[str, Any]) -> None:
        if operation != "query":
            return
        for series in answer["series"]:
            for value in filter(None, series["values"]):
                if value["text"].endswith(sent["value_version"] + " lost"):
                    value["report_period"] = None

    filed = {"report": (2022, 12)}
    original = {
        REVENUE: {
            "FY2020": Cell(1, **filed),
            "FY2021": Cell(2, label="latest_restated lost", **filed),
            "FY2022": Cell(3, label="original lost", **filed),
        }
    }
    table = known_by(
        *await both(original, {REVENUE: {"FY2022": Cell(4, report=(2023, 12))}}, change), "FY2023"
    )
    assert cells(table) == {("Revenue", "FY2020"): (1, True), ("Revenue", "FY2022"): (4, True)}
    assert json.loads(table.schema.metadata[b"asyncfin"])["unreported"] == 1
