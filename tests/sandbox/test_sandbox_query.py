"""Running a query: spec 2.4, 4.3."""

from itertools import product
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings, strategies as st

from asyncfin.sandbox import Dialect, Publication
from tests import examples

from .conftest import CLOUD, COMPANY, FIRST, GROUPS, PERIODS, SECOND, VALUES, Desk, value


def period(year: int, end_month: int, duration_months: int) -> dict[str, int]:
    return {"year": year, "end_month": end_month, "duration_months": duration_months}


def numbers(page: dict[str, Any]) -> dict[str, dict[tuple[int, ...], float]]:
    """For every series of a page, the numbers by period."""
    periods = [tuple(one.values()) for one in page["periods"]]
    assert all(len(series["values"]) == len(periods) for series in page["series"])
    return {
        series["series_id"]: {
            at: cell["number"] for at, cell in zip(periods, series["values"], strict=True) if cell is not None
        }
        for series in page["series"]
    }


def test_result_has_fields_of_spec(desk: Desk) -> None:
    """Spec 2.4: no description, values aligned with periods, complete value objects."""
    status, page = desk.query(
        metric_ids=["profit"], periods={"mode": "exact", "exact": [period(2023, 12, 12)]}
    )
    assert status == 200
    head = {name: field for name, field in GROUPS[0]["series"][1].items() if name != "description"}
    assert page == {
        **desk.dataset()[1],
        "periods": [period(2023, 12, 12)],
        "series": [{**head, "values": [{**value(0), "value_version": "original"}]}],
    }


def test_old_pin_is_409_first(desk: Desk) -> None:
    """Spec 4.3 rule 6: ids of the old publication may be gone."""
    status, body = desk.query(metric_ids=["gone"], expected_dataset_id=SECOND)
    assert (status, body["error"]["code"]) == (409, "dataset_changed")
    assert desk.query(expected_dataset_id=FIRST)[0] == 200


_PATHS = {"company": COMPANY, "cloud": CLOUD}
_PERIODS = st.sampled_from([*PERIODS, (2024, 9, 3), (2025, 12, 12)])
_ENDS = st.builds(lambda year, month: year * 12 + month, st.integers(2022, 2025), st.integers(1, 12))


@st.composite
def _choices(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A period selection, and the plain function that says of a period whether it is selected."""
    mode = draw(st.sampled_from(["exact", "fiscal_range", "trailing"]))
    if mode == "exact":
        exact = draw(st.lists(_PERIODS, min_size=1))
        return {"mode": mode, "exact": [period(*one) for one in exact]}, lambda one, anchor: one in exact
    if mode == "trailing":
        months = draw(st.integers(1, 30))
        return {"mode": mode, "months": months}, lambda one, anchor: anchor - months < _end(one) <= anchor
    start, end = sorted((draw(_ENDS), draw(_ENDS)))
    ends = {"from": _endpoint(start), "to": _endpoint(end)}
    return {"mode": mode, **ends}, lambda one, anchor: start <= _end(one) <= end


def _end(one: tuple[int, int, int]) -> int:
    return one[0] * 12 + one[1]


def _endpoint(end: int) -> dict[str, int]:
    year, month = divmod(end - 1, 12)
    return period(year, month + 1, 0)


REVISED = {
    **VALUES,
    "A-profit": [(2, value(0), None), (6, None, value(9))],
    "A-empty": [(2, None, value(4))],
    "Q-sales": [
        (0, value(20), None),
        (1, value(30), value(31)),
        (3, None, value(26)),
        (5, value(55), "withdrawn"),
    ],
    "Q-cloud": [(3, value(5), "withdrawn"), (4, value(6), "withdrawn")],
}


@pytest.mark.parametrize("values", [VALUES, REVISED], ids=["", "revised"])
@pytest.mark.parametrize("narrow", [False, True], ids=["", "narrow"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(100))
@given(
    metrics=st.sets(st.sampled_from(["sales", "profit", "staff"]), min_size=1),
    paths=st.sets(st.sampled_from(sorted(_PATHS)), min_size=1),
    groups=st.none() | st.sets(st.sampled_from(["annual", "quarterly"])),
    choice=_choices(),
    version=st.sampled_from(["original", "latest_restated"]),
)
def test_query_equals_loops_over_dataset(
    publication: Publication,
    values: dict[str, Any],
    narrow: bool,
    metrics: set[str],
    paths: set[str],
    groups: set[str] | None,
    choice: Any,
    version: str,
) -> None:
    """Every series and number, against loops over the dataset written here.

    A value that the version asked for does not have is no observation, and anchors nothing.
    """
    selection, selected = choice
    desk = Desk(evolve(publication, values=values))
    desk.dialect = Dialect(trailing="within" if narrow else "end")
    _, page = desk.query(
        metric_ids=sorted(metrics),
        scope_combinations=[_PATHS[path] for path in sorted(paths)],
        reporting_group_ids=groups if groups is None else sorted(groups),
        periods=selection,
        value_version=version,
    )
    rows = {}
    for group, (metric, path) in product(GROUPS, product(metrics, paths)):
        for series in group["series"]:
            wanted = groups is None or group["reporting_group_id"] in groups
            if wanted and series["metric_id"] == metric and series["scopes"] == _PATHS[path]:
                rows[series["series_id"]] = {
                    PERIODS[at]: newer or older if version == "latest_restated" else older
                    for at, older, newer in values[series["series_id"]]
                }
    present = {
        name: {at: one["number"] for at, one in cells.items() if one not in (None, "withdrawn")}
        for name, cells in rows.items()
    }
    anchor = max((_end(at) for cells in present.values() for at in cells), default=0)
    first = anchor - selection["months"] + 1 if narrow and selection["mode"] == "trailing" else 0
    assert numbers(page) == {
        name: {
            at: number
            for at, number in cells.items()
            if selected(at, anchor) and _end(at) - at[2] + 1 >= first
        }
        for name, cells in present.items()
    }
    desk.store.close()


def test_new_publication_is_served_at_once(desk: Desk, later: Publication) -> None:
    """Spec 9.2: nothing of the old one stays."""
    assert numbers(desk.query(metric_ids=["staff"])[1]) == {"A-empty": {}}
    desk.store.publish(later)
    assert numbers(desk.query(metric_ids=["staff"])[1]) == {"A-empty": {(2024, 12, 12): 7}}
