"""How a request comes in: off the connection, whole, into the value that the rules look at."""

from __future__ import annotations

import secrets

from aiohttp import HttpVersion11, web

from asyncfin.sandbox.request import Request


async def read_request(http: web.BaseRequest) -> Request:
    """The request with its body, which a client that wants to be told to send it is told to."""
    path, _, query = http.raw_path.partition("?")
    await _invite_body(http)
    try:
        body: bytes | None = await http.read()
    except web.HTTPRequestEntityTooLarge:
        body = None
    return Request(
        method=http.method,
        path=path,
        query=query,
        headers={name.lower(): value for name, value in http.headers.items()},
        body=body,
        request_id=f"req-{secrets.token_hex(8)}",
    )


async def _invite_body(http: web.BaseRequest) -> None:
    """Response `Expect: 100-continue`; only an aiohttp application does so by itself."""
    if http.version >= HttpVersion11 and http.headers.get("Expect", "").lower() == "100-continue":
        await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        http.writer.output_size = 0  # or else the answer would count as begun
