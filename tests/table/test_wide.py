"""Wide tables of one and of several panels: the names of their columns, and what they refuse."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from attrs import evolve

from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.model.catalogue import Scope, ScopeGroup
from asyncfin.model.period import Annual, Exact, Period, Resolved
from asyncfin.table.panel import Panel, concat
from tests.answers import EVER, panel_of

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

FY = {year: Period(year, 12, 12) for year in range(2020, 2027)}
Q1, M9 = Period.parse("2024-Q1"), Period.parse("2024-9M")
FIELDS = ["year", "end_month", "duration_months"]


async def company(
    name: str,
    numbers: Mapping[str, Mapping[Period, float]],
    *,
    entity_id: str = "",
    asked: Resolved = EVER,
    listed: Sequence[Period] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Panel:
    observed = sorted({period for found in numbers.values() for period in found})
    panel = await panel_of(numbers, observed, asked=asked, listed=listed)
    entity_id = entity_id or f"O-{name[:1].lower() * 32}"
    catalogue = evolve(panel.catalogue, name=name, entity_id=entity_id)
    panel = evolve(panel, grid=evolve(panel._grid, catalogue=catalogue))
    return relabelled(panel, labels or {})


def relabelled(panel: Panel, labels: Mapping[str, str]) -> Panel:
    series = tuple(
        msgspec.structs.replace(each, label=labels.get(each.metric_id, each.label))
        for each in panel._grid.series
    )
    return evolve(panel, grid=evolve(panel._grid, series=series))


@pytest.fixture
async def apple() -> Panel:
    return await company(
        "Apple", {"Revenue.annual": {FY[2024]: 5, FY[2025]: 6}, "Costs.annual": {FY[2025]: 1}}
    )


@pytest.fixture
async def nvidia() -> Panel:
    return await company("NVIDIA", {"Revenue.annual": {FY[2025]: 7, FY[2026]: 0}})


def test_companies_have_a_column_each(apple: Panel, nvidia: Panel) -> None:
    """Named by company, then by what distinguishes series; a row for each period of all of them."""
    table = concat([apple, nvidia], layout="wide", labels=True)
    assert table.to_pydict() == {
        "year": [2024, 2025, 2026],
        "end_month": [12] * 3,
        "duration_months": [12] * 3,
        "period": ["FY2024", "FY2025", "FY2026"],
        "Apple, Label of Revenue": [5, 6, None],
        "Apple, Label of Costs": [None, 1, None],
        "NVIDIA, Label of Revenue": [None, 7, 0],
    }
    assert concat([apple, nvidia], "wide").column_names == [
        *FIELDS,
        "O-" + "a" * 32 + ", Revenue.annual",
        "O-" + "a" * 32 + ", Costs.annual",
        "O-" + "n" * 32 + ", Revenue.annual",
    ]
    revenue = [each.where(lambda series: series.metric_id == "Revenue") for each in (apple, nvidia)]
    assert concat(revenue, "wide", True).column_names == [*FIELDS, "period", "Apple", "NVIDIA"]
    assert len(json.loads(table.schema.metadata[b"asyncfin"])["panels"]) == 2
    about = table.schema.field("NVIDIA, Label of Revenue").metadata
    assert about[b"description"] == b"About Revenue.annual. Unit: USD."
    assert (about[b"entity_name"], about[b"series_id"]) == (b"NVIDIA", b"Revenue.annual")


async def test_companies_of_one_name_are_distinguished_by_their_ids() -> None:
    """Two columns named Holding could not be distinguished."""
    panels = [
        await company("Holding", {"Revenue.annual": {FY[2024]: 1}}, entity_id=f"O-{each * 32}")
        for each in "12"
    ]
    names = concat(panels, "wide", labels=True).column_names
    assert names[4:] == [f"Holding (O-{each * 32})" for each in "12"]


async def test_a_null_does_not_mean_that_nothing_was_asked(apple: Panel) -> None:
    """NVIDIA has FY2024 and was not asked for it: the error says how to ask all for the same periods."""
    nvidia = await company(
        "NVIDIA", {"Revenue.annual": {FY[2025]: 7}}, asked=Exact(["FY2025"]), listed=[FY[2024], FY[2025]]
    )
    for labels in (False, True):
        with pytest.raises(
            SelectionError, match=r"^NVIDIA: 1 period \(FY2024\) not requested, .* exact = rule\.resolve\("
        ):
            concat([apple, nvidia], "wide", labels=labels)
    assert concat([apple, nvidia]).num_rows == 4
    exact = Annual(last=2).resolve([apple.catalogue, nvidia.catalogue])
    assert concat([each.during(list(exact.periods)[-1:]) for each in (apple, nvidia)], "wide").num_rows == 1
    young = await company(
        "Young", {"Revenue.annual": {FY[2025]: 7}}, asked=Exact(["FY2025"]), listed=[FY[2025]]
    )
    assert concat([apple, young], "wide").num_rows == 2


async def test_the_gap_of_one_company_is_a_row_for_all(apple: Panel) -> None:
    """Rows are the periods and gaps of all panels, oldest first."""
    years = [FY[2020], FY[2021], FY[2022], FY[2024]]
    with_gap = await company("Gap", {"Revenue.annual": dict.fromkeys(years, 1)})
    assert concat([with_gap, apple], "wide", labels=True)["period"].to_pylist() == [
        f"FY{year}" for year in range(2020, 2026)
    ]


def test_the_same_series_twice_is_refused(apple: Panel, nvidia: Panel) -> None:
    """Its rows would count twice; parts at different periods may follow one another in the long table."""
    for layout in ("long", "wide"):
        with pytest.raises(SelectionError, match=r"the same series twice: Apple has 'Revenue\.annual' and 1"):
            concat([apple, nvidia, apple], layout)  # type: ignore[arg-type]
    parts = [apple.during("FY2024"), apple.during("FY2025")]
    assert concat(parts).num_rows == 3
    with pytest.raises(SelectionError, match="the same series twice"):
        concat(parts, "wide")
    with pytest.raises(SelectionError, match="the same series twice"):
        concat([apple, apple.during("FY2025")])


def test_versions_and_publications_are_different_series(apple: Panel) -> None:
    """What distinguishes them is in the names, only where it does."""
    restated = evolve(apple, grid=evolve(apple._grid, value_version="latest_restated"))
    assert concat([apple, restated]).num_rows == 6
    assert concat([apple, restated], "wide", labels=True).column_names[4:6] == [
        "Apple, original, Label of Revenue",
        "Apple, original, Label of Costs",
    ]
    assert concat([apple, restated], "wide").column_names[3].endswith(", Revenue.annual, original")
    newer = evolve(apple.catalogue, dataset_id="9d1f1f0e-3d0c-4f4c-9a7e-0d5e7d0b1c2d")
    later = evolve(apple, grid=evolve(apple._grid, catalogue=newer))
    assert concat([apple, later]).num_rows == 6
    names = concat([apple, later], "wide", labels=True).column_names
    assert names[4] == f"Apple, {apple.dataset.dataset_id}, Label of Revenue"
    assert len(set(names)) == len(names) == len(set(concat([apple, later], "wide").column_names)) + 1


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_labels_are_for_all_libraries(apple: Panel, layout: Any) -> None:
    """Arrow, polars and pandas have the same columns; pandas takes the periods as the index."""
    table = apple.to_arrow(layout, labels=True)
    expected = {
        "long": [*FIELDS, "period_label", "entity_name", "series", "number", "text", "description"],
        "wide": [*FIELDS, "period", "Label of Revenue", "Label of Costs"],
    }[layout]
    assert table.column_names == expected
    assert apple.to_polars(layout, labels=True).to_dicts() == table.to_pylist()
    frame = apple.to_pandas(layout, labels=True)
    if layout == "long":
        assert list(frame.columns) == expected
        assert frame["series"].tolist() == ["Label of Revenue", "Label of Revenue", "Label of Costs"]
        assert frame["number"].tolist() == [5, 6, 1]
    else:
        assert (frame.index.name, list(frame.index)) == ("period", ["FY2024", "FY2025"])
        assert list(frame.columns) == expected[4:]


def test_labelled_columns_can_be_chosen(apple: Panel) -> None:
    """By series id in the wide table of a panel, by name elsewhere."""
    assert apple.to_arrow("wide", labels=True, columns=["Costs.annual", "period"]).column_names == [
        "Label of Costs",
        "period",
    ]
    assert apple.to_arrow(labels=True, columns=["series", "text", "basis"]).column_names == [
        "series",
        "text",
        "basis",
    ]
    with pytest.raises(SelectionError, match="no column 'series'"):
        apple.to_arrow(columns=["series"])
    assert concat([apple], "wide", labels=True, columns=["Apple, Label of Costs"]).num_columns == 1
    assert concat([apple], labels=True, columns=["series"]).to_pydict() == {
        "series": ["Apple, Label of Revenue", "Apple, Label of Revenue", "Apple, Label of Costs"]
    }


def test_no_panels_are_an_empty_table() -> None:
    """The columns that do not depend on series are there."""
    assert concat([], "wide").column_names == FIELDS
    assert concat([], "wide", labels=True).column_names == [*FIELDS, "period"]
    assert concat([], labels=True).column_names[-4:] == ["series", "number", "text", "description"]


async def test_rows_can_be_sorted_where_labels_cannot() -> None:
    """By year, end month and duration, which every labelled table has."""
    panel = await company("Apple", {"Revenue.quarterly": {Q1: 1, M9: 3, FY[2023]: 2, FY[2024]: 4}})
    for layout in ("long", "wide"):
        frame = panel.to_polars(layout, labels=True)  # type: ignore[arg-type]
        column = "period" if layout == "wide" else "period_label"
        assert frame.sort(FIELDS)[column].to_list() == ["FY2023", "2024-Q1", "2024-9M", "FY2024"]


def scoped(panel: Panel, names: Iterable[str]) -> Panel:
    """Return the panel with a scope of each name, for its series in their order."""
    scopes = tuple(Scope(f"s{at}", name, "", "", ()) for at, name in enumerate(names))
    catalogue = evolve(panel.catalogue, scope_groups=(ScopeGroup("company", "Company", "", scopes),))
    series = tuple(
        msgspec.structs.replace(each, scopes=(msgspec.structs.replace(each.scopes[0], scope_id=f"s{at}"),))
        for at, each in enumerate(panel._grid.series)
    )
    return evolve(panel, grid=evolve(panel._grid, catalogue=catalogue, series=series))


async def test_names_that_are_alike_once_joined_get_their_ids() -> None:
    """ "Revenue, net" of Europe, and "Revenue" of "net, Europe"."""
    numbers = {"a.annual": {FY[2024]: 1}, "b.annual": {FY[2024]: 2}}
    panel = scoped(
        await company("Apple", numbers, labels={"a": "Revenue, net", "b": "Revenue"}),
        ["Europe", "net, Europe"],
    )
    names = panel.to_pandas("wide", labels=True).columns.tolist()
    assert names == ["Revenue, net, Europe, a.annual", "Revenue, net, Europe, b.annual"]


async def test_names_are_never_alike() -> None:
    """Whatever a service calls its metrics: nor are they those of the periods' columns."""
    numbers: dict[str, dict[Period, float]] = {"a.annual": {FY[2024]: 1}, "b.annual": {FY[2024]: 2}}
    for labels in ({"a": "year", "b": "period"}, {"a": "x, a.annual", "b": "x"}, {"a": "", "b": "a"}):
        panel = await company("Apple", numbers, labels=labels)
        names = panel.to_arrow("wide", labels=True).column_names
        assert len(set(names)) == 6
        assert panel.to_polars("wide", labels=True).columns == names


async def test_nul_in_an_id_is_refused_where_it_would_cut_a_name() -> None:
    """The error names the id; labels, and other libraries, have the column."""
    panel = await company("Apple", {"a\0b.annual": {FY[2024]: 1}, "c.annual": {FY[2024]: 2}})
    with pytest.raises(ArgumentError, match=r"series id 'a\\x00b.annual' contains NUL"):
        panel.to_polars("wide")
    assert panel.to_polars("wide", labels=True).columns[4:] == ["Label of a\\x00b", "Label of c"]
    assert panel.to_polars().height == 2
    assert panel.to_pandas("wide").columns.tolist() == ["a\0b.annual", "c.annual"]


async def test_a_frame_has_one_short_text_about_its_panel(apple: Panel) -> None:
    """With the description, which states the unit, if all series have the same."""
    one = apple.where(lambda series: series.metric_id == "Costs")
    text = "Apple, original values: About Costs.annual. Unit: USD."
    for layout in ("long", "wide"):
        assert one.to_pandas(layout).attrs == {"asyncfin": text}  # type: ignore[arg-type]
        assert one.to_pandas(layout, labels=True).attrs == {"asyncfin": text}  # type: ignore[arg-type]
    assert apple.to_pandas().attrs == {"asyncfin": "Apple, original values: 2 descriptions"}
    assert apple.to_arrow("wide").schema.field("Costs.annual").metadata[b"description"].startswith(b"About")
