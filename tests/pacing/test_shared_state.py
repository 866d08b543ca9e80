"""The shared state against a model of it, the Lua script against the shared state, and clocks that jump."""

import os
import random

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin import RedisBucket
from asyncfin.pacing.bucket import Parameters
from asyncfin.pacing.shared import NUMBERS, Change, SharedState
from tests.shared_buckets import RedisServer

# ASYNCFIN_SEQUENCES=10000 takes some minutes.
SEQUENCES, STEPS = int(os.environ.get("ASYNCFIN_SEQUENCES", "200")), 12
DAY = 86_400.0
# A day's end, so that sequences cross midnight.
MIDNIGHT = 19_676 * DAY
YEAR = 365 * DAY
UNUSED = (0.0,) * NUMBERS

STEPS_OF_MODEL = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.0137, 0.171, 1.313, 7.77]),
        st.sampled_from(["take", "take", "take", "give back", "pause", "exhaust", "unspend"]),
        st.sampled_from([1.0, 1.0, 2.0]),
        st.booleans(),
        st.integers(1, 5),
    ),
    max_size=40,
)


class Model:
    """A bucket that holds a level, moved from operation to operation, and a day's spending."""

    def __init__(self, rate: float, burst: float, budget: float, now: float) -> None:
        self.rate, self.burst, self.budget = rate, burst, budget
        self.level, self.now, self.paused_until, self.exhausted_until = burst, now, 0.0, 0.0
        self.spent: dict[float, float] = {}

    def advance(self, now: float) -> None:
        filling = max(0.0, now - max(self.now, self.paused_until))
        self.level, self.now = min(self.burst, self.level + filling * self.rate), now

    def take(self, weight: float, counts: bool, most: int) -> int:
        day = self.now // DAY
        for granted in range(most):
            spent = self.spent.get(day, 0.0)
            has_room = self.now >= self.exhausted_until and spent + weight <= self.budget
            if self.now < self.paused_until or self.level < weight - 1e-5 or (counts and not has_room):
                return granted
            self.level -= weight
            self.spent[day] = spent + weight * counts
        return most

    def change(self, operation: str, weight: float) -> Change:
        day = self.now // DAY
        if operation == "give back":
            # After a pause only one request may go, whatever was spent before it.
            most = 1.0 + max(0.0, self.now - self.paused_until) * self.rate
            self.level = min(self.level + weight, self.burst, most)
            self.spent[day] = max(0.0, self.spent.get(day, 0.0) - weight)
            return Change(unpaced=weight, spent=-weight)
        if operation == "unspend":
            self.spent[day] = max(0.0, self.spent.get(day, 0.0) - 1)
            return Change(spent=-1.0)
        if operation == "exhaust":
            self.exhausted_until = max(self.exhausted_until, self.now + weight)
            return Change(exhaust=weight)
        until = self.now + weight
        if until > self.paused_until:
            filling = until - max(self.now, self.paused_until)
            self.level, self.paused_until = min(self.level + filling * self.rate, 1.0), until
        return Change(pause=weight)


@settings(max_examples=150)
@given(STEPS_OF_MODEL, st.sampled_from([0.5, 3.0, 10.0]), st.integers(2, 5))
def test_state_grants_what_model_grants(
    steps: list[tuple[float, str, float, bool, int]], rate: float, burst: int
) -> None:
    """A state that is stored and read again at each operation equals a bucket with a level."""
    parameters, now = Parameters(rate, burst, 12.0), MIDNIGHT - 3.0
    model, numbers = Model(rate, burst, 12.0, now), UNUSED
    grants: list[float] = []
    for seconds, operation, weight, counts, most in steps:
        now += seconds
        model.advance(now)
        state = SharedState(numbers, parameters, now)
        if operation == "take":
            granted = state.take(weight, counts, most)
            assert granted == model.take(weight, counts, most)
            grants += [now] * int(granted * weight)
        else:
            state.change(model.change(operation, weight))
            grants = [] if operation == "give back" else grants
        numbers = state.numbers(parameters)
        assert state.allowance.spent == model.spent.get(now // DAY, 0.0)
    for first in range(len(grants)):
        for last in range(first, len(grants)):
            assert last - first + 1 <= burst + rate * (grants[last] - grants[first]) + 1e-4


async def test_script_equals_shared_state(server: RedisServer) -> None:
    """In random sequences of operations, over midnight, with clocks that jump."""
    for number in range(SEQUENCES):
        chance, clock = random.Random(number), [0]
        clock[0] = round((MIDNIGHT + chance.choice([-4.0, 0.0, 40_000.0])) * 1e6) + chance.randrange(1000)
        parameters = Parameters(
            chance.choice([None, 0.5, 8.0]), chance.choice([1, 3]), chance.choice([None, 4])
        )
        account = f"sequence {number} {os.getpid()}"
        bucket = RedisBucket(
            server.url,
            account=account,
            rate=parameters.rate,
            burst=parameters.burst,
            daily_budget=parameters.daily_budget,
            microseconds=lambda clock=clock: clock[0],  # type: ignore[misc]
        )
        numbers = UNUSED
        for _ in range(STEPS):
            clock[0] += chance.choice([0, 0, 1000, 130_000, 500_000, 2_000_000])
            if chance.random() < 0.1:
                clock[0] += round(chance.choice([-10, -DAY, -3 * DAY, DAY, YEAR, -YEAR]) * 1e6)
            state = SharedState(numbers, parameters, clock[0] / 1e6)
            if chance.random() < 0.6:
                weight, counts, most = chance.choice([1.0, parameters.burst]), chance.random() < 0.8, 3
                granted = state.take(weight, counts, most)
                theirs, reply = await bucket._evaluate("take", weight, float(counts), most)
                stored = parameters if granted else state.stored
            else:
                change = Change(
                    unpaced=chance.choice([0.0, 0.0, 1.0]),
                    spent=chance.choice([0.0, 2.0, -1.0]),
                    age=chance.choice([0.0, 5.0]),
                    pause=chance.choice([0.0, 0.0, 1.5, 2 * DAY]),
                    exhaust=chance.choice([0.0, 0.0, 0.0, 2.0, 2 * DAY]),
                    resume=chance.choice([0.0, 0.0, 0.0, 1.0]),
                )
                granted = 0
                state.change(change)
                theirs, reply = await bucket._evaluate("change", *change)
                stored = state.stored
            assert (theirs, reply.clock_jumped) == (granted, state.clock_jumped)
            assert reply.stored == state.stored
            numbers = state.numbers(stored)
            if parameters.rate is None:  # full_at means nothing then
                numbers = (reply.gcra.full_at, *numbers[1:])
            assert reply.numbers(stored) == pytest.approx(numbers, abs=1e-6)
        await bucket.aclose()


def change_ahead(seconds: float, change: Change) -> SharedState:
    """Return the state today, which a clock that was ahead has changed."""
    parameters = Parameters(10, 2, 3)
    ahead = SharedState(UNUSED, parameters, MIDNIGHT + seconds)
    ahead.take(1, True, 2)
    ahead.change(change)
    return SharedState(ahead.numbers(parameters), parameters, MIDNIGHT)


@pytest.mark.parametrize("change", [Change(pause=30), Change(exhaust=30), Change()])
def test_year_ahead_closes_nothing_for_longer_than_a_day(change: Change) -> None:
    """Ends are clipped to 24 hours, and the spending becomes today's."""
    state = change_ahead(YEAR, change)
    assert state.clock_jumped
    assert (state.allowance.spent, state.allowance.day) == (2, MIDNIGHT // DAY)
    later = SharedState(state.numbers(None), state.parameters, MIDNIGHT + DAY + 1)
    assert not later.clock_jumped
    assert later.take(1, True, 1) == 1
    assert later.allowance.spent == 1


def test_hour_ahead_takes_the_level_only() -> None:
    """After a clock was set back by an hour, the bucket is empty, and fills at its rate."""
    state = change_ahead(3600, Change())
    assert state.gcra.held(state.now) == pytest.approx(0, abs=1e-4)
    later = SharedState(state.numbers(None), state.parameters, MIDNIGHT + 0.11)
    assert later.take(1, True, 5) == 1


def test_clock_set_back_over_midnight_renews_no_budget() -> None:
    """Back and forth over midnight, three are granted and not six."""
    parameters, numbers, granted = Parameters(None, 5, 3), UNUSED, 0
    for seconds in (5, -5, 5, -5, 5, DAY - 1):
        state = SharedState(numbers, parameters, MIDNIGHT + seconds)
        granted += state.take(1, True, 2 if seconds == 5 else 1)
        numbers = state.numbers(parameters)
    assert granted == 3
    assert SharedState(numbers, parameters, MIDNIGHT + DAY).take(1, True, 5) == 3
