"""The course of a run: which entities come next, how each is read and written as a
whole, and the rules that end the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

from attrs import define, evolve, field, frozen

from asyncfin import Catalogue, Client, EntityAnswer, Unchanged, read_entity
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    ManifestMismatchError,
    PermissionDeniedError,
    SelectionError,
    ends_all,
)
from asyncfin.events import ExtractFinished, ExtractStarted, next_serial
from asyncfin.extraction.place import Lock, Place
from asyncfin.extraction.progress import OnProgress, Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.record import Record, encode, find_common, panels_of
from asyncfin.extraction.report import EntityReport, EntityState, Failure
from asyncfin.tasks import bounded, in_thread
from asyncfin.typing import Missing

OnError: TypeAlias = Literal["continue", "raise"]

_log = logging.getLogger("asyncfin")
# Partial reads are lost when the allowance runs out. If a small allowance were spread
# over many entities, none would ever be done: so two are read at once at first, and one
# more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# How often a run that sleeps looks at the wall clock: the monotonic one may not move.
_LOOK_SECONDS = 10.0
# So many rejections with 403 without a success, and so many entities without anything
# of the query, end a run: the thousands that follow would fare no better.
MOST_REJECTED = 10
MOST_EMPTY = 25


@frozen(kw_only=True)
class Options:
    """The options of a run, as `extract` describes them."""

    on_error: OnError = "continue"
    refresh: bool = False
    replace: bool = False
    allow_missing: bool = False
    fresh_for: timedelta | None = None
    wait: bool = False
    lock: bool = True
    chunk: int = 25
    history: bool | None = None
    prune: bool = False
    # When it is set, no entity is begun.
    stop: asyncio.Event
    progress: OnProgress | None = None


@frozen
class Result:
    """What the reading of entities has led to: of one, or of a worker's chunk.

    Attributes:
        stopped: an error that fails all other entities too.
        rejection: the last 403.
        complaint: what an entity has in place of missing names.
        waits, repeated, has_success: what a worker's tracker has counted.
    """

    reports: tuple[EntityReport, ...] = ()
    records: Mapping[str, Record] = field(factory=dict)
    stopped: AsyncfinError | None = None
    rejection: AsyncfinError | None = None
    complaint: str | None = None
    waits: float = 0.0
    repeated: Mapping[str, int] = field(factory=dict)
    has_success: bool = False


@define
class Run:
    """What is to be read, what has been read, and the rules that end it.

    Attributes:
        records: the files of the query, by entity.
        stopped: the error that ended the run.
        complaint: what one of the entities has in place of missing names.
    """

    question: SharedQuestion
    place: Place
    options: Options
    records: dict[str, Record]
    tracker: Tracker
    lock: Lock | None
    stopped: AsyncfinError | None = None
    complaint: str | None = None
    _has_rows: bool = field(init=False)
    _with_file: frozenset[str] = field(init=False)
    _lacking: int = 0  # entities that were read and do not have all of the query
    _rejected: set[str] = field(factory=set)
    _rejection: AsyncfinError | None = None
    _has_asked: bool = False
    # What failed because of the service is read again after all others.
    _again: set[str] = field(factory=set)

    def __attrs_post_init__(self) -> None:
        self._has_rows = any(record.rows for record in self.records.values())
        self._with_file = frozenset(self.records)

    async def read_all(
        self, ids: Sequence[str], read: Callable[[list[str]], Awaitable[None]]
    ) -> None:
        """Read entities; the tracker has the reports on those that ended.

        Args:
            read: reads entities, and calls `note` until `is_pausing`.
        """
        while not self.is_ending and (entity_ids := self._choose_next(ids)):
            await read(entity_ids)
            if self.options.wait and isinstance(self.stopped, AllowanceExhaustedError):
                until, self.stopped = self.stopped.resume_at, None
                await self._sleep(until, entity_ids[0])

    @property
    def is_ending(self) -> bool:
        """Whether no further entity is to be begun."""
        return (
            self.stopped is not None or self.options.stop.is_set() or self.has_nothing
        )

    @property
    def is_pausing(self) -> bool:
        """Whether the entities that are to be read next must be chosen again."""
        return self.is_ending or self._must_ask

    @property
    def has_nothing(self) -> bool:
        """Whether so many entities have nothing of the query that it is a mistake."""
        is_allowed = self._has_rows or self.options.allow_missing
        return self._lacking >= MOST_EMPTY and not is_allowed

    @property
    def _is_doubtful(self) -> bool:
        """Whether the account may be rejected as a whole."""
        return len(self._rejected) >= MOST_REJECTED and not self.tracker.has_success

    @property
    def _must_ask(self) -> bool:
        """Whether an entity with a file is to be asked before all others."""
        return self._is_doubtful and not self._has_asked

    def _choose_next(self, ids: Sequence[str]) -> list[str]:
        pending = [
            entity_id for entity_id in ids if entity_id not in self.tracker.reports
        ]
        # Entities without a file come first: checking whether files are current could
        # use up an allowance.
        pending.sort(key=self._with_file.__contains__)
        if self._must_ask:
            self._has_asked = True
            return pending[-1:]
        first = [entity_id for entity_id in pending if entity_id not in self._again]
        return first or pending

    def note(self, result: Result) -> None:
        """Note and report what was read."""
        self.stopped = self.stopped or result.stopped
        self.complaint = self.complaint or result.complaint
        self._rejection = result.rejection or self._rejection
        self.records.update(result.records)
        for report in result.reports:
            failure = report.failure
            is_lacking = report.state == "done" and bool(report.missing)
            self._lacking += is_lacking
            if failure is None:
                self._has_rows |= report.rows > 0
            elif failure.status == 403:
                self._rejected.add(report.entity_id)
            elif failure.concerns == "service" and report.entity_id not in self._again:
                self._again.add(report.entity_id)
                continue
            self.tracker.end(report)
            if is_lacking and self._lacking == MOST_EMPTY:
                self._warn()
        if self._is_doubtful and self.stopped is None:
            listed = self._with_file.intersection(self.tracker.ids)
            if not listed or listed & self._rejected:
                self.stopped = self._rejection

    def _warn(self) -> None:
        """Log the names that none of the first entities has; the run goes on."""
        reports = self.tracker.read
        common = {} if self.options.allow_missing else find_common(reports)
        common.pop("periods", None)
        for name, values in common.items():
            texts = ", ".join(map(repr, values))
            _log.warning(
                "none of the first %d entities has %s %s", len(reports), name, texts
            )

    def find_unknown(self) -> Missing:
        """Return the names that no entity has, by field.

        Nothing where an entity that was not read may have them, unless none of those
        that were read has anything.
        """
        reports = self.tracker.read
        is_whole = len(reports) == len(self.tracker.ids)
        if self.options.allow_missing or not reports:
            return {}
        if not (is_whole or self.has_nothing):
            return {}
        common = find_common(reports)
        # Periods that none of these entities has may exist: a file with a row shows
        # that the query does.
        if self._has_rows:
            common.pop("periods", None)
        if not common and self.has_nothing:
            return dict(reports[0].missing)
        return common

    async def _sleep(self, until: datetime, entity_id: str) -> None:
        """Wait for the allowance on behalf of an entity, or until the run is to
        stop.
        """
        stop, tracker = self.options.stop, self.tracker
        while not stop.is_set():
            seconds = (until - tracker.clock()).total_seconds()
            if seconds <= 0:
                break
            tracker.wait(
                entity_id, f"the allowance is used up until {until:%Y-%m-%d %H:%M} UTC"
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(seconds, 1.0), _LOOK_SECONDS)):
                    await stop.wait()
        tracker.stop_waiting(entity_id)


@define
class Reader:
    """Reads entities with one client, and puts their files in place.

    Attributes:
        check: raises RunInProgressError if another run has taken the place over; in a
            worker it blocks shortly.
    """

    client: Client
    question: SharedQuestion
    place: Place
    records: Mapping[str, Record]
    tracker: Tracker
    refresh: bool
    on_error: OnError
    check: Callable[[], None]
    _has_complained: bool = False
    # One at a time: encoding takes memory, and the interpreter's lock.
    _encoding: asyncio.Lock = field(factory=asyncio.Lock)

    async def read_all(
        self,
        ids: Sequence[str],
        note: Callable[[Result], None],
        is_ending: Callable[[], bool],
    ) -> None:
        """Read entities, and call `note` with the result of each, until the end."""
        # Held until the file is in place: what is read and not written is lost when an
        # allowance ends.
        reading = asyncio.Semaphore(_READ_AT_FIRST)
        done = 0

        async def read_next(entity_id: str) -> None:
            nonlocal done
            async with reading:
                if is_ending():
                    return
                result = await self._read(entity_id)
                note(result)
            if any(report.failure is None for report in result.reports):
                done += 1
                if done % _DONE_FOR_ONE_MORE == 0:
                    reading.release()

        jobs = [partial(read_next, entity_id) for entity_id in ids]
        async with bounded(jobs, self.client.max_in_flight) as results:
            async for _ in results:
                pass

    async def _read(self, entity_id: str) -> Result:
        record = None if self.refresh else self.records.get(entity_id)
        try:
            answer = await read_entity(
                self.client,
                entity_id,
                self.question.select,
                self.question.periods,
                value_version=self.question.value_version,
                unless=None if record is None else record.dataset_id,
            )
            if not isinstance(answer, Unchanged):
                return await self._put(answer, was_compared=record is not None)
        except ManifestMismatchError:
            # About the place, in which nothing more may be written.
            raise
        except AsyncfinError as error:
            return self._fail(entity_id, error)
        assert record is not None
        return Result((self._report(record, "unchanged"),))

    def _fail(self, entity_id: str, error: AsyncfinError) -> Result:
        if ends_all(error, waits=True):
            return Result(stopped=error)
        if self.on_error == "raise":
            raise error
        report = EntityReport(
            entity_id,
            "failed",
            requests=self.tracker.spent(entity_id),
            failure=Failure.of(error),
        )
        rejection = error if isinstance(error, PermissionDeniedError) else None
        return Result((report,), rejection=rejection)

    async def _put(self, answer: EntityAnswer, *, was_compared: bool) -> Result:
        """Put an entity's file in place."""
        # The request that the file was compared with is not a part of what its content
        # takes.
        requests = self.tracker.spent(answer.entity_id) - was_compared

        def write() -> Record:
            record, content = encode(answer, self.question, requests=requests)
            self.check()
            path = self.place.entity_path(answer.entity_id)
            self.place.write(path, lambda stream: stream.write(content))
            return record

        async with self._encoding:
            record = await in_thread(write)
        panels = panels_of(answer)
        unlisted = set().union(*(panel.unlisted for panel in panels))
        report = self._report(record, "done")
        complaint = None
        if answer.missing and not self._has_complained:
            self._has_complained = True
            complaint = self._complain(panels[0].catalogue)
        return Result(
            (evolve(report, unlisted=len(unlisted)),),
            {answer.entity_id: record},
            complaint=complaint,
        )

    def _report(self, record: Record, state: EntityState) -> EntityReport:
        spent = self.tracker.spent(record.entity_id)
        return report_on(self.place, record, state, requests=spent)

    def _complain(self, catalogue: Catalogue) -> str | None:
        """Return what a catalogue has in place of the names that it does not have."""
        try:
            catalogue.select(self.question.select)
        except SelectionError as error:
            return str(error)
        return None


def report_on(
    place: Place, record: Record, state: EntityState, *, requests: int = 0
) -> EntityReport:
    """Return the report on an entity that has a file."""
    return EntityReport(
        record.entity_id,
        state,
        record.dataset_id,
        record.rows,
        record.bytes,
        requests,
        record.missing,
        path=place.url(place.entity_path(record.entity_id)),
    )


@contextmanager
def announce(
    client: Client, tracker: Tracker, stopped: Callable[[], AsyncfinError | None]
) -> Iterator[None]:
    """Announce the start and the end of a run, which is the block, and count what it
    sends.
    """
    serial, failure, entities = next_serial(), None, len(tracker.ids)
    with client.observed(tracker) as emit, tracker.counting():
        emit(ExtractStarted("extract", None, serial, entities))
        try:
            yield
            if (error := stopped()) is not None:
                failure = type(error).__name__
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            finished = ExtractFinished(
                "extract",
                None,
                serial,
                entities,
                **tracker.counts,
                requests=tracker.requests,
                failure=failure,
                seconds=tracker.seconds,
            )
            emit(finished)
