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
from collections.abc import Callable
from datetime import datetime

import msgspec

from asyncfin.errors import (
    AsyncfinError,
    RequestTimeoutError,
    ServiceError,
    TransportError,
)
from asyncfin.events import OutageBegan, OutageEnded, next_serial
from asyncfin.wire.observers import Announcer
from asyncfin.wire.protocol import Request
from asyncfin.wire.retry import copy_unsent, growing_wait, is_retryable
from asyncfin.wire.token import Secret

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
    if isinstance(error, ServiceError):
        if not error.answered:
            return None
        if error.has_error_object and 400 <= error.status < 500:
            return True
    if isinstance(error, TransportError) or is_retryable(error):
        return False
    return None


class _Row(msgspec.Struct, eq=False):
    """Failures in a row."""

    error: AsyncfinError  # the last one
    since: datetime  # when the first one was seen
    seen_at: float  # the same as loop time
    entities: set[str | None]
    failures: int = 1


class Sending(msgspec.Struct, eq=False):
    """A request on its way, and its last attempt, as breaker and transport see them."""

    request: Request
    token: Secret | None = None  # what it is sent with
    attempts: int = 0  # how often it was sent
    sent_at: float = 0.0  # loop time
    is_under_way: bool = False
    is_written: bool = False  # whether its headers are
    is_silent: bool = True  # whether no byte has arrived
    is_given_up: bool = False  # counted as a failure, as nobody waits for it
    # What had been seen before it was sent: failures, and the number of responses.
    row: _Row | None = None
    responses: int = 0

    def __repr__(self) -> str:
        # Its fields lead to other requests, whose bodies must not be in its traceback.
        return f"<Sending of {self.request.operation} {self.request.entity_id}>"


class Breaker(msgspec.Struct, eq=False):
    """Decides for the requests of one event loop whether they are sent; announces
    outages.
    """

    announce: Announcer
    clock: Callable[[], datetime]  # returns the wall time
    loop: asyncio.AbstractEventLoop
    outage: OutageBegan | None = None  # None: it is closed
    # When the next request may be sent, or None while one is under way.
    due: float | None = None
    _responses: int = 0
    _row: _Row | None = None
    # Of the requests that wait for the place; the longest waiting one is first.
    _turns: dict[Sending, asyncio.Future[None]] = {}
    _timer: asyncio.TimerHandle | None = None
    _holder: Sending | None = None  # of the place
    _entity_id: str | None = None  # of the last request that had it
    _probes: int = 0

    @property
    def failing_since(self) -> float:
        """The loop time at which the first failure of the row was seen, or now."""
        return self.loop.time() if self._row is None else self._row.seen_at

    def allows(self, sending: Sending) -> bool:
        """Whether a request may be sent: any while closed, else the one with the
        place.
        """
        return self.outage is None or self._holder is sending

    async def wait(self, sending: Sending, until: float) -> bool:
        """Wait until a request may be sent, or return False at a loop time.

        It may have the place if this raises: then the caller calls `leave`.
        """
        while not self.allows(sending):
            self._turns[sending] = turn = self.loop.create_future()
            self._serve()
            try:
                if not turn.done() and self.loop.time() >= until:
                    return False
                async with asyncio.timeout_at(until):
                    await turn
            except TimeoutError:
                pass
            finally:
                self._turns.pop(sending, None)
        return True

    def leave(self, sending: Sending) -> None:
        """Free the place if the request has it; the next wait begins if it was sent."""
        if self._holder is sending:
            self._holder = None
            if self.due is None:
                self.due = self.loop.time() + growing_wait(self._probes)
            self._serve()

    def _serve(self) -> None:
        """Hand the place to a waiting request, if possible of another entity."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._turns or self._holder is not None or self.due is None:
            return
        if self.loop.time() < self.due:
            self._timer = self.loop.call_at(self.due, self._serve)
            return
        self._holder = next(iter(self._turns))
        for sending in self._turns:
            if sending.request.entity_id != self._entity_id:
                self._holder = sending
                break
        self._entity_id = self._holder.request.entity_id
        turn = self._turns.pop(self._holder)
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

    def send(self, sending: Sending) -> None:
        """Record that a request is sent."""
        if self._holder is sending:
            self.due = None
            self._probes += 1
        sending.is_under_way = sending.is_silent = True
        sending.is_given_up = False
        sending.row, sending.responses = self._row, self._responses

    def record(self, sending: Sending, error: AsyncfinError | None) -> None:
        """Record how an attempt has ended."""
        has_response = has_responded(error)
        if has_response:
            self._responses += 1
            if self._row is not None:
                self.close(has_recovered=True)
        elif has_response is False and not sending.is_given_up:
            assert error is not None
            self._fail(sending, error)

    def give_up(self, sending: Sending) -> None:
        """Record that nobody waits for an attempt any more.

        It has failed if no byte has arrived for two seconds, and no other response of
        the service.
        """
        is_late = self.loop.time() - sending.sent_at >= PATIENCE - _EARLY
        has_failed = is_late and sending.is_silent and not sending.is_given_up
        if has_failed and sending.responses == self._responses:
            sending.is_given_up = True
            error = RequestTimeoutError(f"nothing arrived for {PATIENCE:g} s")
            self._fail(sending, error)

    def _fail(self, sending: Sending, error: AsyncfinError) -> None:
        row, request = self._row, sending.request
        if row is None:
            now = self.loop.time()
            self._row = _Row(error, self.clock(), now, {request.entity_id})
            return
        row.error = error
        if sending.row is not row:
            return
        row.failures += 1
        row.entities.add(request.entity_id)
        if self.outage or row.failures < _FAILURES or len(row.entities) < 2:
            return
        self.outage = OutageBegan(
            request.operation,
            request.entity_id,
            next_serial(),
            failure=type(error).__name__,
            failures=row.failures,
            since=row.since,
        )
        self._entity_id, self._probes = None, 0
        self.due = self.loop.time() + growing_wait(0)
        self.announce(self.outage)

    def close(self, *, has_recovered: bool) -> None:
        """End the row of failures, and the outage that it may be."""
        row, self._row = self._row, None
        outage, self.outage = self.outage, None
        if row is None or outage is None:
            return
        self._holder = self.due = None
        self._serve()  # stops the timer
        turns, self._turns = self._turns, {}
        for turn in turns.values():
            if not turn.done() and not self.loop.is_closed():
                turn.set_result(None)
        self.announce(
            OutageEnded(
                outage.operation,
                outage.entity_id,
                outage.serial,
                since=outage.since,
                seconds=self.loop.time() - row.seen_at,
                probes=self._probes,
                recovered=has_recovered,
            )
        )
