"""What a page of another site can make a browser send: it reads no cache and no form, and spends nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest

from asyncfin import Client, MemoryCache
from asyncfin.events import RequestStarted
from asyncfin.sandbox import Sandbox
from asyncfin.web import explorer
from tests.web.test_explorer import ROW

QUESTION = {"series": ROW, "rule": "annual", "last": "3"}
# Each destination that a browser names for what it fetches, but the page itself.
DESTINATIONS = (
    *("audio", "audioworklet", "embed", "empty", "font", "frame", "iframe", "image", "manifest", "object"),
    *("paintworklet", "report", "script", "serviceworker", "sharedworker", "style", "track", "video"),
    *("webidentity", "worker", "xslt"),
)
FORMS = {
    "nothing": b"",
    "the question": urlencode(QUESTION).encode(),
    "a field of 1 MB": b"series=" + b"x" * 1_000_000,
    "1,001 fields": b"&".join(b"a%d=" % at for at in range(1001)),
}


class Service:
    """A sandbox with an explorer whose values are cached, and how often the explorer has taken its client."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        self.client = client
        self.taken = 0
        self.sent = 0
        self.app = explorer(self._take, sandbox.entities)
        self.path = f"/company/{sandbox.entities[0]}"

    def _take(self) -> Client:
        self.taken += 1
        return self.client

    def note(self, event: Any) -> None:
        self.sent += isinstance(event, RequestStarted)

    async def send(self, method: str, target: str, headers: dict[str, str], body: bytes | None = None) -> int:
        """Send a request as a server of ASGI does, and return the status; None: the body must not be read."""
        path, _, query = target.partition("?")
        messages: list[Any] = []
        parts = [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            assert body is not None, "the body was read"
            if not parts:
                await asyncio.Event().wait()  # the visitor stays
            return parts.pop()

        async def send(message: Any) -> None:
            messages.append(message)

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        await self.app(scope, receive, send)
        self.text = b"".join(message.get("body", b"") for message in messages).decode()
        return int(messages[0]["status"])


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=3600) as client,
    ):
        made = Service(sandbox, client)
        own = {"Host": "127.0.0.1", "Sec-Fetch-Site": "same-origin"}
        assert await made.send("POST", f"{made.path}/answer", own, FORMS["the question"]) == 200
        made.taken = 0
        with client.observed(made.note):
            yield made


async def test_embedded_page_takes_no_client(service: Service) -> None:
    """Without a client there is no cache to read, no panel to build and no request to send."""
    for destination in DESTINATIONS:
        headers = {"Host": "127.0.0.1", "Sec-Fetch-Dest": destination, "Sec-Fetch-Site": "cross-site"}
        for method in ("GET", "HEAD"):
            for target in (f"{service.path}?{urlencode(QUESTION)}", service.path, "/"):
                assert await service.send(method, target, headers) == 200
                assert "<table" not in service.text
                assert (service.taken, service.sent) == (0, 0), (destination, method, target)


async def test_prefetched_page_takes_no_client(service: Service) -> None:
    """Its link looks like a visit otherwise; the visit itself does take one."""
    visit = {"Host": "127.0.0.1", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}
    target = f"{service.path}?{urlencode(QUESTION)}"
    for name, purpose in (
        ("Sec-Purpose", "prefetch"),
        ("Sec-Purpose", "prefetch;prerender"),
        ("Purpose", "prefetch"),
    ):
        assert await service.send("GET", target, {**visit, name: purpose}) == 200
        assert "<table" not in service.text
        assert (service.taken, service.sent) == (0, 0), purpose
    assert await service.send("GET", target, visit) == 200
    assert "<table" in service.text
    assert service.taken > 0


async def test_foreign_url_is_bounded(service: Service) -> None:
    """It is refused, or gets the form, whose size that of the URL bounds."""
    headers = {"Host": "127.0.0.1", "Sec-Fetch-Dest": "image", "Sec-Fetch-Site": "cross-site"}
    for name, fields in FORMS.items():
        status = await service.send("GET", f"{service.path}?{fields.decode()}", headers)
        assert status == (400 if name in ("a field of 1 MB", "1,001 fields") else 200)
        assert len(service.text) < 20_000
    assert (service.taken, service.sent) == (0, 0)


ORIGINS: tuple[dict[str, str], ...] = (
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:9"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "null"},
    {"Sec-Fetch-Site": "none", "Origin": "http://127.0.0.1"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "file://"},
    {"Origin": "http://127.0.0.1:8766"},  # another port
    {"Origin": "http://127.0.0.1:port"},
    {"Origin": "http://127.0.0.1.evil.example"},
    {"Origin": "http://user@127.0.0.1"},
    {"HX-Request": "true"},
    {},
)


async def test_foreign_form_is_rejected_unread(service: Service) -> None:
    """So its size does not matter; a form of the page itself is read, and refused where it is too large."""
    own = {"Host": "127.0.0.1", "Sec-Fetch-Site": "same-origin"}
    for fragment in ("series", "cost", "answer", "view", "cell", "csv"):
        target = f"{service.path}/{fragment}"
        for origin in ORIGINS:
            assert await service.send("POST", target, {"Host": "127.0.0.1", **origin}) == 403
        assert await service.send("POST", target, own, FORMS["1,001 fields"]) == 400
        assert await service.send("POST", target, own, FORMS["a field of 1 MB"]) == 413
    assert (service.taken, service.sent) == (0, 0)
