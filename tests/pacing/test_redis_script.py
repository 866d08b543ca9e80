"""The Lua script of RedisBucket against the shared state of FileBucket: one arithmetic in two languages."""

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
DAY, YEAR = 86_400.0, 365 * 86_400.0
# A day's end, so that sequences cross midnight.
MIDNIGHT = 19_676 * DAY
CHANGES: list[Any] = [
    *(("give_back", 0), ("give_back", 1), ("unspend", 0), ("unspend", 5), ("spend", 2), ("pause", 1.5)),
    *(("pause", 2 * DAY), ("exhaust", 2), ("exhaust", 2 * DAY), ("resume", 0)),
]


async def test_script_equals_shared_state(server: RedisServer) -> None:
    """In random sequences of operations, over midnight, with clocks that jump."""
    for number in range(SEQUENCES):
        chance = random.Random(number)
        moment = MIDNIGHT + chance.choice([-4.0, 0.0, 40_000.0]) + chance.randrange(1000) / 1e6
        parameters = Parameters(
            chance.choice([None, 0.5, 8.0]), chance.choice([1, 3]), chance.choice([None, 4])
        )
        bucket = RedisBucket(
            server.url,
            account=f"sequence {number} {os.getpid()}",
            **parameters._asdict(),
            microseconds=lambda: round(moment * 1e6),  # noqa: B023
        )
        numbers: Any = (0.0,) * NUMBERS
        for _ in range(STEPS):
            moment += chance.choice([0, 0, 0.001, 0.13, 0.5, 2])
            if chance.random() < 0.1:
                moment += chance.choice([-10, -DAY, -3 * DAY, DAY, YEAR, -YEAR])
            moment = round(moment * 1e6) / 1e6
            state = SharedState(numbers, parameters, moment)
            if chance.random() < 0.6:
                change = Change("take", chance.choice([0, 1, 1, 1]))
            else:
                change = Change(*chance.choice(CHANGES))
            is_granted = state.apply(change)
            their_granted, reply = await bucket._evaluate(change)
            assert (their_granted, reply.clock_jumped) == (is_granted, state.clock_jumped)
            numbers = state.numbers()
            if parameters.rate is None:  # full_at means nothing then
                numbers = (reply.gcra.full_at, *numbers[1:])
            assert reply.numbers() == pytest.approx(numbers, abs=1e-6)
        await bucket.aclose()
