"""`Client.request`: any request of the service, with its response as it is."""

import json

import pytest

from asyncfin import ArgumentError, Client, NotFoundError, Retry, TokenBucket
from asyncfin.events import Event, RequestFinished
from tests.services.raw import Received, answer, dropping, judged, refusal, scripted

pytestmark = pytest.mark.virtual
ENTITY = "O-" + "a/" * 16


async def test_raw_response_is_returned_undecoded() -> None:
    """The request has the token, the parameters and the body; nothing of the response is decoded."""
    seen: list[Received] = []

    def respond(request: Received) -> bytes:
        seen.append(request)
        return answer(body=b'{"new": 1 }', **{"X-Request-Id": "r-1"})

    async with judged(respond) as server, Client(server.base_url, "secret") as client:
        found = await client.request("POST", "/v1/future", params={"a": "x y"}, json={"b": [1, None]})
    assert (found.status, found.body, found.request_id, found.attempts) == (200, b'{"new": 1 }', "r-1", 1)
    (request,) = seen
    assert (request.method, request.token) == ("POST", "secret")
    assert request.target in ("/v1/future?a=x+y", "/v1/future?a=x%20y")
    assert json.loads(request.body) == {"b": [1, None]}


async def test_raw_request_is_retried() -> None:
    """A 503 is sent again; an error of the service is that of every other method."""
    steps = (refusal(503), answer(body=b"{}"), refusal(404))
    async with (
        scripted(*steps) as server,
        Client(server.base_url, "token", retry=Retry(attempts=2)) as client,
    ):
        assert (await client.request("GET", "/v1/future")).attempts == 2
        with pytest.raises(NotFoundError):
            await client.request("GET", "/v1/future")


async def test_cut_response_is_retried() -> None:
    """Without a stated length only the JSON shows that half of a body has arrived."""
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    steps = dropping(head + b'{"new": 1, "ol'), dropping(head + b'{"new": 1 }')
    retry = Retry(wait_initial=0.001, wait_max=0.001)
    seen: list[Event] = []
    async with (
        scripted(*steps) as server,
        Client(server.base_url, "token", retry=retry, observers=[seen.append]) as client,
    ):
        assert (await client.request("GET", "/v1/future")).body == b'{"new": 1 }'
    assert len(server.requests) == 2
    ends = [(event.status, event.failure) for event in seen if isinstance(event, RequestFinished)]
    assert ends == [(None, "TruncatedAnswerError"), (200, None)]


async def test_stats_of_clients_add_up() -> None:
    """Two clients of one account: the sum has the counts of both."""
    async with (
        judged(lambda request: answer(body=b"{}")) as server,
        Client(server.base_url, "token") as first,
        Client(server.base_url, "token") as second,
    ):
        await first.request("GET", "/v1/future")
        await second.request("GET", "/v1/future")
        assert (first.stats() + second.stats()).requests == 2


@pytest.mark.parametrize("path", ["@other.example/v1", "v1/limits", "", "//other.example/v1"])
async def test_raw_path_begins_with_a_slash(path: str) -> None:
    """It is appended to the base URL: another beginning would send the token to another host."""
    async with judged(lambda request: answer()) as server, Client(server.base_url, "token") as client:
        if path.startswith("//"):
            await client.request("GET", path)
            assert server.requests[0].target == path
        else:
            with pytest.raises(ArgumentError, match="must begin with a slash"):
                await client.request("GET", path)


async def test_raw_params_are_a_mapping() -> None:
    """The error names the argument, and nothing is sent."""
    async with (
        judged(lambda request: answer(body=b"{}")) as server,
        Client(server.base_url, "token") as client,
    ):
        with pytest.raises(ArgumentError, match="params must be a Mapping or None, not 'limit=1'"):
            await client.request("GET", "/v1/limits", params="limit=1")  # type: ignore[arg-type]
        assert client.stats().requests == 0


@pytest.mark.parametrize("path", ["/v1/a b", "/v1/x\r\nA: b", "/v1/x#part", "/v1/ä"])
async def test_raw_path_is_percent_encoded(path: str) -> None:
    """What could not be sent as it is written is rejected, and nothing is sent."""
    async with (
        judged(lambda request: answer(body=b"{}")) as server,
        Client(server.base_url, "token") as client,
    ):
        with pytest.raises(ArgumentError, match="percent-encoded"):
            await client.request("GET", path)
        assert server.requests == []


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("/v1/usage", {"start_date": "2026-01-01", "end_date": "2026-01-02"}),
        ("/v1/usage?start_date=2026-01-01&end_date=2026-01-02", None),
        ("/v1/usage?start_date=2026-01-01", {"end_date": "2026-01-02"}),
    ],
)
async def test_usage_counts_against_no_budget(path: str, params: dict[str, str] | None) -> None:
    """Spec 8: also where its parameters are written in the path."""
    bucket = TokenBucket(daily_budget=1)
    async with (
        judged(lambda request: answer(body=b"{}")) as server,
        Client(server.base_url, "token", bucket=bucket) as client,
    ):
        for _ in range(3):
            await client.request("GET", path, params=params)
        assert bucket.stats().spent_today == 0
        assert {request.target for request in server.requests} == {
            "/v1/usage?start_date=2026-01-01&end_date=2026-01-02"
        }
