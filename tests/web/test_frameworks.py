"""The recipes for six frameworks: a visitor who leaves, a timeout, a 429, a 304 and errors."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from asyncfin.sandbox import Fault, Hang, Sandbox, Status

pytestmark = pytest.mark.virtual
FRAMEWORKS = ["fastapi", "starlette", "litestar", "quart", "django", "aiohttp"]


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


class Visitors:
    """Visits to an ASGI app, without a server in between."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send what a server sends at the start and at the end of a worker."""
        received: asyncio.Queue[Any] = asyncio.Queue()
        sent: asyncio.Queue[Any] = asyncio.Queue()
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": (state := {})}
        self._state = state
        worker = asyncio.ensure_future(self._app(scope, received.get, sent.put))
        for step in ("startup", "shutdown"):
            await received.put({"type": f"lifespan.{step}"})
            assert (await sent.get())["type"] == f"lifespan.{step}.complete"
            if step == "startup":
                yield
        await worker

    async def visit(
        self, path: str, headers: Mapping[str, str] | None = None, leaving: asyncio.Event | None = None
    ) -> Response | None:
        """Return the response; None: there was none, since the visitor has left."""
        path, _, query = path.partition("?")
        headers = {name.lower(): value for name, value in (headers or {}).items()}
        given = {"host": "localhost", "accept": "application/json", **headers}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("localhost", 80),
            "state": dict(self._state),
        }
        incoming = [{"type": "http.request", "body": b"", "more_body": False}]
        left = leaving or asyncio.Event()
        sent: list[Any] = []

        async def receive() -> Any:
            if incoming:
                return incoming.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if leaving is None and message["type"] == "http.response.body" and not message.get("more_body"):
                left.set()  # as servers do after a response: a framework may wait for it

        await self._app(scope, receive, send)
        if leaving is not None and leaving.is_set():
            return None
        found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
        body = b"".join(each.get("body", b"") for each in sent[1:])
        return Response(sent[0]["status"], found, body.decode())


class DjangoVisitors(Visitors):
    """Django has no lifespan; its client is made at the first visit."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        from examples.django_app import client

        self._state: dict[str, Any] = {}
        client.cache_clear()
        yield
        await client().aclose()


class AiohttpVisitors(Visitors):
    """aiohttp.web is not ASGI: visits over loopback."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        import aiohttp
        from aiohttp import web

        from examples import aiohttp_app

        # An application runs once.
        app = web.Application()
        app.cleanup_ctx.append(aiohttp_app.lifespan)
        app.add_routes([web.get("/entities/{entity_id}/values", aiohttp_app.values)])
        runner = web.AppRunner(app, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as self._http:
            yield
        await runner.cleanup()

    async def visit(
        self, path: str, headers: Mapping[str, str] | None = None, leaving: asyncio.Event | None = None
    ) -> Response | None:
        async def get() -> Response:
            given = {"Accept": "application/json", **(headers or {})}
            async with self._http.get(path, headers=given) as response:
                found = {name.lower(): value for name, value in response.headers.items()}
                return Response(response.status, found, await response.text())

        if leaving is None:
            return await get()
        visiting = asyncio.ensure_future(get())
        await leaving.wait()
        visiting.cancel()
        await asyncio.wait([visiting])
        return None


Served = tuple[Sandbox, Visitors, str]


@asynccontextmanager
async def served(framework: str, monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> AsyncIterator[Served]:
    """Give the recipe of a framework over a sandbox, and the path of a question."""
    pytest.importorskip(framework)
    async with Sandbox.demo(faults=faults) as sandbox:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        for name in ("ASYNCFIN_CACHE", "ASYNCFIN_BUCKET"):
            monkeypatch.delenv(name, raising=False)
        recipe = importlib.import_module(f"examples.{framework}_app")
        monkeypatch.setattr(recipe, "OFFER", set(sandbox.entities))
        kinds = {"django": DjangoVisitors, "aiohttp": AiohttpVisitors}
        visitors = kinds.get(framework, Visitors)(recipe.app)
        async with visitors.running():
            yield sandbox, visitors, f"/entities/{sandbox.entities[0]}/values?metric=NetIncome"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_leaving_visitor_ends_the_requests(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request follows the visitor's leaving, and the next visitor gets the figures."""
    async with served(framework, monkeypatch, Hang(operation="catalogue", nth=1)) as (
        sandbox,
        visitors,
        path,
    ):
        # The time limit does not end it either.
        monkeypatch.setattr(importlib.import_module(f"examples.{framework}_app"), "SECONDS", 3600)
        leaving = asyncio.Event()
        visiting = asyncio.ensure_future(visitors.visit(path, leaving=leaving))
        while not any(each.operation == "catalogue" for each in sandbox.log):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        leaving.set()
        assert await visiting is None
        await asyncio.sleep(300)  # of virtual time: a request that continued would have been retried
        assert [each.operation for each in sandbox.log] == ["catalogue"]
        answer = await visitors.visit(path)
    assert answer is not None
    assert answer.status == 200


FAILURES: dict[str, tuple[list[Fault], str, int, str, int]] = {
    "timeout": ([Hang(operation="query")], "NetIncome", 504, "the data did not arrive in time", 5),
    "429": (
        [Status(status=429, retry_after=3600, operation="query")],
        "NetIncome",
        503,
        "too many requests at the moment; come back in",
        4,
    ),
    # Tried twice: a visitor does not wait for five attempts.
    "failing queries": (
        [Status(status=500, operation="query")],
        "NetIncome",
        502,
        "the data service did not deliver the data",
        5,
    ),
    "unknown metric": ([], "NetIncom", 400, "NetIncome", 3),
    "refused token": (
        [Status(status=401, code="unauthenticated", operation="catalogue")],
        "NetIncome",
        502,
        "the data service did not deliver the data",
        1,
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_failures_are_statuses_with_sentences(
    framework: str, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status, text and the requests that were sent are the same in each framework."""
    faults, metric, status, text, requests = FAILURES[failure]
    async with served(framework, monkeypatch, *faults) as (sandbox, visitors, path):
        answer = await visitors.visit(path.replace("NetIncome", metric))
        sent = len(sandbox.log)
    assert answer is not None
    assert (answer.status, sent) == (status, requests)
    assert text in answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    assert ("retry-after" in answer.headers) == (status == 503)
    assert "injected" not in answer.text


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_invented_ids_cost_no_request(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are 404 without one, and the next visitor is served: with ids, and with a function."""

    async def is_offered(entity_id: str) -> bool:
        return entity_id.endswith(path.split("/")[2][-8:])

    async with served(framework, monkeypatch) as (sandbox, visitors, path):
        recipe = importlib.import_module(f"examples.{framework}_app")
        for offer in (recipe.OFFER, is_offered):
            monkeypatch.setattr(recipe, "OFFER", offer)
            for number in range(20):
                invented = f"/entities/O-{number:032}/values?metric=NetIncome"
                response = await visitors.visit(invented)
                assert response is not None
                assert response.status == 404
            assert not sandbox.log
        response = await visitors.visit(path)
    assert response is not None
    assert response.status == 200


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_304_costs_no_request(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first visit sends the body and its tag; the second one sends neither body nor requests."""
    async with served(framework, monkeypatch) as (sandbox, visitors, path):
        first = await visitors.visit(path)
        assert first is not None
        sent = len(sandbox.log)
        again = await visitors.visit(path, {"If-None-Match": first.headers["etag"]})
        as_csv = await visitors.visit(path, {"Accept": "text/csv"})
        refused = await visitors.visit(path, {"Accept": "text/html"})
        assert len(sandbox.log) == sent
    assert again is not None
    assert as_csv is not None
    assert refused is not None
    assert (first.status, again.status, as_csv.status, refused.status) == (200, 304, 200, 406)
    assert first.headers["content-type"].startswith("application/json")
    assert again.text == ""
    assert again.headers["etag"] == first.headers["etag"]
    assert as_csv.headers["content-type"] == "text/csv; charset=utf-8"
    assert as_csv.text.startswith("series_id,")
