"""Errors as HTTP responses, and work that ends when its visitor leaves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any, NamedTuple, Protocol, TypeVar

from asyncfin.errors import (
    AllowanceExhaustedError,
    ArgumentError,
    AsyncfinError,
    BucketUnavailableError,
    NotFoundError,
    RateLimitedError,
    RequestTimeoutError,
    SelectionError,
)
from asyncfin.tasks import cancel_and_wait

T = TypeVar("T")

# Where an error does not say when to come back: a pause of the bucket is over within seconds.
_RETRY_AFTER = 5


class HttpError(NamedTuple):
    """The response to a visitor in place of data.

    Attributes:
        status: the HTTP status.
        text: a sentence without secrets.
        headers: ``Retry-After`` with a 503.
    """

    status: int
    text: str
    headers: dict[str, str]


class ClientGoneError(Exception):
    """The visitor has closed the connection, so no response is needed."""


class _Request(Protocol):
    """An ASGI request, such as Starlette's and FastAPI's."""

    @property
    def receive(self) -> Callable[[], Awaitable[Mapping[str, Any]]]: ...


def http_error(error: BaseException) -> HttpError:
    """Return the status, text and headers of the response for an error.

    ========================================================================= ====================
    error                                                                     status
    ========================================================================= ====================
    `SelectionError`                                                          400
    `NotFoundError`                                                           404
    `ArgumentError`                                                           500
    `RateLimitedError`, `AllowanceExhaustedError`, `BucketUnavailableError`   503, Retry-After
    `TimeoutError`, `RequestTimeoutError`                                     504
    every other `AsyncfinError`, 401 and 403 of the service included          502
    ========================================================================= ====================

    Raises:
        BaseException: `error` itself, if it is something else.
    """
    match error:
        case ArgumentError():  # a SelectionError too, but the backend's own mistake
            return HttpError(500, f"the backend is set up wrongly: {error}", {})
        case SelectionError():
            return HttpError(400, str(error), {})
        case NotFoundError():
            return HttpError(404, str(error), {})
        case RateLimitedError() | BucketUnavailableError():
            return HttpError(503, str(error), {"Retry-After": str(_retry_after(error))})
        case TimeoutError() | RequestTimeoutError():
            return HttpError(504, str(error) or "the answer did not come in time", {})
        case AsyncfinError():
            return HttpError(502, str(error), {})
    raise error


def _retry_after(error: AsyncfinError) -> int:
    """Return the whole seconds after which a visitor may come back, at least 1."""
    if isinstance(error, AllowanceExhaustedError):
        # Retry-After takes whole seconds (RFC 9110, section 10.2.3); rounded down, it would be too early.
        return max(1, ceil((error.resume_at - datetime.now(UTC)).total_seconds()))
    return max(1, ceil(getattr(error, "retry_after", None) or _RETRY_AFTER))


async def unless_gone(request: _Request, work: Awaitable[T], seconds: float) -> T:
    """Return the result of `work`. If its visitor leaves or time is up, cancel it and wait for its end.

    ASGI frameworks do not cancel a handler whose visitor has left. Call this after the request's body has
    been read, since it listens to `request.receive` until it returns.

    Args:
        request: Starlette's or FastAPI's request, or anything else with an ASGI `receive`.
        work: an awaitable, such as ``client.query(...)``.
        seconds: how long the work may take.

    Raises:
        ClientGoneError: the visitor has left.
        TimeoutError: time is up.
        Exception: whatever `work` raises, as itself.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        # `asyncio.timeout` around the work would end it too, but not wait for its end if it is cancelled
        # meanwhile.
        await asyncio.wait([working, leaving], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        # Work that is done counts, whatever else has happened in the same turn of the loop.
        if working.done():
            return working.result()
        if leaving.done():
            leaving.result()
            raise ClientGoneError("the visitor has left")
        raise TimeoutError(f"no answer within {seconds:g} s")
    finally:
        await cancel_and_wait([working, leaving])


async def _left(request: _Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass  # what is left of a body
