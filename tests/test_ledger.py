"""The Lua script of the Redis bucket against the ledger in Python, and the ledger's own rules."""

import os
import random
from collections.abc import Iterator
from math import inf

import pytest

from asyncfin.pacing.ledger import Booking, Ledger
from asyncfin.pacing.redis import RedisStore
from asyncfin.redis import RedisClients
from tests.shared_buckets import RedisServer, redis_server

# ASYNCFIN_SEQUENCES=10000 takes some minutes.
SEQUENCES, STEPS = int(os.environ.get("ASYNCFIN_SEQUENCES", "300")), 12
OPERATIONS = ["reserve", "confirm"] * 4 + ["cancel", "back", "unspend", "pause", "exhaust", "rate"]
# A day's end, in seconds of Unix time, so that sequences cross midnight.
MIDNIGHT = 1_700_006_400.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


def agree(mine: Booking, theirs: Booking) -> bool:
    """Tell whether two answers are the same to some microseconds, which the server rounds to."""
    if (mine.granted, mine.rate, mine.burst, mine.daily_budget) != (
        theirs.granted,
        theirs.rate,
        theirs.burst,
        theirs.daily_budget,
    ):
        return False
    near = [
        (mine.spent, theirs.spent),
        (mine.resume_at or 0.0, theirs.resume_at or 0.0),
        (max(mine.paused_until, 0.0), max(theirs.paused_until, 0.0)),
    ]
    if mine.moment > -inf and not mine.granted:
        near.append((mine.moment, theirs.moment))
    slack = 3e-5 * max(1.0, mine.rate or 0.0)
    return all(abs(a - b) < 3e-5 for a, b in near) and abs(mine.level - theirs.level) < slack


async def one_sequence(chance: random.Random, url: str, number: int) -> int:
    """Put a random sequence of operations to both, on one clock, and compare each answer; return how many."""
    now = MIDNIGHT + chance.choice([-4.0, -1.0, 0.0, 40_000.0]) + chance.randrange(1000) / 1000
    clock = [round(now * 1e6)]
    parameters = (chance.choice([0.5, 2.0, 8.0, 50.0]), chance.choice([1.0, 3.0]), chance.choice([None, 4.0]))
    store = RedisStore(RedisClients(url), f"sequence {number}", parameters, None, lambda: clock[0])
    ledger = Ledger(*parameters, epoch=0)
    booked: tuple[Booking, Booking, float] | None = None
    grants: list[float] = []
    try:
        for step in range(STEPS):
            clock[0] += chance.choice([0, 0, 1000, 20_000, 130_000, 500_000, 2_000_000])
            if chance.random() < 0.04:  # it was set back
                clock[0] -= chance.choice([300_000, 3_000_000, 90_000_000_000])
            ledger.at(clock[0] / 1e6, clock[0] / 1e6)
            op = chance.choice(OPERATIONS)
            weight, counts = float(chance.choice([1, 1, min(2, parameters[1])])), chance.random() < 0.8
            if op in ("confirm", "cancel") and booked is None:
                op = "reserve"
            if op == "reserve":
                mine, theirs = ledger.reserve(weight, counts), await store.reserve(weight, counts)
            elif op == "confirm" and booked is not None:
                weight = booked[2]
                mine, theirs = (
                    ledger.confirm(booked[0], weight, counts),
                    await store.confirm(booked[1], weight, counts),
                )
            elif op == "cancel" and booked is not None:
                ledger.cancel(booked[0], booked[2])
                mine, theirs, booked = ledger.look(), await store.cancel(booked[1], booked[2]), None
            elif op in ("back", "unspend"):
                at = chance.choice(grants) if grants else now - 1
                if op == "back":
                    ledger.give_back(1, counts, at)
                    mine, theirs = ledger.look(), await store.give_back(1, counts, at)
                else:
                    ledger.budget.unspend(1, at)
                    mine, theirs = ledger.look(), await store.unspend(1, at)
            elif op == "pause":
                seconds = chance.choice([0.25, 1.0, 3.0])
                ledger.pause(seconds)
                mine, theirs = ledger.look(), await store.pause(seconds)
            elif op == "exhaust":
                ledger.exhaust(2.0)
                mine, theirs = ledger.look(), await store.exhaust(2.0)
            else:
                rate = chance.choice([1.0, 5.0, 20.0])
                learned = await store.learn(ledger.learned, b"state %d" % step, rate)
                assert learned is not None, "nobody else has replaced the learned state"
                ledger.learned = b"state %d" % step
                ledger.set_rate(rate, ledger.gcra.burst)
                mine, theirs = ledger.look(), learned
            assert agree(mine, theirs), (number, step, op, mine, theirs)
            if op in ("reserve", "confirm"):
                waits = not mine.granted and mine.resume_at is None
                booked = (mine, theirs, weight) if waits else None
                if mine.granted:
                    grants.append(mine.now)
    finally:
        await store.aclose()
    return STEPS


@pytest.mark.timeout(600)
async def test_the_server_s_script_equals_the_ledger_in_random_sequences(server: RedisServer) -> None:
    """Bookings, grants, levels, pauses, days and budgets agree after each operation."""
    done = 0
    for number in range(SEQUENCES):
        done += await one_sequence(random.Random(number), server.url, number)
    assert done == SEQUENCES * STEPS
