"""The progress of a run: what its requests cost, and what it is waiting for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from asyncfin.errors import AsyncfinError
from asyncfin.events import Event, RequestFinished, RequestStarted, Waiting
from asyncfin.extraction.record import Record
from asyncfin.extraction.report import EntityReport

_log = logging.getLogger("asyncfin")
# The run that a task works for: observers are called in the task of the request.
_run: ContextVar[Tracker | None] = ContextVar("asyncfin_extraction", default=None)


@frozen
class ExtractProgress:
    """How far a run has come.

    Attributes:
        entities: how many entities there are in all.
        files: how many of them had a file of the question when the run began.
        done: how many have been written.
        unchanged: how many were found unchanged.
        failed: how many have failed.
        requests: how many requests were spent so far.
        seconds: the time since the run began.
        waiting: what an entity is waiting for, for people: the one whose wait was
            reported last; None once a request was sent or an entity has ended.
        ended: the entity that has just ended; None where something else has happened.
    """

    entities: int
    files: int
    done: int
    unchanged: int
    failed: int
    requests: int
    seconds: float
    waiting: str | None = None
    ended: EntityReport | None = None


# Called on the loop when the run begins, and after each request and each entity. It
# must not block; its errors are logged.
OnProgress: TypeAlias = Callable[[ExtractProgress], object]


@define
class Result:
    """What a run, or a worker with its chunk, has done so far.

    Attributes:
        reports: on the entities that have ended.
        records: the files of the query, by entity.
        moments: when the requests were sent that showed files to be current.
        requests: how many were sent.
        by_entity: how many, by entity.
        repeats: how many were sent again, by the reason.
        has_success: whether the service has answered one.
        fatal_error: an error that fails all other entities too.
        rejection: the last 403, or 404 that is not the service's.
        complaint: what an entity has in place of missing names.
    """

    reports: dict[str, EntityReport] = field(factory=dict)
    records: dict[str, Record] = field(factory=dict)
    moments: dict[str, datetime] = field(factory=dict)
    requests: int = 0
    by_entity: Counter[str] = field(factory=Counter)
    repeats: Counter[str] = field(factory=Counter)
    has_success: bool = False
    fatal_error: AsyncfinError | None = None
    rejection: AsyncfinError | None = None
    complaint: str | None = None

    def add(self, chunk: Result) -> None:
        """Add what a worker has done, apart from its reports."""
        self.records |= chunk.records
        self.moments |= chunk.moments
        self.requests += chunk.requests
        self.by_entity.update(chunk.by_entity)
        self.repeats.update(chunk.repeats)
        self.has_success |= chunk.has_success
        self.fatal_error = self.fatal_error or chunk.fatal_error
        self.rejection = chunk.rejection or self.rejection
        self.complaint = self.complaint or chunk.complaint


@define
class Tracker:
    """Counts a run's requests and entities as an observer of its client, and reports
    the progress.

    Attributes:
        files: how many of the entities had a file at the beginning.
    """

    ids: Sequence[str]
    callback: OnProgress | None = None
    files: int = 0
    result: Result = field(factory=Result)
    counts: Counter[str] = field(factory=lambda: Counter(done=0, unchanged=0, failed=0))
    waiting: str | None = None
    _began: float = field(factory=lambda: asyncio.get_running_loop().time())
    # How the last attempt that failed has failed, by operation and entity.
    _failures: dict[tuple[str, str], str] = field(factory=dict)

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return asyncio.get_running_loop().time() - self._began

    @property
    def all_reports(self) -> tuple[EntityReport, ...]:
        """The report on each entity; one that has not ended is left."""
        return tuple(
            self.result.reports.get(entity_id)
            or EntityReport(
                entity_id, "left", requests=self.result.by_entity[entity_id]
            )
            for entity_id in self.ids
        )

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what this task and the tasks that it makes send while the block
        lasts.
        """
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)

    def __call__(self, event: Event) -> None:
        entity_id = event.entity_id
        # Other tasks may use the client too; what they send is not this run's.
        if _run.get() is not self or entity_id is None:
            return
        result = self.result
        match event:
            case RequestStarted(attempt=attempt):
                result.requests += 1
                result.by_entity[entity_id] += 1
                self.waiting = None
                if attempt > 1:
                    key = event.operation, entity_id
                    result.repeats[self._failures.get(key, "unknown")] += 1
            case RequestFinished(status=status, failure=failure):
                if status is not None and status < 300:
                    result.has_success = True
                else:
                    self._failures[event.operation, entity_id] = failure or str(status)
                self.report()
            case Waiting(reason=reason, until=until):
                end = f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
                words = {"outage": "service, which fails,", "retry": "next attempt"}
                self.wait(f"the {words.get(reason, reason)}{end}")

    def wait(self, reason: str) -> None:
        """Report what is waited for."""
        self.waiting = reason
        self.report()

    def end(self, report: EntityReport) -> None:
        """Count an entity that has ended."""
        entity_id = report.entity_id
        self.waiting = None
        self.counts[report.state] += 1
        # Earlier chunks may have spent requests on it too.
        requests = self.result.by_entity[entity_id]
        self.result.reports[entity_id] = evolve(report, requests=requests)
        self.report(report)

    def report(self, report: EntityReport | None = None) -> None:
        """Call the caller's function."""
        if self.callback is None:
            return
        progress = ExtractProgress(
            len(self.ids),
            self.files,
            **self.counts,
            requests=self.result.requests,
            seconds=self.seconds,
            waiting=self.waiting,
            ended=report,
        )
        token = _run.set(None)  # requests that the callback starts are not the run's
        try:
            self.callback(progress)
        except Exception:  # noqa: BLE001  a callback does not disturb the run
            _log.exception("the progress callback failed")
        finally:
            _run.reset(token)
