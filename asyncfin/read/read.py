"""One whole read of an entity: its requests, the current publication, and what the read
has cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Context
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Self, TypeVar

from asyncfin.cache.entries import EntityRecord, later
from asyncfin.errors import (
    AsyncfinError,
    BucketUnavailableError,
    DatasetChangedError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServiceError,
    ValidationFailedError,
)
from asyncfin.events import (
    Event,
    QuestionFinished,
    QuestionStarted,
    Restarted,
    next_serial,
)
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.selection import FiscalRange
from asyncfin.plan.question import Question
from asyncfin.read.publications import (
    LastPublication,
    Publication,
    Publications,
    Standing,
)
from asyncfin.table.panel import Panel
from asyncfin.tasks import TIME_IS_UP, running_loop
from asyncfin.wire.pages import read_catalogue
from asyncfin.wire.protocol import Request, Response, dataset_request, read_dataset
from asyncfin.wire.sender import Start

T = TypeVar("T")

MAX_RESTARTS = 3
NEVER = datetime.min.replace(tzinfo=UTC)
# Seconds before the first restart, and the factor by which each further wait grows: the
# metadata may lag behind the requests that reject the old publication.
_FIRST_WAIT = 0.1
_GROWTH = 5

_EVERY_SERIES, _EVERY_PERIOD = Select(), FiscalRange()


class Read:
    """One whole read of an entity.

    Its work is about one publication. If that changes, `attempt` begins it again.

    Args:
        publications: what the client has of publications.
        question: what is read.
        operation: its name in events, such as ``"query"``.
        stores: whether the client stores the catalogue, and may return what it has
            without a request, or a stale result.
    """

    def __init__(
        self,
        publications: Publications,
        question: Question,
        operation: str,
        *,
        stores: bool = True,
    ) -> None:
        self.publications = publications
        self.question = question
        self.operation = operation
        self.entity_id = question.entity_id
        self.stores = stores
        self.cache = publications.cache
        self.fills_cache = self.cache is not None and stores and question.fill_cache
        self.max_age = self.stale_if_error = 0.0
        if stores:
            self.stale_if_error = publications.stale_if_error
            self.max_age = publications.max_age
            if question.max_age is not None:
                self.max_age = question.max_age
        # Whether it is about one publication, so that a change is an error at once.
        self.has_fixed_publication = isinstance(question.source, Catalogue)
        self.began = publications.clock()  # what was current then may be returned
        self.requests = 0  # attempts, each of which counts against the allowance
        self.restarts = 0
        self.cached = 0  # how many of the wanted series were cached
        # Whether the publication of the result could not be confirmed.
        self.is_stale = False
        # What has failed it, if it is one of several.
        self.error: AsyncfinError | None = None
        # What the metadata named instead, for the next attempt.
        self.successor: Dataset | None = None
        # Held by the batch that tries a range for exact periods.
        self.trial = asyncio.Lock()
        self.sends_ranges = False  # whether a range was accepted for them
        # When the publication was last seen to change. What was confirmed before shows
        # nothing.
        self._changed = NEVER
        # What its last request has confirmed.
        self.confirmed: EntityRecord | None = None
        # Of the result, for observers.
        self._series = 0
        self._periods: set[Period] = set()
        self._dataset_id: str | None = None

    @asynccontextmanager
    async def announce(self, context: Context | None = None) -> AsyncIterator[Self]:
        """Announce the read as a question, from its start to its end.

        `context` is that of the two events, or None for that of the block.
        """
        sender = self.publications.sender
        began = running_loop().time()

        def send_event(event: Event) -> None:
            if context is None:
                sender.announce(event)
            else:
                context.run(sender.announce, event)

        identity = (self.operation, self.entity_id, next_serial(), sender.lane)
        failure: str | None = None
        send_event(QuestionStarted(*identity))
        try:
            yield self
            if self.error is not None:
                failure = type(self.error).__name__
        except BaseException as error:
            failure = type(error).__name__
            if isinstance(error, asyncio.CancelledError) and TIME_IS_UP in error.args:
                failure = "TimeoutError"
            raise
        finally:
            series = periods = None
            if self._dataset_id is not None:
                series, periods = self._series, len(self._periods)
            event = QuestionFinished(
                *identity,
                series=series,
                periods=periods,
                requests=self.requests,
                cached=self.cached,
                stale=self.is_stale,
                restarts=self.restarts,
                dataset_id=self._dataset_id,
                failure=failure,
                seconds=running_loop().time() - began,
            )
            send_event(event)

    def add(self, panel: Panel) -> None:
        """Count the result, or a piece of it."""
        self._series += len(panel)
        self._periods.update(panel.periods)
        self._dataset_id = panel.catalogue.dataset_id

    async def attempt(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of some work, which begins again if the publication
        changes.
        """
        while True:
            try:
                return await work()
            except DatasetChangedError as error:
                change = error
            # Out here, so that what it raises has no context.
            await self.restart(change)

    async def restart(self, change: DatasetChangedError) -> None:
        """Wait for the next attempt after a change, or raise it if no attempt is
        left.
        """
        # After a part of the result no other publication will do.
        has_result = self._dataset_id is not None
        if self.has_fixed_publication or has_result or self.restarts == MAX_RESTARTS:
            raise change
        self.restarts += 1
        # Later than any record that was made before, apart from that of the successor.
        self._changed = self.publications.clock() + timedelta(microseconds=1)
        if self.successor is None:
            self.confirmed = None
        elif self.confirmed is not None:
            self._changed = self.confirmed.sent_at
        self.publications.sender.announce(
            Restarted(self.operation, self.entity_id, self.restarts)
        )
        growth = _GROWTH ** (self.restarts - 1)
        await asyncio.sleep(_FIRST_WAIT * growth)

    def _count(self) -> None:
        self.requests += 1

    async def send(self, request: Request, *, start: Start | None = None) -> Response:
        """Send a request, and record it if the service rejects the entity.

        `start` is that of `Sender.send`.
        """
        sender = self.publications.sender
        token = sender.tokens.held
        try:
            return await sender.send(
                request,
                on_attempt=self._count,
                start=start,
            )
        except (NotFoundError, PermissionDeniedError) as rejection:
            # Without an error object it is of something in front of the service, and
            # one of a cursor may be about a replaced publication.
            sent_at = rejection.sent_at
            if rejection.has_error_object and sent_at and not request.has_cursor:
                record = EntityRecord(sent_at, status=rejection.status)
                records = self.publications.records
                if rejection.status == 404:
                    await records.observe(self.entity_id, record)
                # A 403 is about the token that was sent (spec 5.4). It may have been
                # replaced since.
                elif token is not None and token is sender.tokens.held:
                    await records.observe(self.entity_id, record, token.digest)
            raise

    # Whether a publication is the current one.

    def record_confirmation(self, dataset_id: str, sent_at: datetime) -> None:
        """Record that a request sent at a moment has confirmed a publication."""
        if self.confirmed is None or sent_at >= self.confirmed.sent_at:
            self.confirmed = EntityRecord(sent_at, dataset_id)

    async def _store_confirmation(self) -> None:
        """Store what the read has confirmed in the entity's record, for all reads."""
        if self.confirmed is not None:
            records = self.publications.records
            await records.observe(self.entity_id, self.confirmed)

    async def _get_record(self) -> EntityRecord | None:
        """Return the entity's record, or None if none counts for this read."""
        publications = self.publications
        token = publications.sender.tokens.held
        digest = "" if token is None else token.digest
        record = await publications.records.record(self.entity_id, digest)
        if record is None:
            # New, or the cache was cleared.
            publications.stored.pop(self.entity_id)
        elif record.sent_at < self._changed:
            return None
        return record

    def _judge(self, record: EntityRecord | None, dataset_id: str = "") -> Standing:
        """Return how this read stands to a publication, by the entity's record and by
        what the read itself has confirmed: the later one counts.

        A rejection that is younger than `max_age` is raised.
        """
        now = self.publications.clock()
        latest = later(record, self.confirmed, now)
        age = inf
        if latest is not None:
            # How many seconds before this read its request was sent; clocks of machines
            # differ.
            age = (self.began - latest.sent_at).total_seconds()
            if latest.sent_at > now:  # by a clock that is ahead
                age = -age
            if latest.dataset_id is None:
                if self.max_age and age <= self.max_age:
                    raise self._make_rejection(latest)
                return Standing.UNCONFIRMED
        token = self.publications.sender.tokens.held
        if token is not None and token.rejection is not None:
            return Standing.UNCONFIRMED
        if self.has_fixed_publication:
            return Standing.CURRENT
        if latest is None or not is_same_publication(latest.dataset_id, dataset_id):
            return Standing.UNCONFIRMED
        own_id = None if self.confirmed is None else self.confirmed.dataset_id
        if is_same_publication(own_id, dataset_id) or age <= self.max_age:
            return Standing.CURRENT
        if age <= self.stale_if_error:
            return Standing.STALE
        return Standing.UNCONFIRMED

    def _make_rejection(self, record: EntityRecord) -> ServiceError:
        kind = PermissionDeniedError if record.status == 403 else NotFoundError
        return kind(
            status=record.status,
            message="the service has rejected the entity, and max_age is "
            f"{self.max_age:g} s",
            operation=self.operation,
            entity_id=self.entity_id,
            at=record.sent_at,
            attempts=0,
        )

    async def metadata(
        self, *, fresh: bool = False, start: Start | None = None
    ) -> Dataset:
        """Return the entity's current dataset (spec 4.1). One request.

        With `fresh`, and after a restart, no cache on the way may respond. `start` is
        that of `Sender.send`.
        """
        request = dataset_request(self.entity_id, fresh=fresh or self.restarts > 0)
        response = await self.send(request, start=start)
        dataset = read_dataset(request, response)
        self.record_confirmation(dataset.dataset_id, response.sent_at)
        await self._store_confirmation()
        return dataset

    async def _find_current(self, standing: Standing) -> Dataset | None:
        """Return the entity's current dataset, or None if it cannot be found out and a
        stale result may be returned.

        Where that is so, an interactive query waits for two seconds from the sending.
        """
        is_stale_usable = standing is Standing.STALE
        sender = self.publications.sender
        try:
            if is_stale_usable and sender.lane != "bulk":
                return await sender.soon(lambda start: self.metadata(start=start))
            return await self.metadata()
        except AsyncfinError as error:
            # A 401, 403 or 404 shows that it is not the current one.
            is_inconclusive = error.concerns == "service" or isinstance(
                error, (RateLimitedError, BucketUnavailableError)
            )
            if not is_stale_usable or not is_inconclusive:
                raise
            return None

    @asynccontextmanager
    async def detecting_change(self, dataset_id: str) -> AsyncIterator[None]:
        """Find out whether a request pinned to a publication was rejected because it
        was replaced.

        Rules 5 and 6 of spec 4.3 have no order: a service that checks ids or cursors
        before the pin rejects a stale request with 400. So one request for the metadata
        checks a 400, and raises DatasetChangedError.
        """
        try:
            yield
        except DatasetChangedError:
            publications = self.publications
            if publications.find(self.entity_id, dataset_id) is not None:
                publications.stored.pop(self.entity_id)
            raise
        except ValidationFailedError as rejection:
            await self.check_unchanged(rejection, dataset_id)
            raise

    async def check_unchanged(self, rejection: ServiceError, dataset_id: str) -> None:
        """Find out whether a 400 was about a replaced publication: then it is a
        DatasetChangedError. One request for the metadata.
        """
        current = await self.metadata(fresh=True)
        if not is_same_publication(current.dataset_id, dataset_id):
            self.successor = current
            raise _make_change(rejection, "the publication was replaced") from rejection

    # Which publication is the current one.

    async def last_publication(self) -> LastPublication | None:
        """Return the publication that was last seen as the current one, however long
        ago. No request.
        """
        record = await self._get_record()
        if record is None or record.dataset_id is None:
            return None
        publication = await self.load_publication(record.dataset_id)
        if publication is None:
            return None
        standing = self._judge(record, record.dataset_id)
        return LastPublication(publication, record.sent_at, standing)

    async def current_publication(self) -> Publication:
        """Return the current publication; its catalogue is read unless it is cached."""
        # Here, as reads of another `max_age` share what follows.
        if self.max_age:
            self._judge(await self._get_record())
        # It may share what was requested before this read, but not twice.
        for _ in range(2):
            if self.stores:
                pending = self.publications.pending_catalogues
                last = await pending.share(self.entity_id, self._read_publication)
            else:
                last = await self._read_publication()
            self.is_stale = last.standing is Standing.STALE
            if self.is_stale:
                break
            dataset_id = last.publication.catalogue.dataset_id
            record = EntityRecord(last.sent_at, dataset_id)
            if self._judge(record, dataset_id) is Standing.CURRENT:
                self.record_confirmation(dataset_id, last.sent_at)
                break
        return last.publication

    async def catalogue(self) -> Catalogue:
        """Return the catalogue of the publication that counts as the current one.

        If the read is pinned to a Catalogue, that one.
        """
        if isinstance(self.question.source, Catalogue):
            return self.question.source
        last = await self.last_publication()
        if last is not None and last.standing is Standing.CURRENT:
            return last.publication.catalogue
        publication = await self.current_publication()
        return publication.catalogue

    async def _read_publication(self) -> LastPublication:
        last = await self.last_publication()
        record = await self._get_record()
        is_rejected = record is not None and record.dataset_id is None
        if not (last or self.successor or self.restarts or is_rejected):
            async with self.claim():
                # Another process may have read it meanwhile.
                last = await self.last_publication()
                if last is None:
                    return await self._read_first()
        current = self.successor
        self.successor = None
        # Another client or process may have confirmed it meanwhile.
        if last is not None and last.standing is Standing.CURRENT:
            return last
        if current is None:
            standing = Standing.UNCONFIRMED if last is None else last.standing
            current = await self._find_current(standing)
        if current is None:
            assert last is not None  # and stale
            return last
        assert self.confirmed is not None  # by the metadata
        sent_at = self.confirmed.sent_at
        publication = await self.load_publication(current.dataset_id)
        if publication is None:
            async with self.claim(), self.detecting_change(current.dataset_id):
                # Another process may have read it meanwhile.
                publication = await self.load_publication(current.dataset_id)
                if publication is None:
                    catalogue = await read_catalogue(self.send, self.entity_id, current)
                    publication = await self._store_catalogue(catalogue)
        return LastPublication(publication, sent_at, Standing.CURRENT)

    async def _read_first(self) -> LastPublication:
        """Read the catalogue of an entity of which nothing is cached.

        Its first page is of the current publication. A cursor carries no pin: it may be
        rejected because the publication was replaced.
        """

        sent_times: list[datetime] = []

        async def send(request: Request) -> Response:
            try:
                response = await self.send(request)
            except (ValidationFailedError, NotFoundError) as rejection:
                if not request.has_cursor:
                    raise
                message = "a page of the catalogue was rejected"
                raise _make_change(rejection, message) from rejection
            sent_times.append(response.sent_at)
            return response

        catalogue = await read_catalogue(send, self.entity_id)
        self.record_confirmation(catalogue.dataset_id, sent_times[0])
        await self._store_confirmation()
        publication = await self._store_catalogue(catalogue)
        return LastPublication(publication, sent_times[0], Standing.CURRENT)

    def claim(self) -> AbstractAsyncContextManager[None]:
        """Make other processes and queries wait that are about to read the entity."""
        if self.cache is None or not self.stores:
            return nullcontext()
        return self.cache.claim(self.entity_id)

    async def _store_catalogue(self, catalogue: Catalogue) -> Publication:
        if self.cache is not None and self.fills_cache:
            await self.cache.put_catalogue(catalogue)
        return self.publications.of(catalogue, store=self.stores)

    async def load_publication(self, dataset_id: str) -> Publication | None:
        """Return a publication if its catalogue is in memory or cached."""
        publication = self.publications.find(self.entity_id, dataset_id)
        if publication is not None or self.cache is None:
            return publication
        catalogue = await self.cache.catalogue(self.entity_id, dataset_id)
        if catalogue is None:
            return None
        return self.publications.of(catalogue, store=self.stores)

    # Whether values of a publication may be returned.

    async def confirm(self, dataset_id: str, *, store: bool = True) -> datetime | None:
        """Make sure that values of a publication may be returned. At most one request,
        in most cases none.

        Returns when it was last confirmed as the current one, or None if never, which
        is possible only if the read is pinned. Raises DatasetChangedError if another
        one is current. `store` says whether to store the confirmations by this read.
        """
        # A rejection of another request may arrive during the first one.
        for _ in range(2):
            if store:
                await self._store_confirmation()
            record = await self._get_record()
            standing = self._judge(record, dataset_id)
            if standing is Standing.CURRENT:
                self.is_stale = False
                break
            if self.is_stale and standing is Standing.STALE:
                break  # this read has asked already
            current = await self._find_current(standing)
            if current is None:
                self.is_stale = True
                break
            is_replaced = not is_same_publication(current.dataset_id, dataset_id)
            if is_replaced and not self.has_fixed_publication:
                self.successor = current
                raise DatasetChangedError(
                    status=409,
                    code="dataset_changed",
                    message="the metadata name another publication",
                    answered=False,
                    operation=self.operation,
                    entity_id=self.entity_id,
                    at=self.publications.clock(),
                )
        confirmed_at: datetime | None = None
        for observation in (record, self.confirmed):
            if observation is not None and is_same_publication(
                observation.dataset_id, dataset_id
            ):
                confirmed_at = max(confirmed_at or NEVER, observation.sent_at)
        return confirmed_at


def _make_change(rejection: ServiceError, message: str) -> DatasetChangedError:
    """Return a rejection as the error of a changed publication."""
    facts = rejection.facts()
    facts["message"] = f"{message}; the service said: {rejection.message}"
    return DatasetChangedError(**facts)


def everything(entity_id: str, max_age: float | None = None) -> Question:
    """Return the question for all that an entity has."""
    return Question(entity_id, _EVERY_SERIES, _EVERY_PERIOD, max_age=max_age)
