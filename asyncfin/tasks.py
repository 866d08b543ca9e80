"""Waiting for tasks: bounded jobs and times, single-flight calls, resumable iteration,
cancel and wait.

anyio's pieces for the same jobs are not as strict under asyncio's own `Task.cancel`
(tried with 4.16): a second one cuts a shielded cleanup off, a memory stream loses the
item that meets one, and `to_thread.run_sync` does not wait for its thread, whose
limiter is free before it ends. Its task groups wrap a single failure, and must not be
open across the yield of an async generator. So these are built on asyncio alone.
"""

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from contextvars import Context, copy_context
from copy import copy
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from asyncfin import errors

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
Job = Callable[[], Awaitable[T]]
MakeGenerator = Callable[[], AsyncGenerator[T, None]]

# A timer that fires later than this, in seconds, measured the event loop's delay and
# not the server's.
_LATE = 0.05
_EXTENSIONS = 3


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop; RuntimeError: there is none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    raise RuntimeError(
        "asyncfin runs on asyncio only, and no asyncio event loop is running here"
    )


def check_closed(loop: asyncio.AbstractEventLoop, owner: str, kind: str) -> None:
    """Raise RuntimeError unless an event loop is closed: only then may what it used
    move to another one.
    """
    if not loop.is_closed():
        raise RuntimeError(
            f"this {owner} belongs to another event loop, which is not closed: use one "
            f"{kind} per loop"
        )


# What a cancellation says whose reason is a time limit: observers tell it from a
# visitor who left.
TIME_IS_UP = "time is up"


async def cancel_and_wait(
    tasks: "Collection[asyncio.Task[Any]]", reason: str | None = None
) -> None:
    """Cancel tasks and wait until all have ended, even if the caller is itself
    cancelled during the wait.
    """
    for task in tasks:
        task.cancel(reason)
    await wait_for_all(tasks)


async def wait_for_all(futures: "Collection[asyncio.Future[Any]]") -> None:
    """Wait until all have ended, and leave their results and errors in them.

    If the caller is cancelled during the wait, that is raised once all have ended.
    """
    cancellation = None
    # However often the caller is cancelled, it waits: the tasks may use what the caller
    # is about to close.
    while pending := [future for future in futures if not future.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancellation = error
    for future in futures:
        if not future.cancelled():
            future.exception()  # else the loop would log it as never retrieved
    if cancellation is not None:
        raise cancellation


async def finish(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of some work, which goes on to its end if the caller is
    cancelled.
    """
    task = asyncio.ensure_future(work)
    await wait_for_all([task])
    return task.result()


async def in_thread(call: Callable[[], T]) -> T:
    """Run a blocking call in a separate thread.

    If the caller is cancelled, it waits for the end of the call first: the call may use
    what the caller is about to close, and a thread in native code can abort a process
    whose interpreter ends.
    """
    from concurrent.futures import ThreadPoolExecutor  # slow to import, rarely needed

    # One for each call: no other call delays the renewal of a lock.
    thread = ThreadPoolExecutor(1, "asyncfin")
    # A future, not a task: when `asyncio.run` ends, it cancels all tasks, and would not
    # wait for the call.
    future = asyncio.get_running_loop().run_in_executor(
        thread, partial(copy_context().run, call)
    )
    thread.shutdown(wait=False)  # it ends with the call
    await wait_for_all([future])
    return future.result()


@asynccontextmanager
async def unless_silent(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` in which the event loop was running:
    TimeoutError.

    A timer that fires more than 50 ms late has measured a busy loop, and the response
    may have been received since: the block gets the same time again, at most three
    times.
    """
    loop = asyncio.get_running_loop()
    extensions = 0
    timer: asyncio.TimerHandle

    def start() -> None:
        nonlocal timer
        timer = loop.call_later(seconds, end, loop.time() + seconds)

    def end(due: float) -> None:
        nonlocal extensions
        now = loop.time()
        if now - due > _LATE and extensions < _EXTENSIONS:
            extensions += 1
            start()
        else:
            limit.reschedule(now)

    try:
        async with asyncio.timeout(None) as limit:
            start()
            try:
                yield
            finally:
                timer.cancel()
    except TimeoutError:
        busy = "; the event loop was busy" if extensions else ""
        raise TimeoutError(f"no response within {seconds:g} s{busy}") from None


async def closed_with_loop(
    close: Callable[[], Awaitable[None]],
) -> AsyncGenerator[None, None]:
    """Close something when this generator, begun by one step, is closed: at the latest
    with its loop.
    """
    try:
        yield
    finally:
        await close()


def bounded(
    jobs: Iterable[Job[T]], limit: int
) -> AbstractAsyncContextManager[AsyncIterator[T]]:
    """Run jobs, and yield their results as they complete; otherwise as `merged`."""

    async def run(job: Job[T]) -> AsyncGenerator[T, None]:
        yield await job()

    return merged([partial(run, job) for job in jobs], limit)


@asynccontextmanager
async def merged(
    generators: Sequence[MakeGenerator[T]], limit: int
) -> AsyncIterator[AsyncIterator[T]]:
    """Run generators, and yield their items as they are ready.

    At most `limit` items are being made or wait for the consumer: the next one is begun
    when one is taken. The first failure cancels the other generators and is raised, as
    itself, after the items that are ready. Leaving the block cancels what still runs
    and waits for its end.
    """
    running_loop()
    items = _Merged(generators, limit)
    try:
        yield items
    finally:
        items.leave()
        await cancel_and_wait(items.workers)


class _Merged(Generic[T]):
    def __init__(self, generators: Sequence[MakeGenerator[T]], limit: int) -> None:
        self._generators = iter(generators)
        # A place for each item that is being made or waits.
        self._places = asyncio.Semaphore(limit)
        self._ready: deque[T] = deque()
        self._failure: BaseException | None = None
        self._changed = asyncio.Event()
        # Counted down by the workers themselves, so that the consumer knows the end
        # without looking at tasks.
        self._running = min(limit, len(generators))
        self.workers: list[asyncio.Task[None]] = []
        # Where tasks are eager, one may fail before the next is made.
        for _ in range(self._running):
            self.workers.append(asyncio.ensure_future(self.work()))

    async def work(self) -> None:
        try:
            await self._places.acquire()
            for generator in self._generators:
                async with aclosing(generator()) as items:
                    async for item in items:
                        self._ready.append(item)
                        self._changed.set()
                        await self._places.acquire()
            self._places.release()
        # A generator that cancelled itself is not at its end, and must not count as
        # complete.
        except GeneratorExit as error:  # of a loop that has ended, or of an observer
            self._failure = self._failure or error
            raise
        except BaseException as error:  # the consumer raises it
            # Only the first: the others usually raise their cancellation.
            if self._failure is None:
                self._failure = error
                self._generators = iter(())
                for task in self.workers:
                    task.cancel()
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise  # the loop ends with it
        finally:
            self._running -= 1
            self._changed.set()

    def leave(self) -> None:
        """Make a later step an error, which must not pass for a cancellation."""
        if self._running and self._failure is None:
            self._failure = RuntimeError("the `async with` block has been left")
        self._changed.set()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            if self._ready:
                self._places.release()
                return self._ready.popleft()
            if self._failure is not None:
                raise self._failure
            if not self._running:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()


def _copy_error(error: BaseException) -> BaseException:
    """Return an error for one of several callers: one object raised in many tasks would
    mix their tracebacks and notes.
    """
    duplicate = copy(error).with_traceback(error.__traceback__)
    duplicate.__context__, duplicate.__cause__ = error.__context__, error.__cause__
    duplicate.__suppress_context__ = error.__suppress_context__
    return duplicate


class _SharedCall(Struct, Generic[T], eq=False):
    task: "asyncio.Task[T]"
    callers: int = 0


class SingleFlight(Generic[K, T]):
    """Shares one call for each key, which runs in a separate task. Cancelling one
    caller does not cancel it for the others; without any it is cancelled. If it fails
    with an error of this library, each caller gets a copy.
    """

    def __init__(self) -> None:
        self._calls: dict[K, _SharedCall[T]] = {}

    async def share(self, key: K, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the pending call for `key`; start `function` if there is
        none.
        """
        loop, call = running_loop(), self._calls.get(key)
        # The call of a loop that has ended would never be done.
        if call is None or call.task.done() or call.task.get_loop() is not loop:
            call = self._calls[key] = _SharedCall(loop.create_task(function()))
            # Called also if the task is cancelled before its first step, which runs
            # none of its code.
            call.task.add_done_callback(partial(self._remove, key, call))
        call.callers += 1
        try:
            # Unlike awaiting the task, this does not pass a cancellation on.
            await asyncio.wait([call.task])
            error = None if call.task.cancelled() else call.task.exception()
            # A user's class need not be one that can be copied.
            if error is not None and type(error).__module__ == errors.__name__:
                raise _copy_error(error)
            return call.task.result()
        finally:
            call.callers -= 1
            if not call.callers and not call.task.done():
                if self._calls.get(key) is call:
                    del self._calls[key]  # the next caller makes a new call
                await cancel_and_wait([call.task])

    def _remove(self, key: K, call: _SharedCall[T], task: "asyncio.Task[T]") -> None:
        # A failure is dropped too: the next caller makes a new call.
        if self._calls.get(key) is call:
            del self._calls[key]
        if not task.cancelled():
            task.exception()  # else the loop would log it as never retrieved


@asynccontextmanager
async def resumable(
    generator: AsyncGenerator[T, None], context: Context | None = None
) -> AsyncIterator[AsyncIterator[T]]:
    """Iterate over a generator so that cancelling `anext()` loses nothing; close it at
    the end of the block.

    Cancelling `anext()` (a timeout, say) does not cancel the generator, which would
    then seem to have no more items; the next `anext()` returns the item that was
    awaited. Each step has the context of its caller, unless one is given.
    """
    running_loop()
    items = _Resumable(generator, context)
    try:
        yield items
    finally:
        await cancel_and_wait(items.pending)
        await generator.aclose()


class _Resumable(Generic[T]):
    def __init__(
        self, generator: AsyncGenerator[T, None], context: Context | None
    ) -> None:
        self._generator, self._context = generator, context
        self._lock = asyncio.Lock()
        self.pending: list[asyncio.Task[T]] = []  # the item awaited, if any

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        async with self._lock:
            if not self.pending:
                loop = asyncio.get_running_loop()
                self.pending.append(
                    loop.create_task(self._take_next(), context=self._context)
                )
            # Unlike awaiting the task, this does not pass a cancellation on.
            await asyncio.wait(self.pending)
            return self.pending.pop().result()

    # A task needs a coroutine, and anext() returns only an awaitable.
    async def _take_next(self) -> T:
        return await anext(self._generator)


_decoding_locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}


def decoding_lock() -> asyncio.Lock:
    """Return the running loop's lock for decoding, searching and compressing responses.

    msgspec holds the GIL, so decoding in threads would stop the loop too. Instead one
    response at a time is worked on, and other tasks run between the steps.
    """
    loop = asyncio.get_running_loop()
    if loop not in _decoding_locks:
        # A copy made in one step: loops of other threads come and go.
        for other_loop in list(_decoding_locks):
            if other_loop.is_closed():
                _decoding_locks.pop(other_loop, None)
        _decoding_locks[loop] = asyncio.Lock()
    return _decoding_locks[loop]
