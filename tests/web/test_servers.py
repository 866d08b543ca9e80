"""The explorer under an ASGI server other than uvicorn."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from asyncfin import Client
from asyncfin.sandbox import Hang, Sandbox
from asyncfin.web import explorer
from tests.demo import demo_row
from tests.web.conftest import OWN

httpx = pytest.importorskip("httpx")
hypercorn = pytest.importorskip("hypercorn.asyncio")


@pytest.fixture
async def served() -> AsyncIterator[tuple[str, Sandbox]]:
    """Serve the explorer of the demo companies with hypercorn, on a free port of this machine."""
    stop = asyncio.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    config = hypercorn.Config()
    config.bind = [f"fd://{listening.detach()}"]  # hypercorn closes it
    config.errorlog = None
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        app = explorer(client, sandbox.entities)
        serving = asyncio.ensure_future(hypercorn.serve(app, config, shutdown_trigger=stop.wait))
        yield f"http://127.0.0.1:{port}", sandbox
        stop.set()
        await serving


async def test_leaving_visitor_under_hypercorn(served: tuple[str, Sandbox]) -> None:
    """Under hypercorn a visitor who leaves ends the request, and the next visitor is answered."""
    base_url, sandbox = served
    path = f"/company/{sandbox.entities[0]}"
    question = {"series": [demo_row("Revenue/annual")], "rule": "annual", "last": "2"}
    sandbox.inject(Hang(operation="query", nth=1))
    async with httpx.AsyncClient(base_url=base_url) as visitor:
        leaving = asyncio.ensure_future(visitor.post(f"{path}/answer", data=question, headers=OWN))
        while not any(served.operation == "query" for served in sandbox.log):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        leaving.cancel()
    async with httpx.AsyncClient(base_url=base_url) as visitor:
        answer = await visitor.post(f"{path}/answer", data=question, headers=OWN)
    assert answer.status_code == 200
    assert [served.operation for served in sandbox.log].count("query") == 2
