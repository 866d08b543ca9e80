"""TLS: a service proves its identity."""

import asyncio
import ssl
from pathlib import Path

import pytest

from asyncfin.errors import ConnectionFailedError, SelectionError
from asyncfin.wire.transport import Transport
from tests.services.raw import answer, judged
from tests.wire.transporting import READ, attempted, connected, failure_of


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


def test_verification_cannot_be_switched_off_by_a_false() -> None:
    """`ssl=False` is refused: only a context replaces the system's authorities."""
    with pytest.raises(SelectionError, match="ssl"):
        Transport("https://example.com", ssl=False)  # type: ignore[arg-type]
    Transport("https://example.com", ssl=ssl.create_default_context())
