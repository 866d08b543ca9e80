"""Query pages: what is read, and what is refused (spec 2.4)."""

import gc
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import Scope
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.series import CatalogueSeries, Source, Value
from asyncfin.wire.values import QueryPage, read_query_page
from tests.answers import encoded, page_json, value

Q1, Q2, Q3 = Period(2024, 3, 3), Period(2024, 6, 3), Period(2024, 9, 3)
NUMBERS = {"m1.annual": {Q1: 1.5, Q3: 0}, "m2.annual": {}}


def body() -> dict[str, Any]:
    return page_json([Q1, Q2, Q3], NUMBERS)


def read(document: Any) -> QueryPage:
    return read_query_page(encoded(document))


def test_page_has_fields_of_the_spec() -> None:
    """Metadata, periods, series and cursor come as the model's values."""
    page = read({**body(), "next_cursor": "more"})
    assert page.created_timestamp == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert page.periods == (Q1, Q2, Q3)
    assert page.next_cursor == "more"
    assert [series.series_id for series in page.series] == ["m1.annual", "m2.annual"]
    assert page.series[0].scopes == (ScopeRef("company", "all"),)


def test_unread_page_can_be_pickled() -> None:
    """What comes back has every field, and the same values."""
    page = read({**body(), "next_cursor": "more"})
    again = pickle.loads(pickle.dumps(page))
    assert (again, again.series) == (page, page.series)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63) - 1, 10**30, 0, 0.1, -1e-300])
def test_numbers_stay_exact(number: Any) -> None:
    """A Value has the very number of the answer; whole numbers stay whole, however large."""
    page = read(page_json([Q1], {"m.annual": {Q1: number}}))
    found = page.series[0].values[0]
    assert found is not None
    assert found.number == number
    assert type(found.number) is type(number)


def change(path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    """Return what sets the place of a path like ``series.0.label``."""
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]

    def set_it(document: dict[str, Any]) -> None:
        place: Any = document
        for step in way:
            place = place[step]
        place[last] = to

    return set_it


BROKEN_VALUES = {
    "": change("series.0.values", [None] * 2),
    "[1]": change("series.0.values.1", value(1, Q2)["number"]),
    "[0].number": change("series.0.values.0.number", "1.5"),
    "[2].number": change("series.0.values.2.number", False),
    "[2].text": change("series.0.values.2.text", 5),
    "[0].value_version": lambda document: document["series"][0]["values"][0].pop("value_version"),
    "[0].report_period.year": change("series.0.values.0.report_period.year", "2024"),
    "[0].report_period.end_month": change("series.0.values.0.report_period.end_month", 0),
    "[2].sources[0].item_id": change("series.0.values.2.sources", [{"row_index": 0, "column_index": 0}]),
}


@pytest.mark.parametrize("path", BROKEN_VALUES)
def test_broken_values_fail_when_read(path: str) -> None:
    """The page is read; its values raise, naming the JSON path from the page's root."""
    document = body()
    BROKEN_VALUES[path](document)
    series = read(document).series[0]
    with pytest.raises(MalformedAnswerError) as refused:
        _ = series.values
    assert refused.value.problems[0].endswith(f"@ $.series[0] (m1.annual).values{path}")


MANY = [
    Period(2024, 3, 3),
    Source("item", 1, 2),
    Value(number=1.5, text="1.5", value_version="original", sources=(Source("item", 1, 2),)),
    ScopeRef("company", "all"),
    Scope("all", "All", "", "company", ("whole",), Period(2020, 1, 0)),
    CatalogueSeries(
        series_id="s", reporting_group_id="g", metric_id="m", scopes=(ScopeRef("company", "all"),)
    ),
]


@pytest.mark.parametrize("one", MANY, ids=lambda one: type(one).__name__)
def test_values_are_free_of_the_collector(one: Any) -> None:
    """None is tracked, so collections do not stop a backend that keeps many; all are still plain values."""
    gc.collect()  # which untracks tuples of what is not tracked
    assert not gc.is_tracked(one)
    again = pickle.loads(pickle.dumps(one))
    assert (again, hash(again), repr(again)) == (one, hash(one), repr(one))
    assert again is not one
    assert type(one).__name__ in repr(one)
    with pytest.raises(AttributeError):
        setattr(one, type(one).__struct_fields__[0], None)
