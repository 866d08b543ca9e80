"""Buckets that processes share, over a file and over a real Redis server, in virtual time.

The processes here are buckets of one loop that share a state; test_bucket_processes.py has real ones.
"""

import asyncio
import os
import random
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    AllowanceExhaustedError,
    ArgumentError,
    Bucket,
    BucketUnavailableError,
    FileBucket,
    RedisBucket,
    TokenBucket,
)
from tests.conftest import EAGER, VirtualTimeLoop
from tests.services.limits import Client, Refilling, simulate
from tests.shared_buckets import (
    RedisLine,
    excess,
    file_bucket,
    loop_time,
    microseconds,
    wall_clock,
)

NOON = datetime(2024, 5, 7, 12, tzinfo=UTC)

pytestmark = pytest.mark.virtual


@pytest.fixture(params=["file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Return what makes buckets that share one state."""
    if request.param == "file":
        return partial(file_bucket, tmp_path / "bucket")
    return partial(request.getfixturevalue("line").bucket, str(tmp_path))


async def test_is_a_bucket_and_grants_the_burst_at_once_and_the_rest_at_the_rate(
    make: Callable[..., Any],
) -> None:
    """Two in one process take turns, each in the order of its waiters."""
    async with aclosing(make(rate=40, burst=4)) as one, aclosing(make(rate=40, burst=4)) as other:
        assert isinstance(one, Bucket)
        await one.acquire()
        await other.acquire()
        grants = await asyncio.gather(*(each.acquire() for each in (one, other) for _ in range(10)))
        assert grants[:10] == sorted(grants[:10])
        assert excess(grants, 40, 4) <= 2
        assert one.stats().granted == other.stats().granted == 11


async def test_statistics_of_a_pause_keep_its_end(make: Callable[..., Any]) -> None:
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


async def test_lanes_are_those_of_a_process(make: Callable[..., Any]) -> None:
    """A process with bulk requests only gets as much as one with interactive ones."""
    shares: list[int] = []

    async def work(bucket: Any, lane: Any) -> None:
        while asyncio.get_running_loop().time() < end:
            await bucket.acquire(lane=lane)
            shares[lane == "bulk"] += 1

    async with aclosing(make(rate=20)) as one, aclosing(make(rate=20)) as other:
        shares, end = [0, 0], asyncio.get_running_loop().time() + 1
        await asyncio.gather(
            *(work(*each) for each in ((one, "interactive"), (other, "bulk")) for _ in range(3))
        )
    assert min(shares) >= 0.4 * sum(shares) > 10


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


async def test_what_is_free_is_granted_to_ten_waiters_at_a_time_in_their_order(
    line: RedisLine, tmp_path: Path
) -> None:
    """Thirty that ask at once take three operations; the last finds the burst used up, and waits."""
    loop, order = asyncio.get_running_loop(), list[int]()
    async with aclosing(line.bucket(str(tmp_path), rate=1, burst=31)) as bucket:
        await bucket.acquire()

        async def one(number: int) -> float:
            at: float = await bucket.acquire()
            order.append(number)
            return at

        began, before = loop.time(), line.sent
        grants = await asyncio.gather(*map(one, range(30)))
        # An eager driver begins with the first one alone.
        assert (order, line.sent - before) == ([*range(30)], 3 + EAGER)
        assert max(grants) == pytest.approx(began, abs=0.001)
        assert await bucket.acquire() == pytest.approx(began + 1, abs=0.01)


async def test_a_budget_that_ends_among_waiters_is_spent_exactly(make: Callable[..., Any]) -> None:
    """What does not count is granted between and behind what does."""
    async with aclosing(make(rate=1, burst=40, daily_budget=4)) as bucket:
        await bucket.acquire(counts=False)
        counting = [True, True, False, True, True, True, False, True]
        ends = await asyncio.gather(
            *(bucket.acquire(counts=counts) for counts in counting), return_exceptions=True
        )
        refused = [at for at, end in enumerate(ends) if isinstance(end, AllowanceExhaustedError)]
        assert (refused, bucket.stats().spent_today, bucket.stats().granted) == ([5, 7], 4, 7)


async def test_what_is_given_back_or_never_reached_the_service_is_off_the_day(
    make: Callable[..., Any],
) -> None:
    """A grant given back is free again, a request that was not sent keeps its place in the pace."""
    async with aclosing(make(rate=100, burst=5, daily_budget=4)) as bucket:
        sent = [await bucket.acquire() for _ in range(4)]
        await bucket.unspend(sent_at=sent[0])
        await bucket.give_back()
        assert bucket.stats().spent_today == 2
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 4"):
            await bucket.acquire(3)  # a lighter one has room
        await bucket.acquire()
        await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 4"):
            await bucket.acquire()


async def test_a_cancelled_wait_loses_no_moment(make: Callable[..., Any]) -> None:
    """The moment goes to the next waiter; if there is none, it is returned."""
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


async def test_a_request_that_arrives_while_a_booking_is_returned_is_granted(
    make: Callable[..., Any],
) -> None:
    """The waiter it was for has left; the next one arrives at any moment of its return."""
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
    assert record.getMessage().endswith(
        ": (rate, burst, daily_budget) were (50.0, 1.0, None) and are now (20, 2, None),"
        " from the last process to start"
    )


async def test_a_closed_bucket_rejects_waiters_and_new_requests(make: Callable[..., Any]) -> None:
    """Waiters and new requests get a RuntimeError, and no task is left behind."""
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


async def test_wall_clocks_a_day_apart_change_neither_pace_nor_pauses(tmp_path: Path) -> None:
    """The shared clock is another one; of budgets there is one for each day that a clock shows."""
    ahead = {"clock": lambda: wall_clock() + timedelta(days=1)}
    make = partial(file_bucket, tmp_path / "bucket", 40, 3)
    loop = asyncio.get_running_loop()
    async with aclosing(make()) as one, aclosing(make(**ahead)) as other:
        grants = await asyncio.gather(*(each.acquire() for each in (one, other) for _ in range(15)))
        assert excess(grants, 40, 3) <= 2
        assert one.stats().granted == other.stats().granted == 15
        for pausing, paused in ((one, other), (other, one)):
            began = loop.time()
            await pausing.refused(sent_at=began, retry_after=0.2)
            assert 0.2 <= await paused.acquire() - began < 0.5
    make = partial(file_bucket, tmp_path / "budget", 1000, 30, daily_budget=10)
    async with aclosing(make()) as one, aclosing(make(**ahead)) as other:
        ends = [
            await asyncio.gather(each.acquire(), return_exceptions=True)
            for _ in range(30)
            for each in (one, other)
        ]
    assert sum(isinstance(end, float) for (end,) in ends) == 11, "one on the first day, ten on the next"


@pytest.mark.parametrize("step", [-86_400, 86_400])
async def test_setting_the_server_s_clock_stops_no_waiter(step: int, line: RedisLine, tmp_path: Path) -> None:
    """Waiters are granted at the pace; where it is set back, a pause is as long as it was."""
    offset = [0]
    clock = {"microseconds": lambda: microseconds() + offset[0] * 1_000_000}
    loop = asyncio.get_running_loop()
    bucket = RedisBucket(line.url, account=str(tmp_path), rate=20, burst=2, **clock)
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


async def test_a_reboot_forgets_the_level_and_keeps_the_day(tmp_path: Path) -> None:
    """A stamp from the future is from before the clock was restarted."""
    uptime = [90_000.0]
    settings: dict[str, Any] = {"rate": 0.001, "daily_budget": 3}
    options: dict[str, Any] = {
        "clock": lambda: NOON,
        "monotonic": lambda: uptime[0],
        "boot_id": lambda: "first" if uptime[0] > 100 else "second",
    }
    async with aclosing(file_bucket(tmp_path / "bucket", **settings, **options)) as bucket:
        await bucket.acquire()
    uptime[0] = 12.0
    async with aclosing(file_bucket(tmp_path / "bucket", **settings, **options)) as bucket:
        await bucket.acquire()
        assert bucket.stats().spent_today == 2


async def test_a_wall_clock_set_back_over_midnight_brings_no_new_budget(tmp_path: Path) -> None:
    """A wall clock set back over midnight brings no new budget, as in one process."""
    wall = [datetime(2024, 5, 8, 0, 0, 5, tzinfo=UTC)]
    async with aclosing(
        file_bucket(tmp_path / "b", 1000, 5, daily_budget=2, clock=lambda: wall[0])
    ) as bucket:
        await bucket.acquire()
        wall[0] -= timedelta(seconds=10)
        await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError) as caught:
            await bucket.acquire()
        assert caught.value.resume_at == datetime(2024, 5, 9, tzinfo=UTC)
        wall[0] = datetime(2024, 5, 9, tzinfo=UTC)
        await bucket.acquire()


async def test_a_damaged_file_starts_over_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged file starts over with a warning, and raises no other error, whatever it contains."""
    chance, path = random.Random(3), tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 100)) as bucket:
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


async def test_a_deleted_file_is_created_again_for_all(tmp_path: Path) -> None:
    """No process continues with the file that was deleted."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 9)) as one, aclosing(file_bucket(path, 1000, 9)) as other:
        await one.acquire()
        await other.acquire()
        path.unlink()
        await one.acquire()
        await other.acquire()
        assert one.stats().spent_today == other.stats().spent_today == 2


async def test_a_file_that_cannot_be_used_is_one_clear_error(tmp_path: Path) -> None:
    """No folder, a folder in its place, a link, a file that others may write, or that of another user."""
    open_to_all, another_users = tmp_path / "open", tmp_path / "another"
    open_to_all.touch()
    open_to_all.chmod(0o666)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    unusable = [tmp_path / "no" / "bucket", tmp_path, tmp_path / "link", open_to_all]
    if os.geteuid() == 0:  # only root can give files away
        another_users.touch(0o600)
        os.chown(another_users, 65534, 65534)
        unusable.append(another_users)
    for path in unusable:
        with pytest.raises(BucketUnavailableError, match="can't be used"):
            await FileBucket(path, 5).acquire()
    for wrong in ("", 5, b"bytes", "a\0b"):
        with pytest.raises(ArgumentError, match="path must be"):
            FileBucket(wrong)  # type: ignore[arg-type]


async def test_the_stats_of_a_closed_file_bucket_open_nothing(tmp_path: Path) -> None:
    """A closed bucket's stats are what was last seen; a file that was deleted stays deleted."""
    path = tmp_path / "bucket"
    bucket = file_bucket(path, 5, 3, daily_budget=9)
    await bucket.acquire()
    await bucket.aclose()
    path.unlink()
    assert bucket.stats().spent_today == 1
    assert not path.exists()


def test_a_file_bucket_is_refused_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows has no flock."""
    monkeypatch.setattr("asyncfin.pacing.file.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="Windows"):
        file_bucket(tmp_path / "bucket")


def test_reprs_show_the_settings_and_no_password(tmp_path: Path) -> None:
    """A URL may hold one."""
    pytest.importorskip("redis")
    bucket = RedisBucket("redis://user:secret@127.0.0.1:1/0", account="us", rate=2, daily_budget=9)
    assert repr(bucket) == "RedisBucket(account='us', rate=2, burst=1, daily_budget=9)"
    assert repr(FileBucket("/tmp/b", 5, 2)) == "FileBucket('/tmp/b', rate=5, burst=2)"
    with pytest.raises(ArgumentError) as caught:
        RedisBucket("user:secret@host", account="us")
    assert "secret" not in str(caught.value)
    with pytest.raises(ArgumentError, match="not a URL; a Redis server is for a RedisBucket") as caught:
        FileBucket("redis://user:secret@host/0")
    assert "secret" not in str(caught.value)
    for wrong in ({"account": ""}, {"account": 5}, {"account": "us", "fallback": 5}):
        with pytest.raises(ArgumentError):
            RedisBucket("redis://127.0.0.1:1", **wrong)


async def test_stats_have_none_for_what_this_process_never_read(make: Callable[..., Any]) -> None:
    """A fresh bucket does not say that 0 are spent when 7 are; `inspect` reads it."""
    async with aclosing(make(rate=10, burst=9)) as one, aclosing(make(rate=10, burst=9)) as other:
        for _ in range(7):
            await one.acquire()
        stats = other.stats()
        assert (stats.spent_today, stats.level, stats.exhausted_until) == (None, None, None)
        stats = await other.inspect()
        assert (stats.spent_today, stats.granted) == (7, 0)
        assert stats.level == pytest.approx(2, abs=0.1)
        assert other.stats().spent_today == 7
        await one.exhaust(60)
        assert (await other.inspect()).exhausted_until is not None


async def test_what_is_left_today_is_known_once_the_shared_state_was_read(make: Callable[..., Any]) -> None:
    """The rest of the budget; 0 once the service's own allowance is used up, which may be less."""
    given = {"rate": 10, "burst": 9, "daily_budget": 9}
    async with aclosing(make(**given)) as one, aclosing(make(**given)) as other:
        await one.acquire(7)
        assert other.stats().left_today is None
        assert (await other.inspect()).left_today == 2
        await one.exhaust(60)
        assert (await other.inspect()).left_today == 0


async def test_inspecting_books_and_changes_nothing(make: Callable[..., Any]) -> None:
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


async def test_inspecting_an_unused_bucket_shows_its_parameters(make: Callable[..., Any]) -> None:
    """Nothing is spent, and the bucket holds its burst."""
    async with aclosing(make(rate=10, burst=3, daily_budget=50)) as bucket:
        stats = await bucket.inspect()
        assert (stats.spent_today, stats.level, stats.rate, stats.daily_budget) == (0, 3, 10, 50)


async def test_inspecting_creates_no_file(tmp_path: Path) -> None:
    """Reading an unused FileBucket leaves the folder empty; a foreign or damaged file can't be read."""
    async with aclosing(file_bucket(tmp_path / "bucket", 10)) as bucket:
        await bucket.inspect()
        assert not os.listdir(tmp_path)
    (tmp_path / "foreign").write_text("id,name\n")
    (tmp_path / "damaged").write_bytes(b"AFBK" + b"\0" * 40)
    for name in ("foreign", "damaged", "no/folder"):
        async with aclosing(file_bucket(tmp_path / name, 10)) as bucket:
            with pytest.raises(BucketUnavailableError):
                await bucket.inspect()
    assert (tmp_path / "damaged").read_bytes() == b"AFBK" + b"\0" * 40


async def test_inspecting_a_server_that_is_away_is_an_error_also_with_a_fallback(
    line: RedisLine, tmp_path: Path
) -> None:
    """What can't be read is not guessed from the fallback."""
    async with aclosing(line.bucket(str(tmp_path), rate=10, fallback=TokenBucket(10))) as bucket:
        line.cut = True
        with pytest.raises(BucketUnavailableError, match="can't be reached"):
            await bucket.inspect()


async def test_a_renamed_file_is_not_a_second_bucket(tmp_path: Path) -> None:
    """Processes that had it open use the file at the path, like those that start later."""
    path = tmp_path / "bucket"
    loop = asyncio.get_running_loop()
    async with aclosing(file_bucket(path, 20)) as one, aclosing(file_bucket(path, 20)) as other:
        await one.acquire()
        path.rename(tmp_path / "renamed")
        end, grants = loop.time() + 5, list[float]()

        async def work(bucket: Any) -> None:
            while loop.time() < end:
                grants.append(await bucket.acquire())

        await asyncio.gather(work(one), work(other))
        assert excess(grants, 20, 1) <= 2
        assert path.exists()


async def test_a_file_emptied_after_use_is_damaged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It starts over, and the warning says what is lost; a new file is not damaged."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        await bucket.acquire()
        assert not caplog.records
        os.truncate(path, 0)
        await bucket.acquire()
    (record,) = caplog.records
    assert record.getMessage() == f"{path} was damaged: state reset; today's spending is unknown"


@pytest.mark.parametrize("ahead", [1000.0, -1000.0, 5.0])
@pytest.mark.parametrize("machines", [1, 2])
async def test_processes_with_different_monotonic_clocks_share_one_pace(
    tmp_path: Path, ahead: float, machines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Processes in time namespaces, or on two machines with one folder, follow one clock and warn once."""
    loop = asyncio.get_running_loop()
    clocks: list[dict[str, Any]] = [
        {"boot_id": lambda: "first"},
        {
            "boot_id": lambda: "second" if machines == 2 else "first",
            "monotonic": lambda: loop_time() + 2000 + ahead,
        },
    ]
    clocks[0]["monotonic"] = lambda: loop_time() + 2000
    buckets = [file_bucket(tmp_path / "bucket", 20, 2, **each) for each in clocks]
    grants: list[list[float]] = [[], []]

    async def work(number: int) -> None:
        while loop.time() < 20:
            grants[number].append(await buckets[number].acquire())

    await asyncio.gather(*(work(number) for number in (0, 1) for _ in range(3)))
    for each in buckets:
        await each.aclose()
    # Until a process has seen the other's stamp, it may grant a burst.
    assert excess([*grants[0], *grants[1]], 20, 2) <= 2 + 2
    assert min(map(len, grants)) > 0.4 * 20 * 20
    assert len([each for each in caplog.records if "monotonic clocks" in each.getMessage()]) == 1


async def test_a_process_that_has_followed_an_old_stamp_follows_a_closer_one(tmp_path: Path) -> None:
    """Otherwise it would be late for each of its moments, by the age of the first stamp."""
    loop = asyncio.get_running_loop()
    path, boot = tmp_path / "bucket", lambda: "one"
    behind = file_bucket(path, 1, boot_id=boot)
    ahead = file_bucket(path, 1, boot_id=boot, monotonic=lambda: loop_time() + 1000)
    await behind.acquire()
    await asyncio.sleep(1)
    await ahead.acquire()
    await asyncio.sleep(0.9)
    await behind.acquire()  # its clock is 0.9 s behind from now on
    assert loop.time() == pytest.approx(2.9)
    await ahead.acquire()
    assert loop.time() == pytest.approx(3.0)
    await behind.acquire()
    assert loop.time() == pytest.approx(4.0)
    for each in (behind, ahead):
        await each.aclose()


async def test_a_stamp_just_ahead_is_not_another_clock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A difference of up to a second causes no warning."""
    async with (
        aclosing(file_bucket(tmp_path / "b", 20, monotonic=lambda: loop_time() + 100.9)) as one,
        aclosing(file_bucket(tmp_path / "b", 20, monotonic=lambda: loop_time() + 100)) as other,
    ):
        for _ in range(5):
            await one.acquire()
            await other.acquire()
    assert not caplog.records


@pytest.mark.parametrize("latency", [0.02, 0.1, 0.3])
def test_processes_that_learn_together_learn_as_fast_as_one(make: Callable[..., Any], latency: float) -> None:
    """Four processes with 4 workers get at least 0.9 of what one with 16 gets in its first 20 seconds."""

    def served(processes: int, workers: int, account: Callable[..., Any]) -> int:
        service = Refilling(40, 5)
        clients = [
            Client(service, workers, latency, 0.1, begin=number * 0.001, bucket=account())
            for number in range(processes)
        ]
        # Redis is reached through a socket.
        simulate(*(client.run(20) for client in clients), loop=VirtualTimeLoop)
        return sum(ok for client in clients for at, ok in client.record.arrivals if at < 20)

    alone = served(1, 16, TokenBucket)
    assert served(4, 4, make) >= 0.9 * alone


async def test_a_refusal_of_what_was_granted_before_the_last_decrease_lowers_nothing(
    make: Callable[..., Any],
) -> None:
    """Whichever process reports it; a refusal of a later grant does."""
    async with aclosing(make()) as one, aclosing(make()) as other:
        await one.acquire()
        await one.refused(sent_at=await one.acquire(), retry_after=1)
        early = [await each.acquire() for each in (one, other, other, other)]
        await one.refused(sent_at=early[0], retry_after=1)
        rate = one.stats().rate
        for at in early[1:]:
            await other.refused(sent_at=at, retry_after=1)
        assert other.stats().rate == rate
        await other.acquire()
        later = await other.acquire()
        await asyncio.sleep(1)
        before = (await other.inspect()).rate
        await other.refused(sent_at=later, retry_after=1)
        assert other.stats().rate < before


async def test_a_grant_that_does_not_count_is_not_given_back_to_the_day(make: Callable[..., Any]) -> None:
    """A usage request that is cancelled as it is granted gives back its place in the pace only."""
    async with aclosing(make(rate=1, burst=1, daily_budget=50)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        waiting = asyncio.ensure_future(bucket.acquire(counts=False))
        await asyncio.sleep(0.999999)
        while bucket.stats().granted == 3:  # noqa: ASYNC110  each turn of the loop matters
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        await asyncio.sleep(5)
        assert (await bucket.inspect()).spent_today == 3


async def test_a_grant_cancelled_in_the_same_turn_is_given_back(make: Callable[..., Any]) -> None:
    """The next one gets it at once, and the day's budget has it back."""
    async with aclosing(make(rate=0.1, burst=1, daily_budget=50)) as bucket:
        await bucket.acquire()
        waiting = asyncio.ensure_future(bucket.acquire())
        await asyncio.sleep(9.999999)
        while bucket.stats().granted == 1:  # noqa: ASYNC110  each turn of the loop matters
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        assert bucket.stats().granted == 1
        began = asyncio.get_running_loop().time()
        assert await bucket.acquire() < began + 1
        assert (await bucket.inspect()).spent_today == bucket.stats().granted == 2
