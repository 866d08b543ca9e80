"""One whole read of an entity: what it is about, what it has cost, and its requests."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import nullcontext
from datetime import datetime
from functools import partial

from attrs import define, field, frozen

from asyncfin.cache.record import EntityRecord
from asyncfin.errors import NotFoundError, PermissionDeniedError
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publications
from asyncfin.read.span import QuestionSpan, current_span
from asyncfin.read.turn import Turn, taken
from asyncfin.wire.protocol import Request, Response, dataset_request, read_dataset
from asyncfin.wire.sender import Patience, Sender


@define
class ReadStats:
    """What a whole read has cost so far."""

    requests: int = 0  # attempts, each of which counts against the allowance
    restarts: int = 0  # how often it has started over
    cached: int = 0  # how many of the wanted series were cached
    stale: bool = False  # whether the result is of a publication that could not be confirmed
    received_at: datetime | None = None  # when the last page was received, aware UTC
    # The question that the read is a part of, which counts too; None: there is none.
    span: QuestionSpan | None = field(factory=current_span.get)

    def count(self) -> None:
        """Count an attempt."""
        self.requests += 1
        if self.span is not None:
            self.span.requests += 1

    def restart(self) -> None:
        """Count a restart."""
        self.restarts += 1
        if self.span is not None:
            self.span.restart()


@frozen
class Metadata:
    """The metadata of an entity, and when they were requested."""

    dataset: Dataset
    sent: datetime  # aware UTC; before the request was sent


class Read:
    """A whole read of one entity. It does not change; what changes is in its `Attempts`."""

    def __init__(
        self,
        sender: Sender,
        publications: Publications,
        question: Question,
        operation: str,
        *,
        limit: int,
        turn: Turn = nullcontext,
        max_outage: float | None = None,
    ) -> None:
        self._sender = sender
        self._turn = turn
        self.announce = sender.announce
        self.has_turn = turn is not nullcontext  # whether its requests wait for turns, which may end it
        self.publications = publications
        self.question = question
        self.operation = operation  # its name in events, e.g. ``"query"``
        self.limit = limit  # how many of its pages may be in flight or waiting for the consumer
        self.entity_id = question.entity_id
        self.cache = publications.cache
        self.records = publications.records
        # For how many seconds a publication counts as the current one after it was confirmed.
        self.max_age = publications.max_age if question.max_age is None else question.max_age
        # Whether it is about one publication, so that a change is an error at once.
        self.pinned = isinstance(question.source, Catalogue)
        # Whether the cache keeps what it reads.
        self.fills_cache = self.cache is not None and question.fill_cache
        self.began = publications.clock()  # what was current then may be returned
        self.stats = ReadStats()
        self._send = partial(sender.send, on_attempt=self.stats.count, max_outage=max_outage)
        # Whether it waits for the end of an outage.
        self._waits = sender.lane == "bulk" or max_outage is not None
        # An extraction never takes a stale result: what it writes stays.
        is_extraction = operation in ("extract", "read_entity")
        self.stale_if_error = 0.0 if is_extraction else publications.stale_if_error

    @property
    def is_unauthorized(self) -> bool:
        """Whether the service has refused the client's token and has accepted none since."""
        return self._sender.tokens.refused

    def age(self, sent: datetime) -> float:
        """Return how many seconds before this read a request was sent; clocks of machines differ."""
        if sent > self.publications.clock():  # by a clock that is ahead
            return (sent - self.began).total_seconds()
        return (self.began - sent).total_seconds()

    async def observe(self, dataset_id: str, sent: datetime) -> None:
        """Record that a request sent at a moment has confirmed a publication as the current one."""
        await self.records.observe(self.entity_id, EntityRecord(sent, dataset_id))

    async def send(self, request: Request, *, patience: Patience | None = None) -> Response:
        """Send a request as a part of this read, and record it if the service rejects the entity.

        `patience` is that of `Sender.send`.
        """
        sent = self.publications.clock()
        try:
            if not self.has_turn:
                return await self._send(request, patience=patience)
            async with taken(self._turn) as may_retry:
                return await self._send(request, may_retry=may_retry, patience=patience)
        except (NotFoundError, PermissionDeniedError) as rejection:
            # Without an error object it is not the service's rejection, but that of something in front of it.
            if rejection.has_error_object:
                token = self._sender.tokens.digest if rejection.status == 403 else ""
                record = EntityRecord(sent, status=rejection.status, token=token)
                await self.records.observe(self.entity_id, record)
            raise

    def metadata(self, *, fresh: bool = False, soon: bool = False) -> Awaitable[Metadata]:
        """Return the entity's current dataset (spec 4.1). One request.

        With `fresh` no cache may answer. With `soon` an interactive question waits for two seconds from
        its sending.
        """
        if soon and not self._waits:
            return self._sender.soon(partial(self._metadata, fresh))
        return self._metadata(fresh)

    async def _metadata(self, fresh: bool, patience: Patience | None = None) -> Metadata:
        sent = self.publications.clock()
        request = dataset_request(self.entity_id, fresh=fresh)
        dataset = read_dataset(request, await self.send(request, patience=patience))
        await self.observe(dataset.dataset_id, sent)
        return Metadata(dataset, sent)

    async def check_rejection(self) -> None:
        """Raise the rejection that the record contains, if it is younger than `max_age`.

        A 403 counts for the same token only: it may be the token's permission (spec 5.4).
        """
        record = await self.records.record(self.entity_id) if self.max_age else None
        if record is None or not record.is_rejection or self.age(record.sent) > self.max_age:
            return
        if record.status == 403 and record.token != self._sender.tokens.digest:
            return
        kind = PermissionDeniedError if record.status == 403 else NotFoundError
        raise kind(
            status=record.status,
            message=f"the service has rejected the entity, and max_age is {self.max_age:g} s",
            operation=self.operation,
            entity_id=self.entity_id,
            at=record.sent,
            attempts=0,
        )
