"""Runs an extraction over an executor: workers read chunks of entities, the driver locks and reports."""

from __future__ import annotations

import asyncio
import os
import pkgutil
from collections.abc import Callable, Sequence
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
from asyncfin.extraction.files import QuestionFiles, files_at
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.parquet import Written
from asyncfin.extraction.prefix import Prefix
from asyncfin.extraction.progress import Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.refusals import Refusals, asked_first
from asyncfin.extraction.report import EntityReport, ExtractReport
from asyncfin.extraction.run import OnError, Options, Run, sleep_until
from asyncfin.extraction.tree import tree_at
from asyncfin.extraction.unknown import unknown_to_all, unknown_to_sample, unread_sample
from asyncfin.model.judge import Missing, unknown_names
from asyncfin.model.select import Select
from asyncfin.optional import library
from asyncfin.tasks import in_thread, wait_for_all

MakeClient = Callable[[], Client]
MakeExecutor = Callable[[], Executor]
# How many executors in a row may break without finishing an entity, before the run gives up.
_MOST_BROKEN = 3


@frozen
class Chunk:
    """The work of one call in a worker. Nothing in it is secret, since engines store and log what they send.

    `make_client` is sent by its name, `known` is what the driver knows of the files of these entities,
    `owner` is that of the folder's lock, and `driver` the id of the driver's process.
    """

    make_client: MakeClient
    entity_ids: tuple[str, ...]
    question: SharedQuestion
    place: Folder | Prefix
    known: dict[str, Written]
    refresh: bool
    on_error: OnError
    max_outage: float | None
    feed_run: FeedRun | None = None
    owner: str | None = None
    driver: int = field(factory=os.getpid)


@frozen
class ChunkResult:
    """What a worker has done.

    `complaint` is what an entity says of names that none of them has; `refusal` the last 403.
    """

    reports: tuple[EntityReport, ...]
    known: dict[str, Written]
    waits: float
    stopped: AsyncfinError | None
    complaint: str | None
    refusal: AsyncfinError | None


_check_made = checks.instance_of(Executor)
check_executor = checks.Check(
    "a concurrent.futures.Executor, or a function that makes one",
    lambda value: isinstance(value, Executor) or checks.plain_callable.holds(value),
)


def check_make_client(make_client: Any, select: Select) -> None:
    """Raise ArgumentError for a function that a worker could not import by its name.

    Pickle sends a function of a module by its name. One of `__main__`, or within another function, is sent by
    value (cloudpickle), with all that it refers to: a token among it. So is a predicate of the question.
    """
    if not _is_importable(make_client):
        # Not shown: a functools.partial shows its arguments, and a token may be among them.
        raise ArgumentError(
            "with an executor, client must be a function of a module that workers can import, which takes no"
            " arguments and returns a Client, such as Client.from_env; not a Client, nor a function of"
            f" __main__ or within another, not a {type(make_client).__name__}"
        )
    if getattr(select, "where", None) is not None:
        raise ArgumentError("with an executor, a Select can't have `where`: workers aren't sent a predicate")


def _is_importable(function: Any) -> bool:
    """Return whether a worker can import this very function by its name."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not (isroutine(function) or isinstance(function, type)) or checks.is_async(function):
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
    client = chunk.make_client()
    check_client("what make_client returns", client)
    # The driver waits for an allowance: a worker that sleeps is a worker less.
    options = Options(
        on_error=chunk.on_error, refresh=chunk.refresh, max_outage=chunk.max_outage, is_worker=True
    )
    async with client:
        files = files_at(chunk.place, chunk.question, lock=False, owner=chunk.owner)
        try:
            await files.join(dict(chunk.known), chunk.entity_ids)
            tracker = Tracker(len(chunk.entity_ids), None, asyncio.get_running_loop().time)
            writer = None
            if chunk.feed_run is not None:
                writer = FeedWriter(Feed(tree_at(chunk.place)), chunk.question, chunk.feed_run)
            run = Run(client, chunk.question, files, tracker, options, writer)
            with run.announced(len(chunk.entity_ids)):
                reports = tuple((await run.read_all(chunk.entity_ids)).values())
            unknown = unknown_names(chunk.question.select, [each.missing for each in reports])
            complaint = run.explain(unknown)
            return ChunkResult(reports, files.known, tracker.waits, run.stopped, complaint, run.refusal)
        finally:
            await files.place.aclose()


@define
class Driver:
    """Cuts the entities into chunks, sends them to an executor, and gathers the results."""

    _make_client: MakeClient
    _question: SharedQuestion
    _place: Folder | Prefix
    _files: QuestionFiles
    _tracker: Tracker
    _options: Options
    _feed_run: FeedRun | None = None
    _stopped: AsyncfinError | None = None
    _complaint: str | None = None
    _sampling: bool = field(init=False)  # whether the sample is still to be read and judged
    _unknown: Missing = field(factory=dict)  # what ends the run: the sample does not have it
    # What failed because of the service is read again, in the last chunks.
    _again: dict[str, None] = field(factory=dict)
    _refusals: Refusals = field(factory=Refusals)
    _has_asked_first: bool = False

    @_sampling.default
    def _begins(self) -> bool:
        return not self._files.known

    async def over(self, executor: Executor | MakeExecutor, ids: tuple[str, ...]) -> ExtractReport:
        """Return the report on all entities; BrokenExecutor: a given one broke, or three in a row."""
        if isinstance(executor, Executor):
            await self._read_all(executor, ids)
        else:
            broken = 0
            while True:
                before = len(self._tracker.reports)
                made = _check_made("what executor makes", executor())
                try:
                    await self._read_all(made, ids)
                    break
                except BrokenExecutor:
                    # A process pool loses all waiting chunks with one killed worker. What they have put in
                    # place by then is found there, and not read again.
                    broken = 0 if len(self._tracker.reports) > before else broken + 1
                    if broken == _MOST_BROKEN:
                        raise
                finally:
                    await in_thread(made.shutdown)
        entities = self._tracker.reports_on(ids)
        judge = partial(unknown_to_all, self._question, entities, has_rows=self._files.has_rows)
        unknown = self._unknown or await in_thread(judge)
        return self._tracker.summary(entities, self._stopped, unknown, self._complaint if unknown else None)

    @property
    def _ending(self) -> bool:
        return self._stopped is not None or self._options.is_ending

    @property
    def _asks_first(self) -> bool:
        """Whether some entities are to be asked before all others."""
        return self._refusals.is_doubtful and not self._has_asked_first

    async def _read_all(self, executor: Executor, ids: tuple[str, ...]) -> None:
        while not self._ending and (chunks := self._next_chunks(ids)):
            await self._read_chunks(executor, chunks)
            # Workers report a used-up allowance and end: the driver alone sleeps, and sends what is left.
            if isinstance(self._stopped, AllowanceExhaustedError) and self._options.wait:
                until, self._stopped = self._stopped.resume_at, None
                await sleep_until(until, chunks[0][0], self._tracker, self._options)

    def _next_chunks(self, ids: tuple[str, ...]) -> list[Sequence[str]]:
        """Return what to send next: the sample in one chunk, or all that is left; nothing ends the run."""
        if self._sampling:
            # One chunk: a misspelt name is not sent to all workers.
            failed = {each: EntityReport(each, "failed") for each in self._again}
            if not self._asks_first and (unread := unread_sample(ids, failed | self._tracker.reports)):
                return [unread]
            self._sampling = False
            if len(self._tracker.reports) < len(ids):
                self._unknown = unknown_to_sample(
                    self._question, self._tracker.reports.values(), self._tracker, lambda _: self._complaint
                )
        if self._unknown:
            return []
        left = [each for each in ids if each not in self._tracker.reports]
        if self._asks_first:
            self._has_asked_first = True
            return [first] if (first := asked_first(left, self._files.known)) else []
        # Entities without a file come first, as in one process.
        left.sort(key=self._files.known.__contains__)
        left = [each for each in left if each not in self._again] or left
        size = self._options.chunk
        return [left[at : at + size] for at in range(0, len(left), size)]

    async def _read_chunks(self, executor: Executor, chunks: list[Sequence[str]]) -> None:
        """Send chunks, and gather their results; those that have not begun by the end are cancelled."""
        sent: dict[asyncio.Future[ChunkResult], Future[ChunkResult]] = {}

        def cancel_waiting() -> None:
            for future in sent.values():
                future.cancel()  # does nothing to one that runs

        stop = asyncio.ensure_future(self._options.ending.wait())
        try:
            for ids in chunks:
                # All at once, and cancelled if the run ends: an executor knows best how many it can run.
                future = executor.submit(read_chunk, self._chunk(ids))
                sent[asyncio.wrap_future(future)] = future
            pending: set[asyncio.Future[Any]] = set(sent)
            while pending:
                awaited = pending if stop.done() else {*pending, stop}
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
                done = {each for each in pending if each.done()}
                pending -= done
                # First what was received, then what has failed: it ends the run.
                ended = [each for each in done if not each.cancelled()]
                for each in sorted(ended, key=lambda each: each.exception() is not None):
                    self._gather(each.result())
                self._files.place.check()
                if self._ending or self._asks_first:
                    cancel_waiting()
        except BrokenExecutor:
            # It fails all its futures itself. Python 3.11's process pool stumbles over one that is cancelled
            # at that moment: the others never end then, nor do its processes.
            raise
        except BaseException:
            cancel_waiting()
            raise
        finally:
            stop.cancel()
            # Workers finish what they have begun: no other run may take the place before.
            await wait_for_all([stop, *sent])

    def _chunk(self, ids: Sequence[str]) -> Chunk:
        known = {each: self._files.known[each] for each in ids if each in self._files.known}
        holder = self._place.holder if isinstance(self._place, Folder) else None
        return Chunk(
            self._make_client,
            tuple(ids),
            self._question,
            self._place,
            known,
            self._options.refresh,
            self._options.on_error,
            self._options.max_outage,
            self._feed_run,
            holder.owner if holder is not None else None,
        )

    def _gather(self, result: ChunkResult) -> None:
        """Note and report what a worker has done."""
        self._tracker.waits += result.waits
        self._stopped = self._stopped or result.stopped
        if result.complaint is not None:
            self._complaint = result.complaint
        for entity in result.reports:
            entity_id = entity.entity_id
            self._refusals.record(entity)
            if self._is_read_again(entity):
                self._again[entity_id] = None
                entity = evolve(entity, state="left", failure=None)
            if entity.state in ("done", "unchanged"):
                self._files.known[entity_id] = result.known[entity_id]
            self._tracker.add(entity)
        if self._has_asked_first and self._refusals.is_doubtful:
            self._stopped = self._stopped or result.refusal

    def _is_read_again(self, entity: EntityReport) -> bool:
        failure = entity.failure
        return failure is not None and failure.concerns == "service" and entity.entity_id not in self._again
