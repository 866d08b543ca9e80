"""`extract`: one query to many entities, and the results as Parquet files."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote

from attrs import define, evolve, field

from asyncfin import Client, Select, checks
from asyncfin.checks import check_entity_id
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, RunInProgressError, SelectionError, printable
from asyncfin.extraction.feed import Feed
from asyncfin.extraction.feed_writer import find_feed, record_files
from asyncfin.extraction.last import (
    describe_run,
    read_moments,
    write_moments,
    write_run,
)
from asyncfin.extraction.place import (
    RENEW_SECONDS,
    STALE_SECONDS,
    Folder,
    Holder,
    Lock,
)
from asyncfin.extraction.places import place_of
from asyncfin.extraction.progress import OnProgress, Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.record import read_records
from asyncfin.extraction.report import ExtractReport
from asyncfin.extraction.run import (
    Job,
    OnError,
    Options,
    Reader,
    Run,
    announce,
)
from asyncfin.extraction.workers import (
    Driver,
    MakeClient,
    MakeExecutor,
    check_client,
    check_executor,
    check_make_client,
)
from asyncfin.optional import library
from asyncfin.tasks import cancel_and_wait, in_thread
from asyncfin.typing import AskedVersion, PeriodSelection
from asyncfin.words import lasting

_log = logging.getLogger("asyncfin")
# Seconds between two looks at a lock that is waited for.
_LOOK_SECONDS = 5.0
# File systems take names of 255 bytes, of which ".parquet" is a part.
_LONGEST_NAME = 247


def check_ids(entity_ids: Iterable[str]) -> tuple[str, ...]:
    """Return distinct entity ids, in their order.

    Raises:
        SelectionError: there is none, one is not an entity id or too long for the name
            of a file, or two differ only in case.
    """
    ids = checks.texts("entity_ids", entity_ids, "entity id")
    distinct: dict[str, str] = {}
    for entity_id in ids:
        check_entity_id(entity_id)
        if len(quote(entity_id, safe="")) > _LONGEST_NAME:
            raise SelectionError(
                f"entity_ids: {entity_id!r} is too long for the name of a file"
            )
        # Many file systems would give both the same file.
        first_id = distinct.setdefault(entity_id.casefold(), entity_id)
        if first_id != entity_id:
            raise SelectionError(
                f"entity_ids {first_id!r} and {entity_id!r} differ only in case: leave "
                "out one of them, or extract it to another folder"
            )
    return ids


async def extract(
    client: Client | MakeClient,
    entity_ids: Iterable[str],
    select: Select,
    periods: PeriodSelection,
    *,
    to: str | os.PathLike[str],
    value_version: AskedVersion = "original",
    refresh: bool = False,
    replace: bool = False,
    fresh_for: timedelta | None = None,
    allow_missing: bool = False,
    on_error: OnError = "continue",
    history: bool = False,
    prune: bool = False,
    wait: bool = False,
    lock: bool = True,
    executor: Executor | MakeExecutor | None = None,
    chunk: int = 25,
    stop: asyncio.Event | None = None,
    progress: OnProgress | None = None,
) -> ExtractReport:
    """Request the same question of many entities, and write the results to Parquet
    files.

    Each entity becomes one file ``<entity_id>.parquet`` of one publication, which
    appears when it is complete. Repeating the call continues where the last run ended;
    of an entity that has not changed, only the metadata is requested.

    Requests: one for each entity that has a file, unless with `refresh` or `fresh_for`.
    For each other entity, and if the publication is a new one, one for each 100 series
    of the catalogue and those of the planned question. At most `client.max_in_flight`
    entities are in progress at once. If a run is killed, or ends with the allowance,
    only their requests are repeated, apart from metadata. Entities without a file come
    first; each allowance starts with two entities at once, and one more for every eight
    that are done, so an allowance that is enough for any two of them makes progress.

    Two rules end a run that cannot succeed:

    - Ten entities were rejected, none has succeeded in this run, and no entity of the
      list has a file: the run ends with that error. If there are files, an entity with
      one is asked next, and only its rejection ends the run. A rejection is a 403, or a
      404 without the service's error object: then the base URL is probably wrong.
    - Of 25 entities that were read none has anything of the question, and no file has:
      the run ends with the names that are missing, unless with `allow_missing`.

    An outage of the service is waited for as the client waits: in the bulk lane for
    `Retry.max_outage`.

    Args:
        client: the client, whose bucket sets the pace. With an executor: a function of
            no arguments that returns one, in a module that workers can import; it takes
            the token from their environment.
        entity_ids: the entities; duplicates are dropped.
        select: the series. A Select with `where` needs a `name`. Ids and words that an
            entity's catalogue does not have are not a failure: the report names them as
            `missing`.
        periods: `Exact`, `FiscalRange`, `Trailing` or a rule such as `Annual`.
        to: the folder for the files, or a URL such as ``s3://bucket/prefix`` (``gs``,
            ``az``; extra ``store``). The lock is next to it, in a folder of the same
            name between ``_`` and ``.journal``.
        value_version: ``"original"``, ``"latest_restated"`` or ``"both"``: then each
            catalogue is read once, and the column ``asked_version`` distinguishes the
            rows.
        refresh: whether to read unchanged entities again. A file is unchanged if its
            footer names the question and the current publication: damage elsewhere in
            it is repaired by a refresh only.
        replace: whether the files of another query in the folder are to be deleted
            first.
        fresh_for: entities whose file was shown to be current less than that ago are
            not asked, apart from one if more than ten others, all without a file, are
            read.
        allow_missing: whether names that no entity has are accepted, as of a question
            that few entities have anything of.
        on_error: ``"continue"``: a failed entity is reported; ``"raise"``: it ends the
            run.
        history: whether to record what changes: each run writes the rows that appeared,
            were restated or relabelled, or vanished into a file next to the folder
            (docs/history.md). It begins such a feed, also for files that are there
            already; one that exists is continued without it. It spends no request.
        prune: whether the files of entities that are not in `entity_ids` are deleted;
            with a feed, their rows are written as vanished. Otherwise they stay, and
            the report counts them.
        wait: whether to sleep until a used-up allowance returns; otherwise the run
            ends.
        lock: whether to lock an object store's prefix against other runs. A folder is
            always locked.
        executor: runs the reading elsewhere: any `concurrent.futures.Executor`, such as
            a process pool or Dask's, or a function of no arguments that makes one,
            which is called again when a killed worker has broken the executor. Each
            worker reads a chunk with one client, and writes its files itself; `to` must
            mean the same place to it, and its bucket should be a shared one.
        chunk: how many entities are sent to a worker at once.
        stop: when it is set, entities in progress are finished, and no others are
            begun; with an executor, whole chunks are in progress. To end at once,
            cancel the task.
        progress: called with an `ExtractProgress` when the run begins, and after each
            request and each entity; with an executor after each chunk.

    Raises:
        ArgumentError: an argument is not as described, before a request is spent; or
            ``history=True`` is given for periods that move, as those of
            ``Annual(last=3)`` and `Trailing` do.
        SelectionError: the question is not as described, before a request is spent; or
            it names an id or word that no entity has (`UnknownToAllError`, whose
            `extract_report` is the report), after everything else is done.
        ManifestMismatchError: `to` belongs to another query or has foreign files; or
            its change feed is of another question or is damaged.
        RunInProgressError: another run uses `to`, or has taken it over.
        OSError: the folder or store can't be written, or no thread can be started; all
            files in place stay.
        ImportError: pyarrow (extra ``arrow``) or obstore (extra ``store``) is not
            installed.
        AsyncfinError: an entity failed, with ``on_error="raise"``.
        BrokenExecutor: a worker died, and with it the executor that was passed.
            Finished files stay, and the same call with another executor continues from
            there.
    """
    ids = check_ids(entity_ids)
    library("pyarrow", "arrow")  # before a request is spent
    if executor is None:
        check_client("client", client)
    else:
        check_executor("executor", executor)
        check_make_client(client, select)
    question = SharedQuestion(select, periods, value_version)
    checks.one_of("continue", "raise")("on_error", on_error)
    checks.flag("refresh", refresh)
    flags: dict[str, Any] = {
        "replace": replace,
        "allow_missing": allow_missing,
        "history": history,
        "prune": prune,
        "wait": wait,
        "lock": lock,
    }
    for name, value in flags.items():
        checks.flag(name, value)
    checks.instance_of(timedelta).optional()("fresh_for", fresh_for)
    checks.positive_int("chunk", chunk)
    checks.instance_of(asyncio.Event).optional()("stop", stop)
    checks.plain_callable.optional()("progress", progress)
    if refresh and fresh_for is not None:
        raise ArgumentError(
            "the option `refresh` reads every entity again: leave out fresh_for"
        )
    options = Options(
        fresh_for=fresh_for,
        chunk=chunk,
        stop=stop or asyncio.Event(),
        **flags,
    )
    place = await in_thread(partial(place_of, to))  # it looks at the disk
    job = Job(question, place, refresh, on_error)
    clock = client.clock if isinstance(client, Client) else utc_now
    run = Run(options, Tracker(ids, progress), clock)
    holder = Holder(began=clock())
    extraction = _Extraction(client, executor, job, run, holder)
    report = await extraction.run()
    report.raise_for_unknown()
    return report


@define
class _Extraction:
    """One run, from its lock to its outcome."""

    _client: Client | MakeClient
    _executor: Executor | MakeExecutor | None
    _job: Job
    _run: Run
    _holder: Holder
    _lock: Lock = field(factory=Lock)
    _is_open: bool = False
    _renewing: asyncio.Task[None] | None = None

    async def run(self) -> ExtractReport:
        """Return the report of the run, which leaves its outcome next to the lock
        however it ends.
        """
        failure: BaseException | None = None
        try:
            await self._extract()
        except BaseException as error:
            failure = error
            # A container's limit, which can be reached at any call of a thread.
            if _is_about_threads(error):
                failure = OSError(
                    "no thread can be started: raise the limit of this container or "
                    "user (pids.max)"
                )
                raise failure from error
            raise
        finally:
            report = self._run.report()
            try:
                if self._renewing is not None:
                    await cancel_and_wait([self._renewing])
            finally:
                end = partial(self._end, report, failure)
                try:
                    await in_thread(end)
                except RuntimeError as error:
                    if not _is_about_threads(error):
                        raise
                    end()
        return report

    def _end(self, report: ExtractReport, failure: BaseException | None) -> None:
        """Write the outcome, and release the lock. It blocks."""
        run = self._run
        place = self._job.place
        try:
            # Not where another run has taken the place over: it writes its outcome
            # itself.
            if self._is_open and not isinstance(failure, RunInProgressError):
                self._write_moments()
                outcome = describe_run(
                    report,
                    failure,
                    job=self._job,
                    records=run.result.records,
                    began=self._holder.began,
                    end=run.clock(),
                    stop=run.options.stop,
                )
                write_run(place, outcome)
        except OSError as error:
            _log.warning(
                "the outcome of the run in %s can't be written: %s",
                place,
                printable(str(error)),
            )
        finally:
            if self._is_open:
                # What killed workers have left; else the next run does it.
                with suppress(OSError):
                    place.sweep()
                self._lock.release()
            else:
                self._lock.withdraw()

    def _write_moments(self) -> None:
        result = self._run.result
        write_moments(self._job.place, result.records, result.moments)

    async def _extract(self) -> None:
        # Before a request is spent: what can't be written need not be read. The feed is
        # first, since opening with `replace` deletes files that are its record.
        job = self._job
        history = self._run.options.history
        find = partial(find_feed, job.place, job.question, history)
        feed = await in_thread(find)
        if not await self._take_lock():
            return
        self._renewing = asyncio.ensure_future(self._renew())
        await in_thread(partial(self._open, feed))
        await self._read()
        await in_thread(partial(self._close, feed))

    def _open(self, feed: Feed | None) -> None:
        """Read what is there. It blocks."""
        place = self._job.place
        replace = self._run.options.replace
        self._lock.check()
        place.sweep()
        # This fails where files can't be written, or can't be moved.
        trial = f"{place.name}/_asyncfin-trial"
        place.write_bytes(trial, b"")
        place.remove(trial)
        records, foreign_ids = read_records(place, self._job.question, replace=replace)
        self._remove(foreign_ids)
        self._run.begin(records, read_moments(place, records))
        self._is_open = True
        if feed is not None and records and not feed.runs():
            self._record(feed)  # what runs without a feed have left

    def _close(self, feed: Feed | None) -> None:
        """Delete the files of entities that are not listed, and write the feed. It
        blocks.
        """
        run = self._run
        if run.options.prune:
            foreign_ids = run.find_foreign()
            self._remove(foreign_ids)
            for entity_id in foreign_ids:
                del run.result.records[entity_id]
        if feed is None:
            return
        # A feed does not begin with a mistake, which the corrected query could not
        # continue.
        if feed.runs() or not run.find_unknown():
            self._record(feed)

    def _remove(self, entity_ids: Iterable[str]) -> None:
        place = self._job.place
        for entity_id in entity_ids:
            self._lock.check()
            place.remove(place.entity_path(entity_id))

    def _record(self, feed: Feed) -> None:
        self._lock.check()
        run = self._run
        question = self._job.question
        began = self._holder.began
        entity_ids = set(run.tracker.ids)
        record_files(feed, question, began, run.result.records, entity_ids)

    async def _take_lock(self) -> bool:
        """Take the lock, also that of a killed run, or return False if `stop` has ended
        the wait for it.
        """
        place = self._job.place
        options = self._run.options
        if not options.lock and not isinstance(place, Folder):
            return True
        time = asyncio.get_running_loop().time
        first_tag = ""
        since = 0.0
        stale = None
        while tag := await in_thread(partial(self._try_lock, stale)):
            if not first_tag:
                _log.warning(
                    "waiting for the lock of %s, at most %s: its run is at work, or "
                    "was killed",
                    place,
                    lasting(STALE_SECONDS),
                )
                first_tag = tag
                since = time()
            if tag != first_tag:
                raise RunInProgressError(
                    f"another run is at work on {place}: let it end, or stop it"
                )
            if time() - since >= STALE_SECONDS:
                stale = tag
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_SECONDS, STALE_SECONDS / 10)):
                    await options.stop.wait()
            if options.stop.is_set():
                return False
        return True

    def _try_lock(self, stale: str | None) -> str | None:
        """Take the lock, or return the tag of that of another run. It blocks."""
        lock = self._job.place.lock(self._holder, stale)
        if isinstance(lock, str):
            return lock
        # Here: the task that waits for this thread may be cancelled.
        self._lock = lock
        return None

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(OSError):
                await in_thread(self._lock.renew)
                if self._is_open:
                    await in_thread(self._write_moments)

    async def _read(self) -> None:
        client = self._client
        job = self._job
        run = self._run
        ids = run.skip_fresh()
        run.tracker.report()
        if isinstance(client, Client):
            reader = Reader(client, job, run.tracker, self._lock.check)
            read = partial(
                reader.read_all, note=run.note, is_ending=lambda: run.is_ending
            )
            with announce(client, run.tracker):
                await run.read_all(ids, read)
        else:
            job = evolve(job, owner=self._lock.owner)
            driver = Driver(run, job, client, self._lock.check)
            assert self._executor is not None
            await driver.read_all(self._executor, ids)


def _is_about_threads(error: BaseException) -> bool:
    # Python has no class for it.
    return isinstance(error, RuntimeError) and "can't start new thread" in str(error)
