"""The progress of a run: what its requests cost, and what it is waiting for."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from attrs import define, evolve, field, frozen

from asyncfin.events import Event, RequestFinished, RequestStarted, Waiting
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
        waiting: what an entity is waiting for, for people: the one that began to wait
            last; None while none waits.
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
class Spending:
    """The requests of a run, or of a worker's chunk.

    Attributes:
        requests: how many were sent.
        by_entity: how many, by entity.
        repeats: how many were sent again, by the reason.
        has_success: whether the service has answered one.
    """

    requests: int = 0
    by_entity: Counter[str] = field(factory=Counter)
    repeats: Counter[str] = field(factory=Counter)
    has_success: bool = False

    def add(self, spending: Spending) -> None:
        """Add what a worker has sent."""
        self.requests += spending.requests
        self.by_entity.update(spending.by_entity)
        self.repeats.update(spending.repeats)
        self.has_success |= spending.has_success


@define
class Tracker:
    """Counts a run's requests and entities as an observer of its client, and reports
    the progress.

    Attributes:
        files: how many of the entities had a file at the beginning.
        reports: on the entities that have ended.
    """

    ids: Sequence[str]
    callback: OnProgress | None = None
    files: int = 0
    spending: Spending = field(factory=Spending)
    reports: dict[str, EntityReport] = field(factory=dict)
    counts: Counter[str] = field(factory=lambda: Counter(done=0, unchanged=0, failed=0))
    _began: float = field(factory=lambda: asyncio.get_running_loop().time())
    _waiting: dict[str, str] = field(factory=dict)  # by entity
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
            self.reports.get(entity_id)
            or EntityReport(entity_id, "left", requests=self.count_requests(entity_id))
            for entity_id in self.ids
        )

    def count_requests(self, entity_id: str) -> int:
        """Return how many requests an entity has cost in this run."""
        return self.spending.by_entity[entity_id]

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
        spending = self.spending
        match event:
            case RequestStarted(attempt=attempt):
                spending.requests += 1
                spending.by_entity[entity_id] += 1
                self.stop_waiting(entity_id)
                if attempt > 1:
                    key = event.operation, entity_id
                    spending.repeats[self._failures.get(key, "unknown")] += 1
            case RequestFinished(status=status, failure=failure):
                if status is not None and status < 300:
                    spending.has_success = True
                else:
                    self._failures[event.operation, entity_id] = failure or str(status)
                self.report()
            case Waiting(reason=reason, until=until):
                end = f" until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
                words = {"outage": "service, which fails,", "retry": "next attempt"}
                self.wait(entity_id, f"the {words.get(reason, reason)}{end}")

    def wait(self, entity_id: str, reason: str) -> None:
        """Report what an entity waits for."""
        # Taken out first, so that it comes last: the wait that began last is the one
        # shown.
        self.stop_waiting(entity_id)
        self._waiting[entity_id] = reason
        self.report()

    def stop_waiting(self, entity_id: str) -> None:
        """Note that an entity waits no longer: its next request can be another
        process's.
        """
        self._waiting.pop(entity_id, None)

    def end(self, report: EntityReport) -> None:
        """Count an entity that has ended."""
        entity_id = report.entity_id
        self.stop_waiting(entity_id)
        self.counts[report.state] += 1
        # Earlier chunks may have spent requests on it too.
        requests = self.count_requests(entity_id)
        self.reports[entity_id] = evolve(report, requests=requests)
        self.report(report)

    def report(self, report: EntityReport | None = None) -> None:
        """Call the caller's function."""
        if self.callback is None:
            return
        progress = ExtractProgress(
            len(self.ids),
            self.files,
            **self.counts,
            requests=self.spending.requests,
            seconds=self.seconds,
            waiting=next(reversed(self._waiting.values()), None),
            ended=report,
        )
        token = _run.set(None)  # requests that the callback starts are not the run's
        try:
            self.callback(progress)
        except Exception:  # noqa: BLE001  a callback does not disturb the run
            _log.exception("the progress callback failed")
        finally:
            _run.reset(token)
