"""Who may ask what (spec 4.4, 5), how refusals look (spec 7), and what an account may spend (spec 8)."""

from datetime import UTC, datetime, timedelta
from typing import Any

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


def test_a_refusal_carries_code_message_and_request_id(desk: Desk) -> None:
    """Spec 7: these three fields, in an error object."""
    _, body = desk.dataset("unknown")
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "request_id"}
    assert body["error"]["request_id"] == "req-1"


@pytest.mark.parametrize(("method", "path"), [*READS, ("GET", "/v1/usage"), ("GET", "/v1/limits")])
@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic token", "token"])
def test_every_endpoint_wants_a_valid_token(desk: Desk, method: str, path: str, header: str) -> None:
    """Spec 5.1: a missing or wrong token is 401."""
    desk.headers["authorization"] = header
    assert desk.reply(method, path).status == 401


def test_a_token_not_issued_for_the_rest_api_is_401(desk: Desk) -> None:
    """Spec 5.2."""
    desk.token = desk.issue("assistant", "main", audience="mcp")
    assert desk.dataset()[0] == 401


@pytest.mark.parametrize(("method", "path"), READS)
def test_dataset_endpoints_want_datasets_read(desk: Desk, method: str, path: str) -> None:
    """Spec 5.3, 5.4."""
    desk.token = desk.issue("other", "main", "usage:read")
    assert desk.reply(method, path).status == 403


def test_limits_want_no_permission_and_tell_nothing_of_the_requests_left(desk: Desk) -> None:
    """Spec 4.5: credits and research runs."""
    desk.token = desk.issue("other", "main", "nothing")
    status, body = desk.get("/v1/limits")
    assert status == 200
    assert set(body) == {"account", "credits", "research_runs"}


@pytest.mark.parametrize(("method", "path"), [*READS, ("GET", "/v1/usage"), ("GET", "/v1/limits")])
def test_an_account_without_access_is_403_everywhere(desk: Desk, method: str, path: str) -> None:
    """Spec 5.4, whatever its tokens carry."""
    desk.account(Account("shut", access=False))
    desk.token = desk.issue("other", "shut")
    assert desk.reply(method, path).status == 403


def test_an_entity_outside_the_account_is_404(desk: Desk) -> None:
    """Spec 7: unavailable to the account looks like missing."""
    desk.account(Account("narrow", entities=("O-" + "2" * 32,)))
    desk.token = desk.issue("other", "narrow")
    assert desk.dataset()[0] == 404


@pytest.mark.parametrize("entities", [ENTITY, [ENTITY], {ENTITY}, None])
def test_the_entities_of_an_account_may_be_one_or_several(desk: Desk, entities: Any) -> None:
    """A text is one id, not its letters."""
    desk.account(Account("narrow", entities=entities))
    desk.token = desk.issue("other", "narrow")
    assert desk.dataset()[0] == 200


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        (DATASET.replace("dataset", "d%61taset"), "dataset"),
        (f"{DATASET}/%63atalogue".replace("v1", "%761"), "catalogue"),
        ("/v1/us%61ge", "usage"),
        ("/openapi%2Ejson", "openapi"),
    ],
)
def test_a_percent_encoded_letter_of_a_path_is_that_letter(desk: Desk, path: str, operation: str) -> None:
    """RFC 3986, section 6.2.2.2: encoded or not, unreserved characters are the same."""
    reply = desk.reply("GET", path)
    assert (reply.status, reply.operation) == (200, operation)


def test_an_encoded_slash_does_not_part_a_path(desk: Desk) -> None:
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
def test_another_method_is_405_and_names_the_right_one(
    desk: Desk, method: str, path: str, allowed: str
) -> None:
    """Another method gets 405 and the right one in Allow, which the spec does not show."""
    reply = desk.reply(method, path)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)


def test_a_body_too_large_is_413(desk: Desk) -> None:
    """A body that is too large, which the server hands on as None, gets 413; the spec does not show it."""
    assert desk.reply("POST", f"{DATASET}/query", body=None).status == 413


def test_tokens_are_stored_hashed(desk: Desk) -> None:
    """What the store writes of a token does not contain it."""
    desk.issue("a-secret-token", "main")
    assert b"a-secret-token" not in desk.store._db.serialize()


def test_all_tokens_of_an_account_share_one_allowance(desk: Desk) -> None:
    """Spec 5.5, 8: the dataset, catalogue and query requests of either token count."""
    desk.account(Account("main", allowance=3))
    desk.issue("second", "main")
    assert desk.dataset()[0] == 200
    assert desk.catalogue()[0] == 200
    desk.token = "second"
    assert desk.query()[0] == 200
    status, body = desk.dataset()
    assert (status, body["error"]["code"]) == (429, "daily_allowance_reached")


def test_usage_and_limits_cost_nothing(desk: Desk) -> None:
    """Spec 8.2 names reads of data only."""
    desk.account(Account("main", allowance=0))
    assert desk.get("/v1/usage")[0] == 200
    assert desk.get("/v1/limits")[0] == 200
    assert desk.dataset()[0] == 429


def test_another_account_has_an_allowance_of_its_own(desk: Desk) -> None:
    """Spec 8.1."""
    desk.account(Account("main", allowance=0))
    desk.account(Account("other"))
    desk.token = desk.issue("second", "other")
    assert desk.dataset()[0] == 200


def test_requests_refused_for_the_token_or_the_limit_do_not_count(desk: Desk) -> None:
    """401, 403 and 429 are answered before anything is read; 400, 404 and 409 are reads."""
    desk.account(Account("main", allowance=2))
    desk.token = desk.issue("weak", "main", "usage:read")
    assert desk.dataset()[0] == 403
    desk.token = "token"
    assert desk.dataset("unknown")[0] == 404
    assert desk.query(limit=0)[0] == 400
    assert desk.dataset()[0] == 429
    desk.account(Account("main", allowance=3))
    assert desk.dataset()[0] == 200


def test_what_counts_is_a_read_that_was_answered(desk: Desk) -> None:
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


def test_the_allowance_is_reset_at_midnight_utc(desk: Desk) -> None:
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


def test_the_rate_admits_a_burst_and_then_one_by_one(desk: Desk) -> None:
    """A limit of our own: two a second, three at once."""
    desk.account(Account("main", rate=2, burst=3))
    assert [desk.dataset()[0] for _ in range(4)] == [200, 200, 200, 429]
    assert desk.reply("GET", DATASET).headers["Retry-After"] == "1"
    desk.time += 0.5
    assert [desk.dataset()[0] for _ in range(2)] == [200, 429]
    desk.time += 100
    assert [desk.dataset()[0] for _ in range(4)] == [200, 200, 200, 429]


@pytest.mark.parametrize("wrong", [{"allowance": -1}, {"rate": 0}, {"burst": 0}])
def test_a_wrong_account_is_refused_when_it_is_made(wrong: dict[str, int]) -> None:
    """A wrong account is refused by the name of the field when it is made."""
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Account("main", **wrong)


def test_a_slow_rate_says_how_long_to_wait(desk: Desk) -> None:
    """Retry-After is in whole seconds, rounded up: after it the request is admitted."""
    desk.account(Account("main", rate=0.4))
    assert desk.dataset()[0] == 200
    assert desk.reply("GET", DATASET).headers["Retry-After"] == "3"
    desk.time += 3
    assert desk.dataset()[0] == 200
