"""What is decoded late or in parts is what is decoded at once; tables of every library hold the same."""

import asyncio
import copy
import io
from itertools import compress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.value import Source, Value
from asyncfin.table.panel import Panel, concat
from asyncfin.wire.values import decode_numbers, read_query_page
from tests import examples
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pandas")

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
PERIODS = [Period(2024, month, duration) for month in (3, 6, 12) for duration in (0, 3, 12)]
NUMBERS = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
INDICES = st.integers(-(2**63), 2**63 - 1)

values = st.fixed_dictionaries(
    {
        "number": NUMBERS,
        "text": TEXTS,
        "number_format": TEXTS,
        "fill_type": TEXTS,
        "value_version": TEXTS,
        "report_period": st.fixed_dictionaries(
            {
                "year": st.integers(1, 9999),
                "end_month": st.integers(1, 12),
                "duration_months": st.integers(0, 9999),
            }
        ),
        "sources": st.lists(
            st.fixed_dictionaries({"item_id": TEXTS, "row_index": INDICES, "column_index": INDICES}),
            max_size=2,
        ),
    }
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a page whose periods are in any order and whose values are of any kind that the spec allows."""
    periods = draw(st.lists(st.sampled_from(PERIODS), unique=True, max_size=5))
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, min_size=1))
    document = page_json(periods, {f"{name}.annual": {} for name in names})
    for series in document["series"]:
        series["values"] = draw(st.lists(st.none() | values, min_size=len(periods), max_size=len(periods)))
    return document


def stitched(document: dict[str, Any]) -> Panel:
    async def run() -> Panel:
        ids = [series["series_id"] for series in document["series"]]
        catalogue = catalogue_of(ids)
        stitch = Stitched(catalogue, catalogue.series, EVER)
        await stitch.add(encoded(document), home=frozenset(ids), asked=EVER)
        return stitch.panel()

    return asyncio.run(run())


def value_of(found: dict[str, Any]) -> Value:
    reported = found["report_period"] and Period(**found["report_period"])
    sources = tuple(Source(**each) for each in found["sources"])
    return Value(**{**found, "report_period": reported, "sources": sources})


def eager(document: dict[str, Any]) -> dict[str, list[tuple[Period, Value]]]:
    """Make all values of a document at once, field by field, oldest first."""
    periods = [Period(**period) for period in document["periods"]]
    return {
        series["series_id"]: sorted(
            (
                (period, value_of(value))
                for period, value in zip(periods, series["values"], strict=True)
                if value is not None
            ),
            key=lambda pair: pair[0],
        )
        for series in document["series"]
    }


@settings(max_examples=examples(50))
@given(documents())
def test_values_decoded_late_are_those_decoded_at_once(document: dict[str, Any]) -> None:
    """Values decoded late equal those decoded at once, by page and by panel, in every field."""
    whole = eager(document)
    page = read_query_page(encoded(document))
    for series in page.series:
        assert sorted(series.observations(), key=lambda pair: pair[0]) == whole[series.series_id]
    for series in stitched(document):
        assert list(series.observations()) == whole[series.series_id]


@settings(max_examples=examples(50))
@given(documents())
def test_numbers_are_the_values_numbers(document: dict[str, Any]) -> None:
    """Those read in one pass are the ones on the values, as floats."""
    page = read_query_page(encoded(document))
    found = decode_numbers(list(enumerate(page.raw_series)), len(page.periods))
    for at, series in enumerate(page.series):
        row = range(found.starts[at], found.starts[at + 1])
        assert [(found.positions[each], found.numbers[each]) for each in row] == [
            (index, float(value.number)) for index, value in enumerate(series.values) if value is not None
        ]


@settings(max_examples=examples(50))
@given(documents(), st.data())
def test_what_one_reader_refuses_all_do(document: dict[str, Any], data: st.DataObject) -> None:
    """A field of a wrong type or missing is refused by the values and by the column read from it."""
    present = [value for series in document["series"] for value in series["values"] if value is not None]
    if not present:
        return
    value = data.draw(st.sampled_from(present))
    field = data.draw(st.sampled_from(sorted(value)))
    null = [None] if field in ("number", "value_version") else []
    value[field] = data.draw(st.sampled_from([*null, True, [None], {"year": 1.0}]))
    with pytest.raises(MalformedAnswerError, match=rf"{field}|object"):
        stitched(document).check()
    with pytest.raises(MalformedAnswerError, match=rf"{field}|object"):
        stitched(document).to_arrow()


EMPTY = {**dict.fromkeys(("text", "number_format", "fill_type"), ""), "report_period": None, "sources": []}


@settings(max_examples=examples(50))
@given(documents(), st.data())
def test_missing_fields_read_alike(document: dict[str, Any], data: st.DataObject) -> None:
    """Fields that are null or missing are empty in Series, tables and pages."""
    present = [value for series in document["series"] for value in series["values"] if value is not None]
    broken = data.draw(st.lists(st.sampled_from(present), max_size=5)) if present else []
    whole = copy.deepcopy(document)
    same = [value for series in whole["series"] for value in series["values"] if value is not None]
    for value in {id(each): each for each in broken}.values():
        field, problem = (
            data.draw(st.sampled_from([*EMPTY])),
            data.draw(st.sampled_from(["null", "missing"])),
        )
        same[[id(each) for each in present].index(id(value))][field] = EMPTY[field]
        if problem == "null":
            value[field] = None
        else:
            del value[field]
    page = read_query_page(encoded(document))
    panel, table = stitched(document), stitched(document)
    rows = table.to_arrow().to_pylist()
    for series in panel:
        assert list(series.observations()) == eager(whole)[series.series_id]
    for series in page.series:
        assert sorted(series.observations(), key=lambda pair: pair[0]) == eager(whole)[series.series_id]
    assert rows == stitched(document).to_arrow().to_pylist()
    assert [row["text"] for row in rows] == [value.text for each in panel for _, value in each.observations()]


@settings(max_examples=examples(25))
@given(documents())
def test_a_table_holds_the_observations(document: dict[str, Any]) -> None:
    """Row by row, series in catalogue order and oldest first, each column says what the value does."""
    panel = stitched(document)
    whole = eager(document)
    rows = iter(panel.to_arrow().to_pylist())
    for series in panel:
        for period, value in whole[series.series_id]:
            row = next(rows)
            assert row["series_id"] == series.series_id
            assert (row["year"], row["end_month"], row["duration_months"]) == (
                period.year,
                period.end_month,
                period.duration_months,
            )
            assert row["number"] == float(value.number)
            assert (row["text"], row["value_number_format"]) == (value.text, value.number_format)
            assert (row["fill_type"], row["value_version"]) == (value.fill_type, value.value_version)
            reported = Period(row["report_year"], row["report_end_month"], row["report_duration_months"])
            assert reported == value.report_period
            assert [tuple(source.values()) for source in row["sources"]] == [
                (source.item_id, source.row_index, source.column_index) for source in value.sources
            ]
    assert next(rows, None) is None


@settings(max_examples=examples(25))
@given(documents())
def test_every_library_reads_the_same(document: dict[str, Any]) -> None:
    """Arrow to polars, pandas and DuckDB, and through Parquet: every column and every row."""
    panel = stitched(document)
    table = panel.to_arrow()
    rows = table.to_pylist()
    assert panel.to_polars().to_dicts() == rows
    assert pl.DataFrame(panel).to_dicts() == rows
    simple = [field.name for field in table.schema if not pa.types.is_list(field.type)]
    frame = panel.to_pandas(columns=simple)
    assert frame.to_dict("records") == table.select(simple).to_pylist()
    relation = duckdb.from_arrow(table)
    named = [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
    assert named == rows
    file = io.BytesIO()
    pq.write_table(table, file)
    again = pq.read_table(file)
    assert again.schema.equals(table.schema)
    assert again.schema.metadata[b"asyncfin"] == table.schema.metadata[b"asyncfin"]
    assert again.to_pylist() == rows
    halves = [
        panel.where(lambda series: hash(series.series_id) % 2 == 0),
        panel.where(lambda series: hash(series.series_id) % 2 == 1),
    ]
    by_series = lambda row: row["series_id"]  # noqa: E731
    assert sorted(concat(halves).to_pylist(), key=by_series) == sorted(rows, key=by_series)


@settings(max_examples=examples(25))
@given(documents())
def test_the_wide_table_holds_the_same_numbers(document: dict[str, Any]) -> None:
    """Every layout has the same numbers at the same periods."""
    panel = stitched(document)
    wide = panel.to_arrow("wide")
    index = (wide.column(name).to_pylist() for name in ("year", "end_month", "duration_months"))
    # Gaps are rows too, without a number.
    shown = [Period(*each) in panel.periods for each in zip(*index, strict=True)]
    assert sum(shown) == len(panel.periods)
    for series, row in zip(panel, panel.to_numpy().tolist(), strict=True):
        expected = [None if value is None else float(value.number) for value in series.values]
        numbers = wide.column(series.series_id).to_pylist()
        assert list(compress(numbers, shown)) == expected
        assert all(number is None for number, is_shown in zip(numbers, shown, strict=True) if not is_shown)
        assert [None if number != number else number for number in row] == expected
        frame = panel.to_pandas("wide")[series.series_id].tolist()
        assert [None if number != number else number for number in frame] == numbers
