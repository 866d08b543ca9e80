"""The attempts of a whole read: each is about one publication, and a change starts the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self
from weakref import WeakSet

from attrs import evolve

from asyncfin.cache.record import EntityRecord
from asyncfin.errors import (
    AsyncfinError,
    BucketUnavailableError,
    DatasetChangedError,
    RateLimitedError,
    SelectionError,
    ServiceError,
    ValidationFailedError,
)
from asyncfin.events import Restarted
from asyncfin.model.catalogue import Catalogue, is_same_publication
from asyncfin.plan.fill import for_cache
from asyncfin.plan.plan import Plan, plan, without_batches
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publication, Unfinished
from asyncfin.read.read import Metadata, Read
from asyncfin.read.turn import is_ended_by_turn
from asyncfin.table.block import Block
from asyncfin.wire.pages import read_catalogue
from asyncfin.wire.protocol import Request, Response

MAX_RESTARTS = 3
# Seconds before the first restart, and the factor by which each further wait grows: the metadata may lag
# behind the requests that refuse the old publication.
_FIRST_WAIT = 0.1
_GROWTH = 5
# Planning for more series takes so long that the loop should not stop for it.
_PLANNED_INLINE = 1000
# Refusals that are not about a replaced publication; a read of several reads need not check them again.
_checked: WeakSet[BaseException] = WeakSet()


def _is_inconclusive(error: AsyncfinError) -> bool:
    """Return whether an error does not show if the publication is still current, unlike a 401, 403 or 404."""
    return error.concerns == "service" or isinstance(error, (RateLimitedError, BucketUnavailableError))


class Attempts:
    """The attempts of a read. The next one begins after a wait if the publication changed in the last one:

        async for attempt in Attempts(read):
            async with attempt:
                ...

    At most three follow the first one; then DatasetChangedError is raised.
    """

    def __init__(self, read: Read, metadata: Metadata | None = None) -> None:
        self._read = read
        self._metadata = metadata  # which have just been read; the first attempt begins with them
        self._last: Attempt | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Attempt:
        if self._last is None:
            self._last = Attempt(self._read, self._metadata)
            return self._last
        if not self._last.has_changed:
            raise StopAsyncIteration
        stats = self._read.stats
        stats.restart()
        self._read.announce(Restarted(self._read.operation, self._read.entity_id, stats.restarts))
        await asyncio.sleep(_FIRST_WAIT * _GROWTH ** (stats.restarts - 1))
        self._last = Attempt(self._read, self._last.successor)
        return self._last


class Attempt:
    """One attempt of a read, whose requests are all about one publication.

    Leaving the `async with` block with a DatasetChangedError suppresses it if another attempt may follow.
    """

    def __init__(self, read: Read, successor: Metadata | None = None) -> None:
        self.read = read
        self._records = read.records
        self._committed = False
        self._checking = asyncio.Lock()
        self._is_checked = False  # whether a refusal had the metadata requested
        self.trial = asyncio.Lock()  # held by the batch that tries a range for exact periods
        self.sends_ranges = False  # whether a range was accepted for them
        # When the latest request was sent that has confirmed the publication.
        self.confirmed: datetime | None = None
        self.successor = successor  # the metadata of another publication, which the next attempt begins with
        self.has_changed = False  # whether another attempt follows

    @property
    def is_restart(self) -> bool:
        """Whether another attempt of the read came before."""
        return self.read.stats.restarts > 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.has_changed = isinstance(error, DatasetChangedError) and not self._is_final
        return self.has_changed

    @property
    def _is_final(self) -> bool:
        """Whether no other attempt may follow."""
        if self._committed or self.read.pinned:
            return True
        return self.read.stats.restarts == MAX_RESTARTS

    def commit(self) -> None:
        """Make this attempt the last one: from now on a change is an error."""
        self._committed = True

    def record_confirmation(self, sent: datetime) -> None:
        """Record when a request was sent that has confirmed the attempt's publication."""
        self.confirmed = max(sent, self.confirmed or sent)

    @asynccontextmanager
    async def pinned_to(self, dataset_id: str) -> AsyncIterator[None]:
        """Find out whether a request pinned to a publication was refused because it was replaced.

        Rules 5 and 6 of spec 4.3 have no order: a service that checks ids or cursors before the pin refuses a
        stale request with 400. So one request for the metadata checks a 400, and raises DatasetChangedError.
        After a 409 the publication no longer counts as the current one.
        """
        entity_id, publications = self.read.entity_id, self.read.publications
        try:
            yield
        except DatasetChangedError as change:
            if change.answered:
                publications.drop(entity_id, dataset_id)
                replaced = EntityRecord(publications.clock(), dataset_id, status=409)
                await self._records.observe(entity_id, replaced)
            raise
        except ValidationFailedError as refusal:
            if self.read.pinned:  # another publication would not do
                if refusal not in _checked:
                    await self.check_refusal(refusal, dataset_id)
                raise
            try:
                if refusal not in _checked:
                    await self.check_refusal(refusal, dataset_id)
            finally:
                # Whatever the metadata show: what the catalogue lists was refused.
                publications.drop(entity_id, dataset_id)
            raise

    async def check_refusal(self, refusal: ServiceError, dataset_id: str) -> None:
        """Find out whether a 400 was about a replaced publication: then it is a DatasetChangedError.

        The first one costs a request for the metadata, and the others none.
        """
        async with self._checking:
            await self._check(refusal, dataset_id)
        _checked.add(refusal)

    async def _check(self, refusal: ServiceError, dataset_id: str) -> None:
        if not self._is_checked:
            current = await self.read.metadata(fresh=True)
            if not is_same_publication(current.dataset.dataset_id, dataset_id):
                self.successor = current
                facts = refusal.facts()
                facts["message"] = f"the publication has been replaced; the service said: {refusal.message}"
                raise DatasetChangedError(**facts) from refusal
            self._is_checked = True

    async def current(self) -> Publication:
        """Return the current publication; its catalogue is read unless it is kept or cached."""
        # Where the turn of another read has ended the shared one, its pages are kept, and this read requests
        # the rest.
        known = await self.read.publications.catalogue_reads.share(
            self.read.entity_id, self._read_current, is_private=is_ended_by_turn
        )
        if known.confirmed is not None:
            self.record_confirmation(known.confirmed)
        return known

    async def _read_current(self) -> Publication:
        if self.read.cache is None:
            return await self._read_publication()
        async with self.read.cache.claim(self.read.entity_id):
            # Another process may have read it during the wait.
            if (known := await self.known()) is not None:
                return known
            return await self._read_publication()

    async def _read_publication(self) -> Publication:
        unfinished = self.read.publications.unfinished.pop(self.read.entity_id)
        if unfinished is not None and await self._may_continue(unfinished):
            # Each page confirms the publication, the next one too.
            return evolve(await self._publication(unfinished), confirmed=unfinished.sent)
        if await self.is_unknown():
            unfinished = Unfinished(None, self.read.publications.clock())
            return evolve(await self._publication(unfinished), confirmed=unfinished.sent)
        try:
            current = await self.metadata(soon=await self._stale() is not None)
        except AsyncfinError as error:
            if not _is_inconclusive(error) or (stale := await self._stale()) is None:
                raise
            return stale
        publication = await self._publication(Unfinished(current.dataset, current.sent))
        return evolve(publication, confirmed=current.sent)

    async def metadata(self, *, soon: bool = False) -> Metadata:
        """Return the metadata that the attempt begins with, which serve once, or request them.

        `soon` is that of `Read.metadata`.
        """
        successor, self.successor = self.successor, None
        if successor is not None:
            return successor
        if not self.is_restart:
            await self.read.check_rejection()
        return await self.read.metadata(fresh=self.is_restart, soon=soon)

    async def is_unknown(self) -> bool:
        """Return whether no catalogue of the entity is known: then its pages say which is the current one.

        A known one, of whatever publication and age, may still be current, which the metadata show.
        """
        entity_id, publications = self.read.entity_id, self.read.publications
        if self.is_restart or self.successor is not None or publications.kept.get(entity_id) is not None:
            return False
        record = await self._records.record(entity_id)
        if record is None:
            return True
        if record.is_rejection:
            return False
        if record.dataset_id is None or self.read.cache is None:
            return True
        return await self.read.cache.catalogue(entity_id, record.dataset_id) is None

    async def unkept_catalogue(self) -> Catalogue:
        """Return the current catalogue. It is not kept if it must be read."""
        if await self.is_unknown():
            sent = self.read.publications.clock()
            catalogue = await read_catalogue(self.read.send, self.read.entity_id)
            await self.read.observe(catalogue.dataset_id, sent)
            return catalogue
        dataset = (await self.metadata()).dataset
        async with self.pinned_to(dataset.dataset_id):
            # One without series is known too, and false.
            if (known := await self.read.publications.catalogue_of(dataset)) is not None:
                return known
            return await read_catalogue(self.read.send, dataset.entity_id, dataset)

    async def _may_continue(self, unfinished: Unfinished) -> bool:
        """Return whether the other pages of a catalogue are still needed, and no change is known."""
        if self.is_restart:
            return False
        if unfinished.dataset is None:
            return await self.is_unknown()
        # Unless another client has cached the whole catalogue since.
        return await self._kept_or_cached(unfinished.dataset.dataset_id) is None

    async def _publication(self, unfinished: Unfinished) -> Publication:
        read, dataset, responses = self.read, unfinished.dataset, unfinished.responses
        if dataset is not None and (found := await self._kept_or_cached(dataset.dataset_id)) is not None:
            return found

        async def send(request: Request) -> Response:
            if (response := responses.get(request)) is None:
                response = await read.send(request)
                if read.has_turn:  # only it can end a read that could go on
                    responses[request] = response
            return response

        def drop_pages() -> None:
            responses.clear()
            if dataset is None:  # the new first page confirms the publication
                unfinished.sent = read.publications.clock()

        try:
            async with AsyncExitStack() as pinned:
                if dataset is not None:
                    await pinned.enter_async_context(self.pinned_to(dataset.dataset_id))
                catalogue = await read_catalogue(send, read.entity_id, dataset, on_restart=drop_pages)
        except AsyncfinError as error:
            # The turn may have ended the read by refusing a retry too.
            if read.has_turn and (is_ended_by_turn(error) or _is_inconclusive(error)):
                read.publications.unfinished.put(read.entity_id, unfinished)
            raise
        if dataset is None:
            await read.observe(catalogue.dataset_id, unfinished.sent)
        if read.cache is not None and read.fills_cache:
            await read.cache.put_catalogue(catalogue)
        return read.publications.keep(catalogue)

    async def _kept_or_cached(self, dataset_id: str) -> Publication | None:
        entity_id, publications = self.read.entity_id, self.read.publications
        if (kept := publications.kept_as(entity_id, dataset_id)) is not None:
            return kept
        if self.read.cache is None:
            return None
        catalogue = await self.read.cache.catalogue(entity_id, dataset_id)
        if catalogue is None:
            return None
        # Another question may have kept it during the wait: they share what is pending.
        return publications.kept_as(entity_id, dataset_id) or publications.keep(catalogue)

    async def _known(self) -> Publication | None:
        """Return the publication that the record names, however old that is. No request."""
        record = await self._records.record(self.read.entity_id)
        if record is None or record.current is None:
            return None
        found = await self._kept_or_cached(record.current)
        return None if found is None else evolve(found, confirmed=record.sent)

    async def _stale(self) -> Publication | None:
        """Return the publication that counts as the current one if that can't be found out."""
        # First, since the record may have to be read.
        if not (stale_if_error := self.read.stale_if_error):
            return None
        record = await self._records.record(self.read.entity_id)
        if record is None or record.current is None or not self._is_fresh(record.sent, stale_if_error):
            return None
        return await self._kept_or_cached(record.current)

    def _is_fresh(self, confirmed: datetime | None, max_age: float) -> bool:
        """Return whether a publication confirmed at a moment counts as the current one for this read."""
        if confirmed is None or self.read.is_unauthorized:
            return False
        return self.read.age(confirmed) <= max_age

    async def catalogue(self) -> Catalogue:
        """Return the catalogue of the publication that counts as the current one."""
        known = await self.known() if self.read.max_age else None
        return (known or await self.current()).catalogue

    async def known(self) -> Publication | None:
        """Return the publication if it counts as the current one without a request."""
        found = await self._known()
        return found if found is not None and self._is_fresh(found.confirmed, self.read.max_age) else None

    async def plan(self, question: Question, *, batches: bool = True) -> Plan:
        """Return the plan for a question, made with a known catalogue if there is one.

        A known catalogue may be stale. What is requested with it is then refused. Before it leads to a
        SelectionError, or to a plan that requests nothing, one request for the metadata confirms it.

        With a cache and without `batches`, `plan_missing` has to plan the requests for the rest.
        """
        if isinstance(question.source, Catalogue):
            return await self._planned(self.read.publications.of(question.source), question, batches)
        if (known := await self._known()) is not None:
            is_current = self._is_fresh(known.confirmed, self.read.max_age)
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
            make = partial(without_batches, question, publication.catalogue)
            # The error names what comes close, which is searched for among all ids.
            is_refused = question.judged(publication.catalogue).missing and not question.known_only
            found = await asyncio.to_thread(make) if is_refused else make()
            # With a cache, what is requested depends on what is cached, which changes: only the rest is kept.
            if self.read.cache is None and found.series:
                make = partial(plan, question, publication.catalogue, found.series)
                found = make() if len(found.series) <= _PLANNED_INLINE else await asyncio.to_thread(make)
            if key is not None:
                publication.plans.put(key, found)
        if self.read.cache is None or not batches:
            return found
        return await self.plan_missing(found, await self.blocks(found))

    async def plan_missing(self, found: Plan, blocks: tuple[Block, ...]) -> Plan:
        """Return a plan that requests the series that are not in the cached blocks, and no others."""
        cached: set[str] = set().union(*(block.series_ids for block in blocks))
        unlisted = self.read.publications.of(found.catalogue).unlisted(found.question.value_version)
        missing = {series.series_id for series in found.series} - cached - unlisted
        make = partial(for_cache, found, cached, unlisted, fill=self.read.fills_cache)
        # Filling a single batch looks at the whole catalogue.
        looked_at = len(found.catalogue) if missing and self.read.fills_cache else len(missing)
        return make() if looked_at <= _PLANNED_INLINE else await asyncio.to_thread(make)

    async def blocks(self, plan: Plan) -> tuple[Block, ...]:
        """Return what the cache has of a plan's publication, in its value version."""
        if self.read.cache is None:
            return ()
        dataset_id, version = plan.catalogue.dataset_id, plan.question.value_version
        wanted = (series.series_id for series in plan.series)
        return await self.read.cache.blocks(self.read.entity_id, dataset_id, version, wanted)

    async def check_not_replaced(self, catalogue: Catalogue) -> None:
        """Raise DatasetChangedError before a request that would be refused, if another client knows that."""
        if self.read.pinned:
            return  # only the service decides: publications may return
        record = await self._records.record(self.read.entity_id)
        if record is not None and record.rules_out(catalogue.dataset_id):
            raise self._change("another client has found another publication")

    async def confirm(self, catalogue: Catalogue, *, store: bool = True) -> datetime | None:
        """Make sure that values of a publication may be returned. At most one request, in most cases none.

        Returns when the publication was last confirmed as the current one; None: never, which is possible
        only if the question is about this publication. If another one is current: DatasetChangedError.
        `store` says whether to store the confirmations by this read's own requests.
        """
        dataset_id = catalogue.dataset_id
        for _ in range(2):  # a refusal of another request may arrive during the first one
            if store and self.confirmed is not None:
                await self.read.observe(dataset_id, self.confirmed)
            record = await self._records.record(self.read.entity_id)
            known = record.sent if record and record.names(dataset_id) else None
            if self._may_return(record, dataset_id):
                return max(filter(None, (known, self.confirmed)), default=None)
            stale_if_error = self.read.stale_if_error
            await self.read.check_rejection()
            try:
                current = await self.read.metadata(soon=self._is_fresh(known, stale_if_error))
            except AsyncfinError as error:
                if _is_inconclusive(error) and self._is_fresh(known, stale_if_error):
                    self.read.stats.stale = True
                    return known
                raise
            if is_same_publication(current.dataset.dataset_id, dataset_id):
                self.record_confirmation(current.sent)
            elif not self.read.pinned:
                self.successor = current
                # As after a 409: the next attempt must not plan with what memory has.
                self.read.publications.drop(self.read.entity_id, dataset_id)
                raise self._change("the metadata name another publication")
        return self.confirmed

    def _may_return(self, record: EntityRecord | None, dataset_id: str) -> bool:
        """Return whether values of a publication may be returned without a request."""
        confirmed, read = self.confirmed, self.read
        if read.is_unauthorized:
            return False
        if record is not None and record.is_rejection:
            return confirmed is not None and confirmed >= record.sent
        if read.pinned:
            return True
        is_named = record is not None and record.names(dataset_id)
        if confirmed is None:
            return record is not None and is_named and self._is_fresh(record.sent, read.max_age)
        return record is None or is_named or confirmed >= record.sent

    def _change(self, message: str) -> DatasetChangedError:
        return DatasetChangedError(
            status=409,
            code="dataset_changed",
            message=message,
            answered=False,
            operation=self.read.operation,
            entity_id=self.read.entity_id,
            at=self.read.publications.clock(),
        )
