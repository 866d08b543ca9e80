"""How tasks are waited for: bounded jobs, single-flight calls, resumable iteration, and cancel and wait.

anyio's pieces for the same jobs are not as strict: its shield does not hold against asyncio's own
`Task.cancel`, its memory streams lose the item that meets a cancellation, and its task groups must not be
open across the yield of an async generator. So these are built on asyncio alone.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Job = Callable[[], Awaitable[T]]


async def cancel_and_wait(tasks: "Collection[asyncio.Task[Any]]") -> None:
    """Cancel tasks and wait until all have ended, even if the caller is itself cancelled meanwhile.

    Their results and errors are dropped, so the loop reports none of them as never retrieved.
    """
    for task in tasks:
        task.cancel()
    cancelled = None
    # A caller that is cancelled again and again still waits: a task left alone could go on using what the
    # caller is about to close. The last cancellation is raised once all have ended.
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()
    if cancelled is not None:
        raise cancelled


@asynccontextmanager
async def bounded(jobs: Sequence[Job[T]], limit: int) -> AsyncIterator[AsyncIterator[T]]:
    """Run jobs, at most `limit` at once, and give their results as they complete.

    At most `limit` results wait for the consumer. The first failure cancels the other jobs and is raised, as
    itself, at the consumer's next step; results not yet taken are dropped. Leaving the block cancels the jobs
    that still run and waits for their end.
    """
    results = _Results(jobs, min(limit, len(jobs)))
    try:
        yield results
    finally:
        await cancel_and_wait(results.workers)


class _Results(Generic[T]):
    def __init__(self, jobs: Sequence[Job[T]], workers: int) -> None:
        self._jobs = iter(jobs)
        self._ready: asyncio.Queue[T] = asyncio.Queue(workers)
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()
        self._running = workers
        self.workers: list[asyncio.Task[None]] = []
        for _ in range(workers):  # where tasks are eager, one may fail before the next is made
            self.workers.append(asyncio.ensure_future(self._work()))

    async def _work(self) -> None:
        try:
            for job in self._jobs:
                await self._ready.put(await job())
                self._changed.set()
        # A job that cancelled itself has no result either, and must not pass for a complete set of results.
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  the consumer raises it
            self._fail(error)
        finally:
            self._running -= 1
            self._changed.set()

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
            if not self._ready.empty():
                return self._ready.get_nowait()
            if not self._running:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()


class SingleFlight(Generic[K, T]):
    """At most one call under way for each key; callers that ask meanwhile wait for its result.

    A caller that is cancelled leaves the call to the others; when the last one leaves, it is cancelled.
    """

    def __init__(self) -> None:
        self._calls: dict[K, _Call[T]] = {}

    async def share(self, key: K, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the call under way for `key`; start `function` if there is none."""
        call = self._calls.get(key)
        if call is None or call.task.get_loop() is not asyncio.get_running_loop():
            call = self._calls[key] = _Call(asyncio.create_task(function()))
        call.waiting += 1
        try:
            return await asyncio.shield(call.task)
        finally:
            call.waiting -= 1
            if (call.task.done() or not call.waiting) and self._calls.get(key) is call:
                del self._calls[key]
            if not call.task.done() and not call.waiting:
                await cancel_and_wait([call.task])


class _Call(Generic[T]):
    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.waiting = 0


@asynccontextmanager
async def resumable(generator: AsyncGenerator[T, None]) -> AsyncIterator[AsyncIterator[T]]:
    """Iterate over a generator so that cancelling `anext()` loses nothing; close it at the end of the block.

    Cancelling `anext()` (a timeout, say) does not cancel the generator, which would then seem to have no more
    items; the next `anext()` returns the item that was awaited.
    """
    items = _Resumable(generator)
    try:
        yield items
    finally:
        await cancel_and_wait(items.pending)
        await generator.aclose()


class _Resumable(Generic[T]):
    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator
        self._lock = asyncio.Lock()
        self.pending: list[asyncio.Task[T]] = []  # the item awaited, if any

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        async with self._lock:
            if not self.pending:
                self.pending.append(asyncio.ensure_future(self._next()))
            await asyncio.wait(self.pending)  # unlike awaiting the task, this does not pass a cancellation on
            return self.pending.pop().result()

    async def _next(self) -> T:  # a task needs a coroutine, and anext() gives only an awaitable
        return await anext(self._generator)


_decoding: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}


def decoding_lock() -> asyncio.Lock:
    """Return the running loop's lock for decoding a response; hold it, and yield to the loop between slices.

    msgspec holds the GIL, so decoding in threads would stop the loop just the same. Instead one response at a
    time is decoded in slices on the loop, and other tasks run in between.
    """
    loop = asyncio.get_running_loop()
    if loop not in _decoding:
        for each in list(_decoding):  # a copy made in one step: loops of other threads come and go
            if each.is_closed():
                _decoding.pop(each, None)
        _decoding[loop] = asyncio.Lock()
    return _decoding[loop]
