"""The running service: a socket, the rules behind it, and what a test may do to it
while it runs.
"""

from __future__ import annotations

import asyncio
import errno
import json
import secrets
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from asyncfin.sandbox.accounts import PERMISSIONS, Account, Meter, Token
from asyncfin.sandbox.dataset import DatasetFile, read_publication
from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.errors import PortInUseError, RejectionError, SandboxError
from asyncfin.sandbox.faults import Armed, Fault, Latency, Status, Switch, deliver
from asyncfin.sandbox.request import (
    JSON_TYPE,
    Reply,
    Request,
    make_request_id,
    read_request,
)
from asyncfin.sandbox.rules import Service, answer, find_call, report_failure
from asyncfin.sandbox.store import Store

DEFAULT_ACCOUNT = "sandbox"
# Bounded, since a sandbox may run for days.
_LOG_LENGTH = 10_000
_PLAIN = Dialect()


class Served(NamedTuple):
    """One request that was answered: for assertions, so without the token.

    Attributes:
        operation: ``"dataset"``, ``"catalogue"``, ``"query"``, ``"usage"``,
            ``"limits"`` or ``"openapi"``; None for any other path.
        status: the HTTP status of the response.
        method: the HTTP method.
        path: the path of the URL.
        params: the parameters of the query string.
        body: the decoded JSON; the bytes if it was not JSON; None without a body.
        account: the name of the account; None without a valid token.
        faults: the names of the faults that it met.
    """

    operation: str | None
    status: int
    method: str
    path: str
    params: dict[str, str]
    body: Any
    account: str | None
    faults: tuple[str, ...]


def utc_now() -> datetime:
    """Return the machine's wall time."""
    return datetime.now(UTC)


class Sandbox:
    """A local service of datasets, on a port of this machine:

        async with Sandbox.demo() as sandbox:
            print(sandbox.base_url, sandbox.entities)

    `base_url`, `port`, `token`, `entities`, `names`, `publish`, `put_account` and
    `issue_token` work only while it runs; before and after they raise SandboxError.

    Args:
        datasets: a DatasetFile each, of which the last publication is served, a
            Publication, or what `load` accepts.
        dialect: how to behave where the service description leaves it open.
        faults: faults that are set from the start, as by `inject`.
        allowance: data requests a UTC day of the default account, or None without a
            limit.
        rate: its data requests a second, or None without a limit.
        burst: how many of them may come at once.
        store: ":memory:", or the name of a SQLite file for publications, tokens,
            accounts and counts.
        host: the address to listen at; "0.0.0.0" or "::" for all of this machine.
        port: the port to listen at; 0 for a free one.
        public_url: where clients reach it, if that is not where it listens (a
            container, a proxy).
        clock: returns the wall time, aware UTC, for the day of the allowance and the
            Date header. Waits go by the loop's clock.

    Raises:
        SandboxError: no request can be sent to the public URL.
    """

    _store: Store
    _meter: Meter
    _base_url: str
    _listening_port: int
    _token: str

    def __init__(
        self,
        *datasets: Any,
        dialect: Dialect = _PLAIN,
        faults: Iterable[Fault] = (),
        allowance: int | None = None,
        rate: float | None = None,
        burst: int = 1,
        store: str | Path = ":memory:",
        host: str = "127.0.0.1",
        port: int = 0,
        public_url: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if not isinstance(dialect, Dialect):
            raise TypeError(
                "dialect must be a Dialect, such as Dialect(gzip=True), not "
                f"{dialect!r}"
            )
        self.dialect = dialect
        self._datasets = datasets
        self._account = Account(DEFAULT_ACCOUNT, allowance, rate, burst)
        self._store_name, self._clock = store, clock
        self._host, self._port = host, port
        self._public_url = None if public_url is None else check_url(public_url)
        self._armed: list[Armed] = []
        self._log: deque[Served] = deque(maxlen=_LOG_LENGTH)
        # Other threads may publish or set a fault while the loop's thread answers.
        self._lock = threading.RLock()
        self._runner: web.ServerRunner | None = None
        self.inject(*faults)

    @classmethod
    def demo(cls, **options: Any) -> Self:
        """Return a sandbox of the demo companies; options as for Sandbox."""
        return cls(*_load_demo(), **options)

    def __repr__(self) -> str:
        if self._runner is None:
            return "<Sandbox, not running>"
        return f"<Sandbox at {self._base_url}>"

    @property
    def base_url(self) -> str:
        """Where clients reach it, without a slash at the end: the public URL, or where
        it listens.
        """
        self._check_running()
        return self._base_url

    @property
    def port(self) -> int:
        """The port at which it listens."""
        self._check_running()
        return self._listening_port

    @property
    def token(self) -> str:
        """A token of the default account, with all permissions; another may be put in
        its place.
        """
        self._check_running()
        return self._token

    @token.setter
    def token(self, token: str) -> None:
        self._check_running()
        self._token = token

    def _check_running(self) -> None:
        if self._runner is None:
            raise SandboxError(
                "the sandbox is not running: `async with` it, or `await "
                "sandbox.start()`"
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Open the store, publish the datasets and listen.

        Raises:
            PortInUseError: something else listens there.
            SandboxError: it cannot listen for another reason, the store cannot be used,
                or it runs already.
            BrokenDatasetError: a dataset is broken.
            RuntimeError: no asyncio event loop is running.
        """
        if self._runner is not None:
            raise SandboxError("the sandbox runs already: start it once")
        try:
            time = asyncio.get_running_loop().time
        except RuntimeError:
            raise RuntimeError(
                "asyncfin runs on asyncio only, and no asyncio event loop is running "
                "here"
            ) from None
        self._store = self._fill_store()
        self._meter = Meter(self._store, self._clock, time)
        try:
            self._runner = await self._listen()
        except BaseException:
            self._store.close()
            raise

    def _fill_store(self) -> Store:
        """Return the store with the datasets, the account, and a token of it."""
        try:
            store = Store(self._store_name)
            try:
                with store.transaction():
                    # One after the other: loaded, they take much memory.
                    for source in self._datasets:
                        store.publish(read_publication(source))
                store.put_account(self._account)
                self._token = make_token(
                    store, Token(DEFAULT_ACCOUNT, PERMISSIONS, "rest")
                )
            except BaseException:
                store.close()
                raise
        except sqlite3.Error as error:
            name = str(self._store_name)
            raise SandboxError(
                f"the store {name!r} cannot be used ({error}): name a new file"
            ) from None
        return store

    async def _listen(self) -> web.ServerRunner:
        # A client that has left ends a fault's wait too.
        server = _Server(
            self._serve,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
        )
        # Long enough for responses in flight; those that a fault lets hang are cut off.
        runner = web.ServerRunner(server, shutdown_timeout=0.02)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except BaseException as error:
            await runner.cleanup()
            # asyncio's words for a port out of range, and for an invalid host name
            if not isinstance(error, OSError | OverflowError | UnicodeError):
                raise
            place = f"{self._host}, port {self._port}"
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"port {self._port} of {self._host} is in use: choose another, "
                    "or 0 for a free one"
                ) from None
            reason = getattr(error, "strerror", None) or error
            raise SandboxError(
                f"cannot listen at {place} ({reason}): choose others"
            ) from None
        # "All addresses" is not an address to connect to; this machine reaches the
        # service at loopback.
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
        host = loopback.get(self._host, self._host)
        host = f"[{host}]" if ":" in host else host
        self._listening_port = runner.addresses[0][1]
        self._base_url = self._public_url or f"http://{host}:{self._listening_port}"
        return runner

    async def aclose(self) -> None:
        """Stop listening, cut off what still waits, and close the store. A second call
        does nothing.
        """
        # First of all, so that a second call, even during the first, finds nothing to
        # close.
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
            with self._lock:
                self._store.close()

    @property
    def entities(self) -> tuple[str, ...]:
        """The ids of the entities with a publication."""
        self._check_running()
        return self._store.entities()

    @property
    def names(self) -> dict[str, str]:
        """The names of the entities, by id."""
        self._check_running()
        ids = self._store.entities()
        return dict(zip(ids, map(self._store.name, ids), strict=True))

    @property
    def log(self) -> list[Served]:
        """The last 10,000 requests answered, oldest first."""
        with self._lock:
            return list(self._log)

    def publish(self, source: Any) -> None:
        """Make a publication current, at once for every later request; sources as for
        Sandbox.

        Raises:
            BrokenDatasetError: the dataset is broken; nothing has changed.
            SandboxError: the current publication of the entity has its dataset_id and
                other content; nothing has changed.
        """
        publication = read_publication(source)
        with self._lock:
            self._check_running()
            self._store.publish(publication)

    def put_account(self, account: Account) -> None:
        """Add an account, or change the one of that name."""
        with self._lock:
            self._check_running()
            self._store.put_account(account)

    def issue_token(
        self,
        account: str = DEFAULT_ACCOUNT,
        *,
        permissions: Iterable[str] = PERMISSIONS,
        audience: str = "rest",
    ) -> str:
        """Return a new access token of an account; one of another audience than "rest"
        gets 401.

        Args:
            permissions: Short names or full identifiers; a str is one of them.

        Raises:
            SandboxError: the account does not exist.
        """
        names = (permissions,) if isinstance(permissions, str) else tuple(permissions)
        with self._lock:
            self._check_running()
            if self._store.account(account) is None:
                raise SandboxError(
                    f"the account {account!r} does not exist: add it with put_account"
                )
            return make_token(self._store, Token(account, names, audience))

    def inject(self, *faults: Fault) -> None:
        """Set more faults; each counts requests from now on.

        Raises:
            TypeError: one is not a fault.
        """
        for fault in faults:
            if not isinstance(fault, Fault):
                raise TypeError(
                    "a fault must be an object such as Status(status=503), not "
                    f"{fault!r}"
                )
        # A new list each time: a request that is being answered goes through the one it
        # has.
        self._armed = [*self._armed, *map(Armed, faults)]

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._armed = []

    async def _serve(self, http: web.BaseRequest) -> web.StreamResponse:
        if (
            len(http.headers.getall("Host", ())) > 1
        ):  # RFC 9112, section 3.2; older aiohttp accepts it
            return http.protocol.handle_error(http, 400)
        request = await read_request(http)
        call = find_call(request.path)
        operation = call.operation if call else None
        faults = [state.fault for state in self._armed if state.meets(operation)]
        for fault in faults:
            if isinstance(fault, Latency):
                await asyncio.sleep(fault.seconds)
        with self._lock:
            reply = self._answer_request(request, faults)
        return await deliver(http, reply, faults)

    def _answer_request(self, request: Request, faults: list[Fault]) -> Reply:
        """Return the reply to a request, after counting and logging it."""
        # Under the lock and without an await: what a request sees is one state of the
        # service.
        service = Service(self._store, self._meter, self.dialect, self._base_url)
        try:
            for fault in faults:
                if isinstance(fault, Switch):
                    self._store.publish(fault.publication)
            reply = answer(request, service)
        # Of a Switch to a publication that can't be: the response contains the reason.
        except SandboxError as error:
            reply = report_failure(request, service, str(error))
        for fault in faults:
            if isinstance(fault, Status):
                reply = fault.reply(reply, request.request_id)
        if reply.charge:
            self._meter.count(*reply.charge)
        self._log.append(_make_served(request, reply, faults))
        return reply


def check_url(url: str) -> str:
    """Return a URL without a slash at its end, if requests can be sent to it."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number
        right = False
    if (
        not right
        or parts.query
        or parts.fragment
        or parts.username is not None
        or parts.path.strip("/")
    ):
        raise SandboxError(f"public_url is {url!r}: it must be like http://name:8765")
    return url.rstrip("/")


class _Connection(web.RequestHandler):
    """A connection whose malformed messages get an error object too (spec 7), where
    aiohttp sends a text.
    """

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(
            request, status, exc, message
        )  # logs, and raises if a response has begun
        # The message of aiohttp is left out: it quotes what was sent, a token perhaps.
        rejection = RejectionError(
            status, "bad_request", "The message is not well-formed HTTP."
        )
        if status >= 500:
            rejection = RejectionError(
                status, "sandbox_error", "The sandbox failed; its log shows how."
            )
        body = rejection.body(make_request_id())
        response = web.Response(status=status, body=body, content_type=JSON_TYPE)
        response.force_close()
        return response


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


def make_token(store: Store, token: Token) -> str:
    text = secrets.token_urlsafe(24)
    store.put_token(text, token)
    return text


@cache
def _load_demo() -> tuple[DatasetFile, ...]:
    from asyncfin.sandbox.demo import demo_datasets

    return demo_datasets()


def _make_served(request: Request, reply: Reply, faults: list[Fault]) -> Served:
    try:
        body = json.loads(request.body) if request.body else None
    except (ValueError, RecursionError):
        body = request.body
    return Served(
        reply.operation,
        reply.status,
        request.method,
        request.path,
        dict(parse_qsl(request.query, keep_blank_values=True)),
        body,
        reply.account.name if reply.account else None,
        tuple(type(fault).__name__ for fault in faults),
    )
