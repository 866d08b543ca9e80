"""What goes into the rules and what comes out, and how a request comes off its
connection.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from aiohttp import HttpVersion11, web
from attrs import frozen

from asyncfin.sandbox.accounts import Account

JSON_TYPE = "application/json"


@frozen
class Request:
    """One request as received: path and query string still percent-encoded, header
    names in lower case.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes | None  # None when it is larger than the service takes
    request_id: str


@frozen
class Reply:
    """A response, with what the service notes about it."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    operation: str | None  # None for a path of no operation
    account: Account | None  # None without a valid token
    # The account and operation that the request counts for (spec 8), or None.
    charge: tuple[Account, str] | None


async def read_request(http: web.BaseRequest) -> Request:
    """Return an HTTP request with its body."""
    target = http.raw_path
    if not target.startswith("/"):  # absolute form (RFC 9112, section 3.2.2)
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    # A client may wait for leave to send its body; only an aiohttp application does
    # that by itself.
    if (
        http.version >= HttpVersion11
        and http.headers.get("Expect", "").lower() == "100-continue"
    ):
        await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        http.writer.output_size = 0  # or else the response would count as begun
    try:
        body: bytes | None = await http.read()
    except web.HTTPRequestEntityTooLarge:
        body = None
    return Request(
        method=http.method,
        path=path,
        query=query,
        # Names are compared without case (RFC 9110, section 5.1).
        headers={name.lower(): value for name, value in http.headers.items()},
        body=body,
        request_id=make_request_id(),
    )


def make_request_id() -> str:
    return f"req-{secrets.token_hex(8)}"
