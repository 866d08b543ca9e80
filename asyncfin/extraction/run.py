"""Runs an extraction: entities side by side, each read, written and noted as a whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Literal, TypeAlias, get_args

from attrs import define, field

from asyncfin.client import Client
from asyncfin.errors import (
    AllowanceExhaustedError,
    AuthenticationError,
    DatasetChangedError,
    IncompleteResultError,
    MalformedAnswerError,
    SelectionError,
    ServiceError,
    TransportError,
)
from asyncfin.events import Observer, Restarted
from asyncfin.extraction.arguments import checked_folder, checked_ids
from asyncfin.extraction.journal import Failure, Written
from asyncfin.extraction.question import Lacking, Question, narrowed
from asyncfin.extraction.report import EntityReport, EntityState, ExtractReport, unknown_to_all
from asyncfin.extraction.shelf import Shelf
from asyncfin.extraction.thread import Thread
from asyncfin.extraction.watch import OnProgress, Watch
from asyncfin.fanout.catalogues import MAX_RESTARTS
from asyncfin.model import checks
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import PeriodSelection
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.table.panel import Panel
from asyncfin.wire.tasks import bounded

# What can be wrong with one entity alone.
FAILURES = (ServiceError, TransportError, MalformedAnswerError, IncompleteResultError, SelectionError)
OnError: TypeAlias = Literal["continue", "raise"]
# What is half read when the allowance ends is lost. If a small allowance were spread over many entities,
# none would ever be done: so two are read at once at first, and one more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# How often a run that sleeps tells so, and looks at the wall clock: the monotonic one may stand still.
_LOOK_SECONDS = 10.0


def utc_now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


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
    stop: asyncio.Event | None = None,
    progress: OnProgress | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> ExtractReport:
    """Ask many entities one question, and keep the answers as Parquet files (docs/extraction.md).

    Each entity becomes one file ``<entity_id>.parquet`` of one publication, put in place when it is
    whole. A journal beside the folder knows what is done: the same call again goes on where the last
    one ended, and asks an entity that has not changed for nothing but its metadata.

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
        stop: once it is set, what is in progress is finished, and nothing else is begun.
        progress: is called with an `ExtractProgress` after each request and each entity.
        clock: gives the wall time, aware UTC.

    Raises:
        SelectionError: an argument is not as said, before a request is spent; or an id or word is
            asked for that no entity has, after everything else is done: no entity is failed or left
            then, and the same call again says it again.
        ManifestMismatchError: the folder is of another question or an unknown journal, or in use by a run.
        OSError: the folder can't be written; all files in place stay.
        ImportError: pyarrow is not installed (extra ``arrow``).
        AsyncfinError: an entity failed, with ``on_error="raise"``.
    """
    report = await run(
        client,
        entity_ids,
        Question(select, periods, value_version),
        to=to,
        on_error=on_error,
        refresh=refresh,
        replace=replace,
        wait=wait,
        stop=stop,
        progress=progress,
        clock=clock,
    )
    report.check()
    return report


async def run(
    client: Client,
    entity_ids: Iterable[str],
    question: Question,
    *,
    to: str | os.PathLike[str],
    on_error: OnError = "continue",
    refresh: bool = False,
    replace: bool = False,
    wait: bool = False,
    stop: asyncio.Event | None = None,
    progress: OnProgress | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> ExtractReport:
    """Return the report of an extraction, as `extract` does, also where an id is unknown to all entities."""
    ids = checked_ids(entity_ids)
    folder = await checked_folder(client, to, refresh=refresh, replace=replace, wait=wait)
    checks.one_of(*get_args(OnError))("on_error", on_error)
    checks.instance_of(asyncio.Event).or_none()("stop", stop)
    checks.plain_callable.or_none()("progress", progress)
    checks.plain_callable("clock", clock)
    shelf = Shelf(folder, question, clock)
    watch = Watch(len(ids), progress, asyncio.get_running_loop().time)
    async with Thread() as thread:
        try:
            await thread.run(partial(shelf.open, replace=replace))
            course = _Course(
                client,
                question,
                shelf,
                thread,
                watch,
                clock,
                raises=on_error == "raise",
                refresh=refresh,
                wait=wait,
                stop=stop or asyncio.Event(),
            )
            return await course.over(ids)
        finally:
            await thread.last(shelf.close)


@define
class _Course:
    """One run, from its first entity to its last."""

    _client: Client
    _question: Question
    _shelf: Shelf
    _thread: Thread
    _watch: Watch
    _clock: Callable[[], datetime]
    _raises: bool = field(kw_only=True)
    _refresh: bool = field(kw_only=True)
    _wait: bool = field(kw_only=True)
    _stop: asyncio.Event = field(kw_only=True)
    _reading: asyncio.Semaphore = field(factory=partial(asyncio.Semaphore, _READ_AT_FIRST))
    _done: int = 0  # since the allowance was last used up
    _ended_by: AuthenticationError | AllowanceExhaustedError | None = None
    _example: Catalogue | None = None  # the last one that lacked something
    _announce: Observer = field(init=False)

    async def over(self, ids: tuple[str, ...]) -> ExtractReport:
        """Return how all entities fared."""
        known = await self._thread.run(partial(self._shelf.known, ids))
        by_id: dict[str, EntityReport] = {}
        with self._client.observed(self._watch) as self._announce, self._watch.at_work():
            # Else asking whether files are current could use up an allowance before the others' turn.
            for has_file in (False, True):
                jobs = [partial(self._entity, each, has_file) for each in ids if (each in known) == has_file]
                async with bounded(jobs, self._client.max_in_flight) as reports:
                    by_id |= {report.entity_id: report async for report in reports}
        entities = tuple(by_id[entity_id] for entity_id in ids)
        unknown = await self._thread.run(partial(unknown_to_all, entities))
        complaint = self._example.complaint(unknown) if self._example and unknown else None
        return ExtractReport(
            entities, self._watch.seconds, self._watch.waits, self._ended_by, unknown, complaint
        )

    @property
    def _ending(self) -> bool:
        return self._ended_by is not None or self._stop.is_set()

    async def _entity(self, entity_id: str, has_file: bool) -> EntityReport:
        """Return how one entity fared; one that the end of the run comes before is left."""
        while not self._ending:
            began = self._clock()
            try:
                if (report := await self._read(entity_id, has_file, began)) is not None:
                    return self._watch.ends(report)
            except AuthenticationError as error:
                self._ended_by = self._ended_by or error
            except AllowanceExhaustedError as error:
                if not self._wait:
                    self._ended_by = self._ended_by or error
                else:
                    await self._sleep(entity_id, error.resume_at)
            except FAILURES as error:
                spent = self._watch.spent(entity_id)
                failure = await self._thread.run(partial(self._shelf.fail, entity_id, error, spent, began))
                if self._raises:
                    raise
                return self._watch.ends(self._report(entity_id, "failed", failure=failure))
        return self._watch.ends(self._report(entity_id, "left"))

    async def _read(self, entity_id: str, has_file: bool, began: datetime) -> EntityReport | None:
        """Read an entity, unless its file is of the current publication.

        None: the run is ending, and its turn had not come.
        """
        dataset = None
        if has_file and not self._refresh:
            dataset = await self._client.dataset(entity_id)
            keep = partial(self._shelf.keep, entity_id, dataset.dataset_id, began)
            if (written := await self._thread.run(keep)) is not None:
                return self._report(entity_id, "unchanged", written)
        async with self._reading:
            if self._ending:
                return None
            panel, lacking = await self._current(entity_id, dataset)
            requests = self._watch.spent(entity_id)
            put = partial(self._shelf.put, panel, lacking, requests=requests, began=began)
            written = await self._thread.run(put)
        self._done += 1
        if self._done % _DONE_FOR_ONE_MORE == 0:
            self._reading.release()
        return self._report(entity_id, "done", written)

    async def _current(self, entity_id: str, dataset: Dataset | None) -> tuple[Panel, Lacking]:
        """Return the answer of the current publication, starting over if it changes meanwhile."""
        for restart in range(1, MAX_RESTARTS + 1):
            with suppress(DatasetChangedError):
                return await self._answer(dataset or await self._client.dataset(entity_id))
            self._announce(Restarted("extract", entity_id, restart))
            dataset = None
        return await self._answer(await self._client.dataset(entity_id))

    async def _answer(self, dataset: Dataset) -> tuple[Panel, Lacking]:
        """Return what a publication has of the question, and the asked ids and words that it lacks."""
        catalogue = await self._client.catalogue(dataset)
        # In a thread: the catalogue's indexes are built there, which takes long for thousands of series.
        select, lacking = await asyncio.to_thread(narrowed, self._question.select, catalogue)
        if lacking:
            self._example = catalogue
        question = self._question
        panel = await self._client.query(
            catalogue, select, question.periods, value_version=question.value_version
        )
        return panel, lacking

    def _report(
        self,
        entity_id: str,
        state: EntityState,
        written: Written | None = None,
        failure: Failure | None = None,
    ) -> EntityReport:
        requests = self._watch.spent(entity_id)
        if written is None:
            return EntityReport(entity_id, state, requests=requests, failure=failure)
        return EntityReport(
            entity_id,
            state,
            written.dataset_id,
            written.rows,
            written.bytes,
            requests,
            written.lacking,
        )

    async def _sleep(self, entity_id: str, until: datetime) -> None:
        """Wait for the allowance, or for the order to stop."""
        # Who waits for the old one has it soon: those that hold it are refused too, and sleep.
        self._reading, self._done = asyncio.Semaphore(_READ_AT_FIRST), 0
        while True:
            self._watch.sleeps(entity_id, until)
            seconds = (until - self._clock()).total_seconds()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(seconds, 1.0), _LOOK_SECONDS)):
                    await self._stop.wait()
            if self._stop.is_set() or self._clock() >= until:
                return
