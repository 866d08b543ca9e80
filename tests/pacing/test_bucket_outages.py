"""A RedisBucket whose server stops responding, rejects, or loses its state."""

import asyncio
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, BucketUnavailableError, RedisBucket, TokenBucket
from tests.shared_buckets import RedisLine, RedisServer, distant, loop_time, redis_server, wall_clock

virtual = pytest.mark.virtual


async def command(server: RedisServer, *words: str) -> None:
    """Let the server run a command."""
    from redis.asyncio import Redis

    async with Redis.from_url(server.url) as client:
        await client.execute_command(*words)


async def fill(server: RedisServer) -> None:
    """Leave the server no memory, and forbid it to evict."""
    await command(server, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    await command(server, "CONFIG", "SET", "maxmemory", "1")


async def kill(server: RedisServer) -> None:
    server.stop()


async def stop(server: RedisServer) -> None:
    server.signal(signal.SIGSTOP)


async def make_replica(server: RedisServer) -> None:
    """Make the server a read-only replica, as the old primary is after a failover."""
    await command(server, "REPLICAOF", "127.0.0.1", "1")


async def flush(server: RedisServer) -> None:
    await command(server, "FLUSHALL")


async def restart(server: RedisServer) -> None:
    """Replace the server by an empty one, as a failover without replication does."""
    server.stop()
    await asyncio.to_thread(server.start)


FAULTS = [kill, stop, fill, make_replica, flush, restart]


@pytest.mark.parametrize("fault", FAULTS)
async def test_fallback_serves_all_visits(fault: Callable[[RedisServer], Any]) -> None:
    """Whatever happens to the server under load, every request is granted, and soon."""
    loop = asyncio.get_running_loop()
    slowest = [0.0]
    with redis_server() as own:
        fallback = TokenBucket(400, 20)
        bucket = RedisBucket(own.url, account="us", rate=400, burst=20, fallback=fallback)

        async def visit() -> None:
            for _ in range(20):
                began = loop.time()
                await bucket.acquire()
                slowest[0] = max(slowest[0], loop.time() - began)

        async with aclosing(bucket), asyncio.timeout(30):
            await bucket.acquire()
            visits = [asyncio.ensure_future(visit()) for _ in range(8)]
            await asyncio.sleep(0.1)
            await fault(own)
            await asyncio.gather(*visits)
            assert bucket.stats().granted == 161
            assert bucket.stats().fallback == (
                fault not in (flush, restart) or bool(fallback.stats().granted)
            )
            await bucket.inspect()
    assert slowest[0] < 3


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (kill, "Error"),
        (stop, r"no response within 0\.5 s"),
        (fill, "OutOfMemory"),
        (make_replica, "ReadOnly"),
    ],
)
async def test_nothing_is_sent_without_fallback(fault: Callable[[RedisServer], Any], message: str) -> None:
    """Waiting requests get an error that shows the server's reason."""
    with redis_server() as own:
        async with aclosing(RedisBucket(own.url, account="us", rate=100, burst=20)) as bucket:
            await bucket.acquire()
            await fault(own)
            for operation in (bucket.acquire, bucket.resume):
                with pytest.raises(BucketUnavailableError, match=f"can't be used: .*{message}"):
                    await operation()


@virtual
async def test_outage_adds_spent_requests_once(line: RedisLine, tmp_path: Path) -> None:
    """After an outage, the day's spending has what the fallback granted, less what was not sent."""
    fallback = TokenBucket(100, 10)
    settings = {"rate": 100, "burst": 10, "daily_budget": 30}
    async with (
        aclosing(line.bucket(str(tmp_path), fallback=fallback, **settings)) as bucket,
        aclosing(line.bucket(str(tmp_path), **settings)) as other,
    ):
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
        assert bucket.stats().spent_today == (await other.inspect()).spent_today == 3 + 10 + 3
        line.cut = True
        await bucket.acquire()  # in a second outage
        line.cut = False
        await asyncio.sleep(2.1)
        assert (await other.inspect()).spent_today == 3 + 10 + 3 + 1


@virtual
async def test_unknown_return_is_not_repeated(line: RedisLine, tmp_path: Path) -> None:
    """A grant whose return may have reached the server is not returned a second time."""
    async with aclosing(line.bucket(str(tmp_path), rate=100, burst=9, daily_budget=5)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        line.loses_reply = True
        await bucket.give_back()
        await asyncio.sleep(1)
        line.loses_reply = False
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == 3


@virtual
async def test_no_request_waits_for_absent_server(line: RedisLine, tmp_path: Path) -> None:
    """After the first half second, also while the server is contacted again."""
    bucket = line.bucket(str(tmp_path), rate=100, burst=10, fallback=TokenBucket(1000, 50))
    async with aclosing(bucket):
        await bucket.acquire()
        line.cut = True
        began = loop_time()
        await bucket.acquire()
        assert loop_time() - began < 0.6
        for _ in range(100):
            began = loop_time()
            await bucket.acquire()
            assert loop_time() - began < 0.01
            await asyncio.sleep(0.1)
        assert 3 < line.sent < 20


@virtual
async def test_outage_is_logged_once(
    line: RedisLine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when the fallback begins, and one when the server is back; `inspect` raises never."""
    bucket = line.bucket(str(tmp_path), rate=100, burst=10, fallback=TokenBucket(100, 10))
    async with aclosing(bucket):
        line.cut = True
        assert (await bucket.inspect()).fallback
        for _ in range(5):
            await bucket.acquire()
        assert (await bucket.inspect()).granted == 5
        await asyncio.sleep(8.95)  # a retry is in 0.05 s
        line.cut = False
        await bucket.inspect()
        await asyncio.sleep(0.1)
        assert (await bucket.inspect()).spent_today == 5
    begun, ended = [record.getMessage() for record in caplog.records]
    assert begun.endswith("no response within 0.5 s: the fallback paces for now")
    assert ended.endswith("responds again; 5 requests granted by the fallback were added")


@virtual
async def test_refusals_in_outage_reach_fallback(line: RedisLine, tmp_path: Path) -> None:
    """A pause and a used-up allowance hold for the process while the server is away."""
    fallback = TokenBucket(1000, 5, clock=wall_clock)
    async with aclosing(line.bucket(str(tmp_path), rate=1000, burst=5, fallback=fallback)) as bucket:
        line.cut = True
        sent_at = await bucket.acquire()
        began = loop_time()
        await bucket.refused(sent_at=sent_at, retry_after=7)
        assert await bucket.acquire() - began == pytest.approx(7, abs=0.1)
        await bucket.exhaust(3600)
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
        for task in waiting:
            with pytest.raises(AllowanceExhaustedError):
                await task
        await bucket.acquire(counts=False)


@virtual
@pytest.mark.parametrize("is_away", [True, False])
async def test_resume_reaches_fallback(line: RedisLine, tmp_path: Path, is_away: bool) -> None:
    """The fallback would otherwise stay paused and used up."""
    fallback = TokenBucket(1000, 5, clock=wall_clock)
    async with aclosing(line.bucket(str(tmp_path), rate=1000, burst=5, fallback=fallback)) as bucket:
        line.cut = is_away
        sent_at = await bucket.acquire()
        await bucket.refused(sent_at=sent_at, retry_after=3600)
        await bucket.exhaust(3600)
        waiting = asyncio.ensure_future(bucket.acquire(counts=False))
        await asyncio.sleep(1)
        await bucket.resume()
        line.cut = True
        began = loop_time()
        await waiting
        await bucket.acquire()
        assert loop_time() - began < 1.1
        assert bucket.stats().fallback


@virtual
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_failed_retry_begins_again(line: RedisLine, tmp_path: Path, is_cancelled: bool) -> None:
    """After a cancellation and an unexpected error: the next request starts another."""
    before = asyncio.all_tasks()
    bucket = line.bucket(str(tmp_path), rate=100, burst=10, fallback=TokenBucket(100, 10))
    async with aclosing(bucket):
        line.cut = True
        await bucket.acquire()
        await asyncio.sleep(0.1)
        (retry,) = asyncio.all_tasks() - before
        with pytest.MonkeyPatch.context() as patch:
            if is_cancelled:
                retry.cancel()
            else:
                patch.setattr("asyncfin.pacing.redis.Change", int)
            await asyncio.wait([retry])
        assert retry.cancelled() or isinstance(retry.exception(), TypeError)
        line.cut = False
        await bucket.acquire()
        assert bucket.stats().fallback
        await asyncio.sleep(2.1)
        assert (await bucket.inspect()).spent_today == 2
        assert not bucket.stats().fallback


@virtual
async def test_slow_fallback_ends_with_outage(line: RedisLine, tmp_path: Path) -> None:
    """Waiters get grants of the server once it is back; one that leaves, leaves no task."""
    fallback = TokenBucket(0.05)
    async with aclosing(line.bucket(str(tmp_path), rate=100, burst=10, fallback=fallback)) as bucket:
        line.cut = True
        began = asyncio.get_running_loop().time()
        await bucket.acquire()
        left = asyncio.ensure_future(bucket.acquire())
        await asyncio.sleep(0.1)
        left.cancel()
        await asyncio.sleep(2.1)
        assert len(asyncio.all_tasks()) == 2  # this one, and the retry
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(4)]
        await asyncio.sleep(0.1)
        line.cut = False
        await asyncio.gather(*waiting)
        assert asyncio.get_running_loop().time() - began < 15
        assert fallback.stats().granted == 1


@virtual
async def test_close_ends_retry(line: RedisLine, tmp_path: Path) -> None:
    """No task is left behind by a bucket that is closed while the server is away."""
    before = asyncio.all_tasks()
    bucket = line.bucket(str(tmp_path), rate=100, burst=10, fallback=TokenBucket(100, 10))
    line.cut = True
    await bucket.acquire()
    await asyncio.sleep(3)
    await bucket.acquire()
    assert len(asyncio.all_tasks()) > len(before)
    await bucket.aclose()
    assert asyncio.all_tasks() == before


@virtual
@pytest.mark.parametrize("delay", [0.0, 0.15, 0.4])
async def test_distant_server_grants_all_requests(delay: float, server: RedisServer) -> None:
    """Connecting takes several round trips, and is not taken for silence."""
    async with (
        distant(server.url, delay) as url,
        aclosing(RedisBucket(url, account=f"far {delay}")) as bucket,
    ):
        assert len([await bucket.acquire() for _ in range(5)]) == 5
