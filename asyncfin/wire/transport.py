"""One attempt over HTTP: a request in, a response or a `TransportError` out.

Decided here: what a connection may be (TLS, timeouts, proxies, how many), what counts as a complete
response, and what of a failure is told. It is the only module of the client that imports aiohttp, and
nothing of aiohttp leaves it: the repr of its exceptions holds the request's headers.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import aiohttp
from attrs import evolve
from yarl import URL

from asyncfin.errors import (
    ConnectionFailedError,
    MalformedAnswerError,
    RequestTimeoutError,
    TruncatedAnswerError,
    own_version,
)
from asyncfin.model import checks
from asyncfin.wire.address import checked_base_url, environment_proxy
from asyncfin.wire.inflate import (
    ACCEPTED,
    BrokenStreamError,
    OversizedError,
    UnknownCodingError,
    UnreadableError,
    inflate,
    is_plain,
)
from asyncfin.wire.protocol import Request, Response
from asyncfin.wire.retry import Timeouts
from asyncfin.wire.token import AskToken, Secret, Tokens

# Inflating less than this is quicker than handing it to a thread.
_INLINE_BYTES = 64 * 1024
_CLOSED = "the client is closed"

T = TypeVar("T")


def _utc_now() -> datetime:
    return datetime.now(UTC)


class Transport:
    """Sends requests to one service, in one event loop at a time.

    It opens at the first attempt. When its loop ends properly (`asyncio.run` does) or `aclose` is
    called it closes; after the loop's end it opens again in the next one, after `aclose` never.

    Args:
        base_url: where the service is. https, or http to this machine; a path may follow the host.
        token: the access token, or an async callable that returns it.
        timeouts: of one attempt.
        max_in_flight: connections at most.
        ssl: how to verify the service. None: by the system's authorities.
        trust_env: whether to go through the proxy that the environment names for https.
        max_body_bytes: the largest body taken, before and after inflating.
        clock: gives the wall time, aware UTC.

    Raises:
        ArgumentError: an argument is not as said.
    """

    def __init__(
        self,
        base_url: str,
        token: str | AskToken,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008  a frozen value
        max_in_flight: int = 8,
        ssl: tls.SSLContext | None = None,
        trust_env: bool = False,
        max_body_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        checks.instance_of(Timeouts)("timeouts", timeouts)
        checks.positive_int("max_in_flight", max_in_flight)
        checks.positive_int("max_body_bytes", max_body_bytes)
        checks.instance_of(tls.SSLContext).or_none()("ssl", ssl)
        self.base_url = checked_base_url(base_url)
        self.tokens = Tokens(token)
        self.clock = clock
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": ACCEPTED,
            "User-Agent": f"asyncfin/{own_version()}",
        }
        self._timeouts = timeouts
        self._max_in_flight = max_in_flight
        self._max_body_bytes = max_body_bytes
        self._ssl = ssl
        self._trust_env = trust_env
        self._open: _Open | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the `max_in_flight` connections; wait for it outside of all timeouts.

        Raises:
            RuntimeError: as `attempt`.
        """
        async with (await self._opened()).slots:
            await self._opened()  # it may have been closed meanwhile
            yield

    async def attempt(self, request: Request, token: Secret) -> Response:
        """Send `request` once, at once, and return the response, whatever its status.

        It is complete, but for the body of 429 and 5xx that is late, broken or can't be read. It does not
        repeat a token of at least 8 characters, even where the service does. A 401 makes `tokens` forget
        the token, if it can be replaced.

        Raises:
            TransportError: no complete response came; its class says why.
            MalformedAnswerError: the body is larger than allowed, or in a coding not asked for.
            RuntimeError: this is closed, or belongs to another event loop that is not closed.
        """
        session = (await self._opened()).session
        outcome = await self._outcome(session, request, token)
        if not isinstance(outcome, Response):
            # Raised out here, so that neither its context nor its frames lead to aiohttp, or to the body.
            raise outcome
        if outcome.status == 401:
            self.tokens.refused(token)
        return outcome

    async def while_open(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` gives. Closing ends it at once, wherever it waits.

        Raises:
            RuntimeError: as `attempt`.
        """
        scopes = (await self._opened()).scopes
        try:
            async with asyncio.timeout(None) as scope:
                scopes.add(scope)
                return await work()
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            scopes.discard(scope)
        raise RuntimeError(_CLOSED)

    async def aclose(self) -> None:
        """Close all connections, and end at once what is under way or waits, with a RuntimeError.

        A second call does nothing.

        Raises:
            RuntimeError: this belongs to another event loop that is not closed.
        """
        opened = await self._settled()
        self._closed = True
        self._open = None
        if opened is not None:
            for scope in opened.scopes:
                scope.reschedule(opened.loop.time())
            await opened.life.aclose()

    async def _opened(self) -> _Open:
        await self._settled()
        if self._closed:
            raise RuntimeError(_CLOSED)
        if self._open is None:
            session = self._new_session()
            loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(self._max_in_flight)
            self._open = _Open(loop, session, slots, _kept(session), set())
            await anext(self._open.life)
        return self._open

    async def _settled(self) -> _Open | None:
        """Return what is open in this loop, after closing what a loop that has ended left open."""
        opened = self._open
        if opened is None or opened.loop is asyncio.get_running_loop():
            return opened
        if not opened.loop.is_closed():
            raise RuntimeError(
                "this client belongs to another event loop, which is not closed: use one client per loop"
            )
        self._open = None
        await opened.life.aclose()
        return None

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._max_in_flight, ssl=self._ssl or True),
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            middlewares=(_once,),
            proxy=environment_proxy(self.base_url) if self._trust_env else None,
            timeout=aiohttp.ClientTimeout(
                total=None,
                connect=self._timeouts.connect,
                sock_read=self._timeouts.read,
                ceil_threshold=inf,
            ),
        )

    async def _outcome(
        self, session: aiohttp.ClientSession, request: Request, token: Secret
    ) -> Response | Exception:
        heads: list[Response] = []  # the one that has come, still without its body
        try:
            async with asyncio.timeout(self._timeouts.total):
                raw = await self._exchange(session, request, token, heads.append)
            (head,) = heads
            body = await self._inflated(raw, head.headers.get("content-encoding", ""))
        except (aiohttp.ClientError, OSError, _Dropped, UnreadableError) as error:
            if heads and not self._closed and not _needs_its_body(heads[0].status):
                return heads[0]
            return self._failure(error)
        return evolve(head, body=self.tokens.struck_from(body), at=self.clock())

    async def _exchange(
        self,
        session: aiohttp.ClientSession,
        request: Request,
        token: Secret,
        begun: Callable[[Response], None],
    ) -> bytes:
        """Return the body as it came, after calling `begun` with the response's head."""
        sent = {"Authorization": token.bearer()}
        if request.body is not None:
            sent["Content-Type"] = "application/json"
        query = f"?{urlencode(request.params)}" if request.params else ""
        async with session.request(
            request.method,
            URL(f"{self.base_url}{request.path}{query}", encoded=True),
            data=request.body,
            headers=sent,
            allow_redirects=False,
        ) as response:
            headers = {
                name.decode().lower(): self.tokens.struck_from(text).decode(errors="replace")
                for name, text in response.raw_headers
            }
            begun(Response(response.status, headers, b"", self.clock()))
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > self._max_body_bytes:
                raise OversizedError
        return b"".join(pieces)

    async def _inflated(self, raw: bytes, coding: str) -> bytes:
        if len(raw) < _INLINE_BYTES or is_plain(coding):
            return inflate(raw, coding, self._max_body_bytes)
        return await asyncio.to_thread(inflate, raw, coding, self._max_body_bytes)

    def _failure(self, error: Exception) -> Exception:
        """Say in our own words what went wrong; the text of `error` may hold headers."""
        limits = self._timeouts
        match error:
            case _ if self._closed:
                return RuntimeError(_CLOSED)
            case OversizedError():
                return MalformedAnswerError(f"the body is larger than {self._max_body_bytes} bytes")
            case UnknownCodingError():
                return MalformedAnswerError(f"the body is in a content coding other than {ACCEPTED}")
            case aiohttp.ClientPayloadError() | BrokenStreamError():
                return TruncatedAnswerError("the response ended before it was whole")
            case aiohttp.ConnectionTimeoutError():
                return RequestTimeoutError(
                    f"no connection to {self.base_url} within {limits.connect:g} s", sent=False
                )
            case aiohttp.SocketTimeoutError():
                return RequestTimeoutError(f"nothing arrived from {self.base_url} for {limits.read:g} s")
            case TimeoutError():
                return RequestTimeoutError(f"no complete response from {self.base_url} in {limits.total:g} s")
            case aiohttp.ClientConnectorCertificateError():
                return ConnectionFailedError(
                    f"the certificate of {self.base_url} does not verify", sent=False, retryable=False
                )
            case aiohttp.ClientConnectorError():
                where = (
                    "the proxy" if isinstance(error, aiohttp.ClientProxyConnectionError) else self.base_url
                )
                return ConnectionFailedError(
                    f"no connection to {where}: {error.os_error.strerror}", sent=False
                )
            case aiohttp.ClientHttpProxyError():
                return ConnectionFailedError(
                    f"the proxy refused the connection with status {error.status}",
                    sent=False,
                    retryable=error.status >= 500,
                )
            case aiohttp.ClientResponseError():
                return ConnectionFailedError(f"what came from {self.base_url} is not HTTP")
        return ConnectionFailedError(f"{self.base_url} closed the connection before it answered")


def _needs_its_body(status: int) -> bool:
    """Say whether it takes the body to know what to do; 429 and 5xx say it themselves."""
    return status != 429 and status < 500


class _Dropped(Exception):  # noqa: N818  never seen outside
    """The connection broke before a response began."""


class _Open(NamedTuple):
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    session: aiohttp.ClientSession
    slots: asyncio.Semaphore
    life: AsyncGenerator[None, None]
    scopes: set[asyncio.Timeout]  # of what closing ends


async def _kept(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Close the session with its loop: a loop closes its asynchronous generators before it ends."""
    try:
        yield
    finally:
        await session.close()


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send once. Of a dropped GET aiohttp hides the first drop, unless the error is not one of its own."""
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise _Dropped from None
