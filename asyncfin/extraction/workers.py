"""Runs an extraction over an executor: workers read chunks of entities, the driver
locks and reports.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from functools import partial
from inspect import isroutine
from typing import Any

from attrs import define, evolve, field, frozen

from asyncfin import checks
from asyncfin.client import Client
from asyncfin.errors import AllowanceExhaustedError, ArgumentError, AsyncfinError
from asyncfin.extraction.collector import collect_rarely
from asyncfin.extraction.entity import check_client
from asyncfin.extraction.feed import Feed
from asyncfin.extraction.feed_writer import FeedRun, FeedWriter
from asyncfin.extraction.place import Lock, Place
from asyncfin.extraction.progress import Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.record import Record, find_record
from asyncfin.extraction.report import EntityReport
from asyncfin.extraction.run import OnError, Options, Run, Verdict, explain, sleep_until
from asyncfin.model.select import Select
from asyncfin.optional import library
from asyncfin.tasks import in_thread, wait_for_all

MakeClient = Callable[[], Client]
MakeExecutor = Callable[[], Executor]
_log = logging.getLogger("asyncfin")
# How many executors in a row may break without finishing an entity, before the run
# gives up.
_MOST_BROKEN = 3
# After so many seconds in which no chunk has ended, the caller's log says so.
_SILENT_SECONDS = 120.0


@frozen
class Chunk:
    """The work of one call in a worker. Nothing in it is secret, since engines store
    and log what they send.

    `make_client` is sent by its name, `owner` is that of the place's lock, and `driver`
    the id of the driver's process.
    """

    make_client: MakeClient
    entity_ids: tuple[str, ...]
    question: SharedQuestion
    place: Place
    refresh: bool
    on_error: OnError
    owner: str | None
    feed_run: FeedRun | None = None
    driver: int = field(factory=os.getpid)


@frozen
class ChunkResult:
    """What a worker has done.

    `has_success` is whether the service has answered a request, `rejection` the last
    403; `complaint` is what one of the entities has in place of missing names.
    """

    reports: tuple[EntityReport, ...]
    records: dict[str, Record]
    waits: float
    repeated: Mapping[str, int]
    has_success: bool
    stopped: AsyncfinError | None
    rejection: AsyncfinError | None
    complaint: str | None


_check_made = checks.instance_of(Executor)
check_executor = checks.Check(
    "a concurrent.futures.Executor, or a function that makes one",
    lambda value: isinstance(value, Executor) or checks.plain_callable.holds(value),
)


def check_make_client(make_client: Any, select: Select) -> None:
    """Raise ArgumentError for a function that a worker could not import by its name.

    Pickle sends a function of a module by its name. One of `__main__`, or within
    another function, is sent by value (cloudpickle), with all that it refers to: a
    token among it. So is a predicate of the question.
    """
    if not _is_importable(make_client):
        # Not shown: a functools.partial shows its arguments, and a token may be among
        # them.
        raise ArgumentError(
            "with an executor, client must be a function of a module that workers can "
            "import, which takes no"
            " arguments and returns a Client, such as Client.from_env; not a Client, "
            "nor a function of"
            f" __main__ or within another, not a {type(make_client).__name__}"
        )
    if getattr(select, "where", None) is not None:
        raise ArgumentError(
            "with an executor, a Select can't have `where`: workers aren't sent a "
            "predicate"
        )


def _is_importable(function: Any) -> bool:
    """Return whether a worker can import this very function by its name."""
    module, name = (
        getattr(function, "__module__", None),
        getattr(function, "__qualname__", ""),
    )
    if not (isroutine(function) or isinstance(function, type)) or checks.is_async(
        function
    ):
        return False
    if module == "__main__":  # another one in each process
        return False
    try:
        return bool(pkgutil.resolve_name(f"{module}:{name}") == function)
    except (ImportError, AttributeError, ValueError):
        return False


def read_chunk(chunk: Chunk) -> ChunkResult:
    """Read a chunk in a worker, and put each of its entities in place."""
    library("pyarrow.parquet", "arrow")
    # A thread of the caller's process must not change the caller's collector.
    if os.getpid() != chunk.driver:
        collect_rarely()
    return asyncio.run(_read_chunk(chunk))


async def _read_chunk(chunk: Chunk) -> ChunkResult:
    client, ids = chunk.make_client(), chunk.entity_ids
    check_client("what make_client returns", client)
    async with client:
        # Read here: a worker that was killed may have put files in place that the
        # driver has not seen.
        found = [
            await in_thread(
                partial(find_record, chunk.place, chunk.question, entity_id)
            )
            for entity_id in ids
        ]
        records = {record.entity_id: record for record in found if record is not None}
        tracker = Tracker(len(ids), None, files=len(records))
        writer = None
        if chunk.feed_run is not None:
            writer = FeedWriter(Feed(chunk.place), chunk.question, chunk.feed_run)
        # The driver waits for an allowance: a worker that sleeps is a worker less.
        options = Options(on_error=chunk.on_error, refresh=chunk.refresh)
        run = Run(
            client,
            chunk.question,
            chunk.place,
            records,
            tracker,
            options,
            chunk.owner,
            writer,
        )
        with run.announced(len(ids)):
            await run.read_all(ids)
        return ChunkResult(
            tracker.reports_on(ids),
            records,
            tracker.waits,
            tracker.repeated,
            tracker.has_success,
            run.stopped,
            run.rejection,
            explain(run.example, chunk.question),
        )


@define
class Driver:
    """Cuts the entities into chunks, sends them to an executor, and gathers the
    results.

    Attributes:
        complaint: what one of the entities has in place of missing names.
        uncounted: how often the executor broke.
    """

    _make_client: MakeClient
    _question: SharedQuestion
    _place: Place
    _records: dict[str, Record]
    _tracker: Tracker
    _options: Options
    _lock: Lock | None
    _owner: str | None
    _feed_run: FeedRun | None
    _verdict: Verdict
    stopped: AsyncfinError | None = None
    complaint: str | None = None
    uncounted: int = 0
    # What failed because of the service is read again, in the last chunks.
    _again: dict[str, None] = field(factory=dict)
    _has_asked: bool = False

    async def read_all(
        self, executor: Executor | MakeExecutor, ids: Sequence[str]
    ) -> None:
        """Read entities; the tracker has the reports on those that ended.

        Raises:
            BrokenExecutor: a given executor broke, or three in a row that were made.
        """
        self._tracker.report()
        if isinstance(executor, Executor):
            await self._read_with(executor, ids)
            return
        broken = 0
        while True:
            before = len(self._tracker.reports)
            made = _check_made("what executor makes", executor())
            try:
                await self._read_with(made, ids)
                return
            except BrokenExecutor:
                # A process pool loses all waiting chunks with one killed worker. What
                # they have put in place by then is found there, and not read again.
                broken = 0 if len(self._tracker.reports) > before else broken + 1
                if broken == _MOST_BROKEN:
                    raise
            finally:
                await in_thread(made.shutdown)

    @property
    def _ending(self) -> bool:
        return (
            self.stopped is not None
            or self._options.stop.is_set()
            or self._verdict.gives_up
        )

    @property
    def _asks_first(self) -> bool:
        """Whether one entity with a file is to be asked before all others."""
        return self._verdict.is_doubtful and not self._has_asked

    async def _read_with(self, executor: Executor, ids: Sequence[str]) -> None:
        while not self._ending and (chunks := self._next_chunks(ids)):
            await self._read_chunks(executor, chunks)
            # Workers report a used-up allowance and end: the driver alone sleeps, and
            # sends what is left.
            if isinstance(self.stopped, AllowanceExhaustedError) and self._options.wait:
                until, self.stopped = self.stopped.resume_at, None
                await sleep_until(
                    until, chunks[0][0], self._tracker, self._options.stop
                )

    def _next_chunks(self, ids: Sequence[str]) -> list[Sequence[str]]:
        """Return what to send next, or nothing at the end."""
        left = [
            entity_id for entity_id in ids if entity_id not in self._tracker.reports
        ]
        if self._asks_first:
            self._has_asked = True
            if with_file := [
                entity_id for entity_id in left if entity_id in self._records
            ]:
                return [with_file[:1]]
        # Entities without a file come first, as in one process.
        left.sort(key=self._records.__contains__)
        left = [entity_id for entity_id in left if entity_id not in self._again] or left
        size = self._options.chunk
        return [left[start : start + size] for start in range(0, len(left), size)]

    async def _read_chunks(
        self, executor: Executor, chunks: list[Sequence[str]]
    ) -> None:
        """Send chunks, and gather their results; those that have not begun by the end
        are cancelled.
        """
        sent: dict[asyncio.Future[ChunkResult], Future[ChunkResult]] = {}

        def cancel_waiting() -> None:
            for future in sent.values():
                future.cancel()  # does nothing to one that runs

        stop = asyncio.ensure_future(self._options.stop.wait())
        try:
            for ids in chunks:
                # All at once, and cancelled if the run ends: an executor knows best how
                # many it can run.
                future = executor.submit(read_chunk, self._chunk(ids))
                sent[asyncio.wrap_future(future)] = future
            pending: set[asyncio.Future[Any]] = set(sent)
            while pending:
                awaited = pending if stop.done() else {*pending, stop}
                await asyncio.wait(
                    awaited,
                    return_when=asyncio.FIRST_COMPLETED,
                    timeout=_SILENT_SECONDS,
                )
                done = {future for future in pending if future.done()}
                if not done and not stop.done():
                    _log.warning(
                        "no chunk has ended for %d s: %d of %d have not; see the "
                        "executor's own log",
                        _SILENT_SECONDS,
                        len(pending),
                        len(sent),
                    )
                pending -= done
                # First what was received, then what has failed: it ends the run.
                ended = [future for future in done if not future.cancelled()]
                for result in sorted(
                    ended, key=lambda future: future.exception() is not None
                ):
                    self._gather(result.result())
                if self._lock is not None:
                    self._lock.check()
                if self._ending or self._asks_first:
                    cancel_waiting()
        except BrokenExecutor:
            # It fails all its futures itself. Python 3.11's process pool stumbles over
            # one that is cancelled at that moment: the others never end then, nor do
            # its processes.
            self.uncounted += 1
            raise
        except BaseException:
            cancel_waiting()
            raise
        finally:
            stop.cancel()
            # Workers finish what they have begun: no other run may take the place
            # before.
            await wait_for_all([stop, *sent])

    def _chunk(self, ids: Sequence[str]) -> Chunk:
        return Chunk(
            self._make_client,
            tuple(ids),
            self._question,
            self._place,
            self._options.refresh,
            self._options.on_error,
            self._owner,
            self._feed_run,
        )

    def _gather(self, result: ChunkResult) -> None:
        """Note and report what a worker has done."""
        self._tracker.waits += result.waits
        self._tracker.repeated.update(result.repeated)
        self.stopped = self.stopped or result.stopped
        self.complaint = result.complaint or self.complaint
        self._records.update(result.records)
        self._verdict.has_success |= result.has_success
        for entity in result.reports:
            self._verdict.note(entity, result.rejection)
            if self._is_read_again(entity):
                self._again[entity.entity_id] = None
                entity = evolve(entity, state="left", failure=None)
            self._tracker.add(entity)
        self.stopped = self.stopped or self._verdict.stopped

    def _is_read_again(self, entity: EntityReport) -> bool:
        failure = entity.failure
        return (
            failure is not None
            and failure.concerns == "service"
            and entity.entity_id not in self._again
        )
