"""The progress of a run: what its requests cost, and what it is waiting for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Protocol

from attrs import define, evolve, field, frozen

from asyncfin.errors import AsyncfinError
from asyncfin.events import (
    Event,
    OutageBegan,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    Retrying,
    Waited,
    Waiting,
)
from asyncfin.extraction.report import EntityReport, ExtractReport
from asyncfin.model.judge import Missing
from asyncfin.model.words import lasting

_log = logging.getLogger("asyncfin")
# The run that a task works for: observers are called in the task of the request.
_run: ContextVar[Tracker | None] = ContextVar("asyncfin_extraction", default=None)


@frozen
class ExtractProgress:
    """How far a run has come.

    Attributes:
        entities: how many entities there are in all.
        done: how many have been written.
        unchanged: how many were found unchanged.
        failed: how many have failed.
        requests: how many requests were spent so far.
        rows: the rows written so far.
        bytes: the size of the files written so far.
        seconds: the time since the run began.
        waiting: what an entity is waiting for, for people: the one that began to wait last; None while
            none waits.
        ended: the entity that has just ended; None where something else has happened.
        unknown: the ids and words of the question that the first, the middle and the last entity do not
            have, by field, once they are read; only in a run whose place had no files of the question.
    """

    entities: int
    done: int
    unchanged: int
    failed: int
    requests: int
    rows: int
    bytes: int
    seconds: float
    waiting: str | None = None
    ended: EntityReport | None = None
    unknown: Missing = field(factory=dict)


class OnProgress(Protocol):
    """Called on the loop after each request and each entity. It must not block; its errors are logged."""

    def __call__(self, progress: ExtractProgress, /) -> None: ...


@define
class Tracker:
    """Counts a run's requests and entities as an observer of its client, and reports the progress."""

    entities: int
    callback: OnProgress | None
    time: Callable[[], float]
    waits: float = 0.0
    requests: int = 0
    unknown: Missing = field(factory=dict)
    states: Counter[str] = field(factory=Counter)
    reports: dict[str, EntityReport] = field(factory=dict)  # on the entities that have ended
    in_outage: set[str] = field(factory=set)  # the entities that wait for the end of an outage
    on_outage: Callable[[str], None] | None = None  # called when one begins to
    _began: float = field(init=False)
    _spent: Counter[str] = field(factory=Counter)
    _rows: int = 0
    _bytes: int = 0
    _waiting: dict[str, str] = field(factory=dict)  # by entity
    _failing: str = ""  # the last status or error that shows that the service fails
    _failing_since: datetime | None = None

    def __attrs_post_init__(self) -> None:
        self._began = self.time()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return self.time() - self._began

    def summary(
        self,
        reports: Iterable[EntityReport],
        stopped: AsyncfinError | None,
        unknown: Missing,
        near: str | None,
    ) -> ExtractReport:
        """Return the report on a run that ends now; `near` is its complaint."""
        return ExtractReport(tuple(reports), self.seconds, self.waits, stopped, unknown, near)

    def reports_on(self, ids: Iterable[str]) -> list[EntityReport]:
        """Return the report on each of some entities; one that has not ended is left."""
        return [
            self.reports.get(each) or EntityReport(each, "left", requests=self.spent(each)) for each in ids
        ]

    def spent(self, entity_id: str) -> int:
        """Return how many requests an entity has cost in this run."""
        return self._spent[entity_id]

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what this task and the tasks that it makes send while the block lasts."""
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)

    def __call__(self, event: Event) -> None:
        entity_id = event.entity_id
        match event:  # of the client, not of a request
            case RequestAnswered(status=status) if status >= 500:
                self._failing = str(status)
            case RequestFailed(failure=failure) if failure != "CancelledError":
                self._failing = failure
            case OutageBegan(since=since):
                self._failing_since = since
        # Other tasks may use the client too; what they send is not this run's.
        if _run.get() is not self or entity_id is None:
            return
        match event:
            case RequestStarted():
                self._spent[entity_id] += 1
                self.requests += 1
                self._waiting.pop(entity_id, None)
                self.in_outage.discard(entity_id)
            case Waited():
                self.waits += event.seconds
            case Retrying():
                self._wait(entity_id, f"{event.failure}, again in {lasting(event.wait)}")
            case Waiting(reason="outage"):
                self.in_outage.add(entity_id)
                self._wait(entity_id, self._outage_text(event))
                if self.on_outage is not None:
                    self.on_outage(entity_id)
            case Waiting() if entity_id not in self._waiting:
                until = f" until {event.until:%Y-%m-%d %H:%M:%S} UTC" if event.until else ""
                self._wait(entity_id, f"the {event.reason}{until}")
            case RequestAnswered() | RequestFailed():
                self._report()

    def add(self, report: EntityReport) -> None:
        """Count an entity that a worker has read; earlier chunks may have spent requests on it too."""
        self._spent[report.entity_id] += report.requests
        self.requests += report.requests
        self.ended(evolve(report, requests=self._spent[report.entity_id]))

    def sleeping(self, entity_id: str, until: datetime) -> None:
        """Report that an entity waits for the allowance to return."""
        self._wait(entity_id, f"the allowance is used up until {until:%Y-%m-%d %H:%M} UTC")

    def awake(self, entity_id: str) -> None:
        """Note that an entity waits no longer: its next request can be another process's."""
        self._waiting.pop(entity_id, None)

    def _outage_text(self, event: Waiting) -> str:
        since = f", which fails since {self._failing_since:%H:%M:%S} UTC" if self._failing_since else ""
        failing = f" ({self._failing})" if self._failing else ""
        until = f"; next attempt {event.until:%H:%M:%S} UTC" if event.until else ""
        return f"the service{since}{failing}{until}"

    def _wait(self, entity_id: str, reason: str) -> None:
        # Taken out first, so that it comes last: the wait that began last is the one shown.
        self._waiting.pop(entity_id, None)
        self._waiting[entity_id] = reason
        self._report()

    def ended(self, report: EntityReport) -> EntityReport:
        """Count an entity that has ended, and return its report; one that is left counts for nothing."""
        self._waiting.pop(report.entity_id, None)
        self.in_outage.discard(report.entity_id)
        if report.state == "left":
            return report
        self.states[report.state] += 1
        self.reports[report.entity_id] = report
        if report.state == "done":
            self._rows += report.rows
            self._bytes += report.bytes
        self._report(report)
        return report

    def _report(self, ended: EntityReport | None = None) -> None:
        if self.callback is None:
            return
        progress = ExtractProgress(
            self.entities,
            **{state: self.states[state] for state in ("done", "unchanged", "failed")},
            requests=self.requests,
            rows=self._rows,
            bytes=self._bytes,
            seconds=self.seconds,
            waiting=next(reversed(self._waiting.values()), None),
            ended=ended,
            unknown=self.unknown,
        )
        token = _run.set(None)  # requests that the callback starts are not the run's
        try:
            self.callback(progress)
        except Exception:  # noqa: BLE001  a callback does not disturb the run
            _log.exception("the progress callback failed")
        finally:
            _run.reset(token)
