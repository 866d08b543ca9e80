"""Errors as HTTP responses, and work that ends when its visitor leaves."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from asyncfin import errors
from asyncfin.web import ClientGoneError, http_error, unless_gone

SERVICE: dict[str, Any] = {"message": "no"}


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.ArgumentError("rate=-1: must be positive"), 500),
        (errors.SelectionError("no such metric"), 400),
        (errors.NotFoundError(status=404, **SERVICE), 404),
        (errors.RateLimitedError(status=429, **SERVICE), 503),
        (errors.AllowanceExhaustedError(status=429, resume_at=datetime.now(UTC), **SERVICE), 503),
        (errors.BucketUnavailableError("the bucket is away"), 503),
        (TimeoutError(), 504),
        (errors.RequestTimeoutError("nothing arrived"), 504),
        (errors.ConnectionFailedError("no connection"), 502),
        (errors.AuthenticationError(status=401, **SERVICE), 502),
        (errors.PermissionDeniedError(status=403, **SERVICE), 502),
        (errors.ServerFailureError(status=500, **SERVICE), 502),
        (errors.DatasetChangedError(status=409, **SERVICE), 502),
        (errors.MalformedAnswerError("no JSON"), 502),
    ],
)
def test_errors_have_statuses(error: Exception, status: int) -> None:
    """A visitor's fault is 4xx, the service's 5xx; only what passes by itself says when to come back."""
    answer = http_error(error)
    assert answer.status == status
    assert answer.text
    assert ("Retry-After" in answer.headers) == (status == 503)


def test_retry_after_is_in_whole_seconds() -> None:
    """A visitor who comes back after Retry-After does not come too early."""
    resume_at = datetime.now(UTC) + timedelta(seconds=90.5)
    exhausted = errors.AllowanceExhaustedError(status=429, resume_at=resume_at, **SERVICE)
    assert http_error(exhausted).headers["Retry-After"] in ("90", "91")
    soon = errors.RateLimitedError(status=429, retry_after=0.4, **SERVICE)
    assert http_error(soon).text.endswith("come back in 1 second")
    limited = errors.RateLimitedError(status=429, retry_after=2.1, **SERVICE)
    assert http_error(limited).headers == {"Retry-After": "3"}


@pytest.mark.parametrize(
    "error",
    [
        errors.ServerFailureError(status=503, answered=False, attempts=0),
        errors.ServiceError(status=408, answered=False, attempts=0),
        errors.RequestTimeoutError("nothing arrived", sent=False, attempts=0),
        errors.ConnectionFailedError("no connection", sent=False, attempts=0),
    ],
)
def test_failing_service_is_a_503(error: errors.AsyncfinError) -> None:
    """Nothing was sent for this visitor, whatever the last failure was."""
    status, text, headers = http_error(error)
    assert (status, headers) == (503, {"Retry-After": "30"})
    assert text == "the data service is not available at the moment; come back in 30 seconds"


@pytest.mark.parametrize("error", [ValueError("a defect"), KeyboardInterrupt(), ClientGoneError()])
def test_other_errors_are_raised_again(error: BaseException) -> None:
    """A defect of the backend is not hidden behind a status."""
    with pytest.raises(type(error)) as raised:
        http_error(error)
    assert raised.value is error


class Visitor:
    """An ASGI request whose visitor leaves at `leave`."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.listening = 0

    async def receive(self) -> dict[str, Any]:
        self.listening += 1
        try:
            await self.left.wait()
        finally:
            self.listening -= 1
        return {"type": "http.disconnect"}


class Work:
    """Work that notes how it ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.ended = ""

    async def __call__(self) -> str:
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            await asyncio.sleep(1)  # cleaning up takes time
            self.ended = "cancelled"
            raise
        self.ended = "done"
        return "answer"


@pytest.mark.virtual
async def test_work_in_time_returns() -> None:
    """The visitor's connection is left as it was found."""
    visitor, work = Visitor(), Work(5)
    assert await unless_gone(visitor, work(), 10) == "answer"
    assert visitor.listening == 0
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.virtual
async def test_leaving_visitor_ends_the_work() -> None:
    """No task is left behind, and what the work has to clean up is cleaned up."""
    visitor, work = Visitor(), Work(100)
    asyncio.get_running_loop().call_later(3, visitor.left.set)
    with pytest.raises(ClientGoneError):
        await unless_gone(visitor, work(), 50)
    assert work.ended == "cancelled"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.virtual
async def test_slow_work_is_ended() -> None:
    """The bound is the caller's."""
    visitor, work = Visitor(), Work(100)
    with pytest.raises(TimeoutError, match="10 s"):
        await unless_gone(visitor, work(), 10)
    assert work.ended == "cancelled"
    assert visitor.listening == 0


@pytest.mark.virtual
async def test_a_cancelled_handler_ends_its_work() -> None:
    """A server that shuts down leaves no work behind."""
    visitor, work = Visitor(), Work(100)
    handler = asyncio.ensure_future(unless_gone(visitor, work(), 50))
    await asyncio.sleep(1)
    handler.cancel()
    with pytest.raises(asyncio.CancelledError):
        await handler
    assert work.ended == "cancelled"
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.virtual
@pytest.mark.parametrize(
    "make", [lambda: errors.NotFoundError(status=404, **SERVICE), lambda: ValueError("x")]
)
async def test_error_of_the_work_is_raised(make: Callable[[], Exception]) -> None:
    """The work's own error comes out neither wrapped nor grouped."""
    error = make()

    async def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await unless_gone(Visitor(), fail(), 10)
    assert raised.value is error


@pytest.mark.virtual
async def test_wrong_work_is_rejected() -> None:
    """A function that was not called is the usual mistake."""
    visitor: Any = Visitor()
    work: Any = Work(5)
    with pytest.raises(TypeError, match=r"^work must be awaitable, .*, not Work$"):
        await unless_gone(visitor, work, 10)
    assert visitor.listening == 0
    assert len(asyncio.all_tasks()) == 1
