"""Query: every cap of spec 8, and everything a request can't carry, refused before it is sent."""

from typing import Any

import pytest

from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.model.query import Query
from asyncfin.model.scope import ScopeRef
from asyncfin.model.selection import Annual, FiscalRange, Quarterly, Trailing

PATH = (ScopeRef("company", "total"),)


def query(**fields: Any) -> Query:
    return Query(**{"metric_ids": "Revenue", "scope_combinations": PATH, "periods": Trailing(12)} | fields)


def ids(count: int) -> list[str]:
    return [f"id{number}" for number in range(count)]


def paths(count: int) -> list[tuple[ScopeRef, ...]]:
    return [(ScopeRef("company", name),) for name in ids(count)]


@pytest.mark.parametrize(
    ("field", "make", "cap"),
    [("metric_ids", ids, 50), ("scope_combinations", paths, 50), ("reporting_group_ids", ids, 50)],
)
@pytest.mark.parametrize("count", [0, 1, 50, 51])
def test_lists_have_one_to_fifty(field: str, make: Any, cap: int, count: int) -> None:
    """Spec 8."""
    if 1 <= count <= cap:
        assert len(getattr(query(**{field: make(count)}), field)) == count
    else:
        with pytest.raises(SelectionError, match=rf"^{field} must have 1 to {cap} entries, not {count}"):
            query(**{field: make(count)})


@pytest.mark.parametrize("count", [0, 20, 21])
def test_scope_path_has_twenty_entries(count: int) -> None:
    """Spec 8."""
    path = tuple(ScopeRef("company", name) for name in ids(count))
    if count <= 20:
        assert query(scope_combinations=[path]).scope_combinations == (path,)
    else:
        with pytest.raises(SelectionError, match=f"must have at most 20 entries, not {count}"):
            query(scope_combinations=[path])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"metric_ids": ["a", "b", "a"]}, "metric_ids must be distinct: 'a' is named twice"),
        ({"reporting_group_ids": ["g", "g"]}, "reporting_group_ids must be distinct: 'g'"),
        ({"scope_combinations": ["company=total", PATH]}, "must be distinct: 'company=total' is named twice"),
        ({"metric_ids": 5}, "^metric_ids must be a collection of str, not 5"),
        ({"reporting_group_ids": [None]}, "^reporting_group_ids must be a collection of str, not None"),
        ({"metric_ids": b"ab"}, "^metric_ids must"),
        ({"value_version": "Original"}, "value_version must be 'original' or 'latest_restated', not"),
        ({"value_version": None}, "value_version must be"),
    ],
)
def test_wrong_field_is_rejected(fields: dict[str, Any], message: str) -> None:
    """Spec 8: distinct; the error shows which."""
    with pytest.raises(SelectionError, match=message):
        query(**fields)


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
