"""A client for the duration of a command, with the shared bucket and cache of the
environment, and progress on standard error.
"""

import os
import re
import warnings
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from rich.status import Status

from asyncfin import (
    Cache,
    Client,
    FileBucket,
    FileCache,
    RedisBucket,
    TokenBucket,
    token_file,
)
from asyncfin.cli.errors import (
    EntitiesFailedError,
    prefix_errors,
    print_error,
)
from asyncfin.cli.options import Names, Service, require
from asyncfin.cli.terminal import progress_console
from asyncfin.errors import AsyncfinError, ends_all
from asyncfin.events import Event, RequestStarted, Retrying, Waiting
from asyncfin.extraction.report import Failure
from asyncfin.tasks import bounded
from asyncfin.typing import TokenSource
from asyncfin.words import counted, lasting

T = TypeVar("T")


def make_shared_cache() -> FileCache | None:
    """Return the cache that ASYNCFIN_CACHE and ASYNCFIN_ACCOUNT name, if any."""
    if not (folder := os.environ.get("ASYNCFIN_CACHE")):
        return None
    with prefix_errors("ASYNCFIN_CACHE"):
        return FileCache(folder, account=os.environ.get("ASYNCFIN_ACCOUNT") or None)


def read_bucket_place() -> str | None:
    """Return the path or URL of the bucket that ASYNCFIN_BUCKET names, if any."""
    return os.environ.get("ASYNCFIN_BUCKET") or None


def make_shared_bucket(
    place: str, rate: float | None = None, daily_budget: float | None = None
) -> FileBucket | RedisBucket:
    """Make the bucket that ASYNCFIN_BUCKET, a place, shares with other processes."""
    with prefix_errors("ASYNCFIN_BUCKET"):
        # Anything else is the path of a folder on this machine.
        if not re.match(r"(rediss?|unix)://", place):
            return FileBucket(place, rate, daily_budget=daily_budget)
        account: Any = os.environ.get("ASYNCFIN_ACCOUNT")
        require("redis", "redis", "ASYNCFIN_BUCKET")
        return RedisBucket(place, account=account, rate=rate, daily_budget=daily_budget)


@asynccontextmanager
async def open_client(
    service: Service,
    *,
    rate: float | None = None,
    daily_budget: float | None = None,
    memory: Cache | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """Yield a client of a service with a bucket of this pace; the options are those of
    `Client`.

    Args:
        memory: the cache to use if the environment has none.
    """
    bucket: TokenBucket | FileBucket | RedisBucket
    if (place := read_bucket_place()) is None:
        bucket = TokenBucket(rate, daily_budget=daily_budget)
    else:
        bucket = make_shared_bucket(place, rate, daily_budget)
    cache = make_shared_cache()
    token: TokenSource = service.token
    # A cache without an account belongs to the token that it is given. What is not a
    # regular file, such as the output of another command, can be read once.
    is_fixed = cache is not None and not os.environ.get("ASYNCFIN_ACCOUNT")
    if service.token_file is not None and not is_fixed and service.token_file.is_file():
        token = token_file(service.token_file)
    # A Python warning would show a line of this file. "always", since Python shows some
    # only once, and the environment can turn them off.
    with warnings.catch_warnings(record=True, action="always") as notices:
        client = Client(
            service.address,
            token,
            bucket=bucket,
            cache=cache or memory,
            allow_http=service.allow_http,
            user_agent=os.environ.get("ASYNCFIN_USER_AGENT") or None,
            **options,
        )
    for notice in notices:
        print_error(f"asyncfin: {notice.message}")
    async with client, aclosing(bucket), aclosing(cache) if cache else nullcontext():
        yield client


class Progress:
    """Counts the requests, and shows on a terminal how many were sent and which one is
    retried.
    """

    def __init__(self, title: str, status: Status | None = None) -> None:
        self.requests = 0
        self._title, self._status = title, status

    def __call__(self, event: Event) -> None:
        match event:
            case RequestStarted():
                # Retries count: each attempt costs a request of the allowance.
                self.requests += 1
                text = counted(self.requests, "request")
            case Retrying():
                text = f"retrying in {lasting(event.wait)}: {event.failure}"
            case Waiting():
                text = (
                    f"waiting for the {event.reason}, {lasting(event.seconds)} so far"
                )
            case _:
                return
        if self._status is not None:
            self._status.update(f"{self._title}: {text}")


@contextmanager
def show_progress(title: str) -> Iterator[Progress]:
    """Yield the observer that counts requests, and shows them if standard error is a
    terminal.
    """
    console = progress_console()
    if not console.is_terminal:
        yield Progress(title)
        return
    with console.status(title) as status:
        yield Progress(title, status)


@asynccontextmanager
async def connect(
    service: Service, title: str, names: Names = Names()
) -> AsyncIterator[tuple[Client, Progress]]:
    """Open a client that shows progress under a title, and whose errors have the names
    of entities as notes, which `exit_line` prints.
    """
    with show_progress(title) as progress:
        async with open_client(service, observers=[progress]) as client:
            try:
                yield client, progress
            except AsyncfinError as error:
                if name := names.table.get(error.entity_id or ""):
                    error.add_note(name)
                raise


async def read_each(
    client: Client, entity_ids: Sequence[str], read: Callable[[str], Awaitable[T]]
) -> tuple[dict[str, T], dict[str, AsyncfinError]]:
    """Read something of each entity, as many at once as there may be requests in
    flight, and return the results and errors. What fails all others too ends it.
    """
    results: dict[str, T] = {}
    errors: dict[str, AsyncfinError] = {}
    has_ended = False

    async def read_one(entity_id: str) -> None:
        nonlocal has_ended
        if has_ended:
            return
        try:
            results[entity_id] = await read(entity_id)
        except AsyncfinError as error:
            errors[entity_id] = error
            has_ended = has_ended or ends_all(error, waits=False)

    jobs = [partial(read_one, entity_id) for entity_id in entity_ids]
    async with bounded(jobs, client.max_in_flight) as ends:
        async for _ in ends:
            pass
    # In the order of the entities, not of arrival.
    for entity_id in entity_ids:
        if entity_id in results:
            results[entity_id] = results.pop(entity_id)
    return results, errors


def check_failed(
    failures: Mapping[str, AsyncfinError], total: int, names: Names
) -> None:
    """Print a line for each entity that failed by itself, and raise an error if there
    is one.

    Args:
        failures: the error of each entity that failed.
        total: how many entities there are in all.

    Raises:
        EntitiesFailedError: some failed.
        AsyncfinError: what ended the reading of all, or the error of the only entity.
    """
    errors: dict[str, AsyncfinError] = {}
    causes: list[AsyncfinError] = []
    for entity_id, error in failures.items():
        if ends_all(error, waits=False):
            causes.append(error)
        else:
            errors[entity_id] = error
    if errors and not causes and total == 1:
        raise next(iter(errors.values()))
    for entity_id, error in errors.items():
        print_error(f"asyncfin: {names.add_names(entity_id)}: {error}")
    if causes:
        raise causes[0]
    if errors:
        raise EntitiesFailedError(list(map(Failure.of, errors.values())), total)
