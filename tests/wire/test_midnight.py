"""Waits that the service asks for around midnight UTC, and what other processes of the account do then."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, TokenBucket
from tests.services.raw import answer, refusal
from tests.shared_buckets import RedisLine, file_bucket, redis_server
from tests.wire.sending import READ, sending

pytestmark = pytest.mark.virtual
MIDNIGHT = datetime(2026, 3, 2, tzinfo=UTC)
Make = Callable[[], Any]


@pytest.fixture(params=[-10, 1], ids=["23:50", "00:01"])
def began(request: pytest.FixtureRequest) -> datetime:
    return MIDNIGHT + timedelta(minutes=request.param)


@pytest.fixture
def clock(began: datetime) -> Callable[[], datetime]:
    """The wall clock of the test and of the Redis server."""
    return lambda: began + timedelta(seconds=asyncio.get_running_loop().time())


@pytest.fixture(params=["token", "file", "redis"])
def make(
    request: pytest.FixtureRequest,
    clock: Callable[[], datetime],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Make]:
    """Make the bucket of each process; one process alone has a TokenBucket."""
    if request.param == "token":
        alone = TokenBucket(clock=clock)
        yield lambda: alone
    elif request.param == "file":
        yield lambda: file_bucket(tmp_path / "bucket", clock=clock)
    else:
        with redis_server() as server:
            line = RedisLine(server.url, monkeypatch)
            yield lambda: line.bucket(str(tmp_path), microseconds=lambda: round(clock().timestamp() * 1e6))


@pytest.mark.parametrize(
    "retry_after", ["86701", "9" * 20, "Fri, 31 Dec 9999 23:59:59 GMT", "Tue, 03 Mar 2026 00:06:01 GMT"]
)
async def test_a_wait_beyond_the_next_midnight_stops_no_process(
    make: Make, clock: Callable[[], datetime], retry_after: str
) -> None:
    """Allowances reset at midnight (spec 8): what is longer is treated as missing."""
    headers = {"retry_after": retry_after, "date": format_datetime(MIDNIGHT, usegmt=True)}
    async with aclosing(make()) as bucket, aclosing(make()) as other:
        async with sending(refusal(429, **headers), answer(), bucket=bucket, clock=clock) as (
            server,
            sender,
            _,
        ):
            await sender.send(READ)
        assert len(server.requests) == 2
        assert (await other.inspect()).exhausted_until is None
        assert await other.acquire() < 60


@pytest.mark.parametrize("is_date", [False, True], ids=["seconds", "date"])
async def test_a_wait_until_midnight_stops_all_processes_until_then(
    make: Make, clock: Callable[[], datetime], began: datetime, is_date: bool
) -> None:
    """A process that begins later too; from midnight on they send."""
    next_midnight = MIDNIGHT if began < MIDNIGHT else MIDNIGHT + timedelta(days=1)
    left = next_midnight - began
    text = format_datetime(next_midnight, usegmt=True) if is_date else str(round(left.total_seconds()))
    headers = {"retry_after": text, "date": format_datetime(began, usegmt=True)}
    async with aclosing(make()) as bucket:
        async with sending(refusal(429, **headers), bucket=bucket, clock=clock) as (_, sender, _events):
            with pytest.raises(AllowanceExhaustedError) as caught:
                await sender.send(READ)
        assert abs(caught.value.resume_at - next_midnight) < timedelta(seconds=1)
        async with aclosing(make()) as other:
            for minutes in (0, 5):
                await asyncio.sleep(60 * minutes)
                with pytest.raises(AllowanceExhaustedError):
                    await other.acquire()
            await asyncio.sleep((next_midnight - clock()).total_seconds() + 1)
            await other.acquire()
