"""A service of a hundred companies with one value each, which rejects some requests."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from attrs import define, field

from asyncfin.sandbox import Sandbox
from tests.handmade import dataset

TOKEN = "token-of-the-gate"
# Returns the status of a request: of an entity, an operation, and which request of that entity it is, from 1.
Status = Callable[[str, str, int], int]


def entity(number: int) -> str:
    return f"O-{number:032d}"


@define
class Gate:
    """The requests received, by entity id; `order` has the entities as first met."""

    requests: Counter[str] = field(factory=Counter)
    order: dict[str, None] = field(factory=dict)


@asynccontextmanager
async def gate(status: Status) -> AsyncIterator[tuple[Gate, str]]:
    """Serve on a free port of this machine; yield the service and its address."""
    seen = Gate()

    async def respond(request: web.Request) -> web.Response:
        entity_id, operation = request.match_info["entity_id"], request.match_info["operation"]
        seen.order[entity_id] = None
        seen.requests[entity_id] += 1
        code = status(entity_id, operation, seen.requests[entity_id])
        if code != 200:
            error = {"code": "staged", "message": "staged", "request_id": "r-1"}
            return web.json_response({"error": error}, status=code)
        url, body = f"{sandbox.base_url}{request.path_qs}", await request.read()
        async with session.request(request.method, url, data=body or None, headers=headers) as answer:
            content = await answer.read()
        return web.Response(body=content, status=answer.status, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/v1/entities/{entity_id}/{operation:dataset.*}", respond)
    companies = [dataset({("Revenue", "all"): {"FY2024": 1}}, entity_id=entity(n)) for n in range(100)]
    runner = web.AppRunner(app)
    async with Sandbox(*companies) as sandbox, aiohttp.ClientSession() as session:
        headers = {"Authorization": f"Bearer {sandbox.token}", "Content-Type": "application/json"}
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield seen, f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()
