"""The fields of a series are in every form, under one name, and one list says them."""

import csv
import io
from typing import Any

import pytest

from asyncfin.model.period import Period
from asyncfin.table.panel import Panel
from tests.answers import ENTITY_ID, panel_of

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


def test_tables_have_every_field(panel: Panel) -> None:
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


def test_wide_metadata_have_every_field(panel: Panel) -> None:
    """With the company, under the names of the long table."""
    found = panel.to_arrow("wide").schema.field("Sales.annual").metadata
    assert {name.decode(): text.decode() for name, text in found.items()} == {
        **IN_TABLES,
        "entity_id": ENTITY_ID,
        "entity_name": "Example Company",
    }


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
async def test_csv_has_all_digits(number: Any, text: str) -> None:
    """A whole one has no exponent; another one is as short as reads back equal."""
    _, line = csv.reader(io.StringIO((await panel_of({"Sales.annual": {FY24: number}}, (FY24,))).to_csv()))
    assert line[-1] == text
    assert float(text) == float(number)
