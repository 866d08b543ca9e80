"""A FastAPI backend over one account: JSON, Arrow and CSV, with one client for all visitors of a worker.

    pip install ".[web,arrow]" fastapi        (in a checkout)
    uvicorn examples.fastapi_app:app --workers 4

Service and token come from ASYNCFIN_BASE_URL and ASYNCFIN_TOKEN. Where ASYNCFIN_CACHE names a folder and
ASYNCFIN_BUCKET a file, the workers share what they have read, and the pace of the account.
"""

import csv
import io
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Annotated, Any

import pyarrow
from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, Response

import asyncfin
from asyncfin import Annual, Client, FileBucket, FileCache, Select
from asyncfin.web import ClientGoneError, http_error, unless_gone

SECONDS = 30


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    # Here and not at import: each worker has a separate event loop and client.
    folder, path = os.environ.get("ASYNCFIN_CACHE"), os.environ.get("ASYNCFIN_BUCKET")
    async with AsyncExitStack() as stack:
        cache = await stack.enter_async_context(aclosing(FileCache(folder))) if folder else None
        bucket = await stack.enter_async_context(aclosing(FileBucket(path))) if path else None
        # A publication confirmed within the last minute is taken for the current one: questions that were
        # requested before then cost nothing. While the service is away, results may be up to an hour old.
        client = Client.from_env(cache=cache, bucket=bucket, max_age=60, stale_if_error=3600)
        app.state.client = await stack.enter_async_context(client)
        yield


app = FastAPI(title="Financial figures", lifespan=lifespan)


async def failed(request: Request, error: Exception) -> Response:
    status, text, headers = http_error(error)
    return PlainTextResponse(text, status, headers)


async def gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # no client is left to read it


app.add_exception_handler(asyncfin.AsyncfinError, failed)
app.add_exception_handler(TimeoutError, failed)
app.add_exception_handler(ClientGoneError, gone)


async def asked(
    request: Request,
    entity_id: str,
    metric: Annotated[list[str], Query()],
    years: Annotated[int, Query(ge=1, le=50)] = 5,
) -> asyncfin.Panel:
    """Return the answer to a visitor's question, unless the visitor leaves first."""
    client: Client = request.app.state.client
    question = client.query(entity_id, Select(metric_ids=metric), Annual(last=years))
    return await unless_gone(request, question, SECONDS)


Answer = Annotated[asyncfin.Panel, Depends(asked)]


@app.get("/entities/{entity_id}/values.json")
async def values_json(panel: Answer) -> list[dict[str, Any]]:
    return [
        {
            "series_id": series.series_id,
            "values": {period.label: value.number for period, value in series.observations()},
        }
        for series in panel
    ]


@app.get("/entities/{entity_id}/values.arrow")
async def values_arrow(panel: Answer) -> Response:
    # The table is whole before the first byte: an error in the middle of a stream could not be reported.
    table = panel.to_arrow()
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue(), media_type="application/vnd.apache.arrow.stream")


@app.get("/entities/{entity_id}/values.csv")
async def values_csv(panel: Answer) -> Response:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["series_id", *(period.label for period in panel.periods)])
    for series in panel:
        writer.writerow([series.series_id, *(value.number if value else "" for value in series.values)])
    return Response(text.getvalue(), media_type="text/csv")
