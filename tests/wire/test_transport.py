"""One attempt: what is sent, what counts as an answer, and what every failure turns into."""

import asyncio
import gc
import gzip
import inspect
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from hypothesis import given, settings, strategies as st
from yarl import URL

from asyncfin.client import Client
from asyncfin.errors import (
    ArgumentError,
    ConnectionFailedError,
    MalformedAnswerError,
    RequestTimeoutError,
    SelectionError,
    TransportError,
    TruncatedAnswerError,
)
from asyncfin.tasks import decoding_lock
from asyncfin.wire import inflate
from asyncfin.wire.protocol import Request, Response
from asyncfin.wire.retry import Retry, Timeouts
from asyncfin.wire.transport import Transport
from tests.conftest import VirtualTimeLoop
from tests.scripted import answer, dropping, hanging, judged, resetting, scripted, trickling

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TOKEN = "canary-token+/0="
READ = Request("dataset", "GET", "/v1/entities/O-1/dataset", entity_id="O-1")
QUERY = Request("query", "POST", "/v1/entities/O-1/dataset/query", body=b'{"limit":1}', entity_id="O-1")


@asynccontextmanager
async def connected(base_url: str, **options: Any) -> AsyncIterator[Transport]:
    transport = Transport(base_url, **options)
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def wired(*steps: Any, **options: Any) -> AsyncIterator[Transport]:
    """A transport to a scripted server."""
    async with scripted(*steps) as server, connected(server.base_url, **options) as transport:
        yield transport


async def attempted(transport: Transport, request: Request) -> Response:
    outcome = await transport.send(request, {"Authorization": lambda: f"Bearer {TOKEN}"})
    if isinstance(outcome, Response):
        return outcome
    raise outcome


async def failure_of(transport: Transport, request: Request = READ) -> Exception:
    """Return what an attempt raises, after checking that nothing of aiohttp hangs on it."""
    with pytest.raises(Exception) as caught:
        await attempted(transport, request)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert TOKEN not in f"{error!r} {error}"
    return error


# --- what is sent


async def test_a_request_carries_the_token_its_parameters_and_who_asks() -> None:
    """The headers are those of spec 4 and 5; parameters are percent-encoded."""
    async with scripted(answer()) as server, connected(server.base_url + "/api/") as transport:
        await attempted(
            transport,
            Request(
                "catalogue", "GET", "/v1/entities/O-%2F/x", params=(("cursor", "a+b/ =&ü"), ("limit", "5"))
            ),
        )
    (sent,) = server.requests
    assert sent.method == "GET"
    assert sent.target == "/api/v1/entities/O-%2F/x?cursor=a%2Bb%2F%20%3D%26%C3%BC&limit=5"
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert sent.headers["accept"] == "application/json"
    assert sent.headers["accept-encoding"] == "gzip, zstd"
    assert sent.headers["user-agent"].startswith("asyncfin/")
    assert "content-type" not in sent.headers
    assert "cookie" not in sent.headers


async def test_a_query_is_sent_as_json_byte_for_byte() -> None:
    """The body goes out as it was built, as application/json (spec 4.3)."""
    async with scripted(answer()) as server, connected(server.base_url) as transport:
        await attempted(transport, QUERY)
    (sent,) = server.requests
    assert (sent.method, sent.body) == ("POST", QUERY.body)
    assert sent.headers["content-type"] == "application/json"


async def test_cookies_are_not_kept() -> None:
    """What one response sets is not sent with the next request."""
    async with (
        scripted(answer(set_cookie="a=b")) as server,
        # By name: aiohttp's own jar keeps no cookies of an IP address.
        connected(server.base_url.replace("127.0.0.1", "localhost")) as transport,
    ):
        await attempted(transport, READ)
        await attempted(transport, READ)
    assert "cookie" not in server.requests[1].headers


async def test_connections_are_used_again() -> None:
    """Three requests in a row share one connection."""
    async with scripted(answer()) as server, connected(server.base_url) as transport:
        for _ in range(3):
            await attempted(transport, READ)
    assert server.opened == 1


# --- what counts as an answer


@pytest.mark.parametrize("status", [200, 204, 299, 400, 401, 404, 409, 429, 500, 503, 599])
async def test_every_complete_answer_is_returned_whatever_its_status(status: int) -> None:
    """A response carries status, headers in lower case, body and time of arrival, and is not judged."""
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    body = b"" if status == 204 else b'{"x":1}'
    async with wired(answer(status, body, x_request_id="q"), clock=lambda: moment) as transport:
        got = await attempted(transport, READ)
    assert (got.status, got.body, got.at) == (status, body, moment)
    assert got.headers["x-request-id"] == "q"


@pytest.mark.parametrize("status", [408, 429, 500, 503, 599])
@pytest.mark.parametrize(
    "step",
    [
        lambda status: dropping(answer(status, b"12345", content_length="10", retry_after="7")),
        lambda status: answer(status, b"no gzip", content_encoding="gzip", retry_after="7"),
        lambda status: answer(status, b"{}", content_encoding="br", retry_after="7"),
    ],
    ids=["cut", "broken gzip", "unknown coding"],
)
async def test_a_retryable_status_is_returned_whatever_its_body(status: int, step: Any) -> None:
    """Its head says what to do; a proxy's 429 or 503 often breaks off."""
    async with wired(step(status)) as transport:
        got = await attempted(transport, READ)
    assert (got.status, got.body, got.headers["retry-after"]) == (status, b"", "7")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status: int) -> None:
    """A redirect is a response like any other, and the token goes nowhere else."""
    async with (
        scripted(answer()) as other,
        wired(answer(status, location=other.base_url)) as transport,
    ):
        assert (await attempted(transport, READ)).status == status
        assert other.requests == []


def chunked(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


PLAIN = b'{"long": "' + b"x" * 300_000 + b'"}'


@pytest.mark.parametrize(
    "raw",
    [
        answer(body=PLAIN),
        chunked(PLAIN),
        answer(body=gzip.compress(PLAIN), content_encoding="gzip"),
        answer(body=gzip.compress(PLAIN), content_encoding=" GZip"),
        answer(body=gzip.compress(PLAIN[:9]) + gzip.compress(PLAIN[9:]), content_encoding="x-gzip"),
        answer(body=zstd.compress(PLAIN), content_encoding="zstd"),
        answer(body=zstd.compress(PLAIN[:9]) + zstd.compress(PLAIN[9:]), content_encoding="zstd"),
        answer(body=PLAIN, content_encoding="identity"),
    ],
    ids=["plain", "chunked", "gzip", "gzip-named-oddly", "two-gzips", "zstd", "two-zstds", "identity"],
)
async def test_a_body_arrives_inflated_and_whole(raw: bytes) -> None:
    """A body arrives inflated and whole, however it was coded and framed."""
    async with wired(raw) as transport:
        assert (await attempted(transport, READ)).body == PLAIN


class CountingExecutor(ThreadPoolExecutor):
    """An executor that counts the jobs it is given."""

    jobs = 0

    def submit(self, *args: Any, **options: Any) -> Any:
        self.jobs += 1
        return super().submit(*args, **options)


@pytest.mark.parametrize(("size", "jobs"), [(1_000, 0), (1_000_000, 1)])
async def test_only_a_large_body_is_inflated_in_a_thread(size: int, jobs: int) -> None:
    """Inflating a large body would hold up the loop; for a small one a thread costs more than it saves."""
    executor = CountingExecutor(1)
    asyncio.get_running_loop().set_default_executor(executor)
    noise = random.Random(1).randbytes(size)
    raw = answer(body=gzip.compress(noise), content_encoding="gzip")
    async with wired(raw) as transport:
        assert (await attempted(transport, READ)).body == noise
    assert executor.jobs == jobs


# --- what does not


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
    "second gzip cut": answer(body=(gzip.compress(PLAIN) * 2)[:-9], content_encoding="gzip"),
    "zstd cut": answer(body=zstd.compress(PLAIN)[:-3], content_encoding="zstd"),
    "gzip of another checksum": answer(body=damaged(gzip.compress(PLAIN), -8), content_encoding="gzip"),
    "gzip of another length": answer(body=damaged(gzip.compress(PLAIN), -4), content_encoding="gzip"),
    "no gzip": answer(body=b"no gzip", content_encoding="gzip"),
    "gzip of no bytes": answer(body=b"", content_encoding="gzip"),
    "zstd of no bytes": answer(body=b"", content_encoding="zstd"),
    "no zstd": answer(body=b"no zstd", content_encoding="zstd"),
}


@pytest.mark.virtual
@pytest.mark.parametrize("step", TRUNCATED.values(), ids=TRUNCATED)
async def test_an_answer_that_breaks_off_is_truncated(step: Any) -> None:
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
async def test_a_connection_dropped_before_the_answer_is_one_failed_attempt(
    step: Any, request_: Request
) -> None:
    """Nothing is sent a second time behind our back, for GET neither, on a fresh or a used connection."""
    async with scripted(answer(), step) as server, connected(server.base_url) as transport:
        await attempted(transport, request_)
        assert isinstance(await failure_of(transport, request_), ConnectionFailedError)
        assert isinstance(await failure_of(transport, request_), ConnectionFailedError)
        assert len(server.requests) == 3


NOT_HTTP = [
    b"SSH-2.0-OpenSSH\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n",
    b"\x16\x03\x01\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nSSH\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
]


@pytest.mark.parametrize("raw", NOT_HTTP)
async def test_what_is_not_http_is_a_failed_connection(raw: bytes) -> None:
    """What is not HTTP is a failed connection, whose message does not quote it."""
    async with wired(dropping(raw)) as transport:
        error = await failure_of(transport)
        assert isinstance(error, ConnectionFailedError)
        assert "SSH" not in str(error)


async def test_a_port_without_a_listener_is_a_failed_connection_that_says_why() -> None:
    """When nothing listens, the message names the service and the system's reason."""
    async with scripted(answer()) as server:
        base_url = server.base_url
    async with connected(base_url) as transport:
        error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert base_url in str(error)
    assert "onnect" in str(error)


async def test_an_unknown_host_is_a_failed_connection() -> None:
    """A host name that cannot be resolved is a failed connection like any other."""
    async with connected("https://nowhere.invalid") as transport:
        assert isinstance(await failure_of(transport), ConnectionFailedError)


async def test_speaking_tls_to_a_plain_port_is_a_failed_connection() -> None:
    """A TLS handshake that fails is a failed connection, without aiohttp's words."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 some mail server\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"https://127.0.0.1:{port}") as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)


@pytest.mark.parametrize("early", [False, True])
async def test_a_server_that_speaks_first_is_a_failed_connection(
    early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sends a greeting to each connection, even before the request, is not tried for long."""
    greeted: set[asyncio.Task[Any]] = set()
    connect = aiohttp.TCPConnector.connect

    async def connect_and_wait(*args: Any, **options: Any) -> Any:
        connection = await connect(*args, **options)
        await asyncio.sleep(0.05)
        return connection

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeted.add(asyncio.current_task())  # type: ignore[arg-type]
        writer.write(b"220 some mail server\r\n")
        with suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()

    if early:
        monkeypatch.setattr(aiohttp.TCPConnector, "connect", connect_and_wait)
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"http://127.0.0.1:{port}", max_in_flight=3) as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)
        await asyncio.wait(greeted)
    assert len(greeted) == (4 if early else 1)


@pytest.mark.parametrize("unasked", [answer(body=b"[1]"), answer(408, b""), b"no HTTP\r\n\r\n"])
async def test_what_comes_on_an_idle_connection_is_not_taken_for_a_response(unasked: bytes) -> None:
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


@pytest.mark.parametrize("way", ["no shared version", "closed", "a proxy that closes"])
async def test_a_connection_that_fails_without_a_reason_says_what_is_known(
    way: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system gives no reason the message says what else is known, never None."""
    new = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    new.load_cert_chain(certificate)
    new.minimum_version = ssl.TLSVersion.TLSv1_3
    old = ssl.create_default_context(cafile=str(certificate))
    old.maximum_version = ssl.TLSVersion.TLSv1_2

    def close_once() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            if way == "no shared version":
                with new.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secured:
                    secured.do_handshake()
            connection.recv(100_000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        base_url, options = f"https://{address}", {"ssl": old}
        if way == "a proxy that closes":
            monkeypatch.setenv("https_proxy", f"http://{address}")
            base_url, options = "https://service.invalid", {"trust_env": True}
        closing = asyncio.ensure_future(asyncio.to_thread(close_once))
        async with connected(base_url, **options) as transport:
            error = await failure_of(transport)
        await closing
    assert isinstance(error, ConnectionFailedError)
    assert base_url in str(error)
    assert ("protocol version" if way == "no shared version" else "was closed") in str(error)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """An answer in which some bytes were dropped, doubled or replaced."""
    body = draw(st.sampled_from([PLAIN[:100], gzip.compress(PLAIN), zstd.compress(PLAIN)]))
    coding = draw(st.sampled_from(["gzip", "zstd", "identity", "br"]))
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
@settings(max_examples=150)
def test_whatever_comes_is_an_answer_or_an_error_of_ours(raw: bytes) -> None:
    """Spoiled bytes never hang an attempt and never show an exception of the library below."""

    async def attempt() -> None:
        async with wired(dropping(raw)) as transport:
            with suppress(TransportError, MalformedAnswerError):
                await attempted(transport, READ)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(attempt())


async def test_an_error_without_a_body_is_returned_whatever_its_coding() -> None:
    """An error response without a body is returned, whatever coding its head names."""
    async with wired(answer(404, b"", content_encoding="gzip")) as transport:
        assert (await attempted(transport, READ)).status == 404


@pytest.mark.parametrize("head", ["204 No Content", "304 Not Modified"])
async def test_a_response_that_has_no_body_is_empty_whatever_length_it_names(head: str) -> None:
    """A 304 may name the length of the body that it leaves out (RFC 9110, section 8.6)."""
    async with wired(f"HTTP/1.1 {head}\r\nContent-Length: 100\r\n\r\n".encode()) as transport:
        assert (await attempted(transport, READ)).body == b""


# --- the cap


@pytest.mark.parametrize(
    "raw",
    [
        answer(body=PLAIN),
        chunked(PLAIN),
        answer(body=gzip.compress(PLAIN), content_encoding="gzip"),
        answer(body=zstd.compress(PLAIN), content_encoding="zstd"),
        answer(body=gzip.compress(b"x" * 600) * 400, content_encoding="gzip"),
    ],
    ids=["length", "chunked", "gzip bomb", "zstd bomb", "many small gzips"],
)
async def test_a_body_larger_than_allowed_is_refused(raw: bytes) -> None:
    """A body is too large before inflating or after it; the message names the bound."""
    async with wired(raw, max_body_bytes=len(PLAIN) - 100_000) as transport:
        error = await failure_of(transport)
    assert isinstance(error, MalformedAnswerError)
    assert str(len(PLAIN) - 100_000) in str(error)


@pytest.mark.virtual
async def test_large_bodies_that_end_together_are_put_together_one_at_a_time() -> None:
    """The loop goes on between them; a small body does not wait for that."""
    async with wired(answer(body=PLAIN), answer(), max_in_flight=2) as transport, decoding_lock():
        large = asyncio.ensure_future(attempted(transport, READ))
        await asyncio.sleep(1)
        assert (await attempted(transport, READ)).body == b"{}"
        assert not large.done()
        decoding_lock().release()
        assert (await large).body == PLAIN
        await decoding_lock().acquire()


async def test_a_body_of_exactly_the_cap_is_taken() -> None:
    """A body of exactly the largest size is taken, plain and inflated."""
    for raw in (answer(body=PLAIN), answer(body=gzip.compress(PLAIN), content_encoding="gzip")):
        async with wired(raw, max_body_bytes=len(PLAIN)) as transport:
            assert (await attempted(transport, READ)).body == PLAIN


async def test_a_bomb_is_never_inflated_beyond_the_cap() -> None:
    """64 MB of zeros in 64 KB are refused with little more in memory than the largest size allowed."""
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    raw = answer(body=bomb, content_encoding="gzip")
    async with wired(raw, max_body_bytes=2 << 20) as transport:
        tracemalloc.start()
        try:
            assert isinstance(await failure_of(transport), MalformedAnswerError)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
async def test_a_body_of_very_many_compressed_streams_is_refused(pack: Any) -> None:
    """Each stream costs work, however little it holds; a thousand of them are taken."""
    coding = pack.__module__.split(".")[0].replace("backports", "zstd").replace("compression", "zstd")
    many = pack(b"") * 999
    async with wired(answer(body=many + pack(b"1"), content_encoding=coding)) as transport:
        assert (await attempted(transport, READ)).body == b"1"
    async with wired(answer(body=many * 100, content_encoding=coding)) as transport:
        error = await failure_of(transport)
    assert isinstance(error, MalformedAnswerError)
    assert "1000 compressed streams" in str(error)


class Endless:
    """A compressed stream that never ends, and gives nothing."""

    eof = needs_input = False
    unused_data = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return b""


async def test_inflating_ends_with_the_total_timeout_and_leaves_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When inflating runs into the total timeout its thread ends too, and does not keep the process alive."""
    monkeypatch.setitem(inflate._CODINGS, "gzip", Endless)
    timeouts = Timeouts(total=0.3)
    async with wired(answer(body=b"x", content_encoding="gzip"), timeouts=timeouts) as transport:
        assert isinstance(await failure_of(transport), RequestTimeoutError)
    await asyncio.get_running_loop().shutdown_default_executor()


@given(
    st.lists(st.binary(max_size=200) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=20),
    st.sampled_from(["gzip", "zstd"]),
)
@settings(max_examples=50)
def test_any_number_of_streams_inflates_to_what_was_compressed(parts: list[bytes], coding: str) -> None:
    """Streams of any sizes, empty ones too, inflate to what was compressed; cut by a byte they are broken."""
    pack = {"gzip": gzip.compress, "zstd": zstd.compress}[coding]
    body = b"".join(map(pack, parts))
    whole = b"".join(parts)
    assert asyncio.run(inflate.inflated(body, coding, len(whole))) == whole
    with pytest.raises(inflate.UnreadableError) as caught:
        asyncio.run(inflate.inflated(body[:-1], coding, len(whole)))
    assert type(caught.value.error) is TruncatedAnswerError


async def test_a_coding_not_asked_for_is_refused() -> None:
    """A body in a coding that was not asked for is malformed."""
    async with wired(answer(content_encoding="br")) as transport:
        assert isinstance(await failure_of(transport), MalformedAnswerError)


# --- time


@pytest.mark.virtual
@pytest.mark.parametrize(
    "raw", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"]
)
async def test_an_answer_that_stops_coming_ends_the_attempt_at_the_read_timeout(raw: bytes) -> None:
    """The read timeout holds before a response, within its head, and within its body."""
    loop = asyncio.get_running_loop()
    async with wired(hanging(raw), timeouts=Timeouts(read=7.5)) as transport:
        began = loop.time()
        assert isinstance(await failure_of(transport), RequestTimeoutError)
        assert loop.time() - began == pytest.approx(7.5, abs=0.01)


@pytest.mark.virtual
async def test_an_answer_that_only_trickles_ends_the_attempt_at_the_total_timeout() -> None:
    """An answer that trickles in time for `read` is ended by the total timeout."""
    loop = asyncio.get_running_loop()
    async with wired(trickling(answer(body=b"x" * 100), 5.0), timeouts=Timeouts(total=42.25)) as transport:
        began = loop.time()
        assert isinstance(await failure_of(transport), RequestTimeoutError)
        assert loop.time() - began == pytest.approx(42.25, abs=0.01)


@pytest.mark.virtual
async def test_a_connection_that_does_not_come_about_ends_at_the_connect_timeout() -> None:
    """A peer that never answers the TLS handshake runs into the connect timeout."""
    loop = asyncio.get_running_loop()
    async with scripted(hanging()) as server:
        base_url = server.base_url.replace("http:", "https:")
        async with connected(base_url, timeouts=Timeouts(connect=6.5)) as transport:
            began = loop.time()
            error = await failure_of(transport)
            assert loop.time() - began == pytest.approx(6.5, abs=0.01)
    assert isinstance(error, RequestTimeoutError)
    assert not error.sent


# --- TLS


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    extension = "subjectAltName=IP:127.0.0.1"
    command = [
        "openssl",
        *wanted.split(),
        "-addext",
        extension,
        "-keyout",
        path,
        "-out",
        path.with_suffix(".crt"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + path.with_suffix(".crt").read_bytes())
    return path


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_service_must_prove_who_it_is(trusted: bool, certificate: Path) -> None:
    """The certificate must verify by the system's authorities or those of `ssl`; else nothing is sent."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    authorities = ssl.create_default_context(cafile=str(certificate)) if trusted else None
    async with (
        judged(lambda _: answer(), tls=tls) as server,
        connected(server.base_url, ssl=authorities) as transport,
    ):
        if trusted:
            assert (await attempted(transport, READ)).status == 200
        else:
            error = await failure_of(transport)
            assert isinstance(error, ConnectionFailedError)
            assert "certificate" in str(error)
            assert (error.sent, error.retryable) == (False, False)
    assert len(server.requests) == trusted


# --- whose loop


def test_after_its_loop_has_ended_it_opens_again_in_the_next() -> None:
    """Of two runs of asyncio.run the first leaves the transport open: no warning, no leftover connection."""
    transport = Transport("http://127.0.0.1:1")

    async def once() -> int:
        async with scripted(answer()) as server:
            transport.base_url = server.base_url
            return (await attempted(transport, READ)).status

    assert asyncio.run(once()) == 200
    gc.collect()
    assert asyncio.run(once()) == 200
    gc.collect()


def test_in_a_second_loop_while_the_first_is_not_closed_it_says_so() -> None:
    """A connection cannot be shared between loops, nor closed in another; it stays usable in its own."""
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def once(transport: Transport) -> None:
        async with scripted(answer()) as server:
            transport.base_url = server.base_url
            await attempted(transport, READ)

    transport = Transport("http://127.0.0.1:1")
    try:
        first.run_until_complete(once(transport))
        with pytest.raises(RuntimeError, match="one client per loop"):
            second.run_until_complete(once(transport))
        with pytest.raises(RuntimeError, match="one client per loop"):
            second.run_until_complete(transport.aclose())
        first.run_until_complete(once(transport))
        first.run_until_complete(transport.aclose())
    finally:
        for loop in (first, second):
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


async def test_after_closing_it_says_so_and_closing_again_does_nothing() -> None:
    """A closed transport says so, whether or not it was ever opened."""
    async with scripted(answer()) as server:
        for used in (True, False):
            transport = Transport(server.base_url)
            if used:
                await attempted(transport, READ)
            await transport.aclose()
            await transport.aclose()
            with pytest.raises(RuntimeError, match="the client is closed"):
                await attempted(transport, READ)


@pytest.mark.virtual
async def test_closing_ends_what_waits_and_leaves_a_cancellation_one() -> None:
    """A cancellation in the same turn of the loop stays one, and a failure of the block's own passes."""
    transport = Transport("http://127.0.0.1:1")

    async def wait() -> str:
        async with transport.until_closed():
            await asyncio.Event().wait()
        return "closed"

    with pytest.raises(TimeoutError, match="my own"):
        async with transport.until_closed():
            raise TimeoutError("my own")
    waiting = [asyncio.ensure_future(wait()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await transport.aclose()
    await asyncio.wait(waiting)
    assert waiting[0].cancelled()
    assert waiting[1].result() == "closed"


@pytest.mark.virtual
async def test_a_connection_that_closing_breaks_is_no_failure() -> None:
    """An attempt that notices its broken connection before it is cancelled still counts as closed."""
    transport = Transport("http://127.0.0.1:1")

    async def broken() -> str:
        async with transport.until_closed():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ConnectionFailedError("the connection broke") from None
        return "closed"

    waiting = asyncio.ensure_future(broken())
    await asyncio.sleep(0)
    await transport.aclose()
    assert await waiting == "closed"


# --- arguments


@pytest.mark.parametrize(
    "base_url",
    [
        "http://example.com",
        "http://127.0.0.1.example.com",
        "http://10.0.0.1",
        "http://localhost.example.com",
        "ftp://example.com",
        "//example.com",
        "https://",
        "https://example.com:99999",
        "",
    ],
)
def test_a_base_url_that_will_not_do_is_refused_by_name(base_url: str) -> None:
    """http is for this machine only; nothing but host, port and path has a meaning."""
    with pytest.raises(SelectionError, match="base_url") as caught:
        Transport(base_url)
    assert repr(base_url) in str(caught.value)


async def test_http_to_another_machine_is_taken_on_request_with_a_warning_and_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """http to another machine warns once, at the caller's line, and goes through no proxy."""
    async with scripted(answer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base_url)
        with pytest.warns(UserWarning, match="http://service.invalid is not encrypted") as warned:
            client = Client(
                "http://service.invalid", TOKEN, allow_http=True, trust_env=True, retry=Retry(attempts=1)
            )
        assert [each.filename for each in warned] == [__file__]
        assert TOKEN not in str(warned[0].message)
        with pytest.raises(ConnectionFailedError, match=r"no connection to http://service\.invalid"):
            await client.dataset("O-" + "1" * 32)
        await client.aclose()
    assert proxy.requests == []


def test_http_to_this_machine_needs_no_warning() -> None:
    """http to this machine, and https, need neither `allow_http` nor a warning."""
    assert Transport("http://127.0.0.1:1", allow_http=True).base_url == "http://127.0.0.1:1"
    assert Transport("https://example.com", allow_http=True).base_url == "https://example.com"
    with pytest.raises(ArgumentError, match="allow_http"):
        Transport("http://example.com", allow_http="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "base_url",
    [
        "https://user:hunter2@example.com",
        "https://user:hun#ter2@example.com",
        "https://user:hun/ter2@example.com",
        "https://user:hun?ter2@example.com",
        "https://user:hunter2@example.com:99999",
        "https://user:hunter2",
        "https://user:hunter2/example.com",
        "https:// hunter2",
        "user:hunter2@example.com",
        "https://user:hunter2%40example.com",
        "https://user:hunter2\uff20example.com",
        "a-token-hunter2",
        "https://example.com/?token=hunter2",
        "https://example.com#hunter2",
        URL("https://user:hunter2@example.com"),
    ],
)
def test_a_base_url_that_may_hold_a_password_is_refused_without_showing_it(base_url: Any) -> None:
    """A base URL that may hold a password is refused without being shown, whatever else is wrong with it."""
    with pytest.raises(SelectionError, match="base_url") as caught:
        Transport(base_url)
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://example.com/", "https://example.com"),
        ("https://example.com:8443/a/b/", "https://example.com:8443/a/b"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://127.8.9.1", "http://127.8.9.1"),
        ("http://[::1]:9/", "http://[::1]:9"),
    ],
)
def test_a_base_url_loses_its_trailing_slash(given: str, kept: str) -> None:
    """A path prefix stays; all loopback addresses may use http."""
    assert Transport(given).base_url == kept


@pytest.mark.parametrize("name", ["connect", "read", "total"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), None, "5", True])
def test_a_timeout_that_is_no_positive_number_is_refused_by_name(name: str, value: Any) -> None:
    """The error names the argument and the value."""
    with pytest.raises(SelectionError, match=f"{name} .* {value!r}"):
        Timeouts(**{name: value})


@pytest.mark.parametrize("name", ["max_in_flight", "max_body_bytes"])
@pytest.mark.parametrize("value", [0, -1, 1.5, None, True])
def test_a_count_that_is_no_positive_whole_number_is_refused_by_name(name: str, value: Any) -> None:
    """The error names the argument and the value."""
    with pytest.raises(SelectionError, match=f"{name} .* {value!r}"):
        Transport("https://example.com", **{name: value})


def test_verification_cannot_be_switched_off_by_a_false() -> None:
    """`ssl=False` is refused: only a context replaces the system's authorities."""
    with pytest.raises(SelectionError, match="ssl"):
        Transport("https://example.com", ssl=False)  # type: ignore[arg-type]
    Transport("https://example.com", ssl=ssl.create_default_context())


# --- proxies


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the machine's own proxies from the environment."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("scheme", ["http://", ""])
@pytest.mark.parametrize("trust_env", [True, False])
async def test_the_environments_proxy_is_used_only_on_request(
    trust_env: bool, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's proxy is asked for a tunnel, without the token; its scheme may be left out."""
    async with scripted(answer(502)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url.replace("http://", scheme))
        async with connected("https://service.invalid", trust_env=trust_env) as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)
    assert [(each.method, each.target) for each in proxy.requests] == [
        ("CONNECT", "service.invalid:443")
    ] * trust_env
    assert all("authorization" not in each.headers for each in proxy.requests)


@pytest.mark.parametrize("excepted", ["service.invalid", "service.invalid:8443", ".invalid", "*"])
async def test_what_the_environment_excepts_is_reached_without_its_proxy(
    excepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts in no_proxy, with and without a port, are reached directly."""
    async with scripted(answer(502)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url)
        monkeypatch.setenv("no_proxy", excepted)
        async with connected("https://service.invalid:8443", trust_env=True) as transport:
            assert isinstance(await failure_of(transport), ConnectionFailedError)
    assert proxy.requests == []


async def test_plain_http_goes_through_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain http goes through no proxy, which would be sent the token in the clear."""
    async with scripted(answer()) as server, scripted(answer()) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base_url)
        async with connected(server.base_url, trust_env=True) as transport:
            await attempted(transport, READ)
    assert (len(server.requests), len(proxy.requests)) == (1, 0)


@pytest.mark.parametrize(
    "proxy",
    [
        "socks5://user:secret@127.0.0.1:1",
        "http://",
        "ftp://x",
        "http://h:99999",
        "http://u:se#cret@h",
        "http://u:s@h/#x",
    ],
)
async def test_a_proxy_of_another_kind_is_refused_without_showing_it(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy of another kind is refused by the variable's name, without its value."""
    monkeypatch.setenv("https_proxy", proxy)
    async with connected("https://example.com", trust_env=True) as transport:
        with pytest.raises(SelectionError, match="https_proxy") as caught:
            await attempted(transport, READ)
    assert proxy not in str(caught.value)


async def test_a_netrc_file_is_not_read_with_the_environments_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """A netrc password for the same host does not take the place of the token."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login someone password something\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    async with scripted(answer()) as server, connected(server.base_url, trust_env=True) as transport:
        assert (await attempted(transport, READ)).status == 200
    assert server.requests[0].token == TOKEN


@pytest.mark.parametrize(("status", "retryable"), [(407, False), (503, True)])
async def test_a_proxy_that_refuses_is_a_failed_connection(
    status: int, retryable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy's refusal is a failed connection with its status, never the service's response."""
    async with scripted(answer(status)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.base_url)
        async with connected("https://service.invalid", trust_env=True) as transport:
            error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert str(status) in str(error)
    assert (error.sent, error.retryable) == (False, retryable)


async def test_a_proxy_out_of_reach_is_what_the_error_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy out of reach is what the error names, not the service."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    async with connected("https://example.com", trust_env=True) as transport:
        error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert "no connection to the proxy" in str(error)
    assert (error.sent, error.retryable) == (False, True)


# --- what only a mock can raise


class _MockedResponse(aiohttp.ClientResponse):
    """aioresponses 0.7.9 does not know the arguments that aiohttp 3.14 added."""

    def __init__(self, *args: Any, **options: Any) -> None:
        if "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters:
            options.setdefault("stream_writer", Mock(output_size=0))
        super().__init__(*args, **options)


@pytest.fixture
def mocked(monkeypatch: pytest.MonkeyPatch) -> Any:
    aioresponses = pytest.importorskip("aioresponses")
    monkeypatch.setattr(aioresponses.core, "ClientResponse", _MockedResponse)
    with aioresponses.aioresponses() as mock:
        yield mock


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (aiohttp.ServerDisconnectedError(), ConnectionFailedError),
        (aiohttp.ClientOSError(104, "reset"), ConnectionFailedError),
        (aiohttp.ClientConnectionError("closed"), ConnectionFailedError),
        (aiohttp.ClientPayloadError("cut"), TruncatedAnswerError),
        (aiohttp.ConnectionTimeoutError(), RequestTimeoutError),
        (aiohttp.SocketTimeoutError(), RequestTimeoutError),
        (aiohttp.ServerTimeoutError(), RequestTimeoutError),
        (TimeoutError(), RequestTimeoutError),
        (aiohttp.ClientResponseError(Mock(), (), message=TOKEN), ConnectionFailedError),
        (aiohttp.TooManyRedirects(Mock(), (), message=TOKEN), ConnectionFailedError),
        (aiohttp.InvalidURL("http://x"), ConnectionFailedError),
        (aiohttp.ClientError(TOKEN), ConnectionFailedError),
        (OSError(24, "too many open files"), ConnectionFailedError),
        (ssl.SSLError("handshake"), ConnectionFailedError),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else type(each).__name__,
)
async def test_no_exception_of_the_library_below_comes_through(
    raised: Exception, expected: type[TransportError], mocked: Any
) -> None:
    """Each exception of aiohttp becomes one of ours, in our words."""
    mocked.get("https://example.com/v1/entities/O-1/dataset", exception=raised)
    async with connected("https://example.com") as transport:
        assert type(await failure_of(transport)) is expected
