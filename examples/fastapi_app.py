"""A FastAPI backend over one account: JSON, CSV and Arrow, with one client for all
visitors of a worker.

    pip install ".[web,arrow]" fastapi        (in a checkout)
    uvicorn examples.fastapi_app:app --workers 4

Service and token come from ASYNCFIN_BASE_URL and ASYNCFIN_TOKEN, the ids of the
companies on offer from ASYNCFIN_ENTITIES, separated by blanks. If ASYNCFIN_CACHE is a
folder and ASYNCFIN_BUCKET a file, the workers share what they have read, and the pace
of the account.
"""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel

import asyncfin
from asyncfin import (
    Annual,
    Client,
    FileBucket,
    FileCache,
    MemoryCache,
    Retry,
    Select,
    Timeouts,
    TokenBucket,
)
from asyncfin.web import (
    ClientGoneError,
    Offer,
    check_offered,
    http_error,
    reply,
    unless_gone,
)

SECONDS = 30
MAX_AGE = 60
# The companies that visitors may ask for: a container of ids, or an async function.
OFFER: Offer = frozenset(os.environ.get("ASYNCFIN_ENTITIES", "").split())
FORMATS = {
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Here and not at import: each worker has a separate event loop and client.
    folder, path = os.environ.get("ASYNCFIN_CACHE"), os.environ.get("ASYNCFIN_BUCKET")
    cache = FileCache(folder) if folder else MemoryCache()
    bucket = FileBucket(path) if path else TokenBucket()
    async with AsyncExitStack() as stack:
        for resource in (cache, bucket):
            await stack.enter_async_context(aclosing(resource))
        # A publication confirmed within the last minute counts as the current one:
        # questions that were requested before then cost nothing. While the service is
        # away, results may be up to an hour old. A visitor does not wait for five
        # attempts, nor for a service that is silent.
        client = Client.from_env(
            cache=cache,
            bucket=bucket,
            max_age=MAX_AGE,
            stale_if_error=3600,
            retry=Retry(attempts=2),
            timeouts=Timeouts(read=5),
        )
        app.state.client, app.state.cache, app.state.bucket = client, cache, bucket
        await stack.enter_async_context(client)
        app.state.is_ready = True
        yield
        app.state.is_ready = False


app = FastAPI(title="Financial figures", lifespan=lifespan)


async def failed(request: Request, error: Exception) -> Response:
    status, text, headers = http_error(error)
    return PlainTextResponse(text, status, headers)


async def gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # no client is left to read it


app.add_exception_handler(asyncfin.AsyncfinError, failed)
app.add_exception_handler(TimeoutError, failed)
app.add_exception_handler(ClientGoneError, gone)


class Period(BaseModel):
    year: int
    end_month: int
    duration_months: int


class Value(BaseModel):
    number: float
    text: str
    fill_type: str


class Series(BaseModel):
    series_id: str
    metric_id: str
    label: str
    basis: str
    values: list[Value | None]
    """One for each period; null: there is no observation."""


class Figures(BaseModel):
    entity_id: str
    name: str
    dataset_id: str
    created_timestamp: str
    value_version: str
    periods: list[Period]
    series: list[Series]


async def question(
    request: Request,
    entity_id: str,
    metric: Annotated[list[str], Query()],
    years: Annotated[int, Query(ge=1, le=50)] = 5,
) -> asyncfin.Panel:
    """Return the panel of a visitor's question, unless the visitor leaves first."""
    await check_offered(entity_id, OFFER)
    client: Client = request.app.state.client
    work = client.query(entity_id, Select(metric_ids=metric), Annual(last=years))
    return await unless_gone(request, work, SECONDS)


Answer = Annotated[asyncfin.Panel, Depends(question)]
Tags = Annotated[str | None, Header(alias="if-none-match")]
# For the schema; the bodies are built by `reply`.
TYPED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Figures,
        "content": {media_type: {} for media_type in FORMATS.values()},
    },
    304: {"description": "The visitor has the current figures"},
}


@app.get("/entities/{entity_id}/values", responses=TYPED, response_class=Response)
async def values(
    panel: Answer,
    accept: Annotated[str | None, Header()] = None,
    if_none_match: Tags = None,
) -> Response:
    """The figures in the format that the visitor accepts."""
    status, headers, body = await reply(
        panel, accept=accept, if_none_match=if_none_match, max_age=MAX_AGE
    )
    return Response(body, status, headers)


@app.get("/entities/{entity_id}/values.json", responses=TYPED, response_class=Response)
async def values_json(panel: Answer, if_none_match: Tags = None) -> Response:
    """The figures as JSON."""
    return await values(panel, FORMATS["json"], if_none_match)


@app.get("/entities/{entity_id}/values.csv", response_class=Response)
async def values_csv(panel: Answer, if_none_match: Tags = None) -> Response:
    """The figures as CSV, for a link."""
    return await values(panel, FORMATS["csv"], if_none_match)


@app.get("/entities/{entity_id}/values.arrow", response_class=Response)
async def values_arrow(panel: Answer, if_none_match: Tags = None) -> Response:
    """The figures as an Arrow stream."""
    return await values(panel, FORMATS["arrow"], if_none_match)


class Health(BaseModel):
    waiting: int
    requests_refused: int
    spent_today: float | None
    exhausted_until: str | None
    fallback: bool
    cached_series: int
    cached_bytes: int


@app.get("/health")
async def health(request: Request) -> Health:
    """That the worker lives, and what it knows of pace and cache. No request, no disk,
    no other server.

    A balancer that removes workers on its status removes none while the service or a
    shared store is away.
    """
    pace = request.app.state.bucket.stats()
    cache_stats = request.app.state.cache.stats()
    exhausted_until = None
    if pace.exhausted_until is not None:
        exhausted_until = pace.exhausted_until.isoformat()
    return Health(
        waiting=sum(pace.waiting.values()),
        requests_refused=pace.refused,
        spent_today=pace.spent_today,
        exhausted_until=exhausted_until,
        fallback=pace.fallback,
        cached_series=cache_stats.series,
        cached_bytes=cache_stats.bytes,
    )


@app.get("/ready")
async def ready(request: Request) -> Response:
    """204 from the end of the start-up to the beginning of the shutdown, otherwise
    503.
    """
    is_ready = getattr(request.app.state, "is_ready", False)
    return Response(status_code=204 if is_ready else 503)
