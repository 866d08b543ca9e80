"""The one way of every request of a client, until it is answered or given up.

A token, a connection, the bucket's grant, an attempt, and what `Retry` and `Quota` decide of it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count

from attrs import evolve

from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    MalformedAnswerError,
    RateLimitedError,
    ServiceError,
    TransportError,
)
from asyncfin.events import (
    Observer,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    Retrying,
    Stats,
    Waited,
)
from asyncfin.model import checks
from asyncfin.model.query import Lane, check_lane
from asyncfin.wire.bucket import Bucket, later
from asyncfin.wire.observers import Announcer, Tally, log
from asyncfin.wire.protocol import Request, Response, failure, retry_after
from asyncfin.wire.retry import Quota, Retry
from asyncfin.wire.token import Secret
from asyncfin.wire.transport import Transport

# A shorter wait, in seconds, is the loop's own business.
_NOTICEABLE = 0.001
# Of the whole process, so that one observer may watch several clients.
_serials = count(1)


class _Course:
    """How far one request has come.

    `sent` counts all attempts and `counted` those that `Retry.attempts` bounds; `elapsed` is what
    `Retry.max_elapsed` bounds; `sent_at` is the loop time of the last attempt; `asked` is its
    Retry-After.
    """

    def __init__(self, request: Request, attempting: Callable[[], None]) -> None:
        self.request = request
        self.attempting = attempting
        self.sent = 0
        self.counted = 0
        self.elapsed = 0.0
        self.sent_at = 0.0
        self.asked: float | None = None
        self.renewed = False


class Sender:
    """Sends the requests of one client, each until it is answered or given up.

    Args:
        transport: makes the attempts.
        bucket: grants them; may be shared with other clients.
        retry: the bounds of trying again.
        lane: which lane of the bucket to wait in.
        observers: who is told of each event.
        source: of the waits' randomness.

    Raises:
        ArgumentError: `retry` is no `Retry`, or an observer cannot be called.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        bucket: Bucket,
        retry: Retry = Retry(),  # noqa: B008  a frozen value
        lane: Lane = "interactive",
        observers: Iterable[Observer] = (),
        source: random.Random | None = None,
    ) -> None:
        checks.instance_of(Retry)("retry", retry)
        check_lane(lane)
        self._transport = transport
        self._bucket = bucket
        self._retry = retry
        self._lane = lane
        self._source = source or random.Random()  # noqa: S311  it spreads waits, it guards nothing
        self._quota = Quota()
        self._exhausted = asyncio.Event()  # set for those who back off when the allowance is used up
        self._tally = Tally()
        self.announce = Announcer(self._tally, log, *observers)

    def stats(self) -> Stats:
        """Return what the requests have cost so far."""
        return self._tally.stats()

    async def send(self, request: Request, *, attempting: Callable[[], None] = lambda: None) -> Response:
        """Return the 2xx response to `request`; `attempting` is called at each attempt.

        Raises:
            ServiceError: the service answered with an error that does not pass, or did not pass in time.
            TransportError: no complete response came, again and again.
            MalformedAnswerError: the body is larger than allowed, or in a coding not asked for.
            RuntimeError: the client is closed, at once also if it happens meanwhile, wherever the
                request waits; or it belongs to another event loop that is not closed.
        """
        course = _Course(request, attempting)
        try:
            response = await self._transport.while_open(partial(self._answered, course))
        except (ServiceError, TransportError, MalformedAnswerError) as error:
            self._complete(error, course)
            raise
        self._quota.earn()
        return response

    def _complete(self, error: AsyncfinError, course: _Course) -> None:
        error.operation, error.entity_id = course.request.operation, course.request.entity_id
        error.attempts = course.sent
        error.at = error.at or self._transport.clock()

    async def _answered(self, course: _Course) -> Response:
        failed = None
        try:
            while not isinstance(outcome := await self._attempt(course), Response):
                failed = outcome
                await self._recover(course, outcome)
        except AllowanceExhaustedError as refusal:
            if refusal.answered or failed is None:
                raise
            self._complete(failed, course)
            raise refusal from failed
        return evolve(outcome, attempts=course.sent)

    async def _attempt(self, course: _Course) -> Response | ServiceError | TransportError:
        """Send once. An error returned is the attempt's; one raised is final."""
        loop = asyncio.get_running_loop()
        queued_at = loop.time()
        await self._transport.tokens.current()  # outside of the slots, so that all share one asking
        async with self._transport.slot():
            token = await self._granted(course)
            self._waited(course.request, "turn", loop.time() - queued_at)
            course.sent += 1
            course.counted += 1
            course.asked = None
            course.attempting()
            try:
                return await self._observed(course, token)
            except TransportError as error:
                if not error.sent:
                    await self._bucket.unspend(sent_at=course.sent_at)
                return error
            finally:
                course.elapsed += loop.time() - course.sent_at

    async def _granted(self, course: _Course) -> Secret:
        """Return the token once the bucket grants the attempt: what is granted is sent, and at once."""
        while True:
            await self._transport.tokens.current()
            counts = course.request.counts
            course.sent_at = await self._bucket.acquire(lane=self._lane, counts=counts)
            if (token := self._transport.tokens.held) is not None:
                return token
            # The token was refused meanwhile. A grant that does not count is left used: giving it back
            # would take one off the day's spending.
            if counts:
                await self._bucket.give_back()

    async def _observed(self, course: _Course, token: Secret) -> Response | ServiceError:
        """Make the attempt, and announce its beginning and its end."""
        time, request = asyncio.get_running_loop().time, course.request
        facts = (request.operation, request.entity_id, next(_serials), course.sent)
        self.announce(RequestStarted(*facts))
        try:
            response = await self._transport.attempt(request, token)
        except BaseException as error:
            self.announce(RequestFailed(*facts, type(error).__name__, time() - course.sent_at))
            raise
        refusal = None if 200 <= response.status < 300 else self._refusal(course, response)
        request_id = refusal.request_id if refusal else None
        seconds = time() - course.sent_at
        self.announce(RequestAnswered(*facts, response.status, len(response.body), seconds, request_id))
        return refusal or response

    def _refusal(self, course: _Course, response: Response) -> ServiceError:
        course.asked = retry_after(response)
        error = failure(course.request, response)
        self._transport.tokens.redact(error)
        return error

    async def _recover(self, course: _Course, error: ServiceError | TransportError) -> None:
        """Wait for the next attempt, or raise what ends the request."""
        if self._renews(course, error):
            self._retrying(course, error, 0.0)
            return
        wait = self._retry.wait(course.counted, course.asked, self._source)
        if isinstance(error, RateLimitedError):
            await self._hold_back(course, error, wait)
        if wait is None or self._retry.gives_up(
            error, attempt=course.counted, elapsed=course.elapsed, wait=wait
        ):
            raise error
        if isinstance(error, RateLimitedError):  # the bucket lets nobody go before its time
            self._retrying(course, error, wait)
        else:
            await self._back_off(course, error, wait)

    async def _back_off(self, course: _Course, error: ServiceError | TransportError, wait: float) -> None:
        """Wait by oneself, if the quota has room for another attempt."""
        if not self._quota.spend():
            error.add_note("not tried again: too many attempts of this client have failed lately")
            raise error
        self._retrying(course, error, wait)
        if course.request.counts:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._exhausted.wait()  # the next acquire raises that the allowance is used up
        else:
            await asyncio.sleep(wait)
        course.elapsed += wait
        self._waited(course.request, "retry", wait)

    def _renews(self, course: _Course, error: ServiceError | TransportError) -> bool:
        """Tell whether another token may do. It is asked for with the next attempt, which does not count."""
        may = isinstance(error, AuthenticationError) and self._transport.tokens.renewable
        if not may or course.renewed:
            return False
        course.renewed = True
        course.counted -= 1
        return True

    async def _hold_back(self, course: _Course, error: RateLimitedError, wait: float | None) -> None:
        """Tell the bucket, and so all who share it, of a 429 (spec 8)."""
        if wait is not None:
            await self._bucket.refused(sent_at=course.sent_at, retry_after=wait)
            return
        assert course.asked is not None
        if course.request.counts:  # usage and limits say nothing about the allowance of the others (spec 8)
            await self._bucket.exhaust(course.asked)
            self._exhausted.set()
            self._exhausted = asyncio.Event()
        raise AllowanceExhaustedError(
            resume_at=later(error.at or self._transport.clock(), course.asked),
            retry_after=course.asked,
            status=error.status,
            code=error.code,
            message=error.message,
            request_id=error.request_id,
            at=error.at,
        )

    def _retrying(self, course: _Course, error: ServiceError | TransportError, wait: float) -> None:
        request, kind = course.request, type(error).__name__
        self.announce(
            Retrying(request.operation, request.entity_id, course.sent, kind, wait, error.request_id)
        )

    def _waited(self, request: Request, reason: str, seconds: float) -> None:
        if seconds >= _NOTICEABLE:
            self.announce(Waited(request.operation, request.entity_id, reason, seconds))
