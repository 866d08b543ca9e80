"""A Litestar backend: the figures of a metric, as JSON, CSV or Arrow.

uvicorn examples.litestar_app:app

ASYNCFIN_ENTITIES has the ids of the companies on offer, separated by blanks.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, Request, Response, get

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
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    async with Client.from_env(
        cache=MemoryCache(),
        max_age=MAX_AGE,
        retry=Retry(attempts=2),
        timeouts=Timeouts(read=5),
    ) as client:
        app.state.client = client
        yield


@get("/entities/{entity_id:str}/values")
async def values(request: Request[Any, Any, Any]) -> Response[bytes]:
    entity_id = request.path_params["entity_id"]
    await check_offered(entity_id, OFFER)
    select = Select(metric_ids=request.query_params.getall("metric", []))
    work = request.app.state.client.query(entity_id, select, Annual(last=5))
    # Litestar does not cancel the handler of a visitor who has left.
    panel = await unless_gone(request, work, SECONDS)
    status, headers, body = await reply(
        panel,
        accept=request.headers.get("accept"),
        if_none_match=request.headers.get("if-none-match"),
        max_age=MAX_AGE,
    )
    # Litestar adds the charset.
    media_type, _, _ = headers.pop("Content-Type", "").partition(";")
    return Response(body, status_code=status, headers=headers, media_type=media_type)


def failed(request: Request[Any, Any, Any], error: Exception) -> Response[str]:
    status, text, headers = http_error(error)
    return Response(text, status_code=status, headers=headers, media_type="text/plain")


def gone(request: Request[Any, Any, Any], error: Exception) -> Response[None]:
    return Response(None, status_code=499)  # no client is left to read it


app = Litestar(
    [values],
    lifespan=[lifespan],
    exception_handlers={
        AsyncfinError: failed,
        TimeoutError: failed,
        ClientGoneError: gone,
    },
)
