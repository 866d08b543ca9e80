"""A Starlette backend: the figures of a metric, as JSON, CSV or Arrow.

uvicorn examples.starlette_app:app

ASYNCFIN_ENTITIES has the ids of the companies on offer, separated by blanks.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from asyncfin import Annual, AsyncfinError, Client, MemoryCache, Retry, Select, Timeouts
from asyncfin.web import (
    ClientGoneError,
    Offer,
    check_offered,
    http_error,
    reply,
    unless_gone,
)

SECONDS, MAX_AGE = 30, 60
# The companies that visitors may ask for: a container of ids, or an async function.
OFFER: Offer = frozenset(os.environ.get("ASYNCFIN_ENTITIES", "").split())


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, Client]]:
    async with Client.from_env(
        cache=MemoryCache(),
        max_age=MAX_AGE,
        retry=Retry(attempts=2),
        timeouts=Timeouts(read=5),
    ) as client:
        yield {"client": client}


async def values(request: Request) -> Response:
    entity_id = request.path_params["entity_id"]
    await check_offered(entity_id, OFFER)
    select = Select(metric_ids=request.query_params.getlist("metric"))
    work = request.state.client.query(entity_id, select, Annual(last=5))
    # Starlette does not cancel the handler of a visitor who has left.
    panel = await unless_gone(request, work, SECONDS)
    status, headers, body = await reply(
        panel,
        accept=request.headers.get("accept"),
        if_none_match=request.headers.get("if-none-match"),
        max_age=MAX_AGE,
    )
    return Response(body, status, headers)


async def failed(request: Request, error: Exception) -> Response:
    status, text, headers = http_error(error)
    return PlainTextResponse(text, status, headers)


async def gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # no client is left to read it


app = Starlette(
    routes=[Route("/entities/{entity_id}/values", values)],
    exception_handlers={
        AsyncfinError: failed,
        TimeoutError: failed,
        ClientGoneError: gone,
    },
    lifespan=lifespan,
)
