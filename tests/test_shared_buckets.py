"""Buckets that processes share, over a file and over a real Redis server: one bucket's promises, for all.

Time is real wherever processes take part; what is said of it are bounds, not durations.
"""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import asyncfin
from asyncfin import (
    AllowanceExhaustedError,
    ArgumentError,
    Bucket,
    BucketUnavailableError,
    FileBucket,
    RedisBucket,
    TokenBucket,
)
from tests.shared_buckets import RedisServer, excess, grants_of_processes, make_bucket, redis_server

NOON = datetime(2024, 5, 7, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(params=["file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Return what makes buckets that share one state."""
    if request.param == "file":
        return partial(make_bucket, "file", str(tmp_path / "bucket"))
    url = request.getfixturevalue("server").url
    return partial(RedisBucket, url, account=str(tmp_path))


async def test_is_a_bucket_and_grants_the_burst_at_once_and_the_rest_at_the_rate(
    make: Callable[..., Any],
) -> None:
    """Two in one process take turns, in the order of their own waiters."""
    async with aclosing(make(rate=40, burst=4)) as one, aclosing(make(rate=40, burst=4)) as other:
        assert isinstance(one, Bucket)
        await one.acquire()
        await other.acquire()
        grants = await asyncio.gather(*(each.acquire() for each in (one, other) for _ in range(10)))
        assert grants[:10] == sorted(grants[:10])
        assert excess(grants, 40, 4) <= 2
        assert one.stats().granted == other.stats().granted == 11


async def test_interactive_takes_the_moment_that_was_booked_for_bulk(make: Callable[..., Any]) -> None:
    """Who comes later in the better lane goes first."""
    async with aclosing(make(rate=4)) as bucket:
        await bucket.acquire()
        order: list[str] = []

        async def one(lane: Any) -> None:
            await bucket.acquire(lane=lane)
            order.append(lane)

        bulk = asyncio.ensure_future(one("bulk"))
        await asyncio.sleep(0.1)
        await asyncio.gather(one("interactive"), bulk)
        assert order == ["interactive", "bulk"]


async def test_a_pause_is_seen_by_all_and_is_followed_by_no_herd(make: Callable[..., Any]) -> None:
    """What was booked before a pause is booked again, so that no herd follows the pause."""
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        buckets = [await stack.enter_async_context(aclosing(make(rate=20))) for _ in range(4)]
        waiting = [asyncio.ensure_future(each.acquire()) for each in buckets for _ in range(3)]
        await asyncio.sleep(0.12)
        paused_at = loop.time()
        await buckets[0].refused(sent_at=paused_at, retry_after=0.5)
        told_at = loop.time()
        grants = [at for at in await asyncio.gather(*waiting) if at > told_at + 0.05]
        assert min(grants) >= paused_at + 0.49
        assert excess(grants, 20, 1) <= 2


async def test_an_exhausted_allowance_is_that_of_all_but_not_of_what_does_not_count(
    make: Callable[..., Any],
) -> None:
    """Those who wait in another bucket are told at their next moment."""
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


async def test_a_budget_over_many_buckets_is_spent_exactly(make: Callable[..., Any]) -> None:
    """Sixty over eight: sixty are granted, and not one more, for all that ask at once."""
    async with AsyncExitStack() as stack:
        buckets = [
            await stack.enter_async_context(aclosing(make(rate=1000, burst=10, daily_budget=60)))
            for _ in range(8)
        ]
        ends = await asyncio.gather(
            *(each.acquire() for each in buckets for _ in range(12)), return_exceptions=True
        )
        assert sum(isinstance(each, float) for each in ends) == 60
        assert sum(isinstance(each, AllowanceExhaustedError) for each in ends) == 36
        assert buckets[0].stats().daily_budget == 60


async def test_what_is_given_back_or_never_reached_the_service_is_off_the_day(
    make: Callable[..., Any],
) -> None:
    """A grant given back is free again, a request that was not sent keeps its place in the pace."""
    async with aclosing(make(rate=100, burst=5, daily_budget=4)) as bucket:
        sent = [await bucket.acquire() for _ in range(4)]
        await bucket.unspend(sent_at=sent[0])
        await bucket.give_back()
        assert bucket.stats().spent_today == 2
        await bucket.acquire()
        await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 4"):
            await bucket.acquire()


async def test_a_cancelled_wait_loses_no_moment(make: Callable[..., Any]) -> None:
    """The moment goes to the next in line; if nobody waits, it is returned."""
    async with aclosing(make(rate=5)) as bucket:
        began = await bucket.acquire()
        first, second = (asyncio.ensure_future(bucket.acquire()) for _ in range(2))
        await asyncio.sleep(0.05)
        first.cancel()
        assert await second - began < 0.35
        third = asyncio.ensure_future(bucket.acquire())
        await asyncio.sleep(0.05)
        third.cancel()
        await asyncio.sleep(0.3)
        assert bucket.stats().waiting == {"interactive": 0, "bulk": 0}
        at = asyncio.get_running_loop().time()
        assert await bucket.acquire() - at < 0.15


async def test_a_cancelled_wait_returns_all_of_its_weight(make: Callable[..., Any]) -> None:
    """A cancelled wait returns all of its weight, and books no more than it while it waits."""
    async with aclosing(make(rate=0.01, burst=4)) as bucket:
        await bucket.acquire(4)
        waiting = asyncio.ensure_future(bucket.acquire(2))
        await asyncio.sleep(0.1)
        assert bucket.stats().level == pytest.approx(-2, abs=0.1)
        waiting.cancel()
        await asyncio.sleep(0.7)
        assert bucket.stats().level == pytest.approx(0, abs=0.1)


async def test_four_hundred_waiters_with_random_time_limits(make: Callable[..., Any]) -> None:
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


async def test_bursts_of_waiters_with_short_gaps_all_wake_up(make: Callable[..., Any]) -> None:
    """A request that arrives just as the one before has been served is served too."""
    chance = random.Random(5)
    async with aclosing(make(rate=2000, burst=50)) as bucket, asyncio.timeout(60):
        for _ in range(150):
            await asyncio.gather(*(bucket.acquire() for _ in range(chance.randint(1, 4))))
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.003, 0.005]))


async def test_who_comes_while_a_booking_is_returned_is_not_forgotten(make: Callable[..., Any]) -> None:
    """The one it was for has left; the next one comes at any moment of its return."""
    chance = random.Random(6)
    async with aclosing(make(rate=100)) as bucket:
        for _ in range(120):
            leaving = asyncio.ensure_future(bucket.acquire())
            await asyncio.sleep(0.002)
            leaving.cancel()
            await asyncio.sleep(chance.uniform(0, 0.012))
            async with asyncio.timeout(10):
                await bucket.acquire()


async def test_a_learned_rate_is_learned_by_all(make: Callable[..., Any]) -> None:
    """One is refused, and the other's pace follows."""
    async with aclosing(make()) as one, aclosing(make()) as other:
        sent = [await one.acquire() for _ in range(5)]
        await other.acquire()
        await one.refused(sent_at=sent[-1], retry_after=0.1)
        await other.acquire()
        assert one.stats().learned
        assert other.stats().rate == pytest.approx(one.stats().rate, rel=0.2)


async def test_the_last_to_start_sets_the_parameters_and_a_warning_names_both(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A budget or rate that differs by mistake is heard of."""
    async with aclosing(make(rate=50)) as first, aclosing(make(rate=20, burst=2)) as last:
        await first.acquire()
        await last.acquire()
        await first.acquire()
        assert (first.stats().rate, first.stats().burst) == (20, 2)
    (record,) = [each for each in caplog.records if each.name == "asyncfin"]
    assert "50" in record.getMessage()
    assert "20" in record.getMessage()


async def test_a_closed_bucket_turns_away_who_waits_and_who_comes(make: Callable[..., Any]) -> None:
    """A closed bucket turns away those who wait and those who come, and leaves no task behind."""
    before = asyncio.all_tasks()
    bucket = make(rate=0.1)
    await bucket.acquire()
    waiting = asyncio.ensure_future(bucket.acquire())
    await asyncio.sleep(0.05)
    await bucket.aclose()
    for each in (waiting, bucket.acquire()):
        with pytest.raises(RuntimeError, match="is closed"):
            await each
    assert asyncio.all_tasks() == before


def test_moves_to_a_new_loop_once_the_old_one_is_closed(make: Callable[..., Any]) -> None:
    """The state is not the loop's."""
    bucket = make(rate=1000, burst=5)
    for _ in range(2):
        asyncio.run(bucket.acquire())
    assert bucket.stats().granted == 2


@pytest.mark.parametrize(
    "settings", [{"rate": 0}, {"rate": "5"}, {"burst": 0.5}, {"daily_budget": 0}, {"daily_budget": True}]
)
def test_impossible_settings_are_refused_by_name(make: Callable[..., Any], settings: dict[str, Any]) -> None:
    """Impossible settings are refused by name, as by a TokenBucket."""
    with pytest.raises(ArgumentError, match=next(iter(settings))):
        make(**settings)


async def test_an_impossible_weight_or_lane_is_refused(make: Callable[..., Any]) -> None:
    """Before anything is booked."""
    async with aclosing(make(rate=5, burst=2)) as bucket:
        for weight in (0, 3, "1", float("nan")):
            with pytest.raises(ArgumentError, match="weight"):
                await bucket.acquire(weight)
        with pytest.raises(ArgumentError, match="lane"):
            await bucket.acquire(lane="slow")
        assert bucket.stats().granted == 0


@pytest.mark.parametrize("workers", [[1, 4, 8, 16]])
def test_processes_keep_one_pace_and_have_equal_shares(make: Callable[..., Any], workers: list[int]) -> None:
    """Never more than burst, rate and two over all; those that are always busy get the same."""
    grants = grants_of_processes(partial(make, rate=40, burst=5), workers, 4.0)
    together = [at for each in grants for at in each]
    assert excess(together, 40, 5) <= 2
    shares = [len(each) for each in grants]
    assert sum(shares) ** 2 / (len(shares) * sum(each**2 for each in shares)) >= 0.95


def test_a_budget_over_processes_is_spent_exactly(make: Callable[..., Any]) -> None:
    """Eight of them, sixty in all."""
    grants = grants_of_processes(partial(make, rate=500, burst=5, daily_budget=60), [1] * 8, 2.0)
    assert sum(map(len, grants)) == 60


def test_a_bucket_made_before_a_fork_is_opened_anew_in_the_child(make: Callable[..., Any]) -> None:
    """Parent and child share the state, and no descriptor or connection."""
    bucket = make(rate=1000, burst=10, daily_budget=3)
    asyncio.run(bucket.acquire())
    if not (child := os.fork()):
        try:
            asyncio.run(bucket.acquire())
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    asyncio.run(bucket.acquire())
    with pytest.raises(AllowanceExhaustedError):
        asyncio.run(bucket.acquire())


def test_parent_and_child_of_a_fork_spend_one_budget_at_the_same_time(make: Callable[..., Any]) -> None:
    """Parent and child of a fork share one budget, and no lock or connection."""
    # Paced, so that neither can spend it all before the other has begun.
    bucket = make(rate=2000, burst=1, daily_budget=800)
    asyncio.run(bucket.acquire())
    (reader, writer), (ready, go) = os.pipe(), os.pipe()
    if not (child := os.fork()):
        try:
            os.write(go, b"!")
            os.write(writer, str(asyncio.run(_spend(bucket))).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.read(ready, 1)
    mine = asyncio.run(_spend(bucket))
    _, status = os.waitpid(child, 0)
    theirs = int(os.read(reader, 99))
    for end in (reader, writer, ready, go):
        os.close(end)
    assert status == 0
    assert min(mine, theirs) > 10, "both were at it"
    assert 1 + mine + theirs == 800


async def _spend(bucket: Any) -> int:
    """Acquire until the day's budget is spent, and return how often."""
    count = 0
    with suppress(AllowanceExhaustedError):
        while True:
            await bucket.acquire()
            count += 1
    return count


HOLDER = """
import asyncio, sys
from asyncfin import AllowanceExhaustedError, FileBucket, RedisBucket

async def main():
    kind, place, account, rate = sys.argv[1:]
    settings = {"rate": float(rate), "burst": 2}
    file = kind == "file"
    bucket = FileBucket(place, **settings) if file else RedisBucket(place, account=account, **settings)
    await bucket.acquire()
    print("ready", flush=True)
    await asyncio.gather(*(without_end(bucket) for _ in range(8)))

async def without_end(bucket):
    while True:
        try:
            print(await bucket.acquire(), flush=True)
        except AllowanceExhaustedError:
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


@asynccontextmanager
async def holders(
    kind: str, place: str, account: str, rate: float, count: int = 1
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Give processes that acquire without end, each of which has been granted once, and end them."""
    arguments = (sys.executable, "-c", HOLDER, kind, place, account, str(rate))
    started = [await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for each in started:
            assert each.stdout is not None
            await each.stdout.readline()
        yield started
    finally:
        for each in started:
            if each.returncode is None:
                each.kill()
        await asyncio.gather(*(each.wait() for each in started))


async def granted(stopped: list[asyncio.subprocess.Process]) -> list[float]:
    """End the processes, and return when they were granted."""
    for each in stopped:
        each.kill()
    outs = [(await each.communicate())[0] for each in stopped]
    return [float(line) for out in outs for line in out.splitlines()]


def placed(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Return where the state of a kind is, and what makes buckets there."""
    if kind == "file":
        return str(tmp_path / "bucket"), partial(FileBucket, tmp_path / "bucket")
    url = request.getfixturevalue("server").url
    return url, partial(RedisBucket, url, account=str(tmp_path))


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_a_process_that_is_stopped_with_a_booking_holds_up_nobody(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The moment of a stopped process is lost and the others go on; continued, it books again."""
    place, make = placed(kind, tmp_path, request)
    loop = asyncio.get_running_loop()
    async with (
        holders(kind, place, str(tmp_path), 20, 4) as others,
        aclosing(make(rate=20, burst=2)) as bucket,
    ):
        grants = [await bucket.acquire() for _ in range(4)]
        for each in others:
            each.send_signal(signal.SIGSTOP)
        stopped_at = loop.time()
        async with asyncio.timeout(20):
            alone = [await bucket.acquire() for _ in range(24)]
        # What the four had booked is lost, and little more: a moment that the test itself is late for.
        assert alone[-1] - stopped_at < 2 * 24 / 20
        for each in others:
            each.send_signal(signal.SIGCONT)
        grants += alone + [await bucket.acquire() for _ in range(8)]
        theirs = await granted(others)
        assert not [at for at in theirs if stopped_at + 0.05 < at < alone[-1]]
        assert [at for at in theirs if at > alone[-1]], "they went on"
        assert excess([*grants, *theirs], 20, 2) <= 2


@pytest.mark.parametrize("kind", ["file", "redis"])
@pytest.mark.parametrize("event", ["pause", "exhaustion"])
async def test_processes_see_a_pause_and_a_used_up_allowance_at_their_next_moment(
    event: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A pause or used-up allowance stops all processes within 50 ms, until it is over."""
    place, make = placed(kind, tmp_path, request)
    loop = asyncio.get_running_loop()
    async with (
        holders(kind, place, str(tmp_path), 40, 3) as others,
        aclosing(make(rate=40, burst=2)) as bucket,
    ):
        sent_at = [await bucket.acquire() for _ in range(8)][-1]
        if event == "pause":
            await bucket.refused(sent_at=sent_at, retry_after=1.0)
        else:
            await bucket.exhaust(1.0)
        told_at = loop.time()
        await asyncio.sleep(1.6)
        theirs = await granted(others)
    assert [at for at in theirs if at < told_at]
    assert not [at for at in theirs if told_at + 0.05 < at < told_at + 0.95]
    assert [at for at in theirs if at > told_at + 0.95], "it was over"
    assert excess(theirs, 40, 2) <= 2


async def test_wall_clocks_a_day_apart_change_neither_pace_nor_pauses(tmp_path: Path) -> None:
    """The shared clock is another one; of budgets there is one for each day that a clock shows."""
    ahead = {"clock": lambda: datetime.now(UTC) + timedelta(days=1)}
    make = partial(FileBucket, tmp_path / "bucket", 40, 3)
    loop = asyncio.get_running_loop()
    async with aclosing(make()) as one, aclosing(make(**ahead)) as other:
        grants = await asyncio.gather(*(each.acquire() for each in (one, other) for _ in range(15)))
        assert excess(grants, 40, 3) <= 2
        assert one.stats().granted == other.stats().granted == 15
        for pausing, paused in ((one, other), (other, one)):
            began = loop.time()
            await pausing.refused(sent_at=began, retry_after=0.2)
            assert 0.2 <= await paused.acquire() - began < 0.5
    make = partial(FileBucket, tmp_path / "budget", 1000, 30, daily_budget=10)
    async with aclosing(make()) as one, aclosing(make(**ahead)) as other:
        ends = [
            await asyncio.gather(each.acquire(), return_exceptions=True)
            for _ in range(30)
            for each in (one, other)
        ]
    assert sum(isinstance(end, float) for (end,) in ends) == 11, "one on the first day, ten on the next"


def test_processes_whose_wall_clocks_are_a_day_apart_keep_one_pace(tmp_path: Path) -> None:
    """Processes whose wall clocks are a day apart keep one pace by the monotonic clock that they share."""
    make = partial(make_bucket, "file", str(tmp_path / "bucket"), rate=40, burst=5)
    grants = grants_of_processes(make, [4, 4, 4], 2.5, partial(make, clock=_a_day_ahead))
    together = [at for each in grants for at in each]
    assert excess(together, 40, 5) <= 2
    shares = [len(each) for each in grants]
    assert sum(shares) ** 2 / (len(shares) * sum(each**2 for each in shares)) >= 0.95


def _a_day_ahead() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize("step", [-86_400, 86_400])
async def test_a_server_whose_clock_is_set_stops_nobody(
    step: int, server: RedisServer, tmp_path: Path
) -> None:
    """Waiters are granted at the pace; where it is set back, a pause is as long as it was."""
    offset = [0]
    clock = {"microseconds": lambda: time.time_ns() // 1000 + offset[0] * 1_000_000}
    loop = asyncio.get_running_loop()
    bucket = RedisBucket(server.url, account=str(tmp_path), rate=20, burst=2, **clock)
    async with aclosing(bucket), asyncio.timeout(20):
        grants = [await bucket.acquire() for _ in range(3)]
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(6)]
        await asyncio.sleep(0.12)
        offset[0] += step
        grants += await asyncio.gather(*waiting)
        grants += [await bucket.acquire() for _ in range(3)]
        assert excess(grants, 20, 2) <= 2 + (2 if step > 0 else 0), "ahead, the bucket is full once more"
        if step < 0:
            began = loop.time()
            await bucket.refused(sent_at=grants[-1], retry_after=0.6)
            offset[0] += step
            assert 0.55 <= await bucket.acquire() - began < 1.5


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_a_process_killed_at_any_time_holds_up_nobody(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Six are killed in their work; the state stays whole and the pace holds."""
    place, make = placed(kind, tmp_path, request)
    chance, grants = random.Random(7), list[float]()
    async with (
        holders(kind, place, str(tmp_path), 50, 6) as others,
        aclosing(make(rate=50, burst=2)) as bucket,
    ):
        for each in others:
            await asyncio.sleep(chance.uniform(0, 0.1))
            each.kill()
            async with asyncio.timeout(20):
                grants += [await bucket.acquire() for _ in range(3)]
    assert len(grants) == 18
    assert excess(grants, 50, 2) <= 2


async def test_a_reboot_forgets_the_level_and_keeps_the_day(tmp_path: Path) -> None:
    """A stamp from the future is from before the clock was restarted."""
    uptime = [90_000.0]
    settings: dict[str, Any] = {"rate": 0.001, "daily_budget": 3}
    options: dict[str, Any] = {
        "clock": lambda: NOON,
        "monotonic": lambda: uptime[0],
        "boot_id": lambda: "first" if uptime[0] > 100 else "second",
    }
    async with aclosing(FileBucket(tmp_path / "bucket", **settings, **options)) as bucket:
        await bucket.acquire()
    uptime[0] = 12.0
    async with aclosing(FileBucket(tmp_path / "bucket", **settings, **options)) as bucket:
        await bucket.acquire()
        assert bucket.stats().spent_today == 2


async def test_a_wall_clock_set_back_over_midnight_brings_no_new_budget(tmp_path: Path) -> None:
    """A wall clock set back over midnight brings no new budget, as in one process."""
    wall = [datetime(2024, 5, 8, 0, 0, 5, tzinfo=UTC)]
    async with aclosing(FileBucket(tmp_path / "b", 1000, 5, daily_budget=2, clock=lambda: wall[0])) as bucket:
        await bucket.acquire()
        wall[0] -= timedelta(seconds=10)
        await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError) as caught:
            await bucket.acquire()
        assert caught.value.resume_at == datetime(2024, 5, 9, tzinfo=UTC)
        wall[0] = datetime(2024, 5, 9, tzinfo=UTC)
        await bucket.acquire()


async def test_a_damaged_file_begins_anew_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged file starts over with a warning, and raises no other error, whatever stands in it."""
    chance, path = random.Random(3), tmp_path / "bucket"
    async with aclosing(FileBucket(path, 1000, 100)) as bucket:
        await bucket.acquire()
        whole = path.read_bytes()
        for _ in range(50):
            spoilt = bytearray(whole)
            spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
            path.write_bytes(spoilt[: chance.randrange(len(spoilt) + 1)] if chance.random() < 0.3 else spoilt)
            await bucket.acquire()
    assert any("was damaged" in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize("text", ["id,name,aliases\n", "AFTER", "x = 1\n" * 1000])
async def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    """Such as that of names, where the bucket's was meant."""
    path = tmp_path / "names.csv"
    path.write_text(text)
    with pytest.raises(BucketUnavailableError, match="can't be used: it is not a bucket's file"):
        await FileBucket(path, 5).acquire()
    assert path.read_text() == text


async def test_a_deleted_file_is_made_anew_for_all(tmp_path: Path) -> None:
    """Nobody goes on alone with the file that has no name any more."""
    path = tmp_path / "bucket"
    async with aclosing(FileBucket(path, 1000, 9)) as one, aclosing(FileBucket(path, 1000, 9)) as other:
        await one.acquire()
        await other.acquire()
        path.unlink()
        await one.acquire()
        await other.acquire()
        assert one.stats().spent_today == other.stats().spent_today == 2


async def test_a_file_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    """No folder, a folder in its place, a link, or a file that others may write."""
    open_to_all = tmp_path / "open"
    open_to_all.touch()
    open_to_all.chmod(0o666)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    for path in (tmp_path / "no" / "bucket", tmp_path, tmp_path / "link", open_to_all):
        with pytest.raises(BucketUnavailableError, match="can't be used"):
            await FileBucket(path, 5).acquire()
    for wrong in ("", 5, b"bytes"):
        with pytest.raises(ArgumentError, match="path must be"):
            FileBucket(wrong)  # type: ignore[arg-type]


async def test_the_stats_of_a_closed_file_bucket_open_nothing(tmp_path: Path) -> None:
    """A closed bucket's stats are what was last seen; a file that was deleted stays deleted."""
    path = tmp_path / "bucket"
    bucket = FileBucket(path, 5, 3, daily_budget=9)
    await bucket.acquire()
    await bucket.aclose()
    path.unlink()
    assert bucket.stats().spent_today == 1
    assert not path.exists()


def test_a_file_bucket_is_refused_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no flock."""
    monkeypatch.setattr("asyncfin.pacing.file.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="Windows"):
        FileBucket(tmp_path / "bucket")


def test_reprs_show_the_settings_and_no_password(tmp_path: Path) -> None:
    """A URL may hold one."""
    bucket = RedisBucket("redis://user:secret@127.0.0.1:1/0", account="us", rate=2, daily_budget=9)
    assert repr(bucket) == "RedisBucket(account='us', rate=2, burst=1, daily_budget=9)"
    assert repr(FileBucket("/tmp/b", 5, 2)) == "FileBucket('/tmp/b', 5, 2)"
    with pytest.raises(ArgumentError) as caught:
        RedisBucket("user:secret@host", account="us")
    assert "secret" not in str(caught.value)
    for wrong in ({"account": ""}, {"account": 5}, {"account": "us", "fallback": 5}):
        with pytest.raises(ArgumentError):
            RedisBucket("redis://127.0.0.1:1", **wrong)


async def test_without_a_server_nothing_is_sent_or_the_fallback_paces(tmp_path: Path) -> None:
    """What the fallback has granted is booked when the server is there again."""
    with redis_server(tmp_path) as server:
        settings: dict[str, Any] = {"account": "us", "rate": 1000, "burst": 20, "daily_budget": 10}
        alone = RedisBucket(server.url, **settings)
        helped = RedisBucket(server.url, **settings, fallback=TokenBucket(1000, 5))
        async with aclosing(alone), aclosing(helped):
            await alone.acquire()
            await helped.acquire()
            server.signal(signal.SIGSTOP)
            with pytest.raises(BucketUnavailableError, match="can't be reached"):
                await alone.acquire()
            for _ in range(3):
                await helped.acquire()
            server.signal(signal.SIGCONT)
            await asyncio.sleep(2.1)
            await helped.acquire()  # by the fallback still: the server is retried in the background
            await asyncio.sleep(0.2)
            await helped.acquire()
            await alone.acquire()
            # One of those that timed out may have been served by the server when it went on.
            assert 8 <= alone.stats().spent_today <= 10


async def test_a_refusal_while_the_server_is_away_pauses_the_fallback(tmp_path: Path) -> None:
    """For as long as the service said; the rate is learned once more when the server is back."""
    with redis_server(tmp_path) as server:
        fallback = TokenBucket()
        async with aclosing(RedisBucket(server.url, account="us", fallback=fallback)) as bucket:
            server.stop()
            sent_at = await bucket.acquire()
            refused_at = asyncio.get_running_loop().time()
            await bucket.refused(sent_at=sent_at, retry_after=2.2)
            paused_until = fallback.stats().paused_until
            assert paused_until is not None
            assert 2.2 <= paused_until - refused_at < 2.7
            server.start()
            await asyncio.sleep(2.1)
            await bucket.refused(sent_at=sent_at, retry_after=0.1)
            rate = bucket.stats().rate
            assert rate is not None
            assert rate > 0.5


async def test_a_pause_and_a_used_up_allowance_reach_the_others_right_after_the_server_was_silent(
    tmp_path: Path,
) -> None:
    """The fallback still paces, but what the service has said is for all."""
    with redis_server(tmp_path) as server:
        helped = RedisBucket(server.url, account="us", rate=1000, fallback=TokenBucket(1000))
        other = RedisBucket(server.url, account="us", rate=1000)
        async with aclosing(helped), aclosing(other):
            sent_at = await helped.acquire()
            server.signal(signal.SIGSTOP)
            await helped.acquire()
            server.signal(signal.SIGCONT)
            await helped.refused(sent_at=sent_at, retry_after=60)
            await helped.exhaust(60)
            with pytest.raises(AllowanceExhaustedError):
                await other.acquire()
            assert other.stats().paused_until is not None


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_those_who_wait_for_a_learned_rate_go_on_with_the_fallback(tmp_path: Path, number: int) -> None:
    """Also the one who is granted just when the server goes away, from whose grant nothing can be learned."""
    with redis_server(tmp_path) as server:
        fallback = TokenBucket(1000, 5)
        async with aclosing(RedisBucket(server.url, account="us", fallback=fallback)) as bucket:
            await bucket.refused(sent_at=await bucket.acquire(), retry_after=0.05)
            waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(4)]
            await asyncio.sleep(0.02)
            assert bucket.stats().waiting["interactive"] == 4
            server.signal(number)
            assert all(isinstance(each, float) for each in await asyncio.gather(*waiting))
            assert fallback.stats().granted >= 3


async def test_an_allowance_used_up_while_the_server_is_away_turns_away_who_waits(tmp_path: Path) -> None:
    """Those who wait when the fallback's allowance is used up get its error, with the service's wait."""
    with redis_server(tmp_path) as server:
        fallback = TokenBucket(0.1)
        async with aclosing(RedisBucket(server.url, account="us", burst=5, fallback=fallback)) as bucket:
            server.stop()
            await bucket.acquire()
            waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
            await asyncio.sleep(0.02)
            await bucket.exhaust(60)
            async with asyncio.timeout(5):
                ends = await asyncio.gather(*waiting, return_exceptions=True)
            for each in ends:
                assert isinstance(each, AllowanceExhaustedError)
                assert each.retry_after == pytest.approx(60, abs=2)
            assert bucket.stats().burst == 5


async def test_what_the_fallback_granted_is_booked_once_by_operations_at_the_same_time(
    tmp_path: Path,
) -> None:
    """Operations that find the fallback's grants unbooked at the same time book them once."""
    with redis_server(tmp_path) as server:
        settings: dict[str, Any] = {"account": "us", "rate": 1000, "burst": 20}
        async with aclosing(RedisBucket(server.url, **settings, fallback=TokenBucket(1000, 5))) as bucket:
            await bucket.acquire()
            server.stop()
            sent = [await bucket.acquire() for _ in range(3)]
            server.start()
            await asyncio.sleep(2.1)
            await asyncio.gather(bucket.acquire(), bucket.refused(sent_at=sent[0], retry_after=0.01))
            assert bucket.stats().spent_today == 5


async def test_a_server_that_comes_back_empty_learns_what_was_spent_today(tmp_path: Path) -> None:
    """From the first process that asks."""
    with redis_server(tmp_path) as server:
        async with aclosing(
            RedisBucket(server.url, account="us", rate=1000, burst=9, daily_budget=6)
        ) as bucket:
            for _ in range(4):
                await bucket.acquire()
            server.stop()
            with pytest.raises(BucketUnavailableError):
                await bucket.acquire()
            server.start()
            await bucket.acquire()
            assert bucket.stats().spent_today == 5
            await bucket.acquire()
            with pytest.raises(AllowanceExhaustedError):
                await bucket.acquire()


async def test_an_older_restore_does_not_bring_back_what_was_spent(tmp_path: Path) -> None:
    """The larger spending counts."""
    from redis.asyncio import Redis

    with redis_server(tmp_path) as server:
        settings: dict[str, Any] = {"account": "us", "rate": 1000, "burst": 9, "daily_budget": 6}
        client = Redis.from_url(server.url)
        async with aclosing(RedisBucket(client, **settings)) as bucket:
            await bucket.acquire()
            key = "asyncfin:bucket:{us}"
            older = await client.dump(key)
            for _ in range(3):
                await bucket.acquire()
            await client.restore(key, 0, older, replace=True)
            await bucket.acquire()
            assert bucket.stats().spent_today == 5
        assert await client.ping(), "a client that was handed in stays open"
        await client.aclose()


def test_importing_needs_no_redis() -> None:
    """The package is imported when a RedisBucket is made."""
    code = "import sys, asyncfin; asyncfin.FileBucket; asyncfin.RedisBucket; sys.exit('redis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {"Bucket", "FileBucket", "RedisBucket"} <= set(asyncfin.__all__)
