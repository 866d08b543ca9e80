"""Runs an extraction: entities side by side, each read, written and noted as a whole."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from asyncfin.client import Client
from asyncfin.errors import (
    AllowanceExhaustedError,
    ArgumentError,
    AuthenticationError,
    IncompleteResultError,
    MalformedAnswerError,
    SelectionError,
    ServiceError,
    TransportError,
)
from asyncfin.extraction.entity import EntityAnswer, check_client, read
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.parquet import encode
from asyncfin.extraction.progress import OnProgress, Tracker
from asyncfin.extraction.question import Lacking, Question
from asyncfin.extraction.report import (
    EntityReport,
    EntityState,
    ExtractReport,
    Failure,
    lacking_in_all,
    named,
    unknown_to_all,
)
from asyncfin.extraction.store import FolderStore, Store, WorkerThread
from asyncfin.model import checks
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import PeriodSelection
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.wire.protocol import check_entity_id
from asyncfin.wire.tasks import bounded

_log = logging.getLogger("asyncfin")
# What can be wrong with one entity alone.
FAILURES = (ServiceError, TransportError, MalformedAnswerError, IncompleteResultError, SelectionError)
OnError: TypeAlias = Literal["continue", "raise"]
# What is half read when the allowance ends is lost. If a small allowance were spread over many entities,
# none would ever be done: so two are read at once at first, and one more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# So many entities show that a name is probably misspelt.
_ENOUGH_TO_DOUBT = 3
# How often a run that sleeps reports it, and looks at the wall clock: the monotonic one may stand still.
_LOOK_SECONDS = 10.0

_check_on_error = checks.one_of("continue", "raise")
_check_stop = checks.instance_of(asyncio.Event).or_none()
_check_progress = checks.plain_callable.or_none()


def utc_now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


def distinct_ids(entity_ids: Iterable[str]) -> tuple[str, ...]:
    """Return distinct entity ids, in their order.

    Raises:
        SelectionError: one is no entity id.
        ArgumentError: there is none.
    """
    if isinstance(entity_ids, str):
        entity_ids = (entity_ids,)
    if not isinstance(entity_ids, Iterable):
        raise ArgumentError(f"entity_ids must be a collection of entity ids, not {checks.shown(entity_ids)}")
    ids = tuple(entity_ids)
    for each in ids:
        check_entity_id(each)
    if not ids:
        raise ArgumentError("entity_ids must name at least one entity")
    return tuple(dict.fromkeys(ids))


async def folder_at(to: str | os.PathLike[str]) -> Folder:
    """Return the folder that `to` names.

    Raises:
        ArgumentError: it names none.
    """
    if not isinstance(to, (str, os.PathLike)) or not os.fspath(to):
        raise ArgumentError(f"to must be the path of a folder, not {checks.shown(to)}")
    try:
        return await asyncio.to_thread(Folder.at, to)  # it looks at the disk
    except ArgumentError as error:
        raise ArgumentError(f"to: {error}") from None


async def extract(
    client: Client,
    entity_ids: Iterable[str],
    select: Select,
    periods: PeriodSelection,
    *,
    to: str | os.PathLike[str],
    value_version: ValueVersion = "original",
    on_error: OnError = "continue",
    refresh: bool = False,
    replace: bool = False,
    wait: bool = False,
    allow_unknown: bool = False,
    stop: asyncio.Event | None = None,
    progress: OnProgress | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> ExtractReport:
    """Ask many entities one question, and keep the answers as Parquet files (docs/extraction.md).

    Each entity becomes one file ``<entity_id>.parquet`` of one publication, put in place when it is
    whole. The same call again goes on where the last one ended, and asks an entity that has not changed
    for nothing but its metadata.

    Requests: one an entity; where there is a new publication also one for each 100 series of its
    catalogue, and those of the planned question. At most `client.max_in_flight` entities are in
    progress at once; a run that is killed, or ends with the allowance, repeats the requests of those
    and no others. Entities without a file come first; of each allowance two are read at once at
    first, and one more for every eight that are done: an allowance for any two of them gets further.

    Args:
        client: what to ask; its bucket sets the pace.
        entity_ids: which entities; duplicates are dropped.
        select: which series. A Select with `where` needs a `name`. Ids and words that an entity's
            catalogue lacks are no failure: the report names them.
        periods: `Exact`, `FiscalRange`, `Trailing`, `Annual` or `Quarterly`.
        to: the folder for the files. The journal stands beside it, in a folder of the same name with
            ``.journal``.
        value_version: ``"original"`` or ``"latest_restated"``.
        on_error: ``"continue"``: an entity that fails stands in the report; ``"raise"``: it ends the run.
        refresh: whether to read unchanged entities again.
        replace: whether the files of another question in the folder are to be deleted first.
        wait: whether to sleep until a used-up allowance returns; else the run ends then.
        allow_unknown: whether to go on though the first three entities have nothing of the question,
            because their catalogues lack the ids or words that it names; else the run ends then.
        stop: once it is set, what is in progress is finished, and nothing else is begun.
        progress: is called with an `ExtractProgress` after each request and each entity.
        clock: for tests: gives the wall time, aware UTC.

    Raises:
        ArgumentError: an argument is not as said, before a request is spent.
        SelectionError: the question is not as said, before a request is spent; or it names an id or
            word that no entity has (`UnknownToAllError`, whose `extract_report` is the report): after
            everything else is done, or after the first three entities; the same call again says it again.
        ManifestMismatchError: the folder is of another question or an unknown journal, or in use by a run.
        OSError: the folder can't be written; all files in place stay.
        ImportError: pyarrow is not installed (extra ``arrow``).
        AsyncfinError: an entity failed, with ``on_error="raise"``.
    """
    ids = distinct_ids(entity_ids)
    question = Question(select, periods, value_version)
    check_client("client", client)
    for name, flag in (
        ("refresh", refresh),
        ("replace", replace),
        ("wait", wait),
        ("allow_unknown", allow_unknown),
    ):
        checks.flag(name, flag)
    folder = await folder_at(to)
    _check_on_error("on_error", on_error)
    _check_stop("stop", stop)
    _check_progress("progress", progress)
    checks.plain_callable("clock", clock)
    options = Options(
        raises=on_error == "raise",
        refresh=refresh,
        wait=wait,
        allow_unknown=allow_unknown,
        stop=stop or asyncio.Event(),
        clock=clock,
    )
    tracker = Tracker(len(ids), progress, asyncio.get_running_loop().time)
    async with WorkerThread() as thread:
        store = FolderStore(folder, question, thread, clock)
        try:
            await store.open(replace=replace)
            report = await Run(client, question, store, thread, tracker, options).over(ids)
        finally:
            await store.aclose()
    report.raise_for_unknown()
    return report


@frozen(kw_only=True)
class Options:
    """How a run goes; the fields mean what `extract` says."""

    raises: bool
    refresh: bool
    wait: bool
    allow_unknown: bool
    stop: asyncio.Event
    clock: Callable[[], datetime]


@define
class Run:
    """One run, from its first entity to its last."""

    _client: Client
    _question: Question
    _store: Store
    _thread: WorkerThread
    _tracker: Tracker
    _options: Options
    _reading: asyncio.Semaphore = field(factory=partial(asyncio.Semaphore, _READ_AT_FIRST))
    _done: int = 0  # since the allowance was last used up
    _stopped: AuthenticationError | AllowanceExhaustedError | None = None
    _first: list[tuple[Lacking, bool]] = field(factory=list)  # what they lack, and whether that is all
    _in_doubt: bool = False  # whether the run ends because the first entities have nothing of the question
    _example: Catalogue | None = None  # the last one that lacked something

    async def over(self, ids: tuple[str, ...]) -> ExtractReport:
        """Return how all entities fared."""
        by_id = await self._entities(ids)
        unknown: Lacking = {}
        if self._in_doubt:
            read = (each.lacking for each in by_id.values() if each.state in ("done", "unchanged"))
            unknown = lacking_in_all(read)
            if not unknown:  # one that was being read meanwhile has something
                self._in_doubt = False
                by_id |= await self._entities(tuple(each for each in ids if by_id[each].state == "left"))
        entities = tuple(by_id[entity_id] for entity_id in ids)
        unknown = unknown or await self._thread.run(partial(unknown_to_all, entities))
        return ExtractReport(
            entities,
            self._tracker.seconds,
            self._tracker.waits,
            self._stopped,
            unknown,
            self._example.complaint(unknown) if self._example and unknown else None,
            self._store.repaired,
        )

    async def _entities(self, ids: tuple[str, ...]) -> dict[str, EntityReport]:
        by_id: dict[str, EntityReport] = {}
        with self._client.observed(self._tracker), self._tracker.counting():
            # Entities without a file come first: asking whether files are current could use up an allowance.
            for has_file in (False, True):
                chosen = [each for each in ids if (each in self._store.known) == has_file]
                jobs = [partial(self._entity, each, has_file) for each in chosen if each not in by_id]
                async with bounded(jobs, self._client.max_in_flight) as reports:
                    by_id |= {report.entity_id: report async for report in reports}
        return by_id

    @property
    def _ending(self) -> bool:
        return self._stopped is not None or self._in_doubt or self._options.stop.is_set()

    async def _entity(self, entity_id: str, has_file: bool) -> EntityReport:
        """Return how one entity fared: "left" if the run ends before its turn."""
        while not self._ending:
            began = self._options.clock()
            try:
                if (report := await self._read(entity_id, has_file, began)) is not None:
                    return self._tracker.ended(report)
            except AuthenticationError as error:
                self._stopped = self._stopped or error
            except AllowanceExhaustedError as error:
                if not self._options.wait:
                    self._stopped = self._stopped or error
                else:
                    await self._sleep(entity_id, error.resume_at)
            except FAILURES as error:
                spent, failure = self._tracker.spent(entity_id), Failure.of(error)
                await self._store.note_failed(entity_id, failure, spent, began)
                if self._options.raises:
                    raise
                return self._tracker.ended(EntityReport(entity_id, "failed", requests=spent, failure=failure))
        return EntityReport(entity_id, "left", requests=self._tracker.spent(entity_id))

    async def _read(self, entity_id: str, has_file: bool, began: datetime) -> EntityReport | None:
        """Read an entity whose file is not of the current publication; None: the run ends before its turn."""
        dataset = None
        if has_file and not self._options.refresh:
            dataset = await self._client.dataset(entity_id)
            current = self._store.known[entity_id].dataset_id == dataset.dataset_id
            if current and await self._store.is_whole(entity_id):
                await self._store.note_unchanged(entity_id, began)
                return self._report(entity_id, "unchanged")
        async with self._reading:
            if self._ending:
                return None
            answer = await read(self._client, self._question, entity_id, "extract", dataset)
            await self._put(answer, began)
        self._done += 1
        if self._done % _DONE_FOR_ONE_MORE == 0:
            self._reading.release()
        return self._report(entity_id, "done")

    async def _put(self, answer: EntityAnswer, began: datetime) -> None:
        requests = self._tracker.spent(answer.panel.dataset.entity_id)
        make = partial(encode, answer.panel, self._question, requests=requests, lacking=answer.lacking)
        await self._store.put(await self._thread.run(make), began)
        if answer.lacking:
            self._example = answer.panel.catalogue
        if len(self._first) < _ENOUGH_TO_DOUBT:
            self._first.append((answer.lacking, answer.is_unknown))
            if len(self._first) == _ENOUGH_TO_DOUBT:
                self._judge_first()

    def _judge_first(self) -> None:
        """Tell which names the first entities all lack, and end the run if that leaves nothing to write."""
        unknown = lacking_in_all(lacking for lacking, _ in self._first)
        if not unknown or self._example is None:
            return
        self._tracker.unknown = unknown
        _log.warning(
            "none of the first %d entities has %s; %s",
            len(self._first),
            named(unknown),
            self._example.complaint(unknown),
        )
        # A rare name may still come: but where nothing has a row yet, ending now loses nothing.
        self._in_doubt = (
            not self._options.allow_unknown
            and all(is_unknown for _, is_unknown in self._first)
            and not any(written.rows for written in self._store.known.values())
        )

    def _report(self, entity_id: str, state: EntityState) -> EntityReport:
        written = self._store.known[entity_id]
        return EntityReport(
            entity_id,
            state,
            written.dataset_id,
            written.rows,
            written.bytes,
            self._tracker.spent(entity_id),
            written.lacking,
            path=self._store.path(entity_id),
        )

    async def _sleep(self, entity_id: str, until: datetime) -> None:
        """Wait for the allowance, or for the order to stop."""
        # Those that wait for the old semaphore get it soon: its holders are refused too, and sleep.
        self._reading, self._done = asyncio.Semaphore(_READ_AT_FIRST), 0
        while True:
            self._tracker.sleeping(entity_id, until)
            seconds = (until - self._options.clock()).total_seconds()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(seconds, 1.0), _LOOK_SECONDS)):
                    await self._options.stop.wait()
            if self._options.stop.is_set() or self._options.clock() >= until:
                return
