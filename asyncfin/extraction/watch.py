"""How a run is watched: what its requests cost, and what it is waiting for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Protocol

from attrs import define, field, frozen

from asyncfin.events import Event, RequestAnswered, RequestFailed, RequestStarted, Retrying, Waited
from asyncfin.extraction.report import EntityReport
from asyncfin.model.words import lasting

_log = logging.getLogger("asyncfin")
# The run that a task works for: events are announced in the task of their request.
_run: ContextVar[Watch | None] = ContextVar("asyncfin_extraction", default=None)


@frozen
class ExtractProgress:
    """How far a run has come.

    Attributes:
        entities: how many there are in all.
        done, unchanged, failed: how many have ended so.
        requests: how many were spent so far.
        rows, bytes: of the files written so far.
        seconds: since the run began.
        waiting: what an entity that waits is waiting for, for people: the one that waits since last;
            None while none does.
        ended: the entity that has just ended; None where something else has happened.
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


class OnProgress(Protocol):
    """Called on the loop after each request and each entity; it must not block. Its errors are logged."""

    def __call__(self, progress: ExtractProgress, /) -> None: ...


@define
class Watch:
    """Watches a client while a run uses it, and tells how far the run has come.

    Args:
        entities: how many there are to read.
        tell: who is told; None: nobody.
        time: the loop's clock.
    """

    entities: int
    tell: OnProgress | None
    time: Callable[[], float]
    waits: float = 0.0
    requests: int = 0
    _began: float = field(init=False)
    _spent: Counter[str] = field(factory=Counter)
    _states: Counter[str] = field(factory=Counter)
    _rows: int = 0
    _bytes: int = 0
    _waiting: dict[str, str] = field(factory=dict)  # by entity

    @_began.default
    def _now(self) -> float:
        return self.time()

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return self.time() - self._began

    def spent(self, entity_id: str) -> int:
        """Return how many requests an entity has cost in this run."""
        return self._spent[entity_id]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count what this task and the tasks that it makes send while the block lasts."""
        token = _run.set(self)
        try:
            yield
        finally:
            _run.reset(token)

    def __call__(self, event: Event) -> None:
        entity_id = event.entity_id
        if _run.get() is not self or entity_id is None:
            return
        match event:
            case RequestStarted():
                self._spent[entity_id] += 1
                self.requests += 1
                self._waiting.pop(entity_id, None)
            case Waited():
                self.waits += event.seconds
            case Retrying():
                self._waits(entity_id, f"{event.failure}, again in {lasting(event.wait)}")
            case RequestAnswered() | RequestFailed():
                self._say()

    def sleeps(self, entity_id: str, until: datetime) -> None:
        """Take in that nothing is sent until the allowance returns."""
        self._waits(entity_id, f"the allowance is used up until {until:%Y-%m-%d %H:%M} UTC")

    def _waits(self, entity_id: str, reason: str) -> None:
        self._waiting.pop(entity_id, None)
        self._waiting[entity_id] = reason
        self._say()

    def ends(self, report: EntityReport) -> EntityReport:
        """Take in that an entity has ended, or is left."""
        self._waiting.pop(report.entity_id, None)
        if report.state == "left":
            return report
        self._states[report.state] += 1
        if report.state == "done":
            self._rows += report.rows
            self._bytes += report.bytes
        self._say(report)
        return report

    def _say(self, ended: EntityReport | None = None) -> None:
        if self.tell is None:
            return
        progress = ExtractProgress(
            self.entities,
            self._states["done"],
            self._states["unchanged"],
            self._states["failed"],
            self.requests,
            self._rows,
            self._bytes,
            self.seconds,
            next(reversed(self._waiting.values()), None),
            ended,
        )
        token = _run.set(None)  # what the callback begins is not of the run
        try:
            self.tell(progress)
        except Exception:  # noqa: BLE001  whoever looks on does not disturb the run
            _log.exception("the progress callback failed")
        finally:
            _run.reset(token)
