"""Whether the service fails as a whole, and which requests then find out that it responds again; no I/O.

All moments are loop times, in seconds. Requests are known by their keys.
"""

from __future__ import annotations

import random
from collections.abc import Hashable
from datetime import datetime
from math import inf

from asyncfin.errors import AsyncfinError, ServerFailureError, ServiceError
from asyncfin.wire.retry import is_retryable

# An outage begins with this many failures in a row, if they concern several entities or last this long.
_FAILURES = 8
_ALONE_SECONDS = 30.0
# From the beginning of an outage, and then from the end of each probe, to the next probe; at most a tenth
# longer at random. The last one repeats, and is what visitors and assistants are told to wait.
PROBE_EVERY = 30.0
_DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0, PROBE_EVERY)
_JITTER = 0.1
# The longest time between two probes, whatever Retry-After the service sends.
_LONGEST = 600.0


def is_failure(error: AsyncfinError | None) -> bool | None:
    """Return whether an attempt that ended so shows that the service fails; None: it shows neither.

    A success is a 2xx (None), and any response below 500 other than 408 with the spec's error object.
    """
    if error is None:
        return False
    if error.concerns == "service":
        return True
    if isinstance(error, ServiceError) and error.has_error_object and error.status < 500:
        return None if error.status == 408 else False
    return None


class Outage:
    """Counts failures in a row, and decides during an outage which request is sent, as a probe.

    Attributes:
        is_on: whether there is an outage.
        failures: how many failures there were since the last success.
        first_at, since: the loop time and the wall time of the first of them.
        last: the last of them; None: there was none.
        probes: how many requests were sent as probes, without those that had no outcome.
    """

    def __init__(self, source: random.Random) -> None:
        self._source = source
        # In the order in which they began to wait.
        self._waiting: dict[Hashable, str] = {}
        self._start_over()

    def _start_over(self) -> None:
        self.is_on = False
        self.failures = self.probes = 0
        self.first_at = 0.0
        self.since: datetime | None = None
        self.last: AsyncfinError | None = None
        self._entities: set[str] = set()  # those that failed, at most two of them
        self._advised: set[str] = set()  # those with a retryable 5xx with Retry-After, likewise
        self._probing: set[Hashable] = set()
        self._probed = ""  # the entity of the last probe
        self._has_tried_another = False  # whether the first request of another entity was a probe at once
        self._planned = self._ended_at = 0.0  # the next probe, and the end of the last one
        self._not_before = -inf  # what the Retry-After of the last 5xx asks for

    @property
    def due(self) -> float | None:
        """When the next probe is due; None: not known, as one is being sent, or there is no outage."""
        if not self.is_on or self._probing:
            return None
        return min(max(self._planned, self._not_before), self._ended_at + _LONGEST)

    def may_send(self, key: Hashable, entity_id: str, now: float) -> bool:
        """Return whether a request may be sent. During an outage only as a probe, which it is from now on."""
        if not self.is_on or key in self._probing:
            return True
        # What fails may be one entity: the first request of another one finds out.
        is_another = entity_id not in self._entities and len(self._entities) == 1
        if is_another and not self._has_tried_another:
            self._has_tried_another = True
        elif self.due is None or now < self.due:
            return False
        self._begin_probe(key, entity_id)
        return True

    def wait(self, key: Hashable, entity_id: str) -> None:
        """Let a request wait for the end of the outage, or until it is the next probe."""
        self._waiting[key] = entity_id

    def leave(self, key: Hashable) -> None:
        """End the wait of a request, if it waits."""
        self._waiting.pop(key, None)

    def next_probe(self, now: float) -> Hashable | None:
        """Return the waiting request that is a probe from now on; None: none is due, or no request waits.

        It is the one that has waited longest, of another entity than the last probe's if one waits.
        """
        if self.due is None or now < self.due or not self._waiting:
            return None
        others = (key for key, entity_id in self._waiting.items() if entity_id != self._probed)
        key = next(others, next(iter(self._waiting)))
        self._begin_probe(key, self._waiting.pop(key))
        return key

    def is_probe(self, key: Hashable) -> bool:
        """Return whether a request is the probe."""
        return key in self._probing

    def record_failure(
        self, key: Hashable, entity_id: str, error: AsyncfinError, retry_after: float | None, now: float
    ) -> bool:
        """Record an attempt whose error shows that the service fails; return whether an outage begins.

        Args:
            retry_after: the seconds that the response asked to wait; None: it did not.
        """
        if not self.failures:
            self.first_at, self.since = now, error.at
        self.failures += 1
        self.last = error
        _add(self._entities, entity_id)
        if isinstance(error, ServerFailureError):
            self._not_before = -inf if retry_after is None else now + retry_after
            if retry_after is not None and is_retryable(error):
                _add(self._advised, entity_id)
        self.record_neither(key, now)
        if self.is_on or not self._begins(now):
            return False
        self.is_on, self._ended_at = True, now
        self._plan(now)
        return True

    def record_success(self) -> list[Hashable]:
        """Record an attempt that shows that the service responds; return the requests that waited."""
        waiting = list(self._waiting)
        self._waiting.clear()
        self._start_over()
        return waiting

    def record_neither(self, key: Hashable, now: float) -> None:
        """Record that an attempt has ended."""
        if key in self._probing:
            self._probing.discard(key)
            self._ended_at = now
            self._plan(now)

    def withdraw(self, key: Hashable, now: float) -> None:
        """Record that a request is not sent, or that its response is not waited for: another may probe."""
        if key in self._probing:
            self._probing.discard(key)
            self.probes -= 1
            self._planned, self._has_tried_another = now, False

    def _begins(self, now: float) -> bool:
        if len(self._advised) > 1:
            return True
        concerns_several = len(self._entities) > 1 or now - self.first_at >= _ALONE_SECONDS
        return self.failures >= _FAILURES and concerns_several

    def _begin_probe(self, key: Hashable, entity_id: str) -> None:
        self._probing.add(key)
        self.probes += 1
        self._probed = entity_id

    def _plan(self, now: float) -> None:
        delay = _DELAYS[min(self.probes, len(_DELAYS) - 1)]
        self._planned = now + delay + self._source.uniform(0, _JITTER * delay)


def _add(entities: set[str], entity_id: str) -> None:
    """Add an entity; two are enough to know that there are several."""
    if len(entities) < 2:
        entities.add(entity_id)
