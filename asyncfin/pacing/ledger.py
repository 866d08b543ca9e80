"""The state that processes sharing an allowance have in common, and the operations on it.

Processes do not spend, they book: `reserve` takes the next free moment, the process sleeps until then, and
`confirm` turns the booking into a grant. Every process has at most one booking at a time, which makes them
take turns. A pause raises the epoch: what was booked before it is booked again, so that the waiting processes
do not all send when the pause ends.

This is arithmetic only, over `asyncfin.pacing.pace`. A file or a server keeps the state (`FileBucket`,
`RedisBucket`); the server's script is a translation of this module, and a test proves the two equal.
"""

from __future__ import annotations

from datetime import date, datetime
from math import inf
from typing import NamedTuple

import msgspec
from attrs import frozen

from asyncfin.clock import wall_time
from asyncfin.pacing.learned import Measure
from asyncfin.pacing.pace import GCRA, DailyBudget

# A confirmation may come this much early: what float arithmetic loses.
EPSILON = 1e-6
# A moment is missed once the next one is due, but timers are late by this much anyway.
LATE = 0.005
# A clock that is further behind than this, in seconds, was set back; until then the last time counts.
SET_BACK = 1.0


_Parameters = tuple[float | None, float, float | None]
_Pace = tuple[float | None, float, float, float]
_Measured = tuple[float, float, float, float]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[_Parameters, _Pace, float, int, float, bytes, _Measured, str]).decode


@frozen(kw_only=True)
class Booking:
    """The result of `reserve` and `confirm`."""

    granted: int  # how many requests may be sent; if none, wait until `moment`, unless `resume_at` is set
    moment: float  # when the booked grant is due, on the shared clock
    end: float  # distinguishes the booking from later ones
    epoch: int  # the booking is void in another one
    # Unix time at which the request is possible again; None: the allowance has room for it.
    resume_at: float | None


@frozen(kw_only=True)
class State:
    """The shared state after an operation."""

    now: float  # the shared clock
    wall: float  # Unix time, in seconds
    rate: float | None
    burst: float
    daily_budget: float | None
    learns: bool
    level: float  # what the bucket holds; below zero in debt
    paused_until: float  # on the shared clock
    spent: float  # the day's weight
    resume_at: float | None  # Unix time at which requests that count are possible again; None: they are now
    learned: bytes  # as `AdaptiveRate.dump` returns it; empty before a refusal
    measure: Measure  # what was granted while there was no rate
    stale: bool = False  # whether this is the last known state, because the shared one can't be reached


class Day(NamedTuple):
    """What was spent of an allowance."""

    number: int  # `date.toordinal()` of the day, in UTC
    spent: float  # on that day
    exhausted_until: float  # Unix time; 0: the allowance is not used up


class Ledger:
    """The shared state. `now` and `wall` are the shared clock and Unix time, set before each operation."""

    def __init__(
        self, rate: float | None, burst: float, daily_budget: float | None, epoch: int, boot: str = ""
    ) -> None:
        self.parameters = (rate, burst, daily_budget)
        self.gcra = GCRA(rate, burst)
        self.budget = DailyBudget(daily_budget)
        self.epoch = epoch
        self.boot = boot
        self.learned = b""
        self.measure = Measure()
        self.now = -inf
        self.wall = 0.0

    def dump(self) -> bytes:
        """Return the state as bytes, without the `day`."""
        gcra, measure = self.gcra, self.measure
        pace = (gcra.rate, gcra.burst, gcra.full_at, gcra.paused_until)
        measured = (measure.began, measure.second, measure.before, measure.lately)
        # The same fields in the same order as `load` takes, and no names: it is written at each operation.
        return _encode(
            (
                self.parameters,
                pace,
                self.budget.began,
                self.epoch,
                self.now,
                self.learned,
                measured,
                self.boot,
            )
        )

    @classmethod
    def load(cls, state: bytes, day: Day) -> Ledger:
        """Return the ledger of a state that `dump` has returned, and its day."""
        parameters, pace, began, epoch, now, learned, measured, boot = _decode(state)
        ledger = cls(*parameters, epoch, boot)
        ledger.gcra.rate, ledger.gcra.burst, ledger.gcra.full_at, ledger.gcra.paused_until = pace
        ledger.day, ledger.budget.began = day, began
        measure = ledger.measure
        measure.began, measure.second, measure.before, measure.lately = measured
        ledger.now, ledger.learned = now, learned
        return ledger

    @property
    def day(self) -> Day:
        """What was spent of the allowance, which outlasts the rest of the state."""
        until = self.budget.exhausted_until
        return Day(
            self.budget.date.toordinal(), self.budget.used, 0.0 if until is None else until.timestamp()
        )

    @day.setter
    def day(self, day: Day) -> None:
        self.budget.date, self.budget.used = date.fromordinal(day.number), day.spent
        self.budget.exhausted_until = wall_time(day.exhausted_until) if day.exhausted_until else None

    def restart(self, boot: str) -> None:
        """Drop what was on the clock of an earlier boot; the day's spending stays."""
        self.gcra.full_at = self.gcra.paused_until = self.budget.began = self.now = -inf
        self.measure = Measure()
        self.boot = boot
        self.epoch += 1

    def configure(self, rate: float | None, burst: float, daily_budget: float | None) -> None:
        """Apply other parameters. A learned rate is kept if it is still to be learned."""
        if rate is not None or self.parameters[0] is not None:
            self.learned = b""
            self.set_rate(rate, burst)
        else:
            self.set_rate(self.gcra.rate, burst)
        self.parameters = (rate, burst, daily_budget)
        self.budget.budget = daily_budget

    def at(self, now: float, wall: float) -> None:
        """Set the clock. If it was set back, bookings and pauses move with it, so that no wait is longer."""
        if (step := self.now - now) > SET_BACK:
            self.gcra.full_at -= step
            self.gcra.paused_until -= step
            self.budget.began -= step
            self.measure.shift(-step)
            self.epoch += 1
            self.now = now
        self.now = max(now, self.now)
        self.wall = wall

    def state(self) -> State:
        """Return the state."""
        return State(
            now=self.now,
            wall=self.wall,
            rate=self.gcra.rate,
            burst=self.gcra.burst,
            daily_budget=self.budget.budget,
            learns=self.parameters[0] is None,
            level=self.gcra.held(self.now),
            paused_until=self.gcra.paused_until,
            spent=self.budget.spent(self._day),
            resume_at=self._resume_at(1),
            learned=self.learned,
            measure=self.measure,
        )

    def reserve(self, weight: float, counts: bool, most: int = 1) -> Booking:
        """Book the next free moment. If that is now, grant it, and up to `most` moments that are free now.

        A used-up allowance has no moments.
        """
        for granted in range(most):
            resume_at = self._resume_at(weight) if counts else None
            moment = max(self.now, self.gcra.moment(weight))
            is_free = moment <= self.now + EPSILON
            if granted and (resume_at is not None or not is_free):
                return self._booking(granted=granted, moment=self.now)
            if resume_at is not None:
                return self._booking(resume_at=resume_at)
            # Spent already, though it is granted later: the next booking gets the moment after this one.
            self.gcra.spend(weight, moment)
            if not is_free:
                return self._booking(moment=moment)
            self._grant(weight, counts)
        return self._booking(granted=most, moment=self.now)

    def confirm(self, booked: Booking, weight: float, counts: bool) -> Booking:
        """Turn a booking whose moment has come into a grant, or into another booking.

        A moment is missed when the next one is due: if missed moments were granted, late processes would
        send together.
        """
        if counts and (resume_at := self._resume_at(weight)) is not None:
            self.cancel(booked, weight)
            return self._booking(resume_at=resume_at)
        rate = self.gcra.rate
        if booked.epoch != self.epoch or (
            # Without what float arithmetic loses: at the size of Unix time a part of a microsecond.
            rate is not None and self.now > booked.moment + max(weight / rate, LATE) + EPSILON
        ):
            return self.reserve(weight, counts)
        if rate is not None and booked.moment > self.now + EPSILON:
            return booked
        self._grant(weight, counts)
        return self._booking(granted=1, moment=self.now)

    def cancel(self, booked: Booking, weight: float) -> None:
        """Return a booking if it is the last one: those behind it keep their moments."""
        if booked.epoch == self.epoch and booked.end == self.gcra.full_at:
            self.gcra.give_back(weight)

    def give_back(self, weight: float, counts: bool, granted_at: float) -> None:
        """Undo a grant. Its place in the pace is free again unless later moments are booked already."""
        # In debt, moments are booked; one given back before them would be granted twice.
        if self.gcra.held(self.now) > -0.001:
            self.gcra.give_back(weight)
        if counts:
            self.budget.unspend(weight, granted_at)

    def unspend(self, weight: float, granted_at: float) -> None:
        """Take a grant off the day's spending; its place in the pace stays used."""
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
            # Bookings are void, and so is what they took from the bucket.
            self.gcra.full_at = min(self.gcra.full_at, self.now + self.gcra.burst / self.gcra.rate)
            self.gcra.pause(self.now, until)

    def exhaust(self, seconds: float) -> None:
        """Grant nothing that counts for `seconds`. This is only ever lengthened."""
        self.budget.exhaust(wall_time(self.wall + seconds))

    def resume(self) -> None:
        """End a pause, and what `exhaust` has begun. What is spent and learned stays."""
        if self.gcra.paused_until > self.now:
            self.epoch += 1  # what is booked is for a moment after the pause
            self.gcra.resume(self.now)
        self.budget.exhausted_until = None

    def learn(self, known: bytes, learned: bytes, rate: float | None, pause: float) -> bool:
        """Replace the learned state and rate and pause, unless another process has changed the state.

        One operation: a request granted between a decrease and its pause would be refused as a new event.
        """
        if self.learned != known:
            return False
        self.learned = learned
        self.set_rate(rate, self.gcra.burst)
        self.pause(pause)
        return True

    def set_rate(self, rate: float | None, burst: float) -> None:
        """Continue with another rate and burst."""
        if rate is None:
            self.gcra.rate, self.gcra.burst, self.gcra.full_at = None, burst, -inf
        else:
            self.gcra.change(self.now, rate, burst)

    def spend(self, weight: float, counted: float, seconds: float) -> None:
        """Record what was granted without bookings in the last `seconds`, `counted` of it from the allowance.

        The pace is charged what exceeds its rate, at most until the next grant is one burst's time away: the
        rest was earned in those seconds.
        """
        gcra = self.gcra
        if gcra.rate is not None:
            charged = min(gcra.burst, max(0.0, weight - gcra.rate * seconds))
            begin = max(self.now, gcra.paused_until)
            furthest = begin + (2 * gcra.burst - 1) / gcra.rate
            gcra.full_at = max(gcra.full_at, min(max(gcra.full_at, self.now) + charged / gcra.rate, furthest))
        if counted:
            self.budget.spend(counted, self._day, self.now)

    @property
    def _day(self) -> datetime:
        return wall_time(self.wall)

    def _booking(self, *, granted: int = 0, moment: float = -inf, resume_at: float | None = None) -> Booking:
        return Booking(
            granted=granted, moment=moment, end=self.gcra.full_at, epoch=self.epoch, resume_at=resume_at
        )

    def _grant(self, weight: float, counts: bool) -> None:
        if self.gcra.rate is None:
            self.measure.granted(weight, self.now)
        if counts:
            self.budget.spend(weight, self._day, self.now)

    def _resume_at(self, weight: float) -> float | None:
        resume_at = self.budget.resume_at(weight, self._day)
        return None if resume_at is None else resume_at.timestamp()
