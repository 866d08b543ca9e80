"""One whole read: everything it sends is pinned to one publication, and it starts over on a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial

from attrs import define

from asyncfin.errors import DatasetChangedError, SelectionError, ValidationFailedError
from asyncfin.events import Restarted
from asyncfin.fanout.plan import Plan, plan
from asyncfin.fanout.publications import Publication, Publications
from asyncfin.fanout.question import Question
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.wire.pages import Send, read_catalogue
from asyncfin.wire.protocol import Request, Response, dataset_request, read_dataset
from asyncfin.wire.sender import Sender

MAX_RESTARTS = 3
# Seconds before the first restart, and how many times longer the wait before each further one is: what
# names the current publication may lag behind what refuses the old one.
_FIRST_WAIT = 0.1
_LONGER = 5
# Planning for more series takes so long that the loop should not stop for it.
_PLANNED_INLINE = 1000


async def read_metadata(send: Send, entity_id: str) -> Dataset:
    """Return an entity's current dataset (spec 4.1). One request."""
    request = dataset_request(entity_id)
    return read_dataset(request, await send(request))


@define
class ReadStats:
    """What a whole read has cost so far.

    Attributes:
        requests: attempts, each of which counts against the allowance.
        restarts: how often it has started over.
        answered_at: when the last response came, aware UTC.
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

    Attributes:
        pinned: whether only the first publication will do, so that a change is an error at once.
        final: set by those who have given away a part of the answer: from then on a change is an error.
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
    ) -> None:
        self._sender = sender
        self._publications = publications
        self.entity_id = entity_id
        self.operation = operation
        self.limit = limit
        self.pinned = False
        self.final = False
        self.stats = ReadStats()
        self._confirmed: Dataset | None = None

    async def send(self, request: Request) -> Response:
        """Send a request as a part of this read."""
        response = await self._sender.send(request, attempting=self.stats.count)
        self.stats.answered_at = response.at
        return response

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
        refusal the kept catalogue is dropped.

        Raises:
            DatasetChangedError: the publication is no longer the current one.
        """
        try:
            yield
        except DatasetChangedError:
            self._publications.forget(self.entity_id, dataset_id)
            raise
        except ValidationFailedError as refusal:
            if self.pinned:
                raise
            self._publications.forget(self.entity_id, dataset_id)
            current = await read_metadata(self.send, self.entity_id)
            if is_same_publication(current.dataset_id, dataset_id):
                raise
            self._confirmed = current
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

    async def current(self) -> Publication:
        """Return the current publication; its catalogue is read unless it is the kept one.

        One request for the metadata, and one for each hundred series of a new publication. Reads that ask at
        the same time share the requests of the first.
        """
        return await self._publications.reads.share(self.entity_id, self._read_current)

    async def _read_current(self) -> Publication:
        # What has just confirmed a change need not be asked for again.
        confirmed, self._confirmed = self._confirmed, None
        dataset = confirmed or await read_metadata(self.send, self.entity_id)
        kept = self._publications.kept(self.entity_id)
        if kept is not None and is_same_publication(kept.catalogue.dataset_id, dataset.dataset_id):
            return kept
        async with self.pinned_to(dataset.dataset_id):
            return self._publications.keep(await read_catalogue(self.send, dataset))

    async def plan(self, question: Question) -> Plan:
        """Return the plan for a question, made with a kept catalogue where there is one.

        A kept catalogue may be stale. What is then asked is refused, but a question that it refuses, or
        answers with nothing, is never sent: so before that, one request for the metadata confirms it.
        """
        if isinstance(question.source, Catalogue):
            return await _planned(self._publications.of(question.source), question)
        if (kept := self._publications.kept(self.entity_id)) is not None:
            with suppress(SelectionError):
                found = await _planned(kept, question)
                if found.batches:
                    return found
        return await _planned(await self.current(), question)

    def publication(self, catalogue: Catalogue) -> Publication:
        """Return what is known of the publication of a catalogue."""
        return self._publications.of(catalogue)


async def _planned(publication: Publication, question: Question) -> Plan:
    if (kept := publication.plan(question)) is not None:
        return kept
    wanted = publication.catalogue.select(question.select)
    make = partial(plan, question, publication.catalogue, wanted)
    made = make() if len(wanted) <= _PLANNED_INLINE else await asyncio.to_thread(make)
    publication.keep_plan(made)
    return made
