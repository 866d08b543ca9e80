"""What is decoded late or in parts is what is decoded at once; tables of every library hold the same."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.series import Source, Value
from asyncfin.table.panel import Panel
from asyncfin.wire.values import read_query_page
from tests import examples
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json

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
def test_late_decoding_equals_early_decoding(document: dict[str, Any]) -> None:
    """Values decoded late equal those decoded at once, by page and by panel, in every field."""
    whole = eager(document)
    page = read_query_page(encoded(document))
    for series in page.series:
        assert sorted(series.observations(), key=lambda pair: pair[0]) == whole[series.series_id]
    for series in stitched(document):
        assert list(series.observations()) == whole[series.series_id]


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
