"""A consumer that does not let the loop run still overlaps with the next request."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, Query, TokenBucket
from asyncfin.model.scope import ScopeRef
from tests.answers import ENTITY_ID, encoded, page_json
from tests.services.raw import answer, scripted

QUERY = Query(["m"], [[ScopeRef("g", "s")]], FiscalRange(2020, 2021))
LATENCY = 0.15
PAGES = 6


@contextmanager
def slow_service() -> Iterator[str]:
    """Give the URL of a service in another thread, each of whose pages takes a while."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = int(sent.get("cursor", "0")) + 1
            time.sleep(LATENCY)
            body = encoded(page_json([], {}, next_cursor=str(number) if number < PAGES else None))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("prefetch", "overlaps"), [(True, True), (False, False)])
async def test_next_page_comes_during_work(prefetch: bool, overlaps: bool) -> None:
    """It works as long as the service does, without awaiting: the next page takes hardly any longer."""
    bucket = TokenBucket(rate=1e6, burst=1e3)
    waits: list[float] = []
    with slow_service() as url:
        async with (
            Client(url, "some-token", bucket=bucket) as client,
            aclosing(client.query_pages(ENTITY_ID, QUERY, prefetch=prefetch)) as pages,
        ):
            await anext(pages)
            for _ in range(PAGES - 1):
                time.sleep(LATENCY)  # noqa: ASYNC251  it is what this test is about
                began = time.monotonic()
                await anext(pages)
                waits.append(time.monotonic() - began)
    assert (sorted(waits)[len(waits) // 2] < 0.09) == overlaps


@pytest.mark.virtual
async def test_page_does_not_wait_for_next() -> None:
    """Where the bucket lets the next request wait, the page is given out all the same."""
    bucket = TokenBucket(rate=0.01)
    loop = asyncio.get_running_loop()
    async with (
        scripted(answer(body=encoded(page_json([], {}, next_cursor="more")))) as server,
        Client(server.base_url, "some-token", bucket=bucket) as client,
        aclosing(client.query_pages(ENTITY_ID, QUERY, prefetch=True)) as pages,
    ):
        await anext(pages)
        assert loop.time() < 1
