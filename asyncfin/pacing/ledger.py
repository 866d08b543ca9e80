"""The state that processes sharing an allowance have in common, and the operations on it.

Processes do not spend, they book: `reserve` takes the next free moment, the process sleeps until then, and
`confirm` turns the booking into a grant. Every process has at most one booking at a time, which makes them
take turns. A pause raises the epoch: what was booked before it is booked again, so that those who waited
for the pause to end do not all go at once.

This is arithmetic only, over `asyncfin.pacing.pace`. A file or a server keeps the state (`FileBucket`,
`RedisBucket`); the server's script is a translation of this module, held equal to it by a test.
"""

from __future__ import annotations

from datetime import date, datetime
from math import inf
from typing import NamedTuple

import msgspec

from asyncfin.clock import wall_time
from asyncfin.pacing.pace import GCRA, DailyBudget

# A confirmation may come this much early: what float arithmetic loses.
EPSILON = 1e-6
# A moment is missed once the next one is due, but timers are late by this much anyway.
LATE = 0.005
# A clock that is further behind than this, in seconds, was set back; until then it stands still.
SET_BACK = 1.0


_Parameters = tuple[float | None, float, float | None]
_Pace = tuple[float | None, float, float, float]
_Day = tuple[int, float, float, float | None]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[_Parameters, _Pace, _Day, int, float, bytes]).decode


class Booking(NamedTuple):
    """What `reserve` and `confirm` answer, and what the state was.

    Attributes:
        granted: whether the request may be sent now. If not, wait until `moment`, unless `resume_at` is set.
        moment: when the booked grant is due, on the shared clock.
        end: what tells the booking from later ones.
        epoch: of the booking; another one now means that it no longer holds.
        now: the shared clock.
        wall: Unix time, in seconds.
        resume_at: Unix time at which requests that count are possible again; None: now.
        rate, burst, daily_budget: the parameters in force.
        level: what the bucket holds.
        paused_until: on the shared clock.
        spent: of today.
        learned: the state of the learned rate, as `AdaptiveRate.dump` returns it; empty before a refusal.
        stale: whether the state is the last known one, because the shared one can't be reached.
    """

    granted: bool
    moment: float
    end: float
    epoch: int
    now: float
    wall: float
    resume_at: float | None
    rate: float | None
    burst: float
    daily_budget: float | None
    level: float
    paused_until: float
    spent: float
    learned: bytes
    stale: bool = False


class Ledger:
    """The shared state. `now` and `wall` are the shared clock and Unix time, set before each operation."""

    def __init__(self, rate: float | None, burst: float, daily_budget: float | None, epoch: int) -> None:
        self.parameters = (rate, burst, daily_budget)
        self.gcra = GCRA(rate, burst)
        self.budget = DailyBudget(daily_budget)
        self.epoch = epoch
        self.learned = b""
        self.now = -inf
        self.wall = 0.0

    def dump(self) -> bytes:
        """Return the state as bytes."""
        gcra, budget = self.gcra, self.budget
        exhausted_until = None if budget.exhausted_until is None else budget.exhausted_until.timestamp()
        pace = (gcra.rate, gcra.burst, gcra.full_at, gcra.paused_until)
        day = (budget.date.toordinal(), budget.began, budget.used, exhausted_until)
        # The same fields in the same order as `load` takes, and no names: it is written at each operation.
        return _encode((self.parameters, pace, day, self.epoch, self.now, self.learned))

    @classmethod
    def load(cls, state: bytes) -> Ledger:
        """Return the ledger of a state that `dump` has returned."""
        parameters, pace, day, epoch, now, learned = _decode(state)
        ledger = cls(*parameters, epoch)
        ledger.gcra.rate, ledger.gcra.burst, ledger.gcra.full_at, ledger.gcra.paused_until = pace
        ordinal, ledger.budget.began, ledger.budget.used, exhausted_until = day
        ledger.budget.date = date.fromordinal(ordinal)
        ledger.budget.exhausted_until = None if exhausted_until is None else wall_time(exhausted_until)
        ledger.now, ledger.learned = now, learned
        return ledger

    def restart(self) -> None:
        """Forget what was on a clock that has started over, as at a reboot; the day's spending stays."""
        self.gcra.full_at = self.gcra.paused_until = self.budget.began = self.now = -inf
        self.epoch += 1

    def configure(self, rate: float | None, burst: float, daily_budget: float | None) -> None:
        """Put other parameters in force. A learned rate is kept if it is still to be learned."""
        # A given rate on either side: what was learned is of no use to it, or not known to it.
        if rate is not None or self.parameters[0] is not None:
            self.learned = b""
            self.set_rate(rate, burst)
        else:
            self.set_rate(self.gcra.rate, burst)
        self.parameters = (rate, burst, daily_budget)
        self.budget.budget = daily_budget

    def at(self, now: float, wall: float) -> None:
        """Set the clock. Where it was set back, what lies ahead moves with it: nobody waits for so long."""
        if (step := self.now - now) > SET_BACK:
            self.gcra.full_at -= step
            self.gcra.paused_until -= step
            self.budget.began -= step
            self.epoch += 1
            self.now = now
        self.now = max(now, self.now)
        self.wall = wall

    def look(
        self, weight: float = 1, counts: bool = True, *, granted: bool = False, moment: float = -inf
    ) -> Booking:
        """Return the state, as the answer to a request of `weight`."""
        resume_at = self._resume_at(weight) if counts and not granted else None
        return Booking(
            granted,
            moment,
            self.gcra.full_at,
            self.epoch,
            self.now,
            self.wall,
            resume_at,
            self.gcra.rate,
            self.gcra.burst,
            self.budget.budget,
            self.gcra.held(self.now),
            self.gcra.paused_until,
            self.budget.spent(self._day),
            self.learned,
        )

    def reserve(self, weight: float, counts: bool) -> Booking:
        """Book the next free moment, and grant it if that is now. A used-up allowance has no moments."""
        if counts and self._resume_at(weight) is not None:
            return self.look(weight, counts)
        # Spent already, though it is granted later: the next booking gets the moment after this one.
        moment = max(self.now, self.gcra.moment(weight))
        self.gcra.spend(weight, moment)
        if moment <= self.now + EPSILON:
            return self._grant(weight, counts, moment)
        return self.look(weight, counts, moment=moment)

    def confirm(self, booked: Booking, weight: float, counts: bool) -> Booking:
        """Turn a booking into a grant, now that its moment has come, or into another booking.

        A moment is missed when the next one is due: granted all the same, those who were late together
        would go together.
        """
        if counts and self._resume_at(weight) is not None:
            self.cancel(booked, weight)
            return self.look(weight, counts)
        rate = self.gcra.rate
        if booked.epoch != self.epoch or (
            # What float arithmetic loses is no delay: at the size of Unix time a part of a microsecond.
            rate is not None and self.now > booked.moment + max(weight / rate, LATE) + EPSILON
        ):
            return self.reserve(weight, counts)
        if rate is not None and booked.moment > self.now + EPSILON:
            return self.look(weight, counts, moment=booked.moment)._replace(end=booked.end)
        return self._grant(weight, counts, self.now)

    def cancel(self, booked: Booking, weight: float) -> None:
        """Return a booking. Only the last one can be: those that stand behind it keep their moments."""
        # Else somebody has booked behind it: the moment is lost, and no one waits longer for it.
        if booked.epoch == self.epoch and booked.end == self.gcra.full_at:
            self.gcra.give_back(weight)

    def give_back(self, weight: float, counts: bool, granted_at: float) -> None:
        """Undo a grant. Its place in the pace is free again unless moments to come are booked already."""
        # In debt means that somebody has booked; a moment given back before theirs would be granted twice.
        if self.gcra.held(self.now) > -0.001:
            self.gcra.give_back(weight)
        if counts:
            self.budget.unspend(weight, granted_at)

    def pause(self, seconds: float) -> None:
        """Grant nothing for `seconds`. A pause is only ever lengthened."""
        until = self.now + seconds
        if until <= max(self.now, self.gcra.paused_until):
            return
        self.epoch += 1
        if self.gcra.rate is None:
            self.gcra.paused_until = until
        else:
            # What is booked is void, and so is what it took from the bucket.
            self.gcra.full_at = min(self.gcra.full_at, self.now + self.gcra.burst / self.gcra.rate)
            self.gcra.pause(self.now, until)

    def exhaust(self, seconds: float) -> None:
        """Grant nothing that counts for `seconds`. This is only ever lengthened."""
        self.budget.exhaust(wall_time(self.wall + seconds))

    def set_rate(self, rate: float | None, burst: float) -> None:
        """Continue with another rate and burst."""
        if rate is None:
            self.gcra.rate, self.gcra.burst, self.gcra.full_at = None, burst, -inf
        else:
            self.gcra.change(self.now, rate, burst)

    def spend(self, weight: float, counted: float) -> None:
        """Record what was granted without a booking, `counted` of it from the day's allowance."""
        self.gcra.spend(weight, self.now)
        if counted:
            self.budget.spend(counted, self._day, self.now)

    @property
    def _day(self) -> datetime:
        return wall_time(self.wall)

    def _grant(self, weight: float, counts: bool, moment: float) -> Booking:
        if counts:
            self.budget.spend(weight, self._day, self.now)
        return self.look(weight, counts, granted=True, moment=moment)

    def _resume_at(self, weight: float) -> float | None:
        resume_at = self.budget.resume_at(weight, self._day)
        return None if resume_at is None else resume_at.timestamp()
