"""A catalogue: what a Select means in it, what it says of unknown ids, and how it shows itself."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, strategies as st
from msgspec.structs import replace

from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue, Dataset, ReportingGroup, Scope, ScopeGroup
from asyncfin.model.judge import judge
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries

AT = datetime(2024, 5, 1, 6, 30, tzinfo=UTC)
TOTAL = (ScopeRef("company", "total"),)
CLOUD = (ScopeRef("segment", "cloud"),)
CLOUD_EMEA = (ScopeRef("segment", "cloud"), ScopeRef("region", "emea"))
EMEA_CLOUD = CLOUD_EMEA[::-1]
PATHS = [TOTAL, CLOUD, CLOUD_EMEA, EMEA_CLOUD]


def series(
    number: int, metric_id: str, group_id: str, path: tuple[ScopeRef, ...], **words: str
) -> CatalogueSeries:
    basis, meaning = words.get("basis", "company"), words.get("period_meaning", "flow")
    label = words.get("label", f"Label of {metric_id}")
    return CatalogueSeries(
        series_id=f"s{number}",
        reporting_group_id=group_id,
        metric_id=metric_id,
        label=label,
        description="USD",
        basis=basis,
        scopes=path,
        number_format="#,##0",
        period_meaning=meaning,
    )


def catalogue(*found: CatalogueSeries, name: str = "Example", at: datetime = AT) -> Catalogue:
    """Return a catalogue of these series; the group "annual" has that cadence, every other is quarterly."""
    group_ids = dict.fromkeys(each.reporting_group_id for each in found)
    groups = tuple(
        ReportingGroup(
            reporting_group_id=group_id,
            name=f"The {group_id}",
            basis="reported",
            cadence="annual" if group_id == "annual" else "quarterly",
            series=tuple(each for each in found if each.reporting_group_id == group_id),
        )
        for group_id in group_ids
    )
    scope_groups = tuple(
        ScopeGroup(scope_group_id=group_id, name=group_id, scopes=(Scope(scope_id, scope_id.title()),))
        for group_id, scope_id in [("company", "total"), ("segment", "cloud"), ("region", "emea")]
    )
    periods = (Period(2023, 12, 12), Period(2024, 3, 3))
    return Catalogue("O-" + "a1" * 16, name, "d1", at, periods, scope_groups, groups)


REVENUE = series(1, "Revenue", "income", TOTAL)
REVENUE_CLOUD = series(2, "Revenue", "income", CLOUD, basis="segment")
REVENUE_BOTH = series(3, "Revenue", "income", CLOUD_EMEA, basis="segment")
CASH = series(4, "Cash", "annual", TOTAL, period_meaning="point")
MARGIN = series(5, "GrossMargin", "annual", TOTAL, label="GROSS margin")
EXAMPLE = catalogue(REVENUE, REVENUE_CLOUD, REVENUE_BOTH, CASH, MARGIN)


@pytest.mark.parametrize(
    ("select", "meant"),
    [
        (Select(), [REVENUE, REVENUE_CLOUD, REVENUE_BOTH, CASH, MARGIN]),
        (Select(scope_group_ids="segment"), [REVENUE_CLOUD]),
        (Select(scope_group_ids=["region", "segment"]), [REVENUE_BOTH]),
        (Select(cadence="annual"), [CASH, MARGIN]),
        (Select(label="gross MARGIN"), [MARGIN]),
        (Select(label="label of"), [REVENUE, REVENUE_CLOUD, REVENUE_BOTH, CASH]),
        (Select(where=lambda each: each.series_id in ("s3", "s4")), [REVENUE_BOTH, CASH]),
        (Select("Revenue", basis="company"), [REVENUE]),
        (Select(series_ids=["s4", "s1"]), [REVENUE, CASH]),
        (Select.of([MARGIN, REVENUE]), [REVENUE, MARGIN]),
        (Select.of(CASH), [CASH]),
    ],
)
def test_a_select_means_these_series(select: Select, meant: list[CatalogueSeries]) -> None:
    """Every given field narrows; the order is the catalogue's."""
    assert EXAMPLE.select(select) == tuple(meant)


drawn_series = st.builds(
    series,
    st.integers(0, 10_000),
    st.sampled_from(["Cash", "Revenue", "Tax"]),
    st.sampled_from(["annual", "income"]),
    st.sampled_from(PATHS),
    basis=st.sampled_from(["company", "segment"]),
    period_meaning=st.sampled_from(["flow", "point"]),
)
FIELDS: dict[str, Callable[[CatalogueSeries], Any]] = {
    "metric_ids": lambda each: each.metric_id,
    "scope_combinations": lambda each: each.scopes,
    "reporting_group_ids": lambda each: each.reporting_group_id,
    "basis": lambda each: each.basis,
    "period_meaning": lambda each: each.period_meaning,
}


@given(
    st.lists(drawn_series, min_size=1, max_size=12, unique_by=lambda each: each.series_id),
    st.lists(st.sampled_from(list(FIELDS)), unique=True),
    st.data(),
)
def test_every_given_field_narrows(
    found: list[CatalogueSeries], names: list[str], data: st.DataObject
) -> None:
    """The meaning is that of one comparison a field, in whatever combination."""
    given_fields = {
        name: data.draw(st.lists(st.sampled_from([FIELDS[name](each) for each in found]), min_size=1))
        for name in names
    }
    listed, select = catalogue(*found), Select(**given_fields)
    meant = tuple(
        each for each in listed if all(FIELDS[name](each) in wanted for name, wanted in given_fields.items())
    )
    if meant:
        assert listed.select(select) == meant
    else:
        with pytest.raises(SelectionError, match=r"no series of Example .* matches"):
            listed.select(select)
        assert judge(listed, select).series == ()


@given(st.lists(drawn_series, min_size=1, max_size=12, unique_by=lambda each: each.series_id), st.data())
def test_picked_series_are_found_again(found: list[CatalogueSeries], data: st.DataObject) -> None:
    """Exactly those picked, also among several of one metric, group and path."""
    picked = data.draw(st.lists(st.sampled_from(found), min_size=1))
    assert set(catalogue(*found).select(Select.of(picked))) == set(picked)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (Select("Revenu"), r"^metric_ids: Example .* has no metric 'Revenu' \(close: Revenue"),
        (Select(reporting_group_ids="anual"), r"^reporting_group_ids: .* 'anual' \(close: annual\)"),
        (Select(scope_group_ids="segmnt"), r"^scope_group_ids: .* no scope group 'segmnt' \(close: segment"),
        (Select(scope_combinations="segment=clowd"), r"no scope path '.*' \(close: segment=cloud"),
        (Select.of(replace(CASH, metric_id="Gold")), "^series: .* has no series 's4'"),
        (Select(["Revenue", "Qqqq"]), r"has no metric 'Qqqq'$"),
        (Select("REVENUE"), r"has no metric 'REVENUE' \(close: Revenue"),
        (Select(basis="segments"), r"^basis: .* has no basis 'segments'; there are: company, segment$"),
        (Select(cadence=["yearly", "annual"]), "has no cadence 'yearly'; there are: annual, quarterly$"),
        (Select(period_meaning="x"), "has no period meaning 'x'; there are: flow, point$"),
        (Select("Revenu", basis="x"), r"metric 'Revenu' \(.*\); no basis 'x'; there are: company"),
    ],
)
def test_unknown_ids_are_refused(select: Select, message: str) -> None:
    """The error names the company, the field, the id, and near matches where there are any."""
    with pytest.raises(SelectionError, match=message) as caught:
        EXAMPLE.select(select)
    assert "Example (O-a1" in str(caught.value)


def test_ambiguous_picked_row_is_rejected() -> None:
    """With another id, or without one; the error names the series."""
    twins = catalogue(*(replace(CASH, series_id=f"x{number}") for number in range(30)))
    without_id = Select.from_json('{"series": [["Cash", "annual", "company=total"]]}')
    for select, row in [(Select.of(CASH), "s4 "), (without_id, "")]:
        message = (
            rf"series {row}\(Cash, annual, company=total\) is one of several .* x0, .* and 10 more; pick"
        )
        with pytest.raises(SelectionError, match=message):
            twins.select(select)


@pytest.mark.parametrize(
    ("select", "missing"),
    [
        (Select(), {}),
        (Select("Revenue", basis="company"), {}),
        (
            Select("Revenue", cadence="annual"),
            {"select": "metric 'Revenue' and cadence 'annual'"},
        ),
        (Select("Revenue", label="nowhere"), {"label": "nowhere"}),
        (Select(where=lambda each: False), {"where": "where"}),
        (Select(["Revenue", "Gold"], label="nowhere"), {"metric_ids": "Gold", "label": "nowhere"}),
        (Select("Gold", label="nowhere"), {"metric_ids": "Gold"}),
        (Select(["Revenue", "Gold"], label="label"), {"metric_ids": "Gold"}),
    ],
)
def test_missing_is_why_select_is_refused(select: Select, missing: dict[str, str]) -> None:
    """One notion, as data, in the error, and for those who read what there is."""
    assert EXAMPLE.missing(select) == {field: (name,) for field, name in missing.items()}
    assert EXAMPLE.explain(EXAMPLE.missing(Select())) == ""
    if missing:
        with pytest.raises(SelectionError) as caught:
            EXAMPLE.select(select)
        assert caught.value.missing == EXAMPLE.missing(select)
        assert (judge(EXAMPLE, select).series == ()) == (select.label != "label")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("Revenue", "not 'Revenue'; write Select('Revenue')"),
        (["Revenue", "Cash"], "not ['Revenue', 'Cash']; write Select(['Revenue', 'Cash'])"),
        (5, "not 5"),
        ([5], "not [5]"),
        (Select, "not <class 'asyncfin.model.select.Select'>; write Select()"),
    ],
)
def test_what_is_no_select_is_refused(wrong: Any, said: str) -> None:
    """Metric ids are probably meant to select these metrics."""
    with pytest.raises(SelectionError, match=f"^select must be a Select, {re.escape(said)}$"):
        EXAMPLE.select(wrong)


def test_a_catalogue_can_be_explored() -> None:
    """A catalogue can be explored by iterating, by series id, by metric, path and group."""
    assert list(EXAMPLE) == list(EXAMPLE.series) == [REVENUE, REVENUE_CLOUD, REVENUE_BOTH, CASH, MARGIN]
    assert (len(EXAMPLE), EXAMPLE["s4"]) == (5, CASH)
    assert ("s4" in EXAMPLE, "s9" in EXAMPLE) == (True, False)
    assert list(EXAMPLE.by_metric) == ["Revenue", "Cash", "GrossMargin"]
    assert EXAMPLE.by_metric["Revenue"] == (REVENUE, REVENUE_CLOUD, REVENUE_BOTH)
    assert EXAMPLE.by_path[TOTAL] == (REVENUE, CASH, MARGIN)
    assert EXAMPLE.by_group["annual"].series == (CASH, MARGIN)
    assert EXAMPLE.dataset == Dataset(EXAMPLE.entity_id, "Example", "d1", AT)


def test_key_must_be_a_series_id() -> None:
    """The series of a metric, where it is one; else what comes close."""
    with pytest.raises(KeyError, match=r"no series 'S4' \(close: s4"):
        EXAMPLE["S4"]
    with pytest.raises(KeyError, match="no series 'Revenue'; of that metric: s1 \\("):
        EXAMPLE["Revenue"]
    many = catalogue(*(series(number, "m", "g", TOTAL) for number in range(9)))
    with pytest.raises(KeyError, match="s4 \\(company=total, g\\) and 4 more"):
        many["m"]
    for wrong in (0, ["s1"]):
        with pytest.raises(KeyError, match=re.escape(f"no series {wrong!r}: the key is a series_id")):
            EXAMPLE[wrong]  # type: ignore[index]


LONG = "x" * 100_000


def test_a_catalogue_shows_what_it_contains() -> None:
    """A catalogue's text is its head and its groups, in a few lines."""
    assert str(EXAMPLE).splitlines() == [
        f"Example ({EXAMPLE.entity_id})",
        "publication d1 of 2024-05-01 06:30 UTC",
        "5 series: 3 metrics, 3 scope paths, 2 reporting groups",
        "2 periods: FY2023 to FY2024-Q1",
        "  income: 3 series",
        "  annual: 2 series",
    ]
    assert repr(EXAMPLE) == f"<Catalogue of Example ({EXAMPLE.entity_id}): 5 series, 2 periods>"
    one = evolve(catalogue(CASH), periods=EXAMPLE.periods[:1])
    assert "1 series: 1 metric, 1 scope path, 1 reporting group\n1 period: FY2023\n" in str(one)


def test_texts_are_escaped_in_html() -> None:
    """Names come from outside, so they are escaped in a notebook."""
    nasty = series(1, "m", "<b>&\"'", TOTAL)
    html = catalogue(nasty, name="<script>alert(1)</script>")._repr_html_()
    assert "<script" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


COLUMNS = [
    *("entity_id", "entity_name", "dataset_id", "series_id", "metric_id", "reporting_group_id"),
    *("reporting_group_name", "scopes", "scope_path", "scope_names", "series_label", "description", "basis"),
    *("cadence", "period_meaning", "series_number_format"),
]


def test_catalogue_is_table_of_its_series() -> None:
    """The columns are those of series in the long table of a panel."""
    for library in ("pyarrow", "pandas", "polars"):
        pytest.importorskip(library)
    table = EXAMPLE.to_arrow()
    assert table.column_names == COLUMNS
    word = "dictionary<values=string, indices=int32, ordered=0>"
    others = {"scopes": "list<item: struct<scope_group_id: string, scope_id: string>>"}
    others["scope_names"] = "list<item: string>"
    assert [str(each.type) for each in table.schema] == [others.get(name, word) for name in COLUMNS]
    row = table.slice(2, 1).to_pylist()[0]
    expected = {"series_id": "s3", "scope_path": "segment=cloud|region=emea", "cadence": "quarterly"}
    assert row | expected == row
    some = EXAMPLE.to_arrow(Select("Revenue", basis="segment"))
    assert some["series_id"].to_pylist() == ["s2", "s3"]
    assert EXAMPLE.to_pandas(Select("Cash")).to_dict("records")[0]["scope_path"] == "company=total"
    assert list(EXAMPLE.to_pandas().columns) == COLUMNS
    assert EXAMPLE.to_polars().rows(named=True) == table.to_pylist()
    with pytest.raises(SelectionError, match="close: Revenue"):
        EXAMPLE.to_pandas(Select("Revenu"))


def test_other_libraries_read_catalogue_as_table() -> None:
    """By Arrow's C stream; pandas.DataFrame, which would make one column of objects, says what to write."""
    duckdb, pandas, polars, pyarrow = map(pytest.importorskip, ("duckdb", "pandas", "polars", "pyarrow"))
    assert polars.DataFrame(EXAMPLE).rows() == EXAMPLE.to_polars().rows()
    listed = EXAMPLE
    found = duckdb.sql("select metric_id from listed where cadence = 'annual' order by series_id").fetchall()
    assert found == [("Cash",), ("GrossMargin",)]
    assert pyarrow.table(listed) == EXAMPLE.to_arrow()
    with pytest.raises(TypeError, match=r"write catalogue\.to_pandas\(\)"):
        pandas.DataFrame(EXAMPLE)
