"""Runs an extraction: several entities at a time, each of them read, written and recorded as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from math import inf
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from asyncfin import checks
from asyncfin.client import Client, publications_of
from asyncfin.clock import utc_now
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    ManifestMismatchError,
    PermissionDeniedError,
    ends_all,
)
from asyncfin.events import ExtractFinished, ExtractStarted, next_serial
from asyncfin.extraction.feed_writer import FeedWriter
from asyncfin.extraction.files import QuestionFiles
from asyncfin.extraction.parquet import EntityFile, encode, panels_of, rows_of
from asyncfin.extraction.progress import OnProgress, Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.refusals import Refusals, asked_first
from asyncfin.extraction.report import EntityReport, EntityState, ExtractReport, Failure
from asyncfin.extraction.unknown import unknown_to_all, unknown_to_sample, unread_sample
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import Missing, complaint, without_periods
from asyncfin.read.entity import EntityAnswer, read_versions
from asyncfin.read.read import Read
from asyncfin.tasks import bounded, cancel_and_wait, in_thread

OnError: TypeAlias = Literal["continue", "raise"]

# Partial reads are lost when the allowance runs out. If a small allowance were spread over many entities,
# none would ever be done: so two are read at once at first, and one more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# How often a run that sleeps reports it, and looks at the wall clock: the monotonic one may not move.
_LOOK_SECONDS = 10.0


@frozen(kw_only=True)
class Options:
    """The options of a run, as `extract` describes them; ArgumentError: one is not as described."""

    on_error: OnError = field(validator=checks.one_of("continue", "raise").field)
    refresh: bool = field(validator=checks.flag.field)
    replace: bool = field(default=False, validator=checks.flag.field)
    wait: bool = field(default=False, validator=checks.flag.field)
    # None: no limit.
    max_outage: float | None = field(default=None, validator=checks.seconds_or_none.field)
    lock: bool = field(default=True, validator=checks.flag.field)
    chunk: int = field(default=25, validator=checks.positive_int.field)
    history: bool | None = field(default=None, validator=checks.flag.optional().field)
    prune: bool = field(default=False, validator=checks.flag.field)
    # When one is set, no entity is begun; with `drop`, what is in progress is dropped too.
    stop: asyncio.Event = field(factory=asyncio.Event)
    drop: asyncio.Event = field(factory=asyncio.Event)
    # Set soon after either, for waits.
    ending: asyncio.Event = field(factory=asyncio.Event)
    progress: OnProgress | None = field(default=None, validator=checks.plain_callable.optional().field)
    clock: Callable[[], datetime] = field(default=utc_now, validator=checks.plain_callable.field)
    # A worker sees a part of the entities: the driver reads again what failed, and asks some first.
    is_worker: bool = False

    @property
    def is_ending(self) -> bool:
        """Whether no further entity is to be begun."""
        return self.stop.is_set() or self.drop.is_set()


@define
class Run:
    """One run, from its first entity to its last."""

    _client: Client
    _question: SharedQuestion
    _files: QuestionFiles
    _tracker: Tracker
    _options: Options
    _writer: FeedWriter | None = None
    # One at a time: encoding takes memory, and the interpreter's lock.
    _encoding: asyncio.Lock = field(factory=asyncio.Lock)
    _reading: asyncio.Semaphore = field(factory=partial(asyncio.Semaphore, _READ_AT_FIRST))
    _done: int = 0  # since the allowance was last used up
    stopped: AsyncfinError | None = None
    _unlisted: dict[str, int] = field(factory=dict)
    _example: Catalogue | None = None  # the last one that does not have something
    # What failed because of the service is read again after all others.
    _again: dict[str, None] = field(factory=dict)
    _refusals: Refusals = field(factory=Refusals)
    _begun: set[str] = field(factory=set)
    _asked_first: dict[str, EntityReport] = field(factory=dict)
    # Held while it is found out whether all entities are refused: no other one is begun then.
    _deciding: asyncio.Lock = field(factory=asyncio.Lock)
    _in_progress: dict[str, asyncio.Timeout] = field(factory=dict)  # by entity; what drops it
    refusal: PermissionDeniedError | None = None  # the last one

    async def over(self, ids: tuple[str, ...]) -> ExtractReport:
        """Return the report on all entities."""
        by_id: dict[str, EntityReport] = {}
        unknown: Missing = {}
        with self.announced(len(ids)):
            if not self._files.known:
                while not self._ending and (unread := unread_sample(ids, by_id)):
                    by_id |= await self.read_all(unread)
                if not self._ending and len(by_id) < len(ids):
                    unknown = unknown_to_sample(self._question, by_id.values(), self._tracker, self.explain)
            if not unknown:
                await self.read_all([each for each in ids if each not in by_id])
                await self.read_all(tuple(self._again))
        entities = self._tracker.reports_on(ids)
        if not unknown:
            judge = partial(unknown_to_all, self._question, entities, has_rows=self._files.has_rows)
            unknown = await in_thread(judge)
        return self._tracker.summary(entities, self.stopped, unknown, self.explain(unknown))

    @contextmanager
    def announced(self, entities: int) -> Iterator[None]:
        """Announce the start and the end of the run, which is the block, and count what it sends."""
        serial, failure = next_serial(), None
        with self._client.observed(self._tracker) as announce, self._tracker.counting():
            announce(ExtractStarted("extract", None, serial, entities))
            try:
                yield
            except BaseException as error:
                failure = type(error).__name__
                raise
            finally:
                if self.stopped is not None:
                    failure = type(self.stopped).__name__
                finished = ExtractFinished(
                    "extract",
                    None,
                    serial,
                    entities,
                    **{state: self._tracker.states[state] for state in ("done", "unchanged", "failed")},
                    requests=self._tracker.requests,
                    failure=failure,
                    seconds=self._tracker.seconds,
                )
                announce(finished)

    async def read_all(self, ids: Sequence[str]) -> dict[str, EntityReport]:
        """Return the reports on some entities; those that the run does not reach are "left"."""
        by_id: dict[str, EntityReport] = {}
        # Entities without a file come first: checking whether files are current could use up an allowance.
        for has_file in (False, True):
            chosen = [each for each in ids if (each in self._files.known) == has_file and each not in by_id]
            jobs = [partial(self._entity, each, has_file, ids) for each in chosen]
            dropping = asyncio.ensure_future(self._drop_all())
            self._tracker.on_outage = self._drop
            try:
                async with bounded(jobs, self._client.max_in_flight) as reports:
                    by_id |= {report.entity_id: report async for report in reports}
            finally:
                await cancel_and_wait([dropping])
        return by_id

    def explain(self, unknown: Missing) -> str | None:
        """Return what one of the entities says of missing names; None if no catalogue was read."""
        names = without_periods(unknown)
        return complaint(self._example, names) if self._example is not None and names else None

    @property
    def _ending(self) -> bool:
        return self.stopped is not None or self._options.is_ending

    async def _entity(self, entity_id: str, has_file: bool, others: Sequence[str]) -> EntityReport:
        """Return the report on one entity: "left" if the run ends before its turn."""
        async with self._deciding:
            if (report := self._asked_first.pop(entity_id, None)) is not None:
                return report
            self._begun.add(entity_id)
        report = await self._outcome(entity_id, has_file)
        self._refusals.record(report)
        if self._refusals.is_doubtful and not self._options.is_worker:
            async with self._deciding:
                await self._ask_first([each for each in others if each not in self._begun])
        return report

    async def _ask_first(self, ids: Sequence[str]) -> None:
        """End the run if some entities of a list that begins with refused ones are refused too."""
        for each in asked_first(ids, self._files.known):
            if self._ending or not self._refusals.is_doubtful:
                return
            self._begun.add(each)
            report = self._asked_first[each] = await self._outcome(each, each in self._files.known)
            self._refusals.record(report)
        if self._refusals.is_doubtful:
            self.stopped = self.stopped or self.refusal

    async def _outcome(self, entity_id: str, has_file: bool) -> EntityReport:
        while not self._ending:
            self._files.place.check()
            try:
                if (report := await self._unless_dropped(entity_id, has_file)) is not None:
                    return self._tracker.ended(report)
            except ManifestMismatchError:  # about the place, in which nothing more may be written
                raise
            except AsyncfinError as error:
                if isinstance(error, AllowanceExhaustedError) and self._options.wait:
                    # Those that wait for the old semaphore get it soon: its holders are refused too.
                    self._reading, self._done = asyncio.Semaphore(_READ_AT_FIRST), 0
                    await sleep_until(error.resume_at, entity_id, self._tracker, self._options)
                elif ends_all(error, waits=True):
                    self.stopped = self.stopped or error
                elif self._options.on_error == "raise":
                    raise
                elif self._is_read_again(entity_id, error):
                    self._again[entity_id] = None
                    return self._failed(entity_id, error)
                else:
                    if isinstance(error, PermissionDeniedError):
                        self.refusal = error
                    return self._tracker.ended(self._failed(entity_id, error))
        return self._left(entity_id)

    def _is_read_again(self, entity_id: str, error: AsyncfinError) -> bool:
        return error.concerns == "service" and entity_id not in self._again and not self._options.is_worker

    def _left(self, entity_id: str) -> EntityReport:
        return EntityReport(entity_id, "left", requests=self._tracker.spent(entity_id))

    async def _unless_dropped(self, entity_id: str, has_file: bool) -> EntityReport | None:
        """Read an entity; None: it was dropped, or the run ends before its turn."""
        try:
            # Without a limit: it expires when the entity is dropped.
            async with asyncio.timeout(None) as scope:
                self._in_progress[entity_id] = scope
                return await self._read(entity_id, has_file)
        except TimeoutError:
            if scope.expired():
                return None
            raise
        finally:
            del self._in_progress[entity_id]

    def _drop(self, entity_id: str) -> None:
        """Drop an entity in progress if that is to be; with `stop`, one that waits for an outage's end."""
        waits = self._options.stop.is_set() and entity_id in self._tracker.in_outage
        scope = self._in_progress.get(entity_id)
        # One that has been dropped may still be ending, and then takes no other time.
        if (waits or self._options.drop.is_set()) and scope is not None and not scope.expired():
            scope.reschedule(0)

    async def _drop_all(self) -> None:
        for event in (self._options.ending, self._options.drop):
            await event.wait()
            for entity_id in list(self._in_progress):
                self._drop(entity_id)

    def _failed(self, entity_id: str, error: AsyncfinError) -> EntityReport:
        spent = self._tracker.spent(entity_id)
        return EntityReport(entity_id, "failed", requests=spent, failure=Failure.of(error))

    async def _read(self, entity_id: str, has_file: bool) -> EntityReport | None:
        """Read an entity whose file is not of the current publication; None: the run ends before its turn."""
        question, metadata = self._question.of(entity_id), None
        longest = self._options.max_outage
        publications, longest = publications_of(self._client), inf if longest is None else longest
        if has_file and not self._options.refresh:
            metadata = await Read(publications, question, "dataset", max_outage=longest).metadata()
            if await self._files.is_current(metadata):
                return self._report(entity_id, "unchanged")
        # Held until the file is in place: what is read and not written is lost when an allowance ends.
        async with self._reading:
            if self._ending:
                return None
            versions = self._question.versions
            answer = await read_versions(
                publications,
                question,
                versions,
                operation="extract",
                metadata=metadata,
                max_outage=longest,
            )
            await self._put(answer, compared=metadata is not None)
        self._done += 1
        if self._done % _DONE_FOR_ONE_MORE == 0:
            # One more may read: see `_DONE_FOR_ONE_MORE`.
            self._reading.release()
        return self._report(entity_id, "done")

    async def _put(self, answer: EntityAnswer, *, compared: bool) -> None:
        # The request that the file was compared with is not a part of what its content takes.
        requests = self._tracker.spent(answer.entity_id) - compared
        make = partial(self._recorded, answer, requests)
        async with self._encoding:
            file = await in_thread(make)
        await self._files.put(file)
        panels = panels_of(answer)
        if answer.missing:
            self._example = panels[0].catalogue
        self._unlisted[answer.entity_id] = len(set().union(*(panel.unlisted for panel in panels)))

    def _recorded(self, answer: EntityAnswer, requests: int) -> EntityFile:
        """Return the file of an entity; what it changes is durable in the feed by then. It blocks."""
        panels = panels_of(answer)
        table = rows_of(*panels)
        self._files.place.check()
        run = None if self._writer is None else self._writer.record(panels, table)
        return encode(answer, table, self._question, requests=requests, run=run)

    def _report(self, entity_id: str, state: EntityState) -> EntityReport:
        written = self._files.known[entity_id]
        return EntityReport(
            entity_id,
            state,
            written.dataset_id,
            written.rows,
            written.bytes,
            self._tracker.spent(entity_id),
            written.missing,
            path=self._files.place.path(entity_id),
            unlisted=self._unlisted.get(entity_id, 0),
        )


async def sleep_until(until: datetime, entity_id: str, tracker: Tracker, options: Options) -> None:
    """Wait for the allowance on behalf of an entity, or until the run is to stop."""
    while True:
        tracker.sleeping(entity_id, until)
        seconds = (until - options.clock()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, 1.0), _LOOK_SECONDS)):
                await options.ending.wait()
        if options.is_ending or options.clock() >= until:
            tracker.awake(entity_id)
            return
