"""Query pages and cursors (spec 4.3 rule 3), and the dialects: what spec leaves open."""

import gzip
import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from attrs import evolve

from asyncfin.sandbox import Dialect, Publication

from .conftest import CLOUD, COMPANY, FIRST, SECOND, VALUES, Desk, value

ALL = {"metric_ids": ["sales", "profit", "staff"], "scope_combinations": [COMPANY, CLOUD]}


def period(year: int, end_month: int, duration_months: int) -> dict[str, int]:
    return {"year": year, "end_month": end_month, "duration_months": duration_months}


def numbers(page: dict[str, Any]) -> dict[str, dict[tuple[int, ...], float]]:
    """For every series of a page, the numbers by period."""
    periods = [tuple(entry.values()) for entry in page["periods"]]
    return {
        series["series_id"]: {
            place: cell["number"] for place, cell in zip(periods, series["values"], strict=True) if cell
        }
        for series in page["series"]
    }


def pages(desk: Desk, **fields: Any) -> Iterator[dict[str, Any]]:
    """Every page of a query, following the cursors."""
    cursor = None
    while True:
        status, page = desk.query(**{**ALL, **fields}, cursor=cursor)
        assert status == 200
        yield page
        cursor = page.get("next_cursor")
        if cursor is None:
            return


def catalogue_pages(desk: Desk, limit: int) -> Iterator[dict[str, Any]]:
    """Every page of the catalogue, following the cursors."""
    params: dict[str, Any] = {"limit": limit}
    while True:
        _, page = desk.catalogue(**params)
        yield page
        if page.get("next_cursor") is None:
            return
        params["cursor"] = page["next_cursor"]


def ids(page: dict[str, Any]) -> list[str]:
    return [series["series_id"] for series in page["series"]]


@pytest.mark.parametrize(
    ("version", "profit", "sales", "quarterly"),
    [
        ("original", {}, {(2024, 12, 12): 1}, {}),
        ("latest_restated", {(2023, 12, 12): 9}, {}, {(2024, 6, 6): 55}),
    ],
)
def test_value_of_other_version_anchors_nothing(
    publication: Publication, version: str, profit: Any, sales: Any, quarterly: Any
) -> None:
    """A value that the requested version does not have is no observation."""
    values = {**VALUES, "A-sales": [(6, value(1), "withdrawn")], "A-profit": [(2, None, value(9))]}
    desk = Desk(evolve(publication, values=values))
    exact = {"mode": "exact", "exact": [period(2023, 12, 12)]}
    page = desk.query(metric_ids=["profit"], periods=exact, value_version=version)[1]
    assert numbers(page) == {"A-profit": profit}
    window = {"mode": "trailing", "months": 1}
    page = desk.query(metric_ids=["sales"], periods=window, value_version=version)[1]
    assert numbers(page) == {"A-sales": sales, "Q-sales": quarterly}
    desk.store.close()


def test_trailing_window_spans_pages(desk: Desk) -> None:
    """Spec 4.3: anchored by the matching series, not by those of the page."""
    got = list(pages(desk, limit=1, periods={"mode": "trailing", "months": 10}))
    assert numbers(got[3]) == {"Q-sales": {(2024, 3, 3): 25, (2024, 6, 6): 55}}


def test_cursor_is_bound_to_its_selection(desk: Desk) -> None:
    """Spec 4.3 rule 3: selections stay unchanged. A cursor is sealed, so any other text is wrong too."""
    cursor = next(pages(desk, limit=2))["next_cursor"]
    places = product(range(len(cursor)), "A+")
    altered = [cursor[:place] + char + cursor[place + 1 :] for place, char in places]
    changes: list[dict[str, Any]] = [
        {"metric_ids": ["sales"]},
        {"scope_combinations": [COMPANY]},
        {"periods": {"mode": "trailing", "months": 3}},
        {"reporting_group_ids": ["annual"]},
        {"value_version": "latest_restated"},
        *({"cursor": text} for text in altered if text != cursor),
    ]
    for change in changes:
        status, body = desk.query(**{**ALL, "limit": 2, "cursor": cursor, **change})
        assert (status, body["error"]["code"]) == (400, "validation_failed")
        assert [issue["field"] for issue in body["error"]["issues"]] == ["cursor"]
    assert desk.catalogue(cursor=cursor)[1]["error"]["issues"][0]["field"] == "cursor"


@pytest.mark.parametrize("pin", [None, SECOND])
def test_cursor_of_another_entity_is_400(desk: Desk, later: Publication, pin: str | None) -> None:
    """Nothing has changed, so reading again would not help: the request is wrong."""
    other = evolve(later, entity_id="O-" + "2" * 32)
    desk.store.publish(other)
    cursors = [next(pages(desk, limit=2))["next_cursor"], next(catalogue_pages(desk, 2))["next_cursor"]]
    path = f"/v1/entities/{other.entity_id}/dataset"
    pinned = {} if pin is None else {"expected_dataset_id": pin}
    query = {**ALL, "periods": {"mode": "trailing", "months": 1200}, "limit": 2, "cursor": cursors[0]}
    refused = [
        desk.reply("POST", f"{path}/query", body=json.dumps({**query, **pinned}).encode()),
        desk.reply("GET", f"{path}/catalogue", urlencode({"cursor": cursors[1], **pinned})),
    ]
    for reply in refused:
        assert (reply.status, json.loads(reply.body)["error"]["code"]) == (400, "validation_failed")


EXACT = {"mode": "exact", "exact": [period(2024, 6, 3), period(2023, 12, 12), period(1999, 1, 1)]}


@pytest.mark.parametrize(
    ("choice", "listed"),
    [
        ("answer", [[(2023, 12, 12), (2024, 6, 3)]] * 3),
        ("asked", [[(1999, 1, 1), (2023, 12, 12), (2024, 6, 3)]] * 3),
        ("page", [[(2023, 12, 12)], [], [(2024, 6, 3)]]),
    ],
)
def test_which_periods_a_page_lists(desk: Desk, choice: Any, listed: Any) -> None:
    """Those populated in the answer, all asked for, or those on the page; the numbers stay the same."""
    desk.dialect = Dialect(periods=choice)
    got = list(pages(desk, limit=2, periods=EXACT))
    assert [[tuple(one.values()) for one in page["periods"]] for page in got] == listed
    assert [numbers(page) for page in got] == [
        {"A-sales": {(2023, 12, 12): 100}, "A-profit": {(2023, 12, 12): 0}},
        {"A-empty": {}, "Q-sales": {}},
        {"Q-cloud": {(2024, 6, 3): 6}},
    ]


def test_empty_series_can_be_omitted(desk: Desk) -> None:
    """With series left out, pages count only those with a value in the selected periods."""
    desk.dialect = Dialect(empty_series=False)
    assert [ids(page) for page in pages(desk, limit=3)] == [["A-sales", "A-profit", "Q-sales"], ["Q-cloud"]]
    assert [ids(page) for page in pages(desk, limit=3, periods=EXACT)] == [["A-sales", "A-profit", "Q-cloud"]]


@pytest.mark.parametrize("ids_first", [False, True])
@pytest.mark.parametrize("cursor_first", [False, True])
def test_ids_can_be_checked_before_pin(
    desk: Desk, publication: Publication, ids_first: bool, cursor_first: bool
) -> None:
    """Spec 4.3 rules 5 and 6 have no order: a stale question may be 400 where another service says 409."""
    cursor = next(pages(desk, limit=2))["next_cursor"]
    listed = next(catalogue_pages(desk, 2))["next_cursor"]
    desk.store.publish(evolve(publication, dataset_id=SECOND, groups=publication.groups[1:]))
    desk.dialect = Dialect(ids_before_pin=ids_first, cursor_before_pin=cursor_first)
    unknown, known = {"metric_ids": ["profit"]}, {"metric_ids": ["sales"]}
    first = {True: 400, False: 409}
    assert desk.query(**unknown, expected_dataset_id=FIRST)[0] == first[ids_first]
    assert desk.query(**known, expected_dataset_id=FIRST)[0] == 409
    assert desk.query(**unknown, expected_dataset_id=SECOND)[0] == 400
    both = {"scope_combinations": [COMPANY, CLOUD], "cursor": cursor}
    status, body = desk.query(**{**ALL, **both}, expected_dataset_id=FIRST)
    assert status == first[ids_first or cursor_first]
    if cursor_first and not ids_first:
        assert body["error"]["issues"] == [{"field": "cursor", "message": "is of an older publication"}]
    for pin in (FIRST, SECOND):
        status, body = desk.catalogue(cursor=listed, expected_dataset_id=pin)
        assert (status, body["error"]["code"]) == (
            (400, "validation_failed") if cursor_first else (409, "dataset_changed")
        )


def test_metadata_can_lag_by_some_answers(desk: Desk, later: Publication) -> None:
    """The dataset endpoint names the old publication so often; catalogue and query know the new one."""
    desk.dialect = Dialect(metadata_lag=2)
    assert desk.dataset()[1]["dataset_id"] == FIRST
    desk.store.publish(later)
    assert desk.query(expected_dataset_id=FIRST)[0] == 409
    assert desk.catalogue()[1]["dataset_id"] == SECOND
    assert [desk.dataset()[1]["dataset_id"] for _ in range(4)] == [FIRST, FIRST, SECOND, SECOND]
    desk.store.publish(evolve(later, dataset_id=FIRST))
    assert [desk.dataset()[1]["dataset_id"] for _ in range(3)] == [SECOND, SECOND, FIRST]


def test_pages_can_be_empty_with_cursor(desk: Desk) -> None:
    """Before every page with series; a result without series is one page too."""
    desk.dialect = Dialect(pages="empty")
    got = list(pages(desk, limit=3))
    assert [len(ids(page)) for page in got] == [0, 3, 0, 2]
    assert [len(page["groups"]) for page in catalogue_pages(desk, 3)] == [0, 1, 0, 1]
    assert len(list(pages(desk, metric_ids=["profit"], scope_combinations=[CLOUD]))) == 1


@pytest.mark.parametrize(
    ("choice", "listed"),
    [
        ("every", [["company", "segment", "unused"]] * 2),
        ("first", [["company", "segment", "unused"], []]),
        ("used", [["company"], ["company", "segment"]]),
    ],
)
def test_where_scope_groups_stand(desk: Desk, choice: Any, listed: Any) -> None:
    """On every catalogue page, on the first, or only those that its series use."""
    desk.dialect = Dialect(scope_groups=choice)
    pages = catalogue_pages(desk, 4)
    assert [[group["scope_group_id"] for group in page["scope_groups"]] for page in pages] == listed


def test_value_never_restated_can_keep_label(desk: Desk) -> None:
    """Under latest_restated only the restated ones are labelled so, then."""
    desk.dialect = Dialect(unrestated="original")
    _, page = desk.query(
        metric_ids=["sales"], reporting_group_ids=["annual"], value_version="latest_restated"
    )
    assert [cell["value_version"] for cell in page["series"][0]["values"]] == ["latest_restated", "original"]


def test_gzip_is_for_accepting_clients(desk: Desk) -> None:
    """The same body, compressed."""
    plain = desk.reply("GET", "/v1/limits").body
    desk.dialect = Dialect(gzip=True)
    for codings in ("br", "gzip;q=0", "br, gzip; q=0.000", "*;q=0", "identity", ""):
        desk.headers["accept-encoding"] = codings
        assert desk.reply("GET", "/v1/limits").body == plain, codings
    for codings in ("gzip, deflate", "GZIP", "*", "br;q=1, gzip;q=0.1", "x-gzip", "*;q=0, gzip"):
        desk.headers["accept-encoding"] = codings
        reply = desk.reply("GET", "/v1/limits")
        assert reply.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(reply.body) == plain, codings


def _without_extras(value: Any) -> Any:
    """The value as the dataset has it; fails where a field or an unknown value is missing."""
    if isinstance(value, list):
        return [_without_extras(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _without_extras(member) for name, member in value.items() if name != "x_extra"}
    assert len(plain) == len(value) - 1
    for name in plain.keys() & {"role", "basis", "cadence", "period_meaning", "fill_type"}:
        assert plain[name].startswith("x-")
        plain[name] = plain[name][2:]
    return plain


def test_extras_add_fields_and_words(desk: Desk) -> None:
    """In every answer, whatever the endpoint."""

    def answers() -> list[Any]:
        restated = desk.query(**ALL, value_version="latest_restated")
        return [restated[1], desk.query()[1], desk.catalogue()[1], desk.dataset()[1], desk.query(limit=0)[1]]

    plain = answers()
    desk.dialect = Dialect(extras=True)
    assert _without_extras(answers()) == plain


@pytest.mark.parametrize(
    "wrong", [{"periods": "all"}, {"order": None}, {"pages": 3}, {"metadata_lag": -1}, {"trailing": "narrow"}]
)
def test_wrong_dialect_is_rejected(wrong: dict[str, Any]) -> None:
    """A wrong dialect is refused by the name of the switch when it is made."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Dialect(**wrong)
