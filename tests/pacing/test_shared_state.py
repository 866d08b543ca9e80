"""The shared state against a model of it, the Lua script against the shared state, and clocks that jump."""

import os
import random

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin import RedisBucket
from asyncfin.pacing.bucket import Parameters
from asyncfin.pacing.shared import NUMBERS, Change, SharedState
from tests.shared_buckets import RedisServer, excess

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
        st.sampled_from([1.0, 2.0]),
        st.booleans(),
    ),
    max_size=60,
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

    def take(self, counts: bool) -> bool:
        day = self.now // DAY
        spent = self.spent.get(day, 0.0)
        has_room = self.now >= self.exhausted_until and spent + 1 <= self.budget
        if self.now < self.paused_until or self.level < 1 - 1e-5 or (counts and not has_room):
            return False
        self.level -= 1
        self.spent[day] = spent + counts
        return True

    def change(self, operation: str, seconds: float) -> Change:
        day = self.now // DAY
        if operation in ("give back", "unspend"):
            self.spent[day] = max(0.0, self.spent.get(day, 0.0) - 1)
        if operation == "unspend":
            return Change(spending=-1.0)
        if operation == "give back":
            # After a pause only one request may go, whatever was spent before it.
            most = 1.0 + max(0.0, self.now - self.paused_until) * self.rate
            self.level = min(self.level + 1, self.burst, most)
            return Change(pace_return=1.0, spending=-1.0)
        until = self.now + seconds
        if operation == "exhaust":
            self.exhausted_until = max(self.exhausted_until, until)
            return Change(exhaust=seconds)
        if until > self.paused_until:
            filling = until - max(self.now, self.paused_until)
            self.level, self.paused_until = min(self.level + filling * self.rate, 1.0), until
        return Change(pause=seconds)


def take(state: SharedState, counts: bool = True) -> bool:
    return state.apply(Change(take=1.0, counts=float(counts)))


@settings(max_examples=150)
@given(STEPS_OF_MODEL, st.sampled_from([0.5, 3.0, 10.0]), st.integers(2, 5))
def test_state_grants_what_model_grants(
    steps: list[tuple[float, str, float, bool]], rate: float, burst: int
) -> None:
    """A state that is stored and read again at each operation equals a bucket with a level."""
    parameters, now = Parameters(rate, burst, 12.0), MIDNIGHT - 3.0
    model, numbers = Model(rate, burst, 12.0, now), UNUSED
    grants: list[float] = []
    for wait, operation, seconds, counts in steps:
        now += wait
        model.advance(now)
        state = SharedState(numbers, parameters, now)
        if operation == "take":
            granted = take(state, counts)
            assert granted == model.take(counts)
            grants += [now] * granted
        else:
            state.apply(model.change(operation, seconds))
            grants = [] if operation == "give back" else grants
        numbers = state.numbers(parameters)
        assert state.allowance.spent == model.spent.get(now // DAY, 0.0)
    assert excess(grants, rate, burst) <= 1e-4


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
                change = Change(take=1.0, counts=chance.choice([0.0, 1.0, 1.0, 1.0]))
            else:
                change = Change(
                    pace_return=chance.choice([0.0, 0.0, 1.0]),
                    spending=chance.choice([0.0, 2.0, -1.0]),
                    age=chance.choice([0.0, 5.0]),
                    pause=chance.choice([0.0, 0.0, 1.5, 2 * DAY]),
                    exhaust=chance.choice([0.0, 0.0, 0.0, 2.0, 2 * DAY]),
                    resume=chance.choice([0.0, 0.0, 0.0, 1.0]),
                )
                if change == Change():
                    continue
            granted = state.apply(change)
            their_granted, reply = await bucket._evaluate(change)
            stored = parameters if granted else state.stored
            assert (their_granted, reply.clock_jumped) == (granted, state.clock_jumped)
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
    for _ in range(2):
        take(ahead)
    ahead.apply(change)
    return SharedState(ahead.numbers(parameters), parameters, MIDNIGHT)


@pytest.mark.parametrize("change", [Change(pause=30), Change(exhaust=30), Change()])
def test_year_ahead_closes_one_day(change: Change) -> None:
    """Ends are clipped to 24 hours, and the spending becomes today's."""
    state = change_ahead(YEAR, change)
    assert state.clock_jumped
    assert (state.allowance.spent, state.allowance.day) == (2, MIDNIGHT // DAY)
    later = SharedState(state.numbers(None), state.parameters, MIDNIGHT + DAY + 1)
    assert not later.clock_jumped
    assert take(later)
    assert later.allowance.spent == 1


def test_hour_ahead_takes_the_level_only() -> None:
    """After a clock was set back by an hour, the bucket is empty, and fills at its rate."""
    state = change_ahead(3600, Change())
    assert state.gcra.held(state.now) == pytest.approx(0, abs=1e-4)
    later = SharedState(state.numbers(None), state.parameters, MIDNIGHT + 0.11)
    assert [take(later) for _ in range(3)] == [True, False, False]


def test_clock_set_back_renews_no_budget() -> None:
    """Back and forth over midnight, three are granted and not six."""
    parameters, numbers, granted = Parameters(None, 5, 3), UNUSED, 0
    for seconds in (5, -5, 5, -5, 5, DAY - 1):
        state = SharedState(numbers, parameters, MIDNIGHT + seconds)
        granted += sum(take(state) for _ in range(2 if seconds == 5 else 1))
        numbers = state.numbers(parameters)
    assert granted == 3
    state = SharedState(numbers, parameters, MIDNIGHT + DAY)
    assert sum(take(state) for _ in range(5)) == 3
