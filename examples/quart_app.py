"""A Quart backend: the figures of a metric, as JSON, CSV or Arrow.

hypercorn examples.quart_app:app

ASYNCFIN_ENTITIES has the ids of the companies on offer, separated by blanks.
"""

import asyncio
import os

from quart import Quart, Response, current_app, request

from asyncfin import Annual, AsyncfinError, Client, MemoryCache, Retry, Select, Timeouts
from asyncfin.web import Offer, check_offered, http_error, reply

SECONDS, MAX_AGE = 30, 60
# The companies that visitors may ask for: a container of ids, or an async function.
OFFER: Offer = frozenset(os.environ.get("ASYNCFIN_ENTITIES", "").split())

app = Quart(__name__)


@app.before_serving
async def start() -> None:
    app.config["client"] = Client.from_env(
        cache=MemoryCache(),
        max_age=MAX_AGE,
        retry=Retry(attempts=2),
        timeouts=Timeouts(read=5),
    )


@app.after_serving
async def stop() -> None:
    await app.config["client"].aclose()


@app.get("/entities/<entity_id>/values")
async def values(entity_id: str) -> Response:
    await check_offered(entity_id, OFFER)
    client = current_app.config["client"]
    select = Select(metric_ids=request.args.getlist("metric"))
    # Quart cancels the handler of a visitor who has left, which ends the requests.
    async with asyncio.timeout(SECONDS):
        panel = await client.query(entity_id, select, Annual(last=5))
    status, headers, body = await reply(
        panel,
        accept=request.headers.get("accept"),
        if_none_match=request.headers.get("if-none-match"),
        max_age=MAX_AGE,
    )
    return Response(body, status, headers)


@app.errorhandler(AsyncfinError)
@app.errorhandler(TimeoutError)
async def failed(error: Exception) -> Response:
    status, text, headers = http_error(error)
    return Response(text, status, headers, mimetype="text/plain")
