"""The arithmetic of pacing, without event loops and futures.

`GCRA` decides when a request may be sent: a token bucket in its exact form. `DailyBudget` decides whether to
send at all today. Times are seconds of the loop's clock, rates are weight per second; only the daily budget
uses wall time.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from math import inf

from asyncfin.errors import AllowanceExhaustedError

# A bucket without a rate restarts after a pause at this pace, which grows with every grant until it
# no longer matters.
_RESTART_RATE = 10.0
_RESTART_GROWTH = 1.25
_RESTARTED = 1000.0


class GCRA:
    """A token bucket: never more than ``burst + rate * time`` in any stretch of time.

    A `rate` of None grants everything at once. `full_at` is when the bucket will be full again, and
    `paused_until` the moment before which nothing is granted.
    """

    def __init__(self, rate: float | None, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self.full_at = -inf
        self.paused_until = -inf
        self._restarting = False

    def held(self, now: float) -> float:
        """Return what the bucket holds; it is below zero in debt."""
        if self.rate is None:
            return self.burst
        return self.burst - max(0.0, self.full_at - max(now, self.paused_until)) * self.rate

    def moment(self, weight: float) -> float:
        """Return the earliest time at which `weight` may be granted.

        A weight above the burst, which was lowered since, is granted by the full bucket, which is then in
        debt.
        """
        if self.rate is None:
            return self.paused_until
        moment = self.full_at
        if weight < self.burst:
            moment -= (self.burst - weight) / self.rate
        return moment if moment > self.paused_until else self.paused_until

    def spend(self, weight: float, now: float) -> None:
        """Take `weight` out of the bucket."""
        if self.rate is None:
            return
        # The whole bucket is this one number: what is spent moves the moment at which it is full again.
        self.full_at = (self.full_at if self.full_at > now else now) + weight / self.rate
        if self._restarting:
            self.rate *= _RESTART_GROWTH
            if self.rate > _RESTARTED:
                self.rate, self._restarting, self.full_at = None, False, -inf

    def give_back(self, weight: float) -> None:
        """Undo a `spend`. What was spent before a pause does not return during it."""
        if self.rate is None:
            return
        if self._restarting:
            self.rate = max(self.rate / _RESTART_GROWTH, _RESTART_RATE)
        # After a pause only one request may go, so no more than that is given back.
        after_pause = self.paused_until + (self.burst - 1) / self.rate
        self.full_at = max(self.full_at - weight / self.rate, after_pause)

    def change(self, now: float, rate: float | None, burst: float) -> None:
        """Continue with another rate and burst; what is held is cut to the new burst."""
        if self.paused_until <= now:
            self.paused_until = -inf  # the new rate does not start from what the pause left of the old one
        at = max(now, self.paused_until)
        # What is held stays the same number of requests, which at another rate is another time.
        held = self.held(at)
        # Without a rate nothing is paced, but a restart after a pause is gradual.
        if rate is None and (self._restarting or at > now):
            rate = self.rate if self._restarting else _RESTART_RATE
            self._restarting = True
        else:
            self._restarting = False
        self.rate, self.burst = rate, burst
        self.full_at = -inf if rate is None else at + (burst - held) / rate

    def pause(self, now: float, until: float) -> None:
        """Grant nothing before `until`, and then one by one. Pauses only lengthen.

        One request may go when the pause is over, which the service itself said; not those that the
        bucket could have saved up in it.
        """
        if until <= max(now, self.paused_until):
            return
        if self.rate is None:
            self.rate, self._restarting = _RESTART_RATE, True
        self.paused_until = until
        self.full_at = max(self.full_at, until + (self.burst - 1) / self.rate)

    def resume(self, now: float) -> None:
        """End a pause now: one request may go, as when it is over."""
        if self.paused_until <= now:
            return
        self.paused_until = -inf
        if self.rate is not None:
            self.full_at = min(self.full_at, now + (self.burst - 1) / self.rate)

    def shift(self, seconds: float) -> None:
        """Continue on another loop's clock, which is ahead by `seconds`."""
        self.full_at += seconds
        self.paused_until += seconds


class DailyBudget:
    """What may still be granted before midnight UTC (spec 8, allowances rule 3).

    `budget` is our own bound on a day's weight, None for no bound. The service's own allowance counts as
    used up until the moment given to `exhaust`. `now` is wall time, aware UTC; `at` is loop time.
    """

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        self.exhausted_until: datetime | None = None
        self.date = date.min
        self.began = -inf  # loop time of the first grant of `date`
        self.used = 0.0

    def _today(self, now: datetime) -> date:
        """Return the day that counts: a clock that is set back over midnight does not renew the budget."""
        return max(now.date(), self.date)

    def spent(self, now: datetime) -> float:
        """Return the weight spent today."""
        return self.used if self._today(now) == self.date else 0.0

    def spend(self, weight: float, now: datetime, at: float) -> None:
        """Add `weight` to today's spending."""
        if (today := self._today(now)) != self.date:
            self.date, self.began, self.used = today, at, 0.0
        self.used += weight

    def unspend(self, weight: float, at: float) -> None:
        """Undo the `spend` of loop time `at`, unless it was an earlier day's."""
        if at >= self.began:
            self.used = max(0.0, self.used - weight)

    def exhaust(self, until: datetime) -> None:
        """Let nothing through before `until`; a later call can only extend it."""
        self.exhausted_until = max(until, self.exhausted_until or until)

    def resume_at(self, weight: float, now: datetime) -> datetime | None:
        """Return when `weight` can be granted again, or None if it can be now."""
        if self.exhausted_until is not None and now >= self.exhausted_until:
            self.exhausted_until = None
        if self.budget is None or self.spent(now) + weight <= self.budget:
            return self.exhausted_until
        midnight = datetime.combine(self._today(now) + timedelta(days=1), time(), UTC)
        return max(midnight, self.exhausted_until or midnight)

    def refusal(self, resume_at: datetime, now: datetime) -> AllowanceExhaustedError:
        """Return a new error that says when requests are possible again; no request was spent on it."""
        own = resume_at != self.exhausted_until
        return allowance_error(self.budget if own else None, resume_at, now)

    def shift(self, seconds: float) -> None:
        """Continue on another loop's clock, which is ahead by `seconds`."""
        self.began += seconds


def allowance_error(budget: float | None, resume_at: datetime, now: datetime) -> AllowanceExhaustedError:
    """Return the error for a used-up `budget`; None: it is the service's allowance that is used up."""
    return AllowanceExhaustedError(
        status=429,
        message="the allowance is used up"
        if budget is None
        else f"the bucket's daily budget of {budget:g} is used up",
        at=now,
        attempts=0,
        answered=False,
        retry_after=(resume_at - now).total_seconds(),
        resume_at=resume_at,
    )
