"""Responses whose body breaks off or cannot be read: repeated only where that may help."""

from functools import partial
from typing import Any

import pytest

from asyncfin.errors import MalformedAnswerError
from asyncfin.events import RequestFinished, Retrying
from asyncfin.wire.protocol import read_dataset
from asyncfin.wire.retry import Timeouts
from tests.services.raw import answer, dropping, hanging, trickling
from tests.wire.sending import READ, of_kind, sending


@pytest.mark.virtual
@pytest.mark.parametrize("headers", [{"content_encoding": "br"}, {"content_encoding": "gzip"}])
@pytest.mark.parametrize("size", [10, 5000])
async def test_unreadable_error_uses_its_status(headers: dict[str, str], size: int) -> None:
    """A 429 pauses and a 503 is tried again, though their bodies can't be read."""
    steps = [
        answer(429, b"x" * size, retry_after="30", **headers),
        answer(503, b"x" * size, **headers),
        answer(),
    ]
    async with sending(*steps) as (server, sender, events):
        sender.transport.max_body_bytes = 1000
        assert (await sender.send(READ)).attempts == 3
    assert server.requests[1].at - server.requests[0].at >= 30
    assert [each.status for each in of_kind(events, RequestFinished)] == [429, 503, 200]


@pytest.mark.virtual
@pytest.mark.parametrize("status", [429, 500, 503, 404, 409])
@pytest.mark.parametrize("way", [dropping, hanging, partial(trickling, seconds=1)])
async def test_cut_error_body_is_retried(way: Any, status: int) -> None:
    """A 429 pauses nevertheless; of other errors the code decides, which was not received (spec 7)."""
    head = f"HTTP/1.1 {status} X\r\nRetry-After: 30\r\nContent-Length: 100\r\n\r\n12345".encode()
    timeouts = Timeouts(read=5, total=len(head) + 10)
    async with sending(way(head), answer(), timeouts=timeouts) as (server, sender, events):
        await sender.send(READ)
    failed = [each.failure for each in of_kind(events, Retrying)]
    if status in (429, 500, 503):
        assert failed == ["RateLimitedError" if status == 429 else "ServerFailureError"]
        assert server.requests[1].at - server.requests[0].at >= 30
    else:
        assert failed[0] in ("TruncatedAnswerError", "RequestTimeoutError")


@pytest.mark.virtual
@pytest.mark.parametrize("body", [b'{"a": "\xff"}', b"[" * 100_000])
async def test_malformed_response_is_not_retried(body: bytes) -> None:
    """Without a length it may have been cut: reading it is an error, whatever is wrong with it."""
    async with sending(dropping(b"HTTP/1.1 200 OK\r\n\r\n" + body)) as (server, sender, _):
        with pytest.raises(MalformedAnswerError):
            read_dataset(READ, await sender.send(READ))
    assert len(server.requests) == 1


@pytest.mark.virtual
async def test_malformed_response_shows_its_attempts() -> None:
    """The error of a caller that reads a response says how often it was requested."""
    async with sending(answer(503), answer(body=b"[]")) as (_, sender, _events):
        got = await sender.send(READ)
    with pytest.raises(MalformedAnswerError) as caught:
        read_dataset(READ, got)
    assert caught.value.attempts == 2
