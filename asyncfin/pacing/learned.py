"""The rate that a service allows, learned from its refusals (429) where no rate was
given.

`Pace` is what a bucket of one process uses: a given rate, or a learned one. Arithmetic
only: times are seconds of one clock, rates are weight per second.
"""

from __future__ import annotations

from math import inf

from attrs import frozen

from asyncfin.pacing.pace import GCRA

# Fewer requests than this that got through before a refusal have measured nothing.
_MEASURED = 2
# A refusal within this many seconds of the end of a wait, plus the wait once more,
# follows the last one.
_FOLLOWS = 2.0


@frozen(kw_only=True)
class Tuning:
    """How fast a learned rate moves. Simulation set the values: docs/pacing.md has the
    goals.
    """

    # grants of a climb back to the rate that failed: bounds the share refused
    climb_grants: float = 100.0
    climb_seconds: float = (
        25.0  # its least duration: bounds the share of time spent in pauses
    )
    climb_at_most: float = (
        600.0  # its longest duration, or a rate far too low would stay so for hours
    )
    # per climb, the speed at which the distance to the failed rate shrinks below it
    pull: float = 2.0
    push: float = (
        5.0  # the speed at which it grows above, where each refusal costs the same
    )
    drift: float = (
        0.03  # carries the rate across the failed one, where pull and push are zero
    )
    # the most that one grant adds, also at most a tenth of the rate: no leap on old
    # news
    step: float = 0.5
    long_wait: float = (
        10.0  # service waits above this lengthen a climb in proportion: each costs more
    )
    start: float = (
        0.35  # doubles the rate in about 2 s, or two waits: the slow start's search
    )
    # the refusals that end the slow start: six searches narrow the limit down enough
    starts: int = 6
    # a refusal in the slow start keeps this much: the rate before was not refused
    back: float = 0.8
    recent: float = (
        1 / 8
    )  # refusals over about 8 grants: are they becoming more frequent?
    memory: float = 1 / 150  # refusals over about 150 grants: how many are there?
    # times the square of the recent share: an isolated refusal lowers the rate by 3 %
    weight: float = 2.0
    # the most that one refusal takes away, so that a cluster does not stop everything
    most: float = 0.3
    same: float = 0.96  # a failure within 4 % of the last one is the same one
    tolerated: float = 0.05  # a smaller share of refusals need not depend on the rate
    below: float = 0.92  # nor do refusals this far below the rate that failed
    irregular: float = (
        0.45  # nor where the gaps deviate by more than this from their mean
    )
    # what such a refusal leaves: almost all, or random refusals would lower it for ever
    little: float = 0.97
    # and the failed rate is taken to be higher, so that the climb is not slowed by it
    raised: float = 1.1
    regular: float = 0.25  # gaps that deviate less than this are a limit's
    # then the rate is what got through, but keeps this much: one interval may be short
    half: float = 0.7
    top: float = (
        1.1  # and the failed rate is at most this above it, so that the climb is short
    )
    gaps: float = 1 / 8  # the mean gap is over about 8 refusals
    # then each refusal raises the rate: a client that gets nothing can't learn
    # otherwise
    hope: float = 1.05
    starved: int = (
        50  # how many do, so that a day without service does not leave an absurd rate
    )
    # how often the wait doubles while the first request after each pause is refused
    doublings: int = 4
    longest_wait: float = (
        60.0  # and to how many seconds: an outage that ends is noticed within a minute
    )
    # requests per service wait that can't be too fast: the service itself asks for one
    slowest: float = 0.35


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
            self.began, self.before = (
                (self.second, self.lately) if recent else (now, 0.0)
            )
            self.second, self.lately = now, 0.0
        self.lately += weight

    def shift(self, seconds: float) -> None:
        """Continue on another clock, which is ahead by `seconds`."""
        self.began += seconds
        self.second += seconds


class Search:
    """The first rate: what got through before a refusal, over the time it took and the
    wait that it cost.

    Until two requests have got through, nothing is measured. Refusals that follow one
    another add up, since a limit without a burst serves one request after each wait.
    """

    def __init__(self) -> None:
        self.measure = Measure()
        self._refused_at = -inf
        self._wait = 0.0
        self._served = 0.0
        self._began = -inf
        self._served_before = 0.0  # by the refusals that this one follows
        self._began_before = -inf

    def refused(self, now: float, wait: float) -> float | None:
        """Record a refusal after earlier ones have measured nothing; return the rate,
        or None.
        """
        follows = now - self._refused_at <= 2 * self._wait + _FOLLOWS
        if follows and not self._served_before:
            self._began_before = self._began
        self._served_before = self._served_before + self._served if follows else 0.0
        measure = self.measure
        # The refused request was granted too, and did not get through.
        self._served = max(measure.lately + measure.before - 1.0, 0.0)
        self._began = measure.began if measure.lately else now - 1.0
        self._refused_at, self._wait, self.measure = now, wait, Measure()
        return self._rate()

    def refused_too(self) -> float | None:
        """Record a further refusal of what was sent before the last one; return the
        rate, or None.
        """
        self._served = max(self._served - 1.0, 0.0)
        return self._rate()

    def _rate(self) -> float | None:
        served, began = self._served, self._began
        if served < _MEASURED and self._served_before:
            served, began = served + self._served_before, self._began_before
        if served < _MEASURED:
            return None
        return served / max(self._refused_at - began + self._wait, 1e-3)

    def shift(self, seconds: float) -> None:
        """Continue on another clock, which is ahead by `seconds`."""
        self.measure.shift(seconds)
        self._refused_at += seconds
        self._began += seconds
        self._began_before += seconds


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

    Args:
        tuning: how fast the rate moves.
    """

    def __init__(self, tuning: Tuning = TUNING) -> None:
        self.rate: float | None = None
        self._tuning = tuning
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

    def granted(self, weight: float, now: float, *, waited: bool) -> None:
        """Count a grant, and raise the rate if a request waited for it. Unused speed is
        never gained.
        """
        tuning = self._tuning
        resumes = self._resumed_at is None and self._refused_at > -inf
        if resumes:
            self._resumed_at = now
        if self.rate is None:
            if self._search is not None:
                self._search.measure.granted(weight, now)
            return
        if resumes:  # it waited for the pause, not for the rate
            return
        # Exponential means over grants, not over time: a bucket that rests learns
        # nothing and forgets nothing.
        self._recent *= 1 - tuning.recent
        self._share *= 1 - tuning.memory
        self._grants += 1
        if waited:
            self.rate += weight * min(
                self._gain(self.rate), tuning.step, self.rate / 10
            )

    def _gain(self, rate: float) -> float:
        tuning = self._tuning
        if self._starts < tuning.starts:
            return tuning.start / self._longest
        # Cubic congestion control has the same shape: slow near the rate that failed,
        # faster on both sides of it.
        above = rate - self._failed
        gain = (
            tuning.push * above if above > 0 else -tuning.pull * above
        ) + tuning.drift * self._failed
        shortest = (
            tuning.climb_seconds * max(1.0, self._longest / tuning.long_wait) * rate
        )
        return gain / max(
            min(tuning.climb_grants, tuning.climb_at_most * rate), shortest
        )

    def refused(self, sent_at: float, now: float, retry_after: float) -> float:
        """Record a refusal of what was granted at `sent_at`, and return for how many
        seconds to pause.
        """
        tuning, search = self._tuning, self._search
        if search is None:
            self._recent += tuning.recent * (1 - self._recent)
            self._share += tuning.memory * (1 - self._share)
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
            elif self._in_a_row <= tuning.starved:
                self.rate *= tuning.little if self._in_a_row == 1 else tuning.hope
        doubled = retry_after * 2.0 ** min(self._in_a_row, tuning.doublings)
        return max(retry_after, min(doubled, tuning.longest_wait))

    def _set_first(self, rate: float | None, wait: float) -> None:
        self.rate = rate
        if rate is not None:
            self._longest = max(self._longest, wait)

    def _lower(self, rate: float, served: float) -> None:
        """Set the rate after a refusal at `rate`; `served` is what got through per
        second until then.
        """
        tuning = self._tuning
        self._gap = self._gap or self._grants
        self._deviation = self._deviation or self._grants
        self._deviation += tuning.gaps * (
            abs(self._grants - self._gap) - self._deviation
        )
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

    def shift(self, seconds: float) -> None:
        """Continue on another clock, which is ahead by `seconds`."""
        self._refused_at += seconds
        if self._search is not None:
            self._search.shift(seconds)
        if self._resumed_at is not None:
            self._resumed_at += seconds


class Pace:
    """When this process may send: at a given rate, or at one that is learned."""

    def __init__(self, rate: float | None, burst: float) -> None:
        self.gcra = GCRA(rate, burst)
        self.adaptive = AdaptiveRate() if rate is None else None

    @property
    def rate(self) -> float | None:
        """Weight per second; None while unpaced."""
        return self.gcra.rate if self.adaptive is None else self.adaptive.rate

    def grant(self, weight: float, now: float, *, waited: bool) -> None:
        """Spend `weight`; `waited`: a request waited for it."""
        self.gcra.spend(weight, now)
        if self.adaptive is not None:
            self.adaptive.granted(weight, now, waited=waited)
            if waited and self.adaptive.rate is not None:
                self.gcra.change(now, self.adaptive.rate, self.gcra.burst)

    def refuse(self, sent_at: float, now: float, retry_after: float) -> float:
        """Record a 429 and pause; return for how many seconds."""
        if self.adaptive is not None:
            # Where the first request after each pause is refused, the service's wait is
            # doubled.
            retry_after = self.adaptive.refused(sent_at, now, retry_after)
            self.gcra.change(now, self.adaptive.rate, self.gcra.burst)
        self.gcra.pause(now, now + retry_after)
        return retry_after

    def shift(self, seconds: float) -> None:
        """Continue on another loop's clock, which is ahead by `seconds`."""
        self.gcra.shift(seconds)
        if self.adaptive is not None:
            self.adaptive.shift(seconds)
