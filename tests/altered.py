"""Services that pass requests on to the sandbox, and alter its answers or refuse what it accepts."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

from asyncfin.sandbox import Sandbox

Alter = Callable[[str, dict[str, Any], dict[str, Any]], Any]


def _known(sent: Any) -> Any:
    """Return a request's body without a cursor of our own making: those are one letter long."""
    return {name: each for name, each in sent.items() if name != "cursor" or len(each) > 1} if sent else None


@asynccontextmanager
async def altered(
    sandbox: Sandbox, alter: Alter, status_of: Callable[[str, Any], int] = lambda operation, sent: 200
) -> AsyncIterator[str]:
    """Give the base URL of a service whose 200 answers pass through `alter`.

    `alter` gets the operation, the request's body and the answer's body, which it may change in place. Where
    `status_of` returns another status than 200, that is the response, with an error object or, as a 2xx,
    with an object of something else.
    """

    async def pass_on(request: web.BaseRequest) -> web.StreamResponse:
        url, headers = f"{sandbox.base_url}{request.path_qs}", dict(request.headers)
        headers.pop("Accept-Encoding", None)
        headers.pop("Content-Length", None)
        sent = json.loads(await request.read() or b"null")
        if (status := status_of(request.path.rsplit("/", 1)[-1], sent)) != 200:
            code = {400: "validation_failed"}.get(status, "other")
            error = {"error": {"code": code, "message": "no", "request_id": "r"}}
            return web.json_response(error if status >= 300 else {"state": "queued"}, status=status)
        async with session.request(request.method, url, json=_known(sent), headers=headers) as answer:
            body = await answer.read()
        if answer.status == 200:
            content = json.loads(body)
            alter(request.path.rsplit("/", 1)[-1], sent, content)
            body = json.dumps(content).encode()
        return web.Response(status=answer.status, body=body, content_type="application/json")

    async with aiohttp.ClientSession() as session, _served(pass_on) as base_url:
        yield base_url


@asynccontextmanager
async def capped(sandbox: Sandbox, most: int, *, ranges: bool = True) -> AsyncIterator[tuple[str, list[Any]]]:
    """Give the base URL of a service that refuses more exact periods than a cap, and what it receives."""
    received: list[tuple[str, str | None, int]] = []

    async def pass_on(request: web.BaseRequest) -> web.StreamResponse:
        sent = await request.json() if request.method == "POST" else {}
        selection = sent.get("periods", {})
        exact = len(selection.get("exact", []))
        operation = request.path.rsplit("/", 1)[-1]
        received.append((operation, request.headers.get("Cache-Control"), exact))
        if exact > most or (selection.get("mode") == "fiscal_range" and not ranges):
            error = {"code": "validation_failed", "message": f"{exact} periods", "request_id": "r"}
            return web.json_response({"error": error}, status=400)
        headers = {"Authorization": request.headers["Authorization"]}
        url = f"{sandbox.base_url}{request.path_qs}"
        async with session.request(request.method, url, json=sent or None, headers=headers) as response:
            body = await response.read()
            return web.Response(status=response.status, body=body, content_type="application/json")

    async with aiohttp.ClientSession() as session, _served(pass_on) as base_url:
        yield base_url, received


@asynccontextmanager
async def _served(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> AsyncIterator[str]:
    """Serve on a free port, and give the base URL."""
    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
