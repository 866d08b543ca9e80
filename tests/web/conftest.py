"""The explorer over the sandbox, asked as its own page asks."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncfin import Client
from asyncfin.events import Event, RequestStarted
from asyncfin.sandbox import Sandbox
from asyncfin.web import explorer

httpx = pytest.importorskip("httpx")

# What htmx and a browser send with a request of the page itself.
OWN = {
    "HX-Request": "true",
    "Sec-Fetch-Site": "same-origin",
    "Content-Type": "application/x-www-form-urlencoded",
}


class Page:
    """A browser's requests to the explorer, and what the service was asked meanwhile."""

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
