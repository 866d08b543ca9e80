"""How long a question waits for the store of a cache, and for how long a store that fails is not used."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from math import inf

from asyncfin.errors import printable

_log = logging.getLogger("asyncfin.cache")

# What a question waits for a store in all. An operation that takes longer than the second of these, or fails,
# closes the store to this process for the third: otherwise each question would wait.
QUESTION_SECONDS = 2.0
SLOW_SECONDS = 1.0
CLOSED_SECONDS = 5.0
# What the current operation may wait; of an operation that is not a question's, ten seconds.
seconds_left: ContextVar[float] = ContextVar("asyncfin_seconds_left", default=10.0)
# At most one outage in this time is logged, with its end.
_LOGGED_EVERY = 60.0


class QuestionTime:
    """What a question may still wait for a store. Operations at the same time count once."""

    def __init__(self) -> None:
        self._spent = 0.0
        self._operations = 0
        self._since = 0.0  # when the first of the current operations began

    def left(self, now: float) -> float:
        """Return the seconds that are left."""
        current = now - self._since if self._operations else 0.0
        return QUESTION_SECONDS - self._spent - current

    def begin(self, now: float) -> None:
        """Count the time until the `end` of an operation."""
        if not self._operations:
            self._since = now
        self._operations += 1

    def end(self, now: float) -> None:
        """End what `begin` has begun."""
        self._operations -= 1
        if not self._operations:
            self._spent += now - self._since


class Availability:
    """Whether a store can be used, as far as this process knows. Times are those of the event loop."""

    def __init__(self, place: str) -> None:
        self._place = place  # printable, without what may be secret
        self._failing_since: float | None = None
        self._closed_at = -inf
        self._logged_at = -inf
        self._logged = False  # whether the current outage is

    def is_closed(self, now: float) -> bool:
        """Return whether the store is not to be used at the moment."""
        # Not `now < until`: an event loop can have another clock than the last one.
        return 0 <= now - self._closed_at < CLOSED_SECONDS

    def fail(self, now: float, reason: str) -> bool:
        """Record a failure, and log it if it is the first; return whether an outage begins with it."""
        begins = self._failing_since is None
        self._closed_at = now
        if begins:
            self._failing_since, self._logged = now, False
        if not self._logged and not 0 <= now - self._logged_at < _LOGGED_EVERY:
            self._logged, self._logged_at = True, now
            text = printable(f"{self._place} can't be used at the moment: {reason}")
            _log.warning("the cache in %s; it is skipped", text)
        return begins

    def succeed(self, now: float) -> None:
        """Record that the store has done what it was asked for, which ends an outage."""
        if self._failing_since is None:
            return
        seconds, self._failing_since = max(0.0, now - self._failing_since), None
        if self._logged:
            _log.warning("the cache in %s can be used again after %.1f s", printable(self._place), seconds)
