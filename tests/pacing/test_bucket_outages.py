"""A RedisBucket whose server stops responding, rejects, or loses its state."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, BucketUnavailableError, RedisBucket, TokenBucket
from tests.shared_buckets import (
    FAULTS,
    RedisLine,
    RedisServer,
    distant,
    excess,
    loop_time,
    redis_server,
    wall_clock,
)

virtual = pytest.mark.virtual


@pytest.mark.parametrize("fault", FAULTS)
async def test_fallback_serves_all_visits(fault: str) -> None:
    """Whatever happens to the server under load, every request is granted, and soon."""
    with redis_server() as server:
        fallback = TokenBucket(400, 20)
        bucket = RedisBucket(server.url, account="us", rate=400, burst=20, fallback=fallback)
        waits = list[float]()

        async def visit() -> None:
            for _ in range(20):
                began = loop_time()
                await bucket.acquire()
                waits.append(loop_time() - began)

        async with aclosing(bucket), asyncio.timeout(30):
            await bucket.acquire()
            visits = [asyncio.ensure_future(visit()) for _ in range(8)]
            await asyncio.sleep(0.1)
            await server.suffer(fault)
            await asyncio.gather(*visits)
            assert bucket.stats().granted == 161
            is_used = bool(fallback.stats().granted)
            if fault != "failed over":  # the connections were cut, perhaps between two requests
                assert is_used == (fault != "flushed"), "an emptied server is there"
            assert bucket.stats().fallback == is_used
            await bucket.inspect()
    assert max(waits) < 3


LASTING = {"killed": "Error", "stopped": "no response", "full": "OutOfMemory", "read-only": "ReadOnly"}


@pytest.mark.parametrize(("fault", "message"), [*LASTING.items(), ("another password", "Error")])
async def test_nothing_is_sent_without_fallback(fault: str, message: str) -> None:
    """Waiting requests get an error that shows the server's reason."""
    with redis_server() as server:
        async with aclosing(RedisBucket(server.url, account="us", rate=100, burst=20)) as bucket:
            await bucket.acquire()
            await server.suffer(fault)
            for operation in (bucket.acquire, bucket.resume):
                with pytest.raises(BucketUnavailableError, match=f"can't be used: .*{message}"):
                    await operation()


@pytest.mark.parametrize("fault", ["flushed", "failed over"])
async def test_emptied_server_paces_anew(fault: str) -> None:
    """Without a fallback: at most one request fails; the pace holds, and the day's budget begins anew."""
    with redis_server() as server:
        async with aclosing(
            RedisBucket(server.url, account="us", rate=20, burst=2, daily_budget=5)
        ) as bucket:
            for _ in range(5):
                await bucket.acquire()
            with pytest.raises(AllowanceExhaustedError):
                await bucket.acquire()
            await server.suffer(fault)
            times = [await bucket.acquire() for _ in range(5)]
            assert excess(times, 20, 2) < 1
            with pytest.raises(AllowanceExhaustedError):
                await bucket.acquire()
            assert (await bucket.inspect()).spent_today == 5


@virtual
@pytest.mark.parametrize("seconds", [0.3, 2.01, 7.0, 60.0])
async def test_returned_server_paces_within_two_seconds(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was away, and though nobody asks; it has what the fallback granted."""
    with redis_server() as server:
        line = RedisLine(server.url, monkeypatch)
        async with aclosing(line.bucket("us", rate=100, fallback=TokenBucket(100))) as bucket:
            await bucket.acquire()
            await server.suffer("killed")
            for _ in range(3):
                await bucket.acquire()
            await asyncio.sleep(seconds)
            assert bucket.stats().fallback
            server.start()
            await asyncio.sleep(2)
            assert not bucket.stats().fallback
            assert (await bucket.inspect()).spent_today == 3


@pytest.fixture
def make(line: RedisLine, tmp_path: Path) -> Callable[..., Any]:
    """Return what makes buckets of one state, whose line to the server the test can cut."""
    return partial(line.bucket, str(tmp_path))


@virtual
async def test_outage_adds_spent_requests_once(line: RedisLine, make: Callable[..., Any]) -> None:
    """After an outage, the day's spending has what the fallback granted, less what was not sent."""
    fallback = TokenBucket(100, 10)
    settings = {"rate": 100, "burst": 10, "daily_budget": 30}
    async with aclosing(make(fallback=fallback, **settings)) as bucket, aclosing(make(**settings)) as second:
        for _ in range(3):
            await bucket.acquire()
        line.cut = True
        sent = [await bucket.acquire() for _ in range(12)]
        await bucket.acquire(counts=False)
        await bucket.unspend(sent_at=sent[0])
        await bucket.give_back()
        await asyncio.sleep(0.001)
        assert bucket.stats().fallback
        assert fallback.stats().spent_today == 12 - 2
        line.cut = False
        await asyncio.sleep(2)
        await bucket.acquire()  # begins the retry in the background
        await asyncio.sleep(0.1)
        for _ in range(2):
            await bucket.acquire()
        assert not bucket.stats().fallback
        assert bucket.stats().spent_today == (await second.inspect()).spent_today == 3 + 10 + 3
        line.cut = True
        await bucket.acquire()  # in a second outage
        line.cut = False
        await asyncio.sleep(2.1)
        assert (await second.inspect()).spent_today == 3 + 10 + 3 + 1


@virtual
async def test_unknown_return_is_not_repeated(line: RedisLine, make: Callable[..., Any]) -> None:
    """A grant whose return may have reached the server is not returned a second time."""
    async with aclosing(make(rate=100, burst=9, daily_budget=5)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        line.loses_reply = True
        await bucket.give_back()
        await asyncio.sleep(1)
        line.loses_reply = False
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == 3


@virtual
async def test_no_request_waits_in_outage(
    line: RedisLine, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """After the first half second; there is a line when the fallback begins, and one when it ends."""
    async with aclosing(make(rate=100, burst=10, fallback=TokenBucket(1000, 50))) as bucket:
        await bucket.acquire()
        line.cut, line.sent, began = True, 0, loop_time()
        await bucket.acquire()
        assert loop_time() - began < 0.6
        for _ in range(100):
            began = loop_time()
            await bucket.acquire()
            assert loop_time() - began < 0.01
            await asyncio.sleep(0.1)
            assert (await bucket.inspect()).fallback
        assert line.sent < 8
        line.cut = False
        await asyncio.sleep(8)
        assert (await bucket.inspect()).spent_today == 102
    begun, ended = [record.getMessage() for record in caplog.records]
    assert begun.endswith("no response within 0.5 s: the fallback paces for now")
    assert ended.endswith("responds again; 101 requests granted by the fallback were added")


@virtual
@pytest.mark.parametrize("is_away", [True, False])
async def test_pauses_reach_the_fallback(line: RedisLine, make: Callable[..., Any], is_away: bool) -> None:
    """Also a used-up allowance and their end, whether the server is away then or later; no task is left."""
    before = asyncio.all_tasks()
    fallback = TokenBucket(1000, 5, clock=wall_clock)
    async with aclosing(make(rate=1000, burst=5, fallback=fallback)) as bucket:
        line.cut = is_away
        sent_at = await bucket.acquire()
        await bucket.refused(sent_at=sent_at, retry_after=3600)
        await bucket.exhaust(3600)
        line.cut = True
        with pytest.raises(AllowanceExhaustedError):
            await bucket.acquire()
        waiting = asyncio.ensure_future(bucket.acquire(counts=False))
        await asyncio.sleep(60)
        assert not waiting.done()
        line.cut = is_away
        began = loop_time()
        await bucket.resume()
        line.cut = True
        await waiting
        await bucket.acquire()
        assert loop_time() - began < 3
        assert bucket.stats().fallback
    assert asyncio.all_tasks() == before


@virtual
async def test_slow_fallback_ends_with_outage(line: RedisLine, make: Callable[..., Any]) -> None:
    """Waiters get grants of the returned server, which has those of the fallback until then.

    A waiter that leaves, leaves no task.
    """
    fallback = TokenBucket(0.8)
    async with aclosing(make(rate=100, burst=10, fallback=fallback)) as bucket:
        line.cut = True
        *waiting, leaving = [asyncio.ensure_future(bucket.acquire()) for _ in range(21)]
        await asyncio.sleep(0.55)
        leaving.cancel()
        await asyncio.sleep(0.05)
        line.cut = False
        await asyncio.gather(*waiting)
        assert fallback.stats().granted == 3
        await asyncio.sleep(3)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (await bucket.inspect()).spent_today == 20


@virtual
@pytest.mark.parametrize("delay", [0.0, 0.15, 0.4])
async def test_distant_server_grants_all_requests(delay: float, server: RedisServer) -> None:
    """Connecting takes several round trips, and is not taken for silence."""
    async with (
        distant(server.url, delay) as url,
        aclosing(RedisBucket(url, account=f"far {delay}")) as bucket,
    ):
        assert len([await bucket.acquire() for _ in range(5)]) == 5
