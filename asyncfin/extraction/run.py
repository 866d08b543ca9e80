"""The course of a run: which entities come next, how each is read and written as a
whole, and the rules that end the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Literal, TypeAlias

from attrs import define, field, frozen

from asyncfin import Client, EntityAnswer, Unchanged, read_entity
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    ManifestMismatchError,
    ends_all,
)
from asyncfin.events import ExtractFinished, ExtractStarted, next_serial
from asyncfin.extraction.place import Place
from asyncfin.extraction.progress import Result, Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.record import Record, encode, list_panels
from asyncfin.extraction.report import (
    EntityReport,
    EntityState,
    ExtractReport,
    Failure,
    find_unknown,
)
from asyncfin.tasks import bounded, in_thread
from asyncfin.typing import Missing

OnError: TypeAlias = Literal["continue", "raise"]

# Partial reads are lost when the allowance runs out. If a small allowance were spread
# over many entities, none would ever be done: so two are read at once at first, and one
# more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# How often a run that sleeps looks at the wall clock: the monotonic one may not move.
_LOOK_SECONDS = 10.0
# So many rejections without a success, and so many entities without anything of the
# query, end a run: the thousands that follow would fare no better.
MOST_REJECTED = 10
MOST_EMPTY = 25


@frozen
class Job:
    """What is done with each entity: it is read with one query, and written to a place.

    `owner` is that of the place's lock, which workers verify before they write.
    """

    question: SharedQuestion
    place: Place
    refresh: bool
    on_error: OnError
    owner: str | None = None


@frozen(kw_only=True)
class Options:
    """The options of a run, as `extract` describes them."""

    replace: bool
    allow_missing: bool
    fresh_for: timedelta | None
    wait: bool
    lock: bool
    chunk: int
    history: bool
    prune: bool
    stop: asyncio.Event


@define
class Run:
    """Which entities are read next, and the rules that end a run.

    Attributes:
        uncounted_chunks: how often an executor broke, with the requests of its chunks.
    """

    options: Options
    tracker: Tracker
    clock: Callable[[], datetime]
    uncounted_chunks: int = 0
    _has_rows: bool = False
    _with_file: frozenset[str] = frozenset()
    _lacking: int = 0  # entities that were read and do not have all of the query
    _rejected_ids: set[str] = field(factory=set)

    @property
    def result(self) -> Result:
        """What the run has done so far."""
        return self.tracker.result

    def begin(self, records: dict[str, Record], moments: dict[str, datetime]) -> None:
        """Begin with the files that are there."""
        self.result.records = records
        self.result.moments = moments
        self._has_rows = any(record.rows for record in records.values())
        self._with_file = frozenset(records).intersection(self.tracker.ids)
        self.tracker.files = len(self._with_file)

    def skip_fresh(self) -> list[str]:
        """Report the entities that were confirmed less than `fresh_for` ago as
        unchanged, and return the others.
        """
        fresh_for = self.options.fresh_for or timedelta(0)
        now = self.clock()
        ids = []
        fresh_ids = []
        for entity_id in self.tracker.ids:
            moment = self.result.moments.get(entity_id)
            # A time in the future is that of another clock.
            if moment is None or not timedelta(0) <= now - moment < fresh_for:
                ids.append(entity_id)
            else:
                fresh_ids.append(entity_id)
        # So many new entities may all be rejected: one with a file decides then.
        if len(ids) > MOST_REJECTED and self._with_file.issubset(fresh_ids):
            ids += fresh_ids[-1:]
            del fresh_ids[-1:]
        for entity_id in fresh_ids:
            record = self.result.records[entity_id]
            self.tracker.end(report_on(record, "unchanged"))
        return ids

    async def read_all(
        self, ids: Sequence[str], read: Callable[[list[str]], Awaitable[None]]
    ) -> None:
        """Read entities; the tracker has the reports on those that ended.

        Args:
            read: reads entities, and calls `note` until `is_ending`.
        """
        result = self.result
        while not self.is_ending and (entity_ids := self._list_pending(ids)):
            await read(entity_ids)
            error = result.fatal_error
            if self.options.wait and isinstance(error, AllowanceExhaustedError):
                result.fatal_error = None
                await self._sleep(error.resume_at)

    @property
    def is_ending(self) -> bool:
        """Whether no further entity is to be begun."""
        if self.options.stop.is_set():
            return True
        return self.result.fatal_error is not None or self._has_nothing

    @property
    def _has_nothing(self) -> bool:
        """Whether so many entities have nothing of the query that it is a mistake."""
        is_allowed = self._has_rows or self.options.allow_missing
        return self._lacking >= MOST_EMPTY and not is_allowed

    @property
    def _is_rejected(self) -> bool:
        """Whether the account or the base URL is wrong."""
        if len(self._rejected_ids) < MOST_REJECTED or self.result.has_success:
            return False
        return not self._with_file or bool(self._with_file & self._rejected_ids)

    def _list_pending(self, ids: Sequence[str]) -> list[str]:
        reports = self.result.reports
        pending = [entity_id for entity_id in ids if entity_id not in reports]
        # Entities without a file come first: checking whether files are current could
        # use up an allowance. After so many rejections, one with a file is asked.
        pending.sort(key=self._with_file.__contains__)
        if pending and pending[-1] in self._with_file:
            pending.insert(MOST_REJECTED, pending.pop())
        return pending

    def add(self, chunk: Result) -> None:
        """Add what a worker has done."""
        self.result.add(chunk)
        for report in chunk.reports.values():
            self.note(report)

    def note(self, report: EntityReport) -> None:
        """Note and report that an entity has ended."""
        if report.failure is None:
            self._lacking += report.state == "done" and bool(report.missing)
            self._has_rows |= report.rows > 0
        elif report.failure.is_rejection:
            self._rejected_ids.add(report.entity_id)
        self.tracker.end(report)
        if self._is_rejected and self.result.fatal_error is None:
            self.result.fatal_error = self.result.rejection

    def find_unknown(self) -> Missing:
        """Return the names that no entity has, by field.

        Nothing where an entity that was not read may have them, unless none of those
        that were read has anything.
        """
        missing = [
            report.missing
            for report in self.result.reports.values()
            if report.state != "failed"
        ]
        is_whole = len(missing) == len(self.tracker.ids)
        if self.options.allow_missing or not (is_whole or self._has_nothing):
            return {}
        unknown = find_unknown(missing)
        # Periods that none of these entities has may exist: a file with a row shows
        # that the query does.
        if self._has_rows:
            unknown.pop("periods", None)
        if not unknown and self._has_nothing:
            return missing[0]
        return unknown

    def find_foreign(self) -> set[str]:
        """Return the entities that have a file and are not listed."""
        return self.result.records.keys() - set(self.tracker.ids)

    def report(self) -> ExtractReport:
        """Return the report on a run that ends now."""
        tracker = self.tracker
        result = self.result
        return ExtractReport(
            tracker.all_reports,
            tracker.seconds,
            result.fatal_error,
            self.find_unknown(),
            result.complaint,
            len(self.find_foreign()),
            dict(result.repeats),
            self.uncounted_chunks,
        )

    async def _sleep(self, until: datetime) -> None:
        """Wait for the allowance, or until the run is to stop."""
        stop = self.options.stop
        tracker = self.tracker
        while not stop.is_set():
            seconds = (until - self.clock()).total_seconds()
            if seconds <= 0:
                break
            tracker.wait(f"the allowance is used up until {until:%Y-%m-%d %H:%M} UTC")
            with suppress(TimeoutError):
                seconds = min(max(seconds, 1.0), _LOOK_SECONDS)
                async with asyncio.timeout(seconds):
                    await stop.wait()


@define
class Reader:
    """Reads entities with one client, and puts their files in place.

    Attributes:
        check: raises RunInProgressError if another run has taken the place over; in a
            worker it blocks shortly.
    """

    client: Client
    job: Job
    tracker: Tracker
    check: Callable[[], None]
    # One at a time: encoding takes memory, and the interpreter's lock.
    _encoding: asyncio.Lock = field(factory=asyncio.Lock)

    async def read_all(
        self,
        ids: Sequence[str],
        note: Callable[[EntityReport], None],
        is_ending: Callable[[], bool],
    ) -> None:
        """Read entities, and call `note` with the report on each, until the end."""
        # Held until the file is in place: what is read and not written is lost when an
        # allowance ends.
        reading = asyncio.Semaphore(_READ_AT_FIRST)
        done = 0

        async def read_next(entity_id: str) -> None:
            nonlocal done
            async with reading:
                if is_ending():
                    return
                report = await self._read(entity_id)
                if report is None:
                    return
                note(report)
            if report.failure is None:
                done += 1
                if done % _DONE_FOR_ONE_MORE == 0:
                    reading.release()

        jobs = [partial(read_next, entity_id) for entity_id in ids]
        async with bounded(jobs, self.client.max_in_flight) as results:
            async for _ in results:
                pass

    async def _read(self, entity_id: str) -> EntityReport | None:
        """Read an entity, and return the report on it, or None if all others would fail
        too.
        """
        job = self.job
        question = self.job.question
        result = self.tracker.result
        record = None if job.refresh else result.records.get(entity_id)
        try:
            answer = await read_entity(
                self.client,
                entity_id,
                question.select,
                question.periods,
                value_version=question.value_version,
                unless=None if record is None else record.dataset_id,
            )
            if not isinstance(answer, Unchanged):
                return await self._put(answer, was_compared=record is not None)
        except ManifestMismatchError:
            # About the place, in which nothing more may be written.
            raise
        except AsyncfinError as error:
            if ends_all(error, waits=True):
                result.fatal_error = result.fatal_error or error
                return None
            if job.on_error == "raise":
                raise
            failure = Failure.of(error)
            if failure.is_rejection:
                result.rejection = error
            return EntityReport(entity_id, "failed", failure=failure)
        assert record is not None
        result.moments[entity_id] = answer.confirmed_at
        return report_on(record, "unchanged")

    async def _put(self, answer: EntityAnswer, *, was_compared: bool) -> EntityReport:
        """Put an entity's file in place."""
        job = self.job
        result = self.tracker.result
        entity_id = answer.entity_id
        # The request that the file was compared with is not a part of what its content
        # takes.
        requests = result.by_entity[entity_id] - was_compared

        def write() -> Record:
            record, content = encode(answer, job.question, requests=requests)
            self.check()
            path = job.place.entity_path(entity_id)
            job.place.write_bytes(path, content)
            return record

        async with self._encoding:
            record = await in_thread(write)
        panels = list_panels(answer)
        # Series that both versions left out count once.
        unlisted_ids = set().union(*(panel.unlisted for panel in panels))
        result.records[entity_id] = record
        # None where nothing had to be requested, as of an entity without the question.
        moment = panels[0].confirmed_at
        if moment is not None:
            result.moments[entity_id] = moment
        if answer.missing and result.complaint is None:
            catalogue = panels[0].catalogue
            if missing := catalogue.missing(job.question.select):
                result.complaint = catalogue.explain(missing)
        return report_on(record, "done", len(unlisted_ids))


def report_on(record: Record, state: EntityState, unlisted: int = 0) -> EntityReport:
    """Return the report on an entity that has a file."""
    return EntityReport(
        record.entity_id,
        state,
        record.dataset_id,
        record.rows,
        record.bytes,
        missing=record.missing,
        unlisted=unlisted,
    )


@contextmanager
def announce(client: Client, tracker: Tracker) -> Iterator[None]:
    """Announce the start and the end of a run, which is the block, and count what it
    sends.
    """
    serial = next_serial()
    failure = None
    entities = len(tracker.ids)
    result = tracker.result
    with client.observed(tracker) as emit, tracker.counting():
        emit(ExtractStarted("extract", None, serial, entities))
        try:
            yield
            if result.fatal_error is not None:
                failure = type(result.fatal_error).__name__
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            event = ExtractFinished(
                "extract",
                None,
                serial,
                entities,
                **tracker.counts,
                requests=result.requests,
                failure=failure,
                seconds=tracker.seconds,
            )
            emit(event)
