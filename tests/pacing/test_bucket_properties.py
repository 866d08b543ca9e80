"""The token bucket against a plain model of it, against pyrate-limiter, and against its own promise."""

import asyncio
from collections import deque
from itertools import accumulate

import pytest
from attrs import Factory, define
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from asyncfin.pacing.bucket import TokenBucket
from tests import examples
from tests.conftest import VirtualTimeLoop

# The virtual clock moves on by a nanosecond at each turn of the loop.
TICKS = 1e-5
WAITS = st.sampled_from([0.0, 0.0731, 0.317, 1.137, 7.919])
RATES = st.sampled_from([0.5, 3.0, 10.0, 50.0])
BURSTS = st.integers(1, 6)
LANES = st.sampled_from(["interactive", "bulk"])


@define
class Model:
    """A bucket that holds a level, and two queues, moved from grant to grant."""

    rate: float
    burst: float
    level: float
    now: float = 0.0
    paused_until: float = 0.0
    passed: int = 0
    queues: dict[str, deque[tuple[int, float]]] = Factory(lambda: {"interactive": deque(), "bulk": deque()})
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
            name, weight = self.queues[lane][0]
            missing = max(0.0, min(weight, self.burst) - self.level)
            moment = max(self.now, self.paused_until) + missing / self.rate
            if moment > now + TICKS:
                break
            self.refill(moment)
            self.level -= weight
            self.grants[name] = moment
            self.queues[lane].popleft()
            self.passed = self.passed + 1 if lane == "interactive" and self.queues["bulk"] else 0
        self.refill(now)

    def pause(self, until: float) -> None:
        filling = until - max(self.now, self.paused_until)
        if filling > 0:
            self.paused_until = until
            self.level = min(self.level + filling * self.rate, 1.0)


class BucketMachine(RuleBasedStateMachine):
    """Acquires, cancellations, pauses and new settings in any order."""

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

    @rule(weight=st.integers(1, 6), lane=LANES, count=st.integers(1, 12))
    def acquire(self, weight: int, lane: str, count: int) -> None:
        weight = min(weight, int(self.bucket.burst))
        for _ in range(count):
            self.model.queues[lane].append((len(self.tasks), weight))
            self.tasks.append(self.loop.create_task(self.bucket.acquire(weight, lane=lane)))
        self.turn()

    @rule(chance=st.randoms(use_true_random=False))
    def cancel(self, chance: object) -> None:
        waiting = [n for n, task in enumerate(self.tasks) if not task.done()]
        if waiting:
            name = chance.choice(waiting)  # type: ignore[attr-defined]
            self.tasks[name].cancel()
            for queue in self.model.queues.values():
                for entry in [entry for entry in queue if entry[0] == name]:
                    queue.remove(entry)
            self.turn()

    @rule(seconds=WAITS)
    def wait(self, seconds: float) -> None:
        self.turn(seconds)

    @rule(seconds=WAITS)
    def pause(self, seconds: float) -> None:
        async def pause() -> None:
            self.bucket.pause_until(self.loop.now + seconds)

        self.model.pause(self.loop.now + seconds)
        self.loop.run_until_complete(pause())
        self.turn()

    @rule(rate=RATES)
    def set_rate(self, rate: float) -> None:
        self.model.rate = rate
        self.bucket.rate = rate
        self.turn()

    @rule(burst=BURSTS)
    def set_burst(self, burst: int) -> None:
        self.model.burst = burst
        self.model.level = min(self.model.level, burst)
        self.bucket.burst = burst
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


@pytest.mark.parametrize("broken", ["pause", "grants_the_same_at_the_same_times"])
def test_a_machine_that_fails_closes_its_loop(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its constructor or its teardown: an open loop would be the failure that is shown."""
    made: list[VirtualTimeLoop] = []

    def fail(*_: object) -> None:
        raise KeyError(broken)

    class Recorded(VirtualTimeLoop):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    monkeypatch.setattr(f"{__name__}.VirtualTimeLoop", Recorded)
    monkeypatch.setattr(BucketMachine, broken, fail)

    def run() -> None:
        machine = BucketMachine()
        machine.acquire(1, "bulk", 5)
        machine.teardown()

    with pytest.raises(KeyError, match=broken):
        run()
    assert [loop.is_closed() for loop in made] == [True]


TestBucketAgainstModel = BucketMachine.TestCase
TestBucketAgainstModel.settings = settings(max_examples=examples(60), stateful_step_count=30)

ARRIVALS = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 5), st.one_of(st.none(), st.integers(1, 300))),
    min_size=1,
    max_size=40,
)


def granted(
    bucket: TokenBucket, arrivals: list[tuple[int, int, int | None]], lane: str = "interactive"
) -> list[tuple[float, int, int]]:
    """Return time, number and weight of the grants; arrivals are gap, weight, patience (ms)."""
    grants: list[tuple[float, int, int]] = []

    async def one(number: int, weight: int, patience: int | None) -> None:
        async with asyncio.timeout(None if patience is None else patience / 1000):
            grants.append((await bucket.acquire(weight, lane=lane), number, weight))

    async def together() -> None:
        tasks = []
        for number, (gap, weight, patience) in enumerate(arrivals):
            await asyncio.sleep(gap / 1000)
            tasks.append(asyncio.create_task(one(number, weight, patience)))
        await asyncio.gather(*tasks, return_exceptions=True)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(together())
    return grants


@given(ARRIVALS, RATES, LANES)
def test_no_window_holds_more_than_burst_and_rate_allow(
    arrivals: list[tuple[int, int, int | None]], rate: float, lane: str
) -> None:
    """Between any two grants, both counted, no more than the burst and what the time brings; in order."""
    grants = granted(TokenBucket(rate, 5), arrivals, lane)
    assert [number for _, number, _ in grants] == sorted(number for _, number, _ in grants)
    for first in range(len(grants)):
        total = 0
        for at, _, weight in grants[first:]:
            total += weight
            assert total <= 5 + rate * (at - grants[first][0]) + TICKS * rate


@settings(max_examples=examples(50))
@given(ARRIVALS, st.sampled_from([5, 20, 50]), st.integers(5, 9))
def test_grants_when_pyrate_limiter_does(
    arrivals: list[tuple[int, int, int | None]], rate: int, burst: int
) -> None:
    """An independent token bucket, asked every millisecond in the order of arrival, agrees to 2 ms."""
    limiter = pytest.importorskip("pyrate_limiter")
    patient = [(gap, weight, None) for gap, weight, _ in arrivals]
    oracle = limiter.StateBucket([limiter.Rate(rate, 1000, burst=burst)], limiter.TokenBucket())
    expected, now = [], 0
    for arrival, (_, weight, _) in zip(accumulate(gap for gap, _, _ in patient), patient, strict=True):
        now = max(now, arrival)
        while not oracle.put(limiter.RateItem("", now, weight)):
            now += 1
        expected.append(now / 1000)
    times = [at for at, _, _ in granted(TokenBucket(rate, burst), patient)]
    assert times == pytest.approx(expected, abs=2e-3)
