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
from datetime import datetime
from math import inf

import msgspec

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
from asyncfin.wire.retry import LASTING_STATUSES, copy_unsent, growing_wait

_FAILURES = 8
# Seconds after which a request that is given up without a byte counts as a failure.
PATIENCE = 2.0
_EARLY = 0.001  # a timer may fire so much earlier


def has_responded(error: AsyncfinError | None) -> bool | None:
    """Whether an attempt that ended so shows that the service responds, or that it
    fails.

    None if it shows neither. An attempt without an error has a response in JSON.
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


class _Row(msgspec.Struct, eq=False):
    """Failures in a row, and the single place of a request once the breaker is open."""

    error: AsyncfinError  # the last one
    since: datetime  # when the first one was seen
    seen_at: float  # the same as loop time
    entities: set[str | None]
    failures: int = 1
    began: OutageBegan | None = None  # None: the breaker is closed
    due: float | None = None  # loop time of the next request; None while one is sent
    holder: Hashable = None  # of the place
    entity_id: str | None = None  # of the last request that had it
    probes: int = 0


class Sent(msgspec.Struct, eq=False):
    """An attempt on its way, as the breaker sees it."""

    request: Request
    sent_at: float  # loop time
    row: _Row | None  # the failures that had been seen before it was sent
    responses: int  # how many responses of the service had arrived by then
    is_silent: bool = True  # whether no byte has arrived
    is_given_up: bool = False
    has_ended: bool = False


class Breaker:
    """Decides for the requests of one event loop whether they are sent; announces
    outages.
    """

    def __init__(self, announce: Announcer, clock: Callable[[], datetime]) -> None:
        self._announce = announce
        self._clock = clock  # returns the wall time
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._responses = 0
        self._row: _Row | None = None
        # By the request that waits for the place; the longest waiting one is first.
        self._turns: dict[Hashable, tuple[asyncio.Future[None], str | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether the service fails as a whole."""
        return self._row is not None and self._row.began is not None

    @property
    def open_since(self) -> datetime | None:
        """When the first failure of the outage was seen, or None without an outage."""
        return self._row.since if self._row and self.is_open else None

    @property
    def failing_since(self) -> float:
        """The loop time at which the first failure of the row was seen, or now."""
        return self._time() if self._row is None else self._row.seen_at

    @property
    def due(self) -> float | None:
        """When the next request may be sent, or None while one is under way."""
        return None if self._row is None else self._row.due

    def allows(self, holder: Hashable) -> bool:
        """Whether a request may be sent: any while closed, else the one with the
        place.
        """
        row = self._row
        return row is None or row.began is None or row.holder is holder

    async def wait(self, holder: Hashable, request: Request, until: float) -> bool:
        """Wait until a request may be sent, or return False at a loop time.

        It may have the place if this raises: then the caller calls `leave`.
        """
        while not self.allows(holder):
            turn = self._loop.create_future()
            self._turns[holder] = turn, request.entity_id
            self._serve()
            try:
                if not turn.done() and self._time() >= until:
                    return False
                async with asyncio.timeout_at(None if until == inf else until):
                    await turn
            except TimeoutError:
                pass
            finally:
                self._turns.pop(holder, None)
        return True

    def leave(self, holder: Hashable) -> None:
        """Free the place if the request has it; the next wait begins if it was sent."""
        row = self._row
        if row is not None and row.holder is holder:
            row.holder = None
            if row.due is None:
                row.due = self._time() + growing_wait(row.probes)
            self._serve()

    def _serve(self) -> None:
        """Hand the place to a waiting request, if possible of another entity."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        row = self._row
        if row is None or row.holder is not None or row.due is None:
            return
        if self._turns and self._time() < row.due:
            self._timer = self._loop.call_at(row.due, self._serve)
        elif self._turns:
            holder = next(iter(self._turns))
            for candidate, (_, entity_id) in self._turns.items():
                if entity_id != row.entity_id:
                    holder = candidate
                    break
            turn, row.entity_id = self._turns.pop(holder)
            row.holder = holder
            if not turn.done():
                turn.set_result(None)

    def not_sent(self, request: Request) -> AsyncfinError:
        """Return the error for a request that is not sent: the last failure, since the
        first one.
        """
        assert self._row is not None
        error = copy_unsent(self._row.error)
        error.operation, error.entity_id = request.operation, request.entity_id
        error.at = self._row.since
        return error

    def send(self, holder: Hashable, request: Request) -> Sent:
        """Record that a request is sent."""
        row = self._row
        if row is not None and row.holder is holder:
            row.due = None
            row.probes += 1
        return Sent(request, self._time(), row, self._responses)

    def record(self, attempt: Sent, error: AsyncfinError | None) -> None:
        """Record how an attempt has ended."""
        has_response = has_responded(error)
        if has_response:
            self._responses += 1
            if self._row is not None:
                self.close(has_recovered=True)
        elif has_response is False and not attempt.is_given_up:
            assert error is not None
            self._fail(attempt, error)

    def give_up(self, attempt: Sent) -> None:
        """Record that nobody waits for an attempt any more.

        It has failed if no byte has arrived for two seconds, and no other response of
        the service.
        """
        was_silent = (
            attempt.is_silent and self._time() - attempt.sent_at >= PATIENCE - _EARLY
        )
        if (
            was_silent
            and attempt.responses == self._responses
            and not attempt.is_given_up
        ):
            attempt.is_given_up = True
            self._fail(
                attempt, RequestTimeoutError(f"nothing arrived for {PATIENCE:g} s")
            )

    def _fail(self, attempt: Sent, error: AsyncfinError) -> None:
        row, entity_id = self._row, attempt.request.entity_id
        if row is None:
            self._row = _Row(error, self._clock(), self._time(), {entity_id})
            return
        row.error = error
        if attempt.row is not row:
            return
        row.failures += 1
        row.entities.add(entity_id)
        if self.is_open or row.failures < _FAILURES or len(row.entities) < 2:
            return
        row.began = OutageBegan(
            attempt.request.operation,
            entity_id,
            next_serial(),
            failure=type(error).__name__,
            failures=row.failures,
            since=row.since,
        )
        row.due = self._time() + growing_wait(0)
        self._announce(row.began)

    def close(self, *, has_recovered: bool) -> None:
        """End the row of failures, and the outage that it may be."""
        row, self._row = self._row, None
        if row is None or row.began is None:
            return
        turns, self._turns = self._turns, {}
        self._serve()  # stops the timer
        for turn, _ in turns.values():
            if not turn.done():
                turn.set_result(None)
        began = row.began
        self._announce(
            OutageEnded(
                began.operation,
                began.entity_id,
                began.serial,
                since=began.since,
                seconds=self._time() - row.seen_at,
                probes=row.probes,
                recovered=has_recovered,
            )
        )
