"""The sender's loop: which failures are sent again, and when the last one is raised."""

import asyncio
import gc
import weakref
from datetime import timedelta
from typing import Any

import pytest

from asyncfin.errors import (
    AsyncfinError,
    AuthenticationError,
    ConnectionFailedError,
    DatasetChangedError,
    MalformedAnswerError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    RequestTimeoutError,
    ServerFailureError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    ValidationFailedError,
)
from asyncfin.events import RequestFinished, RequestStarted, Retrying
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.protocol import Request
from asyncfin.wire.retry import Retry
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.services.raw import answer, dropping, hanging, refusal, scripted, trickling
from tests.wire.sending import NOON, QUERY, READ, of_kind, sending

FAILING = {
    "500": refusal(500),
    "408": refusal(408),
    "408 without a body": answer(408, b""),
    "522": answer(522, b"error code: 522"),
    "redirect": answer(307, b"", location="https://elsewhere.example"),
    "429": refusal(429, retry_after="3"),
    "429 without a time": refusal(429),
    "dropped": dropping(),
    "cut": dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"),
    "hanging": hanging(),
    "page of a proxy": answer(502, b"<html>bad gateway</html>"),
}


@pytest.mark.virtual
@pytest.mark.parametrize("request_", [READ, QUERY], ids=["GET", "POST"])
@pytest.mark.parametrize("step", FAILING.values(), ids=FAILING)
async def test_transient_failure_is_retried(step: Any, request_: Request) -> None:
    """After three failures of a kind comes the answer, for GET and for the query's POST."""
    bucket = TokenBucket(rate=1e6, burst=1e3, clock=lambda: NOON)
    async with sending(step, step, step, answer(body=b'["at last"]'), bucket=bucket) as (
        server,
        sender,
        events,
    ):
        got = await sender.send(request_)
        counts = sender.stats()
    assert got.body == b'["at last"]'
    assert len(server.requests) == 4
    assert (counts.requests, counts.retries) == (4, 3)
    assert bucket.stats().granted == 4, "one for each attempt"
    assert [event.attempt for event in of_kind(events, Retrying)] == [1, 2, 3]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (refusal(500), ServerFailureError),
        (refusal(429), RateLimitedError),
        (dropping(), ConnectionFailedError),
        (hanging(), RequestTimeoutError),
        (dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"), TruncatedAnswerError),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_last_failure_is_raised(step: Any, kind: type[ServiceError | TransportError]) -> None:
    """The last failure is raised as itself, with operation, time and number of attempts."""
    async with sending(step, retry=Retry(attempts=3)) as (server, sender, _):
        with pytest.raises(kind) as caught:
            await sender.send(READ)
    error = caught.value
    assert len(server.requests) == 3
    assert (error.operation, error.at, error.attempts) == ("dataset", NOON, 3)
    assert "attempts: 3" in error.report()
    assert error.__context__ is None


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (refusal(400, "validation_failed"), ValidationFailedError),
        (refusal(401), AuthenticationError),
        (refusal(403), PermissionDeniedError),
        (refusal(404), NotFoundError),
        (refusal(409, "dataset_changed"), DatasetChangedError),
        (refusal(409, "locked"), ServiceError),
        (refusal(501), ServerFailureError),
        (refusal(505), ServerFailureError),
        (answer(content_encoding="br"), MalformedAnswerError),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_permanent_failure_is_raised_at_once(raw: bytes, kind: type[AsyncfinError]) -> None:
    """An error that would come again is raised after one attempt, without a wait."""
    async with sending(raw) as (server, sender, events):
        with pytest.raises(kind) as caught:
            await sender.send(READ)
    assert type(caught.value) is kind
    assert len(server.requests) == 1
    assert of_kind(events, Retrying) == []


@pytest.mark.virtual
async def test_retry_after_counts_once() -> None:
    """The drop after a 503 with Retry-After is waited for as any other drop."""
    steps = [refusal(503, retry_after="50"), dropping(), answer()]
    async with sending(*steps) as (server, sender, _):
        await sender.send(READ)
    first, second, third = (each.at for each in server.requests)
    assert second - first >= 50
    assert third - second <= 2


@pytest.mark.virtual
async def test_the_elapsed_time_bounds_the_attempts() -> None:
    """Attempts of 30 seconds each: within 100 seconds there is room for three of them."""
    retry = Retry(attempts=50, max_elapsed=100)
    async with sending(hanging(), retry=retry) as (server, sender, _):
        with pytest.raises(RequestTimeoutError):
            await sender.send(READ)
    assert len(server.requests) in (3, 4)


@pytest.mark.virtual
async def test_response_is_dated_by_its_end() -> None:
    """The head comes at once, the last byte of the body ten seconds later."""
    raw, loop = answer(body=b"[1, 2, 3]\n"), asyncio.get_running_loop()

    async def slow(writer: asyncio.StreamWriter) -> bool:
        writer.write(raw[:-10])
        return await trickling(raw[-10:], 1)(writer)

    async with scripted(slow) as server:
        transport = Transport(server.base_url, clock=lambda: NOON + timedelta(seconds=loop.time()))
        sender = Sender(transport, "some-token", bucket=TokenBucket())
        got = await sender.send(READ)
        await transport.aclose()
    assert (got.at - NOON).total_seconds() == pytest.approx(10, abs=0.1)


@pytest.mark.virtual
async def test_cancelled_request_leaves_nothing() -> None:
    """A cancelled request frees slots and bucket, from an attempt, the bucket or a wait between attempts."""
    bucket = TokenBucket(rate=1, clock=lambda: NOON)
    before = asyncio.all_tasks()
    steps = [hanging(), refusal(503), answer()]
    retry = Retry(wait_initial=1000, wait_max=1000, max_elapsed=2000)
    async with sending(*steps, bucket=bucket, retry=retry, max_in_flight=1) as (_, sender, events):
        for reached in (RequestStarted, Retrying):
            leaving = asyncio.ensure_future(sender.send(READ))
            queued = asyncio.ensure_future(sender.send(READ))
            await asyncio.sleep(5)
            assert of_kind(events, reached)
            for task in (leaving, queued):
                task.cancel()
            await asyncio.gather(leaving, queued, return_exceptions=True)
        await sender.send(READ)
        assert of_kind(events, RequestFinished)[0].failure == "CancelledError"
        assert bucket.stats().waiting == {"interactive": 0, "bulk": 0}
    assert asyncio.all_tasks() == before


async def test_request_id_of_header_is_used() -> None:
    """A request id comes from a header where the body names none."""
    steps = [answer(502, b"<html>", x_request_id="req-77"), refusal(404, x_request_id="req-78")]
    async with sending(*steps, retry=Retry(attempts=1)) as (_, sender, _events):
        with pytest.raises(ServerFailureError, match="req-77") as first:
            await sender.send(READ)
        with pytest.raises(NotFoundError) as second:
            await sender.send(READ)
    assert "request id: req-77" in first.value.report()
    assert second.value.request_id == "r-1"


class Tracked(Request, frozen=True, weakref=True):
    """A request that can be weakly referenced."""


async def test_request_is_freed_without_collector() -> None:
    """Nothing that is made for a request refers to itself, so bodies do not wait for a collection."""
    async with sending(answer()) as (_, sender, _events):
        request = Tracked("limits", "GET", "/v1/limits")
        sent = weakref.ref(request)
        gc.disable()
        try:
            await sender.send(request)
            del request
            assert sent() is None
        finally:
            gc.enable()
