"""What a client and the rooms above it read with: whole reads, shared answers, and what is cached."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import Context

from attrs import evolve, frozen

from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.select import Select
from asyncfin.model.selection import FiscalRange
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.attempts import Attempt, Attempts
from asyncfin.read.publications import Publications
from asyncfin.read.read import Read
from asyncfin.read.run import answer, cached_answer, kept_answer
from asyncfin.read.span import QuestionSpan
from asyncfin.read.turn import Turn, is_ended_by_turn
from asyncfin.table.panel import Panel
from asyncfin.wire.pages import read_catalogue
from asyncfin.wire.protocol import Request, Response
from asyncfin.wire.sender import Sender

_EVERY_SERIES, _EVERY_PERIOD = Select(), FiscalRange()


@frozen(eq=False)
class Reads:
    """The reads of a client.

    A `turn` returns a context manager for each request, which may wait until the request may be sent, or
    raise an error. It yields None, or a function that is called before each retry and returns whether that
    may be sent.
    """

    sender: Sender
    publications: Publications
    limit: int  # how many requests may be in flight at once
    max_outage: float | None = None  # as for `Sender.send`

    @property
    def waits(self) -> bool:
        """Whether its requests may wait long, as `ends_all` says."""
        return self.sender.lane == "bulk"

    def read(self, question: Question, operation: str, turn: Turn = nullcontext) -> Read:
        """Return a whole read of a question; `operation` is its name in events."""
        return Read(
            self.sender,
            self.publications,
            question,
            operation,
            limit=self.limit,
            turn=turn,
            max_outage=self.max_outage,
        )

    def attempts(
        self, entity_id: str, operation: str, turn: Turn = nullcontext, *, max_age: float | None = None
    ) -> Attempts:
        """Return the attempts of a whole read of an entity, to make several calls on one publication.

        It starts over when the publication changes, as `Client.query` does:

            async for attempt in reads.attempts(entity_id, "overview"):
                async with attempt:
                    catalogue = await attempt.catalogue()
                    async with attempt.pinned_to(catalogue.dataset_id):
                        panel = await client.query(catalogue, select, periods)
        """
        return Attempts(self.read(everything(entity_id, max_age), operation, turn))

    def span(self, operation: str, entity_id: str, context: Context | None = None) -> QuestionSpan:
        """Return an async context manager for a question of several calls; observers see one question."""
        return QuestionSpan(self.sender.announce, operation, entity_id, self.sender.lane, context)

    async def send(self, request: Request, on_attempt: Callable[[], None]) -> Response:
        """Return the response to one request as received: paced and retried, without the cache.

        `on_attempt` is called before each attempt.
        """
        return await self.sender.send(request, on_attempt=on_attempt)

    async def answered(
        self,
        question: Question,
        plan: Plan | None = None,
        *,
        turn: Turn = nullcontext,
        span: QuestionSpan | None = None,
    ) -> Panel:
        """Return the answer to a question, shared with equal questions that are pending.

        Errors are those of `Client.query`. `plan` is that of the first attempt, and `span` the question that
        this one is a part of; without it, it is a question by itself.
        """
        if span is None:
            async with self.span("query", question.entity_id) as span:
                return await self.answered(question, plan, turn=turn, span=span)
        read = self.read(question, "query", turn)
        if (kept := await kept_answer(read, plan)) is not None:
            span.add(kept, cached=read.stats.cached)
            return kept
        leads = False

        async def lead() -> tuple[Panel, bool]:
            nonlocal leads
            leads = True
            return await answer(read, plan), read.stats.stale

        def is_private(error: Exception) -> bool:
            # An equal question has a separate turn, and may refuse what the catalogue does not have.
            return is_ended_by_turn(error) or (question.known_only and isinstance(error, SelectionError))

        panel, stale = await self.publications.panels.share(question.key, lead, is_private=is_private)
        if not leads and not question.known_only:
            question.wanted(panel.catalogue)  # raises the SelectionError that a separate read would raise
        span.add(panel, cached=read.stats.cached)
        span.stale = span.stale or stale
        # The requests count for the one whose question it was that sent them.
        return panel if panel.requests == read.stats.requests else evolve(panel, requests=read.stats.requests)

    async def catalogue_of(self, dataset: Dataset) -> Catalogue:
        """Return the catalogue of a publication, which is not kept; DatasetChangedError: it was replaced."""
        # The caller has the metadata, of this publication and no other: so a change is an error, not a
        # restart.
        if (known := await self.publications.catalogue_of(dataset)) is not None:
            pinned = Question(known, _EVERY_SERIES, _EVERY_PERIOD)
            await Attempt(self.read(pinned, "catalogue")).confirm(known)
            return known
        read = self.read(everything(dataset.entity_id), "catalogue")
        return await read_catalogue(read.send, dataset.entity_id, dataset)

    async def cached_catalogue(self, entity_id: str, *, max_age: float | None = None) -> Catalogue | None:
        """Return the catalogue if it is kept or cached, and younger than `max_age`. No request.

        `max_age` None: the client's.
        """
        known = await Attempt(self.read(everything(entity_id, max_age), "catalogue")).known()
        return None if known is None else known.catalogue

    async def cached_panel(self, question: Question) -> Panel | None:
        """Return the answer to a question if all of it is cached, and younger than `max_age`. No request.

        Raises:
            SelectionError: as for `Client.query`.
        """
        return await cached_answer(self.read(question, "query"))


def everything(entity_id: str, max_age: float | None = None) -> Question:
    """Return the question for all that an entity has."""
    return Question(entity_id, _EVERY_SERIES, _EVERY_PERIOD, max_age=max_age)


async def planned(read: Read) -> Plan:
    """Return the plan of a read's question."""
    async for attempt in Attempts(read):
        async with attempt:
            plan = await attempt.plan(read.question)
    return plan
