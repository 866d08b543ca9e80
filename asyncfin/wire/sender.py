"""Sends a client's requests: breaker( retry( token, bucket, transport )).

Each is a `_Sending`, to be read downwards. `respond` waits for the breaker, and
retries. `_attempt` waits for a token, one of the client's slots and the bucket.
`_exchange` sends the request by the transport, and reports how that has ended.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from asyncfin import checks
from asyncfin.clock import later
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    RateLimitedError,
    RequestTimeoutError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    complete_error,
)
from asyncfin.events import (
    Counts,
    Observer,
    RequestFinished,
    RequestStarted,
    Retrying,
    Stats,
    next_serial,
)
from asyncfin.pacing.bucket import Bucket, Lane, check_lane
from asyncfin.tasks import (
    TIME_IS_UP,
    cancel_and_wait,
    check_closed,
    finish,
    running_loop,
)
from asyncfin.wire.breaker import PATIENCE, Breaker, Sending, has_responded
from asyncfin.wire.observers import Announcer, Wait
from asyncfin.wire.protocol import (
    Request,
    Response,
    error_of,
    retry_after,
)
from asyncfin.wire.retry import Retry, is_retryable
from asyncfin.wire.token import Secret, Tokens, TokenSource
from asyncfin.wire.transport import CLOSED, Transport

T = TypeVar("T")
# Done at the first attempt of a request.
Start: TypeAlias = asyncio.Future[Sending]
# Seconds that a caller of `soon` waits for one of the client's slots, if all are
# in use.
_SLOT_PATIENCE = 0.9
# Seconds after which the token callable is called again while only a rejected token is
# there.
_TOKEN_WAIT = 1.0


class Sender:
    """Sends a client's requests, with retries. Arguments as of `Client`."""

    def __init__(
        self,
        transport: Transport,
        token: TokenSource,
        *,
        bucket: Bucket,
        retry: Retry = Retry(),
        lane: Lane = "interactive",
        observers: Iterable[Observer] = (),
    ) -> None:
        checks.instance_of(Retry)("retry", retry)
        check_lane(lane)
        self.transport = transport
        self.tokens = Tokens(token, timeout=transport.timeouts.total)
        self.bucket = bucket
        self.retry = retry
        self.lane = lane
        self.source = random.Random()  # noqa: S311  it only spreads waits
        self.announce = Announcer(observers, transport.clock, bucket)
        self._shared: _Shared | None = None  # of the last event loop

    def _share(self) -> _Shared:
        """The state that requests of the running event loop share."""
        loop_state, loop = self._shared, running_loop()
        if loop_state is None or loop_state.loop is not loop:
            if loop_state is not None:
                check_closed(loop_state.loop, "client", "client")
                loop_state.breaker.close(has_recovered=False)
            breaker = Breaker(self.announce, self.transport.clock, loop)
            slots = asyncio.Semaphore(self.transport.max_in_flight)
            self._shared = loop_state = _Shared(loop, slots, breaker)
        return loop_state

    async def aclose(self) -> None:
        """Close the connections, and end at once what is being sent or waits. A second
        call does nothing.
        """
        await self.transport.aclose()
        if self._shared is None:
            return
        try:
            # The tasks of a loop that has ended have ended with it.
            if self._shared.loop is asyncio.get_running_loop():
                await cancel_and_wait(list(self._shared.tasks))
        finally:
            # Last: the outage ends when nothing is sent any more.
            self._shared.breaker.close(has_recovered=False)

    def stats(self) -> Stats:
        """Count what the requests have cost so far."""
        by_operation = {
            operation: replace(counts)
            for operation, counts in self.announce.counts.items()
        }
        total = sum(by_operation.values(), Counts())
        loop_state = self._shared
        outage = None if loop_state is None else loop_state.breaker.outage
        return Stats(
            *astuple(total),
            by_operation=by_operation,
            outage_since=None if outage is None else outage.since,
        )

    async def send(
        self,
        request: Request,
        *,
        on_attempt: Callable[[], None] = lambda: None,
        start: Start | None = None,
    ) -> Response:
        """Return the 2xx response to a request.

        Args:
            request: what is sent.
            on_attempt: called at each attempt.
            start: done at the first attempt, if the caller's patience is limited from
                then on (`soon`).

        Raises:
            ServiceError, TransportError, MalformedAnswerError: it is not retryable, or
                retries did not overcome it.
            RuntimeError: the client is closed, also during the wait; or it belongs to
                another event loop, which is not closed.
        """
        scopes = (await self.transport.open()).scopes
        loop_state = self._share()
        sending = _Sending(
            request,
            sender=self,
            loop_state=loop_state,
            on_attempt=on_attempt,
            start=start,
            is_bulk=self.lane == "bulk",
            began_before_outage=loop_state.breaker.outage is None and start is None,
        )
        # A timeout without an end, which closing moves to now.
        scope = asyncio.timeout(None)
        scopes.add(scope)
        try:
            async with scope:
                return await sending.respond()
        except (TimeoutError, TransportError):
            # Closing also breaks the connections, which a request may notice first.
            if not self.transport.is_closed:
                raise
        finally:
            scopes.discard(scope)
            sending.error = None  # its frames contain `sending`
        raise RuntimeError(CLOSED)

    async def soon(self, call: Callable[[Start], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a call that sends one request, if it has one within two
        seconds of its sending, retries included.

        Otherwise raise RequestTimeoutError. The request may go on in a task of the
        client, with the full `Timeouts`: so a slow service's response still reaches the
        call.

        Args:
            call: accepts the `start` of `send`.
        """
        loop_state = self._share()
        start: Start = loop_state.loop.create_future()
        task = loop_state.run(call(start))
        reason = None  # the caller has left
        try:
            await asyncio.sleep(0)  # for the task to take a slot
            # While all slots are in use, another request may wait for a silent service.
            is_queued = loop_state.slots.locked() and not start.done()
            patience = _SLOT_PATIENCE if is_queued else None
            either: list[asyncio.Future[Any]] = [task, start]
            await asyncio.wait(either, timeout=patience, return_when="FIRST_COMPLETED")
            if start.done():
                await asyncio.wait([task], timeout=PATIENCE)
            reason = TIME_IS_UP
        finally:
            goes_on = False
            try:
                if reason and start.done():
                    goes_on = self._leave(task, start.result())
            finally:  # an observer may raise
                if not goes_on:
                    await cancel_and_wait([task], reason)
        if task.done() and not task.cancelled():
            return task.result()
        raise RequestTimeoutError(
            f"no response from {self.transport.base_url} within {PATIENCE:g} s",
            at=self.transport.clock(),
        )

    def _leave(self, task: asyncio.Task[Any], sending: Sending) -> bool:
        """Let a task go on without its caller, or return False if it must end."""
        loop_state = self._share()
        if task.done() or not sending.is_under_way:
            return False
        loop_state.breaker.give_up(sending)
        # At most half of the slots, so that the others wait for no silent service.
        if len(loop_state.detached_tasks) >= self.transport.max_in_flight // 2:
            return False
        loop_state.detached_tasks.add(task)
        task.add_done_callback(loop_state.detached_tasks.discard)
        return True


class _Shared(msgspec.Struct, eq=False):
    """What the requests of one event loop share."""

    loop: asyncio.AbstractEventLoop
    slots: asyncio.Semaphore
    breaker: Breaker
    tasks: set[asyncio.Task[Any]] = set()  # the client's, which closing ends
    # Those of `soon` that go on without their caller.
    detached_tasks: set[asyncio.Task[Any]] = set()

    def run(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a call in a task that is the client's: closing it ends the task."""
        task = self.loop.create_task(call)
        self.tasks.add(task)
        task.add_done_callback(self._remove)
        return task

    def _remove(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # else it is logged


class _Sending(Sending, kw_only=True, eq=False):
    """A request on its way. It is the `Origin` of its errors, hence `at` and
    `request_id`.
    """

    sender: Sender
    loop_state: _Shared
    on_attempt: Callable[[], None]
    start: Start | None
    is_bulk: bool  # whether that is the sender's lane
    # Whether it waits for the place before its first attempt too.
    began_before_outage: bool
    request_id: None = None  # a failed request has only the id that its error contains
    # The attempts that count for `Retry.attempts`: neither those while the breaker was
    # open, nor those that were made again with another token after a 401.
    attempt_count: int = 0
    has_renewed: bool = False
    duration: float = 0.0  # what `Retry.max_elapsed` bounds, in seconds
    # Seconds between the last attempt and the next, or None if its Retry-After is too
    # long.
    retry_wait: float | None = None
    error: AsyncfinError | None = None  # what the last attempt ended in
    # Of the events of the attempt, if its start was announced.
    identity: tuple[str, str | None, int, int] | None = None

    @property
    def at(self) -> datetime:
        """The time now, for an error without a time."""
        return self.sender.transport.clock()

    async def respond(self) -> Response:
        """Return the 2xx response, of the first attempt that has one."""
        breaker = self.loop_state.breaker
        while True:
            if breaker.outage is not None:
                await self._wait_for_place()
            try:
                if breaker.outage is None:
                    response = await self._attempt()
                else:
                    # It belongs to the client, and goes on if the caller leaves.
                    task = self.loop_state.run(self._attempt())
                    await asyncio.wait([task])
                    response = task.result()
            except AsyncfinError as failure:
                request = self.request
                complete_error(failure, request.operation, request.entity_id, self)
                if isinstance(
                    failure, (AllowanceExhaustedError, BucketUnavailableError)
                ):
                    # The cause is what the last attempt failed with.
                    raise failure from self.error
                error = failure
            else:
                if response is None:  # the breaker has opened before it was sent
                    continue
                return response
            # Out here, so that it is raised without a context.
            await self._prepare_retry(error)

    async def _wait_for_place(self) -> None:
        """Wait until the request may be sent while the breaker is open, or raise the
        error for that.
        """
        sender, breaker = self.sender, self.loop_state.breaker
        began_at = self.loop_state.loop.time()
        until = began_at
        if self.is_bulk:
            until = breaker.failing_since + sender.retry.max_outage
        elif self.began_before_outage:
            until += sender.retry.max_elapsed - self.duration
        try:
            with Wait(self.request, sender.announce, "outage", lambda: breaker.due):
                has_place = await breaker.wait(self, until)
        except BaseException:  # a cancellation, or an observer has raised
            breaker.leave(self)
            raise
        if not self.is_bulk:
            self.duration += self.loop_state.loop.time() - began_at
        if has_place:
            return
        if self.error is not None and not self.is_bulk:
            raise self.error
        raise breaker.not_sent(self.request) from self.error

    async def _attempt(self) -> Response | None:
        """Send the request once, and return its 2xx response or raise an error.

        None if it was not sent, because the breaker has opened, or the token was
        rejected meanwhile.
        """
        sender, request, breaker = self.sender, self.request, self.loop_state.breaker
        try:
            with Wait(request, sender.announce) as wait:
                # Before the slots: however few there are, all waiting requests share a
                # call for the token.
                token = sender.tokens.held
                if token is None or token.rejection is not None:
                    await self._wait_for_token(wait)
                wait.reason = "connection"
                async with self.loop_state.slots:
                    if not breaker.allows(self):
                        return None
                    # The grant is last, so that a granted request is sent at once: the
                    # pace is that of the requests, not only of the grants.
                    wait.reason = "bucket"
                    self.sent_at = await sender.bucket.acquire(
                        lane=sender.lane, counts=request.counts
                    )
                    token = sender.tokens.held
                    assert token is not None
                    # It can have been rejected meanwhile.
                    if (
                        breaker.allows(self)
                        and not sender.transport.is_closed
                        and token.claim(self.loop_state.loop.time())
                    ):
                        return await self._exchange(token, wait)
                    await self._give_back()
            if sender.transport.is_closed:
                raise RuntimeError(CLOSED)
            return None
        finally:
            breaker.leave(self)

    async def _wait_for_token(self, wait: Wait) -> None:
        """Wait until there is a token that may be sent, or raise the error of one that
        was rejected.
        """
        tokens = self.sender.tokens
        wait.reason = "token"
        waits = tokens.is_renewable and self.is_bulk
        while True:
            token = await tokens.current()
            if (error := token.not_sent(self.loop_state.loop.time())) is None:
                return
            if not waits or self.duration >= self.sender.retry.max_elapsed:
                raise (
                    self.error if isinstance(self.error, AuthenticationError) else error
                )
            await asyncio.sleep(_TOKEN_WAIT)
            self.duration += _TOKEN_WAIT

    async def _give_back(self) -> None:
        # A grant that does not count stays used: giving it back would take one off the
        # day's spending.
        if self.request.counts:
            await finish(self.sender.bucket.give_back())

    async def _exchange(self, token: Secret, wait: Wait) -> Response:
        """Send the request with a token, and return its 2xx response or raise an
        error.
        """
        sender, request = self.sender, self.request
        response: Response | None = None
        failure: AsyncfinError | None = None
        error: BaseException | None = None
        self.token, self.is_written = token, False
        # What raises before this attempt begins does not end the last one again.
        self.identity = None
        try:
            wait.end()
            self.on_attempt()
            self._begin()
            outcome = await sender.transport.send(self)
            if isinstance(outcome, Response):
                # Redacted before it is used: errors, events and data contain no echoed
                # token.
                outcome = response = sender.tokens.redact(outcome)
                failure = error_of(request, response)
                token.record(failure, self.sent_at, self.loop_state.loop.time())
            else:
                failure = outcome  # whose traceback begins here
            error = failure
        except BaseException as cause:
            error = cause  # what has started must be seen to end
            if not self.is_under_way:  # an observer has raised
                await self._give_back()
            elif not self.is_written and request.counts:  # it was still connecting
                with suppress(BucketUnavailableError):  # the cause goes on
                    await finish(sender.bucket.unspend(sent_at=self.sent_at))
            raise
        finally:
            self._end(response, error)
        if failure is not None:
            self.error = failure
            await self._report_failure(failure, response)
            raise failure
        assert response is not None
        return response

    def _begin(self) -> None:
        """Announce and count an attempt, which is sent now."""
        sender, request = self.sender, self.request
        # Whoever observes its start, observes its end.
        if sender.announce.is_heard():
            attempt = self.attempts + 1
            identity = request.operation, request.entity_id, next_serial(), attempt
            self.identity = identity
            url = f"{sender.transport.base_url}{request.target}"
            sender.announce(RequestStarted(*identity, request.method, url))
        counts = sender.announce.counts[request.operation]
        counts.requests += 1
        counts.retries += self.attempts > 0
        self.attempts += 1
        self.attempt_count += self.loop_state.breaker.outage is None
        self.loop_state.breaker.send(self)
        if self.start is not None and not self.start.done():
            self.start.set_result(self)

    def _end(self, response: Response | None, error: BaseException | None) -> None:
        """Record how an attempt has ended, and announce it if its start was."""
        announce = self.sender.announce
        seconds = self.loop_state.loop.time() - self.sent_at
        if self.is_under_way:
            self.is_under_way = False
            self.duration += seconds
            if isinstance(error, AsyncfinError) or error is None:
                self.loop_state.breaker.record(self, error)
            elif isinstance(error, asyncio.CancelledError):
                self.loop_state.breaker.give_up(self)
        status, byte_count, failure = None, 0, None
        if response is not None:
            status, byte_count = response.status, len(response.body)
            counts = announce.counts[self.request.operation]
            counts.refused += status == 429
            counts.received += byte_count
        if response is None or isinstance(error, TruncatedAnswerError):
            status = None
            failure = type(error).__name__
            if isinstance(error, asyncio.CancelledError) and TIME_IS_UP in error.args:
                failure = RequestTimeoutError.__name__
        if self.identity is not None:
            request_id = error.request_id if isinstance(error, ServiceError) else None
            event = RequestFinished(
                *self.identity, status, byte_count, seconds, request_id, failure
            )
            announce(event)

    async def _prepare_retry(self, error: AsyncfinError) -> None:
        """Wait until the request may be sent again after a failed attempt, or raise its
        error.
        """
        sender, retry, breaker = self.sender, self.sender.retry, self.loop_state.breaker

        # 1. The token was rejected (401): retry at once with another one, which does
        #    not count for `Retry.attempts`. It happens once, or where requests wait,
        #    within `max_elapsed`. Without `answered` nothing was sent.
        is_rejected = isinstance(error, AuthenticationError) and error.answered
        if is_rejected and sender.tokens.is_renewable:
            waits = self.is_bulk and self.duration < retry.max_elapsed
            if waits or not self.has_renewed:
                self.has_renewed = True
                self.attempt_count -= 1
                self._announce_retry(error, 0.0)
                return

        # 2. While the breaker is open, its waits replace those of `Retry`.
        attempt, wait = self.attempt_count, self.retry_wait
        if breaker.outage is not None and has_responded(error) is False:
            has_retries = self.began_before_outage and attempt < retry.attempts
            if (self.is_bulk or has_retries) and is_retryable(error):
                return
            raise error

        # 3. It is not retryable, or `Retry` does not allow another attempt.
        seconds = self.duration
        if wait is None or retry.gives_up(
            error, attempt=attempt, elapsed=seconds, wait=wait
        ):
            raise error

        # 4. Otherwise it is sent again after a wait. After a 429 that is the pause of
        # the bucket.
        self._announce_retry(error, wait)
        if isinstance(error, RateLimitedError):
            return
        ends_at = self.loop_state.loop.time() + wait
        with Wait(self.request, sender.announce, "retry", lambda: ends_at):
            await asyncio.sleep(wait)
        self.duration += wait

    async def _report_failure(
        self, error: AsyncfinError, response: Response | None
    ) -> None:
        """Report a failed attempt to the bucket: it concerns all its clients, retried
        or not.

        To its end, also if the caller leaves meanwhile.
        """
        bucket, retry = self.sender.bucket, self.sender.retry
        # The service's Retry-After goes before the growing wait.
        stated_wait = None if response is None else retry_after(response)
        wait = retry.wait(self.attempt_count, stated_wait, self.sender.source)
        self.retry_wait = wait
        counts = self.request.counts
        try:
            if isinstance(error, RateLimitedError):
                if wait is None:
                    assert stated_wait is not None  # only a Retry-After can be too long
                    # Usage and limits show nothing of the others' allowance (spec 8).
                    if counts:
                        await finish(bucket.exhaust(stated_wait))
                    self.error = None  # no cause: the new error has all its facts
                    raise AllowanceExhaustedError(
                        resume_at=later(error.at or self.at, stated_wait),
                        retry_after=stated_wait,
                        **error.facts(),
                    )
                # The bucket pauses all requests until it is over.
                await finish(bucket.refused(sent_at=self.sent_at, retry_after=wait))
            elif isinstance(error, TransportError) and not error.sent and counts:
                # It did not reach the service, so it does not count against the day's
                # allowance.
                await finish(bucket.unspend(sent_at=self.sent_at))
        except BucketUnavailableError as unavailable:
            raise unavailable from error

    def _announce_retry(self, error: AsyncfinError, wait: float) -> None:
        self.sender.announce(
            Retrying(
                self.request.operation,
                self.request.entity_id,
                self.attempts,
                failure=type(error).__name__,
                wait=wait,
                request_id=error.request_id,
            )
        )
