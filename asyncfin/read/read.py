"""One whole read: everything it sends is pinned to one publication, and it starts over on a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime
from functools import partial

from attrs import define

from asyncfin.cache.store import Pointer
from asyncfin.errors import (
    BucketUnavailableError,
    DatasetChangedError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    SelectionError,
    ServerFailureError,
    TransportError,
    ValidationFailedError,
)
from asyncfin.events import Restarted
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.plan.fill import for_cache
from asyncfin.plan.plan import Plan, plan, without_batches
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publication, Publications
from asyncfin.table.block import Block
from asyncfin.wire.pages import read_catalogue
from asyncfin.wire.protocol import Request, Response, dataset_request, read_dataset
from asyncfin.wire.sender import Sender

Turn = Callable[[], AbstractAsyncContextManager[None]]

MAX_RESTARTS = 3
# Seconds before the first restart, and how many times longer the wait before each further one is: what
# names the current publication may lag behind what refuses the old one.
_FIRST_WAIT = 0.1
_LONGER = 5
# Planning for more series takes so long that the loop should not stop for it.
_PLANNED_INLINE = 1000
# What leaves open which publication is the current one. A 401, 403 or 404 does not: it is an answer.
_UNTOLD = (RateLimitedError, ServerFailureError, TransportError, BucketUnavailableError)


@define
class ReadStats:
    """What a whole read has cost so far.

    Attributes:
        requests: attempts, each of which counts against the allowance.
        restarts: how often it has started over.
        answered_at: when the last page came, aware UTC.
    """

    requests: int = 0
    restarts: int = 0
    answered_at: datetime | None = None

    def count(self) -> None:
        """Count an attempt."""
        self.requests += 1


class Read:
    """A whole read of one entity. Its requests are those of one publication, or it starts over:

        while True:
            async with read.restarting():
                dataset = await client.dataset(entity_id)
                async with read.pinned_to(dataset.dataset_id):
                    return ...

    Args:
        operation: what events call it, e.g. ``"query"``.
        limit: how many of its pages may be under way, or wait to be taken.
        turn: gives a context manager for each request, which may wait until the request may be sent.

    Attributes:
        cache: the client's part of its cache; None: it has none.
        max_age: for how many seconds a publication counts as the current one after it was confirmed.
        pinned: whether only the first publication will do, so that a change is an error at once.
        final: set by those who have given away a part of the answer: from then on a change is an error.
        fills_cache: whether the cache keeps what it reads.
        stats: what it has cost.
    """

    def __init__(
        self,
        sender: Sender,
        publications: Publications,
        entity_id: str,
        operation: str,
        *,
        limit: int,
        turn: Turn = nullcontext,
    ) -> None:
        self._sender = sender
        self.tolerance = sender.tolerance
        self._turn = turn
        self.publications = publications
        self.cache = publications.cache
        self.entity_id = entity_id
        self.operation = operation
        self.limit = limit
        self.max_age = publications.max_age
        self.pinned = False
        self.final = False
        self.fills_cache = publications.cache is not None
        self.stats = ReadStats()
        # Of the whole read: what was current when the question was asked stays so until it is answered.
        self._asked = publications.clock()
        self._successor: Dataset | None = None

    async def send(self, request: Request) -> Response:
        """Send a request as a part of this read; if the service refuses the entity, delete its pointer."""
        try:
            async with self._turn():
                return await self._sender.send(request, on_attempt=self.stats.count)
        except (NotFoundError, PermissionDeniedError) as refusal:
            # Without an error object it is not the service's refusal, but that of something in front of it.
            if refusal.has_error_object:
                await self.publications.forget(self.entity_id)
            raise

    @asynccontextmanager
    async def restarting(self) -> AsyncIterator[None]:
        """Suppress DatasetChangedError, after a wait, so that the enclosing loop can start over.

        Raises:
            DatasetChangedError: the publication has changed too often, or no other one will do.
        """
        try:
            yield
            return
        except DatasetChangedError:
            if self.pinned or self.final or self.stats.restarts == MAX_RESTARTS:
                raise
        self.stats.restarts += 1
        self._sender.announce(Restarted(self.operation, self.entity_id, self.stats.restarts))
        await asyncio.sleep(_FIRST_WAIT * _LONGER ** (self.stats.restarts - 1))

    @asynccontextmanager
    async def pinned_to(self, dataset_id: str) -> AsyncIterator[None]:
        """Find out whether a request pinned to a publication was refused because it has been replaced.

        Rules 5 and 6 of spec 4.3 have no order: a service that checks ids or cursors before the pin answers
        a stale request with 400. So a 400 is confirmed with one request for the metadata. After either
        refusal what is kept of the publication is dropped.

        Raises:
            DatasetChangedError: the publication is no longer the current one.
        """
        try:
            yield
        except DatasetChangedError:
            await self.publications.forget(self.entity_id, dataset_id)
            raise
        except ValidationFailedError as refusal:
            if self.pinned:
                raise  # another publication would not do, so nothing is gained by finding out
            # Forgotten whatever the metadata say: what it names was refused.
            await self.publications.forget(self.entity_id, dataset_id)
            current = await self.metadata()
            if is_same_publication(current.dataset_id, dataset_id):
                raise
            self._successor = current
            raise DatasetChangedError(
                status=refusal.status,
                code=refusal.code,
                message=f"the publication has been replaced; the service said: {refusal.message}",
                details=refusal.details,
                request_id=refusal.request_id,
                operation=refusal.operation,
                entity_id=refusal.entity_id,
                at=refusal.at,
                attempts=refusal.attempts,
            ) from refusal

    async def metadata(self) -> Dataset:
        """Return the entity's current dataset (spec 4.1). One request."""
        began = self.publications.clock()  # before sending: the answer is true of that moment at the latest
        request = dataset_request(self.entity_id)
        dataset = read_dataset(request, await self.send(request))
        self.publications.confirm(dataset, began)
        if self.cache is not None:
            await self.cache.put_pointer(self.entity_id, Pointer(dataset.dataset_id, began))
        return dataset

    async def current(self) -> Publication:
        """Return the current publication; its catalogue is read unless it is kept.

        One request for the metadata, and one for each hundred series of a new publication. Reads that ask at
        the same time share the requests of the first.
        """
        return await self.publications.reads.share(self.entity_id, self._read_current)

    async def _read_current(self) -> Publication:
        if self.cache is None:
            return await self._read_publication()
        async with self.cache.claim(self.entity_id):
            # Another process may have done so since the question was asked.
            known = await self._known(0.0)
            if known is not None and self._is_current(known, 0.0):
                return known
            return await self._read_publication()

    async def _read_publication(self) -> Publication:
        began = self.publications.clock()
        # What has just shown that a publication was replaced need not be asked for again.
        successor, self._successor = self._successor, None
        try:
            dataset = successor or await self.metadata()
        except _UNTOLD:
            known = self.publications.kept.get(self.entity_id)
            if known is not None and self._is_current(known, self.publications.stale_if_error):
                return known
            raise
        kept = self.publications.kept.get(self.entity_id)
        if kept is not None and is_same_publication(kept.catalogue.dataset_id, dataset.dataset_id):
            return kept
        if self.cache is not None:
            cached = await self.cache.catalogue(self.entity_id, dataset.dataset_id)
            if cached is not None:
                return self.publications.keep(cached, began)
        async with self.pinned_to(dataset.dataset_id):
            catalogue = await read_catalogue(self.send, dataset)
        if self.cache is not None and self.fills_cache:
            await self.cache.put_catalogue(catalogue)
        return self.publications.keep(catalogue, began)

    async def _known(self, max_age: float) -> Publication | None:
        """Return the publication that memory or the cache holds, which may have been replaced. No request."""
        kept = self.publications.kept.get(self.entity_id)
        if self.cache is None or (kept is not None and self._is_current(kept, max_age)):
            return kept
        pointer = await self.cache.pointer(self.entity_id)
        if pointer is None or (
            kept is not None and kept.confirmed is not None and kept.confirmed > pointer.confirmed
        ):
            return kept
        if kept is not None and is_same_publication(kept.catalogue.dataset_id, pointer.dataset_id):
            kept.confirm(pointer.confirmed)
            return kept
        catalogue = await self.cache.catalogue(self.entity_id, pointer.dataset_id)
        return None if catalogue is None else self.publications.keep(catalogue, pointer.confirmed)

    def _is_current(self, publication: Publication, max_age: float) -> bool:
        # Those who have lost access must not go on reading what is kept.
        if self._sender.tokens.refused:
            return False
        return publication.is_current(self._asked, max_age, self.publications.clock())

    async def catalogue(self) -> Catalogue:
        """Return the catalogue of the publication that counts as the current one."""
        known = await self._known(self.max_age) if self.max_age else None
        if known is None or not self._is_current(known, self.max_age):
            known = await self.current()
        return known.catalogue

    async def plan(self, question: Question, *, batches: bool = True) -> Plan:
        """Return the plan for a question, made with a kept catalogue where there is one.

        A kept catalogue may be stale. What is then asked is refused, but a question that it refuses, or
        answers with nothing, is never sent: so before that, one request for the metadata confirms it.

        Args:
            batches: whether to plan, with a cache, what asks for the rest. False: `plan_missing` will do so.
        """
        if isinstance(question.source, Catalogue):
            return await self._planned(self.publications.of(question.source), question, batches)
        if (known := await self._known(self.max_age)) is not None:
            is_current = self._is_current(known, self.max_age)
            try:
                found = await self._planned(known, question, batches or not is_current)
                if is_current or found.batches or found.cached:
                    return found
            except SelectionError:
                if is_current:
                    raise
        return await self._planned(await self.current(), question, batches)

    async def _planned(self, publication: Publication, question: Question, batches: bool) -> Plan:
        # A predicate may depend on anything, so a Select with one may mean other series the next time.
        key = (question.key, question.known_only) if question.select.where is None else None
        found = None if key is None else publication.plans.get(key)
        if found is None:
            found = without_batches(question, publication.catalogue)
            # With a cache, what is requested depends on what is cached, which changes: only the rest is kept.
            if self.cache is None and found.series:
                make = partial(plan, question, publication.catalogue, found.series)
                found = make() if len(found.series) <= _PLANNED_INLINE else await asyncio.to_thread(make)
            if key is not None:
                publication.plans.put(key, found)
        if self.cache is None or not batches:
            return found
        return await self.plan_missing(found, await self.blocks(found))

    async def plan_missing(self, found: Plan, blocks: tuple[Block, ...]) -> Plan:
        """Return a plan that asks for what the cached blocks lack, and for no more."""
        at_hand: set[str] = set().union(*(block.series_ids for block in blocks))
        left_out = self.publications.of(found.catalogue).listing(found.question.value_version).unlisted
        missing = {series.series_id for series in found.series} - at_hand - left_out
        make = partial(for_cache, found, at_hand, left_out, fill=self.fills_cache)
        # Filling a single batch up looks at the whole catalogue.
        looked_at = len(found.catalogue) if missing and self.fills_cache else len(missing)
        return make() if looked_at <= _PLANNED_INLINE else await asyncio.to_thread(make)

    async def publication(self, catalogue: Catalogue) -> Publication:
        """Return what is known of the publication of a catalogue."""
        publication = self.publications.of(catalogue)
        if publication.confirmed is None and self.cache is not None:
            pointer = await self.cache.pointer(self.entity_id)
            if pointer is not None and is_same_publication(pointer.dataset_id, catalogue.dataset_id):
                publication.confirm(pointer.confirmed)
        return publication

    async def blocks(self, plan: Plan) -> tuple[Block, ...]:
        """Return what the cache holds of a plan's publication, in the version asked for."""
        if self.cache is None:
            return ()
        dataset_id, version = plan.catalogue.dataset_id, plan.question.value_version
        wanted = (series.series_id for series in plan.series)
        return await self.cache.blocks(self.entity_id, dataset_id, version, wanted)

    async def confirm(self, publication: Publication) -> None:
        """Make sure that an answer from the cache is of the current publication. At most one request.

        Raises:
            DatasetChangedError: another one is current.
        """
        if self.pinned or self._is_current(publication, self.max_age):
            return
        try:
            current = await self.metadata()
        except _UNTOLD:
            # Stale values are better than none, if the client was told so.
            if self._is_current(publication, self.publications.stale_if_error):
                return
            raise
        if is_same_publication(current.dataset_id, publication.catalogue.dataset_id):
            return
        self._successor = current
        raise DatasetChangedError(
            status=409,
            code="dataset_changed",
            message="the metadata name another publication",
            answered=False,
            operation=self.operation,
            entity_id=self.entity_id,
            at=self.publications.clock(),
        )

    async def store_confirmation(self, publication: Publication) -> None:
        """Store in the cache when a publication was last confirmed."""
        if self.fills_cache and self.cache and publication.confirmed is not None and not self.pinned:
            pointer = Pointer(publication.catalogue.dataset_id, publication.confirmed)
            await self.cache.put_pointer(self.entity_id, pointer)
