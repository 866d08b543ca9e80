"""What every bucket does: pace, lanes, pauses, allowance, cancellation, closing, and clocks that jump.

Two buckets of one state stand for two processes, in virtual time; test_bucket_processes.py has real ones.
"""

import asyncio
import logging
import pickle
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, pairwise
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from asyncfin import AllowanceExhaustedError, ArgumentError, FileBucket, RedisBucket, TokenBucket
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.shared_buckets import excess, loop_time, wall_clock

pytestmark = pytest.mark.virtual
Make = Callable[..., Any]
shared = pytest.mark.parametrize("make", ["file", "redis"], indirect=True)
MIDNIGHT = datetime(2023, 11, 15, tzinfo=UTC)
BEFORE_MIDNIGHT = 6_390.0  # of the loop's time, at 23:59:50


@pytest.fixture(params=["token", "file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Any) -> Make:
    """Return what makes buckets that share the state of a name; `ahead` is the error of their clock."""
    kind, token_buckets = request.param, dict[str, TokenBucket]()
    line = request.getfixturevalue("line") if kind == "redis" else None
    if kind == "file" and sys.platform == "win32":
        pytest.skip("Windows has no FileBucket")

    def make_bucket(ahead: Callable[[], float] = lambda: 0.0, *, name: str = "us", **settings: Any) -> Any:
        def clock() -> datetime:
            return wall_clock() + timedelta(seconds=ahead())

        if line is not None:
            settings["microseconds"] = lambda: round(clock().timestamp() * 1e6)
            return line.bucket(f"{tmp_path} {name}", **settings)
        if kind == "file":
            return FileBucket(tmp_path / name, clock=clock, **settings)
        if name not in token_buckets:
            token_buckets[name] = TokenBucket(clock=clock, **settings)
        return token_buckets[name]  # its state is its own

    return make_bucket


async def acquire_all(bucket: Any, count: int) -> list[Any]:
    """Acquire at once, and return the times of the grants and the errors."""
    return await asyncio.gather(*(bucket.acquire() for _ in range(count)), return_exceptions=True)


@pytest.mark.parametrize("is_returned", [True, False])
async def test_unpaced_requests_restart_gradually(is_returned: bool) -> None:
    """Without a rate all go at once; after a pause slowly first, whatever was returned in it."""
    assert max(await acquire_all(TokenBucket(), 1000)) == pytest.approx(0, abs=1e-5)
    bucket = TokenBucket()
    sent_at = await bucket.acquire()
    await bucket.refused(sent_at=sent_at, retry_after=60)
    if is_returned:
        await bucket.give_back()
    times = await acquire_all(bucket, 200)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert (times[0], gaps[0]) == (pytest.approx(60, abs=1e-5), pytest.approx(0.1, abs=1e-5))
    assert all(later <= earlier + 1e-5 for earlier, later in pairwise(gaps))
    assert gaps[-1] < 1e-5
    assert bucket.stats().rate is None


@shared
async def test_processes_get_equal_shares(make: Make) -> None:
    """Four processes of 1, 4, 16 and 32 workers, one of them in the bulk lane, use the limit."""
    grants: list[list[float]] = [[], [], [], []]

    async def work(bucket: Any, times: list[float], lane: str) -> None:
        while loop_time() < 30:
            times.append(await bucket.acquire(lane=lane))

    async with AsyncExitStack() as stack:
        users = []
        for index, workers in enumerate((1, 4, 16, 32)):
            bucket = await stack.enter_async_context(aclosing(make(rate=25, burst=5)))
            lane = "bulk" if index == 2 else "interactive"
            users += [work(bucket, grants[index], lane) for _ in range(workers)]
        await asyncio.gather(*users)
    counts = [sum(time < 30 for time in times) for times in grants]
    assert sum(counts) >= 0.97 * 25 * 30
    assert excess(list(chain(*grants)), 25, 5) < 0.1
    assert sum(counts) ** 2 / (4 * sum(count**2 for count in counts)) > 0.98


async def test_bulk_gets_every_tenth_grant(make: Make) -> None:
    """While both lanes wait; each lane in the order of its requests, without those that have left.

    An unknown lane is an error before anything waits in it.
    """
    order: list[tuple[str, int]] = []

    async def request(lane: str, number: int) -> None:
        await bucket.acquire(lane=lane)
        order.append((lane, number))

    async with aclosing(make(rate=10)) as bucket, asyncio.TaskGroup() as tasks:
        await bucket.acquire()
        with pytest.raises(ArgumentError, match="lane must be 'interactive' or 'bulk', not 'slow'"):
            await bucket.acquire(lane="slow")
        bulk = [tasks.create_task(request("bulk", number)) for number in range(4)]
        interactive = [tasks.create_task(request("interactive", number)) for number in range(26)]
        await asyncio.sleep(0.01)
        bulk[1].cancel()
        interactive[3].cancel()
    turns = {turn: number for turn, (lane, number) in enumerate(order) if lane == "bulk"}
    assert turns == {9: 0, 19: 2, 27: 3}
    assert [number for lane, number in order if lane == "interactive"] == [0, 1, 2, *range(4, 26)]


@shared
async def test_each_process_learns_for_itself(make: Make) -> None:
    """Behind the pause, which all share: a process that was served nothing has measured nothing."""
    async with aclosing(make()) as first, aclosing(make()) as second:
        sent = await acquire_all(first, 5)
        await second.acquire()
        await first.refused(sent_at=sent[-1], retry_after=3)
        later = [time - loop_time() for time in await acquire_all(second, 30)]
        assert (first.stats().rate, second.stats().rate) == (pytest.approx(4 / 3, rel=0.1), None)
        assert first.stats().learned
        assert later[1] - later[0] == pytest.approx(0.1, abs=0.02), "a restart is gradual"
        assert later[-1] - later[-5] < 0.02


@shared
@pytest.mark.parametrize("back", [0.0, 3600.0])
async def test_pause_of_others_lowers_rate(make: Make, back: float) -> None:
    """By a fifth at most, however long it seems to last to a clock that was set back; then it climbs."""
    shift = 0.0
    async with aclosing(make(lambda: shift)) as first, aclosing(make(lambda: shift)) as second:
        sent = await acquire_all(first, 5)
        await first.refused(sent_at=sent[-1], retry_after=1)
        for _ in range(9):
            await first.acquire()
        rate = first.stats().rate
        await second.refused(sent_at=await second.acquire(), retry_after=1)
        shift = -back
        waiting = asyncio.ensure_future(acquire_all(first, 20))
        await asyncio.sleep(0.9)
        assert 0.79 * rate < first.stats().rate < rate
        await waiting
        assert first.stats().rate > 1.5 * rate


async def test_exhaustion_reaches_all_waiters(make: Make) -> None:
    """Each gets a separate error at once; usage and limits wait for pace and pauses only."""
    async with aclosing(make(rate=20)) as first, aclosing(make(rate=20)) as second:
        await second.acquire()
        lanes = ["interactive", "bulk"] * 2
        waiting = asyncio.gather(*(second.acquire(lane=lane) for lane in lanes), return_exceptions=True)
        await asyncio.sleep(0)
        await first.exhaust(3600)
        await first.exhaust(60)
        errors: Any = await waiting
        assert len(set(map(id, errors))) == 4
        assert {type(error) for error in errors} == {AllowanceExhaustedError}
        assert max(error.retry_after for error in errors) == pytest.approx(3600, abs=1)
        assert {error.__context__ for error in errors} == {None}
        with pytest.raises(AllowanceExhaustedError, match="the allowance is used up"):
            await first.acquire()
        assert first.stats().exhausted_until == pytest.approx(errors[0].resume_at, abs=timedelta(seconds=1))
        await first.refused(sent_at=loop_time(), retry_after=5)
        began = loop_time()
        times = [await second.acquire(counts=False) - began for _ in range(2)]
        assert times == pytest.approx([5, 5.05], abs=0.01)
        assert second.stats().spent_today == 1
        await asyncio.sleep(3601)
        await second.acquire()
        assert second.stats().exhausted_until is None


async def test_daily_budget_is_enforced(make: Make) -> None:
    """Waiters without a place in the budget fail when it is used up; at midnight UTC it starts again."""
    settings = {"rate": 10, "daily_budget": 3}
    async with aclosing(make(**settings)) as first, aclosing(make(**settings)) as second:
        ends = [*await acquire_all(first, 2), *await acquire_all(second, 3)]
        assert [isinstance(end, float) for end in ends] == [True] * 3 + [False] * 2
        assert "daily budget of 3 is used up" in str(ends[-1])
        assert ends[-1].resume_at == MIDNIGHT
        assert second.stats().spent_today == 3
        await asyncio.sleep(BEFORE_MIDNIGHT + 11)
        await first.acquire()
        assert first.stats().spent_today == 1


async def test_unsent_requests_return_their_day(make: Make) -> None:
    """A request that never reached the service is taken off the day of its grant, not off the next."""
    async with aclosing(make(rate=100, burst=10, daily_budget=10)) as bucket:
        await asyncio.sleep(BEFORE_MIDNIGHT)
        evening = await acquire_all(bucket, 8)
        await bucket.unspend(sent_at=evening[0])
        assert bucket.stats().spent_today == 7
        await asyncio.sleep(20)
        morning = await acquire_all(bucket, 5)
        for sent_at in evening[1:]:
            await bucket.unspend(sent_at=sent_at)
        assert bucket.stats().spent_today == 5
        await bucket.unspend(sent_at=morning[0])
        assert bucket.stats().spent_today == 4


@pytest.mark.parametrize("counts", [True, False])
async def test_grant_cancelled_in_turn_returns(make: Make, counts: bool) -> None:
    """The next request gets it at once, and the day's budget has it back if it counts."""
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
        began = loop_time()
        assert await bucket.acquire() < began + 1
        assert bucket.stats().spent_today == bucket.stats().granted == 2


async def test_resume_ends_pause_of_waiters(make: Make) -> None:
    """Of another process, whose budget stays spent, within half a second and without a burst."""
    async with aclosing(make(rate=10, burst=3, daily_budget=5)) as first, aclosing(make()) as second:
        await first.refused(sent_at=await first.acquire(), retry_after=3600)
        waiting = asyncio.ensure_future(acquire_all(first, 3))
        await asyncio.sleep(10)
        began = loop_time()
        await second.resume()
        grants = await waiting
        assert min(grants) - began < 0.51
        assert excess(grants, 10, 1.1) < 0.1
        await second.exhaust(1e9)
        await second.resume()
        await first.acquire()
        with pytest.raises(AllowanceExhaustedError, match="daily budget"):
            await first.acquire()


async def test_resume_keeps_a_learned_rate(make: Make) -> None:
    """The process continues at its rate and without a burst, also if another one ended the pause."""
    async with aclosing(make()) as first, aclosing(make()) as second:
        sent = await acquire_all(first, 5)
        await first.refused(sent_at=sent[-1], retry_after=9)
        rate = first.stats().rate
        waiting = asyncio.ensure_future(acquire_all(first, 2))
        await asyncio.sleep(1)
        began = loop_time()
        await second.resume()
        times = await waiting
        assert times[0] - began < 0.51
        assert times[1] - times[0] == pytest.approx(1 / rate, rel=0.01)
        assert first.stats().rate == pytest.approx(rate, rel=0.1)


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


@shared
async def test_inspect_changes_nothing(make: Make) -> None:
    """Not the level, the day or the parameters, however often; `stats` shows who waits too."""
    settings = {"rate": 10, "burst": 2, "daily_budget": 50}
    async with aclosing(make(**settings)) as first, aclosing(make(rate=7)) as second:
        lanes = ["interactive"] * 3 + ["bulk"]
        waiting = [asyncio.ensure_future(first.acquire(lane=lane)) for lane in lanes]
        await asyncio.sleep(0.01)
        assert first.stats().waiting == {"interactive": 1, "bulk": 1}
        for _ in range(20):
            await second.inspect()
        for stats in (first.stats(), await second.inspect()):
            assert (stats.rate, stats.burst, stats.learned) == (10, 2, False)
            assert (stats.spent_today, stats.daily_budget, stats.left_today) == (2, 50, 48)
            assert stats.level == pytest.approx(0, abs=0.11)
        await asyncio.gather(*waiting)
        assert (first.stats().granted, first.stats().refused) == (4, 0)


@shared
async def test_clock_year_ahead_is_corrected(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """What it stored ends within a day, its spending is today's, and there is one warning."""
    ahead = [365 * 86_400.0]
    async with aclosing(make(lambda: ahead[0], rate=10, burst=5, daily_budget=5)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        await bucket.refused(sent_at=loop_time(), retry_after=30)
        await bucket.exhaust(30)
        ahead[0] = 0.0
        tomorrow, stats = loop_time() + 86_400, await bucket.inspect()
        assert (stats.spent_today, stats.paused_until) == (3, pytest.approx(tomorrow, abs=1))
        assert stats.exhausted_until - wall_clock() == pytest.approx(timedelta(1), abs=timedelta(seconds=1))
        with pytest.raises(AllowanceExhaustedError):
            await bucket.acquire()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await bucket.acquire(counts=False)
        ahead[0] = 86_400.0
        await bucket.acquire()
        assert bucket.stats().spent_today == 1
    assert len(caplog.records) == 1
    assert "clock was set back" in caplog.text


@shared
async def test_clock_set_back_empties_bucket(make: Make) -> None:
    """It fills at its rate from there, and nobody waits for the hour."""
    shift = 0.0
    async with aclosing(make(lambda: shift, rate=10, burst=3)) as bucket:
        await bucket.acquire()
        shift = -3600.0
        began = loop_time()
        times = [await bucket.acquire() - began for _ in range(3)]
        assert times == pytest.approx([0.1, 0.2, 0.3], abs=0.01)


async def test_clock_set_back_renews_no_budget(make: Make) -> None:
    """Back and forth over midnight, three are granted and not six."""
    shift = 0.0
    async with aclosing(make(lambda: shift, daily_budget=3)) as bucket:
        await asyncio.sleep(BEFORE_MIDNIGHT)
        ends = []
        for shift in (20.0, 0.0, 20.0, 0.0, 20.0, 86_400.0):
            ends += await acquire_all(bucket, 2 if shift else 1)
        assert sum(isinstance(end, float) for end in ends) == 3
        shift = 86_420.0
        assert sum(isinstance(end, float) for end in await acquire_all(bucket, 5)) == 3


@shared
async def test_raising_log_handler_leaves_no_waiter(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """A warning of the clock comes while requests wait: each is granted, or gets what the handler raised."""

    def stop(record: logging.LogRecord) -> None:
        raise KeyError(record)

    shift = 0.0
    async with aclosing(make(lambda: shift, rate=5, burst=1)) as bucket:
        await bucket.acquire()
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(caplog.handler, "emit", stop)
            shift = -3 * 86_400.0
            await asyncio.wait(waiting, timeout=10)
        assert all(task.done() for task in waiting)
        assert {type(task.exception()) for task in waiting} <= {KeyError, type(None)}
        shift = 0.0
        async with asyncio.timeout(90_000):
            await bucket.acquire()


@shared
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


def test_bucket_moves_to_next_loop() -> None:
    """Its pause counts on, and its old waiters are gone; two open loops at a time are an error."""
    bucket = TokenBucket(0.1)
    waiting: list[asyncio.Future[float]] = []

    async def use() -> None:
        await bucket.acquire()
        await bucket.refused(sent_at=0.0, retry_after=30)
        waiting.append(asyncio.ensure_future(bucket.acquire()))
        await asyncio.sleep(12)

    async def use_again() -> float:
        asyncio.get_running_loop().now = 13.0  # type: ignore[attr-defined]
        return await bucket.acquire()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as first:
        first.run(use())
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as second:
            with pytest.raises(RuntimeError, match="one bucket per loop"):
                second.run(use_again())
            first.close()
            assert second.run(use_again()) == pytest.approx(30, abs=1e-5)
    assert waiting[0].cancelled()


# Seconds before a request, its process, its lane, and what becomes of its grant.
REQUEST = st.tuples(
    st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.3]),
    st.integers(0, 1),
    st.sampled_from(["interactive", "bulk"]),
    st.sampled_from(["used", "used", "unsent", "returned", "rejected", "left"]),
)
NOW = (0.0, 0, "interactive")
FULL = [(*NOW, "used"), (*NOW, "returned"), *[(*NOW, "used")] * 3]


async def list_used(buckets: list[Any], requests: list[Any]) -> tuple[list[float], list[float]]:
    """Return the times of the grants that were not given back, and the ends of the pauses."""
    times, ends = list[float](), list[float]()

    async def send(bucket: Any, lane: str, outcome: str) -> None:
        async with asyncio.timeout(0.4 if outcome == "left" else None):
            sent_at = await bucket.acquire(lane=lane)
        if outcome == "returned":
            await bucket.give_back()
            return
        times.append(sent_at)
        if outcome == "unsent":
            await bucket.unspend(sent_at=sent_at)
        elif outcome == "rejected":
            await bucket.refused(sent_at=sent_at, retry_after=0.7)
            ends.append(loop_time() + 0.7)

    tasks = []
    for seconds, process, lane, outcome in requests:
        await asyncio.sleep(seconds)
        tasks.append(asyncio.create_task(send(buckets[process], lane, outcome)))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), TimeoutError}
    for bucket in buckets:
        async with asyncio.timeout(1.5):
            times.append(await bucket.acquire())
        assert bucket.stats().waiting == {"interactive": 0, "bulk": 0}
    for bucket in buckets:
        await bucket.aclose()
    return times, ends


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.lists(REQUEST, min_size=3, max_size=12))
@example(FULL)
def test_used_grants_keep_the_rate(make: Make, requests: list[Any]) -> None:
    """Of two processes, whatever is returned or left; none in a pause, no burst after it, nobody waits on."""
    rate, burst, name = 2.0, 2, uuid4().hex
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        buckets = [make(name=name, rate=rate, burst=burst) for _ in range(2)]
        times, ends = runner.run(list_used(buckets, requests))
    assert excess(times, rate, burst) < 1e-3
    for end in ends:
        later = sorted(time for time in times if time > end - 0.69)
        assert all(time > end - 0.01 for time in later)
        assert all(index <= rate * (time - end) + 0.1 for index, time in enumerate(later))


URL = "redis://user:secret@127.0.0.1:1/0"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no FileBucket")
@pytest.mark.parametrize(
    ("make", "argument", "values"),
    [
        (TokenBucket, "rate", (0, -1, float("inf"), "5")),
        (TokenBucket, "burst", (0.5, None)),
        (TokenBucket, "daily_budget", (0,)),
        (FileBucket, "path", ("", 5, b"bytes", "a\0b", URL)),
        (partial(RedisBucket, URL), "account", ("", 5)),
        (partial(RedisBucket, URL, account="us"), "fallback", (5,)),
        (partial(RedisBucket, account="us"), "redis", ("user:secret@host",)),
    ],
)
async def test_wrong_argument_is_named(make: Callable[..., object], argument: str, values: Any) -> None:
    """The error names the argument, and shows no password of a URL."""
    pytest.importorskip("redis")
    for value in values:
        with pytest.raises(ArgumentError, match=f"^{argument}") as caught:
            make(**{argument: value})
        assert "secret" not in str(caught.value)


def test_reprs_show_no_password() -> None:
    """A URL may contain one, so the bucket can't be pickled either."""
    pytest.importorskip("redis")
    bucket = RedisBucket(URL, account="us", rate=2, daily_budget=9)
    with pytest.raises(TypeError, match="RedisBucket cannot be pickled"):
        pickle.dumps(bucket)
    assert repr(bucket) == "RedisBucket(account='us', rate=2, burst=1, daily_budget=9)"
