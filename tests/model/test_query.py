"""Query: every cap of spec 8, and everything a request can't carry, refused before it is sent."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.model.query import (
    Query,
    check_page_size,
    check_value_version,
)
from asyncfin.model.scope import ScopeRef
from asyncfin.model.selection import Annual, FiscalRange, Quarterly, Trailing

PATH = (ScopeRef("company", "total"),)


def query(**fields: Any) -> Query:
    return Query(**{"metric_ids": "Revenue", "scope_combinations": PATH, "periods": Trailing(12)} | fields)


def ids(count: int) -> list[str]:
    return [f"id{number}" for number in range(count)]


def paths(count: int) -> list[tuple[ScopeRef, ...]]:
    return [(ScopeRef("company", name),) for name in ids(count)]


@given(st.integers(0, 120))
def test_metric_ids_are_one_to_fifty(count: int) -> None:
    """Spec 8: 1 to 50 distinct metrics."""
    if 1 <= count <= 50:
        assert len(query(metric_ids=ids(count)).metric_ids) == count
    else:
        with pytest.raises(SelectionError, match=f"metric_ids must have 1 to 50 entries, not {count}"):
            query(metric_ids=ids(count))


@given(st.integers(0, 120))
def test_scope_combinations_are_one_to_fifty(count: int) -> None:
    """Spec 8: 1 to 50 paths."""
    if 1 <= count <= 50:
        assert len(query(scope_combinations=paths(count)).scope_combinations) == count
    else:
        with pytest.raises(
            SelectionError, match=f"scope_combinations must have 1 to 50 entries, not {count}"
        ):
            query(scope_combinations=paths(count))


@given(st.integers(0, 40))
def test_scope_path_has_twenty_entries(count: int) -> None:
    """Spec 8."""
    path = tuple(ScopeRef("company", name) for name in ids(count))
    if count <= 20:
        assert query(scope_combinations=[path]).scope_combinations == (path,)
    else:
        message = f"each path of scope_combinations must have at most 20 entries, not {count}"
        with pytest.raises(SelectionError, match=message):
            query(scope_combinations=[path])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metric_ids": ["a", "b", "a"]}, "metric_ids must be distinct: 'a' is named twice"),
        ({"reporting_group_ids": ["g", "g"]}, "reporting_group_ids must be distinct: 'g'"),
        (
            {"scope_combinations": ["company=total", PATH]},
            "scope_combinations must be distinct: 'company=total' is named twice",
        ),
    ],
)
def test_nothing_may_be_named_twice(fields: dict[str, Any], message: str) -> None:
    """Spec 8: distinct; the error shows which."""
    with pytest.raises(SelectionError, match=message):
        query(**fields)


@pytest.mark.parametrize("field", ["metric_ids", "reporting_group_ids"])
@pytest.mark.parametrize("value", [5, [5], [None], b"ab", [["a"]]])
def test_ids_are_texts(field: str, value: object) -> None:
    """What a request can't carry, or could never match, is refused by name."""
    with pytest.raises(SelectionError, match=rf"^{field} must"):
        query(**{field: value})


@pytest.mark.parametrize("value", [None, "2024", Period(2024, 12, 12), Annual(), Quarterly(last=4)])
def test_periods_must_be_what_service_takes(value: object) -> None:
    """Rules need a catalogue, so a single request can't carry them; the error says where they go."""
    with pytest.raises(
        SelectionError, match=r"periods must be Exact, FiscalRange or Trailing.*Client\.query"
    ):
        query(periods=value)


@pytest.mark.parametrize("value", [FiscalRange(), FiscalRange(start=2024), FiscalRange(end=2024)])
def test_a_range_needs_both_ends(value: FiscalRange) -> None:
    """Open ends mean the catalogue's, which one request does not know."""
    with pytest.raises(SelectionError, match="periods must have a start and an end"):
        query(periods=value)


@pytest.mark.parametrize("value", ["Original", "", None, 1, ["original"]])
def test_another_value_version_is_refused(value: object) -> None:
    """Spec 4.3 and 9: original or latest_restated."""
    with pytest.raises(SelectionError, match="value_version must be 'original' or 'latest_restated', not"):
        query(value_version=value)
    check_value_version("latest_restated")


@given(st.integers(-5, 300))
def test_page_holds_one_to_hundred_series(size: int) -> None:
    """Spec 8: 1 to 100."""
    if 1 <= size <= 100:
        check_page_size(size)
    else:
        with pytest.raises(
            SelectionError, match=f"page_size must be a whole number from 1 to 100, not {size}"
        ):
            check_page_size(size)
