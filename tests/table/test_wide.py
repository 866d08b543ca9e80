"""Wide tables of one and of several panels: the names of their columns, and what they refuse."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from attrs import evolve

from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.model.period import Period
from asyncfin.model.selection import Annual, Exact, Resolved
from asyncfin.table.panel import Panel, concat
from tests.answers import EVER, panel_of
from tests.table.panels import renamed, with_fields, with_texts

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
np = pytest.importorskip("numpy")

FY = {year: Period(year, 12, 12) for year in range(2020, 2027)}
Q1, M9 = Period.parse("FY2024-Q1"), Period.parse("FY2024-9M")
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
    panel = renamed(panel, name, entity_id or f"O-{name[:1].lower() * 32}")
    return with_texts(panel, "label", labels or {})


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
    assert concat(revenue, "wide", True).column_names == ["period", "Apple", "NVIDIA"]
    assert len(json.loads(table.schema.metadata[b"asyncfin"])["panels"]) == 2


async def test_null_means_no_value(apple: Panel) -> None:
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


def test_the_same_series_twice_is_refused(apple: Panel, nvidia: Panel) -> None:
    """Its rows would count twice; parts at different periods may follow one another in the long table."""
    for layout in ("long", "wide"):
        with pytest.raises(SelectionError, match=r"the same series twice: Apple has 'Costs\.annual' in"):
            concat([apple, nvidia, apple], layout)  # type: ignore[arg-type]
    parts = [apple.during("FY2024"), apple.during("FY2025")]
    assert concat(parts).num_rows == 3
    with pytest.raises(SelectionError, match="the same series twice"):
        concat(parts, "wide")
    with pytest.raises(SelectionError, match="the same series twice"):
        concat([apple, apple.during("FY2025")])


def test_versions_and_publications_are_different_series(apple: Panel) -> None:
    """What distinguishes them is in the names, only where it does."""
    restated = with_fields(apple, value_version="latest_restated")
    assert concat([apple, restated]).num_rows == 6
    assert concat([apple, restated], "wide", labels=True).column_names[1:3] == [
        "Apple, original, Label of Revenue",
        "Apple, original, Label of Costs",
    ]
    assert concat([apple, restated], "wide").column_names[3].endswith(", Revenue.annual, original")
    newer = evolve(apple.catalogue, dataset_id="9d1f1f0e-3d0c-4f4c-9a7e-0d5e7d0b1c2d")
    later = with_fields(apple, catalogue=newer)
    assert concat([apple, later]).num_rows == 6
    names = concat([apple, later], "wide", labels=True).column_names
    assert names[1] == f"Apple, Label of Revenue, {apple.dataset.dataset_id}"
    assert len(set(names)) == len(names) == len(set(concat([apple, later], "wide").column_names)) - 2


def test_labels_are_for_all_libraries(apple: Panel) -> None:
    """Arrow, polars and pandas have the same columns; pandas takes the periods as the index."""
    table = apple.to_arrow("wide", labels=True)
    assert table.column_names == ["period", "Label of Revenue", "Label of Costs"]
    assert apple.to_polars("wide", labels=True).to_dicts() == table.to_pylist()
    frame = apple.to_pandas("wide", labels=True)
    assert (frame.index.name, list(frame.index)) == ("period", ["FY2024", "FY2025"])
    assert list(frame.columns) == table.column_names[1:]


def test_no_panels_are_an_empty_table() -> None:
    """The columns that do not depend on series are there."""
    assert concat([], "wide").column_names == FIELDS
    assert concat([], "wide", labels=True).column_names == ["period"]
    assert concat([]).num_columns == 30


async def test_names_are_never_alike() -> None:
    """Whatever a service calls its metrics: nor are they those of the periods' columns."""
    numbers: dict[str, dict[Period, float]] = {"a.annual": {FY[2024]: 1}, "b.annual": {FY[2024]: 2}}
    for labels, expected in [
        ({"a": "x, a.annual", "b": "x"}, ["x, a.annual", "x"]),
        ({"a": "", "b": "a"}, ["a, a", "a, b"]),
        ({"a": "period", "b": "x"}, ["period, a.annual", "x"]),
    ]:
        panel = await company("Apple", numbers, labels=labels)
        assert panel.to_arrow("wide", labels=True).column_names == ["period", *expected]
        assert panel.to_polars("wide", labels=True).columns == ["period", *expected]
    panel = await company("Apple", {"year": {FY[2024]: 1}})
    with pytest.raises(SelectionError, match="two columns would have the name 'year'"):
        panel.to_arrow("wide")


async def test_joined_texts_may_be_alike() -> None:
    """Companies whose names end as the labels of the other begin: the ids of both follow."""
    first = await company("A, B", {"s": {FY[2024]: 1}}, labels={"s": "C"})
    second = await company("A", {"s": {FY[2024]: 1}}, entity_id="O-b", labels={"s": "B, C"})
    table = concat([first, second], "wide", labels=True)
    assert table.column_names[1:] == [f"A, B, C, {first.dataset.entity_id}", "A, B, C, O-b"]


def test_period_columns_are_the_pandas_index(apple: Panel, nvidia: Panel, tmp_path: Path) -> None:
    """From a panel, several, and Parquet alike: only numbers are columns, so a mean is one of companies."""
    both = concat([apple, nvidia], "wide", labels=True, columns=["period", "Revenue.annual"])
    assert both.column_names == ["period", "Apple, Label of Revenue", "NVIDIA, Label of Revenue"]
    assert both.to_pandas().mean(axis=1).to_dict() == {"FY2024": 5, "FY2025": 6.5, "FY2026": 0}
    parquet = pytest.importorskip("pyarrow.parquet")
    for labels, index in ((False, FIELDS), (True, ["period"])):
        for table in (
            apple.to_arrow("wide", labels=labels),
            concat([apple, nvidia], "wide", labels=labels),
        ):
            parquet.write_table(table, tmp_path / "wide.parquet")
            for frame in (table.to_pandas(), pd.read_parquet(tmp_path / "wide.parquet")):
                assert list(frame.index.names) == index
                assert list(frame.columns) == table.column_names[len(index) :]
                assert set(frame.dtypes) == {np.dtype("float64")}
        assert apple.to_pandas("wide", labels=labels).equals(
            apple.to_arrow("wide", labels=labels).to_pandas()
        )
    long = apple.to_arrow()
    assert list(long.to_pandas().index) == list(range(len(long)))


def test_long_layout_has_no_labels(apple: Panel) -> None:
    """Else the same call would have other columns than before, and the reader would not know why."""
    for make in (apple.to_arrow, apple.to_pandas, lambda **options: concat([apple], **options)):
        with pytest.raises(ArgumentError, match="labels=True needs layout='wide'"):
            make(labels=True)


async def test_company_without_series_has_no_column(apple: Panel) -> None:
    """It has nothing of the question, as the notes of a comparison say."""
    banana = await company("Banana", {"Revenue.annual": {FY[2024]: 1}})
    empty = banana.where(lambda series: False)
    table = concat([empty, apple], "wide", labels=True)
    assert table.column_names == ["period", "Apple, Label of Revenue", "Apple, Label of Costs"]
    assert concat([empty], "wide").column_names == FIELDS


async def test_only_equal_names_change() -> None:
    """Then it gets its metric id; if that is not enough, its own."""
    one = {FY[2024]: 1}
    numbers = {"a.annual": one, "b.annual": one, "c.annual": one, "d.annual": one}
    labels = {"a": "Sales", "b": "Costs", "c": "Costs", "d": "Others"}
    panel = await company("Apple", numbers, labels=labels)
    names = panel.to_arrow("wide", labels=True).column_names[1:]
    assert names == ["Sales", "Costs, b", "Costs, c", "Others"]
    alike = tuple(
        msgspec.structs.replace(each, label="Same", metric_id="m", reporting_group_id="annual")
        for each in panel._grid.series
    )
    panel = with_fields(panel, series=alike[:2])
    assert panel.to_arrow("wide", labels=True).column_names[1:] == [
        "Same, a.annual",
        "Same, b.annual",
    ]


def test_unknown_column_has_close_matches(apple: Panel) -> None:
    """A wide table can have thousands: the error names a part of them."""
    with pytest.raises(SelectionError, match=r"'Revenue\.anual' \(close: Revenue\.annual.*there are year, "):
        apple.to_arrow("wide", columns=["Revenue.anual"])
