"""A client for the duration of a command, with progress on standard error if that is a
terminal.
"""

import os
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from typing import Any

from rich.status import Status

from asyncfin import Cache
from asyncfin.cli.entities import Names
from asyncfin.cli.environment import cached, paced
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.output import progress_console
from asyncfin.cli.service import Service
from asyncfin.cli.streams import print_error
from asyncfin.client import Client
from asyncfin.errors import ArgumentError
from asyncfin.events import Event, RequestStarted, Retrying, Waiting
from asyncfin.wire.address import UnencryptedAddressError, check_user_agent
from asyncfin.wire.token import TokenSource, token_file
from asyncfin.words import counted, lasting


@asynccontextmanager
async def client_of(
    service: Service,
    *,
    rate: float | None = None,
    daily_budget: float | None = None,
    otherwise: Cache | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """Yield a client of a service with a bucket of this pace; the options are those of
    `Client`.

    Args:
        otherwise: the cache to use if the environment has none.
    """
    bucket, cache = paced(rate, daily_budget), None if service.no_cache else cached()
    # A cache without an account belongs to the token that it is given.
    is_fixed = cache is not None and not os.environ.get("ASYNCFIN_ACCOUNT")
    token = _token_source(service, is_fixed=is_fixed)
    async with (
        _client(
            service, token, bucket=bucket, cache=cache or otherwise, **options
        ) as client,
        aclosing(bucket),
        aclosing(cache) if cache else nullcontext(),
    ):
        yield client


def _client(service: Service, token: TokenSource, **options: Any) -> Client:
    """Return a client; its errors and warnings become those of the command line."""
    user_agent = os.environ.get("ASYNCFIN_USER_AGENT") or None
    with prefix_errors("ASYNCFIN_USER_AGENT"):
        check_user_agent("it", user_agent)
    options |= {"allow_http": service.allow_http, "user_agent": user_agent}
    try:
        # A Python warning would show a line of this file.
        with warnings.catch_warnings(record=True) as caught:
            # Also one that Python would show only once, or that the environment turns
            # off.
            warnings.simplefilter("always")
            client = Client(service.address(), token, **options)
    # The library does not know the options of the command line.
    except UnencryptedAddressError as error:
        complaint = (
            "--base-url must be https, unless the host is this machine or --allow-http "
            f"is given{error.given}"
        )
    except ArgumentError as error:
        complaint = str(error)
    else:
        for warning in caught:
            print_error(f"asyncfin: {warning.message}")
        return client
    raise UsageError(complaint)


def _token_source(service: Service, *, is_fixed: bool) -> TokenSource:
    """Return the token, or what reads it again from its file after the service has
    refused it.
    """
    token = service.token()
    # What is not a regular file, such as the output of another command, can be read
    # once.
    if service.token_file is None or is_fixed or not service.token_file.is_file():
        return token
    return token_file(service.token_file)


class Progress:
    """Counts the requests, and shows on a terminal how many were sent and which one is
    retried.

    Attributes:
        requests: how many were sent.
        expected: the number of queries that the command will send. None: not known yet.
    """

    def __init__(self, title: str, status: Status | None = None) -> None:
        self.requests = 0
        self.expected: int | None = None
        self._title, self._status, self._queries = title, status, 0

    def __call__(self, event: Event) -> None:
        match event:
            case RequestStarted():
                # Retries count: each attempt costs a request of the allowance.
                self.requests += 1
                self._queries += event.operation == "query"
                expected = (
                    f", query {self._queries:,} of {self.expected:,}"
                    if self.expected is not None
                    else ""
                )
                self._show(counted(self.requests, "request") + expected)
            case Retrying():
                self._show(f"retrying in {lasting(event.wait)}: {event.failure}")
            case Waiting():
                until = (
                    f" until {event.until:%H:%M:%S} UTC"
                    if event.until
                    else f", {lasting(event.seconds)} so far"
                )
                self._show(f"waiting for the {event.reason}{until}")

    def _show(self, text: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._title}: {text}")


@asynccontextmanager
async def connected(
    service: Service, title: str, names: Names | None = None
) -> AsyncIterator[Client]:
    """Open a client that shows progress under a title, and whose errors carry the names
    of entities.
    """
    with progress(title) as shown, names.annotate() if names else nullcontext():
        async with client_of(service, observers=[shown]) as client:
            yield client


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Return the observer that counts requests, and shows them if standard error is a
    terminal.
    """
    console = progress_console()
    if not console.is_terminal:
        yield Progress(title)
        return
    with console.status(title) as status:
        yield Progress(title, status)
