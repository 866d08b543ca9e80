"""Where requests wait while the service fails, as `Outage` decides."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable
from contextlib import suppress
from contextvars import ContextVar
from copy import copy
from math import inf

from asyncfin.errors import AsyncfinError, ServiceError, TransportError
from asyncfin.events import OutageBegan, OutageEnded, next_serial
from asyncfin.wire.observers import Announcer
from asyncfin.wire.outage import Outage, is_failure
from asyncfin.wire.protocol import Request

# The question that the requests of this context are a part of; None: they are single requests.
asking: ContextVar[object | None] = ContextVar("asyncfin_asking", default=None)


class Gate:
    """Lets the requests of one event loop pass, or makes them wait; announces outages.

    Requests without an entity pass in any case, and show nothing.
    """

    def __init__(self, announce: Announcer, source: random.Random) -> None:
        self._announce = announce
        self._outage = Outage(source)
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._released: dict[Hashable, asyncio.Future[None]] = {}  # of the requests that wait
        self._timer: asyncio.TimerHandle | None = None
        self._began: OutageBegan | None = None
        self._probed_for: dict[Hashable, object] = {}  # the question of each probe that is part of one
        self._following: list[asyncio.Future[None]] = []  # of requests that wait for their question's probe

    @property
    def is_closed(self) -> bool:
        """Whether there is an outage: only probes are sent."""
        return self._outage.is_on

    @property
    def began_at(self) -> float:
        """The loop time of the first failure in a row."""
        return self._outage.first_at

    @property
    def next_probe_at(self) -> float | None:
        """The loop time at which the next probe is due; None: not known."""
        return self._outage.due

    def may_send(self, request: Request, key: Hashable) -> bool:
        """Return whether a request may be sent now; during an outage it is a probe from now on."""
        if request.entity_id is None or not self._outage.is_on:
            return True
        may_send = self._outage.may_send(key, request.entity_id, self._time())
        if self._outage.is_probe(key) and (question := asking.get()) is not None:
            self._probed_for[key] = question
        return may_send

    async def own_probe(self) -> bool:
        """Wait until a probe of this context's question has ended; return whether there was one.

        If a request of the question failed before, the question would cancel its probe: and so would every
        next question, and none would find out that the service responds again.
        """
        question = asking.get()
        if question is None or all(each is not question for each in self._probed_for.values()):
            return False
        ended = self._loop.create_future()
        self._following.append(ended)
        try:
            await ended
        finally:
            self._following.remove(ended)
        return True

    def _end_probe(self, key: Hashable) -> None:
        if self._probed_for.pop(key, None) is not None:
            for each in self._following:
                if not each.done():
                    each.set_result(None)

    def is_probe(self, key: Hashable) -> bool:
        """Return whether a request is a probe."""
        return self._outage.is_probe(key)

    async def wait(self, request: Request, key: Hashable, until: float) -> None:
        """Wait until a request may be sent, at most until a loop time."""
        assert request.entity_id is not None
        released = self._released[key] = self._loop.create_future()
        self._outage.wait(key, request.entity_id)
        self._serve()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(None if until == inf else until):
                    await released
        except BaseException:
            self.withdraw(key)  # it may have become the probe in this turn of the loop
            raise
        finally:
            self._outage.leave(key)
            del self._released[key]
            self._serve()

    def record(
        self, request: Request, key: Hashable, error: AsyncfinError | None, retry_after: float | None = None
    ) -> bool:
        """Record how an attempt has ended; return whether an outage begins or ends with it."""
        outage = self._outage
        self._end_probe(key)
        if request.entity_id is None or (error is None and not outage.failures):
            return False
        failed = is_failure(error)
        if failed is None:
            outage.record_neither(key, self._time())
        elif failed:
            assert error is not None
            if outage.record_failure(key, request.entity_id, error, retry_after, self._time()):
                self._announce_outage(request)
                return True
        elif outage.failures:
            has_ended = self._announce_end(recovered=True)
            for each in outage.record_success():
                self._release(each)
            return has_ended
        self._serve()
        return False

    def withdraw(self, key: Hashable) -> None:
        """Record that a request was not sent, or that its end is not known; no probe: do nothing."""
        self._end_probe(key)
        if self._outage.is_probe(key):
            self._outage.withdraw(key, self._time())
            self._serve()

    def not_sent(self, request: Request) -> AsyncfinError:
        """Return the error for a request that is not sent: the last failure, as of the first one in a row."""
        assert self._outage.last is not None
        error = copy(self._outage.last)
        error.operation, error.entity_id = request.operation, request.entity_id
        error.at, error.attempts = self._outage.since, 0
        error.__dict__.pop("__notes__", None)
        if isinstance(error, ServiceError):
            error.answered = error.has_error_object = False
        elif isinstance(error, TransportError):
            error.sent = False
        return error

    def close(self) -> None:
        """End an outage without knowing whether the service responds."""
        if self._timer is not None:
            self._timer.cancel()
        self._announce_end(recovered=False)

    def _announce_outage(self, request: Request) -> None:
        outage = self._outage
        assert outage.last is not None
        assert outage.since is not None
        self._began = OutageBegan(
            request.operation,
            request.entity_id,
            next_serial(),
            failure=type(outage.last).__name__,
            failures=outage.failures,
            since=outage.since,
        )
        self._announce(self._began)

    def _announce_end(self, *, recovered: bool) -> bool:
        """Announce the end of an outage, if there is one; return whether there is."""
        if (began := self._began) is None:
            return False
        self._began = None
        seconds, probes = self._time() - self._outage.first_at, self._outage.probes
        self._announce(
            OutageEnded(
                began.operation, began.entity_id, began.serial, began.since, seconds, probes, recovered
            )
        )
        return True

    def _release(self, key: Hashable) -> None:
        if not (released := self._released[key]).done():
            released.set_result(None)

    def _serve(self) -> None:
        """Let the next probe pass if it is due, else when it will be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (key := self._outage.next_probe(self._time())) is not None:
            self._release(key)
        elif self._released and (due := self._outage.due) is not None:
            self._timer = self._loop.call_at(due, self._serve)
