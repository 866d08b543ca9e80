"""The tools over HTTP, for assistants of this machine."""

from __future__ import annotations

from hmac import compare_digest

from mcp.server import MCPServer
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from asyncfin.errors import ArgumentError

PATH = "/mcp"
_MAX_SESSIONS = 100


def http_app(server: MCPServer, token: str) -> ASGIApp:
    """Return an ASGI app that serves the tools at `/mcp`, for a server that listens on
    loopback.

    A request is refused with 401 without the token, with 421 if its Host is not a
    loopback host, and with 403 if its Origin is given and not one of those. Its
    lifespan must run.

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
    # It checks Host and Origin: a page of another site can resolve its name to this
    # machine.
    app = server.streamable_http_app(
        streamable_http_path=PATH, max_sessions=_MAX_SESSIONS
    )
    return _Guard(app, token)


class _Guard:
    """Passes on the requests that may be served."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._bearer = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] == "http"
            and (refusal := self._refusal(Headers(scope=scope))) is not None
        ):
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> Response | None:
        given = headers.get("authorization", "").encode("latin-1")
        # In constant time: how long a comparison takes would show how much of a guess
        # is right.
        if not compare_digest(_normalized(given), self._bearer):
            return PlainTextResponse(
                "the bearer token of ASYNCFIN_MCP_TOKEN is required",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
        version = headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return _without_sessions(version)
        return None


def _normalized(authorization: bytes) -> bytes:
    """Return an Authorization header with its scheme as "Bearer": schemes have no
    case.
    """
    scheme, _, credentials = authorization.partition(b" ")
    return b"Bearer " + credentials if scheme.lower() == b"bearer" else b""


def _without_sessions(version: str) -> Response:
    """Return the refusal of a protocol version without sessions, in which handles would
    mean nothing.

    Clients then fall back to a version that begins with `initialize`.
    """
    error = {
        "code": UNSUPPORTED_PROTOCOL_VERSION,
        "message": "handles of series are valid for one session: begin with initialize",
        "data": {"supported": list(HANDSHAKE_PROTOCOL_VERSIONS), "requested": version},
    }
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)
