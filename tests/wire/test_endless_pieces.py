"""Heads, headers, trailers and chunks without end, and headers that are merely large."""

import asyncio
import contextlib
import tracemalloc

import pytest

from asyncfin.errors import AsyncfinError, MalformedAnswerError
from asyncfin.wire.protocol import dataset_request, retry_after
from asyncfin.wire.retry import Timeouts
from tests.services.raw import Step, answer
from tests.wire.sending import READ, sending
from tests.wire.transporting import attempted, failure_of, wired

HEAD = b"HTTP/1.1 200 OK\r\n"


def endless(begin: bytes, piece: bytes) -> Step:
    """Write a beginning, and then a piece again and again until the connection is closed."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        writer.write(begin)
        pieces = piece * (65_536 // len(piece) + 1)
        with contextlib.suppress(ConnectionError):
            for _ in range(4_000):  # 256 MB
                writer.write(pieces)
                await writer.drain()
        return False

    return step


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PIECES = {
    "status line": (b"HTTP/1.1 200 ", b"x" * 1000),
    "header": (HEAD + b"X-Long: ", b"x" * 1000),
    "headers": (HEAD, b"X-One: 1\r\n"),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-One: 1\r\n"),
    "trailer": (CHUNKED + b"2\r\n{}\r\n0\r\nX-Long: ", b"x" * 1000),
    "chunks": (CHUNKED, b"1\r\nx\r\n"),
    "chunk size": (CHUNKED, b"0" * 1000),
    "chunk extension": (CHUNKED + b"1;x=", b"x" * 1000),
    "body": (HEAD + b"\r\n", b"x" * 1000),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}


@pytest.mark.parametrize("kind", PIECES)
async def test_endless_piece_ends_in_an_error(kind: str) -> None:
    """With a few megabytes in memory."""
    async with wired(
        endless(*PIECES[kind]), max_body_bytes=1 << 20, timeouts=Timeouts(total=20)
    ) as transport:
        tracemalloc.start()
        try:
            async with asyncio.timeout(60):
                assert isinstance(await failure_of(transport), AsyncfinError)
            assert tracemalloc.get_traced_memory()[1] < 24 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("headers", [b"X-Long: " + b"x" * 65_000 + b"\r\n", b"X-One: 1\r\n" * 990])
async def test_large_headers_are_read(headers: bytes) -> None:
    """64 KiB and a thousand of them."""
    raw = HEAD + headers + b"Content-Length: 2\r\n\r\n{}"
    async with wired(raw) as transport:
        assert (await attempted(transport, READ)).body == b"{}"


@pytest.mark.virtual
@pytest.mark.parametrize("headers", [b"X-Long: " + b"x" * 70_000 + b"\r\n", b"X-One: 1\r\n" * 1_010])
async def test_larger_headers_are_not_retried(headers: bytes) -> None:
    """The error says what is too large."""
    async with sending(HEAD + headers + b"Content-Length: 2\r\n\r\n{}") as (server, sender, _):
        with pytest.raises(MalformedAnswerError) as caught:
            await sender.send(READ)
    assert len(server.requests) == 1
    assert "more than 1,000 headers" in str(caught.value)
    assert "65,536 bytes" in str(caught.value)


@pytest.mark.virtual
async def test_plain_json_named_as_compressed() -> None:
    """The message says so, and it is not retried."""
    async with sending(answer(content_encoding="gzip")) as (server, sender, _):
        with pytest.raises(MalformedAnswerError) as caught:
            await sender.send(READ)
    assert len(server.requests) == 1
    assert "JSON, and not gzip" in str(caught.value)


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("lines", "expected"),
    [(["5", "60"], 60), (["60", "5"], 60), (["x", "7"], 7), (["x"], None), (["3"], 3)],
)
async def test_longest_retry_after_counts(lines: list[str], expected: float | None) -> None:
    """Of a header that is there twice."""
    headers = "".join(f"Retry-After: {line}\r\n" for line in lines).encode()
    raw = b"HTTP/1.1 503 Whatever\r\nContent-Length: 0\r\n" + headers + b"\r\n"
    async with wired(raw) as transport:
        response = await attempted(transport, dataset_request("O-1"))
    assert retry_after(response) == expected
