"""Warm visits to the FastAPI example, beside one that builds each body at each visit,
and constant bytes.
"""

import asyncio
import io
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from statistics import median
from typing import Annotated, Any
from urllib.parse import urlencode

import pyarrow
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import Response

from asyncfin import Annual, Client, MemoryCache, Select
from asyncfin.sandbox import Sandbox
from asyncfin.web import reply, unless_gone

VISITS = 500
ROUNDS, A_ROUND = 15, 100
FORMATS = {
    "json": "application/json",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}
plain = FastAPI()


@plain.get("/entities/{entity_id}/values")
async def values(
    request: Request,
    entity_id: str,
    metric: list[str] = Query(),  # noqa: B008
) -> Response:
    """Build the body at each visit, without tags."""
    work = plain.state.client.query(
        entity_id, Select(metric_ids=metric), Annual(last=20)
    )
    panel = await unless_gone(request, work, 30)
    match request.headers["accept"]:
        case "application/json":
            return Response(panel.to_json(), media_type="application/json")
        case "text/csv":
            rows = (
                [s.series_id, *(v.number if v else "" for v in s.values)] for s in panel
            )
            return Response(
                "\n".join(",".join(map(str, row)) for row in rows),
                media_type="text/csv",
            )
    table = panel.to_arrow()
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue(), media_type="application/vnd.apache.arrow.stream")


@plain.get("/replies/{entity_id}/values")
async def replies(
    request: Request, entity_id: str, metric: str, years: int
) -> Response:
    """Return the reply to a question, and do no more."""
    panel = await plain.state.client.query(
        entity_id, Select(metric_ids=[metric]), Annual(last=years)
    )
    status, headers, body = await reply(
        panel, accept=request.headers.get("accept"), max_age=60
    )
    return Response(body, status, headers)


@plain.get("/bare/{entity_id}/values")
async def bare(entity_id: str) -> Response:
    """Return constant bytes."""
    return Response(plain.state.body, 200, {"Content-Type": FORMATS["json"]})


async def _constant(
    request: Request,
    entity_id: str,
    metric: Annotated[list[str], Query()],
    years: Annotated[int, Query(ge=1, le=50)] = 5,
) -> bytes:
    body: bytes = plain.state.body
    return body


@plain.get("/constant/{entity_id}/values", response_class=Response)
async def constant(
    body: Annotated[bytes, Depends(_constant)],
    accept: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Return constant bytes, with the parameters and the dependency of the example."""
    return Response(body, 200, {"Content-Type": accept or FORMATS["json"]})


async def visit(
    app: Callable[..., Awaitable[None]],
    path: str,
    query: str,
    headers: Mapping[str, str],
) -> tuple[int, str, int]:
    """Return the status, the tag and the size of the body."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 80),
    }
    messages: list[Any] = []
    forever = asyncio.get_running_loop().create_future()

    async def receive() -> Any:
        return await forever if messages or scope.get("begun") else _begin(scope)

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    forever.cancel()
    response_headers = {
        name.decode(): value.decode() for name, value in messages[0]["headers"]
    }
    return (
        messages[0]["status"],
        response_headers.get("etag", ""),
        sum(len(part.get("body", b"")) for part in messages[1:]),
    )


def _begin(scope: dict[str, Any]) -> dict[str, Any]:
    scope["begun"] = True
    return {"type": "http.request", "body": b"", "more_body": False}


async def measured(name: str, app: Any, path: str, query: str, accept: str) -> str:
    """Return the row of a backend and a format."""
    tag, statuses, size = "", [], 0
    await visit(app, path, query, {"host": "127.0.0.1", "accept": accept})
    begin = time.process_time()
    for _ in range(VISITS):
        headers = {"host": "127.0.0.1", "accept": accept} | (
            {"if-none-match": tag} if tag else {}
        )
        status, tag, body = await visit(app, path, query, headers)
        statuses.append(status)
        size += body
    cpu = (time.process_time() - begin) * 1000 / VISITS
    share = statuses.count(304) / VISITS
    return f"| {name} | {accept} | {share:.1%} | {size:,} | {cpu:.2f} |"


async def _table() -> str:
    async with Sandbox.demo() as sandbox:
        os.environ |= {
            "ASYNCFIN_BASE_URL": sandbox.base_url,
            "ASYNCFIN_TOKEN": sandbox.token,
            "ASYNCFIN_ENTITIES": " ".join(sandbox.entities),
        }
        from examples import fastapi_app

        entity_id = sandbox.entities[0]
        async with (
            Client.from_env(cache=MemoryCache(), max_age=3600) as plain.state.client,
            fastapi_app.lifespan(fastapi_app.app),
        ):
            catalogue = await plain.state.client.catalogue(entity_id)
            path = f"/entities/{entity_id}/values"
            lines = [
                "| backend | format | 304 | bytes of bodies | CPU per visit, ms |",
                "| --- " * 5 + "|",
            ]
            for note, metrics in (
                ("", sorted(catalogue.by_metric)),
                (", 2 metrics", ["Revenue", "NetIncome"]),
            ):
                query = urlencode({"metric": metrics, "years": 20}, doseq=True)
                for accept in FORMATS.values():
                    for name, app in (
                        ("without `reply`", plain),
                        ("the example", fastapi_app.app),
                    ):
                        lines.append(
                            await measured(name + note, app, path, query, accept)
                        )
    return "\n".join(lines)


async def warm() -> dict[str, tuple[float, float]]:
    """Return the CPU time of visits that need no request, without a server.

    By way, as multiples of FastAPI with constant bytes: with the example's parameters,
    and without any.
    """
    async with Sandbox.demo() as sandbox:
        os.environ |= {
            "ASYNCFIN_BASE_URL": sandbox.base_url,
            "ASYNCFIN_TOKEN": sandbox.token,
            "ASYNCFIN_ENTITIES": " ".join(sandbox.entities),
        }
        from examples import fastapi_app

        entity_id = sandbox.entities[0]
        question = entity_id, Select(metric_ids=["NetIncome"]), Annual(last=20)
        async with (
            Client.from_env(cache=MemoryCache(), max_age=3600) as plain.state.client,
            fastapi_app.lifespan(fastapi_app.app),
        ):
            plain.state.body = (
                await reply(await plain.state.client.query(*question), accept=None)
            ).body
            ways: dict[str, tuple[Any, str]] = {
                "`examples/fastapi_app.py`": (fastapi_app.app, "entities"),
                "`query` and `reply` in a plain endpoint": (plain, "replies"),
                "constant": (plain, "constant"),
                "bare": (plain, "bare"),
            }
            rounds: list[dict[str, float]] = []
            for _ in range(ROUNDS + 1):
                rounds.append({})
                for name, (app, address) in ways.items():
                    begin = time.process_time()
                    for _ in range(A_ROUND):
                        path, headers = (
                            f"/{address}/{entity_id}/values",
                            {"host": "127.0.0.1"},
                        )
                        status, _, _ = await visit(
                            app, path, "metric=NetIncome&years=20", headers
                        )
                        assert status == 200
                    rounds[-1][name] = time.process_time() - begin
    first, second = (
        {
            name: median(times[name] / times[base] for times in rounds[1:])
            for name in list(ways)[:2]
        }
        for base in ("constant", "bare")
    )
    return {name: (first[name], second[name]) for name in first}


def run() -> str:
    """Return the table."""
    return asyncio.run(_table())
