"""Waits that the service asks for, pauses of the bucket, and the end of the allowance."""

import asyncio
from datetime import timedelta

import pytest

from asyncfin.errors import AllowanceExhaustedError, ServerFailureError
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.protocol import limits_request, usage_request
from asyncfin.wire.retry import Retry
from tests.services.raw import answer, refusal
from tests.wire.sending import NOON, READ, sending


@pytest.mark.virtual
@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "7"},
        {"date": "Sun, 01 Mar 2026 00:00:00 GMT", "retry_after": "Sun, 01 Mar 2026 00:00:07 GMT"},
    ],
    ids=["seconds", "date"],
)
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_wait_of_the_service_is_kept(status: int, headers: dict[str, str]) -> None:
    """Seconds or a date measured against the answer's own Date; not a moment less, a little more."""
    async with sending(refusal(status, **headers), answer()) as (server, sender, _):
        await sender.send(READ)
    first, second = server.requests
    assert 7 <= second.at - first.at <= 7.6


@pytest.mark.virtual
async def test_429_pauses_the_whole_bucket() -> None:
    """Another client on the same bucket sends nothing until the pause is over."""
    bucket = TokenBucket(clock=lambda: NOON)
    async with (
        sending(refusal(429, retry_after="20"), answer(), bucket=bucket) as (server, sender, _),
        sending(answer(), bucket=bucket) as (other, neighbour, _events),
    ):
        first = asyncio.ensure_future(sender.send(READ))
        await server.arrived(1)
        await asyncio.sleep(0.01)
        assert bucket.stats().refused == 1
        await neighbour.send(READ)
        await first
    assert other.requests[0].at >= server.requests[0].at + 20


@pytest.mark.virtual
async def test_429_costs_an_attempt_without_time() -> None:
    """Pauses of 50 seconds each, though max_elapsed is 60."""
    retry = Retry(attempts=150, max_elapsed=60)
    steps = [refusal(429, retry_after="50")] * 149
    async with sending(*steps, answer(), retry=retry) as (server, sender, _):
        await sender.send(READ)
        counts = sender.stats()
    assert len(server.requests) == 150
    assert counts.refused == 149
    assert counts.waits >= 149 * 50


@pytest.mark.virtual
async def test_long_wait_ends_all_waiters() -> None:
    """AllowanceExhaustedError says when to come back; no time passes, nothing more is sent."""
    loop = asyncio.get_running_loop()
    raw = refusal(429, "daily_limit", retry_after="7200")
    async with sending(raw, max_in_flight=2) as (server, sender, _):
        ends = await asyncio.gather(*(sender.send(READ) for _ in range(20)), return_exceptions=True)
    assert loop.time() < 1
    assert len(server.requests) <= 2
    for end in ends:
        assert isinstance(end, AllowanceExhaustedError)
        assert end.resume_at == NOON + timedelta(hours=2)
        assert end.operation == "dataset"
    first = next(end for end in ends if isinstance(end, AllowanceExhaustedError) and end.attempts)
    assert (first.code, first.request_id, first.retry_after) == ("daily_limit", "r-1", 7200)
    assert first.__cause__ is first.__context__ is None


@pytest.mark.virtual
async def test_usage_is_sent_when_exhausted() -> None:
    """The calls that explain a used-up allowance spend none of it (spec 8)."""
    bucket = TokenBucket(daily_budget=1, clock=lambda: NOON)
    steps = [refusal(429, retry_after="7200"), answer()]
    async with sending(*steps, bucket=bucket) as (server, sender, _):
        with pytest.raises(AllowanceExhaustedError):
            await sender.send(READ)
        await sender.send(limits_request())
        await sender.send(usage_request(NOON.date(), NOON.date()))
        assert bucket.stats().spent_today == 1
        with pytest.raises(AllowanceExhaustedError):
            await sender.send(READ)
    assert len(server.requests) == 3


@pytest.mark.virtual
async def test_long_429_of_usage_is_raised() -> None:
    """A long 429 to usage or limits is raised, and other requests go on."""
    async with sending(refusal(429, retry_after="7200"), answer()) as (server, sender, _):
        with pytest.raises(AllowanceExhaustedError) as caught:
            await sender.send(limits_request())
        assert caught.value.resume_at == NOON + timedelta(hours=2)
        await sender.send(READ)
    assert len(server.requests) == 2


@pytest.mark.virtual
async def test_long_wait_of_5xx_is_raised() -> None:
    """A 5xx that asks for more than max_retry_after is raised at once."""
    async with sending(refusal(503, retry_after="3600")) as (server, sender, _):
        with pytest.raises(ServerFailureError):
            await sender.send(READ)
    assert len(server.requests) == 1
