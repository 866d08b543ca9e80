"""Services that pass requests on to the sandbox, and alter its answers or refuse what it accepts."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from attrs import evolve, frozen

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


@frozen
class Got:
    """A request that a service with caps has received."""

    operation: str
    sent: dict[str, Any]  # its body; of another than a query nothing
    size: int  # the bytes of the body
    cache_control: str | None
    status: int
    began: float = 0.0  # the loop time at which it arrived

    @property
    def exact(self) -> int:
        """How many exact periods it names; 0: none."""
        return len(self.sent.get("periods", {}).get("exact", ()))

    @property
    def months(self) -> int:
        """How many months its range has; 0: it has none."""
        selection = self.sent.get("periods", {})
        if selection.get("mode") != "fiscal_range":
            return 0
        first, last = (selection[end]["year"] * 12 + selection[end]["end_month"] for end in ("from", "to"))
        return int(last - first + 1)

    @property
    def ids(self) -> int:
        """How many metrics it names, times how many paths."""
        return len(self.sent.get("metric_ids", ())) * len(self.sent.get("scope_combinations", ()))


@asynccontextmanager
async def capped(
    service: Any,
    *,
    exact: int | None = None,
    months: int | None = None,
    ids: int | None = None,
    size: int | None = None,
    metrics: Container[str] = (),
    slow: float = 0.0,
    slow_range: float = 0.0,
    months_status: int = 400,
) -> AsyncIterator[tuple[str, list[Got]]]:
    """Give the base URL of a service that refuses what exceeds its caps, and what it receives.

    400: more exact periods, months or ids than the cap (`Got`), and the given metrics; 413: a larger body.
    The first refusal takes `slow` seconds, and each range `slow_range`. `months_status` rejects a long range.
    """
    waits = [slow]

    def status_of(got: Got) -> int:
        if size is not None and got.size > size:
            return 413
        if exact is not None and got.exact > exact:
            return 400
        if months is not None and got.months > months:
            return months_status
        if ids is not None and got.ids > ids:
            return 400
        return 400 if any(each in metrics for each in got.sent.get("metric_ids", ())) else 200

    async def pass_on(request: web.BaseRequest) -> web.StreamResponse:
        content = await request.read()
        operation, control = request.path.rsplit("/", 1)[-1], request.headers.get("Cache-Control")
        began = asyncio.get_running_loop().time()
        got = Got(operation, json.loads(content or b"{}"), len(content), control, 0, began)
        if (refusal := status_of(got)) != 200:
            await asyncio.sleep(waits.pop() if waits else 0)
            received.append(evolve(got, status=refusal))
            if refusal == 413:  # from something in front of the service
                return web.Response(text="<html>Too large</html>", status=refusal, content_type="text/html")
            message = f"{got.exact} periods, {got.months} months, {got.ids} ids, {got.size} bytes"
            code = "validation_failed" if refusal == 400 else "other"
            error = {"error": {"code": code, "message": message, "request_id": "r"}}
            return web.json_response(error, status=refusal)
        await asyncio.sleep(slow_range if got.months else 0)
        headers = {"Authorization": request.headers["Authorization"]}
        url = f"{service.base_url}{request.path_qs}"
        async with session.request(request.method, url, json=got.sent or None, headers=headers) as response:
            body = await response.read()
            received.append(evolve(got, status=response.status))
            return web.Response(status=response.status, body=body, content_type="application/json")

    received: list[Got] = []
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
