"""Random use: the token bucket does what a plain model of it does, and shared ones keep the rate."""

import asyncio
from collections import deque
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from attrs import Factory, define
from hypothesis import HealthCheck, example, given, settings, strategies as st

from asyncfin.pacing.bucket import TokenBucket
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.shared_buckets import RedisLine, excess, file_bucket

# The virtual clock moves on by a nanosecond at each turn of the loop.
TICKS = 1e-5
# What is done, in which lane, how often or to which of those, and for how many seconds.
STEP = st.tuples(
    st.sampled_from(["acquire", "acquire", "cancel", "wait", "pause", "give back"]),
    st.sampled_from(["interactive", "bulk"]),
    st.integers(1, 12),
    st.sampled_from([0.0, 0.0731, 0.317, 1.137, 7.919]),
)


@define
class Model:
    """A bucket that holds a level, and two queues, moved from grant to grant."""

    rate: float
    burst: int
    level: float
    now: float = 0.0
    paused_until: float = float("-inf")
    passed: int = 0
    queues: dict[str, deque[int]] = Factory(lambda: {"interactive": deque(), "bulk": deque()})
    grants: dict[int, float] = Factory(dict)

    def refill(self, now: float) -> None:
        seconds = max(0.0, now - max(self.now, self.paused_until))
        self.level = min(self.burst, self.level + seconds * self.rate)
        self.now = max(self.now, now)

    def find_lane(self) -> str | None:
        interactive, bulk = self.queues["interactive"], self.queues["bulk"]
        if bulk and (self.passed == 9 or not interactive):
            return "bulk"
        return "interactive" if interactive else None

    def advance(self, now: float) -> None:
        while lane := self.find_lane():
            missing = max(0.0, 1.0 - self.level)
            moment = max(self.now, self.paused_until) + missing / self.rate
            if moment > now + TICKS:
                break
            self.refill(moment)
            self.level -= 1
            self.grants[self.queues[lane].popleft()] = moment
            self.passed = self.passed + 1 if lane == "interactive" and self.queues["bulk"] else 0
        self.refill(now)

    def pause(self, until: float) -> None:
        seconds = until - max(self.now, self.paused_until)
        if seconds > 0:
            self.paused_until = until
            self.level = min(self.level + seconds * self.rate, 1.0)

    def give_back(self) -> None:
        since_pause = max(0.0, self.now - self.paused_until)
        self.level = min(self.burst, self.level + 1, 1 + since_pause * self.rate)


@pytest.mark.virtual
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, min_size=5, max_size=30))
async def test_token_bucket_equals_model(steps: list[Any]) -> None:
    """It grants the same requests at the same times, and holds and queues the same."""
    loop: Any = asyncio.get_running_loop()
    loop.now = 0.0
    bucket, model = TokenBucket(10, 3), Model(rate=10, burst=3, level=3)
    tasks: list[asyncio.Task[float]] = []
    for kind, lane, count, seconds in [*steps, ("wait", "", 1, 10_000.0)]:
        waiting = [index for index, task in enumerate(tasks) if not task.done()]
        if kind == "acquire":
            for _ in range(count):
                model.queues[lane].append(len(tasks))
                tasks.append(loop.create_task(bucket.acquire(lane=lane)))
        elif kind == "cancel" and waiting:
            index = waiting[count % len(waiting)]
            tasks[index].cancel()
            for queue in model.queues.values():
                if index in queue:
                    queue.remove(index)
        elif kind == "pause":
            model.pause(loop.now + seconds)
            await bucket.refused(sent_at=loop.now, retry_after=seconds)
        elif kind == "give back" and model.grants:
            model.give_back()
            await bucket.give_back()
        await asyncio.sleep(seconds if kind == "wait" else 0)
        for _ in range(3):
            await asyncio.sleep(0)
        model.advance(loop.now)
        results = {i: task.result() for i, task in enumerate(tasks) if task.done() and not task.cancelled()}
        assert results == pytest.approx(model.grants, abs=TICKS)
        stats = bucket.stats()
        assert stats.level == pytest.approx(model.level, abs=50 * TICKS)
        assert stats.waiting == {lane: len(queue) for lane, queue in model.queues.items()}
    assert all(task.done() for task in tasks)


RATE, BURST = 2.0, 2
# Seconds before a request, its process, and what becomes of its grant.
REQUEST = st.tuples(
    st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.3]),
    st.integers(0, 1),
    st.sampled_from(["used", "used", "unsent", "returned", "rejected", "left"]),
)
FULL = [(0.0, 0, "used"), (0.0, 0, "returned"), *[(0.0, 1, "used")] * 3]


async def list_used(buckets: list[Any], requests: list[Any]) -> tuple[list[float], list[float]]:
    """Return the times of the grants that were not given back, and the ends of the pauses."""
    loop, times, ends = asyncio.get_running_loop(), list[float](), list[float]()

    async def send(bucket: Any, outcome: str) -> None:
        async with asyncio.timeout(0.4 if outcome == "left" else None):
            sent_at = await bucket.acquire()
        if outcome == "returned":
            await bucket.give_back()
            return
        times.append(sent_at)
        if outcome == "unsent":
            await bucket.unspend(sent_at=sent_at)
        elif outcome == "rejected":
            await bucket.refused(sent_at=sent_at, retry_after=0.7)
            ends.append(loop.time() + 0.7)

    tasks = []
    for seconds, process, outcome in requests:
        await asyncio.sleep(seconds)
        tasks.append(asyncio.create_task(send(buckets[process], outcome)))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), TimeoutError}
    for bucket in buckets:
        async with asyncio.timeout(1.5):
            times.append(await bucket.acquire())
        assert bucket.stats().waiting == {"interactive": 0, "bulk": 0}
        await bucket.aclose()
    return times, ends


@pytest.mark.parametrize("kind", ["file", "redis"])
def test_used_grants_keep_the_rate(kind: str, line: RedisLine) -> None:
    """Of two processes, whatever is returned or left; none in a pause, no burst after it, nobody waits on."""

    def make_bucket(place: str) -> Any:
        if kind == "file":
            return file_bucket(Path(place, "state"), RATE, BURST)
        return line.bucket(place, rate=RATE, burst=BURST)

    @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
    @given(st.lists(REQUEST, min_size=3, max_size=12))
    @example(FULL)
    def check(requests: list[Any]) -> None:
        with TemporaryDirectory(suffix=uuid4().hex) as folder:
            buckets = [make_bucket(folder) for _ in range(2)]
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                times, ends = runner.run(list_used(buckets, requests))
        assert excess(times, RATE, BURST) < 1e-3
        for end in ends:
            later = sorted(time for time in times if time > end - 0.69)
            assert all(time > end - 0.01 for time in later)
            assert all(index <= RATE * (time - end) + 0.1 for index, time in enumerate(later))

    check()
