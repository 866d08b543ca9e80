"""The explorer over the sandbox, asked as its own page asks; and a browser."""

import shutil
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from asyncfin import Client
from asyncfin.events import Event, RequestStarted
from asyncfin.sandbox import Sandbox
from tests.conftest import ignored_without

collect_ignore_glob = ignored_without("web")
if not collect_ignore_glob:
    import httpx

    from asyncfin.web import explorer

# What htmx and a browser send with a request of the page itself.
OWN = {
    "HX-Request": "true",
    "Sec-Fetch-Site": "same-origin",
    "Content-Type": "application/x-www-form-urlencoded",
}


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Any]:
    """Give one browser to all tests that run in the loop of the session; each opens its own pages."""
    api = pytest.importorskip("playwright.async_api")
    if CHROMIUM is None or sys.platform == "win32":
        pytest.skip("Chromium is not installed, or not that of a Unix system")
    async with api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        await browser.close()


class Page:
    """A browser's requests to the explorer, and what the service was asked during them."""

    def __init__(self, app: Any, client: Client, entities: tuple[str, ...]) -> None:
        self.client = client
        self.entities = entities
        self._sent: list[RequestStarted] = []
        transport = httpx.ASGITransport(app=app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8766")

    async def post(self, fragment: str, entity_id: str | None = None, **fields: Any) -> Any:
        """Ask for a fragment with the form's fields; ``headers`` replaces the page's own."""
        headers = fields.pop("headers", OWN)
        path = f"/company/{entity_id or self.entities[0]}/{fragment}"
        return await self.http.post(path, data=fields or {"search": ""}, headers=headers)

    def note(self, event: Event) -> None:
        if isinstance(event, RequestStarted):
            self._sent.append(event)

    @property
    def spent(self) -> int:
        return len(self._sent)


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    """Give the explorer of the demo companies."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        made = Page(explorer(client, sandbox.entities), client, sandbox.entities)
        with client.observed(made.note):
            yield made
