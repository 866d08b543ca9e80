"""What a query body must be: spec 4.3 rule 5, 8. Every wrong one is 400 and names its fields."""

from typing import Any

import pytest
from attrs import evolve

from asyncfin.sandbox import Publication, SandboxError

from .conftest import COMPANY, Desk

ANNUAL = {"year": 2023, "end_month": 12, "duration_months": 12}
END = {"year": 2023, "end_month": 12, "duration_months": 0}
REF = COMPANY[0]


def fields(answer: tuple[int, Any]) -> list[str]:
    """The fields named by a refusal."""
    status, body = answer
    assert (status, body["error"]["code"]) == (400, "validation_failed")
    assert all(issue["message"] for issue in body["error"]["issues"])
    return [issue["field"] for issue in body["error"]["issues"]]


@pytest.mark.parametrize(
    ("field", "wrong", "named"),
    [
        *((name, None, name) for name in ("metric_ids", "scope_combinations", "periods")),
        ("metric_ids", [], "metric_ids"),
        ("metric_ids", ["sales", "sales"], "metric_ids[1]"),
        ("metric_ids", ["\ud800"], "metric_ids[0]"),
        ("metric_ids", ["sales", "nothing"], "metric_ids[1]"),
        ("scope_combinations", [], "scope_combinations"),
        ("scope_combinations", COMPANY, "scope_combinations[0]"),
        ("scope_combinations", [[REF] * 21], "scope_combinations[0]"),
        ("scope_combinations", [[{"scope_id": "all"}]], "scope_combinations[0][0].scope_group_id"),
        ("scope_combinations", [[{**REF, "name": "x"}]], "scope_combinations[0][0].name"),
        ("scope_combinations", [COMPANY, [REF, REF]], "scope_combinations[1]"),
        ("reporting_group_ids", ["monthly"], "reporting_group_ids[0]"),
        ("expected_dataset_id", "latest", "expected_dataset_id"),
        ("value_version", "restated", "value_version"),
        ("limit", 0, "limit"),
        ("limit", 101, "limit"),
        ("limit", True, "limit"),
        ("cursor", "x", "cursor"),
        ("page_size", 100, "page_size"),
        ("periods", [ANNUAL], "periods"),
        ("periods", {}, "periods.mode"),
        ("periods", {"mode": "annual"}, "periods.mode"),
        ("periods", {"mode": "x - at `$.y`"}, "periods.mode"),
        ("periods", {"mode": "exact"}, "periods.exact"),
        ("periods", {"mode": "exact", "exact": []}, "periods.exact"),
        ("periods", {"mode": "exact", "exact": [ANNUAL] * 10_001}, "periods.exact"),
        ("periods", {"mode": "exact", "exact": ANNUAL}, "periods.exact"),
        ("periods", {"mode": "exact", "exact": [{**ANNUAL, "end_month": 13}]}, "periods.exact[0].end_month"),
        ("periods", {"mode": "exact", "exact": [{**ANNUAL, "year": 10_000}]}, "periods.exact[0].year"),
        *(
            (
                "periods",
                {"mode": "exact", "exact": [{**ANNUAL, "duration_months": count}]},
                "periods.exact[0].duration_months",
            )
            for count in (1_000_001, -1)
        ),
        ("periods", {"mode": "exact", "exact": [ANNUAL], "months": 3}, "periods.months"),
        ("periods", {"mode": "fiscal_range", "from": END}, "periods.to"),
        ("periods", {"mode": "fiscal_range", "from": END, "to": ANNUAL}, "periods.to.duration_months"),
        ("periods", {"mode": "fiscal_range", "from": {**END, "year": 2024}, "to": END}, "periods.from"),
        ("periods", {"mode": "trailing"}, "periods.months"),
        ("periods", {"mode": "trailing", "months": 0}, "periods.months"),
        ("periods", {"mode": "trailing", "months": 120_001}, "periods.months"),
    ],
)
def test_wrong_field_is_400_and_named(desk: Desk, field: str, wrong: Any, named: str) -> None:
    """Spec 4.3, 8."""
    assert fields(desk.query(**{field: wrong})) == [named]


def test_all_wrong_fields_are_named_together(desk: Desk) -> None:
    """All wrong fields of a request are named together; ids are checked after their shape."""
    answer = desk.query(metric_ids=None, limit=0, periods={"mode": "trailing", "months": 0})
    assert fields(answer) == ["metric_ids", "periods.months", "limit"]
    answer = desk.query(metric_ids=["nothing"], reporting_group_ids=["annual", "monthly"])
    assert fields(answer) == ["metric_ids[0]", "reporting_group_ids[1]"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        *('{"limit": 1}'.encode(coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
        b'{"limit": NaN}',
        b"[" * 100_000,
        b'{"limit": ' + b"9" * 5000 + b"}",
    ],
)
def test_body_without_object_is_400(desk: Desk, body: bytes) -> None:
    """Spec 4.3: the body is JSON."""
    assert fields(desk.post(body)) == ["body"]


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_another_content_type_is_400(desk: Desk, content_type: str) -> None:
    """Spec 4.3: Content-Type is application/json."""
    desk.headers["content-type"] = content_type
    assert fields(desk.query()) == ["Content-Type"]


@pytest.mark.parametrize("form", [str.lower, str.upper, str.title])
@pytest.mark.parametrize("own", [str.lower, str.upper])
def test_a_pin_is_compared_without_case(publication: Publication, form: Any, own: Any) -> None:
    """A UUID is the same in upper and lower case; answers have the publication's own form of it."""
    dataset_id = "abcdefab-1111-4111-8111-111111111111"
    desk = Desk(evolve(publication, dataset_id=own(dataset_id)))
    pin = form(dataset_id)
    for status, body in (desk.query(expected_dataset_id=pin), desk.catalogue(expected_dataset_id=pin)):
        assert (status, body["dataset_id"]) == (200, own(dataset_id))
    cursor = desk.query(expected_dataset_id=pin, limit=1)[1]["next_cursor"]
    assert desk.query(expected_dataset_id=dataset_id, limit=1, cursor=cursor)[0] == 200
    with pytest.raises(SandboxError, match="other content"):
        desk.store.publish(evolve(publication, dataset_id=pin, name="Other"))
    desk.store.close()
