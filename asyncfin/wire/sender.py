"""Sends a client's requests: token, connection, rate limit, attempts, retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import count

from attrs import define, evolve

from asyncfin import checks
from asyncfin.clock import later
from asyncfin.errors import (
    AllowanceExhaustedError,
    AuthenticationError,
    BucketUnavailableError,
    RateLimitedError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    error_context,
)
from asyncfin.events import Event, Observer, RequestAnswered, RequestFailed, RequestStarted, Retrying, Stats
from asyncfin.model.query import Lane, check_lane
from asyncfin.pacing.bucket import Bucket
from asyncfin.tasks import PerLoop
from asyncfin.wire.connection import HeaderValue
from asyncfin.wire.observers import Announcer, Tally, WarningLog, announced, log
from asyncfin.wire.protocol import Request, Response, ends_within_json, failure, retry_after
from asyncfin.wire.retry import Quota, Retry
from asyncfin.wire.token import Secret, Tokens, TokenSource
from asyncfin.wire.tolerance import Tolerance
from asyncfin.wire.transport import CLOSED, Transport

# Unique in the process, so that one observer may watch several clients.
_serials = count(1)


@define
class _Sending:
    """The state of one request. It is the `Origin` of its errors, hence `at` and `request_id`."""

    clock: Callable[[], datetime]  # gives the wall time
    attempts: int = 0  # how often the request was sent
    renewed: bool = False  # whether it was sent again with another token after a 401
    elapsed: float = 0.0  # what `Retry.max_elapsed` bounds, in seconds
    sent_at: float = 0.0  # the loop time of the last attempt's grant
    retry_after: float | None = None  # seconds that the last response asked to wait, if it did
    request_id = None  # a failed request has only the id that its error contains

    @property
    def at(self) -> datetime:
        """The time now, for an error without a time."""
        return self.clock()

    @property
    def counted_attempts(self) -> int:
        """How many attempts count for `Retry.attempts`: the one whose token was replaced does not."""
        return self.attempts - self.renewed


class _Shared:
    """What the requests of one event loop share."""

    def __init__(self, max_in_flight: int) -> None:
        self.slots = asyncio.Semaphore(max_in_flight)
        # Set, and replaced, when the allowance is used up: it ends the waits before retries.
        self.exhausted = asyncio.Event()


class Sender:
    """Sends a client's requests, with retries: see `send`, from there downwards. Arguments as of `Client`."""

    def __init__(
        self,
        transport: Transport,
        token: TokenSource,
        *,
        bucket: Bucket,
        retry: Retry = Retry(),
        lane: Lane = "interactive",
        strict: bool = False,
        observers: Iterable[Observer] = (),
        source: random.Random | None = None,
    ) -> None:
        checks.instance_of(Retry)("retry", retry)
        check_lane(lane)
        self._transport = transport
        self.tokens = Tokens(token, timeout=transport.timeouts.total)
        self._bucket = bucket
        self._retry = retry
        self.lane = lane
        self._source = source or random.Random()  # noqa: S311  it only spreads waits
        self._quota = Quota()
        self._shared = PerLoop(partial(_Shared, transport.max_in_flight))
        self._tally = Tally()
        self._warnings = WarningLog()
        self.announce = Announcer(self._tally, log, self._warnings, *observers)
        self.tolerance = Tolerance(checks.flag("strict", strict), self._announce_deviation)
        self._waiting = partial(announced, announce=self.announce, clock=transport.clock, bucket=bucket)

    def stats(self) -> Stats:
        """Return what the requests have cost so far."""
        return self._tally.stats()

    async def send(
        self,
        request: Request,
        *,
        on_attempt: Callable[[], None] = lambda: None,
        may_retry: Callable[[], bool] = lambda: True,
    ) -> Response:
        """Return the 2xx response to `request`; `on_attempt` is called at each attempt.

        If `may_retry` returns False before a further attempt, the last error is raised. A ServiceError is not
        retryable, or retries did not overcome it. RuntimeError: the client is closed, at once also if that
        happens while the request waits; or it belongs to another event loop that is not closed.
        """
        progress = _Sending(self._transport.clock)
        # Completes an error raised within: of which request it is, at which attempt, and when.
        completing = partial(error_context, request.operation, request.entity_id, progress)
        error: ServiceError | TransportError | None = None
        async with self._transport.until_closed():  # closing ends the block, and the last line raises
            while True:
                try:
                    with completing():
                        response = await self._attempt(request, progress, on_attempt)
                    self._quota.earn()
                    tolerance = self.tolerance.of(request.operation, request.entity_id)
                    return evolve(response, attempts=progress.attempts, tolerance=tolerance)
                except (AllowanceExhaustedError, BucketUnavailableError) as refusal:
                    # Raised by the bucket: a 429 of the service is still a plain RateLimitedError here. The
                    # cause is what the last attempt failed with.
                    raise refusal from error
                except (ServiceError, TransportError) as failed:
                    error = failed

                # The attempt failed. Errors are raised out here, so that they have no context. In this order:

                # 1. The token was refused (401), and may be renewable: retry at once with another one.
                #    It happens once, and does not count for `Retry.attempts`. Without `answered` the token
                #    callable has failed, and nothing was sent.
                unauthorized = isinstance(error, AuthenticationError) and error.answered
                renewing = unauthorized and self.tokens.renewable and not progress.renewed
                if renewing and may_retry():
                    progress.renewed = True
                    self._announce_retry(request, progress, error, 0.0)
                    continue

                # The service's Retry-After goes before the growing wait. None: it is too long.
                wait = self._retry.wait(progress.counted_attempts, progress.retry_after, self._source)

                # 2. The failure concerns all clients of the bucket, whether or not this request is retried.
                with completing():
                    await self._report_failure(request, progress, error, wait)

                # 3. It is not retryable, or `Retry` or the caller does not allow another attempt.
                attempt, elapsed = progress.counted_attempts, progress.elapsed
                if (
                    wait is None
                    or self._retry.gives_up(error, attempt=attempt, elapsed=elapsed, wait=wait)
                    or not may_retry()
                ):
                    raise error

                # 4. Otherwise it is sent again after a wait.
                await self._back_off(request, progress, error, wait)
        # Only closing ends the block without a return or an error.
        raise RuntimeError(CLOSED)

    async def _attempt(
        self, request: Request, progress: _Sending, on_attempt: Callable[[], None]
    ) -> Response:
        """Wait until the request may be sent, send it once, and return its 2xx response or raise an error."""
        async with self._permission(request, progress) as token:
            time = asyncio.get_running_loop().time
            progress.attempts += 1
            progress.retry_after = None
            on_attempt()
            # The first fields of all events of this attempt.
            identity = (request.operation, request.entity_id, next(_serials), progress.attempts)
            url = self._transport.url(request)
            self.announce(RequestStarted(*identity, method=request.method, url=url))
            try:
                # The method itself: the transport calls it as it writes the headers.
                headers: dict[str, HeaderValue] = {**dict(request.headers), "Authorization": token.bearer}
                response = await self._transport.send(request, headers)
                if not isinstance(response, Response):  # an error, whose traceback begins here
                    raise response
                if ends_within_json(response):
                    raise TruncatedAnswerError("the response ended within its JSON")
            except BaseException as failed:  # a cancellation too: what has started must be seen to end
                seconds = time() - progress.sent_at
                self.announce(RequestFailed(*identity, failure=type(failed).__name__, seconds=seconds))
                raise
            finally:
                progress.elapsed += time() - progress.sent_at
        # The response is redacted before it is used: errors, events and data contain no echoed token. The
        # slot is free by now, so other requests are sent during this.
        response = self.tokens.redact(response)
        error = None if 200 <= response.status < 300 else failure(request, response)
        self.announce(
            RequestAnswered(
                *identity,
                status=response.status,
                received=len(response.body),
                seconds=time() - progress.sent_at,
                request_id=error.request_id if error else None,
            )
        )
        if error is None:
            self.tokens.record_accepted(token)
            return response
        if response.status == 401:
            self.tokens.record_401(token)
        progress.retry_after = retry_after(response)
        raise error

    @asynccontextmanager
    async def _permission(self, request: Request, progress: _Sending) -> AsyncIterator[Secret]:
        """Wait for a token, a slot and the bucket's grant; yield the token while the slot is held."""
        async with AsyncExitStack() as held:  # the wait ends where sending begins, and the slot stays held
            with self._waiting(request) as wait:
                # `current` is awaited only so that there is a token; which one is sent is decided last, since
                # it can be refused during each of these waits. First before the slots: however few there
                # are, all waiting requests share one call for the token.
                wait.reason = "token"
                await self.tokens.current()
                wait.reason = "connection"
                await held.enter_async_context(self._shared.get().slots)
                while True:
                    # The grant is last, so that a granted request is sent at once: the pace is that of the
                    # requests, not only of the grants.
                    wait.reason = "token"
                    await self.tokens.current()
                    wait.reason = "bucket"
                    progress.sent_at = await self._bucket.acquire(lane=self.lane, counts=request.counts)
                    if (token := self.tokens.held) is not None:
                        break
                    # The token was refused during the wait. A grant that does not count stays used: giving it
                    # back would take one off the day's spending.
                    if request.counts:
                        await self._bucket.give_back()
            yield token

    async def _report_failure(
        self, request: Request, progress: _Sending, error: ServiceError | TransportError, wait: float | None
    ) -> None:
        """Report a failed attempt to the bucket; `wait` is None if its Retry-After is too long."""
        try:
            if isinstance(error, RateLimitedError):
                # After a long Retry-After the allowance is used up (spec 8); otherwise the bucket pauses all
                # requests until the wait is over.
                if wait is None:
                    raise await self._exhaust(request, progress, error)
                await self._bucket.refused(sent_at=progress.sent_at, retry_after=wait)
            elif isinstance(error, TransportError) and not error.sent and request.counts:
                # It did not reach the service, so it does not count against the day's allowance.
                await self._bucket.unspend(sent_at=progress.sent_at)
        except BucketUnavailableError as unavailable:
            raise unavailable from error

    async def _exhaust(
        self, request: Request, progress: _Sending, error: RateLimitedError
    ) -> AllowanceExhaustedError:
        """Record that the allowance is used up, and return the error that says so."""
        seconds = progress.retry_after
        assert seconds is not None  # only a Retry-After can be too long
        if request.counts:  # usage and limits say nothing about the allowance of the others (spec 8)
            await self._bucket.exhaust(seconds)
            shared = self._shared.get()
            shared.exhausted.set()
            shared.exhausted = asyncio.Event()
        resume_at = later(error.at or self._transport.clock(), seconds)
        return AllowanceExhaustedError(resume_at=resume_at, retry_after=seconds, **error.facts())

    async def _back_off(
        self, request: Request, progress: _Sending, error: ServiceError | TransportError, seconds: float
    ) -> None:
        """Wait, at most until the allowance is used up: then the next attempt raises the error."""
        # After a 429 the bucket grants the next attempt once its pause is over. After any other failure the
        # request waits by itself, and the quota bounds what all requests of the client spend on this, so that
        # an outage does not multiply traffic.
        waits = not isinstance(error, RateLimitedError)
        if waits and not self._quota.spend():
            error.add_note("not retried: retry budget exhausted")
            raise error
        self._announce_retry(request, progress, error, seconds)
        if not waits:
            return
        # A used-up allowance does not concern usage and limits (spec 8): their event is never set.
        exhausted = self._shared.get().exhausted if request.counts else asyncio.Event()
        with self._waiting(request) as wait, suppress(TimeoutError):
            wait.reason, wait.ends_at = "retry", asyncio.get_running_loop().time() + seconds
            async with asyncio.timeout_at(wait.ends_at):
                await exhausted.wait()
        progress.elapsed += seconds

    def _announce_deviation(self, event: Event) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # Values may be decoded in a thread, or after the loop has ended: no place to call observers.
            self._warnings(event)
        else:
            self.announce(event)

    def _announce_retry(
        self, request: Request, progress: _Sending, error: ServiceError | TransportError, wait: float
    ) -> None:
        self.announce(
            Retrying(
                request.operation,
                request.entity_id,
                progress.attempts,
                failure=type(error).__name__,
                wait=wait,
                request_id=error.request_id,
            )
        )
