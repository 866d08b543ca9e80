"""The breaker: whether the service fails as a whole, and which requests are sent
meanwhile.

It is closed, or open since a moment. A failure counts only if its attempt was sent
after the first failure of the row was seen: what was under way together is one
observation. Eight in a row, of at least two entities, open it; any response of the
service closes it. While it is open, one request at a time has the place: it is sent,
and shows whether the service responds again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from copy import copy
from datetime import datetime
from math import inf

from attrs import define

from asyncfin.errors import (
    AsyncfinError,
    MalformedAnswerError,
    RequestTimeoutError,
    ServiceError,
    TransportError,
)
from asyncfin.events import OutageBegan, OutageEnded, next_serial
from asyncfin.wire.observers import Announcer
from asyncfin.wire.protocol import Request
from asyncfin.wire.retry import LASTING_STATUSES, growing_wait

_FAILURES = 8
# Seconds after which a request that is given up without a byte counts as a failure.
PATIENCE = 2.0
_EARLY = 0.001  # a timer may fire so much earlier


def has_responded(error: AsyncfinError | None) -> bool | None:
    """Return whether an attempt that ended so shows that the service responds, or that
    it fails.

    None: it shows neither. An attempt without an error has a response in JSON.
    """
    if error is None:
        return True
    if isinstance(error, TransportError):
        return False
    if isinstance(error, MalformedAnswerError):
        return None if error.is_json else False
    if not isinstance(error, ServiceError) or not error.answered:
        return None
    if error.status >= 500:
        return None if error.status in LASTING_STATUSES else False
    if error.status < 400:  # a redirect
        return False
    if error.has_error_object:
        return True
    return False if error.status == 408 else None


@define(eq=False)
class _Row:
    """Failures in a row."""

    error: AsyncfinError  # the last one
    since: datetime  # when the first one was seen
    seen_at: float  # the same as loop time
    entities: set[str | None]
    failures: int = 1


@define(eq=False)
class Sent:
    """An attempt on its way, as the breaker sees it."""

    request: Request
    at: float  # loop time
    row: _Row | None  # the failures that had been seen before it was sent
    responses: int  # how many responses of the service had arrived by then
    is_silent: bool = True  # whether no byte has arrived
    is_given_up: bool = False
    has_ended: bool = False


@define(eq=False)
class _Place:
    """The single request that is sent while the breaker is open, or the next one."""

    key: Hashable = None
    entity_id: str | None = None  # of the last request that had it
    due: float | None = 0.0  # when the next one may be sent; None: one was sent
    count: int = 0  # how many were sent


class Breaker:
    """Decides for the requests of one event loop whether they are sent; announces
    outages.
    """

    def __init__(self, announce: Announcer, clock: Callable[[], datetime]) -> None:
        self._announce = announce
        self._clock = clock  # gives the wall time
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._responses = 0
        self._row: _Row | None = None
        self._outage: OutageBegan | None = None
        self._place = _Place()
        self._waiting: dict[asyncio.Future[None], tuple[Hashable, str | None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.is_open = False

    @property
    def failing_since(self) -> float:
        """The loop time at which the first failure of the row was seen; now, if there
        is none.
        """
        return self._time() if self._row is None else self._row.seen_at

    @property
    def due(self) -> float | None:
        """When the next request may be sent; None: that depends on the one that was
        sent.
        """
        return self._place.due

    # --- who is sent

    def allows(self, key: Hashable) -> bool:
        """Return whether a request may be sent: all while it is closed, else the one
        with the place.
        """
        return not self.is_open or self._place.key is key

    async def wait(self, key: Hashable, request: Request, until: float) -> bool:
        """Wait until a request may be sent; return False if that is not before a loop
        time.

        It may have the place if this raises: then the caller calls `leave`.
        """
        while not self.allows(key):
            turn = self._loop.create_future()
            self._waiting[turn] = key, request.entity_id
            self._serve()
            try:
                if not turn.done() and self._time() >= until:
                    return False
                async with asyncio.timeout_at(None if until == inf else until):
                    await turn
            except TimeoutError:
                pass
            finally:
                self._waiting.pop(turn, None)
        return True

    def leave(self, key: Hashable) -> None:
        """Free the place, if the request has it: the next wait begins if it was
        sent.
        """
        place = self._place
        if place.key is not key:
            return
        place.key = None
        if place.due is None:
            place.due = self._time() + growing_wait(place.count)
        self._serve()

    def _serve(self) -> None:
        """Give the place to the longest waiting request, of another entity than the
        last one's.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        place = self._place
        if not self._waiting or place.key is not None or place.due is None:
            return
        if self._time() < place.due:
            self._timer = self._loop.call_at(place.due, self._serve)
            return
        turns = (
            turn
            for turn, (_, entity) in self._waiting.items()
            if entity != place.entity_id
        )
        turn = next(turns, next(iter(self._waiting)))
        place.key, place.entity_id = self._waiting.pop(turn)
        if not turn.done():
            turn.set_result(None)

    def not_sent(self, request: Request) -> AsyncfinError:
        """Return the error for a request that is not sent: the last failure, since the
        first one.
        """
        assert self._row is not None
        error = copy(self._row.error)
        error.operation, error.entity_id = request.operation, request.entity_id
        error.at, error.attempts = self._row.since, 0
        error.__dict__.pop("__notes__", None)
        if isinstance(error, ServiceError):
            error.answered = error.has_error_object = False
        elif isinstance(error, TransportError):
            error.sent = False
        return error

    # --- what has happened

    def send(self, key: Hashable, request: Request) -> Sent:
        """Record that a request is sent."""
        if self._place.key is key:
            self._place.due = None
            self._place.count += 1
        return Sent(request, self._time(), self._row, self._responses)

    def record(self, sent: Sent, error: AsyncfinError | None) -> None:
        """Record how an attempt has ended."""
        responded = has_responded(error)
        if responded:
            self._responses += 1
            if self._row is not None:
                self._close(recovered=True)
        elif responded is False and not sent.is_given_up:
            assert error is not None
            self._fail(sent, error)

    def give_up(self, sent: Sent) -> None:
        """Record that nobody waits for an attempt any more.

        It has failed if no byte has arrived for two seconds, and no other response of
        the service.
        """
        was_silent = sent.is_silent and self._time() - sent.at >= PATIENCE - _EARLY
        if was_silent and sent.responses == self._responses and not sent.is_given_up:
            sent.is_given_up = True
            self._fail(sent, RequestTimeoutError(f"nothing arrived for {PATIENCE:g} s"))

    def _fail(self, sent: Sent, error: AsyncfinError) -> None:
        row, entity_id = self._row, sent.request.entity_id
        if row is None:
            self._row = _Row(error, self._clock(), self._time(), {entity_id})
            return
        row.error = error
        if sent.row is not row:
            return
        row.failures += 1
        if len(row.entities) < 2:
            row.entities.add(entity_id)
        if not self.is_open and row.failures >= _FAILURES and len(row.entities) > 1:
            self.is_open = True
            self._place = _Place(due=self._time() + growing_wait(0))
            self._outage = OutageBegan(
                sent.request.operation,
                entity_id,
                next_serial(),
                failure=type(error).__name__,
                failures=row.failures,
                since=row.since,
            )
            self._announce(self._outage)

    def _close(self, *, recovered: bool) -> None:
        row, self._row = self._row, None
        outage, self._outage = self._outage, None
        if row is None or outage is None:
            return
        self.is_open = False
        place, self._place = self._place, _Place()
        waiting, self._waiting = self._waiting, {}
        self._serve()  # stops the timer
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)
        self._announce(
            OutageEnded(
                outage.operation,
                outage.entity_id,
                outage.serial,
                since=outage.since,
                seconds=self._time() - row.seen_at,
                probes=place.count,
                recovered=recovered,
            )
        )

    def close(self) -> None:
        """End without knowing whether the service responds."""
        self._close(recovered=False)
