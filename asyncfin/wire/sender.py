"""Sends a client's requests. Read it from `Sender.send` downwards: retries, an attempt,
an exchange.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from asyncfin import checks
from asyncfin.clock import later
from asyncfin.errors import (
    AllowanceExhaustedError,
    AuthenticationError,
    BucketUnavailableError,
    MalformedAnswerError,
    RateLimitedError,
    RequestTimeoutError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    error_context,
    printable,
    shorten,
)
from asyncfin.events import (
    Observer,
    RequestFinished,
    RequestStarted,
    Retrying,
    Stats,
    next_serial,
)
from asyncfin.model.query import Lane, check_lane
from asyncfin.pacing.bucket import Bucket
from asyncfin.tasks import PerLoop, cancel_and_wait, finish
from asyncfin.wire.breaker import PATIENCE, Breaker, Sent, has_responded
from asyncfin.wire.codec import not_json
from asyncfin.wire.connection import HeaderValue
from asyncfin.wire.observers import Announcer, Tally, Wait, Waits, WarningLog, log
from asyncfin.wire.protocol import (
    Request,
    Response,
    ends_within_json,
    excessive_wait,
    failure,
    retry_after,
)
from asyncfin.wire.retry import Retry, is_retryable
from asyncfin.wire.token import Secret, Tokens, TokenSource
from asyncfin.wire.transport import CLOSED, Transport

_log = logging.getLogger("asyncfin")
T = TypeVar("T")
# What an attempt can end in; the last one if the response is not JSON, or cannot be
# read at all.
RequestError: TypeAlias = ServiceError | TransportError | MalformedAnswerError
_REQUEST_ERRORS = (ServiceError, TransportError, MalformedAnswerError)
# Seconds that a caller with `Patience` waits for one of the client's slots, if all are
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
        source: random.Random | None = None,
    ) -> None:
        checks.instance_of(Retry)("retry", retry)
        check_lane(lane)
        self.transport = transport
        self.tokens = Tokens(token, timeout=transport.timeouts.total)
        self.bucket = bucket
        self.retry = retry
        self.lane = lane
        self.source = source or random.Random()  # noqa: S311  it only spreads waits
        self._shared = PerLoop(self._share)
        self._last: _Shared | None = None  # of the last event loop
        self.tally = Tally()
        self.warnings = WarningLog()
        self.announce = Announcer(self.tally, log, self.warnings, observers=observers)
        self.wait = Waits(self.announce, self.tally, transport.clock, bucket).of

    def _share(self) -> _Shared:
        if self._last is not None:
            self._last.breaker.close()  # of a loop that has ended
        self._last = _Shared(
            self.transport.max_in_flight, Breaker(self.announce, self.transport.clock)
        )
        return self._last

    async def aclose(self) -> None:
        """Close the connections, and end at once what is being sent or waits. A second
        call does nothing.
        """
        await self.transport.aclose()
        if self._last is not None:
            loop = asyncio.get_running_loop()
            try:
                # Those of a loop that has ended have ended with it.
                await cancel_and_wait(
                    [task for task in self._last.tasks if task.get_loop() is loop]
                )
            finally:
                # Last: the outage ends when nothing is sent any more.
                self._last.breaker.close()

    def stats(self) -> Stats:
        """Return what the requests have cost so far."""
        return self.tally.stats()

    async def send(
        self,
        request: Request,
        *,
        on_attempt: Callable[[], None] = lambda: None,
        max_outage: float | None = None,
        patience: Patience | None = None,
    ) -> Response:
        """Return the 2xx response to a request.

        Args:
            request: what is sent.
            on_attempt: called at each attempt.
            max_outage: for how many seconds it waits while the service fails. None: in
                the bulk lane as `Retry` says; in the interactive lane only to repeat
                what was begun before.
            patience: of the caller, if it is limited (`soon`).

        Raises:
            ServiceError, TransportError, MalformedAnswerError: it is not retryable, or
                retries did not overcome it.
            RuntimeError: the client is closed, also during the wait; or it belongs to
                another event loop, which is not closed.
        """
        async with (
            self.transport.until_closed()
        ):  # closing ends the block, and the last line raises
            if max_outage is None and self.lane == "bulk":
                max_outage = self.retry.max_outage
            sending = _Sending(self, self._shared.get(), request, max_outage, patience)
            sending.on_attempt = on_attempt
            try:
                return await sending.response()
            finally:
                sending.error = None  # its frames contain `sending`
        # Only closing ends the block without a return or an error.
        raise RuntimeError(CLOSED)

    async def soon(self, call: Callable[[Patience], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a call that sends one request, if it has one within two
        seconds of that.

        Otherwise raise RequestTimeoutError. The request may go on in a task of the
        client, with the full `Timeouts`: so a slow service's response still reaches the
        call.
        """
        shared = self._shared.get()
        patience = Patience()
        if shared.in_flight >= self.transport.max_in_flight:
            patience.begin(_SLOT_PATIENCE)  # until another request has its response
        task = shared.run(call(patience))
        try:
            await patience.wait(task)
            if task.done():
                return task.result()
            patience.has_left = True
            if (sent := patience.sent) is not None and not sent.has_ended:
                shared.breaker.give_up(sent)
                # At most half of the slots, so that the others wait for no silent
                # service.
                if len(shared.left) < self.transport.max_in_flight // 2:
                    shared.left.add(task)
                    task.add_done_callback(shared.left.discard)
            raise RequestTimeoutError(
                f"no response from {self.transport.base_url} within {PATIENCE:g} s",
                at=self.transport.clock(),
            )
        finally:
            if task not in shared.left:
                await cancel_and_wait([task])


class _Shared:
    """What the requests of one event loop share."""

    def __init__(self, max_in_flight: int, breaker: Breaker) -> None:
        self.slots = asyncio.Semaphore(max_in_flight)
        self.in_flight = 0  # how many slots are of attempts that were sent
        self.breaker = breaker
        self.tasks: set[asyncio.Task[Any]] = set()  # that go on without their caller
        self.left: set[asyncio.Task[Any]] = set()  # those of them that one has left

    def run(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a call in a task that is the client's: closing it ends the task."""
        task = asyncio.get_running_loop().create_task(call)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        task.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # else it is logged
        return task


class Patience:
    """The patience of a caller: two seconds from the sending of its request, retries
    included.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_over: asyncio.Future[None] = self._loop.create_future()
        self.has_left = False
        self.sent: Sent | None = None  # the last attempt

    def begin(self, seconds: float) -> None:
        """Let it be over after so many seconds."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if not self._is_over.done():
            self._is_over.set_result(None)

    async def wait(self, task: asyncio.Task[Any]) -> None:
        """Wait until a task has ended, or the patience has."""
        task.add_done_callback(lambda _: self._expire())
        try:
            await self._is_over
        finally:
            if self._timer is not None:
                self._timer.cancel()


class _Sending:
    """One request on its way. It is the `Origin` of its errors, hence `at` and
    `request_id`.
    """

    on_attempt: Callable[[], None]
    request_id = None  # a failed request has only the id that its error contains

    def __init__(
        self,
        sender: Sender,
        shared: _Shared,
        request: Request,
        limit: float | None,
        patience: Patience | None,
    ) -> None:
        self._sender = sender
        self._shared = shared
        self._breaker = shared.breaker
        self._request = request
        # for how many seconds of an outage it waits; None: as `_wait_for_place`
        self._limit = limit
        self._patience = patience
        self._time = asyncio.get_running_loop().time
        # Whether it waits for the place before its first attempt too.
        self._began_closed = not shared.breaker.is_open and patience is None
        self.attempts = 0  # how often it was sent
        self._probes = 0  # how many of these were sent while the breaker was open
        self._renewed = 0  # how often it was sent again with another token after a 401
        self._elapsed = 0.0  # what `Retry.max_elapsed` bounds, in seconds
        self._sent_at = 0.0  # the loop time of the last attempt's grant
        self._retry_after: float | None = (
            None  # seconds that the last response asked to wait
        )
        # Seconds between the last attempt and the next; None: its Retry-After is too
        # long.
        self._retry_wait: float | None = None
        # The first fields of all events of an attempt; None: nobody observes it.
        self._identity: tuple[str, str | None, int, int] | None = None
        self.error: RequestError | None = None  # what the last attempt ended in

    @property
    def at(self) -> datetime:
        """The time now, for an error without a time."""
        return self._sender.transport.clock()

    @property
    def _counted_attempts(self) -> int:
        """How many attempts count for `Retry.attempts`."""
        return self.attempts - self._renewed - self._probes

    async def response(self) -> Response:
        """Return the 2xx response, of the first attempt that has one."""
        breaker = self._breaker
        while True:
            if breaker.is_open:
                await self._wait_for_place()
            try:
                if breaker.is_open:
                    response = await self._probe()
                else:
                    response = await self._attempt()
            except (AllowanceExhaustedError, BucketUnavailableError) as rejection:
                # Raised by the bucket: a 429 of the service is still a plain
                # RateLimitedError here. The cause is what the last attempt failed with.
                raise rejection from self.error
            except _REQUEST_ERRORS as failed:
                error = failed
            else:
                if response is None:  # the breaker has opened before it was sent
                    continue
                return response.completed(self.attempts)
            # Out here, so that it is raised without a context.
            await self._prepare_retry(error)

    async def _wait_for_place(self) -> None:
        """Wait until the request may be sent while the breaker is open, or raise the
        error for that.
        """
        breaker, request, began_at = self._breaker, self._request, self._time()
        waits = self._limit is not None
        if self._limit is not None:
            until = breaker.failing_since + self._limit
        elif self._began_closed:
            until = began_at + self._sender.retry.max_elapsed - self._elapsed
        else:
            until = began_at
        try:
            with self._sender.wait(request) as wait:
                wait.reason, wait.ends_at = "outage", lambda: breaker.due
                has_place = await breaker.wait(self, request, until)
        except BaseException:  # a cancellation, or an observer has raised
            breaker.leave(self)
            raise
        if not waits:
            self._elapsed += self._time() - began_at
        if has_place:
            return
        if self.error is not None and not waits:
            raise self.error
        raise breaker.not_sent(request) from self.error

    async def _probe(self) -> Response | None:
        """Make an attempt that belongs to the client: it goes on if the caller
        leaves.
        """
        task = self._shared.run(self._attempt())
        await asyncio.wait([task])
        return task.result()

    async def _attempt(self) -> Response | None:
        """Send the request once, and return its 2xx response or raise an error.

        None: it was not sent, because the breaker has opened, or the token was rejected
        meanwhile.
        """
        try:
            with (
                error_context(self._request.operation, self._request.entity_id, self),
                self._sender.wait(self._request) as wait,
            ):
                # Before the slots: however few there are, all waiting requests share a
                # call for the token. Which one is sent is decided last, since it can be
                # rejected meanwhile.
                await self._have_token(wait)
                wait.reason = "connection"
                async with self._shared.slots:
                    token = await self._granted(wait)
                    return None if token is None else await self._exchange(token, wait)
        finally:
            self._breaker.leave(self)

    async def _have_token(self, wait: Wait) -> None:
        """Wait until there is a token that may be sent, or raise the error of one that
        was rejected.
        """
        tokens = self._sender.tokens
        if tokens.held is not None and tokens.not_sent(self._time()) is None:
            return
        wait.reason = "token"
        waits = tokens.renewable and self._limit is not None
        token = tokens.held
        while True:
            await tokens.replace(token)
            if (error := tokens.not_sent(self._time())) is None:
                return
            if not waits or self._elapsed >= self._sender.retry.max_elapsed:
                raise (
                    self.error if isinstance(self.error, AuthenticationError) else error
                )
            token = tokens.held
            await asyncio.sleep(_TOKEN_WAIT)
            self._elapsed += _TOKEN_WAIT

    async def _granted(self, wait: Wait) -> Secret | None:
        """Wait for the bucket's grant, and return the token to send; None: it must not
        be sent.
        """
        sender, request, breaker = self._sender, self._request, self._breaker
        if not breaker.allows(self):
            return None
        # The grant is last, so that a granted request is sent at once: the pace is that
        # of the requests, not only of the grants.
        wait.reason = "bucket"
        self._sent_at = await sender.bucket.acquire(
            lane=sender.lane, counts=request.counts
        )
        is_closed, may_send = sender.transport.is_closed, breaker.allows(self)
        if (
            may_send
            and not is_closed
            and (token := sender.tokens.take(self._time())) is not None
        ):
            return token
        await self._give_back()
        if is_closed:
            raise RuntimeError(CLOSED)
        return None

    async def _give_back(self) -> None:
        # A grant that does not count stays used: giving it back would take one off the
        # day's spending.
        if self._request.counts:
            await self._sender.bucket.give_back()

    async def _exchange(self, token: Secret, wait: Wait) -> Response:
        """Send the request with a token, and return its 2xx response or raise an
        error.
        """
        sender, request = self._sender, self._request
        sent: Sent | None = None
        response: Response | None = None
        failed: RequestError | None = None
        error: BaseException | None = None
        try:
            url = self._begin(wait)
            sent = self._send()
            # The method itself: the transport calls it as it writes the headers.
            headers: dict[str, HeaderValue] = dict(request.headers)
            headers["Authorization"] = token.bearer
            outcome = await sender.transport.send(request, headers, url=url, sent=sent)
            if isinstance(outcome, Response):
                # Redacted before it is used: errors, events and data contain no echoed
                # token.
                response = sender.tokens.redact(outcome)
                failed = _error_of(request, response)
                sender.tokens.record(token, failed, self._sent_at, self._time())
            else:
                failed = outcome  # whose traceback begins here
            error = failed
        except (
            BaseException
        ) as raised:  # a cancellation too: what has started must be seen to end
            error = raised
            if sent is None:  # an observer has raised
                await self._give_back()
            raise
        finally:
            self._end(sent, response, error)
        if failed is not None:
            self.error = failed
            await self._report_failure(failed)
            raise failed
        assert response is not None
        return response

    def _begin(self, wait: Wait) -> str:
        """Announce an attempt, and return its URL."""
        sender, request = self._sender, self._request
        url = sender.transport.url(request)
        wait.end()
        self.on_attempt()
        if request.entity_id is not None:
            sender.warnings.check_entity_id(request.entity_id)
        # Whoever observes its start, observes its end.
        self._identity = None
        if sender.announce.is_heard():
            identity = (
                request.operation,
                request.entity_id,
                next_serial(),
                self.attempts + 1,
            )
            self._identity = identity
            sender.announce(RequestStarted(*identity, method=request.method, url=url))
        return url

    def _send(self) -> Sent:
        """Count an attempt, which is sent now."""
        count = self._sender.tally.of(self._request.operation)
        count.requests += 1
        count.retries += self.attempts > 0
        self.attempts += 1
        self._probes += self._breaker.is_open
        self._retry_after = None
        self._shared.in_flight += 1
        sent = self._breaker.send(self, self._request)
        if self._patience is not None:
            if self._patience.sent is None:
                self._patience.begin(PATIENCE)
            self._patience.sent = sent
        return sent

    def _end(
        self, sent: Sent | None, response: Response | None, error: BaseException | None
    ) -> None:
        """Record how an attempt has ended, and announce it."""
        sender, operation = self._sender, self._request.operation
        seconds = self._time() - self._sent_at
        if sent is not None:
            sent.has_ended = True
            self._elapsed += seconds
            self._shared.in_flight -= 1
            if isinstance(error, _REQUEST_ERRORS) or error is None:
                self._breaker.record(sent, error)
            elif isinstance(error, asyncio.CancelledError):
                self._breaker.give_up(sent)
        if response is not None:
            count = sender.tally.of(operation)
            count.refused += response.status == 429
            count.received += len(response.body)
            if error is not None:
                self._retry_after = _requested_wait(response)
        has_left = self._patience is not None and self._patience.has_left
        if self._identity is None:
            return
        is_complete = response is not None and not isinstance(
            error, TruncatedAnswerError
        )
        name = None if is_complete else type(error).__name__
        if has_left and isinstance(error, asyncio.CancelledError):
            name = RequestTimeoutError.__name__
        sender.announce(
            RequestFinished(
                *self._identity,
                status=response.status
                if response is not None and is_complete
                else None,
                received=0 if response is None else len(response.body),
                seconds=seconds,
                request_id=error.request_id
                if isinstance(error, ServiceError)
                else None,
                failure=name,
            )
        )

    async def _prepare_retry(self, error: RequestError) -> None:
        """Return when the request may be sent again after a failed attempt, or raise
        its error.
        """
        sender, retry, breaker = self._sender, self._sender.retry, self._breaker
        # 1. The token was rejected (401): retry at once with another one, which does
        #    not count for `Retry.attempts`. It happens once, or where requests wait,
        #    within `max_elapsed`. Without `answered` nothing was sent.
        is_rejected = isinstance(error, AuthenticationError) and error.answered
        if is_rejected and sender.tokens.renewable:
            waits = self._limit is not None and self._elapsed < retry.max_elapsed
            may_renew = waits or not self._renewed
        else:
            may_renew = False
        if may_renew and self._may_go_on():
            self._renewed += 1
            self._announce_retry(error, 0.0)
            return

        # 2. After a long Retry-After the allowance is used up (spec 8).
        attempt, wait = self._counted_attempts, self._retry_wait
        if wait is None and isinstance(error, RateLimitedError):
            with error_context(self._request.operation, self._request.entity_id, self):
                raise self._exhausted(error)

        # 3. While the breaker is open, its waits replace those of `Retry`.
        if breaker.is_open and has_responded(error) is False:
            has_retries = self._began_closed and attempt < retry.attempts
            waits = self._limit is not None or has_retries
            if waits and is_retryable(error) and self._may_go_on():
                return
            raise error

        # 4. It is not retryable, or `Retry` or the caller does not allow another
        # attempt.
        if (
            wait is None
            or retry.gives_up(error, attempt=attempt, elapsed=self._elapsed, wait=wait)
            or not self._may_go_on()
        ):
            raise error

        # 5. Otherwise it is sent again after a wait. After a 429 that is the pause of
        # the bucket.
        self._announce_retry(error, wait)
        if isinstance(error, RateLimitedError):
            return
        ends_at = self._time() + wait
        with sender.wait(self._request) as waiting:
            waiting.reason, waiting.ends_at = "retry", lambda: ends_at
            await asyncio.sleep(wait)
        self._elapsed += wait

    def _may_go_on(self) -> bool:
        """Return whether the caller allows another attempt."""
        return self._patience is None or not self._patience.has_left

    async def _report_failure(self, error: RequestError) -> None:
        """Report a failed attempt to the bucket: it concerns all its clients, retried
        or not.

        To its end, also if the caller leaves meanwhile.
        """
        sender, counts = self._sender, self._request.counts
        # The service's Retry-After goes before the growing wait.
        wait = sender.retry.wait(
            self._counted_attempts, self._retry_after, sender.source
        )
        self._retry_wait = wait
        try:
            if isinstance(error, RateLimitedError):
                if wait is not None:  # the bucket pauses all requests until it is over
                    pause = sender.bucket.refused(
                        sent_at=self._sent_at, retry_after=wait
                    )
                    await finish(pause)
                elif (
                    counts
                ):  # usage and limits show nothing of the others' allowance (spec 8)
                    assert (
                        self._retry_after is not None
                    )  # only a Retry-After can be too long
                    await finish(sender.bucket.exhaust(self._retry_after))
            elif isinstance(error, TransportError) and not error.sent and counts:
                # It did not reach the service, so it does not count against the day's
                # allowance.
                await finish(sender.bucket.unspend(sent_at=self._sent_at))
        except BucketUnavailableError as unavailable:
            raise unavailable from error

    def _exhausted(self, error: RateLimitedError) -> AllowanceExhaustedError:
        """Return the error for a 429 with a long Retry-After."""
        seconds = self._retry_after
        assert seconds is not None  # only a Retry-After can be too long
        return AllowanceExhaustedError(
            resume_at=later(error.at or self.at, seconds),
            retry_after=seconds,
            **error.facts(),
        )

    def _announce_retry(self, error: RequestError, wait: float) -> None:
        self._sender.announce(
            Retrying(
                self._request.operation,
                self._request.entity_id,
                self.attempts,
                failure=type(error).__name__,
                wait=wait,
                request_id=error.request_id,
            )
        )


def _error_of(request: Request, response: Response) -> RequestError | None:
    """Return the error that a response is, or None for a 2xx in JSON, which may still
    be malformed.
    """
    if not 200 <= response.status < 300:
        return failure(request, response)
    if ends_within_json(response):
        return TruncatedAnswerError("the response ended within its JSON")
    if problem := not_json(response.body):
        return MalformedAnswerError(problem, is_json=False)
    return None


def _requested_wait(response: Response) -> float | None:
    """Return the seconds of a Retry-After, and warn of one that is too long to be
    meant.
    """
    if (text := excessive_wait(response)) is not None:
        _log.warning(
            "a Retry-After of more than 24 hours and 5 minutes is treated as missing: "
            "%s",
            printable(shorten(text, 100)),
        )
    return retry_after(response)
