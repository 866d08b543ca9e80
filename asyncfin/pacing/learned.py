"""The rate that a service allows, learned from its rejections (429) where no rate was
given.

Arithmetic only: times are seconds of one clock, rates are requests per second.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import inf

from asyncfin.pacing.pace import GCRA

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
