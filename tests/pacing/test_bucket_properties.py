"""The token bucket against a plain model of it, and against its own promise."""

import asyncio
from collections import deque

import pytest
from attrs import Factory, define
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from asyncfin.model.query import Lane
from asyncfin.pacing.bucket import TokenBucket
from tests import examples
from tests.conftest import VirtualTimeLoop

# The virtual clock moves on by a nanosecond at each turn of the loop.
TICKS = 1e-5
WAITS = st.sampled_from([0.0, 0.0731, 0.317, 1.137, 7.919])
LANES = st.sampled_from(["interactive", "bulk"])


@define
class Model:
    """A bucket that holds a level, and two queues, moved from grant to grant."""

    rate: float
    burst: int
    level: float
    now: float = 0.0
    paused_until: float = 0.0
    passed: int = 0
    queues: dict[str, deque[int]] = Factory(lambda: {"interactive": deque(), "bulk": deque()})
    grants: dict[int, float] = Factory(dict)

    def refill(self, now: float) -> None:
        filling = max(0.0, now - max(self.now, self.paused_until))
        self.level = min(self.burst, self.level + filling * self.rate)
        self.now = max(self.now, now)

    def next_lane(self) -> str | None:
        interactive, bulk = self.queues["interactive"], self.queues["bulk"]
        if bulk and (self.passed == 9 or not interactive):
            return "bulk"
        return "interactive" if interactive else None

    def advance(self, now: float) -> None:
        while lane := self.next_lane():
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
        filling = until - max(self.now, self.paused_until)
        if filling > 0:
            self.paused_until = until
            self.level = min(self.level + filling * self.rate, 1.0)


class BucketMachine(RuleBasedStateMachine):
    """Acquires, cancellations and pauses in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.bucket = TokenBucket(10, 3)
        self.model = Model(rate=10, burst=3, level=3)
        self.tasks: list[asyncio.Task[float]] = []
        try:
            self.pause(0)  # from here on the bucket belongs to the loop
        except BaseException:
            self.loop.close()  # Hypothesis calls no teardown of what was not made
            raise

    def turn(self, seconds: float = 0.0) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.model.advance(self.loop.now)

    @rule(lane=LANES, count=st.integers(1, 12))
    def acquire(self, lane: Lane, count: int) -> None:
        for _ in range(count):
            self.model.queues[lane].append(len(self.tasks))
            self.tasks.append(self.loop.create_task(self.bucket.acquire(lane=lane)))
        self.turn()

    @rule(chance=st.randoms(use_true_random=False))
    def cancel(self, chance: object) -> None:
        waiting = [n for n, task in enumerate(self.tasks) if not task.done()]
        if waiting:
            name = chance.choice(waiting)  # type: ignore[attr-defined]
            self.tasks[name].cancel()
            for queue in self.model.queues.values():
                if name in queue:
                    queue.remove(name)
            self.turn()

    @rule(seconds=WAITS)
    def wait(self, seconds: float) -> None:
        self.turn(seconds)

    @rule(seconds=WAITS)
    def pause(self, seconds: float) -> None:
        async def pause() -> None:
            await self.bucket.refused(sent_at=self.loop.now, retry_after=seconds)

        self.model.pause(self.loop.now + seconds)
        self.loop.run_until_complete(pause())
        self.turn()

    @invariant()
    def grants_the_same_at_the_same_times(self) -> None:
        granted = {
            name: task.result()
            for name, task in enumerate(self.tasks)
            if task.done() and not task.cancelled()
        }
        assert granted == pytest.approx(self.model.grants, abs=TICKS)

    @invariant()
    def holds_and_queues_the_same(self) -> None:
        stats = self.bucket.stats()
        assert stats.level == pytest.approx(self.model.level, abs=50 * TICKS)
        assert stats.waiting == {lane: len(queue) for lane, queue in self.model.queues.items()}

    def teardown(self) -> None:
        try:
            self.turn(10_000)
            self.grants_the_same_at_the_same_times()
            assert all(task.done() for task in self.tasks)
        finally:
            self.loop.run_until_complete(self.end())
            self.loop.close()

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


TestBucketAgainstModel = BucketMachine.TestCase
TestBucketAgainstModel.settings = settings(max_examples=examples(60), stateful_step_count=30)
