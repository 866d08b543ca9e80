"""The Lua script of the Redis bucket against the ledger in Python, and the ledger's own rules."""

import os
import random
from math import inf

import pytest

from asyncfin.pacing.ledger import Booking, Ledger, State
from asyncfin.pacing.redis import RedisLedger
from asyncfin.redis import RedisClients
from tests import examples
from tests.shared_buckets import RedisLine, RedisServer

# ASYNCFIN_SEQUENCES=10000 takes some minutes.
SEQUENCES, STEPS = int(os.environ.get("ASYNCFIN_SEQUENCES", examples(300))), 12
OPERATIONS = ["reserve", "confirm"] * 4 + [
    "cancel", "give back", "unspend", "pause", "exhaust", "resume", "learn", "spend", "look"
]  # fmt: skip
# A day's end, in seconds of Unix time, so that sequences cross midnight.
MIDNIGHT = 1_700_006_400.0


def agree(mine: tuple[Booking, State], theirs: tuple[Booking, State]) -> bool:
    """Return whether two replies are the same to some microseconds, which the server rounds to."""
    (my_booking, my_state), (their_booking, their_state) = mine, theirs
    exact = [
        (booking.granted, state.rate, state.burst, state.daily_budget, state.learns, state.learned)
        for booking, state in (mine, theirs)
    ]
    near = [
        (my_booking.resume_at or 0.0, their_booking.resume_at or 0.0),
        (my_state.resume_at or 0.0, their_state.resume_at or 0.0),
        (my_state.spent, their_state.spent),
        (max(my_state.paused_until, 0.0), max(their_state.paused_until, 0.0)),
        (my_state.measure.lately, their_state.measure.lately),
        (my_state.measure.before, their_state.measure.before),
    ]
    if my_state.measure.lately:
        near.append((my_state.measure.began, their_state.measure.began))
    if my_booking.moment > -inf and not my_booking.granted:
        near.append((my_booking.moment, their_booking.moment))
    slack = 3e-5 * max(1.0, my_state.rate or 0.0)
    return (
        exact[0] == exact[1]
        and all(abs(a - b) < 3e-5 for a, b in near)
        and abs(my_state.level - their_state.level) < slack
    )


class Sequence:
    """A random sequence of operations on the ledger and on the server, on one clock."""

    def __init__(self, number: int, clients: RedisClients) -> None:
        chance = self.chance = random.Random(number)
        begin = MIDNIGHT + chance.choice([-4.0, -1.0, 0.0, 40_000.0]) + chance.randrange(1000) / 1000
        self.clock = round(begin * 1e6)
        parameters = (
            chance.choice([None, 0.5, 2.0, 8.0, 50.0]),
            chance.choice([1.0, 3.0]),
            chance.choice([None, 4.0]),
        )
        self.burst = parameters[1]
        self.store = RedisLedger(clients, f"sequence {number}", parameters, None, lambda: self.clock, 0.5)
        self.ledger = Ledger(*parameters, epoch=0)
        self.ledger.at(self.clock / 1e6, self.clock / 1e6)
        self.booked: tuple[Booking, Booking, float] | None = None
        self.grants: list[float] = []

    def advance(self) -> None:
        self.clock += self.chance.choice([0, 0, 1000, 20_000, 130_000, 500_000, 2_000_000])
        if self.chance.random() < 0.04:  # it was set back
            self.clock -= self.chance.choice([300_000, 3_000_000, 90_000_000_000])
        self.ledger.at(self.clock / 1e6, self.clock / 1e6)

    async def step(self, number: int) -> str:
        """Run one operation on both and return its name; they must agree on the reply."""
        before, op = (self.ledger.dump(), self.ledger.day), self.chance.choice(OPERATIONS)
        self.advance()
        if op in ("confirm", "cancel") and self.booked is None:
            op = "reserve"
        if op in ("reserve", "confirm"):
            await self.book(op)
        else:
            await self.change(op, b"state %d" % number)
        if op == "look":  # it stores nothing, not even the time
            self.ledger = Ledger.load(*before)
        return op

    async def book(self, op: str) -> None:
        chance, ledger, store = self.chance, self.ledger, self.store
        weight, counts = float(chance.choice([1, 1, min(2, self.burst)])), chance.random() < 0.8
        if op == "confirm" and self.booked is not None:
            first, second, weight = self.booked
            mine = ledger.confirm(first, weight, counts)
            theirs, state = await store.confirm(second, weight, counts)
        else:
            most = chance.choice([1, 1, 2, 5])
            mine = ledger.reserve(weight, counts, most)
            theirs, state = await store.reserve(weight, counts, most)
        waits = not mine.granted and mine.resume_at is None
        self.booked = (mine, theirs, weight) if waits else None
        if mine.granted:
            self.grants.append(ledger.now)
        assert agree((mine, ledger.state()), (theirs, state)), (op, mine, theirs, ledger.state(), state)

    async def change(self, op: str, learned: bytes) -> None:
        chance, ledger, store = self.chance, self.ledger, self.store
        at = chance.choice(self.grants) if self.grants else ledger.now - 0.7771
        seconds = chance.choice([0.25, 1.0, 3.0])
        state: State | None
        if op == "cancel":
            assert self.booked is not None
            (first, second, weight), self.booked = self.booked, None
            ledger.cancel(first, weight)
            state = await store.cancel(second, weight)
        elif op == "give back":
            counts = chance.random() < 0.8
            ledger.give_back(1, counts, at)
            state = await store.give_back(1, counts, at)
        elif op == "unspend":
            ledger.unspend(1, at)
            state = await store.unspend(1, at)
        elif op == "pause":
            ledger.pause(seconds)
            state = await store.pause(seconds)
        elif op == "exhaust":
            ledger.exhaust(2.0)
            state = await store.exhaust(2.0)
        elif op == "resume":
            ledger.resume()
            state = await store.resume()
        elif op == "spend":
            weight, counted = chance.choice([1.0, 5.0, 40.0]), chance.choice([0.0, 1.0])
            ledger.spend(weight, counted, seconds)
            micros = str(round(seconds * 1e6))
            _, state = await store._run("spend", repr(weight), "0", repr(counted), micros)
        elif op == "look":
            state = await store.state()
        else:
            rate, pause = chance.choice([1.0, 5.0, 20.0]), chance.choice([0.0, seconds])
            assert ledger.learn(ledger.learned, learned, rate, pause)
            state = await store.learn(state_before(store), learned, rate, pause)
        assert state is not None, "no other process has replaced the learned state"
        nothing = Booking(granted=0, moment=-inf, end=0.0, epoch=0, resume_at=None)
        assert agree((nothing, ledger.state()), (nothing, state)), (op, ledger.state(), state)


def state_before(store: RedisLedger) -> bytes:
    """Return the learned state that the server has, as the last reply said."""
    return b"" if store._state is None else store._state.learned


@pytest.mark.virtual
@pytest.mark.timeout(600)
async def test_the_server_s_script_equals_the_ledger_in_random_sequences(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bookings, grants, levels, pauses, days, budgets and measures agree after each operation."""
    RedisLine(server.url, monkeypatch)
    clients = RedisClients(server.url)
    for number in range(SEQUENCES):
        sequence = Sequence(number, clients)
        await sequence.store._contact()  # the parameters, before the first operation
        for step in range(STEPS):
            await sequence.step(step)
    await clients.aclose()


@pytest.mark.virtual
async def test_of_two_that_learn_from_one_state_the_second_is_refused(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the event of the first would be lost; the ledger and the script say the same."""
    RedisLine(server.url, monkeypatch)
    clients = RedisClients(server.url)
    parameters = (None, 1.0, None)
    store = RedisLedger(clients, "two that learn", parameters, None, lambda: round(MIDNIGHT * 1e6), 0.5)
    await store._contact()
    ledger = Ledger(*parameters, epoch=0)
    ledger.at(MIDNIGHT, MIDNIGHT)
    assert ledger.learn(b"", b"first", 4.0, 0.0)
    assert not ledger.learn(b"", b"second", 2.0, 3.0)
    assert await store.learn(b"", b"first", 4.0, 0.0) is not None
    assert await store.learn(b"", b"second", 2.0, 3.0) is None
    for state in (ledger.state(), await store.state(now=True)):
        assert (state.learned, state.rate) == (b"first", 4.0)
        assert state.paused_until <= MIDNIGHT
    assert ledger.learn(b"first", b"third", 2.0, 0.0)
    assert await store.learn(b"first", b"third", 2.0, 0.0) is not None
    await clients.aclose()
