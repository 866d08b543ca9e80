"""TLS: a service proves its identity, and what errors of TLS show."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from asyncfin import Client, TokenBucket
from asyncfin.errors import ConnectionFailedError, SelectionError
from asyncfin.wire.transport import Transport
from tests.services.raw import Scripted, answer, judged
from tests.wire.transporting import READ, attempted, connected, failure_of


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    return context


@asynccontextmanager
async def serving(certificate: Path) -> AsyncIterator[Scripted]:
    """A service behind TLS."""
    async with judged(lambda _: answer(), tls=server_context(certificate)) as server:
        yield server


async def test_trusted_service_is_sent_requests(certificate: Path) -> None:
    """The authority of its certificate is in `ssl`."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serving(certificate) as server, connected(server.base_url, ssl=trusting) as transport:
        assert (await attempted(transport, READ)).status == 200


async def test_unknown_authority_has_a_remedy(certificate: Path) -> None:
    """OpenSSL's reason, and what to pass; nothing is sent, and nothing retried."""
    async with serving(certificate) as server, connected(server.base_url) as transport:
        error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert (error.sent, error.retryable) == (False, False)
    assert "self-signed certificate" in str(error)
    assert "ssl.create_default_context(cafile=...)" in str(error)
    assert not server.requests


async def test_wrong_host_has_its_reason(certificate: Path) -> None:
    """The certificate is of 127.0.0.1; another authority is no remedy."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serving(certificate) as server:
        base_url = server.base_url.replace("127.0.0.1", "localhost")
        async with connected(base_url, ssl=trusting) as transport:
            error = await failure_of(transport)
    assert "ostname mismatch" in str(error)
    assert "cafile" not in str(error)


@contextmanager
def demanding_certificates(certificate: Path) -> Iterator[tuple[str, list[str]]]:
    """A server of TLS 1.3 that demands a certificate: its URL, and the errors of its connections.

    It runs in a thread: asyncio's servers close without an alert.
    """
    context = server_context(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    errors: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # it was shut down
                return
            wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with wrapped:
                try:
                    wrapped.do_handshake()
                except ssl.SSLError as error:
                    errors.append(error.reason)
                raw = socket.socket(fileno=wrapped.detach())
                with raw, suppress(OSError):
                    raw.settimeout(1)
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(4096):  # a reset would overtake the alert
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    host, port = listening.getsockname()
    try:
        yield f"https://{host}:{port}", errors
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        listening.close()


async def test_demanded_client_certificate(certificate: Path) -> None:
    """The error names the remedy, and no retry follows."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    bucket = TokenBucket()
    with demanding_certificates(certificate) as (base_url, errors):
        async with Client(base_url, "some-token", ssl=trusting, bucket=bucket) as client:
            with pytest.raises(ConnectionFailedError) as caught:
                await client.limits()
    error = caught.value
    assert (error.attempts, error.sent, error.retryable) == (1, False, False)
    assert "client certificate" in str(error)
    assert "load_cert_chain" in str(error)
    assert errors == ["PEER_DID_NOT_RETURN_A_CERTIFICATE"]


async def test_plain_port_has_its_reason() -> None:
    """The service does not speak TLS."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 some mail server\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with connected(f"https://127.0.0.1:{port}") as transport:
            error = await failure_of(transport)
    assert isinstance(error, ConnectionFailedError)
    assert "TLS failed (" in str(error)


def test_verification_is_not_switched_off() -> None:
    """`ssl=False` is rejected: only a context replaces the system's authorities."""
    with pytest.raises(SelectionError, match="ssl"):
        Transport("https://example.com", ssl=False)  # type: ignore[arg-type]
