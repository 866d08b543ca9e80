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
from attrs import frozen

from asyncfin.errors import AllowanceExhaustedError

# A bucket without a rate restarts after a pause at this pace, which grows with every grant until it
# no longer matters.
_RESTART_RATE = 10.0
_RESTART_GROWTH = 1.25
_RESTARTED = 1000.0

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


@frozen(kw_only=True)
class Tuning:
    """How fast a learned rate moves. Simulation set the values: docs/pacing.md has the goals."""

    climb_grants: float = 100.0  # grants of a climb back to the rate that failed: bounds the share refused
    climb_seconds: float = 25.0  # its least duration: bounds the share of time spent in pauses
    climb_at_most: float = 600.0  # its longest duration, or a rate far too low would stay so for hours
    pull: float = 2.0  # per climb, the speed at which the distance to the failed rate shrinks below it
    push: float = 5.0  # the speed at which it grows above, where each refusal costs the same
    drift: float = 0.03  # carries the rate across the failed one, where pull and push are zero
    step: float = 0.5  # the most that one grant adds, also at most a tenth of the rate: no leap on old news
    long_wait: float = 10.0  # service waits above this lengthen a climb in proportion: each costs more
    start: float = 0.35  # doubles the rate in about 2 s, or two waits: the slow start's search
    starts: int = 6  # the refusals that end the slow start: six searches narrow the limit down enough
    back: float = 0.8  # a refusal in the slow start keeps this much: the rate before was not refused
    recent: float = 1 / 8  # refusals over about 8 grants: are they becoming more frequent?
    memory: float = 1 / 150  # refusals over about 150 grants: how many are there?
    weight: float = 2.0  # times the square of the recent share: an isolated refusal lowers the rate by 3 %
    most: float = 0.3  # the most that one refusal takes away, so that a cluster does not stop everything
    same: float = 0.96  # a failure within 4 % of the last one is the same one
    tolerated: float = 0.05  # a smaller share of refusals need not depend on the rate
    below: float = 0.92  # nor do refusals this far below the rate that failed
    irregular: float = 0.45  # nor where the gaps deviate by more than this from their mean
    little: float = 0.97  # what such a refusal leaves: almost all, or random refusals would lower it for ever
    raised: float = 1.1  # and the failed rate is taken to be higher, so that the climb is not slowed by it
    regular: float = 0.25  # gaps that deviate less than this are a limit's
    half: float = 0.7  # then the rate is what got through, but keeps this much: one interval may be short
    top: float = 1.1  # and the failed rate is at most this above it, so that the climb is short
    gaps: float = 1 / 8  # the mean gap is over about 8 refusals
    hope: float = 1.05  # then each refusal raises the rate: a client that gets nothing can't learn otherwise
    starved: int = 50  # how many do, so that a day without service does not leave an absurd rate
    doublings: int = 4  # how often the wait doubles while the first request after each pause is refused
    longest_wait: float = 60.0  # and to how many seconds: an outage that ends is noticed within a minute
    slowest: float = 0.35  # requests per service wait that can't be too fast: the service itself asks for one


TUNING = Tuning()


class Measure:
    """What was granted in the running second and in the one before, without a rate."""

    def __init__(self) -> None:
        self.began = -inf  # of the seconds that are counted
        self.second = -inf
        self.before = 0.0
        self.lately = 0.0

    def granted(self, weight: float, now: float) -> None:
        """Count a grant."""
        if now - self.second >= 1.0:
            recent = now - self.second < 2.0
            self.began, self.before = (self.second, self.lately) if recent else (now, 0.0)
            self.second, self.lately = now, 0.0
        self.lately += weight

    def shift(self, seconds: float) -> None:
        """Continue on another clock, which is ahead by `seconds`."""
        self.began += seconds
        self.second += seconds


class AdaptiveRate:
    """The rate that a service allows, as far as its refusals (429) show.

    `rate` is None until the first refusal, which sets it to what got through. Then it climbs with the grants
    that waited for it, slowly near the rate that failed last and faster far from it. What a refusal says
    about the rate depends on its circumstances; refusals of what was granted before the last decrease are
    part of the same event. In turn:

    1. The first request after a pause was refused: nothing was sent at the rate, so it says nothing about it.
       The next pause is twice as long, and if that recurs, the rate rises a little. (The service is out, or
       another user has taken the place.)
    2. The slow start: back to what got through.
    3. Few, irregular and below the rate that failed: refusals that do not depend on the rate. It is kept.
    4. Regular: a limit. The rate becomes what got through over the time and the wait that it took.
    5. Any other lowers the rate, little if it is isolated and much if there are more and more.

    Args:
        tuning: how fast the rate moves.
        measure: what was granted before the first refusal.
    """

    def __init__(self, tuning: Tuning = TUNING, measure: Measure | None = None) -> None:
        self.rate: float | None = None
        self._tuning = tuning
        self._measure = measure or Measure()
        self._failed = 0.0  # the rate at the last failure
        self._refused_at = -inf  # of the last refusal that began an event
        self._resumed_at: float | None = None  # of the first grant after it
        self._in_a_row = 0  # first requests after a pause that were refused
        self._recent = 0.0
        self._share = 0.0
        self._grants = 0.0  # since the last refusal
        self._gap = 0.0  # the mean of those
        self._deviation = 0.0  # and their mean distance from it
        self._starts = 0
        self._longest = 1.0  # of the service's waits, in seconds
        # At the first refusal: how long the grants took, including the wait, and how many got through.
        self._span: float | None = None
        self._served = 0.0

    def dump(self) -> bytes:
        """Return the state as bytes, once there is a rate."""
        return _encode({name: each for name, each in vars(self).items() if name not in _NOT_DUMPED})

    @classmethod
    def load(cls, state: bytes, tuning: Tuning = TUNING) -> AdaptiveRate:
        """Return the rate whose state `dump` has returned."""
        rate = cls(tuning)
        vars(rate).update(_decode(state))
        return rate

    def granted(self, weight: float, now: float, *, waited: bool) -> None:
        """Count a grant, and raise the rate if a request waited for it. Unused speed is never gained."""
        tuning = self._tuning
        if self.rate is None:
            self._measure.granted(weight, now)
            return
        if self._resumed_at is None:
            self._resumed_at = now  # it waited for the pause, not for the rate
            return
        # Exponential means over grants, not over time: a bucket that rests learns nothing and forgets
        # nothing.
        self._recent *= 1 - tuning.recent
        self._share *= 1 - tuning.memory
        self._grants += 1
        if waited:
            self.rate += weight * min(self._gain(self.rate), tuning.step, self.rate / 10)

    def _gain(self, rate: float) -> float:
        tuning = self._tuning
        if self._starts < tuning.starts:
            return tuning.start / self._longest
        # Cubic congestion control has the same shape: slow near the rate that failed, faster on both sides of
        # it.
        above = rate - self._failed
        gain = (tuning.push * above if above > 0 else -tuning.pull * above) + tuning.drift * self._failed
        shortest = tuning.climb_seconds * max(1.0, self._longest / tuning.long_wait) * rate
        return gain / max(min(tuning.climb_grants, tuning.climb_at_most * rate), shortest)

    def refused(self, sent_at: float, now: float, retry_after: float) -> float:
        """Record a refusal of what was granted at `sent_at`, and return for how many seconds to pause."""
        tuning = self._tuning
        self._longest = max(self._longest, retry_after)
        if self.rate is None:
            self._set_first(now, retry_after)
            return retry_after
        if self._span is None:
            self._recent += tuning.recent * (1 - self._recent)
            self._share += tuning.memory * (1 - self._share)
        if sent_at <= self._refused_at:
            if self._span is not None:
                # Still the first refusal: only now is it known how few of its requests got through.
                self._served -= 1.0
                self.rate = max(self._served, 1.0) / self._span
            return retry_after
        self._refused_at, self._span = now, None
        resumed_at, self._resumed_at = self._resumed_at, None
        if resumed_at is not None and sent_at <= resumed_at + 1e-6:
            self._in_a_row += 1
            if self._in_a_row <= tuning.starved:
                self.rate *= tuning.little if self._in_a_row == 1 else tuning.hope
            doubled = retry_after * 2.0 ** min(self._in_a_row, tuning.doublings)
            return max(retry_after, min(doubled, tuning.longest_wait))
        self._in_a_row = 0
        # What got through is measured over the wait too: a limit that is met costs it each time.
        took = retry_after + (0.0 if resumed_at is None else now - resumed_at)
        self._lower(self.rate, max(self._grants - 1, 1) / max(took, 1e-3))
        self._grants = 0.0
        return retry_after

    def _lower(self, rate: float, served: float) -> None:
        """Set the rate after a refusal at `rate`; `served` is what got through per second until then."""
        tuning = self._tuning
        self._gap = self._gap or self._grants
        self._deviation = self._deviation or self._grants
        self._deviation += tuning.gaps * (abs(self._grants - self._gap) - self._deviation)
        self._gap += tuning.gaps * (self._grants - self._gap)
        lower = rate * (1 - min(tuning.most, tuning.weight * self._recent**2))
        few = self._share < tuning.tolerated
        irregular = self._deviation > tuning.irregular * self._gap
        if self._starts < tuning.starts:
            self._starts += 1
            self.rate = self._failed = min(rate, max(served, tuning.back * rate))
        elif few and rate < tuning.below * self._failed and irregular:
            self._failed = max(self._failed, rate) * tuning.raised
            self.rate = rate * tuning.little
        elif self._deviation <= tuning.regular * self._gap:
            self.rate = min(lower, max(served, rate * tuning.half))
            self._failed = min(rate, self.rate * tuning.top)
        else:
            if not few or rate > tuning.same * self._failed:
                self._failed = rate
            self.rate = max(lower, min(rate, tuning.slowest / self._longest))

    def _set_first(self, now: float, retry_after: float) -> None:
        """Set the first rate: what got through, over the time it took and the wait that it cost."""
        measure = self._measure
        took = max(now - measure.began, 1e-3) if measure.lately else 1.0
        self._refused_at, self._span = now, took + max(retry_after, 1e-3)
        # The refused request was granted too, and did not get through.
        self._served = measure.lately + measure.before - 1.0
        self.rate = max(self._served, 1.0) / self._span

    def shift(self, seconds: float) -> None:
        """Continue on another clock, which is ahead by `seconds`."""
        self._refused_at += seconds
        self._measure.shift(seconds)
        if self._resumed_at is not None:
            self._resumed_at += seconds


_NOT_DUMPED = ("_tuning", "_measure")


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
