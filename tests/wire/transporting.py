"""A transport to a scripted server, and its failures."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asyncfin.wire.breaker import Sending
from asyncfin.wire.protocol import Request, Response
from asyncfin.wire.token import Secret
from asyncfin.wire.transport import Transport
from tests.services.raw import scripted

TOKEN = "canary-token+/0="
READ = Request("dataset", "GET", "/v1/entities/O-1/dataset", entity_id="O-1")
QUERY = Request("query", "POST", "/v1/entities/O-1/dataset/query", body=b'{"limit":1}', entity_id="O-1")


@asynccontextmanager
async def connected(
    base_url: str, max_body_bytes: int = 64 << 20, **options: Any
) -> AsyncIterator[Transport]:
    transport = Transport(base_url, **options)
    transport.max_body_bytes = max_body_bytes
    try:
        yield transport
    finally:
        await transport.aclose()


@asynccontextmanager
async def wired(*steps: Any, **options: Any) -> AsyncIterator[Transport]:
    """A transport to a scripted server."""
    async with scripted(*steps) as server, connected(server.base_url, **options) as transport:
        yield transport


async def attempted(transport: Transport, request: Request) -> Response:
    outcome = await transport.send(Sending(request, Secret(TOKEN)))
    if isinstance(outcome, Response):
        return outcome
    raise outcome


async def failure_of(transport: Transport, request: Request = READ) -> Exception:
    """Return what an attempt raises, after checking that nothing of aiohttp hangs on it."""
    with pytest.raises(Exception) as caught:
        await attempted(transport, request)
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert TOKEN not in f"{error!r} {error}"
    return error


def chunked(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)


PLAIN = b'{"long": "' + b"x" * 300_000 + b'"}'
