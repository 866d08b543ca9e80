"""Sends a client's requests: token, connection, rate limit, attempts, retries."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import TypeAlias

from attrs import define

from asyncfin import checks
from asyncfin.clock import later
from asyncfin.errors import (
    AllowanceExhaustedError,
    AuthenticationError,
    BucketUnavailableError,
    MalformedAnswerError,
    RateLimitedError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    error_context,
    printable,
    shorten,
)
from asyncfin.events import (
    Observer,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    Retrying,
    Stats,
    next_serial,
)
from asyncfin.model.query import Lane, check_lane
from asyncfin.pacing.bucket import Bucket
from asyncfin.tasks import PerLoop
from asyncfin.wire.connection import HeaderValue
from asyncfin.wire.gate import Gate
from asyncfin.wire.observers import Announcer, Tally, Wait, Waits, WarningLog, log
from asyncfin.wire.protocol import (
    Request,
    Response,
    ends_within_json,
    excessive_wait,
    failure,
    retry_after,
    without_object,
)
from asyncfin.wire.retry import Quota, Retry, is_retryable
from asyncfin.wire.token import Secret, Tokens, TokenSource
from asyncfin.wire.transport import CLOSED, Transport

_log = logging.getLogger("asyncfin")
# What an attempt can end in; the last one if the response asks for a retry, or cannot be read at all.
RequestError: TypeAlias = ServiceError | TransportError | MalformedAnswerError


def _error_of(request: Request, response: Response) -> RequestError | None:
    """Return the error that a response is; None: a 2xx, which may still turn out to be malformed."""
    if not 200 <= response.status < 300:
        return failure(request, response)
    # Not searched without the header, which hardly any 2xx has.
    if "retry-after" not in response.headers or retry_after(response) is None:
        return None
    return without_object(request, response)


def _requested_wait(response: Response) -> float | None:
    """Return the seconds of a Retry-After, and warn of one that is too long to be meant."""
    if (text := excessive_wait(response)) is not None:
        _log.warning(
            "a Retry-After of more than 24 hours and 5 minutes is treated as missing: %s",
            printable(shorten(text, 100)),
        )
    return retry_after(response)


@define(eq=False)
class _Sending:
    """The state of one request. It is the `Origin` of its errors, hence `at` and `request_id`."""

    request: Request
    clock: Callable[[], datetime]  # gives the wall time
    shared: _Shared
    limit: float | None  # for how many seconds of an outage it waits; None: not at all
    on_attempt: Callable[[], None]
    may_retry: Callable[[], bool]
    once: bool  # whether a failure that concerns the service ends it
    error: RequestError | None = None  # what the last attempt ended in
    attempts: int = 0  # how often the request was sent
    probes: int = 0  # how many of these have failed during an outage for whose end it waits
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
        return self.attempts - self.renewed - self.probes

    def completing(self) -> AbstractContextManager[None]:
        """Complete an error raised within: of which request it is, at which attempt, and when."""
        return error_context(self.request.operation, self.request.entity_id, self)


class _Shared:
    """What the requests of one event loop share."""

    def __init__(self, max_in_flight: int, gate: Gate) -> None:
        self.slots = asyncio.Semaphore(max_in_flight)
        self.gate = gate
        self._interrupted = asyncio.Event()

    def interrupt(self) -> None:
        """End the waits before retries: the allowance is used up, or an outage begins."""
        self._interrupted.set()
        self._interrupted = asyncio.Event()

    async def interrupted(self) -> None:
        """Wait until the waits before retries end."""
        await self._interrupted.wait()


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
        self._gate: Gate | None = None  # of the last event loop
        self._shared = PerLoop(self._new_shared)
        self._tally = Tally()
        self._warnings = WarningLog()
        self.announce = Announcer(self._tally, log, self._warnings, observers=observers)
        self._waiting = Waits(self.announce, self._tally, transport.clock, bucket).of

    def _new_shared(self) -> _Shared:
        self._close_gate()  # of a loop that has ended
        self._gate = Gate(self.announce, self._source)
        return _Shared(self._transport.max_in_flight, self._gate)

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()

    async def aclose(self) -> None:
        """Close the connections, and end at once what is being sent or waits. A second call does nothing."""
        await self._transport.aclose()
        self._close_gate()

    def stats(self) -> Stats:
        """Return what the requests have cost so far."""
        return self._tally.stats()

    async def send(
        self,
        request: Request,
        *,
        on_attempt: Callable[[], None] = lambda: None,
        may_retry: Callable[[], bool] = lambda: True,
        once: bool = False,
        max_outage: float | None = None,
    ) -> Response:
        """Return the 2xx response to `request`; `on_attempt` is called at each attempt.

        If `may_retry` returns False before a further attempt, the last error is raised. A request waits
        through outages for `max_outage` seconds; if that is None, in the bulk lane as `Retry` says, and not
        at all otherwise: then a failure that concerns the service is not retried either, with `once`. A
        ServiceError is not retryable, or retries did not overcome it. RuntimeError: the client is closed, at
        once also if that happens while the request waits; or it belongs to another event loop that is not
        closed.
        """
        async with self._transport.until_closed():  # closing ends the block, and the last line raises
            bulk, clock = self.lane == "bulk", self._transport.clock
            limit = self._retry.max_outage if bulk and max_outage is None else max_outage
            once = once and limit is None
            sending = _Sending(request, clock, self._shared.get(), limit, on_attempt, may_retry, once)
            try:
                gate = sending.shared.gate
                while True:
                    if not gate.may_send(request, sending):
                        await self._wait_for_outage(sending)
                    try:
                        with sending.completing():
                            response = await self._attempt(sending)
                    except (AllowanceExhaustedError, BucketUnavailableError) as refusal:
                        # Raised by the bucket: a 429 of the service is still a plain RateLimitedError here.
                        # The cause is what the last attempt failed with.
                        raise refusal from sending.error
                    except (ServiceError, TransportError, MalformedAnswerError) as failed:
                        error = failed
                    else:
                        if response is None:  # an outage has begun before it was sent
                            continue
                        self._record(sending, None)
                        self._quota.earn()
                        return response.completed(sending.attempts)
                    # Out here, so that it is raised without a context.
                    sending.error = error
                    await self._prepare_retry(sending, error)
            finally:
                sending.shared.gate.withdraw(sending)  # a probe without an outcome
                sending.error = None  # its frames contain `sending`
        # Only closing ends the block without a return or an error.
        raise RuntimeError(CLOSED)

    async def _wait_for_outage(self, sending: _Sending) -> None:
        """Wait while an outage does not allow the request, or raise the error for that."""
        gate, request = sending.shared.gate, sending.request
        if sending.limit is None:
            while await gate.own_probe():
                if gate.may_send(request, sending):
                    return
            raise sending.error or gate.not_sent(request)
        time = asyncio.get_running_loop().time
        with self._waiting(request) as wait:
            wait.reason, wait.ends_at = "outage", lambda: gate.next_probe_at
            while not gate.may_send(request, sending):
                if time() >= (until := gate.began_at + sending.limit):
                    raise gate.not_sent(request) from sending.error
                await gate.wait(request, sending, until)

    async def _prepare_retry(self, sending: _Sending, error: RequestError) -> None:
        """Return when the request may be sent again after a failed attempt, or raise its error."""
        gate = sending.shared.gate
        # In this order:
        # 1. The token was refused (401), and may be renewable: retry at once with another one. It happens
        #    once, and does not count for `Retry.attempts`. Without `answered` the token callable has failed,
        #    and nothing was sent.
        unauthorized = isinstance(error, AuthenticationError) and error.answered
        renewing = unauthorized and self.tokens.renewable and not sending.renewed
        was_probe = gate.is_probe(sending)
        # A 401 of something in front of the service shows nothing: the probe is sent again.
        if not renewing or (isinstance(error, AuthenticationError) and error.has_error_object):
            self._record(sending, error)
        if renewing and sending.may_retry():
            sending.renewed = True
            self._announce_retry(sending, error, 0.0)
            return

        # The service's Retry-After goes before the growing wait. None: it is too long.
        wait = self._retry.wait(sending.counted_attempts, sending.retry_after, self._source)

        # 2. The failure concerns all clients of the bucket, whether or not this request is retried.
        with sending.completing():
            await self._report_failure(sending, error, wait)

        # 3. The service fails as a whole: the request waits until it responds again, or is not retried.
        fails = was_probe or (gate.is_closed and sending.request.entity_id is not None)
        if error.concerns == "service" and (sending.once or fails):
            waits = sending.limit is not None and (was_probe or is_retryable(error))
            if not waits or not sending.may_retry():
                raise error
            sending.probes += was_probe
            return

        # 4. It is not retryable, or `Retry` or the caller does not allow another attempt.
        attempt, elapsed = sending.counted_attempts, sending.elapsed
        if (
            wait is None
            or self._retry.gives_up(error, attempt=attempt, elapsed=elapsed, wait=wait)
            or not sending.may_retry()
        ):
            raise error

        # 5. Otherwise it is sent again after a wait.
        await self._back_off(sending, error, wait)

    def _record(self, sending: _Sending, error: RequestError | None) -> None:
        """Record how an attempt has ended, for the outage that it may begin or end."""
        gate = sending.shared.gate
        if gate.record(sending.request, sending, error, sending.retry_after):
            if gate.is_closed:
                sending.shared.interrupt()
            else:
                self._quota.refill()

    async def _attempt(self, sending: _Sending) -> Response | None:
        """Wait until the request may be sent, send it once, and return its 2xx response or raise an error.

        None: it was not sent, because an outage has begun.
        """
        request, time = sending.request, asyncio.get_running_loop().time
        if (token := await self._slot_and_token(sending)) is None:
            return None
        sending.attempts += 1
        sending.retry_after = None
        sending.on_attempt()
        # The first fields of all events of this attempt.
        identity = (request.operation, request.entity_id, next_serial(), sending.attempts)
        count, url = self._tally.of(request.operation), self._transport.url(request)
        count.requests += 1
        count.retries += sending.attempts > 1
        if request.entity_id is not None:
            self._warnings.check_entity_id(request.entity_id)
        # Whoever observes its start, observes its end.
        if is_heard := self.announce.is_heard():
            self.announce(RequestStarted(*identity, method=request.method, url=url))
        try:
            # The method itself: the transport calls it as it writes the headers.
            headers: dict[str, HeaderValue] = {**dict(request.headers), "Authorization": token.bearer}
            response = await self._transport.send(request, headers, url=url)
            if not isinstance(response, Response):  # an error, whose traceback begins here
                raise response
            if ends_within_json(response):
                raise TruncatedAnswerError("the response ended within its JSON")
        except BaseException as failed:  # a cancellation too: what has started must be seen to end
            if is_heard:
                seconds = time() - sending.sent_at
                self.announce(RequestFailed(*identity, failure=type(failed).__name__, seconds=seconds))
            raise
        finally:
            sending.elapsed += time() - sending.sent_at
            sending.shared.slots.release()
        # The response is redacted before it is used: errors, events and data contain no echoed token. The
        # slot is free by now, so other requests are sent during this.
        response = self.tokens.redact(response)
        error = _error_of(request, response)
        count.refused += response.status == 429
        count.received += len(response.body)
        if is_heard:
            self.announce(
                RequestAnswered(
                    *identity,
                    status=response.status,
                    received=len(response.body),
                    seconds=time() - sending.sent_at,
                    request_id=error.request_id if error else None,
                )
            )
        self.tokens.record(token, response.status)
        if error is None:
            return response
        sending.retry_after = _requested_wait(response)
        raise error

    async def _slot_and_token(self, sending: _Sending) -> Secret | None:
        """Wait for a slot and a grant, and return the token to send; the slot stays held.

        None: an outage has begun, and no slot is held.
        """
        slots = sending.shared.slots
        with self._waiting(sending.request) as wait:  # ends where sending begins
            # First before the slots: however few there are, all waiting requests share a call for the token.
            if self.tokens.held is None:
                wait.reason = "token"
                await self.tokens.current()
            wait.reason = "connection"
            await slots.acquire()
            try:
                token = await self._granted(sending, wait)
            except BaseException:
                slots.release()
                raise
        if token is None:
            slots.release()
        return token

    async def _granted(self, sending: _Sending, wait: Wait) -> Secret | None:
        """Wait for the bucket's grant, and return the token to send; None: an outage has begun."""
        gate, request = sending.shared.gate, sending.request
        while gate.may_send(request, sending):
            # The grant is last, so that a granted request is sent at once: the pace is that of the
            # requests, not only of the grants. `current` is awaited only so that there is a token; which one
            # is sent is decided last, since it can be refused during each of these waits.
            if self.tokens.held is None:
                wait.reason = "token"
                await self.tokens.current()
            wait.reason = "bucket"
            sending.sent_at = await self._bucket.acquire(lane=self.lane, counts=request.counts)
            token = self.tokens.held
            if token is not None and not self._transport.is_closed and gate.may_send(request, sending):
                return token
            # The token was refused, an outage began, or the client was closed during the wait. A grant that
            # does not count stays used: giving it back would take one off the day's spending.
            if request.counts:
                await self._bucket.give_back()
            if self._transport.is_closed:
                raise RuntimeError(CLOSED)
        return None

    async def _report_failure(self, sending: _Sending, error: RequestError, wait: float | None) -> None:
        """Report a failed attempt to the bucket; `wait` is None if its Retry-After is too long."""
        try:
            if isinstance(error, RateLimitedError):
                # After a long Retry-After the allowance is used up (spec 8); otherwise the bucket pauses all
                # requests until the wait is over.
                if wait is None:
                    raise await self._exhaust(sending, error)
                await self._bucket.refused(sent_at=sending.sent_at, retry_after=wait)
            elif isinstance(error, TransportError) and not error.sent and sending.request.counts:
                # It did not reach the service, so it does not count against the day's allowance.
                await self._bucket.unspend(sent_at=sending.sent_at)
        except BucketUnavailableError as unavailable:
            raise unavailable from error

    async def _exhaust(self, sending: _Sending, error: RateLimitedError) -> AllowanceExhaustedError:
        """Record that the allowance is used up, and return the error that says so."""
        seconds = sending.retry_after
        assert seconds is not None  # only a Retry-After can be too long
        if sending.request.counts:  # usage and limits say nothing about the allowance of the others (spec 8)
            await self._bucket.exhaust(seconds)
            sending.shared.interrupt()
        resume_at = later(error.at or self._transport.clock(), seconds)
        return AllowanceExhaustedError(resume_at=resume_at, retry_after=seconds, **error.facts())

    async def _back_off(self, sending: _Sending, error: RequestError, seconds: float) -> None:
        """Wait, at most until the allowance is used up or an outage begins: then the next attempt ends it."""
        # After a 429 the bucket grants the next attempt once its pause is over. After any other failure the
        # request waits by itself, and the quota bounds what all requests of the client spend on this, so that
        # an outage does not multiply traffic.
        waits = not isinstance(error, RateLimitedError)
        if waits and not self._quota.spend():
            error.add_note("not retried: retry budget exhausted")
            raise error
        self._announce_retry(sending, error, seconds)
        if not waits:
            return
        request, loop = sending.request, asyncio.get_running_loop()
        began_at = loop.time()
        with self._waiting(request) as wait, suppress(TimeoutError):
            wait.reason, wait.ends_at = "retry", lambda: began_at + seconds
            async with asyncio.timeout_at(began_at + seconds):
                # Neither concerns usage and limits (spec 8).
                await (sending.shared.interrupted() if request.counts else loop.create_future())
        sending.elapsed += loop.time() - began_at

    def _announce_retry(self, sending: _Sending, error: RequestError, wait: float) -> None:
        self.announce(
            Retrying(
                sending.request.operation,
                sending.request.entity_id,
                sending.attempts,
                failure=type(error).__name__,
                wait=wait,
                request_id=error.request_id,
            )
        )
