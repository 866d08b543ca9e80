"""Buckets that processes share, over a file and over a real Redis server, in virtual time.

The processes here are buckets of one loop that share a state; test_bucket_processes.py
has real ones.
"""

import asyncio
import logging
import pickle
import random
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, ArgumentError, FileBucket, RedisBucket, TokenBucket
from tests.shared_buckets import excess, file_bucket, loop_time, microseconds, wall_clock

pytestmark = pytest.mark.virtual
Make = Callable[..., Any]
every_bucket = pytest.mark.parametrize("make", ["token", "file", "redis"], indirect=True)


@pytest.fixture(params=["file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return what makes buckets that share one state; `ahead` returns the seconds of its clock's error."""
    path = tmp_path / "bucket"
    if request.param == "token":
        return partial(TokenBucket, clock=wall_clock)
    if request.param == "file":

        def make_file(ahead: Callable[[], float] = lambda: 0.0, **settings: Any) -> Any:
            clock = lambda: wall_clock() + timedelta(seconds=ahead())  # noqa: E731
            return file_bucket(path, clock=clock, **settings)

        return make_file
    line = request.getfixturevalue("line")

    def make_redis(ahead: Callable[[], float] = lambda: 0.0, **settings: Any) -> Any:
        clock = lambda: microseconds() + round(ahead() * 1e6)  # noqa: E731
        return line.bucket(str(path), microseconds=clock, **settings)

    return make_redis


async def work(bucket: Any, end: float, grants: list[float], **options: Any) -> None:
    """Acquire until a moment, and note the grants."""
    while loop_time() < end:
        grants.append(await bucket.acquire(**options))


async def test_processes_get_equal_shares(make: Make) -> None:
    """Four processes of 1, 4, 16 and 32 workers, one of them in the bulk lane, use the limit."""
    async with AsyncExitStack() as stack:
        grants: list[list[float]] = [[], [], [], []]
        users = []
        for index, workers in enumerate((1, 4, 16, 32)):
            bucket = await stack.enter_async_context(aclosing(make(rate=25, burst=5)))
            lane = "bulk" if index == 2 else "interactive"
            users += [work(bucket, loop_time() + 30, grants[index], lane=lane) for _ in range(workers)]
        await asyncio.gather(*users)
    counts = [sum(at < grants[0][0] + 30 for at in row) for row in grants]
    total = sum(counts)
    assert total >= 0.97 * 25 * 30
    assert excess([at for row in grants for at in row], 25, 5) < 0.1
    assert total**2 / (4 * sum(count**2 for count in counts)) > 0.98


async def test_pause_is_shared_without_herd(make: Make) -> None:
    """Requests that wait in other processes wait for its end, and go one by one."""
    async with AsyncExitStack() as stack:
        buckets = [await stack.enter_async_context(aclosing(make(rate=20, burst=3))) for _ in range(4)]
        waiting = [asyncio.ensure_future(each.acquire()) for each in buckets for _ in range(3)]
        await asyncio.sleep(0.12)
        until = loop_time() + 2
        await buckets[0].refused(sent_at=loop_time(), retry_after=2)
        grants = [at for at in await asyncio.gather(*waiting) if at > until - 1.9]
        assert min(grants) >= until - 0.001
        assert excess(grants, 20, 1) < 0.1


async def test_each_process_learns_for_itself(make: Make) -> None:
    """Behind the pause, which all share: one that was served nothing has measured nothing."""
    async with aclosing(make()) as first, aclosing(make()) as second:
        sent = [await first.acquire() for _ in range(5)]
        await second.acquire()
        await first.refused(sent_at=sent[-1], retry_after=3)
        began = loop_time()
        assert await second.acquire() - began == pytest.approx(3, abs=0.01)
        assert (first.stats().rate, second.stats().rate) == (pytest.approx(4 / 3, rel=0.1), None)
        assert first.stats().learned
        later = await asyncio.gather(*(second.acquire() for _ in range(30)))
        assert later[0] - began == pytest.approx(3.1, abs=0.02), "a restart is gradual"
        assert later[-1] - later[-5] < 0.02


@pytest.mark.parametrize("back", [0.0, 3600.0])
async def test_pause_of_others_lowers_rate(make: Make, back: float) -> None:
    """By a fifth at most, however long it seems to last to a clock that was set back; then it climbs."""
    shift = 0.0
    async with aclosing(make(lambda: shift)) as first, aclosing(make(lambda: shift)) as second:
        sent = [await first.acquire() for _ in range(5)]
        await first.refused(sent_at=sent[-1], retry_after=1)
        for _ in range(9):
            await first.acquire()
        rate = first.stats().rate
        await second.refused(sent_at=await second.acquire(), retry_after=1)
        shift = -back
        waiting = [asyncio.ensure_future(first.acquire()) for _ in range(20)]
        await asyncio.sleep(0.9)
        assert 0.79 * rate < first.stats().rate < rate
        await asyncio.gather(*waiting)
        assert first.stats().rate > 1.5 * rate


async def test_clock_year_ahead_is_corrected(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Its pause ends within a day, its spending is today's, and there is one warning."""
    ahead = [365 * 86_400.0]
    async with aclosing(make(lambda: ahead[0], rate=10, burst=5, daily_budget=5)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        await bucket.refused(sent_at=loop_time(), retry_after=30)
        ahead[0] = 0.0
        began = loop_time()
        stats = await bucket.inspect()
        assert (stats.spent_today, stats.paused_until) == (3, pytest.approx(began + 86_400, abs=1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await bucket.acquire()
        ahead[0] = 86_400.0
        await bucket.acquire()
        assert bucket.stats().spent_today == 1
    assert len(caplog.records) == 1
    assert "clock was set back" in caplog.text


async def test_raising_log_handler_leaves_no_waiter(make: Make) -> None:
    """A warning of the clock comes while requests wait: each is granted, or gets what the handler raised."""

    class StopError(BaseException):
        pass

    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise StopError

    shift = 0.0
    handler, log = Raising(), logging.getLogger("asyncfin")
    async with aclosing(make(lambda: shift, rate=5, burst=1)) as bucket:
        await bucket.acquire()
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        log.addHandler(handler)
        try:
            shift = -3 * 86_400.0
            await asyncio.wait(waiting, timeout=10)
        finally:
            log.removeHandler(handler)
        assert all(task.done() for task in waiting)
        assert {type(task.exception()) for task in waiting} <= {StopError, type(None)}
        shift = 0.0
        async with asyncio.timeout(90_000):
            await bucket.acquire()


async def test_resume_reaches_learning_processes(make: Make) -> None:
    """What a process has learned stays."""
    async with aclosing(make()) as first, aclosing(make()) as second:
        sent = [await first.acquire() for _ in range(5)]
        await first.refused(sent_at=sent[-1], retry_after=9)
        rate = first.stats().rate
        waiting = asyncio.ensure_future(first.acquire())
        await asyncio.sleep(1)
        began = loop_time()
        await second.resume()
        assert await waiting - began < 0.51
        assert first.stats().rate == pytest.approx(rate)


async def test_resume_ends_pause_of_waiters(make: Make) -> None:
    """Of another process, whose rate and budget stay, within half a second and without a burst."""
    async with aclosing(make(rate=10, burst=3, daily_budget=9)) as first, aclosing(make()) as second:
        await first.refused(sent_at=await first.acquire(), retry_after=3600)
        waiting = [asyncio.ensure_future(first.acquire()) for _ in range(3)]
        await asyncio.sleep(10)
        began = loop_time()
        await second.resume()
        grants = await asyncio.gather(*waiting)
        assert min(grants) - began < 0.51
        assert excess(grants, 10, 1.1) < 0.1
        stats = await second.inspect()
        assert (stats.rate, stats.daily_budget, stats.spent_today) == (10, 9, 4)
        await second.exhaust(1e9)
        await second.resume()
        await first.acquire()


@every_bucket
async def test_stats_keep_end_of_pause(make: Make) -> None:
    """Also while no request reads the shared state: it ends when it ends, as a used-up allowance does."""
    async with aclosing(make(rate=10)) as bucket:
        sent_at = await bucket.acquire()
        await bucket.refused(sent_at=sent_at, retry_after=30)
        await bucket.exhaust(40)
        until, again = bucket.stats().paused_until, bucket.stats().exhausted_until
        assert until == pytest.approx(loop_time() + 30, abs=0.01)
        await asyncio.sleep(20)
        assert bucket.stats().paused_until == pytest.approx(until, abs=0.01)
        await asyncio.sleep(11)
        assert (bucket.stats().paused_until, bucket.stats().exhausted_until) == (None, again)
        await asyncio.sleep(11)
        assert bucket.stats().exhausted_until is None


async def test_exhaustion_is_shared(make: Make) -> None:
    """The waiters of another bucket fail at their next moment."""
    async with aclosing(make(rate=20)) as one, aclosing(make(rate=20)) as other:
        await other.acquire()
        waiting = [asyncio.ensure_future(other.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        await one.exhaust(60)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(each, AllowanceExhaustedError) for each in ends) >= 2
        with pytest.raises(AllowanceExhaustedError, match="the allowance is used up"):
            await one.acquire()
        await other.acquire(counts=False)
        assert one.stats().exhausted_until is not None


@every_bucket
async def test_unsent_requests_are_not_spent(make: Make) -> None:
    """A grant given back is free again, a request that was not sent keeps its place in the pace."""
    async with aclosing(make(rate=100, burst=5, daily_budget=4)) as bucket:
        sent = [await bucket.acquire() for _ in range(4)]
        await bucket.unspend(sent_at=sent[0])
        await bucket.give_back()
        await asyncio.sleep(0.001)
        assert bucket.stats().spent_today == 2
        await bucket.acquire()
        await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 4"):
            await bucket.acquire()


async def test_random_time_limits_leave_nothing_behind(make: Make) -> None:
    """A request that is not granted in time leaves nothing behind, and the others keep the pace."""
    chance = random.Random(4)
    async with aclosing(make(rate=150, burst=3)) as one, aclosing(make(rate=150, burst=3)) as other:

        async def wait(bucket: Any) -> float:
            async with asyncio.timeout(chance.uniform(0, 1.5)):
                return float(await bucket.acquire())

        ends = await asyncio.gather(
            *(wait(chance.choice([one, other])) for _ in range(400)), return_exceptions=True
        )
        grants = [each for each in ends if isinstance(each, float)]
        assert all(isinstance(each, (float, TimeoutError)) for each in ends)
        assert len(grants) > 50
        assert excess(grants, 150, 3) <= 3
        async with asyncio.timeout(5):
            await asyncio.gather(one.acquire(), other.acquire())
        assert one.stats().waiting == {"interactive": 0, "bulk": 0}


@pytest.mark.parametrize("steps", range(6))
async def test_close_in_any_step_rejects(make: Make, steps: int) -> None:
    """Waiters and new requests get a RuntimeError, and no task is left behind."""
    before = asyncio.all_tasks()
    bucket = make(rate=0.1)
    await bucket.acquire()
    waiting = asyncio.ensure_future(bucket.acquire())
    for _ in range(steps):
        await asyncio.sleep(0)
    await bucket.aclose()
    async with asyncio.timeout(60):
        for request in (waiting, bucket.acquire()):
            with pytest.raises(RuntimeError, match="is closed"):
                await request
    assert asyncio.all_tasks() - {waiting} == before


async def test_inspect_changes_nothing(make: Make) -> None:
    """Not the level, the day, the parameters or what is booked, however often."""
    async with aclosing(make(rate=10, burst=3, daily_budget=50)) as one, aclosing(make(rate=7)) as other:
        for _ in range(3):
            await one.acquire()
        before = await one.inspect()
        for _ in range(20):
            seen = await other.inspect()
        assert (seen.rate, seen.burst, seen.daily_budget, seen.learned) == (10, 3, 50, False)
        after = await one.inspect()
        assert (after.spent_today, after.rate) == (before.spent_today, 10)
        assert after.level == pytest.approx(before.level, abs=0.01)


@pytest.mark.parametrize("counts", [True, False])
@every_bucket
async def test_grant_cancelled_in_turn_returns(make: Make, counts: bool) -> None:
    """The next one gets it at once, and the day's budget has it back if it counts."""
    async with aclosing(make(rate=0.1, burst=1, daily_budget=50)) as bucket:
        await bucket.acquire()
        waiting = asyncio.ensure_future(bucket.acquire(counts=counts))
        await asyncio.sleep(9.999999)
        while bucket.stats().granted == 1:  # noqa: ASYNC110  each turn of the loop matters
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert bucket.stats().granted == 1
        began = asyncio.get_running_loop().time()
        assert await bucket.acquire() < began + 1
        assert bucket.stats().spent_today == bucket.stats().granted == 2


def test_reprs_show_no_password(tmp_path: Path) -> None:
    """A URL may hold one."""
    pytest.importorskip("redis")
    bucket = RedisBucket("redis://user:secret@127.0.0.1:1/0", account="us", rate=2, daily_budget=9)
    with pytest.raises(TypeError, match="RedisBucket cannot be pickled"):
        pickle.dumps(bucket)
    assert repr(bucket) == "RedisBucket(account='us', rate=2, burst=1, daily_budget=9)"
    assert repr(FileBucket("/tmp/b", 5, 2)) == "FileBucket('/tmp/b', rate=5, burst=2, daily_budget=None)"
    with pytest.raises(ArgumentError) as caught:
        RedisBucket("user:secret@host", account="us")
    assert "secret" not in str(caught.value)
    with pytest.raises(ArgumentError, match="not a URL; a Redis server is for a RedisBucket") as caught:
        FileBucket("redis://user:secret@host/0")
    assert "secret" not in str(caught.value)
    for wrong in ({"account": ""}, {"account": 5}, {"account": "us", "fallback": 5}):
        with pytest.raises(ArgumentError):
            RedisBucket("redis://127.0.0.1:1", **wrong)
