"""Who may ask what (spec 4.4, 5), how refusals look (spec 7), and what an account may spend (spec 8)."""

from datetime import UTC, datetime, timedelta

import pytest

from asyncfin.sandbox import Account

from .conftest import ENTITY, SECOND, Desk

DATASET = f"/v1/entities/{ENTITY}/dataset"
READS = [("GET", DATASET), ("GET", f"{DATASET}/catalogue"), ("POST", f"{DATASET}/query")]


@pytest.mark.parametrize("entity_id", ["O-" + "2" * 32, "", "%", "nonsense/.."])
def test_an_entity_without_publication_is_404(desk: Desk, entity_id: str) -> None:
    """Spec 4.1: whatever the id looks like."""
    status, body = desk.dataset(entity_id)
    assert (status, body["error"]["code"]) == (404, "not_found")


def test_rejection_has_code_and_request_id(desk: Desk) -> None:
    """Spec 7: these three fields, in an error object."""
    _, body = desk.dataset("unknown")
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "request_id"}
    assert body["error"]["request_id"] == "req-1"


def test_limits_need_no_permission(desk: Desk) -> None:
    """Spec 4.5: credits and research runs."""
    desk.token = desk.issue("other", "main", "nothing")
    status, body = desk.get("/v1/limits")
    assert status == 200
    assert set(body) == {"account", "credits", "research_runs"}


def test_entity_outside_account_is_404(desk: Desk) -> None:
    """Spec 7: unavailable to the account looks like missing."""
    desk.account(Account("narrow", entities=("O-" + "2" * 32,)))
    desk.token = desk.issue("other", "narrow")
    assert desk.dataset()[0] == 404


def test_encoded_slash_does_not_part_path(desk: Desk) -> None:
    """An encoded slash belongs to the path segment that it is in."""
    assert desk.reply("GET", "/v1%2Fusage").status == 404
    assert desk.reply("GET", DATASET.replace("/dataset", "%2Fdataset")).status == 404


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v2/usage", f"{DATASET}/", f"/v1/entities/{ENTITY}", f"{DATASET}/x"]
)
def test_other_paths_are_404(desk: Desk, path: str) -> None:
    """Spec 9.1: only the endpoints of version 1 are there."""
    assert desk.reply("GET", path).status == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"), [("POST", DATASET, "GET"), ("GET", f"{DATASET}/query", "POST")]
)
def test_another_method_is_405(desk: Desk, method: str, path: str, allowed: str) -> None:
    """Another method gets 405 and the right one in Allow, which the spec does not show."""
    reply = desk.reply(method, path)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)


def test_a_body_too_large_is_413(desk: Desk) -> None:
    """A body that is too large, which the server hands on as None, gets 413; the spec does not show it."""
    assert desk.reply("POST", f"{DATASET}/query", body=None).status == 413


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


def test_allowance_is_reset_at_midnight_utc(desk: Desk) -> None:
    """Spec 8.3, 8.4: Retry-After leads just there."""
    desk.account(Account("main", allowance=1))
    desk.now = datetime(2026, 3, 2, 1, 30, tzinfo=UTC).astimezone(None) - timedelta(hours=2)
    assert desk.dataset()[0] == 200
    reply = desk.reply("GET", DATASET)
    assert (reply.status, reply.headers["Retry-After"]) == (429, "1800")
    desk.now += timedelta(seconds=1799)
    assert desk.dataset()[0] == 429
    desk.now += timedelta(seconds=1)
    assert desk.dataset()[0] == 200


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


@pytest.mark.parametrize(("method", "path"), [*READS, ("GET", "/v1/usage"), ("GET", "/v1/limits")])
def test_account_without_access_is_403_everywhere(desk: Desk, method: str, path: str) -> None:
    """Spec 5.4, whatever its tokens carry."""
    desk.account(Account("shut", access=False))
    desk.token = desk.issue("other", "shut")
    assert desk.reply(method, path).status == 403
