"""A client for the duration of a command, with progress on standard error if that is a terminal."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from rich.status import Status

from asyncfin.cli.entities import Names
from asyncfin.cli.options import Service
from asyncfin.cli.output import progress_console
from asyncfin.client import Client
from asyncfin.events import Event, RequestStarted, Retrying, Waiting
from asyncfin.model.words import counted, lasting


class Progress:
    """Counts the requests, and shows on a terminal how many were sent and which one is retried.

    Attributes:
        by_entity: the requests sent, by entity id.
        expected: the number of queries that the command will send. None: not known yet.
    """

    def __init__(self, title: str, status: Status | None = None) -> None:
        self.by_entity: Counter[str | None] = Counter()
        self.expected: int | None = None
        self._title, self._status, self._queries = title, status, 0

    def __call__(self, event: Event) -> None:
        match event:
            case RequestStarted():
                # Retries count: each attempt costs a request of the allowance.
                self.by_entity[event.entity_id] += 1
                self._queries += event.operation == "query"
                expected = (
                    f", query {self._queries:,} of {self.expected:,}" if self.expected is not None else ""
                )
                self._show(counted(self.by_entity.total(), "request") + expected)
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
async def connected(service: Service, title: str, names: Names | None = None) -> AsyncIterator[Client]:
    """Open a client that shows progress under a title, and whose errors carry the names of entities."""
    with progress(title) as shown, names.annotate() if names else nullcontext():
        async with service.client(observers=[shown]) as client:
            yield client


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """Return the observer that counts requests, and shows them if standard error is a terminal."""
    console = progress_console()
    if not console.is_terminal:
        yield Progress(title)
        return
    with console.status(title) as status:
        yield Progress(title, status)
