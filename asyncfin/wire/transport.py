"""One request over HTTP: headers in, a response or a `TransportError` out.

Decided here: what a connection may be (TLS, timeouts, proxies, how many), what counts
as a complete response, and what an error says. Nothing of aiohttp leaves this module:
the repr of its exceptions contains the request's headers. At its end is what aiohttp
has no public interface for.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Callable, MutableMapping
from datetime import datetime
from io import BytesIO
from math import inf
from typing import Any

import aiohttp
import msgspec
from aiohttp.hdrs import AUTHORIZATION
from yarl import URL

from asyncfin import checks
from asyncfin.clock import utc_now
from asyncfin.errors import (
    AsyncfinError,
    ConnectionFailedError,
    MalformedAnswerError,
    RequestTimeoutError,
    TransportError,
    TruncatedAnswerError,
    own_version,
)
from asyncfin.tasks import check_closed, closed_with_loop, decoding_lock, running_loop
from asyncfin.wire.address import check_base_url, check_user_agent, environment_proxy
from asyncfin.wire.breaker import Sending
from asyncfin.wire.inflate import ACCEPTED, INCOMPLETE, inflate, too_large_error
from asyncfin.wire.protocol import Response
from asyncfin.wire.retry import Timeouts

CLOSED = "the client is closed"
_INLINE_BYTES = 256 * 1024
# What the headers of a response may be.
_MAX_HEADER_BYTES = 64 * 1024
_MAX_HEADERS = 1_000
# How aiohttp's errors of larger ones begin.
_TOO_MANY = ("Too many headers", "Got more than")
# OpenSSL's codes of certificates whose authority is not known: self-signed, also within
# the chain, and without the issuer's.
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)


class LoopState(msgspec.Struct, eq=False):
    """What a transport has open in one event loop."""

    loop: asyncio.AbstractEventLoop
    session: aiohttp.ClientSession
    # Closes the session when it is closed itself, or when the loop ends.
    closing: AsyncGenerator[None, None]
    scopes: set[asyncio.Timeout] = set()  # of what ends when the transport is closed


class Transport:
    """Sends requests to one service, in one event loop at a time.

    Opens its connections at the first request. Closes with its event loop (if that ends
    properly, as with `asyncio.run`) or on `aclose()`. Reopens in a later loop, but
    never after `aclose()`. For the arguments see `Client`.
    """

    # What a body may have, before and after decompression.
    max_body_bytes = 64 * 1024 * 1024

    def __init__(
        self,
        base_url: str,
        *,
        timeouts: Timeouts = Timeouts(),
        max_in_flight: int = 8,
        ssl: tls.SSLContext | None = None,
        trust_env: bool = False,
        allow_http: bool = False,
        user_agent: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.base_url = check_base_url(
            base_url, allow_http=checks.flag("allow_http", allow_http)
        )
        self.max_in_flight = checks.positive_int("max_in_flight", max_in_flight)
        self.clock = clock
        self.timeouts = checks.instance_of(Timeouts)("timeouts", timeouts)
        check_user_agent("user_agent", user_agent)
        product = f"asyncfin/{own_version()}"
        self._user_agent = product if user_agent is None else f"{user_agent} {product}"
        self._ssl = checks.instance_of(tls.SSLContext).optional()("ssl", ssl)
        self._trust_env = checks.flag("trust_env", trust_env)
        self._open: LoopState | None = None
        self.is_closed = False  # whether `aclose` was called

    async def send(
        self, sending: Sending
    ) -> Response | TransportError | MalformedAnswerError:
        """Send a request once and return the response, whatever its status, or the
        error in its place.

        A response is complete. Only the body of a 408, 429 or 5xx is empty if it is
        late or can't be read. The error is for the caller to raise: raised here, its
        context and its frames would lead to aiohttp, whose exceptions contain the
        request's headers.

        `sending` notes when the headers are written, and when a response begins.
        """
        request = sending.request
        session = (await self.open()).session
        headers: dict[str, Any] = dict(request.headers)
        headers[AUTHORIZATION] = sending  # see `LateHeadersRequest`
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        status, response_headers, sent_at = 0, dict[str, str](), self.clock()
        try:
            async with asyncio.timeout(self.timeouts.total):
                async with session.request(
                    request.method,
                    # `encoded`: yarl would write some escapes in another way.
                    URL(f"{self.base_url}{request.target}", encoded=True),
                    data=request.body,
                    headers=headers,
                    # The spec names no redirect, and one could lead the token to
                    # another host.
                    allow_redirects=False,
                ) as response:
                    status, response_headers = response.status, _read_headers(response)
                    sending.is_silent = False
                    body = await self._read(response)
                # An empty body is not valid gzip. That of an error is accepted: its
                # status is enough.
                if (coding := response_headers.get("content-encoding")) and (
                    body or status < 300
                ):
                    body = await inflate(body, coding, self.max_body_bytes)
        except (aiohttp.ClientError, OSError, AsyncfinError) as error:
            # The head of a retryable status is enough, whatever its body: a proxy's 503
            # often breaks off.
            if status not in (408, 429) and status < 500:
                return self._make_error(error)
            body = b""
        # A byte order mark, which a reader may ignore (RFC 8259, section 8.1).
        body = body.removeprefix(BOM_UTF8)
        return Response(
            status, response_headers, body, sent_at, self.clock(), sending.attempts
        )

    async def aclose(self) -> None:
        """Close all connections, and expire the scopes of this loop. A second call does
        nothing.
        """
        state = self._open
        # An unused client may be closed where no loop runs.
        if state is not None and state.loop is not running_loop():
            await self._forget(state)
            state = None
        self.is_closed = True
        self._open = None
        if state is not None:
            for scope in state.scopes:
                scope.reschedule(state.loop.time())
            await state.closing.aclose()

    async def open(self) -> LoopState:
        """Return the state of this loop; open it first if nothing is open."""
        state, loop = self._open, running_loop()
        if state is not None:
            if state.loop is loop:
                return state
            await self._forget(state)
        if self.is_closed:
            raise RuntimeError(CLOSED)
        session = aiohttp.ClientSession(
            # As many connections as slots: no request waits for one after its grant.
            connector=CleanConnector(limit=self.max_in_flight, ssl=self._ssl or True),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": ACCEPTED,
                "User-Agent": self._user_agent,
            },
            request_class=LateHeadersRequest,
            # The service sets none, and those of anything in front of it are not sent
            # back.
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
            # Done by `inflate`, which bounds the size of the decompressed body.
            auto_decompress=False,
            proxy=environment_proxy(self.base_url) if self._trust_env else None,
            timeout=aiohttp.ClientTimeout(
                # Bound by `asyncio.timeout` in `send`, which counts inflating too.
                total=None,
                connect=self.timeouts.connect,
                sock_read=self.timeouts.read,
                # otherwise aiohttp rounds what is above 5 s up to whole seconds
                ceil_threshold=inf,
            ),
        )
        assert session._retry_connection  # so that a new name of it is noticed
        session._retry_connection = False
        closing = closed_with_loop(session.close)
        self._open = state = LoopState(loop, session, closing)
        await anext(closing)  # a loop closes only generators that have begun
        return state

    async def _forget(self, state: LoopState) -> None:
        """Close what a loop that has ended left open."""
        check_closed(state.loop, "client", "client")
        self._open = None
        await state.closing.aclose()

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        length = response.content_length  # which is read from the headers each time
        if length is not None and length <= _INLINE_BYTES:
            return await response.content.read()
        # As large as the body will be, so that each piece is released once it is
        # written, and none is copied again. (Zeros take no memory until they are
        # overwritten, whatever length a header claims.)
        body = BytesIO(bytes(min(length or 0, self.max_body_bytes)))
        async for piece in response.content.iter_any():
            body.write(piece)
            if body.tell() > self.max_body_bytes:
                raise too_large_error(self.max_body_bytes)
        body.truncate()
        if body.tell() > _INLINE_BYTES:
            # Searching megabytes for the token takes a millisecond, and eight bodies
            # may be complete at once: the loop runs in between.
            async with decoding_lock():
                await asyncio.sleep(0)
        return body.getvalue()

    def _make_error(self, error: Exception) -> TransportError | MalformedAnswerError:
        """Return the error to raise for a failure, whose own text may contain
        headers.
        """
        limits = self.timeouts
        match error:  # in this order: many of these are subclasses of later ones
            case MalformedAnswerError() | TransportError():
                return error.with_traceback(None)
            case aiohttp.ClientPayloadError():
                return TruncatedAnswerError(INCOMPLETE)
            case aiohttp.ConnectionTimeoutError():
                return RequestTimeoutError(
                    f"no connection to {self.base_url} within {limits.connect:g} s",
                    sent=False,
                )
            case aiohttp.SocketTimeoutError():
                return RequestTimeoutError(
                    f"nothing arrived from {self.base_url} for {limits.read:g} s"
                )
            case TimeoutError():
                return RequestTimeoutError(
                    f"no complete response from {self.base_url} in {limits.total:g} s"
                )
            case aiohttp.ClientConnectorCertificateError():
                reason = _explain_certificate(error.certificate_error)
                return ConnectionFailedError(
                    f"the certificate of {self.base_url} does not verify{reason}",
                    sent=False,
                    retryable=False,
                )
            case aiohttp.ClientConnectorError(os_error=cause):
                where = (
                    "the proxy"
                    if isinstance(error, aiohttp.ClientProxyConnectionError)
                    else self.base_url
                )
                reason = (
                    cause.strerror
                    or str(cause)
                    or "it was closed during the TLS handshake"
                )
                if isinstance(cause, tls.SSLError) and cause.reason:
                    reason = f"TLS failed ({cause.reason.replace('_', ' ').lower()})"
                elif isinstance(cause, ConnectionRefusedError):
                    reason = "connection refused"
                return ConnectionFailedError(
                    f"no connection to {where}: {reason}", sent=False
                )
            case aiohttp.ClientHttpProxyError():
                return ConnectionFailedError(
                    f"the proxy refused the connection with status {error.status}",
                    sent=False,
                    retryable=error.status >= 500,
                )
            case aiohttp.ClientResponseError() if error.message.startswith(_TOO_MANY):
                return MalformedAnswerError(
                    f"the response has more than {_MAX_HEADERS:,} headers, or one of "
                    "more than"
                    f" {_MAX_HEADER_BYTES:,} bytes"
                )
            case aiohttp.ClientResponseError():
                return ConnectionFailedError(
                    f"the response of {self.base_url} is not HTTP"
                )
        # In TLS 1.3 a server rejects a certificate after the handshake.
        reason = getattr(error.__cause__, "reason", None) or ""
        if "CERTIFICATE" in reason:
            return ConnectionFailedError(
                f"{self.base_url} ended the TLS connection"
                f" ({reason.replace('_', ' ').lower()}): if it demands a client"
                " certificate, pass ssl=context after context.load_cert_chain(...)",
                sent=False,
                retryable=False,
            )
        return ConnectionFailedError(
            f"the connection to {self.base_url} was closed before a response began"
        )


def _read_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the headers of a response, by names in lower case.

    Of several with one name it is the last one; those of Retry-After are all there, one
    a line.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in response.raw_headers:
        name, value = raw_name.decode().lower(), raw_value.decode(errors="replace")
        if name == "retry-after" and name in headers:
            value = f"{headers[name]}\n{value}"
        headers[name] = value
    return headers


def _explain_certificate(error: Exception) -> str:
    """Explain what OpenSSL reports of a certificate, with the remedy for an unknown
    authority.
    """
    message = getattr(error, "verify_message", "")
    if getattr(error, "verify_code", 0) not in _UNKNOWN_AUTHORITY:
        return f": {message}" if message else ""
    return (
        f": {message}; if you trust its authority, pass"
        " ssl=ssl.create_default_context(cafile=...) with the authority's certificate"
    )


# What aiohttp has no public interface for. It uses aiohttp's internals, so the next
# refactoring there breaks it; `nox -s next` tests it with aiohttp's newest pre-release.
# Three things are needed, each tried through a public interface first:
#
# - A request is sent once: `_retry_connection` above. Otherwise aiohttp sends a GET
#   again when its connection drops, outside of the rate limit.
# - The token becomes a header as the headers are written. With a plain header value,
#   the frames of every waiting request contain the token, and aiohttp can log it.
# - A kept connection on which bytes arrived while it was idle is not used: they would
#   pass for the next response.


class LateHeadersRequest(aiohttp.ClientRequest):
    """A request whose Authorization is a `Sending` until the headers are written."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        headers: MutableMapping[str, Any] = self.headers
        sending = headers[AUTHORIZATION]
        sending.is_written = True
        headers[AUTHORIZATION] = f"Bearer {sending.token.text}"  # spec 5
        try:
            # It writes the headers before it waits for anything.
            return await super().send(conn)
        finally:
            # Before an error's frames can be looked at, and before aiohttp can log the
            # request.
            headers[AUTHORIZATION] = sending


class CleanConnector(aiohttp.TCPConnector):
    """Connections on which nothing arrived while they were idle."""

    async def _get(self, key: Any, traces: Any) -> aiohttp.connector.Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            # `should_close` is true if a whole message, or what is not HTTP, has
            # arrived. A part of a response, or one still on the way, can't be
            # distinguished from this request's.
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                break
            connection.close()
        return connection
