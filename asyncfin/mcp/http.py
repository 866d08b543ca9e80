"""The tools over HTTP, for assistants of this machine."""

from __future__ import annotations

from hmac import compare_digest

from mcp.server import MCPServer
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from asyncfin.errors import ArgumentError

PATH = "/mcp"
_MAX_SESSIONS = 100


def http_app(server: MCPServer, token: str) -> ASGIApp:
    """Make an ASGI app that serves the tools at `/mcp`, for a server that listens on
    loopback.

    A request is rejected with 401 without the token, with 421 if its Host is not a
    loopback host, and with 403 if it has another Origin. Its lifespan must run.

    Args:
        server: as `asyncfin.mcp.server` returns it. It can be served once.
        token: what requests must have as their bearer token.

    Raises:
        ArgumentError: the token is empty.
    """
    if not token:
        raise ArgumentError(
            "token must not be empty: anyone on this machine could spend the allowance"
        )
    bearer = f"Bearer {token}".encode()
    # It checks Host and Origin: a page of another site can resolve its name to this
    # machine.
    app = server.streamable_http_app(
        streamable_http_path=PATH, max_sessions=_MAX_SESSIONS
    )

    async def check_token(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = Headers(scope=scope).get("authorization", "").encode("latin-1")
            scheme, _, credentials = header.partition(b" ")
            # In constant time: how long a comparison takes would show how much of a
            # guess is right. The name of the scheme has no case.
            if not compare_digest(scheme.title() + b" " + credentials, bearer):
                response = PlainTextResponse(
                    "the bearer token of ASYNCFIN_MCP_TOKEN is required",
                    401,
                    {"WWW-Authenticate": "Bearer"},
                )
                await response(scope, receive, send)
                return
        await app(scope, receive, send)

    return check_token
