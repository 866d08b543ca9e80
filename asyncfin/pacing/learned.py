"""The rate that a service allows, learned from its refusals (429) where no rate was
given.

`Pace` is what a bucket of one process uses: a given rate, or a learned one. Arithmetic
only: times are seconds of one clock, rates are requests per second.
"""

from __future__ import annotations

from math import inf

from asyncfin.pacing.pace import GCRA

# Fewer requests than this that got through before a refusal have measured nothing.
_MEASURED = 2
# A refusal within this many seconds of the end of a wait, plus the wait once more,
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
# Rejections over about 8 grants: do they become more frequent? Over about 150: how many
# are there?
_RECENT = 1 / 8
_MEMORY = 1 / 150
# What a rejection takes away: times the square of the recent share, and at most.
_WEIGHT = 2.0
_MOST = 0.3
# A failure within 4 % of the last one is the same one.
_SAME = 0.96
# Rejections do not depend on the rate if they are few, this far below the rate that
# failed, and at irregular gaps. They leave almost all of the rate and raise the failed
# one.
_TOLERATED = 0.05
_BELOW = 0.92
_IRREGULAR = 0.45
_LITTLE = 0.97
_RAISED = 1.1
# Regular gaps are a limit's: the rate is what was served, at least this part of it, and
# the failed rate is at most this above it.
_REGULAR = 0.25
_HALF = 0.7
_TOP = 1.1
# The mean gap is over about 8 rejections.
_GAPS = 1 / 8
# While the first request after each pause is rejected, the rate rises so many times,
# and the wait doubles so often, up to a minute.
_HOPE = 1.05
_STARVED = 50
_DOUBLINGS = 4
_LONGEST_WAIT = 60.0
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
        served, began = self._last
        if now - self._refused_at > 2 * self._wait + _FOLLOWS:
            self._earlier = (0.0, -inf)
        elif self._earlier[0]:
            self._earlier = (self._earlier[0] + served, self._earlier[1])
        else:
            self._earlier = (served, began)
        # The rejected request was granted too, and did not get through.
        served = max(self._lately + self._before - 1, 0.0)
        self._last = (served, self._began if self._lately else now - 1.0)
        self._refused_at, self._wait = now, wait
        self._second = -inf
        self._lately = self._before = 0.0
        return self._rate()

    def refused_too(self) -> float | None:
        """Record a further rejection of what was sent before the last one; return the
        rate, or None.
        """
        served, began = self._last
        self._last = (max(served - 1, 0.0), began)
        return self._rate()

    def _rate(self) -> float | None:
        served, began = self._last
        if served < _MEASURED and self._earlier[0]:
            served, began = served + self._earlier[0], self._earlier[1]
        if served < _MEASURED:
            return None
        return served / max(self._refused_at - began + self._wait, 1e-3)


class AdaptiveRate:
    """The rate that a service allows, as far as its refusals (429) show.

    `rate` is None until a refusal shows what gets through, which at least two requests
    must have done: a refusal before that is obeyed, and has measured nothing. Then the
    rate climbs with the grants that waited for it, slowly near the rate that failed
    last and faster far from it. What a refusal says about the rate depends on its
    circumstances; refusals of what was granted before the last decrease are part of the
    same event. In turn:

    1. The first request after a pause was refused: nothing was sent at the rate, so it
       says nothing about it. The next pause is twice as long, and if that recurs, the
       rate rises a little. (The service is out, or another user has taken the place.)
       2. The slow start: back to what got through. 3. Few, irregular and below the rate
       that failed: refusals that do not depend on the rate. It is kept. 4. Regular: a
       limit. The rate becomes what got through over the time and the wait that it took.
       5. Any other lowers the rate, little if it is isolated and much if there are more
       and more.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
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
        self._search: Search | None = Search()  # None: it has ended

    def granted(self, now: float, *, waited: bool) -> None:
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
        self._share *= 1 - _MEMORY
        self._grants += 1
        if waited:
            self.rate += min(self._gain(self.rate), _STEP, self.rate / 10)

    def _gain(self, rate: float) -> float:
        if self._starts < _STARTS:
            return _START / self._longest
        # Cubic congestion control has the same shape: slow near the rate that failed,
        # faster on both sides of it.
        above = rate - self._failed
        gain = (_PUSH * above if above > 0 else -_PULL * above) + _DRIFT * self._failed
        shortest = _CLIMB_SECONDS * max(1.0, self._longest / _LONG_WAIT) * rate
        return gain / max(min(_CLIMB_GRANTS, _CLIMB_AT_MOST * rate), shortest)

    def refused(self, sent_at: float, now: float, retry_after: float) -> float:
        """Record a refusal of what was granted at `sent_at`, and return for how many
        seconds to pause.
        """
        search = self._search
        if search is None:
            self._recent += _RECENT * (1 - self._recent)
            self._share += _MEMORY * (1 - self._share)
        if sent_at <= self._refused_at:
            if search is not None:
                # Only now is it known how few of the first requests got through.
                self._set_first(search.refused_too(), retry_after)
            return retry_after
        self._refused_at = now
        resumed_at, self._resumed_at = self._resumed_at, None
        hits_pause = resumed_at is not None and sent_at <= resumed_at + 1e-6
        self._in_a_row = self._in_a_row + 1 if hits_pause else 0
        if self.rate is None:
            assert search is not None
            self._set_first(search.refused(now, retry_after), retry_after)
        else:
            self._search = None
            self._longest = max(self._longest, retry_after)
            if not hits_pause:
                # What got through is measured over the wait too: a limit that is met
                # costs it each time.
                took = retry_after + (0.0 if resumed_at is None else now - resumed_at)
                self._lower(self.rate, max(self._grants - 1, 1) / max(took, 1e-3))
                self._grants = 0.0
            elif self._in_a_row <= _STARVED:
                self.rate *= _LITTLE if self._in_a_row == 1 else _HOPE
        doubled = retry_after * 2.0 ** min(self._in_a_row, _DOUBLINGS)
        return max(retry_after, min(doubled, _LONGEST_WAIT))

    def _set_first(self, rate: float | None, wait: float) -> None:
        self.rate = rate
        if rate is not None:
            self._longest = max(self._longest, wait)

    def _lower(self, rate: float, served: float) -> None:
        """Set the rate after a refusal at `rate`; `served` is what got through per
        second until then.
        """
        self._gap = self._gap or self._grants
        self._deviation = self._deviation or self._grants
        self._deviation += _GAPS * (abs(self._grants - self._gap) - self._deviation)
        self._gap += _GAPS * (self._grants - self._gap)
        lower = rate * (1 - min(_MOST, _WEIGHT * self._recent**2))
        few = self._share < _TOLERATED
        irregular = self._deviation > _IRREGULAR * self._gap
        if self._starts < _STARTS:
            self._starts += 1
            self.rate = self._failed = min(rate, max(served, _BACK * rate))
        elif few and rate < _BELOW * self._failed and irregular:
            self._failed = max(self._failed, rate) * _RAISED
            self.rate = rate * _LITTLE
        elif self._deviation <= _REGULAR * self._gap:
            self.rate = min(lower, max(served, rate * _HALF))
            self._failed = min(rate, self.rate * _TOP)
        else:
            if not few or rate > _SAME * self._failed:
                self._failed = rate
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

    def grant(self, now: float, *, waited: bool) -> None:
        """Spend a request; `waited`: it has waited for the pace."""
        self.gcra.spend(now)
        if self.adaptive is not None:
            self.adaptive.granted(now, waited=waited)
            if waited and self.adaptive.rate is not None:
                self.gcra.set_rate(now, self.adaptive.rate)

    def refuse(self, sent_at: float, now: float, retry_after: float) -> float:
        """Record a 429 and pause; return for how many seconds."""
        if self.adaptive is not None:
            # Where the first request after each pause is rejected, the service's wait
            # is doubled.
            retry_after = self.adaptive.refused(sent_at, now, retry_after)
            self.gcra.set_rate(now, self.adaptive.rate)
        self.gcra.pause(now, now + retry_after)
        return retry_after
