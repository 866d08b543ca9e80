"""The arithmetic of pacing, without loops, files and servers: every bucket uses it.

`GCRA` decides when a request may be sent: a token bucket in its exact form. `Allowance`
decides whether to send at all today. Rates are requests per second, times are seconds:
of any one clock in `GCRA`, Unix time in `Allowance`. The script of `RedisBucket` is a
translation of both.
"""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

from attrs import define

from asyncfin.clock import wall_time
from asyncfin.errors import AllowanceExhaustedError

DAY = 86_400.0

# A bucket without a rate restarts after a pause at this pace, which grows with every
# grant until it no longer matters.
_RESTART_RATE = 10.0
_RESTART_GROWTH = 1.25
_RESTARTED = 1000.0


class Change(NamedTuple):
    """A change to the state of a bucket, and what its amount is."""

    kind: Literal[
        "look",  # change nothing
        "take",  # grant a request, if it may be sent now; 1 if it counts
        "give_back",  # undo a grant; 1 if it counted
        "unspend",  # undo the spending of a request; its age in seconds
        "spend",  # add to the day's spending; the number of requests
        "pause",  # seconds
        "exhaust",  # seconds
        "resume",  # end a pause and a used-up allowance
    ]
    amount: float = 0.0


@define
class GCRA:
    """A token bucket: never more than ``burst + rate * time`` in any stretch of time.

    A `rate` of None grants everything at once. `full_at` is when the bucket will be
    full again, and `paused_until` the moment before which nothing is granted.
    """

    rate: float | None
    burst: float
    full_at: float = -inf
    paused_until: float = -inf
    _is_restarting: bool = False

    def held(self, now: float) -> float:
        """How many requests the bucket could grant at once."""
        if self.rate is None:
            return self.burst
        moment = max(now, self.paused_until)
        return self.burst - max(0.0, self.full_at - moment) * self.rate

    def moment(self) -> float:
        """The earliest time at which a request may be granted."""
        if self.rate is None:
            return self.paused_until
        moment = self.full_at - (self.burst - 1) / self.rate
        return moment if moment > self.paused_until else self.paused_until

    def spend(self, now: float) -> None:
        """Take one request out of the bucket."""
        if self.rate is None:
            return
        # The whole bucket is this one number: what is spent moves the moment at which
        # it is full again.
        self.full_at = max(self.full_at, now) + 1 / self.rate
        if self._is_restarting:
            self.rate *= _RESTART_GROWTH
            if self.rate > _RESTARTED:
                self.rate, self._is_restarting, self.full_at = None, False, -inf

    def give_back(self) -> None:
        """Undo a `spend`. What was spent before a pause does not return during it."""
        if self.rate is None:
            return
        if self._is_restarting:
            self.rate = max(self.rate / _RESTART_GROWTH, _RESTART_RATE)
        # After a pause only one request may go, so no more than that is given back.
        after_pause = self.paused_until + (self.burst - 1) / self.rate
        self.full_at = max(self.full_at - 1 / self.rate, after_pause)

    def set_rate(self, now: float, rate: float | None) -> None:
        """Continue at another rate, with as many requests as the bucket holds.

        None, where a rate was too early: restart as after a pause.
        """
        is_unpaced = self.rate is None or self._is_restarting
        if rate is None and is_unpaced:
            return
        moment = max(now, self.paused_until)
        level = self.held(moment)
        self._is_restarting = rate is None
        self.rate = rate = rate or _RESTART_RATE
        self.full_at = moment + (self.burst - level) / rate

    def pause(self, now: float, until: float) -> None:
        """Grant nothing before `until`, and then one by one. Pauses only lengthen.

        One request may go when the pause is over, which the service itself said; not
        those that the bucket could have saved up in it.
        """
        if until <= max(now, self.paused_until):
            return
        if self.rate is None:
            self.rate, self._is_restarting = _RESTART_RATE, True
        self.paused_until = until
        self.full_at = max(self.full_at, until + (self.burst - 1) / self.rate)

    def resume(self, now: float) -> None:
        """End a pause now: one request may go, as when it is over."""
        if self.paused_until > now:
            self.paused_until = now
            if self.rate is not None:
                self.full_at = min(self.full_at, now + (self.burst - 1) / self.rate)

    def clip(self, now: float) -> None:
        """Shorten waits that a clock set back has left."""
        self.paused_until = min(self.paused_until, now + DAY)
        if self.rate is not None:
            empty = max(now, self.paused_until) + self.burst / self.rate
            self.full_at = min(self.full_at, empty)


@define
class Allowance:
    """What may still be spent before midnight UTC (spec 8, allowances rule 3).

    `budget` is a bound on the requests of a day, or None. `exhausted_until` is the end
    of a used-up allowance of the service. `day` counts the days since 1970.
    """

    budget: float | None
    exhausted_until: float = 0.0
    day: float = 0.0
    spending: float = 0.0

    def begin_day(self, now: float) -> None:
        """Drop what was spent on an earlier day.

        Spending of tomorrow counts as today's until tomorrow ends: a clock that is set
        back over midnight does not renew a budget. If the clock was ahead by more, that
        spending becomes today's.
        """
        today = now // DAY
        if self.day < today:
            self.day, self.spending = today, 0.0
        elif self.day > today + 1:
            self.day = today
        self.exhausted_until = min(self.exhausted_until, now + DAY)

    def apply(self, change: Change, now: float) -> None:
        """Make the part of a change that concerns the allowance."""
        self.begin_day(now)
        kind, amount = change
        if kind in {"take", "spend"}:
            self.spending += amount
        elif kind == "give_back":
            self.spending = max(0.0, self.spending - amount)
        elif kind == "unspend" and (now - amount) // DAY == now // DAY:
            self.spending = max(0.0, self.spending - 1)
        elif kind == "exhaust":
            # It is only ever extended, and a day long at most.
            end = now + min(amount, DAY)
            self.exhausted_until = max(self.exhausted_until, end)
        elif kind == "resume":
            self.exhausted_until = 0.0

    def error(self, now: float) -> AllowanceExhaustedError | None:
        """The error for a request that counts, or None if it can be spent now."""
        self.begin_day(now)
        resume_at, message = self.exhausted_until, "the allowance is used up"
        if self.budget is not None and self.spending + 1 > self.budget:
            midnight = (self.day + 1) * DAY
            if midnight > resume_at:
                resume_at = midnight
                message = f"the bucket's daily budget of {self.budget:g} is used up"
        if resume_at <= now:
            return None
        return AllowanceExhaustedError(
            status=429,
            message=message,
            at=wall_time(now),
            attempts=0,
            answered=False,
            retry_after=resume_at - now,
            resume_at=wall_time(resume_at),
        )
