"""Runs an extraction over an executor: workers read chunks of entities, the driver
locks and reports.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from inspect import isroutine
from typing import Any

from attrs import define

from asyncfin import Client, Retry, Select, Timeouts, checks
from asyncfin.errors import ArgumentError
from asyncfin.extraction.collector import collect_rarely
from asyncfin.extraction.progress import Result, Tracker
from asyncfin.extraction.record import read_records
from asyncfin.extraction.run import Job, Reader, Run, announce
from asyncfin.optional import library
from asyncfin.tasks import in_thread, wait_for_all

MakeClient = Callable[[], Client]
MakeExecutor = Callable[[], Executor]
_log = logging.getLogger("asyncfin")
# How many executors in a row may break without finishing an entity, before the run
# ends.
_MOST_BROKEN = 3
# After so many seconds in which no chunk has ended, a warning is logged.
_SILENT_SECONDS = 120.0
# The arguments of a partial that may be sent to workers.
_PLAIN = (str, int, float, Retry, Timeouts)


check_client = checks.instance_of(Client)
_check_made = checks.instance_of(Executor)
check_executor = checks.Check(
    "a concurrent.futures.Executor, or a function that makes one",
    lambda value: isinstance(value, Executor) or checks.plain_callable.holds(value),
)


def check_make_client(make_client: Any, select: Select) -> None:
    """Raise ArgumentError for a function that a worker could not import by its name.

    Pickle sends a function of a module by its name. One of `__main__`, or within
    another function, is sent by value (cloudpickle), with all that it refers to: a
    token among it. So are a predicate of the query and the arguments of a partial:
    those of `Client.from_env` contain no token.
    """
    function = make_client
    if isinstance(make_client, partial) and make_client.func == Client.from_env:
        arguments = [*make_client.args, *make_client.keywords.values()]
        if all(isinstance(argument, _PLAIN) for argument in arguments):
            function = Client.from_env
    if not _is_importable(function):
        # Not shown: a functools.partial shows its arguments, and a token may be among
        # them.
        raise ArgumentError(
            "with an executor, client must be a function of a module that workers can "
            "import, which takes no arguments and returns a Client, such as "
            "Client.from_env or partial(Client.from_env, lane='bulk'); not a Client, "
            "nor a function of __main__ or within another, not a "
            f"{type(make_client).__name__}"
        )
    if getattr(select, "where", None) is not None:
        raise ArgumentError(
            "with an executor, a Select can't have `where`: workers aren't sent a "
            "predicate"
        )


def _is_importable(function: Any) -> bool:
    """Return whether a worker can import this very function by its name."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    is_kind = isroutine(function) or isinstance(function, type)
    # Another __main__ is in each process.
    if not is_kind or checks.is_async(function) or module == "__main__":
        return False
    try:
        return bool(pkgutil.resolve_name(f"{module}:{name}") == function)
    except (ImportError, AttributeError, ValueError):
        return False


def read_chunk(
    make_client: MakeClient, entity_ids: tuple[str, ...], job: Job, driver: int
) -> Result:
    """Read a chunk in a worker, and put each of its entities in place.

    Nothing in the arguments is secret, since engines store and log what they send:
    `make_client` is sent by its name. `driver` is the id of the driver's process.
    """
    library("pyarrow.parquet", "arrow")
    # A thread of the caller's process must not change the caller's collector.
    if os.getpid() != driver:
        collect_rarely()
    return asyncio.run(_read_chunk(make_client, entity_ids, job))


async def _read_chunk(
    make_client: MakeClient, entity_ids: tuple[str, ...], job: Job
) -> Result:
    client = make_client()
    check_client("what make_client returns", client)
    tracker = Tracker(entity_ids)
    result = tracker.result

    def check() -> None:
        if job.owner is not None:
            job.place.check_owner(job.owner)

    async with client:
        # Read here: a worker that was killed may have put files in place that the
        # driver has not seen.
        read = partial(read_records, job.place, job.question, entity_ids, replace=True)
        result.records, _ = await in_thread(read)
        reader = Reader(client, job, tracker, check)
        with announce(client, tracker):
            await reader.read_all(
                entity_ids, tracker.end, lambda: result.fatal_error is not None
            )
    return result


@define
class Driver:
    """Cuts the entities of a run into chunks, sends them to an executor, and gathers
    the results.

    Attributes:
        check: raises RunInProgressError if another run has taken the place over.
    """

    run: Run
    job: Job
    make_client: MakeClient
    check: Callable[[], None]

    async def read_all(
        self, executor: Executor | MakeExecutor, ids: Sequence[str]
    ) -> None:
        """Read entities; the tracker has the reports on those that ended.

        Raises:
            BrokenExecutor: the executor that was passed broke, or three in a row that
                were made.
        """
        reports = self.run.result.reports
        if isinstance(executor, Executor):
            await self.run.read_all(ids, partial(self._read, executor))
            return
        failures = 0
        while True:
            count = len(reports)
            made_executor = _check_made("what executor makes", executor())
            try:
                await self.run.read_all(ids, partial(self._read, made_executor))
                return
            except BrokenExecutor:
                # A process pool loses all waiting chunks with one killed worker. What
                # they have put in place by then is found there, and not read again.
                failures = 0 if len(reports) > count else failures + 1
                if failures == _MOST_BROKEN:
                    raise
            finally:
                await in_thread(made_executor.shutdown)

    async def _read(self, executor: Executor, ids: list[str]) -> None:
        """Send chunks, and gather their results; those that have not begun by the end
        are cancelled.
        """
        futures: dict[asyncio.Future[Result], Future[Result]] = {}
        size = self.run.options.chunk
        stop = asyncio.ensure_future(self.run.options.stop.wait())
        try:
            for start in range(0, len(ids), size):
                # All at once, and cancelled if the run ends: an executor knows best how
                # many it can run.
                part = tuple(ids[start : start + size])
                future = executor.submit(
                    read_chunk, self.make_client, part, self.job, os.getpid()
                )
                futures[asyncio.wrap_future(future)] = future
            await self._gather(set(futures), stop, futures.values())
        except BrokenExecutor:
            # It fails all its futures itself. Python 3.11's process pool stumbles over
            # one that is cancelled at that moment: the others never end then, nor do
            # its processes.
            self.run.uncounted_chunks += 1
            raise
        except BaseException:
            _cancel(futures.values())
            raise
        finally:
            stop.cancel()
            # Workers finish what they have begun: no other run may take the place
            # before.
            await wait_for_all([stop, *futures])

    async def _gather(
        self,
        pending: set[asyncio.Future[Result]],
        stop: asyncio.Future[Any],
        futures: Iterable[Future[Result]],
    ) -> None:
        count = len(pending)
        while pending:
            waits: set[asyncio.Future[Any]] = set(pending)
            if not stop.done():
                waits.add(stop)
            done, _ = await asyncio.wait(
                waits, return_when=asyncio.FIRST_COMPLETED, timeout=_SILENT_SECONDS
            )
            if not done:
                _log.warning(
                    "no chunk has ended for %d s: %d of %d have not; see the "
                    "executor's own log",
                    _SILENT_SECONDS,
                    len(pending),
                    count,
                )
            ready = [future for future in pending & done if not future.cancelled()]
            pending -= done
            # First what was received, then what has failed: it ends the run.
            ready.sort(key=lambda future: future.exception() is not None)
            for future in ready:
                self.run.add(future.result())
            self.check()
            if self.run.is_ending:
                _cancel(futures)


def _cancel(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()  # does nothing to one that runs
