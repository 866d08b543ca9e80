"""The arithmetic of pacing, without event loops and futures.

`GCRA` decides when a request may be sent: a token bucket in its exact form. `AdaptiveRate` decides how
fast to send when no rate was given, from the refusals (429) that come back. `DailyBudget` decides
whether to send at all today. Times are seconds of the loop's clock, rates are weight per second; only
the daily budget uses wall time.
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

# Learning. A climb from one refusal to the next takes about so many grants and at least so many
# seconds: the grants keep the share of refusals small, the seconds that of the pauses they cost.
# A slow one ends after so many seconds at most, for else a rate that is far too low stays so for hours.
_CLIMB_GRANTS = 150.0
_CLIMB_SECONDS = 30.0
_CLIMB_AT_MOST = 600.0
_REDUCTION = 0.88
# In one such climb the rate closes most of its distance to the last failure, or leaves it behind at
# the same speed; the drift carries it over the failure itself.
_PULL = 3.0
_DRIFT = 0.03
# No single grant raises the rate by more than a tenth, nor by more than this.
_STEP = 0.5
# While more than half is refused, counted over about the last eight, the service is out, or we are
# far too fast: the rate falls, but does not climb, and says nothing about where it may fail.
_MEMORY = 1 / 8
_MOSTLY = 0.5
# However long that lasts, it makes the rate fall no lower, for it must be able to rise again.
_SLOWEST_OUT = 0.2
# One request for each wait that the service asks for can't be too fast. Else the rate falls to half of that
# and no lower: a service that covers no burst refuses whoever comes just after another, at whatever rate.
_SLOWEST = 0.5


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
        """Return what the bucket holds; below zero while it is in debt."""
        if self.rate is None:
            return self.burst
        return self.burst - max(0.0, self.full_at - max(now, self.paused_until)) * self.rate

    def moment(self, weight: float) -> float:
        """Return the earliest time at which `weight` may be granted.

        A weight above the burst (lowered since it was asked for) is granted by the full bucket,
        which then is in debt.
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
        self.full_at = (self.full_at if self.full_at > now else now) + weight / self.rate
        if self._restarting:
            self.rate *= _RESTART_GROWTH
            if self.rate > _RESTARTED:
                self.rate, self._restarting, self.full_at = None, False, -inf

    def give_back(self, weight: float) -> None:
        """Undo a `spend`. Of what was spent before a pause nothing comes back in it."""
        if self.rate is None:
            return
        if self._restarting:
            self.rate = max(self.rate / _RESTART_GROWTH, _RESTART_RATE)
        after_pause = self.paused_until + (self.burst - 1) / self.rate
        self.full_at = max(self.full_at - weight / self.rate, after_pause)

    def change(self, now: float, rate: float | None, burst: float) -> None:
        """Continue with another rate and burst; what is held is cut to the new burst."""
        if self.paused_until <= now:
            self.paused_until = -inf  # what it left of the old rate is no measure of the new one
        at = max(now, self.paused_until)
        held = self.held(at)
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

    def shift(self, seconds: float) -> None:
        """Continue on another loop's clock, which is ahead by `seconds`."""
        self.full_at += seconds
        self.paused_until += seconds


class AdaptiveRate:
    """The rate that a service allows, as far as its refusals tell.

    `rate` is None until the first refusal. Each event lowers the rate once, however many requests
    it cost; between events it climbs, slowly near the pace that failed last and faster far from it.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._failed = 0.0
        self._reduced_at = -inf
        self._refused_share = 0.0
        self._longest = 1.0  # of the waits that were asked for, in seconds
        # While there is no rate: what was granted in the running second and the one before.
        self._began = -inf
        self._second = -inf
        self._before = 0.0
        self._lately = 0.0
        # Of the first event: how long its grants took, the wait included.
        self._span: float | None = None

    def granted(self, weight: float, now: float) -> None:
        """Count a grant that no rate held back, to know the pace if it is refused."""
        if now - self._second >= 1.0:
            recent = now - self._second < 2.0
            self._began, self._before = (self._second, self._lately) if recent else (now, 0.0)
            self._second, self._lately = now, 0.0
        self._lately += weight

    def climb(self, weight: float) -> None:
        """Raise the rate after a grant that had to wait for it. Unused speed is never gained."""
        assert self.rate is not None
        self._refused_share *= 1 - _MEMORY
        if self._refused_share > _MOSTLY:
            return
        grants = min(_CLIMB_GRANTS, _CLIMB_AT_MOST * self.rate)
        share = weight / max(grants, _CLIMB_SECONDS * self.rate)
        gain = share * (_PULL * abs(self._failed - self.rate) + _DRIFT * self._failed)
        self.rate += min(gain, weight * _STEP, weight * self.rate / 10)

    def refused(self, sent_at: float, now: float, retry_after: float) -> None:
        """Record a refusal of what was sent at `sent_at`."""
        mostly = self._refused_share > _MOSTLY
        self._refused_share = min(1.0, self._refused_share + _MEMORY)
        self._longest = max(self._longest, retry_after)
        if self.rate is None:
            self._measure(now, retry_after)
        elif sent_at > self._reduced_at:
            slowest = min(self.rate, _SLOWEST_OUT if mostly else _SLOWEST / self._longest)
            self._failed = self._failed if mostly else self.rate
            self._reduced_at, self._span = now, None
            self.rate = max(self.rate * _REDUCTION, slowest)
        elif self._span is not None:
            # Still the first event: only now is it known how little of its requests got through.
            self._lately -= 1.0
            self.rate = max(self._lately, 1.0) / self._span

    def _measure(self, now: float, retry_after: float) -> None:
        """Set the first rate: what got through, over the time it took and the wait that it cost."""
        took = max(now - self._began, 1e-3) if self._lately else 1.0
        self._failed = (self._before + self._lately) / took
        self._reduced_at, self._span = now, took + retry_after
        self._lately += self._before - 1.0
        self.rate = max(self._lately, 1.0) / self._span

    def shift(self, seconds: float) -> None:
        """Continue on another loop's clock, which is ahead by `seconds`."""
        self._reduced_at += seconds
        self._began += seconds
        self._second += seconds


class DailyBudget:
    """What may still be granted before midnight UTC (spec 8, allowances rule 3).

    `budget` is our own bound on a day's weight, None for no bound. The service's own allowance counts as
    used up until the moment given to `exhaust`. `now` is wall time, aware UTC; `at` is loop time.
    """

    def __init__(self, budget: float | None) -> None:
        self.budget = budget
        self._exhausted_until: datetime | None = None
        self._date = date.min
        self._began = -inf  # loop time of the first grant of `_date`
        self._spent = 0.0

    def _today(self, now: datetime) -> date:
        """Return the day that counts: a wall clock that is set back over midnight brings no new budget."""
        return max(now.date(), self._date)

    def spent(self, now: datetime) -> float:
        """Return the weight spent today."""
        return self._spent if self._today(now) == self._date else 0.0

    def spend(self, weight: float, now: datetime, at: float) -> None:
        """Add `weight` to today's spending."""
        if (today := self._today(now)) != self._date:
            self._date, self._began, self._spent = today, at, 0.0
        self._spent += weight

    def unspend(self, weight: float, at: float) -> None:
        """Undo the `spend` of loop time `at`, unless it was an earlier day's."""
        if at >= self._began:
            self._spent = max(0.0, self._spent - weight)

    def exhaust(self, until: datetime) -> None:
        """Let nothing through before `until`. A later call only ever moves it later."""
        self._exhausted_until = max(until, self._exhausted_until or until)

    def resume_at(self, weight: float, now: datetime) -> datetime | None:
        """Return when `weight` can be granted again, or None if it can be now."""
        if self._exhausted_until is not None and now >= self._exhausted_until:
            self._exhausted_until = None
        if self.budget is None or self.spent(now) + weight <= self.budget:
            return self._exhausted_until
        midnight = datetime.combine(self._today(now) + timedelta(days=1), time(), UTC)
        return max(midnight, self._exhausted_until or midnight)

    def refusal(self, resume_at: datetime, now: datetime) -> AllowanceExhaustedError:
        """Return a new error that says when requests are possible again; no request was spent on it."""
        own = resume_at != self._exhausted_until
        return AllowanceExhaustedError(
            status=429,
            message=f"the bucket's daily budget of {self.budget:g} is used up"
            if own
            else "the allowance is used up",
            at=now,
            attempts=0,
            answered=False,
            retry_after=(resume_at - now).total_seconds(),
            resume_at=resume_at,
        )

    def shift(self, seconds: float) -> None:
        """Continue on another loop's clock, which is ahead by `seconds`."""
        self._began += seconds
