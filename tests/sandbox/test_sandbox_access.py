"""Who may ask what (spec 4.4, 5), how refusals look (spec 7), and what an account may spend (spec 8)."""

import json

import pytest

from asyncfin.sandbox import Account

from .conftest import ENTITY, SECOND, Desk

DATASET = f"/v1/entities/{ENTITY}/dataset"


UNKNOWN = [
    *(f"/v1/entities/{entity_id}/dataset" for entity_id in ("O-" + "2" * 32, "", "%25")),
    *("/", "/v1", "/v2/usage", f"{DATASET}/", f"{DATASET}/x"),
    # An encoded slash belongs to the part of the path that it is in.
    *("/v1%2Fusage", DATASET.replace("/dataset", "%2Fdataset")),
]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        *(("GET", path, 404, "not_found") for path in UNKNOWN),
        ("POST", DATASET, 405, "method_not_allowed"),
        ("GET", f"{DATASET}/query", 405, "method_not_allowed"),
        ("POST", f"{DATASET}/query", 413, "request_too_large"),
    ],
)
def test_rejection_has_code_and_request_id(
    desk: Desk, method: str, path: str, status: int, code: str
) -> None:
    """Spec 7: three fields in an error object, whatever path (9.1), id (4.1), method or body was wrong."""
    # The server passes on a body that is too large as None.
    reply = desk.reply(method, path, body=None if status == 413 else b"")
    (error,) = json.loads(reply.body).values()
    assert (reply.status, error["code"], error["request_id"]) == (status, code, "req-1")
    assert set(error) == {"code", "message", "request_id"}
    if status == 405:
        assert reply.headers["Allow"] == ("GET" if path == DATASET else "POST")


def test_limits_need_no_permission(desk: Desk) -> None:
    """Spec 4.5: credits and research runs."""
    desk.token = desk.issue("other", "main", "nothing")
    status, body = desk.get("/v1/limits")
    assert status == 200
    assert set(body) == {"account", "credits", "research_runs"}


def test_answered_reads_count(desk: Desk) -> None:
    """Each read of data, also one that got 400, 404 or 409; no other answer, path or operation."""
    desk.dataset(), desk.catalogue(), desk.query()
    desk.query(limit=0), desk.dataset("unknown"), desk.catalogue(expected_dataset_id=SECOND)
    for method, path, body, status in (
        ("GET", "/v1/usage", b"", 200),
        ("GET", "/v1/limits", b"", 200),
        ("GET", "/openapi.json", b"", 200),
        ("GET", f"{DATASET}/x", b"", 404),
        ("POST", DATASET, b"", 405),
        ("POST", f"{DATASET}/query", None, 413),
    ):
        assert desk.reply(method, path, body=body).status == status
    desk.token = "wrong"
    assert desk.dataset()[0] == 401
    desk.token = "token"
    (today,) = desk.get("/v1/usage")[1]["days"]
    assert (today["data_requests"], today["operations"]) == (6, {"dataset": 2, "catalogue": 2, "query": 2})


def test_rate_admits_a_burst(desk: Desk) -> None:
    """A limit of our own: two a second, three at once."""
    desk.account(Account("main", rate=2, burst=3))
    assert [desk.dataset()[0] for _ in range(4)] == [200, 200, 200, 429]
    assert desk.reply("GET", DATASET).headers["Retry-After"] == "1"
    desk.time += 0.5
    assert [desk.dataset()[0] for _ in range(2)] == [200, 429]
    desk.time += 100
    assert [desk.dataset()[0] for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.parametrize("wrong", [{"allowance": -1}, {"rate": 0}, {"burst": 0}])
def test_wrong_account_is_rejected(wrong: dict[str, int]) -> None:
    """A wrong account is refused by the name of the field when it is made."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Account("main", **wrong)
