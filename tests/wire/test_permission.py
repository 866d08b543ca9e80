"""The token and the grant of the bucket before an attempt is sent."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from asyncfin.errors import (
    AllowanceExhaustedError,
    BucketUnavailableError,
    ConnectionFailedError,
    ServerFailureError,
)
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.protocol import limits_request
from asyncfin.wire.retry import Retry
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.services.raw import Received, answer, dropping, refusal
from tests.wire.sending import NOON, READ, sending


def renewed_after(seconds: float, renewals: list[str]) -> Any:
    """Return a token callable that takes `seconds` from its second call on."""

    async def ask() -> str:
        if renewals:
            await asyncio.sleep(seconds)
        renewals.append(f"token-{len(renewals)}")
        return renewals[-1]

    return ask


def refusing_the_first(received: Received) -> bytes:
    return refusal(401) if received.token == "token-0" else answer()


@pytest.mark.virtual
async def test_renewed_token_causes_no_rush() -> None:
    """While a token is renewed nothing is granted ahead: the pace holds for what is sent."""
    bucket = TokenBucket(rate=4, clock=lambda: NOON)
    renewals: list[str] = []
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(2.5, renewals)) as (
        server,
        sender,
        _,
    ):
        await asyncio.gather(*(sender.send(READ) for _ in range(8)))
    sent = [received.at for received in server.requests]
    assert len(renewals) == 2
    assert all(later - earlier > 0.24 for earlier, later in pairwise(sent))
    assert bucket.stats().granted == sender.stats().requests == len(sent)


@pytest.mark.virtual
async def test_leaving_a_renewal_spends_nothing() -> None:
    """A request cancelled while a token is renewed has spent nothing of the bucket or the day."""
    bucket = TokenBucket(rate=4, burst=4, daily_budget=100, clock=lambda: NOON)
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(50, [])) as (
        server,
        sender,
        _,
    ):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(8)]
        await asyncio.sleep(10)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    stats = bucket.stats()
    assert stats.granted == stats.spent_today == sender.stats().requests == len(server.requests)


@pytest.mark.virtual
async def test_cancelled_usage_returns_no_spending() -> None:
    """A grant whose token was refused before it was sent counts for nothing, so the day's spending stays."""
    bucket = TokenBucket(rate=4, burst=1, daily_budget=100, clock=lambda: NOON)
    for _ in range(3):
        await bucket.acquire()
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(2.5, [])) as (
        _,
        sender,
        _,
    ):
        await asyncio.gather(*(sender.send(limits_request()) for _ in range(8)))
    assert bucket.stats().spent_today == 3


async def test_unsent_requests_are_not_spent() -> None:
    """Five attempts at a closed port spend nothing of the day, and their places in the pace."""
    bucket = TokenBucket(rate=1e6, burst=1e3, daily_budget=3, clock=lambda: NOON)
    transport = Transport("http://127.0.0.1:1")
    sender = Sender(transport, "some-token", bucket=bucket, retry=Retry(wait_initial=0))
    with pytest.raises(ConnectionFailedError, match=r":1: connection refused") as caught:
        await sender.send(READ)
    await transport.aclose()
    assert (caught.value.attempts, caught.value.sent) == (5, False)
    assert (bucket.stats().granted, bucket.stats().spent_today) == (5, 0)


@pytest.mark.virtual
async def test_possibly_received_requests_are_spent() -> None:
    """An attempt whose connection was dropped may have reached the service, and is spent."""
    bucket = TokenBucket(rate=1e6, burst=1e3, daily_budget=100, clock=lambda: NOON)
    async with sending(dropping(), bucket=bucket) as (server, sender, _):
        with pytest.raises(ConnectionFailedError):
            await sender.send(READ)
    assert bucket.stats().spent_today == len(server.requests) == 5


@pytest.mark.virtual
async def test_bucket_rejection_names_earlier_failure() -> None:
    """The bucket's own refusal is not answered by the service, and names the failure before it."""
    bucket = TokenBucket(rate=1e6, daily_budget=1, clock=lambda: NOON)
    async with sending(refusal(503), bucket=bucket) as (_, sender, _events):
        with pytest.raises(
            AllowanceExhaustedError, match=r"^the bucket's daily budget of 1 is used up"
        ) as caught:
            await sender.send(READ)
    error = caught.value
    failed = error.__cause__
    assert isinstance(failed, ServerFailureError)
    assert (error.answered, error.attempts, failed.operation, failed.attempts) == (False, 1, "dataset", 1)
    assert "message: the bucket's daily budget" in error.report()
    assert "status" not in error.report()


class Unreachable(TokenBucket):
    """A bucket that grants, and to which no failure can be reported."""

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        raise BucketUnavailableError("the bucket's server is gone")

    async def unspend(self, *, sent_at: float) -> None:
        raise BucketUnavailableError("the bucket's server is gone")


@pytest.mark.parametrize(("kind", "spending"), [(TokenBucket, 0), (Unreachable, 1)])
async def test_leaving_while_connecting_spends_nothing(kind: type[TokenBucket], spending: int) -> None:
    """The service never answers the TLS handshake. The bucket's failure hides no cancellation."""
    connected = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    bucket = kind(rate=1e6, burst=1e3, daily_budget=3, clock=lambda: NOON)
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        transport = Transport(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        sender = Sender(transport, "some-token", bucket=bucket)
        request = asyncio.ensure_future(sender.send(READ))
        await connected.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await transport.aclose()
    assert (bucket.stats().granted, bucket.stats().spent_today) == (1, spending)


async def test_bucket_failure_keeps_service_failure() -> None:
    """The cause of the bucket's error is the failed connection that it could not record."""
    transport = Transport("http://127.0.0.1:1")
    with pytest.raises(BucketUnavailableError) as caught:
        await Sender(transport, "some-token", bucket=Unreachable()).send(READ)
    await transport.aclose()
    cause = caught.value.__cause__
    assert isinstance(cause, ConnectionFailedError)
    assert (caught.value.attempts, cause.attempts, cause.sent) == (1, 1, False)
