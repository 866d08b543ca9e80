"""Runs an extraction: several entities at a time, each of them read, written and
recorded as a whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

from attrs import define, evolve, field, frozen

from asyncfin import Client, EntityAnswer, Unchanged, checks, read_entity
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    ManifestMismatchError,
    PermissionDeniedError,
    SelectionError,
    ends_all,
)
from asyncfin.events import ExtractFinished, ExtractStarted, next_serial
from asyncfin.extraction.feed_writer import FeedWriter
from asyncfin.extraction.place import Lock, Place, check_owner, entity_path, url
from asyncfin.extraction.progress import OnProgress, Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.record import Record, encode, panels_of, rows_of
from asyncfin.extraction.report import EntityReport, EntityState, Failure
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import Missing
from asyncfin.tasks import bounded, in_thread

OnError: TypeAlias = Literal["continue", "raise"]

# Partial reads are lost when the allowance runs out. If a small allowance were spread
# over many entities, none would ever be done: so two are read at once at first, and one
# more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# How often a run that sleeps looks at the wall clock: the monotonic one may not move.
_LOOK_SECONDS = 10.0
# So many rejections with 403 without a success, and so many entities without anything
# of the question, end a run: the thousands that follow would fare no better.
MOST_REJECTED = 10
MOST_EMPTY = 25


@frozen(kw_only=True)
class Options:
    """The options of a run, as `extract` describes them.

    Raises:
        ArgumentError: one is not as described.
    """

    on_error: OnError = field(
        default="continue", validator=checks.one_of("continue", "raise").field
    )
    refresh: bool = field(default=False, validator=checks.flag.field)
    replace: bool = field(default=False, validator=checks.flag.field)
    allow_missing: bool = field(default=False, validator=checks.flag.field)
    fresh_for: timedelta | None = field(
        default=None, validator=checks.instance_of(timedelta).optional().field
    )
    wait: bool = field(default=False, validator=checks.flag.field)
    lock: bool = field(default=True, validator=checks.flag.field)
    chunk: int = field(default=25, validator=checks.positive_int.field)
    history: bool | None = field(default=None, validator=checks.flag.optional().field)
    prune: bool = field(default=False, validator=checks.flag.field)
    # When it is set, no entity is begun.
    stop: asyncio.Event = field(
        factory=asyncio.Event, validator=checks.instance_of(asyncio.Event).field
    )
    progress: OnProgress | None = field(
        default=None, validator=checks.plain_callable.optional().field
    )


@define
class Verdict:
    """What ends a run that cannot succeed, from the outcomes of its entities.

    Attributes:
        with_file: the entities of the list that have a file of the question.
        has_rows: whether a file of the question has a row.
        has_success: whether the service has answered a request of this run.
    """

    with_file: frozenset[str]
    has_rows: bool
    allow_missing: bool
    has_success: bool = False
    _rejected: set[str] = field(factory=set)
    _read: int = 0
    _rejection: AsyncfinError | None = None

    @classmethod
    def on(
        cls, ids: Sequence[str], records: Mapping[str, Record], *, allow_missing: bool
    ) -> Verdict:
        """Return the verdict on a run that begins with these files."""
        has_rows = any(record.rows for record in records.values())
        return cls(frozenset(records).intersection(ids), has_rows, allow_missing)

    @property
    def is_doubtful(self) -> bool:
        """Whether the account may be rejected as a whole: an entity with a file is
        asked next.
        """
        return len(self._rejected) >= MOST_REJECTED and not self.has_success

    @property
    def stopped(self) -> AsyncfinError | None:
        """The 403 that every other entity would get too."""
        is_certain = not self.with_file or not self.with_file.isdisjoint(self._rejected)
        return self._rejection if self.is_doubtful and is_certain else None

    @property
    def gives_up(self) -> bool:
        """Whether no entity has anything of the question."""
        return self._read >= MOST_EMPTY and not self.has_rows and not self.allow_missing

    def note(self, report: EntityReport, rejection: AsyncfinError | None) -> None:
        """Note the outcome of an entity; `rejection` is the last 403."""
        self._rejection = rejection or self._rejection
        self.has_success |= report.state in ("done", "unchanged")
        self.has_rows |= report.rows > 0
        if report.failure is not None and report.failure.status == 403:
            self._rejected.add(report.entity_id)
        self._read += report.state == "done" and bool(report.missing)


def unknown_names(entities: Sequence[EntityReport], verdict: Verdict) -> Missing:
    """Return the names that no entity has, by field; nothing where an entity that was
    not read may have them.

    If the run has given up, those that no entity has which was read.
    """
    read = [entity for entity in entities if entity.state in ("done", "unchanged")]
    if (
        verdict.allow_missing
        or not read
        or (len(read) < len(entities) and not verdict.gives_up)
    ):
        return {}
    first, *others = [entity.missing for entity in read]
    in_all = {
        name: tuple(
            value
            for value in values
            if all(value in other.get(name, ()) for other in others)
        )
        for name, values in first.items()
    }
    # Periods that none of these entities has may exist: a file with a row shows that
    # the question does.
    names = {
        name: values for name, values in in_all.items() if values and name != "periods"
    }
    if names or verdict.has_rows:
        return names
    if any(in_all.values()):
        return {name: values for name, values in in_all.items() if values}
    return dict(first) if verdict.gives_up else {}


def explain(catalogue: Catalogue | None, question: SharedQuestion) -> str | None:
    """Return what a catalogue has in place of the names that it does not have, or None
    if it has all.
    """
    if catalogue is None:
        return None
    try:
        catalogue.select(question.select)
    except SelectionError as error:
        return str(error)
    return None


@define
class Run:
    """The reading of entities with one client: of a whole run, or of a worker's chunk.

    Attributes:
        records: the files of the question, by entity.
        verdict: what ends the run early, or None in a worker, whose driver decides.
        lock: the place's lock, or the owner of its driver's in a worker.
        stopped: the error that ended the run.
        rejection: the last 403.
        example: the last catalogue that does not have something.
    """

    client: Client
    question: SharedQuestion
    place: Place
    records: dict[str, Record]
    tracker: Tracker
    options: Options
    lock: Lock | str | None
    writer: FeedWriter | None = None
    verdict: Verdict | None = None
    stopped: AsyncfinError | None = None
    rejection: AsyncfinError | None = None
    example: Catalogue | None = None
    # One at a time: encoding takes memory, and the interpreter's lock.
    _encoding: asyncio.Lock = field(factory=asyncio.Lock)
    _reading: asyncio.Semaphore = field(
        factory=partial(asyncio.Semaphore, _READ_AT_FIRST)
    )
    _done: int = 0  # since the allowance was last used up
    _unlisted: dict[str, int] = field(factory=dict)
    # What failed because of the service is read again after all others.
    _again: dict[str, None] = field(factory=dict)
    _with_file: deque[str] = field(factory=deque)
    _without: deque[str] = field(factory=deque)

    async def read_all(self, ids: Sequence[str]) -> None:
        """Read entities, and put their files in place; the tracker has the reports on
        those that ended.
        """
        # Entities without a file come first: checking whether files are current could
        # use up an allowance.
        for entity_id in ids:
            (self._with_file if entity_id in self.records else self._without).append(
                entity_id
            )
        await self._read_queued(len(ids))
        if self.verdict is not None:
            self._without.extend(self._again)
            await self._read_queued(len(self._again))

    @contextmanager
    def announced(self, entities: int) -> Iterator[None]:
        """Announce the start and the end of the run, which is the block, and count what
        it sends.
        """
        serial, failure = next_serial(), None
        tracker = self.tracker
        with self.client.observed(tracker) as announce, tracker.counting():
            announce(ExtractStarted("extract", None, serial, entities))
            tracker.report()
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
                    **{
                        state: tracker.states[state]
                        for state in ("done", "unchanged", "failed")
                    },
                    requests=tracker.requests,
                    failure=failure,
                    seconds=tracker.seconds,
                )
                announce(finished)

    @property
    def _ending(self) -> bool:
        gives_up = self.verdict is not None and self.verdict.gives_up
        return self.stopped is not None or self.options.stop.is_set() or gives_up

    async def _read_queued(self, count: int) -> None:
        async with bounded(
            [self._read_next] * count, self.client.max_in_flight
        ) as done:
            async for _ in done:
                pass

    async def _read_next(self) -> None:
        """Read the entity that is next, unless the run ends."""
        queues = [self._without, self._with_file]
        if self.verdict is not None and self.verdict.is_doubtful:
            queues.reverse()
        queue = next(filter(None, queues), None)
        if queue is None:
            return
        entity_id = queue.popleft()
        while not self._ending:
            if self.verdict is not None:
                self.check()
            try:
                report = await self._read(entity_id)
            except (
                ManifestMismatchError
            ):  # about the place, in which nothing more may be written
                raise
            except AsyncfinError as error:
                report = await self._report_failure(entity_id, error)
            if report is not None:
                self.tracker.ended(report)
                if self.verdict is not None:
                    self.verdict.has_success |= self.tracker.has_success
                    self.verdict.note(report, self.rejection)
                    self.stopped = self.stopped or self.verdict.stopped
                return

    async def _report_failure(
        self, entity_id: str, error: AsyncfinError
    ) -> EntityReport | None:
        """Return the report on an entity that failed, or None if it is read again or
        left.
        """
        if isinstance(error, AllowanceExhaustedError) and self.options.wait:
            # Those that wait for the old semaphore get it soon: its holders are
            # rejected too.
            self._reading, self._done = asyncio.Semaphore(_READ_AT_FIRST), 0
            await sleep_until(
                error.resume_at, entity_id, self.tracker, self.options.stop
            )
            return None
        if ends_all(error, waits=True):
            self.stopped = self.stopped or error
            return None
        if self.options.on_error == "raise":
            raise error
        report = EntityReport(
            entity_id,
            "failed",
            requests=self.tracker.spent(entity_id),
            failure=Failure.of(error),
        )
        if isinstance(error, PermissionDeniedError):
            self.rejection = error
        if (
            self.verdict is not None
            and error.concerns == "service"
            and entity_id not in self._again
        ):
            self._again[entity_id] = None
            return evolve(report, state="left", failure=None)
        return report

    async def _read(self, entity_id: str) -> EntityReport | None:
        """Read an entity, unless its file is current, or return None if the run ends
        before its turn.
        """
        record = None if self.options.refresh else self.records.get(entity_id)
        # Held until the file is in place: what is read and not written is lost when an
        # allowance ends.
        reading = self._reading
        async with reading:
            if self._ending:
                return None
            answer = await read_entity(
                self.client,
                entity_id,
                self.question.select,
                self.question.periods,
                value_version=self.question.value_version,
                unless=None if record is None else record.dataset_id,
            )
            state: EntityState = "unchanged"
            if not isinstance(answer, Unchanged):
                await self._put(answer, compared=record is not None)
                state = "done"
        self._done += 1
        if self._done % _DONE_FOR_ONE_MORE == 0:
            # One more may read: see `_DONE_FOR_ONE_MORE`.
            self._reading.release()
        return self._report(entity_id, state)

    async def _put(self, answer: EntityAnswer, *, compared: bool) -> None:
        panels = panels_of(answer)
        # The request that the file was compared with is not a part of what its content
        # takes.
        requests = self.tracker.spent(answer.entity_id) - compared
        async with self._encoding:
            self.records[answer.entity_id] = await in_thread(
                partial(self._write, answer, requests)
            )
        if answer.missing:
            self.example = panels[0].catalogue
        self._unlisted[answer.entity_id] = len(
            set().union(*(panel.unlisted for panel in panels))
        )

    def _write(self, answer: EntityAnswer, requests: int) -> Record:
        """Put an entity's file in place; what it changes is durable in the feed by
        then. It blocks.
        """
        panels = panels_of(answer)
        table = rows_of(panels)
        self.check()
        run = None if self.writer is None else self.writer.record(panels, table)
        record, content = encode(
            answer, table, self.question, requests=requests, run=run
        )
        self.check()
        path = entity_path(self.place, answer.entity_id)
        self.place.write(path, lambda stream: stream.write(content))
        return record

    def check(self) -> None:
        """Raise RunInProgressError if another run has taken the place over. In a worker
        it blocks shortly.
        """
        if isinstance(self.lock, str):
            check_owner(self.place, self.lock)
        elif self.lock is not None:
            self.lock.check()

    def _report(self, entity_id: str, state: EntityState) -> EntityReport:
        record = self.records[entity_id]
        return EntityReport(
            entity_id,
            state,
            record.dataset_id,
            record.rows,
            record.bytes,
            self.tracker.spent(entity_id),
            record.missing,
            path=url(self.place, entity_path(self.place, entity_id)),
            unlisted=self._unlisted.get(entity_id, 0),
        )


async def sleep_until(
    until: datetime, entity_id: str, tracker: Tracker, stop: asyncio.Event
) -> None:
    """Wait for the allowance on behalf of an entity, or until the run is to stop."""
    while (
        not stop.is_set() and (seconds := (until - tracker.clock()).total_seconds()) > 0
    ):
        tracker.sleeping(entity_id, until)
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, 1.0), _LOOK_SECONDS)):
                await stop.wait()
    tracker.awake(entity_id)
