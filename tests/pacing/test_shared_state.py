"""The shared state against a model of it, the Lua script against the shared state, and clocks that jump."""

import os
import random
from typing import Any

import pytest

from asyncfin import RedisBucket
from asyncfin.pacing.bucket import Parameters
from asyncfin.pacing.pace import Change
from asyncfin.pacing.shared import NUMBERS, SharedState
from tests.shared_buckets import RedisServer

# ASYNCFIN_SEQUENCES=10000 takes some minutes.
SEQUENCES, STEPS = int(os.environ.get("ASYNCFIN_SEQUENCES", "200")), 12
DAY = 86_400.0
# A day's end, so that sequences cross midnight.
MIDNIGHT = 19_676 * DAY
YEAR = 365 * DAY
UNUSED = (0.0,) * NUMBERS
CHANGES: list[Any] = [
    *(("give_back", 0), ("give_back", 1), ("unspend", 0), ("unspend", 5), ("spend", 2), ("pause", 1.5)),
    *(("pause", 2 * DAY), ("exhaust", 2), ("exhaust", 2 * DAY), ("resume", 0)),
]


def take(state: SharedState, counts: bool = True) -> bool:
    return state.apply(Change("take", counts))


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
                change = Change("take", chance.choice([0, 1, 1, 1]))
            else:
                change = Change(*chance.choice(CHANGES))
            granted = state.apply(change)
            their_granted, reply = await bucket._evaluate(change)
            assert (their_granted, reply.clock_jumped) == (granted, state.clock_jumped)
            numbers = state.numbers()
            if parameters.rate is None:  # full_at means nothing then
                numbers = (reply.gcra.full_at, *numbers[1:])
            assert reply.numbers() == pytest.approx(numbers, abs=1e-6)
        await bucket.aclose()


def change_ahead(seconds: float, change: Change) -> SharedState:
    """Return the state today, which a clock that was ahead has changed."""
    parameters = Parameters(10, 2, 3)
    ahead = SharedState(UNUSED, parameters, MIDNIGHT + seconds)
    for _ in range(2):
        take(ahead)
    ahead.apply(change)
    return SharedState(ahead.numbers(), parameters, MIDNIGHT)


@pytest.mark.parametrize("change", [Change("pause", 30), Change("exhaust", 30), Change("look")])
def test_year_ahead_closes_one_day(change: Change) -> None:
    """Ends are clipped to 24 hours, and the spending becomes today's."""
    state = change_ahead(YEAR, change)
    assert state.clock_jumped
    assert (state.allowance.spending, state.allowance.day) == (2, MIDNIGHT // DAY)
    later = SharedState(state.numbers(), state.parameters, MIDNIGHT + DAY + 1)
    assert not later.clock_jumped
    assert take(later)
    assert later.allowance.spending == 1


def test_hour_ahead_takes_the_level_only() -> None:
    """After a clock was set back by an hour, the bucket is empty, and fills at its rate."""
    state = change_ahead(3600, Change("look"))
    assert state.gcra.held(state.now) == pytest.approx(0, abs=1e-4)
    later = SharedState(state.numbers(), state.parameters, MIDNIGHT + 0.11)
    assert [take(later) for _ in range(3)] == [True, False, False]


def test_clock_set_back_renews_no_budget() -> None:
    """Back and forth over midnight, three are granted and not six."""
    parameters, numbers, granted = Parameters(None, 5, 3), UNUSED, 0
    for seconds in (5, -5, 5, -5, 5, DAY - 1):
        state = SharedState(numbers, parameters, MIDNIGHT + seconds)
        granted += sum(take(state) for _ in range(2 if seconds == 5 else 1))
        numbers = state.numbers()
    assert granted == 3
    state = SharedState(numbers, parameters, MIDNIGHT + DAY)
    assert sum(take(state) for _ in range(5)) == 3
