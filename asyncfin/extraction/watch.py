"""How a run is watched: what its requests cost, and what it is waiting for."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from attrs import define, field, frozen

from asyncfin.extraction.report import EntityReport
from asyncfin.wire.events import Event, RequestAnswered, RequestStarted, Retrying, Waited

_log = logging.getLogger("asyncfin")


@frozen
class ExtractProgress:
    """How far a run has come.

    Attributes:
        entities: how many there are in all.
        done, unchanged, failed: how many have ended so.
        requests: how many were spent so far.
        rows, bytes: of the files written so far.
        seconds: since the run began.
        waiting: why nothing moves, for people; None while it does.
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
        entities: the ids of those to read; others may use the client too.
        tell: who is told; None: nobody.
        time: the loop's clock.
    """

    entities: frozenset[str]
    tell: OnProgress | None
    time: Callable[[], float]
    waits: float = 0.0
    _began: float = field(init=False)
    _spent: Counter[str] = field(factory=Counter)
    _states: Counter[str] = field(factory=Counter)
    _requests: int = 0
    _rows: int = 0
    _bytes: int = 0
    _waiting: str | None = None

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

    def __call__(self, event: Event) -> None:
        if event.entity_id not in self.entities:
            return
        match event:
            case RequestStarted():
                self._spent[event.entity_id] += 1
                self._requests += 1
            case Waited():
                self.waits += event.seconds
            case Retrying():
                self._waiting = f"{event.failure}, again in {event.wait:.0f} s"
                self._say()
            case RequestAnswered(status=200):
                self._waiting = None
                self._say()

    def sleeps(self, until: datetime) -> None:
        """Take in that nothing is sent until the allowance returns."""
        self._waiting = f"the allowance is used up until {until:%Y-%m-%d %H:%M} UTC"
        self._say()

    def ends(self, report: EntityReport) -> EntityReport:
        """Take in that an entity has ended."""
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
            len(self.entities),
            self._states["done"],
            self._states["unchanged"],
            self._states["failed"],
            self._requests,
            self._rows,
            self._bytes,
            self.seconds,
            self._waiting,
            ended,
        )
        try:
            self.tell(progress)
        except Exception:  # noqa: BLE001  whoever looks on does not disturb the run
            _log.exception("the progress callback failed")
