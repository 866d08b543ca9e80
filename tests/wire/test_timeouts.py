"""The timeouts of one attempt."""

import asyncio

import pytest

from asyncfin.errors import RequestTimeoutError
from asyncfin.wire.retry import Timeouts
from tests.services.raw import answer, hanging, scripted, trickling
from tests.wire.transporting import connected, failure_of, wired


@pytest.mark.virtual
@pytest.mark.parametrize(
    "raw", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"]
)
async def test_read_timeout_ends_silence(raw: bytes) -> None:
    """The read timeout holds before a response, within its head, and within its body."""
    loop = asyncio.get_running_loop()
    async with wired(hanging(raw), timeouts=Timeouts(read=7.5)) as transport:
        began = loop.time()
        assert isinstance(await failure_of(transport), RequestTimeoutError)
        assert loop.time() - began == pytest.approx(7.5, abs=0.01)


@pytest.mark.virtual
async def test_total_timeout_ends_trickling() -> None:
    """An answer that trickles in time for `read` is ended by the total timeout."""
    loop = asyncio.get_running_loop()
    async with wired(trickling(answer(body=b"x" * 100), 5.0), timeouts=Timeouts(total=42.25)) as transport:
        began = loop.time()
        assert isinstance(await failure_of(transport), RequestTimeoutError)
        assert loop.time() - began == pytest.approx(42.25, abs=0.01)


@pytest.mark.virtual
async def test_connect_timeout_ends_connecting() -> None:
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
