"""Panels as tables: one schema everywhere, and only what was asked for is decoded."""

import json
import sys
from typing import Any

import pytest

from asyncfin.errors import ArgumentError, MalformedAnswerError, SelectionError
from asyncfin.model.period import Period
from asyncfin.table.columns import COLUMNS
from asyncfin.table.panel import Panel
from tests.answers import DATASET_ID, ENTITY_ID, EVER, Stitched, catalogue_of, encoded, page_json, panel_of

pa = pytest.importorskip("pyarrow")
np = pytest.importorskip("numpy")

FY23, FY24 = Period.parse("FY2023"), Period.parse("FY2024")
Q1, Q2 = Period.parse("FY2024-Q1"), Period.parse("FY2024-Q2")
NUMBERS = {
    "sales.annual": {FY23: 100, FY24: 0},
    "sales.quarterly": {Q1: 1.5, Q2: -2.5},
    "empty.annual": {},
}


@pytest.fixture
async def panel() -> Panel:
    return await panel_of(NUMBERS, (FY24, Q2, FY23, Q1))


def test_row_has_all_of_an_observation(panel: Panel) -> None:
    """Series in catalogue order, each oldest first; the catalogue's fields are joined."""
    table = panel.to_arrow()
    rows = table.select(["series_id", "period_label", "number"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("sales.annual", "FY2023", 100.0),
        ("sales.annual", "FY2024", 0.0),
        ("sales.quarterly", "FY2024-Q1", 1.5),
        ("sales.quarterly", "FY2024-Q2", -2.5),
    ]
    assert table.to_pylist()[2] == {
        "entity_id": ENTITY_ID,
        "entity_name": "Example Company",
        "dataset_id": DATASET_ID,
        "series_id": "sales.quarterly",
        "metric_id": "sales",
        "reporting_group_id": "quarterly",
        "reporting_group_name": "Group quarterly",
        "scopes": [{"scope_group_id": "company", "scope_id": "all"}],
        "scope_path": "company=all",
        "scope_names": ["Whole company"],
        "series_label": "Label of sales",
        "description": "About sales.quarterly. Unit: USD.",
        "basis": "consolidated",
        "cadence": "quarterly",
        "period_meaning": "over_period",
        "year": 2024,
        "end_month": 3,
        "duration_months": 3,
        "period_label": "FY2024-Q1",
        "number": 1.5,
        "text": "1.5",
        "series_number_format": "#,##0",
        "value_number_format": "0.0",
        "fill_type": "derived",
        "value_version": "original",
        "asked_version": "original",
        "report_year": 2024,
        "report_end_month": 3,
        "report_duration_months": 0,
        "sources": [],
    }


def test_the_types_are_the_documented_ones(panel: Panel) -> None:
    """Words are dictionaries with 32-bit indices; lists hold structs of named fields."""
    schema = panel.to_arrow().schema
    assert schema.field("series_id").type == pa.dictionary(pa.int32(), pa.string())
    assert schema.field("scope_names").type == pa.list_(pa.string())
    fields = {"scopes": ["scope_group_id", "scope_id"], "sources": ["item_id", "row_index", "column_index"]}
    for name, expected in fields.items():
        assert [field.name for field in schema.field(name).type.value_type] == expected
    assert schema.field("year").type == pa.int32()
    assert schema.field("number").type == pa.float64()
    assert schema.field("text").type == pa.string()


def test_metadata_name_publication_and_query(panel: Panel) -> None:
    """A table that lies in a file still says where it is from."""
    (about,) = json.loads(panel.to_arrow().schema.metadata[b"asyncfin"])["panels"]
    assert (about["dataset_id"], about["entity_id"]) == (DATASET_ID, ENTITY_ID)
    assert (about["select"], about["value_version"]) == ("Select()", "original")
    assert about["periods"] == ["FY2023", "FY2024-Q1", "FY2024-Q2", "FY2024"]


def test_columns_are_in_the_requested_order(panel: Panel) -> None:
    """A name alone is taken too; an unknown one is refused with what there is."""
    assert panel.to_arrow(columns=["number", "year", "number"]).column_names == ["number", "year"]
    with pytest.raises(
        SelectionError, match=r"^columns: no column 'numbre' \(close: number.*there are entity_id, "
    ):
        panel.to_arrow(columns=["numbre"])
    with pytest.raises(SelectionError, match=r"^columns must be an iterable of names, .* not 5$"):
        panel.to_arrow(columns=5)  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match="columns must name at least one name"):
        panel.to_arrow(columns=[])
    with pytest.raises(ArgumentError, match=r"each of columns must be a str, not \['number'\]"):
        panel.to_arrow(columns=[["number"]])  # type: ignore[list-item]
    with pytest.raises(SelectionError, match="layout must be 'long' or 'wide', not 'tall'"):
        panel.to_arrow("tall")  # type: ignore[arg-type]


@pytest.mark.parametrize("column", [*COLUMNS])
def test_column_is_the_same_alone(panel: Panel, column: str) -> None:
    """What is chosen decides what is made, not what is in it."""
    assert panel.to_arrow(columns=[column]).column(0).equals(panel.to_arrow().column(column))


async def broken_panel(field: str, to: Any) -> Panel:
    """Return a panel with a value whose field breaks the spec."""
    document = page_json([FY24], {"a.annual": {FY24: 1}})
    document["series"][0]["values"][0][field] = to
    catalogue = catalogue_of(["a.annual"])
    stitch = Stitched(catalogue, catalogue.series, EVER)
    await stitch.add(encoded(document), home=frozenset(["a.annual"]), asked=EVER)
    return stitch.panel()


@pytest.mark.parametrize(
    ("field", "to", "column"),
    [
        ("text", 1, "text"),
        ("number_format", 1, "value_number_format"),
        ("fill_type", 1, "fill_type"),
        ("value_version", True, "value_version"),
        ("report_period", {"year": 2024, "end_month": 13, "duration_months": 0}, "report_year"),
        ("sources", [{"item_id": "i", "row_index": 1.5, "column_index": 0}], "sources"),
        ("sources", [{"item_id": "i", "row_index": 2**63, "column_index": 0}], "sources"),
        ("sources", {}, "sources"),
    ],
)
async def test_column_decodes_its_own_field_only(field: str, to: Any, column: str) -> None:
    """A broken field is met by the columns read from it; asking for numbers never meets it."""
    panel = await broken_panel(field, to)
    where = rf"@ \$\.series\[0\] \(a\.annual\)\.values\[0\]\.{field}"
    with pytest.raises(MalformedAnswerError, match=where) as caught:
        panel.to_arrow(columns=[column])
    assert caught.value.entity_id == ENTITY_ID
    untouched = [name for name in COLUMNS if name != column and not name.startswith("report_")]
    assert panel.to_arrow(columns=untouched).num_rows == 1
    with pytest.raises(MalformedAnswerError):
        panel.to_arrow()


async def test_value_may_lack_a_report_period() -> None:
    """A service may not state it of some values: they have null there."""
    document = page_json([FY23, FY24], {"a.annual": {FY23: 1, FY24: 2}})
    document["series"][0]["values"][0]["report_period"] = None
    catalogue = catalogue_of(["a.annual"], [FY23, FY24])
    stitched = Stitched(catalogue, catalogue.series, EVER)
    await stitched.add(encoded(document), home=frozenset({"a.annual"}), asked=EVER)
    names = ["report_year", "report_end_month", "report_duration_months"]
    rows = stitched.panel().to_arrow(columns=names).to_pylist()
    assert [tuple(row.values()) for row in rows] == [(None, None, None), (2024, 12, 0)]


def test_wide_has_periods_by_series(panel: Panel) -> None:
    """Numbers by series id; gaps are null and a reported zero is 0; metadata says what the series is."""
    table = panel.to_arrow("wide")
    assert table.to_pydict() == {
        "year": [2023, 2024, 2024, 2024],
        "end_month": [12, 3, 6, 12],
        "duration_months": [12, 3, 3, 12],
        "sales.annual": [100.0, None, None, 0.0],
        "empty.annual": [None] * 4,
        "sales.quarterly": [None, 1.5, -2.5, None],
    }


def test_numpy_is_series_by_periods(panel: Panel) -> None:
    """A gap is NaN, and zero is zero."""
    expected = [[100, np.nan, np.nan, 0], [np.nan] * 4, [np.nan, 1.5, -2.5, np.nan]]
    np.testing.assert_array_equal(panel.to_numpy(), np.array(expected))
    np.testing.assert_array_equal(np.asarray(panel, dtype="float32"), np.array(expected, dtype="float32"))
    with pytest.raises(ValueError, match="no array to share"):
        panel.__array__(copy=False)


def test_whatever_reads_arrow_reads_a_panel(panel: Panel) -> None:
    """The C stream gives the long table."""
    assert pa.table(panel).equals(panel.to_arrow())


@pytest.mark.parametrize(
    ("module", "call", "extra"),
    [
        ("pyarrow", "to_arrow", "arrow"),
        ("pandas", "to_pandas", "pandas"),
        ("polars", "to_polars", "polars"),
        ("numpy", "to_numpy", "pandas"),
        ("matplotlib", "plot", "plot"),
    ],
)
def test_missing_library_is_named_with_extra(
    panel: Panel, monkeypatch: pytest.MonkeyPatch, module: str, call: str, extra: str
) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{module}.*pip install 'asyncfin\[{extra}\]'"):
        getattr(panel, call)()


async def test_cut_series_are_written_unchanged() -> None:
    """JSON and tables of a few series, of later pages too, have exactly the values that the panel has."""
    numbers = {f"m{at}.annual": {FY23: at, FY24: at + 0.5} for at in range(6)}
    catalogue = catalogue_of(numbers, (FY23, FY24))
    stitch = Stitched(catalogue, catalogue.series, EVER)
    for names, periods in (
        (("m0", "m1"), (FY23, FY24)),
        (("m2", "m3", "m4"), (FY24, FY23)),
        (("m5",), (FY23, FY24)),
    ):
        of_page = {f"{name}.annual": numbers[f"{name}.annual"] for name in names}
        await stitch.add(encoded(page_json(periods, of_page)), home=frozenset(of_page), asked=EVER)
    kept = {"m1.annual", "m3.annual", "m4.annual"}
    cut = stitch.panel().where(lambda series: series.series_id in kept).during(FY24)
    expected = {name: numbers[name][FY24] for name in sorted(kept)}
    written = json.loads(cut.to_json())["series"]
    assert {each["series_id"]: each["values"][0]["number"] for each in written} == expected
    rows = cut.to_arrow(columns=["series_id", "period_label", "number"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (name, "FY2024", number) for name, number in expected.items()
    ]
    assert {series.series_id: series["FY2024"].number for series in cut} == expected  # type: ignore[union-attr]


async def test_pandas_groups_have_values() -> None:
    """Of categories, older versions invent a zero for each group that is cut away."""
    pytest.importorskip("pandas")
    years = [Period.parse("FY2023"), Period.parse("FY2024")]
    panel = await panel_of({"a.annual": dict.fromkeys(years, 1), "b.annual": {years[0]: 2}}, years)
    frame = panel.to_pandas()
    latest = frame[frame["year"] == 2024]
    assert latest.groupby("series_id")["number"].sum().to_dict() == {"a.annual": 1.0}
    assert "dictionary" in str(panel.to_arrow().schema.field("series_id").type)
