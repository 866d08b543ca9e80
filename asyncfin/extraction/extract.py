"""`extract`: one question to many entities, and the results as Parquet files."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from datetime import datetime
from functools import partial

from attrs import evolve

from asyncfin import checks
from asyncfin.checks import check_entity_id
from asyncfin.client import Client
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, RunInProgressError, SelectionError
from asyncfin.extraction.entity import check_client
from asyncfin.extraction.feed_writer import FeedWriter, begin_run, find_feed
from asyncfin.extraction.files import QuestionFiles, files_at, place_of
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.last import last_run, write_last
from asyncfin.extraction.prefix import Prefix
from asyncfin.extraction.progress import OnProgress, Tracker
from asyncfin.extraction.question import AskedVersion, SharedQuestion, written_question
from asyncfin.extraction.report import ExtractReport, count_of_unlisted
from asyncfin.extraction.run import OnError, Options, Run
from asyncfin.extraction.workers import Driver, MakeClient, MakeExecutor, check_executor, check_make_client
from asyncfin.model.select import Select
from asyncfin.model.selection import PeriodSelection
from asyncfin.optional import library
from asyncfin.tasks import cancel_and_wait, in_thread

_log = logging.getLogger("asyncfin")

_check_stop = checks.instance_of(asyncio.Event).optional()


def distinct_ids(entity_ids: Iterable[str]) -> tuple[str, ...]:
    """Return distinct entity ids, in their order.

    Raises:
        SelectionError: none is given, one is not an entity id, or two differ only in case.
    """
    if isinstance(entity_ids, str):
        entity_ids = (entity_ids,)
    if not isinstance(entity_ids, Iterable):
        raise ArgumentError(
            f"entity_ids must be a collection of entity ids, not {checks.short_repr(entity_ids)}"
        )
    ids = tuple(entity_ids)
    for each in ids:
        check_entity_id(each)
    if not ids:
        raise SelectionError("entity_ids must name at least one entity")
    distinct = tuple(dict.fromkeys(ids))
    written: dict[str, str] = {}
    for each in distinct:
        # Many file systems would give both the same file.
        if (other := written.setdefault(each.casefold(), each)) != each:
            raise SelectionError(
                f"entity_ids {other!r} and {each!r} differ only in case: leave out one of them, or extract it"
                " to another folder"
            )
    return distinct


async def checked_place(to: str | os.PathLike[str]) -> Folder | Prefix:
    """Return the place that `to` names.

    Raises:
        ArgumentError: it names none.
    """
    if not isinstance(to, (str, os.PathLike)) or not os.fspath(to):
        raise ArgumentError(
            "to must be the path of a folder, or an address such as s3://bucket/prefix, not"
            f" {checks.short_repr(to)}"
        )
    try:
        return await in_thread(partial(place_of, to))  # it looks at the disk
    except ArgumentError as error:
        raise ArgumentError(f"to: {error}") from None


async def extract(
    client: Client | MakeClient,
    entity_ids: Iterable[str],
    select: Select,
    periods: PeriodSelection,
    *,
    to: str | os.PathLike[str],
    value_version: AskedVersion = "original",
    on_error: OnError = "continue",
    refresh: bool = False,
    replace: bool = False,
    wait: bool = False,
    max_outage: float = 900.0,
    lock: bool = True,
    executor: Executor | MakeExecutor | None = None,
    chunk: int = 25,
    history: bool | None = None,
    prune: bool = False,
    stop: asyncio.Event | None = None,
    drop: asyncio.Event | None = None,
    progress: OnProgress | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> ExtractReport:
    """Request the same question of many entities, and write the results to Parquet files.

    Each entity becomes one file ``<entity_id>.parquet`` of one publication, which appears when it is
    complete. Repeating the call continues where the last run ended; of an entity that has not changed, only
    the metadata is requested.

    Requests: one for each entity that has a file, unless with `refresh`. For each other entity, and if the
    publication is a new one or was changed in place, one for each 100 series of the catalogue and those of
    the planned question. At most `client.max_in_flight` entities are in progress at once. If a run is
    killed, or ends with the allowance, only their requests are repeated, apart from metadata. Entities
    without a file come first; each allowance starts with two entities at once, and one more for every eight
    that are done, so an allowance that is enough for any two of them makes progress.

    An entity that failed because of the service (5xx, no connection, a time limit) is read again after
    all others. If the first 20 entities are all refused with 403, three of the others are read before the
    rest; if they are refused too, the run ends with that error, and the rest is left.

    Args:
        client: the client, whose bucket sets the pace. With an executor: a function of no arguments that
            returns one, in a module that workers can import; it takes the token from their environment.
        entity_ids: the entities; duplicates are dropped.
        select: the series. A Select with `where` needs a `name`. Ids and words that an entity's
            catalogue does not have are not a failure: the report names them as `missing`.
        periods: `Exact`, `FiscalRange`, `Trailing` or a rule such as `Annual`.
        to: the folder for the files, or a URL such as ``s3://bucket/prefix`` (``gs``, ``az``; extra
            ``store``). The lock is next to it, under the same name with ``.journal``.
        value_version: ``"original"``, ``"latest_restated"`` or ``"both"``: then each catalogue is read once,
            and the column ``asked_version`` distinguishes the rows.
        on_error: ``"continue"``: a failed entity is reported; ``"raise"``: it ends the run.
        refresh: whether to read unchanged entities again. A file is unchanged if its footer, or the metadata
            of an object, name the question and the publication, with no earlier `created_timestamp`: damage
            elsewhere in it is repaired by a refresh only.
        replace: whether the files of another question in the folder are to be deleted first.
        wait: whether to sleep until a used-up allowance returns, and while the service fails; otherwise the
            run ends.
        max_outage: for how many seconds the run waits while the service fails, in either lane, counted from
            the first failure: in place of the client's `Retry.max_outage`.
        lock: whether to lock an object store's prefix against other runs. A folder is always locked.
        executor: runs the reading elsewhere: any `concurrent.futures.Executor`, such as a process pool or
            Dask's, or a function of no arguments that makes one, which is called again when a killed
            worker has broken the executor. Each worker reads a chunk with one client, and writes its files
            itself; `to` must mean the same place to it, and its bucket should be a shared one.
        chunk: how many entities are sent to a worker at once.
        history: whether to keep what changes: each run writes the rows that appeared, were restated or
            relabelled, or vanished into a file of ``<to>.changes`` (docs/history.md). True begins such a
            feed, also for files that are there already; None continues one that exists. It spends no
            request.
        prune: whether the files of entities that are not in `entity_ids` are deleted; with a feed, their rows
            are written as vanished. Otherwise they stay, and the report counts them.
        stop: when it is set, entities in progress are finished, and no others are begun. Waits for the end of
            an outage or of a used-up allowance end at once. With an executor, whole chunks are in progress.
        drop: when it is set, entities in progress are dropped too: they are left. Chunks that workers read
            are finished.
        progress: called with an `ExtractProgress` after each request and each entity; with an executor
            after each chunk.
        clock: returns the wall time, aware UTC; for tests.

    Raises:
        ArgumentError: an argument is not as described, before a request is spent; or ``history=True`` is
            given for periods that move, as those of ``Annual(last=3)`` and `Trailing` do.
        SelectionError: the question is not as described, before a request is spent; or it names an id or
            word that no entity has (`UnknownToAllError`, whose `extract_report` is the report), after
            everything else is done; in a place without files of the question also if the first, the middle
            and the last entity, which are read first, have nothing of it: then the others are left.
        ManifestMismatchError: `to` belongs to another question or has foreign files; or its change feed is of
            another question, is damaged, or exists although `history` is False.
        RunInProgressError: another run uses `to`, or has taken it over.
        OSError: the folder or store can't be written; all files in place stay.
        ImportError: pyarrow (extra ``arrow``) or obstore (extra ``store``) is not installed.
        AsyncfinError: an entity failed, with ``on_error="raise"``.
        BrokenExecutor: a worker died, and the given executor with it. Finished files stay, and the same
            call with another executor continues from there.
    """
    ids = distinct_ids(entity_ids)
    library("pyarrow", "arrow")  # before a request is spent
    if executor is None:
        check_client("client", client)
    else:
        check_executor("executor", executor)
        check_make_client(client, select)
    question = written_question(select, periods, value_version)
    options = Options(
        on_error=on_error,
        refresh=refresh,
        replace=replace,
        wait=wait,
        max_outage=None if wait else checks.seconds("max_outage", max_outage),
        lock=lock,
        chunk=chunk,
        history=history,
        prune=prune,
        stop=_check_stop("stop", stop) or asyncio.Event(),
        drop=_check_stop("drop", drop) or asyncio.Event(),
        progress=progress,
        clock=clock,
    )
    place = await checked_place(to)
    ending = asyncio.ensure_future(_announce_end(options, place))
    try:
        report = await _run(client, executor, ids, question, place, options)
    finally:
        await cancel_and_wait([ending])
    report.raise_for_unknown()
    return report


async def _announce_end(options: Options, place: Folder | Prefix) -> None:
    """Set `ending` when one of the caller's events is set; with `drop`, end the retries of a store."""
    waits = [asyncio.ensure_future(each.wait()) for each in (options.stop, options.drop)]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        options.ending.set()
        await waits[1]
        if isinstance(place, Prefix):
            place.retries.end()
    finally:
        await cancel_and_wait(waits)


async def _run(
    client: Client | MakeClient,
    executor: Executor | MakeExecutor | None,
    ids: tuple[str, ...],
    question: SharedQuestion,
    place: Folder | Prefix,
    options: Options,
) -> ExtractReport:
    """Return the report of a run, which leaves its outcome next to the lock however it ends."""
    tracker = Tracker(len(ids), options.progress, asyncio.get_running_loop().time)
    files = files_at(place, question, lock=options.lock)
    began, report, failure = options.clock(), None, None
    try:
        report = await _report(client, executor, ids, question, place, files, tracker, options)
        return report
    except BaseException as error:
        failure = error
        # What follows must not wait for a store for minutes, as after a second signal.
        if isinstance(place, Prefix) and not isinstance(error, Exception):
            place.retries.end()
        raise
    finally:
        try:
            # Not where another run has taken the place over: it writes its outcome itself.
            if files.is_locked and not isinstance(failure, RunInProgressError):
                last = last_run(
                    report or tracker.summary(tracker.reports_on(ids), None, {}, None),
                    failure,
                    place=place,
                    question=question.hash,
                    began=began,
                    ended=options.clock(),
                    stop=options.stop,
                )
                await in_thread(partial(write_last, place, last))
        finally:
            await files.place.aclose()


async def _report(
    client: Client | MakeClient,
    executor: Executor | MakeExecutor | None,
    ids: tuple[str, ...],
    question: SharedQuestion,
    place: Folder | Prefix,
    files: QuestionFiles,
    tracker: Tracker,
    options: Options,
) -> ExtractReport:
    # Before a request is spent: what can't be written need not be read. The feed is first, since opening with
    # `replace` deletes files that are its record.
    feed = await in_thread(partial(find_feed, place, question, options.history))
    opened = await files.open(replace=options.replace, stop=options.ending)
    writer = None
    if feed is not None and opened:
        writer = await in_thread(partial(begin_run, feed, question, files.known, options.clock))
    if isinstance(client, Client):
        report = await Run(client, question, files, tracker, options, writer).over(ids)
    else:
        assert executor is not None
        run = None if writer is None else writer.run
        driver = Driver(client, question, place, files, tracker, options, run)
        report = await driver.over(executor, ids)
    if options.prune and opened:
        await _prune(files, writer, ids)
    if writer is not None:
        files.place.check()
        await in_thread(partial(writer.finish, files.known, begins=not report.unknown))
    if report.unlisted:
        _log.warning("series that the service left out of its responses: %s", count_of_unlisted(report))
    return evolve(report, others=len(files.known.keys() - set(ids)))


async def _prune(files: QuestionFiles, writer: FeedWriter | None, ids: tuple[str, ...]) -> None:
    """Delete the files of entities that are not listed, after their rows are in the feed as vanished."""
    listed = set(ids)
    files.place.check()
    if writer is not None:
        await in_thread(partial(writer.prune, files.known, listed))
    for entity_id in [each for each in files.known if each not in listed]:
        await files.delete(entity_id)
