"""A consumer that does not let the loop run still overlaps with the next request."""

import asyncio
import select
import socket
from contextlib import aclosing

import pytest

from asyncfin import Client, FiscalRange, Query, TokenBucket
from asyncfin.model.scope import ScopeRef
from tests.answers import ENTITY_ID, encoded, page_json
from tests.services.raw import answer, scripted

QUERY = Query(["m"], [[ScopeRef("g", "s")]], FiscalRange(2020, 2021))
MORE = answer(body=encoded(page_json([], {}, next_cursor="more")))


@pytest.mark.parametrize("prefetch", [True, False])
async def test_next_page_comes_during_work(prefetch: bool) -> None:
    """Its request is on the wire when a page is given out, before the consumer works without awaiting."""
    loop = asyncio.get_running_loop()
    connections: list[socket.socket] = []

    async def respond_once() -> None:
        connection, _ = await loop.sock_accept(listening)
        connections.append(connection)
        received = b""
        while not received.endswith(b"}"):
            received += await loop.sock_recv(connection, 65_536)
        await loop.sock_sendall(connection, MORE)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        host, port = listening.getsockname()
        async with (
            asyncio.TaskGroup() as group,
            Client(f"http://{host}:{port}", "some-token", bucket=TokenBucket(1e6, 1e3)) as client,
            aclosing(client.query_pages(ENTITY_ID, QUERY, prefetch=prefetch)) as pages,
        ):
            group.create_task(respond_once())
            await anext(pages)
            ready, _, _ = select.select(connections, [], [], 0)
            assert bool(ready) == prefetch
    connections[0].close()


@pytest.mark.virtual
async def test_page_does_not_wait_for_next() -> None:
    """Where the bucket lets the next request wait, the page is given out all the same."""
    bucket = TokenBucket(rate=0.01)
    loop = asyncio.get_running_loop()
    async with (
        scripted(MORE) as server,
        Client(server.base_url, "some-token", bucket=bucket) as client,
        aclosing(client.query_pages(ENTITY_ID, QUERY, prefetch=True)) as pages,
    ):
        await anext(pages)
        assert loop.time() < 1
