"""An aiohttp.web backend: the figures of a metric, as JSON, CSV or Arrow.

python -m examples.aiohttp_app

ASYNCFIN_ENTITIES has the ids of the companies on offer, separated by blanks.
"""

import asyncio
import os
from collections.abc import AsyncIterator

from aiohttp import web

from asyncfin import Annual, AsyncfinError, Client, MemoryCache, Retry, Select, Timeouts
from asyncfin.web import Offer, check_offered, http_error, reply

SECONDS, MAX_AGE = 30, 60
# The companies that visitors may ask for: a container of ids, or an async function.
OFFER: Offer = frozenset(os.environ.get("ASYNCFIN_ENTITIES", "").split())
CLIENT = web.AppKey("client", Client)


async def lifespan(app: web.Application) -> AsyncIterator[None]:
    async with Client.from_env(
        cache=MemoryCache(),
        max_age=MAX_AGE,
        retry=Retry(attempts=2),
        timeouts=Timeouts(read=5),
    ) as client:
        app[CLIENT] = client
        yield


async def values(request: web.Request) -> web.Response:
    try:
        entity_id = request.match_info["entity_id"]
        await check_offered(entity_id, OFFER)
        select = Select(metric_ids=request.query.getall("metric", []))
        # With `handler_cancellation` the handler of a visitor who has left is
        # cancelled.
        async with asyncio.timeout(SECONDS):
            panel = await request.app[CLIENT].query(entity_id, select, Annual(last=5))
        status, headers, body = await reply(
            panel,
            accept=request.headers.get("Accept"),
            if_none_match=request.headers.get("If-None-Match"),
            max_age=MAX_AGE,
        )
    except (AsyncfinError, TimeoutError) as error:
        status, text, headers = http_error(error)
        return web.Response(text=text, status=status, headers=headers)
    return web.Response(body=body, status=status, headers=headers)


app = web.Application()
app.cleanup_ctx.append(lifespan)
app.add_routes([web.get("/entities/{entity_id}/values", values)])

if __name__ == "__main__":
    # Without it the requests of a visitor who has left would continue.
    web.run_app(app, host="127.0.0.1", handler_cancellation=True)
