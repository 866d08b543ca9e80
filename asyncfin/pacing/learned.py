"""The rate that a service allows, learned from its rejections (429) where no rate was
given.

`Pace` is what a bucket of one process uses: a given rate, or a learned one. Arithmetic
only: times are seconds of one clock, rates are requests per second.
"""

from __future__ import annotations

from math import inf

from asyncfin.pacing.pace import GCRA

# Fewer requests than this that got through before a rejection have measured nothing.
_MEASURED = 2
# A rejection within this many seconds of the end of a wait, plus the wait once more,
# follows the last one.
_FOLLOWS = 2.0

# How fast a learned rate moves. Simulation set the values: docs/pacing.md has the
# goals.
#
# A climb back to the rate that failed takes so many grants, which bounds the share of
# rejections, but not less and not more than so many seconds. Long waits of the service
# lengthen it in proportion.
_CLIMB_GRANTS = 100.0
_CLIMB_SECONDS = 25.0
_CLIMB_AT_MOST = 600.0
_LONG_WAIT = 10.0
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


class Search:
    """The first rate: what got through before a rejection, over the time it took and
    the wait that it cost.

    Until two requests have got through, nothing is measured. Rejections that follow one
    another add up, since a limit without a burst serves one request after each wait.
    """

    def __init__(self) -> None:
        # What was granted in the running second and in the one before, and when the
        # seconds that are counted began.
        self._second = -inf
        self._began = -inf
        self._lately = self._before = 0.0
        self._refused_at = -inf
        self._wait = 0.0
        # Up to the last rejection, and of the earlier ones that it follows: what was
        # served, since when.
        self._last = self._earlier = (0.0, -inf)

    def granted(self, now: float) -> None:
        """Count a grant."""
        if now - self._second >= 1.0:
            is_recent = now - self._second < 2.0
            self._began = self._second if is_recent else now
            self._before = self._lately if is_recent else 0.0
            self._second, self._lately = now, 0.0
        self._lately += 1

    def refused(self, now: float, wait: float) -> float | None:
        """Record a rejection after earlier ones have measured nothing; return the rate,
        or None.
        """
        count, began = self._last
        if now - self._refused_at > 2 * self._wait + _FOLLOWS:
            self._earlier = (0.0, -inf)
        elif self._earlier[0]:
            self._earlier = (self._earlier[0] + count, self._earlier[1])
        else:
            self._earlier = (count, began)
        # The rejected request was granted too, and did not get through.
        count = max(self._lately + self._before - 1, 0.0)
        self._last = (count, self._began if self._lately else now - 1.0)
        self._refused_at, self._wait = now, wait
        self._second = -inf
        self._lately = self._before = 0.0
        return self._compute_rate()

    def refused_too(self) -> float | None:
        """Record a further rejection of what was sent before the last one; return the
        rate, or None.
        """
        count, began = self._last
        self._last = (max(count - 1, 0.0), began)
        return self._compute_rate()

    def _compute_rate(self) -> float | None:
        count, began = self._last
        if count < _MEASURED and self._earlier[0]:
            count, began = count + self._earlier[0], self._earlier[1]
        if count < _MEASURED:
            return None
        return count / max(self._refused_at - began + self._wait, 1e-3)


class AdaptiveRate:
    """The rate that a service allows, as far as its rejections (429) show.

    `rate` is None until a rejection shows what gets through, which at least two
    requests must have done: an earlier rejection is obeyed, and has measured nothing.
    Then the rate climbs with the grants that waited for it, slowly near the rate that
    failed last and faster far from it. Rejections of what was granted before the last
    decrease are part of the same event, and the first request after a pause has not
    been sent at the rate. In the slow start a rejection sets the rate back to what got
    through. Later ones lower it, little if they are isolated and much if there are more
    and more.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._failed = 0.0  # the rate at the last failure
        self._refused_at = -inf  # of the last rejection that began an event
        self._resumed_at: float | None = None  # of the first grant after it
        self._recent = 0.0
        self._grants = 0.0  # since the last rejection
        self._starts = 0
        self._longest = 1.0  # of the service's waits, in seconds
        self._search: Search | None = Search()  # None: it has ended

    def granted(self, now: float, *, has_waited: bool) -> None:
        """Count a grant, and raise the rate if a request waited for it. Unused speed is
        never gained.
        """
        resumes = self._resumed_at is None and self._refused_at > -inf
        if resumes:
            self._resumed_at = now
        if self.rate is None:
            if self._search is not None:
                self._search.granted(now)
            return
        if resumes:  # it waited for the pause, not for the rate
            return
        # Exponential means over grants, not over time: a bucket that rests learns
        # nothing and forgets nothing.
        self._recent *= 1 - _RECENT
        self._grants += 1
        if has_waited:
            self.rate += min(self._compute_gain(self.rate), _STEP, self.rate / 10)

    def _compute_gain(self, rate: float) -> float:
        if self._starts < _STARTS:
            return _START / self._longest
        # Cubic congestion control has the same shape: slow near the rate that failed,
        # faster on both sides of it.
        distance = rate - self._failed
        gain = (
            _PUSH * distance if distance > 0 else -_PULL * distance
        ) + _DRIFT * self._failed
        shortest = _CLIMB_SECONDS * max(1.0, self._longest / _LONG_WAIT) * rate
        return gain / max(min(_CLIMB_GRANTS, _CLIMB_AT_MOST * rate), shortest)

    def refused(self, sent_at: float, now: float, wait: float) -> None:
        """Record a rejection of what was granted at `sent_at`."""
        search = self._search
        if search is None:
            self._recent += _RECENT * (1 - self._recent)
        if sent_at <= self._refused_at:
            if search is not None:
                # Only now is it known how few of the first requests got through.
                self._set_first(search.refused_too(), wait)
            return
        self._refused_at = now
        resumed_at, self._resumed_at = self._resumed_at, None
        if self.rate is None:
            assert search is not None
            self._set_first(search.refused(now, wait), wait)
            return
        self._search = None
        self._longest = max(self._longest, wait)
        if resumed_at is None or sent_at > resumed_at + 1e-6:
            # What got through is measured over the wait too: a limit that is met costs
            # it each time.
            took = wait + (0.0 if resumed_at is None else now - resumed_at)
            self._lower(self.rate, max(self._grants - 1, 1) / max(took, 1e-3))
            self._grants = 0.0

    def _set_first(self, rate: float | None, wait: float) -> None:
        self.rate = rate
        if rate is not None:
            self._longest = max(self._longest, wait)

    def _lower(self, rate: float, served_rate: float) -> None:
        """Set the rate after a rejection at `rate`; `served_rate` is how many requests
        got through per second until then.
        """
        if self._starts < _STARTS:
            self._starts += 1
            self.rate = self._failed = min(rate, max(served_rate, _BACK * rate))
        else:
            self._failed = rate
            lower = rate * (1 - min(_MOST, _WEIGHT * self._recent**2))
            self.rate = max(lower, min(rate, _SLOWEST / self._longest))


class Pace:
    """When this process may send: at a given rate, or at one that is learned."""

    def __init__(self, rate: float | None, burst: float) -> None:
        self.gcra = GCRA(rate, burst)
        self.adaptive = AdaptiveRate() if rate is None else None

    @property
    def rate(self) -> float | None:
        """Requests per second; None while unpaced."""
        return self.gcra.rate if self.adaptive is None else self.adaptive.rate

    def grant(self, now: float, *, has_waited: bool) -> None:
        """Spend a request; `has_waited`: it waited for the pace."""
        self.gcra.spend(now)
        if self.adaptive is not None:
            self.adaptive.granted(now, has_waited=has_waited)
            if has_waited and self.adaptive.rate is not None:
                self.gcra.set_rate(now, self.adaptive.rate)

    def refuse(self, sent_at: float, now: float, retry_after: float) -> None:
        """Record a 429 and pause."""
        if self.adaptive is not None:
            self.adaptive.refused(sent_at, now, retry_after)
            self.gcra.set_rate(now, self.adaptive.rate)
        self.gcra.pause(now, now + retry_after)
