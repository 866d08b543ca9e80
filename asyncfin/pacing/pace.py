"""The arithmetic of pacing, without loops, files and servers: every bucket uses it.

`GCRA` decides when a request may be sent: a token bucket in its exact form. `Pace` is
one whose rate is given, or learned from the service's rejections (429). `Allowance`
decides whether to send at all today. Rates are requests per second, times are seconds:
of any one clock in `GCRA` and `Pace`, Unix time in `Allowance`. The script of
`RedisBucket` is a translation of `GCRA` and `Allowance`.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
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

# Fewer requests than this that got through before a rejection have measured nothing.
_MEASURED = 2
# What was served is measured over this many seconds before a rejection, and twice the
# wait that it asks for: a limit without a burst serves one request after each wait.
_MEASURED_SECONDS = 2.0
_REMEMBERED = 1_000

# How fast a learned rate moves. Simulation set the values: docs/pacing.md has the
# goals.
#
# A climb back to the rate that failed takes so many grants, which bounds the share of
# rejections, and at least so many seconds.
_CLIMB_GRANTS = 100.0
_CLIMB_SECONDS = 25.0
# Per climb, the distance to the failed rate shrinks below it and grows above it at
# these speeds. The drift carries the rate across it.
_PULL = 2.0
_PUSH = 5.0
_DRIFT = 0.03
# The most that one grant adds, also at most a tenth of the rate.
_STEP = 0.5
# The slow start doubles the rate in about 2 s, or two waits. It ends after so many
# rejections, each of which leaves at least this part of the rate.
_START = 0.35
_STARTS = 6
_BACK = 0.8
# Rejections over about 8 grants: do they become more frequent?
_RECENT = 1 / 8
# What a rejection takes away: times the square of the recent share, and at most.
_WEIGHT = 2.0
_MOST = 0.3
# Requests per service wait that can't be too fast: the service itself asks for one.
_SLOWEST = 0.35


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


class Pace:
    """When this process may send: at a given rate, or at one that its rejections (429)
    show.

    A learned `rate` is None until a rejection shows what gets through, which at least
    two requests must have done: an earlier one is obeyed, and has measured nothing.
    Then the rate climbs with the grants that waited for it, slowly near the rate that
    failed last and faster far from it. Rejections of what was granted before the last
    decrease are part of the same event, and the first request after a pause has not
    been sent at the rate. In the slow start a rejection sets the rate back to what got
    through. Later ones lower it, little if they are isolated and much if there are more
    and more.
    """

    def __init__(self, rate: float | None, burst: float) -> None:
        self.gcra = GCRA(rate, burst)
        self.rate = rate
        self._learns = rate is None
        # When requests were granted that no rejection has come for.
        self._grants: deque[float] = deque(maxlen=_REMEMBERED)
        self._failed = 0.0  # the rate at the last failure
        self._refused_at = -inf  # of the last rejection that began an event
        self._resumed_at: float | None = -inf  # of the first grant after it
        self._is_measuring = True  # the last event has set the rate, or nothing has
        self._recent = 0.0
        self._starts = 0
        self._longest = 1.0  # of the service's waits, in seconds

    def grant(self, now: float, *, has_waited: bool) -> None:
        """Spend a request, and raise a learned rate if it waited for the pace. Unused
        speed is never gained.
        """
        self.gcra.spend(now)
        if not self._learns:
            return
        resumes = self._resumed_at is None
        if resumes:
            self._resumed_at = now
            if self.rate is not None:
                self._grants.clear()
                self._is_measuring = False
        self._grants.append(now)
        if self.rate is None or resumes:  # it waited for the pause, not for the rate
            return
        # An exponential mean over grants, not over time: a bucket that rests learns
        # nothing and forgets nothing.
        self._recent *= 1 - _RECENT
        if has_waited:
            self.rate += min(self._compute_gain(self.rate), _STEP, self.rate / 10)
            self.gcra.set_rate(now, self.rate)

    def _compute_gain(self, rate: float) -> float:
        if self._starts < _STARTS:
            return _START / self._longest
        # Cubic congestion control has the same shape: slow near the rate that failed,
        # faster on both sides of it.
        distance = rate - self._failed
        gain = (
            _PUSH * distance if distance > 0 else -_PULL * distance
        ) + _DRIFT * self._failed
        return gain / max(_CLIMB_GRANTS, _CLIMB_SECONDS * rate)

    def give_back(self) -> None:
        """Undo a grant: the last one, as grants are returned at once."""
        self.gcra.give_back()
        if self._grants:
            self._grants.pop()

    def forget(self, sent_at: float) -> None:
        """Measure without what was granted at `sent_at`: the service has not served
        it.
        """
        with suppress(ValueError):
            self._grants.remove(sent_at)

    def refuse(self, sent_at: float, now: float, retry_after: float) -> None:
        """Record a 429 to what was granted at `sent_at`, and pause."""
        if self._learns:
            self.forget(sent_at)
            served_rate = self._measure(now, retry_after)
            begins_event = sent_at > self._refused_at
            if begins_event:
                self._is_measuring = self.rate is None
            if self._is_measuring:
                self.rate = served_rate
            else:
                self._recent += _RECENT * (1 - self._recent)
            if self.rate is not None:
                self._longest = max(self._longest, retry_after)
            if begins_event:
                if not self._is_measuring and sent_at != self._resumed_at:
                    self._lower(served_rate or 0.0)
                self._refused_at, self._resumed_at = now, None
            self.gcra.set_rate(now, self.rate)
        self.gcra.pause(now, now + retry_after)

    def _measure(self, now: float, wait: float) -> float | None:
        """Return how many requests a second got through, or None if too few did.

        The wait counts too: a limit that is met costs it each time.
        """
        times = self._grants
        while times and times[0] < now - 2 * wait - _MEASURED_SECONDS:
            times.popleft()
        if len(times) < _MEASURED:
            return None
        return len(times) / max(now - times[0] + wait, 1e-3)

    def _lower(self, served_rate: float) -> None:
        """Set the rate after a rejection; `served_rate` is how many requests a second
        got through until then.
        """
        rate = self.rate
        assert rate is not None
        if self._starts < _STARTS:
            self._starts += 1
            self.rate = self._failed = min(rate, max(served_rate, _BACK * rate))
        else:
            self._failed = rate
            lower = rate * (1 - min(_MOST, _WEIGHT * self._recent**2))
            self.rate = max(lower, min(rate, _SLOWEST / self._longest))


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
