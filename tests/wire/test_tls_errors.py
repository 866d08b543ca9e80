"""What errors of TLS say, and which hosts the environment excepts from its proxy."""

import asyncio
import ssl
from pathlib import Path

import pytest

from asyncfin.errors import ConnectionFailedError
from asyncfin.wire.address import environment_proxy
from tests.services.raw import answer, judged
from tests.wire.transporting import connected, failure_of


async def test_unknown_authority_has_a_remedy(certificate: Path) -> None:
    """OpenSSL's reason, and what to pass."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with (
        judged(lambda _: answer(), tls=tls) as server,
        connected(server.base_url) as transport,
    ):
        error = await failure_of(transport)
    assert "self-signed certificate" in str(error)
    assert "ssl.create_default_context(cafile=...)" in str(error)


async def test_wrong_host_has_its_reason(certificate: Path) -> None:
    """The certificate is of 127.0.0.1, and the client asks localhost; another authority is no remedy."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    authorities = ssl.create_default_context(cafile=str(certificate))
    async with judged(lambda _: answer(), tls=tls) as server:
        base_url = server.base_url.replace("127.0.0.1", "localhost")
        async with connected(base_url, ssl=authorities) as transport:
            error = await failure_of(transport)
    assert "ostname mismatch" in str(error)
    assert "cafile" not in str(error)


async def test_plain_port_has_its_reason() -> None:
    """The service speaks something else where TLS is expected."""

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


EXCEPTED = [
    ("10.1.2.3", "10.0.0.0/8"),
    ("10.1.2.3:8443", "192.168.0.0/16, 10.0.0.0/8"),
    ("[fd00::1]", "fd00::/8"),
    ("[fd00::1]", "[fd00::1]"),
    ("[fd00::1]:8443", "[fd00::1]:8443"),
    ("[fd00::1]", "fd00::1"),
    ("service.example", "service.example."),
    ("service.example.", "service.example"),
    ("api.service.example.", ".service.example"),
    ("api.service.example", "service.example."),
]
NOT_EXCEPTED = [
    ("11.1.2.3", "10.0.0.0/8"),
    ("service.example", "10.0.0.0/8"),
    ("[fd00::1]:8443", "[fd00::1]:443"),
    ("otherservice.example", "service.example."),
    ("service.example", ""),
]


@pytest.mark.parametrize(("host", "excepted"), EXCEPTED)
def test_proxy_is_excepted(host: str, excepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks, addresses in brackets and names with a final dot."""
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", excepted)
    assert environment_proxy(f"https://{host}") is None


@pytest.mark.parametrize(("host", "excepted"), NOT_EXCEPTED)
def test_proxy_is_not_excepted(host: str, excepted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other networks, ports and names."""
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", excepted)
    assert environment_proxy(f"https://{host}") == "http://proxy.example:3128"
