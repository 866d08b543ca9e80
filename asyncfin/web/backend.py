"""Errors as HTTP responses, and work that ends when its visitor leaves."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from asyncfin import errors
from asyncfin.tasks import TIME_IS_UP, cancel_and_wait
from asyncfin.words import counted

T = TypeVar("T")
Offer: TypeAlias = Container[str] | Callable[[str], Awaitable[bool]]
"""The ids of the entities that a backend offers, or an async function that decides of
an id.
"""

_log = logging.getLogger("asyncfin")

# Where an error does not say when to come back: a pause of the bucket is over within
# seconds.
_RETRY_AFTER = 5
# While the service fails, a client finds out at least this often whether it responds
# again.
_OUTAGE = 30


class HttpError(NamedTuple):
    """The response to a visitor in place of data.

    Attributes:
        status: the HTTP status.
        text: a sentence for the visitor, without names of the backend or messages of
            the service.
        headers: ``Retry-After`` with a 503.
    """

    status: int
    text: str
    headers: dict[str, str]


class ClientGoneError(Exception):
    """The visitor has closed the connection, so no response is needed."""


class AsgiRequest(Protocol):
    """A request with ASGI's `receive`, such as Starlette's, FastAPI's and
    Litestar's.
    """

    @property
    def receive(self) -> Callable[[], Awaitable[Mapping[str, Any]]]: ...


def http_error(error: BaseException) -> HttpError:
    """Make the status, text and headers of the response for an error, and log the error
    unless it is a 400.

    Only the text of a 400 is the error's: it names what the visitor has requested.

    - `SelectionError`: 400
    - `NotFoundError`: 404
    - `ArgumentError`: 500
    - `RateLimitedError`, `AllowanceExhaustedError`, `BucketUnavailableError`: 503, with
      Retry-After
    - an error that concerns the service, with 0 `attempts`: 503, with Retry-After
    - `TimeoutError`, `RequestTimeoutError`: 504
    - every other `AsyncfinError`, 401 and 403 of the service included: 502

    Raises:
        BaseException: `error` itself, if it is something else.
    """
    seconds = 0
    match error:
        case errors.ArgumentError():  # a SelectionError too, but the backend's mistake
            status, text = 500, "the backend is configured incorrectly"
        case errors.SelectionError():
            return HttpError(400, error.problem, {})
        case errors.NotFoundError():
            status, text = 404, "no published dataset is available for this entity"
        case errors.AsyncfinError(attempts=0, concerns="service"):
            status, seconds = 503, _OUTAGE
            text = "the data service is not available at the moment"
        case errors.BucketUnavailableError():
            status, seconds = 503, _RETRY_AFTER
            text = "the figures can't be requested at the moment"
        case errors.RateLimitedError():
            status, seconds = 503, _retry_after(error)
            text = "too many requests at the moment"
        case TimeoutError() | errors.RequestTimeoutError():
            status, text = 504, "the data did not arrive in time; try again later"
        case errors.AsyncfinError():
            status = 502
            text = "the data service did not deliver the data; try again later"
        case _:
            raise error
    message = errors.printable(str(error))
    _log.warning("HTTP %d for %s: %s", status, type(error).__name__, message)
    if not seconds:
        return HttpError(status, text, {})
    text = f"{text}; come back in {counted(seconds, 'second')}"
    return HttpError(status, text, {"Retry-After": str(seconds)})


def _retry_after(error: errors.RateLimitedError) -> int:
    """The whole seconds after which a visitor may come back, at least 1."""
    seconds = error.retry_after or _RETRY_AFTER
    if isinstance(error, errors.AllowanceExhaustedError):
        seconds = (error.resume_at - datetime.now(UTC)).total_seconds()
    # Retry-After takes whole seconds (RFC 9110, section 10.2.3); rounded down, it would
    # be too early.
    return max(1, ceil(seconds))


async def check_offered(entity_id: str, offer: Offer) -> None:
    """Check that a backend offers an entity, before a request is spent on it.

    A made-up id would cost a request of the account's allowance, for each new id that
    visitors send.

    Args:
        entity_id: the id that the visitor sent.
        offer: a container of ids, or an async function that returns whether an id is
            offered.

    Raises:
        NotFoundError: it does not. `http_error` makes it a 404. No request is spent.
    """
    is_offered = await offer(entity_id) if callable(offer) else entity_id in offer
    if not is_offered:
        raise errors.NotFoundError(
            status=404,
            message="not offered by this backend",
            answered=False,
            entity_id=entity_id,
        )


async def unless_gone(request: AsgiRequest, work: Awaitable[T], seconds: float) -> T:
    """Await `work`. If its visitor leaves or time is up, cancel it and wait for its
    end.

    Starlette, FastAPI and Litestar do not cancel a handler whose visitor has left. Call
    this after the request's body has been read, since it listens to `request.receive`
    until it returns. Quart, Django and aiohttp.web (with ``handler_cancellation=True``)
    cancel the handler: there, `asyncio.timeout` is enough.

    Args:
        request: Starlette's, FastAPI's or Litestar's request, or anything else with an
            ASGI `receive`.
        work: an awaitable, such as ``client.query(...)``.
        seconds: how long the work may take.

    Raises:
        ClientGoneError: the visitor has left.
        TimeoutError: time is up.
        TypeError: `request` has no `receive`, or `work` is not awaitable.
        Exception: whatever `work` raises, as itself.
    """
    if not inspect.isawaitable(work):
        raise TypeError(
            "work must be awaitable, such as client.query(...), not "
            f"{type(work).__name__}"
        )
    receive: Any = getattr(request, "receive", None)
    if not callable(receive):
        if inspect.iscoroutine(work):
            work.close()
        raise TypeError(
            "request must be that of Starlette, FastAPI or Litestar, not "
            f"{type(request).__name__}; Quart, Django and aiohttp.web (with "
            "handler_cancellation=True) cancel the handler by themselves: use "
            "asyncio.timeout there"
        )
    working: asyncio.Future[T] = asyncio.ensure_future(work)
    tasks: list[Any] = [working]
    reason = None
    try:
        # A query that needs no request is done in one turn: then the visitor need not
        # be listened to.
        await asyncio.sleep(0)
        if working.done():
            return working.result()
        visit = asyncio.ensure_future(_await_disconnect(receive))
        tasks.append(visit)
        # `asyncio.timeout` would end the work too, but not wait for its end if it is
        # cancelled.
        await asyncio.wait(
            tasks,
            timeout=seconds,
            return_when=asyncio.FIRST_COMPLETED,
        )
        # Work that is done counts, whatever else has happened in the same turn of the
        # loop.
        if working.done():
            return working.result()
        if visit.done():
            visit.result()
            raise ClientGoneError("the visitor has left")
        reason = TIME_IS_UP
        raise TimeoutError(f"no result within {seconds:g} s")
    finally:
        await cancel_and_wait(tasks, reason)


async def _await_disconnect(
    receive: Callable[[], Awaitable[Mapping[str, Any]]],
) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # what remains of a body
