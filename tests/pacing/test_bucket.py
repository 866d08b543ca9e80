"""The token bucket: pace, order, lanes, pauses, allowance, cancellation, and which loop it lives in."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from asyncfin.errors import AllowanceExhaustedError, ArgumentError
from asyncfin.model.query import Lane
from asyncfin.pacing.bucket import TokenBucket
from tests.conftest import VirtualTimeLoop

pytestmark = pytest.mark.virtual
MIDNIGHT = datetime(2024, 5, 7, tzinfo=UTC)


def near(*times: float) -> object:
    """Return what equals these times up to the ticks of the virtual clock."""
    return pytest.approx(list(times), abs=1e-5)


class Log:
    """Starts acquires, and notes in which order and when they were granted, or why not."""

    def __init__(self, bucket: TokenBucket) -> None:
        self.bucket, self.names, self.times = bucket, list[str](), list[float]()
        self.errors: list[AllowanceExhaustedError] = []
        self.began = asyncio.get_running_loop().time()

    async def acquire(self, name: str, lane: Lane) -> None:
        try:
            time = await self.bucket.acquire(lane=lane)
        except AllowanceExhaustedError as error:
            self.errors.append(error)
        else:
            self.names.append(name)
            self.times.append(time - self.began)

    async def start(self, count: int, name: str = "", lane: Lane = "interactive") -> list[asyncio.Task[None]]:
        tasks = [asyncio.create_task(self.acquire(f"{name}{n}", lane)) for n in range(count)]
        await asyncio.sleep(0)
        return tasks


async def pause(bucket: TokenBucket, seconds: float) -> None:
    """Let the service reject a request that was sent now."""
    await bucket.refused(sent_at=asyncio.get_running_loop().time(), retry_after=seconds)


class Wall:
    """A wall clock that follows the loop's, from a chosen moment on."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at + timedelta(seconds=asyncio.get_running_loop().time())


async def test_is_unpaced_without_a_rate() -> None:
    """Without a rate and before a refusal everything goes at once."""
    log = Log(TokenBucket())
    await asyncio.gather(*await log.start(1000))
    assert log.times == near(*[0] * 1000)
    assert log.bucket.stats().rate is None


async def test_refuses_an_unknown_lane() -> None:
    """The error names the lanes that there are."""
    with pytest.raises(ArgumentError, match="lane must be 'interactive' or 'bulk', not 'slow'"):
        await TokenBucket().acquire(lane="slow")


@pytest.mark.parametrize(
    ("field", "value"),
    [("rate", 0), ("rate", -1), ("rate", float("inf")), ("rate", "5"), ("burst", 0.5), ("burst", None)],
)
async def test_refuses_impossible_settings(field: str, value: float) -> None:
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=f"^{field} must be a finite number"):
        TokenBucket(**{field: value})


async def test_unpaced_requests_restart_gradually() -> None:
    """After a pause an unpaced bucket begins slowly, then is unpaced again."""
    log = Log(TokenBucket())
    await pause(log.bucket, 60)
    await asyncio.gather(*await log.start(200))
    assert log.times[0] == pytest.approx(60, abs=1e-5)
    gaps = [later - earlier for earlier, later in pairwise(log.times)]
    assert gaps[0] == pytest.approx(0.1, abs=1e-5)
    assert all(later <= earlier + 1e-5 for earlier, later in pairwise(gaps))
    assert gaps[-1] < 1e-5
    assert log.bucket.stats().rate is None


async def test_returned_grant_is_passed_on() -> None:
    """A grant given back goes to the next one at once, and is taken off the day's spending."""
    bucket = TokenBucket(1, daily_budget=10, clock=Wall(MIDNIGHT))
    log = Log(bucket)
    await bucket.acquire()
    (waiting,) = await log.start(1)
    await bucket.give_back()
    await waiting
    assert log.times == near(0)
    assert (bucket.stats().granted, bucket.stats().spent_today) == (1, 1)


@pytest.mark.parametrize("rate", [None, 4.0])
async def test_returned_grants_wait_after_pause(rate: float | None) -> None:
    """The restart is gradual in this case too."""
    bucket, plain = TokenBucket(rate, 5), TokenBucket(rate, 5)
    times = []
    for each in (bucket, plain):
        log = Log(each)
        for _ in range(5):
            await each.acquire()
        await pause(each, 5)
        if each is bucket:
            for _ in range(5):
                await each.give_back()
        await asyncio.gather(*await log.start(10))
        times.append(log.times)
    assert times[0] == near(*times[1])


async def test_unsent_requests_return_their_day() -> None:
    """What never reached the service is taken off the day of its grant, not off the next."""
    wall = Wall(MIDNIGHT - timedelta(seconds=10))
    bucket = TokenBucket(100, 10, daily_budget=10, clock=wall)
    before = [await bucket.acquire() for _ in range(8)]
    await bucket.unspend(sent_at=before[0])
    assert bucket.stats().spent_today == 7
    await asyncio.sleep(20)
    after = [await bucket.acquire() for _ in range(5)]
    for sent_at in before[1:]:
        await bucket.unspend(sent_at=sent_at)
    assert bucket.stats().spent_today == 5
    await bucket.unspend(sent_at=after[0])
    assert bucket.stats().spent_today == 4


async def test_exhaustion_reaches_all_waiters() -> None:
    """Each gets a separate error at once; at the given time the bucket grants again."""
    log = Log(TokenBucket(1, clock=Wall(MIDNIGHT - timedelta(hours=1))))
    tasks = [*await log.start(3), *await log.start(2, lane="bulk")]
    await log.bucket.exhaust(3600)
    await log.bucket.exhaust(3540)
    await asyncio.gather(*tasks, *await log.start(1, "late"))
    assert log.names == ["0"]
    assert len({id(error) for error in log.errors}) == 5
    assert {error.resume_at for error in log.errors} == {log.errors[0].resume_at}
    assert abs(log.errors[0].resume_at - MIDNIGHT) < timedelta(milliseconds=1)
    assert {error.status for error in log.errors} == {429}
    assert log.errors[0].retry_after == pytest.approx(3600, abs=1)
    assert log.errors[0].__context__ is None
    assert log.bucket.stats().exhausted_until == log.errors[0].resume_at
    await asyncio.sleep(3601)
    await log.bucket.acquire()
    assert log.bucket.stats().exhausted_until is None


async def test_uncounted_request_passes_exhaustion() -> None:
    """Usage and limits can always be asked; pace and pauses hold for them as for all."""
    log = Log(TokenBucket(10, daily_budget=1, clock=Wall(MIDNIGHT - timedelta(hours=1))))
    await log.bucket.acquire()
    await log.bucket.exhaust(600)
    await pause(log.bucket, 5)
    for _ in range(2):
        log.times.append(await log.bucket.acquire(counts=False))
    assert log.times == near(5, 5.1)
    assert log.bucket.stats().spent_today == 1
    with pytest.raises(AllowanceExhaustedError):
        await log.bucket.acquire()


async def test_resume_ends_pause_and_exhaustion() -> None:
    """At once and without a burst; what was spent of a budget stays spent."""
    log = Log(TokenBucket(10, 3, daily_budget=4, clock=Wall(MIDNIGHT - timedelta(hours=2))))
    await log.bucket.acquire()
    await pause(log.bucket, 3600)
    tasks = await log.start(2)
    await asyncio.sleep(1)
    await log.bucket.resume()
    await asyncio.gather(*tasks)
    assert log.times == near(1, 1.1)
    await log.bucket.exhaust(600)
    await log.bucket.resume()
    await log.bucket.acquire()
    with pytest.raises(AllowanceExhaustedError, match="daily budget"):
        await log.bucket.acquire()


async def test_daily_budget_is_enforced() -> None:
    """Waiters without a place in the budget fail when it is used up; at midnight UTC it starts again."""
    log = Log(TokenBucket(10, daily_budget=3, clock=Wall(MIDNIGHT - timedelta(seconds=100))))
    await asyncio.gather(*await log.start(5))
    assert (log.names, len(log.errors)) == (["0", "1", "2"], 2)
    assert log.errors[0].resume_at == MIDNIGHT
    refusal = "the bucket's daily budget of 3 is used up, requests are possible again at 2"
    assert str(log.errors[0]).startswith(refusal), "the service refused nothing, so no 429 is shown"
    assert log.bucket.stats().spent_today == 3
    await asyncio.sleep(101)
    await log.bucket.acquire()
    assert log.bucket.stats().spent_today == 1


async def test_stats_describe_the_bucket() -> None:
    """Statistics are a frozen value of one moment."""
    bucket = TokenBucket(10, 2, daily_budget=50)
    log = Log(bucket)
    tasks = [*await log.start(3), *await log.start(1, lane="bulk")]
    stats = bucket.stats()
    await asyncio.gather(*tasks)
    assert (stats.rate, stats.burst, stats.learned, stats.granted, stats.refused) == (10, 2, False, 2, 0)
    assert stats.waiting == {"interactive": 1, "bulk": 1}
    assert stats.level == pytest.approx(0, abs=1e-5)
    assert (stats.spent_today, stats.daily_budget, stats.left_today) == (2, 50, 48)
    assert bucket.stats().granted == 4
    assert TokenBucket(10).stats().left_today is None


def test_bucket_moves_to_next_loop() -> None:
    """What was spent and paused counts on; the old waiters are gone."""
    bucket = TokenBucket(0.1)

    async def use() -> None:
        await bucket.acquire()
        await pause(bucket, 30)
        left_behind.append(asyncio.ensure_future(bucket.acquire()))
        await asyncio.sleep(12)

    left_behind: list[asyncio.Future[float]] = []

    async def use_again() -> float:
        asyncio.get_running_loop().now = 13.0  # type: ignore[attr-defined]
        return await bucket.acquire()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(use())
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(use_again()) == pytest.approx(30, abs=1e-5)
    assert left_behind[0].cancelled()


def test_second_open_loop_is_an_error() -> None:
    """The first loop's waiters could not be woken from the second."""
    bucket = TokenBucket()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as first:
        first.run(bucket.acquire())
        with (
            asyncio.Runner(loop_factory=VirtualTimeLoop) as second,
            pytest.raises(RuntimeError, match="one bucket per loop"),
        ):
            second.run(bucket.acquire())
        first.run(bucket.acquire())
