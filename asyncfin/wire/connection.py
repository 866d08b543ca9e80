"""What aiohttp has no public interface for: it subclasses its internals, so its next
refactoring breaks here.

Three things are needed, each tried through a public interface first:

- The token is written by a function that is called as the headers are written. With a
  plain header value, the frames of every waiting request contain the token, and aiohttp
  can log it.
- A kept connection on which bytes arrived while it was idle is not used: they would
  pass for the next response.
- A request is sent once. aiohttp sends a GET again when its connection drops, outside
  of the rate limit.

`nox -s next` runs the tests of this against aiohttp's newest pre-release.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

import aiohttp
from aiohttp.hdrs import AUTHORIZATION

HeaderValue: TypeAlias = str | Callable[[], str]


class DroppedError(Exception):
    """The connection broke before a response began.

    `reason` is OpenSSL's, if that has ended it.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__()
        self.reason = reason


class _StaleError(Exception):
    """A kept connection received bytes while it was idle."""


class LateHeadersRequest(aiohttp.ClientRequest):
    """A request whose Authorization may be a function, which is called as the headers
    are written.
    """

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        # `should_close` is true if a whole message, or what is not HTTP, has arrived on
        # the idle connection. A part of a response, or one still on the way, can't be
        # distinguished from this request's.
        if conn.protocol is None or conn.protocol.should_close:
            raise _StaleError
        bearer: HeaderValue | None = self.headers.get(AUTHORIZATION)
        if callable(bearer):
            self.headers[AUTHORIZATION] = bearer()
        try:
            return await super().send(
                conn
            )  # writes the headers before it waits for anything
        finally:
            if callable(bearer):
                # Before an error's frames can be looked at, and before aiohttp can log
                # the request.
                self.headers[AUTHORIZATION] = cast("str", bearer)


async def without_resending(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send a request once; raise DroppedError if the connection breaks before a
    response begins.
    """
    assert request.session.connector is not None
    # Nothing was sent on a stale connection, and aiohttp has closed it: take another.
    # Once all kept ones are used up it is a new one. That is stale too if the peer
    # speaks first, and not HTTP.
    for _ in range(request.session.connector.limit + 1):
        try:
            return await handler(request)
        except _StaleError:
            continue
        except (
            aiohttp.ClientConnectorError
        ):  # a ClientOSError, but of connecting: nothing was sent
            raise
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            # In TLS 1.3 a server rejects a certificate after the handshake.
            reason = getattr(error.__cause__, "reason", None)
            raise DroppedError(reason or "") from None
    raise DroppedError
