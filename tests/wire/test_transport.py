"""One attempt: what is sent, and what counts as a response."""

from datetime import UTC, datetime
from typing import Any

import pytest

from asyncfin.wire.protocol import raw_request
from tests.services.raw import answer, dropping, scripted
from tests.wire.transporting import QUERY, READ, TOKEN, attempted, connected, wired


async def test_request_has_token_and_parameters() -> None:
    """The headers are those of spec 4 and 5; parameters are percent-encoded."""
    async with scripted(answer()) as server, connected(server.base_url + "/api/") as transport:
        params = {"cursor": "a+b/ =&ü", "limit": "5"}
        await attempted(transport, raw_request("GET", "/v1/entities/O-%2F/x", params, None))
    (sent,) = server.requests
    assert sent.method == "GET"
    assert sent.target == "/api/v1/entities/O-%2F/x?cursor=a%2Bb%2F%20%3D%26%C3%BC&limit=5"
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert sent.headers["accept"] == "application/json"
    assert sent.headers["accept-encoding"] == "gzip"
    assert sent.headers["user-agent"].startswith("asyncfin/")
    assert "content-type" not in sent.headers
    assert "cookie" not in sent.headers


async def test_query_is_sent_byte_for_byte() -> None:
    """The body goes out as it was built, as application/json (spec 4.3)."""
    async with scripted(answer()) as server, connected(server.base_url) as transport:
        await attempted(transport, QUERY)
    (sent,) = server.requests
    assert (sent.method, sent.body) == ("POST", QUERY.body)
    assert sent.headers["content-type"] == "application/json"


async def test_cookies_are_not_kept() -> None:
    """What one response sets is not sent with the next request."""
    async with (
        scripted(answer(set_cookie="a=b")) as server,
        # By name: aiohttp's own jar keeps no cookies of an IP address.
        connected(server.base_url.replace("127.0.0.1", "localhost")) as transport,
    ):
        await attempted(transport, READ)
        await attempted(transport, READ)
    assert "cookie" not in server.requests[1].headers


async def test_connections_are_used_again() -> None:
    """Three requests in a row share one connection."""
    async with scripted(answer()) as server, connected(server.base_url) as transport:
        for _ in range(3):
            await attempted(transport, READ)
    assert server.opened == 1


@pytest.mark.parametrize("status", [200, 204, 299, 400, 401, 404, 409, 429, 500, 503, 599])
async def test_complete_responses_are_returned(status: int) -> None:
    """A response carries status, headers in lower case, body and time of arrival, and is not judged."""
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    body = b"" if status == 204 else b'{"x":1}'
    async with wired(answer(status, body, x_request_id="q"), clock=lambda: moment) as transport:
        got = await attempted(transport, READ)
    assert (got.status, got.body, got.at) == (status, body, moment)
    assert got.headers["x-request-id"] == "q"


@pytest.mark.parametrize("status", [408, 429, 500, 503, 599])
@pytest.mark.parametrize(
    "step",
    [
        lambda status: dropping(answer(status, b"12345", content_length="10", retry_after="7")),
        lambda status: answer(status, b"no gzip", content_encoding="gzip", retry_after="7"),
        lambda status: answer(status, b"{}", content_encoding="br", retry_after="7"),
    ],
    ids=["cut", "broken gzip", "unknown coding"],
)
async def test_retryable_status_is_returned(status: int, step: Any) -> None:
    """Its head says what to do; a proxy's 429 or 503 often breaks off."""
    async with wired(step(status)) as transport:
        got = await attempted(transport, READ)
    assert (got.status, got.body, got.headers["retry-after"]) == (status, b"", "7")
