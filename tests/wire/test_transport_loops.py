"""A transport, its event loops, and closing."""

import asyncio
import gc

import pytest

from asyncfin.wire.transport import Transport
from tests.services.raw import answer, scripted
from tests.wire.transporting import READ, attempted


def test_transport_opens_in_next_loop() -> None:
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


def test_second_open_loop_is_rejected() -> None:
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


async def test_closed_transport_is_an_error() -> None:
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
