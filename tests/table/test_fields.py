"""The fields of a series are in every form, under one name, and one list says them."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from msgspec.structs import replace

import asyncfin
from asyncfin.model.period import Period
from asyncfin.table.panel import Panel
from tests.answers import ENTITY_ID, EVER, Stitched, catalogue_of, encoded, page_json, panel_of

pytest.importorskip("pyarrow")

FY24 = Period.parse("FY2024")
# What spec 2.3 and 2.4 say of a series, and the text of each field in the example.
STATED = {
    "series_id": "Sales.annual",
    "reporting_group_id": "annual",
    "metric_id": "Sales",
    "label": "Label of Sales",
    "description": "About Sales.annual. Unit: USD.",
    "basis": "consolidated",
    "scopes": "company=all",
    "number_format": "#,##0",
    "period_meaning": "over_period",
}
NAMED = {"label": "series_label", "scopes": "scope_path", "number_format": "series_number_format"}
IN_TABLES = {NAMED.get(name, name): text for name, text in STATED.items()}


@pytest.fixture
async def panel() -> Panel:
    return await panel_of({"Sales.annual": {FY24: 7}}, (FY24,))


def test_every_field_is_in_the_long_table_and_in_that_of_the_catalogue(panel: Panel) -> None:
    """Under the same name, with the same type and text."""
    long, catalogue = panel.to_arrow(), panel.catalogue.to_arrow()
    for table in (long, catalogue):
        assert {name: table[name].to_pylist() for name in IN_TABLES} == {
            name: [text] for name, text in IN_TABLES.items()
        }
    names = catalogue.column_names
    assert names == [*long.column_names[: long.column_names.index("year")], "series_number_format"]
    assert [catalogue.schema.field(name).type for name in names] == [
        long.schema.field(name).type for name in names
    ]


def test_every_field_is_in_the_metadata_of_a_wide_column(panel: Panel) -> None:
    """With the company, under the names of the long table."""
    found = panel.to_arrow("wide").schema.field("Sales.annual").metadata
    assert {name.decode(): text.decode() for name, text in found.items()} == {
        **IN_TABLES,
        "entity_id": ENTITY_ID,
        "entity_name": "Example Company",
    }


def test_json_is_without_the_description_that_the_catalogue_states(panel: Panel) -> None:
    """As a series of the service's query response is (spec 2.4)."""
    (series,) = json.loads(panel.to_json())["series"]
    assert [*series] == [*(name for name in STATED if name != "description"), "values"]


def test_csv_is_without_the_period_meaning(panel: Panel) -> None:
    """It has the columns of the long table that say what a line is, in this order, then the periods."""
    head, line = csv.reader(io.StringIO(panel.to_csv()))
    columns = [
        *("series_id", "metric_id", "series_label", "scope_path", "reporting_group_id", "basis"),
        *("description", "series_number_format"),
    ]
    assert head == [*columns, "asked_version", "published", "FY2024"]
    texts = [IN_TABLES[name] for name in columns]
    assert line == [*texts, "original", "2026-02-03T04:05:06Z", "7"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (1234567890123456789012, "1234567890123456789012"),
        (1e22, "10000000000000000000000"),
        (5.0, "5"),
        (0.1, "0.1"),
        (-1e-07, "-1e-07"),
        (2.5000000000000004, "2.5000000000000004"),
    ],
)
async def test_csv_has_all_digits_of_a_number(number: Any, text: str) -> None:
    """A whole one has no exponent; another one is as short as reads back equal."""
    _, line = csv.reader(io.StringIO((await panel_of({"Sales.annual": {FY24: number}}, (FY24,))).to_csv()))
    assert line[-1] == text
    assert float(text) == float(number)


def test_a_series_can_be_made_of_the_fields_of_a_page() -> None:
    """A page does not state the description; each other field of a catalogue's series is one of a Series."""
    fields = [name for name in asyncfin.Series.__annotations__ if not name.startswith("_")]
    assert fields == [*(name for name in STATED if name != "description"), "periods"]
    assert list(asyncfin.CatalogueSeries.__struct_fields__) == list(STATED)


# What a further field of a service's series takes: a line in each class of one module.
TRIAL = {
    "asyncfin/model/series.py": (
        ('period_meaning: str = ""\n', 'period_meaning: str = ""\n    currency: str | None = None\n'),
        (
            "period_meaning: str | None = None\n",
            "period_meaning: str | None = None\n    currency: str | None = None\n",
        ),
        ("    periods: tuple", "    currency: str | None\n    periods: tuple"),
    )
}
PROGRAM = """
import asyncio, csv, io, json
from asyncfin.wire.values import read_query_page
from tests.table.test_fields import trial_panel

panel, page = asyncio.run(trial_panel())
wide = panel.to_arrow("wide").schema
print(json.dumps({
    "series": [each.currency for each in panel],
    "page": [each.currency for each in read_query_page(page).series],
    "long": [*dict.fromkeys(panel.to_arrow()["currency"].to_pylist())],
    "catalogue": panel.catalogue.to_arrow()["currency"].to_pylist(),
    "wide": [(wide.field(each).metadata or {}).get(b"currency", b"-").decode() for each in panel.series_ids],
    "json": [each["currency"] for each in json.loads(panel.to_json())["series"]],
    "csv": [each["currency"] for each in csv.DictReader(io.StringIO(panel.to_csv()))],
    "rows": [list(row.values())[-1] for row in panel.catalogue.rows()],
}))
"""


async def trial_panel() -> tuple[Panel, bytes]:
    """Return a panel of two series, of which one has the field of the trial, and its page."""
    document = page_json([FY24], {"Sales.annual": {FY24: 1}, "Ratio.annual": {FY24: 2}})
    document["series"][0]["currency"] = "EUR"
    found = catalogue_of(["Sales.annual", "Ratio.annual"], [FY24])
    (group,) = found.groups
    series = tuple(
        replace(each, **{"currency": "EUR"}) if each.metric_id == "Sales" else each for each in group.series
    )
    catalogue = evolve(found, groups=(evolve(group, series=series),))
    stitched = Stitched(catalogue, catalogue.series, EVER)
    body = encoded(document)
    await stitched.add(body, home=frozenset(["Sales.annual", "Ratio.annual"]), asked=EVER)
    return stitched.panel(), body


def test_a_further_field_is_in_all_forms_after_a_change_of_one_module(tmp_path: Path) -> None:
    """A copy of the package with an optional field: None is an empty cell, null, and not in the metadata."""
    root = Path(asyncfin.__file__).parents[1]
    shutil.copytree(root / "asyncfin", tmp_path / "asyncfin", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").symlink_to(root / "tests")
    for name, changes in TRIAL.items():
        text = (tmp_path / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / name).write_text(text)
    assert len(TRIAL) <= 3
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "series": ["EUR", None],
        "page": ["EUR", None],
        "long": ["EUR", None],
        "catalogue": ["EUR", None],
        "wide": ["EUR", "-"],
        "json": ["EUR", None],
        "csv": ["EUR", ""],
        "rows": ["EUR", None],
    }
