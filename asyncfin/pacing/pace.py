"""The arithmetic of pacing, without event loops and futures.

`GCRA` decides when a request may be sent: a token bucket in its exact form. `AdaptiveRate` decides how
fast to send when no rate was given, from the refusals (429) that come back. `DailyBudget` decides
whether to send at all today. Times are seconds of the loop's clock, rates are weight per second; only
the daily budget uses wall time.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from math import inf

import msgspec

from asyncfin.errors import AllowanceExhaustedError

# A bucket without a rate restarts after a pause at this pace, which grows with every grant until it
# no longer matters.
_RESTART_RATE = 10.0
_RESTART_GROWTH = 1.25
_RESTARTED = 1000.0

# How fast a learned rate moves. docs/pacing.md says what each of these is for, and what simulation set it.
# A climb back to the rate that failed takes about `_CLIMB_GRANTS` and at least `_CLIMB_SECONDS`: the grants
# bound the share of refusals, the seconds that of the pauses they cost. It ends after `_CLIMB_AT_MOST`
# seconds, or a rate that is far too low would stay so for hours.
_CLIMB_GRANTS = 100.0
_CLIMB_SECONDS = 25.0
_CLIMB_AT_MOST = 600.0
# The speeds at which it closes its distance to the failure, and leaves it behind; the drift carries it over.
_PULL = 2.0
_PUSH = 5.0
_DRIFT = 0.03
# No single grant raises the rate by more than a tenth, nor by more than this.
_STEP = 0.5
# Where the waits are longer than this, so is a climb, in proportion: each costs more.
_LONG = 10.0
# The slow start: it doubles the rate in about two seconds, or two waits, and ends after `_STARTS` refusals.
# Each sets the rate back to `_BACK` of it.
_START = 0.35
_STARTS = 6
_BACK = 0.8
# Refusals are counted over about the last 8 grants (is it growing?) and the last 150 (how large is it?).
_RECENT = 1 / 8
_MEMORY = 1 / 150
# A refusal lowers the rate by this times the square of its recent share: 3 % if isolated, 30 % at most.
_WEIGHT = 2.0
_MOST = 0.3
# A failure within 3 % of the last one is the same one.
_SAME = 0.96
# Refusals this few, this far below the rate that failed, and this irregular are not the rate's doing: it
# stays nearly as it is, and the failure is taken to lie further up.
_TOLERATED = 0.05
_BELOW = 0.92
_IRREGULAR = 0.45
_LITTLE = 0.97
_RAISE = 1.1
# Refusals this regular are a limit's: the rate becomes what got through, though never less than this of it.
_REGULAR = 0.25
_HALF = 0.7
_TOP = 1.1
_GAPS = 1 / 8
# While the first request after each pause is refused, the wait doubles: this often, and to this many seconds.
_DOUBLINGS = 5
_LONGEST_WAIT = 60.0
# This share of a request for each wait that the service asks for can't be too fast.
_SLOWEST = 0.35

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[str, float | None]).decode


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
        # The whole bucket is this one number: what is spent moves the moment at which it is full again.
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
        # After a pause only one request may go, so no more than that is given back.
        after_pause = self.paused_until + (self.burst - 1) / self.rate
        self.full_at = max(self.full_at - weight / self.rate, after_pause)

    def change(self, now: float, rate: float | None, burst: float) -> None:
        """Continue with another rate and burst; what is held is cut to the new burst."""
        if self.paused_until <= now:
            self.paused_until = -inf  # what it left of the old rate is no measure of the new one
        at = max(now, self.paused_until)
        # What is held stays the same number of requests; at another rate it stands for another time.
        held = self.held(at)
        # Without a rate there is no pace, but a restart after a pause goes on gradually.
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
    """The rate that a service allows, as far as its refusals (429) tell.

    `rate` is None until the first refusal, which sets it to what got through. Then it climbs with the grants
    that waited for it, slowly near the rate that failed last and faster far from it. What a refusal says
    about the rate depends on how it came; those of requests under way together are one. In turn:

    1. The first request after a pause was refused: nothing was sent at the rate, so it says nothing about it.
       The next pause is twice as long. (The service is out, or somebody else has taken the place.)
    2. The slow start: back to what got through.
    3. Few, irregular and below the rate that failed: refusals that do not depend on the rate. It is kept.
    4. Regular: a limit. The rate becomes what got through over the time and the wait that it took.
    5. Any other lowers the rate, little if it is isolated and much if there are more and more.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._failed = 0.0  # the rate at the last failure
        self._refused_at = -inf  # of the last refusal that was taken for a new one
        self._resumed_at: float | None = None  # of the first grant after it
        self._in_a_row = 0  # first requests after a pause that were refused
        self._recent = 0.0
        self._share = 0.0
        self._grants = 0.0  # since the last refusal
        self._gap = 0.0  # the mean of those
        self._deviation = 0.0  # and their mean distance from it
        self._starts = 0
        self._longest = 1.0  # of the waits that were asked for, in seconds
        # While there is no rate: what was granted in the running second and the one before.
        self._began = -inf
        self._second = -inf
        self._before = 0.0
        self._lately = 0.0
        # Of the first refusal: how long its grants took, the wait included.
        self._span: float | None = None

    def dump(self) -> bytes:
        """Return the state as bytes."""
        return _encode(vars(self))

    @classmethod
    def load(cls, state: bytes) -> AdaptiveRate:
        """Return the rate whose state `dump` has returned."""
        rate = cls()
        vars(rate).update(_decode(state))
        return rate

    def granted(self, weight: float, now: float, *, waited: bool) -> None:
        """Count a grant, and raise the rate if somebody waited for it. Unused speed is never gained."""
        if self.rate is None:
            # To know the pace if it is refused.
            if now - self._second >= 1.0:
                recent = now - self._second < 2.0
                self._began, self._before = (self._second, self._lately) if recent else (now, 0.0)
                self._second, self._lately = now, 0.0
            self._lately += weight
            return
        if self._resumed_at is None:
            self._resumed_at = now  # it waited for the pause, not for the rate
            return
        # Exponential means over grants, not over time: a bucket that rests learns nothing and forgets
        # nothing.
        self._recent *= 1 - _RECENT
        self._share *= 1 - _MEMORY
        self._grants += 1
        if waited:
            self.rate += weight * min(self._gain(self.rate), _STEP, self.rate / 10)

    def _gain(self, rate: float) -> float:
        if self._starts < _STARTS:
            return _START / self._longest
        # Cubic congestion control has the same shape: slow near the rate that failed, faster on both sides of
        # it.
        above = rate - self._failed
        gain = (_PUSH * above if above > 0 else -_PULL * above) + _DRIFT * self._failed
        return gain / max(
            min(_CLIMB_GRANTS, _CLIMB_AT_MOST * rate), _CLIMB_SECONDS * max(1.0, self._longest / _LONG) * rate
        )

    def refused(self, sent_at: float, now: float, retry_after: float) -> float:
        """Record a refusal of what was sent at `sent_at`, and return for how many seconds to pause."""
        self._longest = max(self._longest, retry_after)
        if self.rate is None:
            self._measure(now, retry_after)
            return retry_after
        if self._span is None:
            self._recent += _RECENT * (1 - self._recent)
            self._share += _MEMORY * (1 - self._share)
        # It was under way when the last refusal came, so it is part of that event.
        if sent_at <= self._refused_at:
            if self._span is not None:
                # Still the first refusal: only now is it known how little of its requests got through.
                self._lately -= 1.0
                self.rate = max(self._lately, 1.0) / self._span
            return retry_after
        self._refused_at, self._span = now, None
        resumed_at, self._resumed_at = self._resumed_at, None
        if resumed_at is not None and sent_at <= resumed_at + 1e-6:
            self._in_a_row += 1
            self.rate *= _LITTLE
            return max(retry_after, min(retry_after * 2.0 ** min(self._in_a_row, _DOUBLINGS), _LONGEST_WAIT))
        self._in_a_row = 0
        # What got through is measured over the wait too: a limit that is met costs it each time.
        took = retry_after + (0.0 if resumed_at is None else now - resumed_at)
        self._lower(self.rate, max(self._grants - 1, 1) / max(took, 1e-3))
        self._grants = 0.0
        return retry_after

    def _lower(self, rate: float, served: float) -> None:
        """Set the rate after a refusal at `rate`; `served` is what got through per second until then."""
        self._gap = self._gap or self._grants
        self._deviation = self._deviation or self._grants
        self._deviation += _GAPS * (abs(self._grants - self._gap) - self._deviation)
        self._gap += _GAPS * (self._grants - self._gap)
        lower = rate * (1 - min(_MOST, _WEIGHT * self._recent**2))
        few = self._share < _TOLERATED
        if self._starts < _STARTS:
            self._starts += 1
            self.rate = self._failed = min(rate, max(served, _BACK * rate))
        elif few and rate < _BELOW * self._failed and self._deviation > _IRREGULAR * self._gap:
            self._failed = max(self._failed, rate) * _RAISE
            self.rate = rate * _LITTLE
        elif self._deviation <= _REGULAR * self._gap:
            self.rate = min(lower, max(served, rate * _HALF))
            self._failed = min(rate, self.rate * _TOP)
        else:
            if not few or rate > _SAME * self._failed:
                self._failed = rate
            self.rate = max(lower, min(rate, _SLOWEST / self._longest))

    def _measure(self, now: float, retry_after: float) -> None:
        """Set the first rate: what got through, over the time it took and the wait that it cost."""
        took = max(now - self._began, 1e-3) if self._lately else 1.0
        self._refused_at, self._span = now, took + max(retry_after, 1e-3)
        # The refused request was granted too, and did not get through.
        self._lately += self._before - 1.0
        self.rate = max(self._lately, 1.0) / self._span

    def shift(self, seconds: float) -> None:
        """Continue on another clock, which is ahead by `seconds`."""
        self._refused_at += seconds
        self._began += seconds
        self._second += seconds
        if self._resumed_at is not None:
            self._resumed_at += seconds


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
        """Return the day that counts: a wall clock that is set back over midnight brings no new budget."""
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
        # What was granted yesterday does not count today, so there is nothing to take off.
        if at >= self.began:
            self.used = max(0.0, self.used - weight)

    def exhaust(self, until: datetime) -> None:
        """Let nothing through before `until`. A later call only ever moves it later."""
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
