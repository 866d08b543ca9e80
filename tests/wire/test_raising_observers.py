"""Observers, log handlers and callers that raise, at each event: no slot and no grant is lost."""

import asyncio
import logging
from collections import Counter
from typing import Any

import pytest

from asyncfin.events import Event, Waited
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.retry import Retry
from tests.services.raw import answer, dropping, refusal
from tests.wire.sending import NOON, READ, sending
from tests.wire.test_breaker import failing

KINDS = ["Waited", "Waiting", "RequestStarted", "RequestFinished", "Retrying"]


class Stop(BaseException):
    """Not an Exception, as KeyboardInterrupt and SystemExit are."""


class Raising(logging.Handler):
    """A log handler that raises."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self.error


async def ask_nine_times(step: Any, error: BaseException, kind: str, where: str) -> None:
    """Send eight requests during which something raises, and a ninth."""
    raises = True

    def observe(event: Event) -> None:
        if raises and type(event).__name__ == kind:
            raise error

    def on_attempt() -> None:
        if raises:
            raise error

    bucket = TokenBucket(rate=0.5, burst=1, clock=lambda: NOON)
    retry = Retry(attempts=2, wait_initial=4)
    service = lambda _: step if raises else answer()  # noqa: E731
    async with sending(judge=service, bucket=bucket, retry=retry) as (server, sender, _):
        logger, handler = logging.getLogger("asyncfin"), Raising(error)
        if where == "log handler":
            logger.addHandler(handler)
        try:
            with sender.announce.also(observe if where == "observer" else lambda event: None):
                for _number in range(8):
                    try:
                        if where == "caller":
                            await sender.send(READ, on_attempt=on_attempt)
                        else:
                            await sender.send(READ)
                    except BaseException as raised:
                        if isinstance(raised, (asyncio.CancelledError, KeyboardInterrupt)):
                            raise
                raises = False
                logger.removeHandler(handler)
                async with asyncio.timeout(60):
                    await sender.send(READ)
        finally:
            logger.removeHandler(handler)
        spent = bucket.stats().spent_today
        assert spent is not None
        assert spent <= len(server.requests)
        assert sender._shared.slots._value == sender.transport.max_in_flight


RAISED = pytest.mark.parametrize("error", [ValueError("x"), Stop("x")], ids=["Exception", "BaseException"])


@pytest.mark.virtual
@pytest.mark.parametrize("kind", KINDS)
@RAISED
async def test_observer_raises(kind: str, error: BaseException) -> None:
    """At each event of a request that is retried."""
    await ask_nine_times(refusal(503), error, kind, "observer")
    await ask_nine_times(dropping(), error, kind, "observer")


@pytest.mark.virtual
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING])
@RAISED
async def test_log_handler_raises(level: int, error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is logged."""
    caplog.set_level(level, "asyncfin")
    await ask_nine_times(refusal(503, retry_after="9" * 9), error, "", "log handler")


@pytest.mark.virtual
@RAISED
async def test_caller_raises_at_an_attempt(error: BaseException) -> None:
    """`on_attempt` is called between the grant and the sending."""
    await ask_nine_times(answer(), error, "", "caller")


@pytest.mark.virtual
async def test_observer_raises_after_an_outage() -> None:
    """Others are sent in place of the request, and the service's recovery is seen."""

    def observe(event: Event) -> None:
        if type(event).__name__ == "Waited":
            raise Stop

    async with failing(lane="bulk") as failed:
        failed.service.step = answer()
        with failed.sender.announce.also(observe), pytest.raises(Stop):
            await failed.sender.send(READ)
        async with asyncio.timeout(60):
            await failed.sender.send(READ)
            await failed.sender.send(READ)


@pytest.mark.virtual
async def test_observer_raises_between_two_attempts() -> None:
    """An attempt that has ended does not end again."""
    counts: Counter[str] = Counter()

    def observe(event: Event) -> None:
        counts[type(event).__name__] += 1
        if counts["RequestFinished"] and isinstance(event, Waited) and event.reason == "turn":
            raise Stop

    bucket = TokenBucket(rate=0.1, burst=1, clock=lambda: NOON)
    async with sending(refusal(503), bucket=bucket) as (_, sender, _events):
        with sender.announce.also(observe), pytest.raises(Stop):
            await sender.send(READ)
    assert (counts["RequestStarted"], counts["RequestFinished"]) == (1, 1)


class Remote(TokenBucket):
    """A bucket that takes a second to give a grant back."""

    async def give_back(self) -> None:
        await asyncio.sleep(1)
        await super().give_back()


@pytest.mark.virtual
async def test_cancelled_return_loses_no_grant() -> None:
    """An observer has raised, and the caller is cancelled while the grant is given back."""

    def observe(event: Event) -> None:
        if type(event).__name__ == "RequestStarted":
            raise Stop

    bucket = Remote(rate=0.5, clock=lambda: NOON)
    async with sending(answer(), bucket=bucket) as (_, sender, _events):
        with sender.announce.also(observe), pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await sender.send(READ)
    assert (bucket.stats().granted, bucket.stats().spent_today) == (0, 0)
