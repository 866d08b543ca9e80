"""What observers see of a question: that it has begun, what it has cost, and how it has ended."""

from __future__ import annotations

from contextvars import Context, ContextVar
from types import TracebackType
from typing import Self

from attrs import define, field

from asyncfin.events import QuestionFinished, QuestionStarted, next_serial
from asyncfin.model.period import Period
from asyncfin.table.panel import Panel
from asyncfin.tasks import running_loop
from asyncfin.wire.observers import Announcer

# The question that the reads of this context are a part of.
current_span: ContextVar[QuestionSpan | None] = ContextVar("asyncfin_question", default=None)


@define(eq=False)
class QuestionSpan:
    """A question from its start to its end, as an async context manager; it announces both."""

    _announce: Announcer
    _operation: str
    _entity_id: str
    _lane: str
    _context: Context | None = None  # of the question's events and reads; None: that of the block
    requests: int = 0  # the attempts of all of its reads
    restarts: int = 0  # how often it has started over
    cached: int = 0  # how many of the result's series were cached
    stale: bool = False  # whether the result is of a publication that could not be confirmed
    series: int = 0  # how many series its result contains
    periods: set[Period] = field(factory=set)
    dataset_id: str | None = None  # the publication of its result; None: not known yet
    _serial: int = field(init=False, factory=next_serial)
    _began_at: float = field(init=False, factory=lambda: running_loop().time())
    _outer: QuestionSpan | None = field(init=False, default=None)

    async def __aenter__(self) -> Self:
        self._begin() if self._context is None else self._context.run(self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(kind) if self._context is None else self._context.run(self._end, kind)
        if kind is None or issubclass(kind, Exception):
            await self._announce.after_question()

    def add(self, panel: Panel, *, cached: int = 0) -> None:
        """Count the result, or a piece of it."""
        self.series += len(panel)
        self.periods.update(panel.periods)
        self.cached += cached
        self.dataset_id = panel.dataset.dataset_id

    def restart(self) -> None:
        """Count a restart, which drops the result."""
        self.restarts += 1
        self.series = self.cached = 0
        self.periods.clear()
        self.dataset_id = None

    def _begin(self) -> None:
        self._outer = current_span.get()
        current_span.set(self)
        self._announce(QuestionStarted(self._operation, self._entity_id, self._serial, self._lane))

    def _end(self, kind: type[BaseException] | None) -> None:
        current_span.set(self._outer)
        has_result = self.dataset_id is not None
        self._announce(
            QuestionFinished(
                self._operation,
                self._entity_id,
                self._serial,
                self._lane,
                series=self.series if has_result else None,
                periods=len(self.periods) if has_result else None,
                requests=self.requests,
                cached=self.cached,
                stale=self.stale,
                restarts=self.restarts,
                dataset_id=self.dataset_id,
                failure=None if kind is None else kind.__name__,
                seconds=running_loop().time() - self._began_at,
            )
        )
