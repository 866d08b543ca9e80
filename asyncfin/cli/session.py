"""A client for the length of a command, with its progress on standard error where a person looks on."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from rich.status import Status

from asyncfin.cli.options import Service
from asyncfin.cli.output import aside
from asyncfin.client import Client
from asyncfin.events import Event, Observer, RequestStarted, Retrying
from asyncfin.model.words import counted, lasting


@asynccontextmanager
async def connected(service: Service, title: str) -> AsyncIterator[Client]:
    """Give a client of the service; its progress stands under a title."""
    address, token = service.address(), service.token()
    with progress(title) as observers:
        async with Client(address, token, observers=observers) as client:
            yield client


@contextmanager
def progress(title: str) -> Iterator[tuple[Observer, ...]]:
    """Give the observers that show progress: none where standard error is no terminal."""
    console = aside()
    if not console.is_terminal:
        yield ()
        return
    with console.status(title) as status:
        yield (_Requests(title, status),)


class _Requests:
    """Shows how many requests were sent, and why nothing moves while one waits to be sent again."""

    def __init__(self, title: str, status: Status) -> None:
        self._title, self._status, self._sent = title, status, 0

    def __call__(self, event: Event) -> None:
        match event:
            case RequestStarted():
                self._sent += 1
                self._status.update(f"{self._title}: {counted(self._sent, 'request')}")
            case Retrying():
                self._status.update(f"{self._title}: retrying in {lasting(event.wait)}: {event.failure}")
