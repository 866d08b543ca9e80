"""A RedisBucket whose server stops responding, returns, or returns without its state; in virtual time."""

import asyncio
import itertools
import logging
import pickle
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, ArgumentError, BucketUnavailableError, RedisBucket, TokenBucket
from tests.shared_buckets import RedisLine, RedisServer, distant, loop_time, redis_server

virtual = pytest.mark.virtual


async def emptied(line: RedisLine) -> None:
    """Delete all that the server has, as a restart without a backup does."""
    from redis.asyncio import Redis

    async with Redis.from_url(line.url) as client:
        await client.flushall()


@asynccontextmanager
async def busy(bucket: Any, workers: int = 4) -> AsyncIterator[list[float]]:
    """Acquire without end, and give the list of the grants."""
    grants: list[float] = []

    async def work() -> None:
        while True:
            grants.append(await bucket.acquire())

    tasks = [asyncio.ensure_future(work()) for _ in range(workers)]
    try:
        yield grants
    finally:
        for each in tasks:
            each.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ends), ends


@virtual
@pytest.mark.parametrize("outage", [5, 60, 600])
async def test_after_an_outage_the_longest_silence_is_one_burst_s_time(
    line: RedisLine, tmp_path: Path, outage: int
) -> None:
    """What the fallback granted at the account's rate was earned in it; the day is charged in full."""
    rate, burst = 20.0, 5.0
    bucket = line.bucket(str(tmp_path), rate=rate, burst=burst, fallback=TokenBucket(rate, burst))
    async with aclosing(bucket):
        async with busy(bucket) as grants:
            await asyncio.sleep(5)
            line.cut = True
            await asyncio.sleep(outage)
            line.cut, back_at = False, loop_time()
            await asyncio.sleep(20)
        after = [at for at in grants if at >= back_at]
        assert max(b - a for a, b in itertools.pairwise(after)) <= burst / rate + 0.01
        assert len(after) >= 0.95 * 20 * rate
        assert bucket.stats().spent_today == pytest.approx(len(grants), abs=1)


@virtual
async def test_several_fallbacks_owe_at_most_one_burst_together(line: RedisLine, tmp_path: Path) -> None:
    """Four processes that each used the whole rate cause no silence longer than one burst's time."""
    rate, burst = 20.0, 5.0
    async with AsyncExitStack() as stack:
        buckets = [
            line.bucket(str(tmp_path), rate=rate, burst=burst, fallback=TokenBucket(rate, burst))
            for _ in range(4)
        ]
        for each in buckets:
            await stack.enter_async_context(aclosing(each))
        grants = [await stack.enter_async_context(busy(each)) for each in buckets]
        await asyncio.sleep(2)
        line.cut = True
        await asyncio.sleep(30)
        line.cut, back_at = False, loop_time()
        await asyncio.sleep(10)
        after = sorted(at for each in grants for at in each if at > back_at + 2.1)
        assert max(b - a for a, b in itertools.pairwise(after)) <= burst / rate + 0.06


@virtual
async def test_stats_show_what_a_fallback_has_granted(line: RedisLine, tmp_path: Path) -> None:
    """A fallback that is faster than the account shows as a debt, and in the day's spending."""
    bucket = line.bucket(str(tmp_path), rate=1, burst=3, fallback=TokenBucket(100, 100))
    async with aclosing(bucket):
        await bucket.acquire()
        level = bucket.stats().level
        assert not bucket.stats().fallback
        line.cut = True
        for _ in range(10):
            await bucket.acquire()
        stats = bucket.stats()
        assert stats.spent_today == 11
        assert stats.fallback
        assert level is not None
        assert stats.level == pytest.approx(level - 3)


@virtual
async def test_while_the_server_is_away_no_request_waits_for_it(line: RedisLine, tmp_path: Path) -> None:
    """After half a second the fallback's pace has no gaps: the server is retried in the background."""
    bucket = line.bucket(str(tmp_path), rate=50, burst=2, fallback=TokenBucket(50, 2))
    async with aclosing(bucket), busy(bucket) as grants:
        await asyncio.sleep(1)
        line.cut, cut_at = True, loop_time()
        await asyncio.sleep(20)
        during = [at for at in grants if at > cut_at + 0.6]
    assert max(b - a for a, b in itertools.pairwise(during)) < 0.05
    assert len(during) > 0.98 * 19.4 * 50


@virtual
async def test_closing_a_bucket_ends_the_retry(line: RedisLine, tmp_path: Path) -> None:
    """A bucket that is closed while it retries its server leaves no task behind."""
    before = asyncio.all_tasks()
    bucket = line.bucket(str(tmp_path), rate=50, burst=2, fallback=TokenBucket(50, 2))
    await bucket.acquire()
    line.cut = True
    await bucket.acquire()
    await asyncio.sleep(2.1)
    await bucket.acquire()
    assert asyncio.all_tasks() != before
    await bucket.aclose()
    assert asyncio.all_tasks() == before


@virtual
@pytest.mark.parametrize("blocked", [0.7, 2.0])
async def test_a_blocked_loop_does_not_make_a_server_unreachable(
    line: RedisLine, tmp_path: Path, blocked: float
) -> None:
    """Twenty of twenty requests are granted although the loop is blocked during each command."""
    async with aclosing(line.bucket(str(tmp_path), rate=100, burst=20)) as bucket:
        line.blocked = blocked
        ends = [await bucket.acquire() for _ in range(20)]
    assert len(ends) == 20


async def test_a_blocked_loop_does_not_make_a_real_server_unreachable(
    server: RedisServer, tmp_path: Path
) -> None:
    """The same with a loop that really is blocked while the response is on its way."""
    # 3.4 seconds of real time: the loop is really blocked, during commands to a real server.
    async with aclosing(RedisBucket(server.url, account=str(tmp_path), rate=100, burst=20)) as bucket:
        for seconds in (0.7, 0.7, 2.0):
            asyncio.get_running_loop().call_soon(time.sleep, seconds)
            await bucket.acquire()


@virtual
async def test_a_silent_server_is_reported_within_600_ms(line: RedisLine, tmp_path: Path) -> None:
    """Without a fallback, the request gets BucketUnavailableError, which does not blame the loop."""
    async with aclosing(line.bucket(str(tmp_path), rate=100, burst=20)) as bucket:
        await bucket.acquire()
        line.cut, began = True, loop_time()
        with pytest.raises(
            BucketUnavailableError,
            match=r"reached: connected in 0\.\d s, but no response to a command within 0\.5 s \(silent=\)$",
        ):
            await bucket.acquire()
        assert loop_time() - began < 0.6


async def test_a_stopped_server_is_reported() -> None:
    """Its connection stays open, and nothing is received."""
    with redis_server() as own:
        async with aclosing(RedisBucket(own.url, account="us", rate=100, burst=20)) as bucket:
            await bucket.acquire()
            own.signal(signal.SIGSTOP)
            with pytest.raises(BucketUnavailableError, match=r"no response to a command within 0\.5 s"):
                await bucket.acquire()


async def test_a_full_server_is_reported_or_the_fallback_paces() -> None:
    """One that may not evict refuses to store what a request would change."""
    from redis.asyncio import Redis

    with redis_server() as own:
        async with Redis.from_url(own.url) as client:
            await client.config_set("maxmemory-policy", "noeviction")
            await client.config_set("maxmemory", "1")
        async with aclosing(RedisBucket(own.url, account="us", rate=100, burst=20)) as bucket:
            with pytest.raises(BucketUnavailableError, match="OutOfMemoryError"):
                await bucket.acquire()
        fallback = TokenBucket(100, 20)
        async with aclosing(
            RedisBucket(own.url, account="us", rate=100, burst=20, fallback=fallback)
        ) as bucket:
            await bucket.acquire()
            assert bucket.stats().fallback


@virtual
@pytest.mark.parametrize("workers", [1, 4])
async def test_a_budget_is_spent_exactly_although_the_server_loses_its_state(
    line: RedisLine, tmp_path: Path, workers: int
) -> None:
    """150 over three processes are 150, whichever process comes first after each of three losses."""
    granted = 0

    async def work(bucket: Any, pause: float) -> None:
        nonlocal granted
        while True:
            try:
                await bucket.acquire()
                granted += 1
            except BucketUnavailableError:
                pass
            await asyncio.sleep(pause)

    async with AsyncExitStack() as stack:
        buckets = [line.bucket(str(tmp_path), rate=50, burst=5, daily_budget=150) for _ in range(3)]
        for each in buckets:
            await stack.enter_async_context(aclosing(each))
        # One of them seldom sends: what it saw is old when the server comes back empty.
        tasks = [
            asyncio.ensure_future(work(each, pause))
            for each, pause in zip(buckets, (0.01, 0.05, 0.7), strict=True)
            for _ in range(workers)
        ]
        for _ in range(3):
            await asyncio.sleep(0.8)
            line.cut = True
            await asyncio.sleep(0.6)
            line.cut = False
            await emptied(line)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, AllowanceExhaustedError) for each in ends)
    assert granted == 150


@virtual
async def test_a_process_that_saw_more_spent_corrects_a_restored_state(
    line: RedisLine, tmp_path: Path
) -> None:
    """The first process to reach an emptied server saw little; the other's knowledge is added later."""
    async with AsyncExitStack() as stack:
        idle, working = [
            await stack.enter_async_context(aclosing(line.bucket(str(tmp_path), rate=1000, burst=50)))
            for _ in range(2)
        ]
        await idle.acquire()
        for _ in range(9):
            await working.acquire()
        await emptied(line)
        for _ in range(5):
            await idle.acquire()
        assert idle.stats().spent_today == 6
        await working.acquire()
        assert working.stats().spent_today == 16
        await idle.acquire()
        assert idle.stats().spent_today == 17


@virtual
async def test_an_older_restore_does_not_bring_back_what_was_spent(line: RedisLine, tmp_path: Path) -> None:
    """What was spent after the backup, and after the restore, is added to it."""
    from redis.asyncio import Redis

    client = Redis.from_url(line.url)
    bucket, other = (line.bucket(str(tmp_path), rate=1000, burst=30) for _ in range(2))
    async with aclosing(bucket), aclosing(other):
        await bucket.acquire()
        (key,) = [each async for each in client.scan_iter(f"*{tmp_path.name}*")]
        older = await client.dump(key)
        for _ in range(3):
            await bucket.acquire()
        for _ in range(4):
            await other.acquire()
        await client.restore(key, 0, older, replace=True)
        await bucket.acquire()
        await other.acquire()
        assert other.stats().spent_today == 10
    await client.aclose()


@virtual
async def test_without_a_fallback_nothing_is_sent(line: RedisLine, tmp_path: Path) -> None:
    """Each waiter gets a separate error, and requests are granted again when the server responds."""
    async with aclosing(line.bucket(str(tmp_path), rate=10)) as bucket:
        await bucket.acquire()
        line.cut = True
        waiting = [bucket.acquire() for _ in range(3)]
        errors = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, BucketUnavailableError) for each in errors)
        assert len(set(map(id, errors))) == 3
        line.cut = False
        await bucket.acquire()


@virtual
async def test_a_refusal_while_the_server_is_away_pauses_the_fallback(
    line: RedisLine, tmp_path: Path
) -> None:
    """For as long as the service said; the rate is learned when the server responds again."""
    fallback = TokenBucket()
    async with aclosing(line.bucket(str(tmp_path), fallback=fallback)) as bucket:
        line.cut = True
        sent_at = await bucket.acquire()
        refused_at = loop_time()
        await bucket.refused(sent_at=sent_at, retry_after=2.2)
        paused_until = fallback.stats().paused_until
        assert paused_until is not None
        assert 2.2 <= paused_until - refused_at < 3.3
        line.cut = False
        await bucket.refused(sent_at=sent_at, retry_after=0.1)
        rate = bucket.stats().rate
        assert rate is not None
        assert rate > 0.5


@virtual
async def test_a_pause_and_a_used_up_allowance_reach_the_other_processes_at_once_after_an_outage(
    line: RedisLine, tmp_path: Path
) -> None:
    """The fallback still paces, but what the service has said is sent to the server without waiting."""
    helped = line.bucket(str(tmp_path), rate=1000, fallback=TokenBucket(1000))
    other = line.bucket(str(tmp_path), rate=1000)
    async with aclosing(helped), aclosing(other):
        sent_at = await helped.acquire()
        line.cut = True
        await helped.acquire()
        line.cut = False
        await helped.refused(sent_at=sent_at, retry_after=60)
        await helped.exhaust(60)
        with pytest.raises(AllowanceExhaustedError):
            await other.acquire()
        assert other.stats().paused_until is not None


@virtual
async def test_waiters_for_a_learned_rate_go_on_with_the_fallback(line: RedisLine, tmp_path: Path) -> None:
    """Also the one that is granted just when the server goes away: nothing can be learned from it."""
    fallback = TokenBucket(1000, 5)
    async with aclosing(line.bucket(str(tmp_path), fallback=fallback)) as bucket:
        await bucket.refused(sent_at=await bucket.acquire(), retry_after=0.05)
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(4)]
        await asyncio.sleep(0.02)
        assert bucket.stats().waiting["interactive"] == 4
        line.cut = True
        assert all(isinstance(each, float) for each in await asyncio.gather(*waiting))
        assert fallback.stats().granted >= 3


@virtual
async def test_an_allowance_used_up_while_the_server_is_away_rejects_the_waiters(
    line: RedisLine, tmp_path: Path
) -> None:
    """Waiters get the fallback's error, with the service's wait."""
    async with aclosing(line.bucket(str(tmp_path), burst=5, fallback=TokenBucket(0.1))) as bucket:
        line.cut = True
        await bucket.acquire()
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
        await asyncio.sleep(0.02)
        await bucket.exhaust(60)
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, AllowanceExhaustedError)
            assert each.retry_after == pytest.approx(60, abs=2)
        assert bucket.stats().burst == 5


@virtual
async def test_what_the_fallback_granted_is_booked_once(line: RedisLine, tmp_path: Path) -> None:
    """Operations that find the fallback's grants unbooked at the same time book them once."""
    async with aclosing(
        line.bucket(str(tmp_path), rate=1000, burst=20, fallback=TokenBucket(1000, 5))
    ) as bucket:
        await bucket.acquire()
        line.cut = True
        sent = [await bucket.acquire() for _ in range(3)]
        line.cut = False
        await asyncio.gather(*(bucket.refused(sent_at=sent[0], retry_after=0.01) for _ in range(3)))
        await bucket.acquire()
        assert bucket.stats().spent_today == 5


@virtual
async def test_a_fallback_s_grant_that_never_reached_the_service_is_not_charged(
    line: RedisLine, tmp_path: Path
) -> None:
    """Before its grants are booked, those that were unspent or given back are taken off them."""
    async with aclosing(
        line.bucket(str(tmp_path), rate=1000, burst=20, fallback=TokenBucket(1000, 5))
    ) as bucket:
        await bucket.acquire()
        line.cut = True
        sent = [await bucket.acquire() for _ in range(3)]
        await bucket.unspend(sent_at=sent[0])
        await bucket.give_back()
        assert bucket.stats().spent_today == 2
        line.cut = False
        await asyncio.sleep(2.1)
        await bucket.acquire()
        await asyncio.sleep(0.1)
        assert (await bucket.inspect()).spent_today == 3


@virtual
async def test_an_outage_is_logged_once(
    line: RedisLine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning when the fallback takes over, not one for each retry."""
    bucket = line.bucket(str(tmp_path), rate=10, fallback=TokenBucket(10))
    with caplog.at_level(logging.WARNING, "asyncfin"):
        async with aclosing(bucket), busy(bucket):
            await asyncio.sleep(1)
            line.cut = True
            await asyncio.sleep(20)
    assert len([each for each in caplog.records if "the fallback paces" in each.getMessage()]) == 1


async def test_a_killed_server_that_comes_back_empty_keeps_the_budget() -> None:
    """With a real server that is killed and started again."""
    with redis_server() as own:
        async with aclosing(RedisBucket(own.url, account="us", rate=1000, burst=9, daily_budget=6)) as bucket:
            for _ in range(4):
                await bucket.acquire()
            own.stop()
            with pytest.raises(BucketUnavailableError):
                await bucket.acquire()
            own.start()
            granted = 0
            with suppress(AllowanceExhaustedError):
                while True:
                    await bucket.acquire()
                    granted += 1
            assert granted == 2


def test_a_bucket_on_redis_cannot_be_pickled() -> None:
    """Its URL may contain a password."""
    bucket = RedisBucket("redis://user:s3cr3t@localhost", account="desk")
    with pytest.raises(TypeError, match="RedisBucket cannot be pickled"):
        pickle.dumps(bucket)
    assert "s3cr3t" not in repr(bucket)


@virtual
@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3, 0.4])
async def test_a_distant_server_grants_all_requests(delay: float, server: RedisServer) -> None:
    """Connecting takes several round trips, and is not taken for silence."""
    async with (
        distant(server.url, delay) as url,
        aclosing(RedisBucket(url, account=f"far {delay}")) as bucket,
    ):
        assert len([await bucket.acquire() for _ in range(9)]) == 9


@virtual
async def test_a_server_that_is_too_far_away_is_reported_by_what_it_did(server: RedisServer) -> None:
    """Requests wait up to five seconds for the first connection; the next ones fail until it is there."""
    async with distant(server.url, 3) as url, aclosing(RedisBucket(url, account="too far")) as bucket:
        began = loop_time()
        with pytest.raises(BucketUnavailableError, match=r"can't be reached: no connection within 5 s$"):
            await bucket.acquire()
        assert loop_time() - began == pytest.approx(5, abs=0.1)
        with pytest.raises(BucketUnavailableError, match="no connection within 5 s"):
            await bucket.acquire()
        assert loop_time() - began == pytest.approx(5, abs=0.1)
        await asyncio.sleep(12)
        with pytest.raises(
            BucketUnavailableError, match=r"connected in \d+\.\d s, but no response to a command"
        ):
            await bucket.acquire()


@virtual
async def test_a_patient_bucket_waits_longer_for_each_command(server: RedisServer) -> None:
    async with (
        distant(server.url, 0.8) as url,
        aclosing(RedisBucket(url, account="patient", silent=1.0)) as bucket,
    ):
        await bucket.acquire()
        began = loop_time()
        await bucket.acquire()
        assert loop_time() - began >= 0.8


@virtual
async def test_the_return_of_a_server_is_logged_with_what_the_fallback_has_granted(
    line: RedisLine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when the fallback begins, and one when it ends; `stats()` says which of them paces."""
    fallback = TokenBucket(100, 10)
    async with aclosing(line.bucket(str(tmp_path), rate=100, burst=10, fallback=fallback)) as bucket:
        await bucket.acquire()
        assert not bucket.stats().fallback
        line.cut = True
        for _ in range(5):
            await bucket.acquire()
        assert bucket.stats().fallback
        line.cut = False
        await asyncio.sleep(2)
        await bucket.acquire()  # begins the retry in the background
        await asyncio.sleep(0.1)
        await bucket.acquire()
        assert not bucket.stats().fallback
    begun, ended = [each.getMessage() for each in caplog.records]
    assert begun.endswith("(silent=): the fallback paces for now")
    assert ended.startswith("the Redis server of asyncfin:bucket:{")
    assert ended.endswith("responds again after 2.0 s; 6 requests were granted by the fallback")


@pytest.mark.parametrize("silent", [0, -1, "1", None, float("nan")])
def test_a_wrong_silent_is_refused(silent: Any) -> None:
    with pytest.raises(ArgumentError, match="silent"):
        RedisBucket("redis://localhost", account="desk", silent=silent)
