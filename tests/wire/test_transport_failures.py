"""What each failure of a connection turns into."""

import asyncio
import gzip
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import (
    ConnectionFailedError,
    MalformedAnswerError,
    TransportError,
    TruncatedAnswerError,
)
from asyncfin.wire.protocol import Request
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.services.raw import answer, dropping, resetting, scripted
from tests.wire.transporting import (
    PLAIN,
    QUERY,
    READ,
    attempted,
    chunked,
    connected,
    failure_of,
    wired,
)


def damaged(body: bytes, at: int) -> bytes:
    """Return a body with one bit inverted."""
    changed = bytearray(body)
    changed[at] ^= 1
    return bytes(changed)


TRUNCATED = {
    "short of its length": dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"),
    "reset within the body": resetting(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"),
    "no body at all": dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
    "no last chunk": dropping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    "within a chunk": dropping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"),
    "gzip cut": answer(body=gzip.compress(PLAIN)[:-9], content_encoding="gzip"),
    "gzip of another checksum": answer(body=damaged(gzip.compress(PLAIN), -8), content_encoding="gzip"),
    "gzip of another length": answer(body=damaged(gzip.compress(PLAIN), -4), content_encoding="gzip"),
    "no gzip": answer(body=b"no gzip", content_encoding="gzip"),
    "gzip of no bytes": answer(body=b"", content_encoding="gzip"),
}


@pytest.mark.virtual
@pytest.mark.parametrize("step", TRUNCATED.values(), ids=TRUNCATED)
async def test_cut_response_is_truncated(step: Any) -> None:
    """A response that breaks off is truncated, whether the framing or the compression shows it."""
    async with wired(step) as transport:
        assert isinstance(await failure_of(transport), TruncatedAnswerError)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "step",
    [dropping(), dropping(b"HTTP/1.1 200"), dropping(b"HTTP/1.1 200 OK\r\nX: y\r\n"), resetting(b"")],
    ids=["nothing", "half a line", "half a head", "reset"],
)
@pytest.mark.parametrize("request_", [READ, QUERY], ids=["GET", "POST"])
async def test_dropped_connection_is_one_attempt(step: Any, request_: Request) -> None:
    """Nothing is sent a second time behind our back, for GET neither, on a fresh or a used connection."""
    async with scripted(answer(), step) as server, connected(server.base_url) as transport:
        await attempted(transport, request_)
        assert isinstance(await failure_of(transport, request_), ConnectionFailedError)
        assert isinstance(await failure_of(transport, request_), ConnectionFailedError)
        assert len(server.requests) == 3


async def test_early_speaking_server_is_failed_connection() -> None:
    """A server that sends a greeting to each connection is not tried again."""
    greetings = 0

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greetings
        greetings += 1
        writer.write(b"220 some mail server\r\n")
        with suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"http://127.0.0.1:{port}") as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)
    assert greetings == 1


@pytest.mark.parametrize("unasked", [answer(body=b"[1]"), answer(408, b""), b"no HTTP\r\n\r\n"])
async def test_idle_bytes_are_no_response(unasked: bytes) -> None:
    """The request goes out on another connection, once, and gets its own response."""
    idle = asyncio.Event()

    async def more(writer: asyncio.StreamWriter) -> bool:
        writer.write(answer(body=b"[0]"))
        await idle.wait()
        writer.write(unasked)
        await writer.drain()
        return True

    async with scripted(more, answer(body=b"[2]")) as server, connected(server.base_url) as transport:
        assert (await attempted(transport, READ)).body == b"[0]"
        idle.set()
        await asyncio.sleep(0.05)
        assert (await attempted(transport, READ)).body == b"[2]"
        assert (len(server.requests), server.opened) == (2, 2)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """An answer in which some bytes were dropped, doubled or replaced."""
    body = draw(st.sampled_from([PLAIN[:100], gzip.compress(PLAIN)]))
    coding = draw(st.sampled_from(["gzip", "identity", "br"]))
    raw = draw(st.sampled_from([answer(body=body, content_encoding=coding), chunked(body)]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(raw)))
        end = draw(st.integers(start, min(start + 20, len(raw))))
        filling = draw(
            st.binary(max_size=5) | st.sampled_from([b"\r\n", b"\r\n\r\n", b": ", b"0\r\n", b"9" * 30])
        )
        raw = raw[:start] + filling + raw[end:]
    return raw


@given(raw=spoiled())
@settings(max_examples=examples(150))
def test_any_bytes_are_response_or_error(raw: bytes) -> None:
    """Spoiled bytes never hang an attempt and never show an exception of the library below."""

    async def attempt() -> None:
        async with wired(dropping(raw)) as transport:
            with suppress(TransportError, MalformedAnswerError):
                await attempted(transport, READ)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(attempt())
