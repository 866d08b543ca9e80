"""Jobs in flight: at most so many at once, their results as they come, and nothing left behind."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from asyncfin.wire.ending import end

T = TypeVar("T")
Job = Callable[[], Awaitable[T]]


@asynccontextmanager
async def in_flight(jobs: Sequence[Job[T]], limit: int) -> AsyncIterator[AsyncIterator[T]]:
    """Give the results of jobs, each as soon as it is there, in whatever order.

    At most `limit` jobs are under way, and as many results wait for the consumer. The first failure
    cancels the other jobs and is raised, as itself, at the consumer's next step; results not yet taken
    are dropped then. Leaving the block cancels what is still under way and waits for its end.
    """
    flight = _Flight(jobs, min(limit, len(jobs)))
    try:
        yield flight
    finally:
        await end(flight.workers)


class _Flight(Generic[T]):
    def __init__(self, jobs: Sequence[Job[T]], workers: int) -> None:
        self._jobs = iter(jobs)
        self._results: asyncio.Queue[T] = asyncio.Queue(workers)
        self._failure: BaseException | None = None
        self._news = asyncio.Event()
        self._working = workers
        self.workers: list[asyncio.Task[None]] = []
        for _ in range(workers):  # where tasks are eager, one may fail before the next is made
            self.workers.append(asyncio.ensure_future(self._work()))

    async def _work(self) -> None:
        try:
            for job in self._jobs:
                await self._results.put(await job())
                self._news.set()
        # A job that was cancelled by itself has no result either, and must not pass for a whole answer.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the consumer raises it
            self._fail(error)
        finally:
            self._working -= 1
            self._news.set()

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            self._jobs = iter(())
            for task in self.workers:
                task.cancel()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            if self._failure is not None:
                raise self._failure
            if not self._results.empty():
                return self._results.get_nowait()
            if not self._working:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
