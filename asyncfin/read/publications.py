"""What a client knows of publications: the last one of each entity in memory, and the cache, if it has one.

A kept catalogue may be stale. The pin makes that harmless: a request that was planned with it is refused with
`dataset_changed`, and the catalogue is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Hashable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from attrs import define, field, frozen

from asyncfin.cache.base import LeastRecentlyUsed, Memory, MemoryRecords
from asyncfin.cache.store import Partition
from asyncfin.errors import AsyncfinError
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Plan
from asyncfin.read.kept import KeptPanels
from asyncfin.read.turn import is_ended_by_turn
from asyncfin.table.block import Block
from asyncfin.table.panel import Panel
from asyncfin.tasks import SharedCall, SingleFlight, bounded
from asyncfin.wire.protocol import Request, Response

MAX_KEPT_SERIES = 200_000
_MAX_UNFINISHED_PAGES = 1_000
# The plans kept with a catalogue contain at most this many series for each series of it: a plan takes a
# fraction of the memory that its catalogue takes.
_PLANNED_SERIES = 2

# Blocks of series with all their periods, and when the latest request was sent that has confirmed the
# publication; None: none was sent.
Received: TypeAlias = tuple[tuple[Block, ...], datetime | None]


def _covers_all(selection: Resolved, known: Sequence[Period]) -> bool:
    """Return whether a selection contains all of a catalogue's periods, which are ordered oldest first."""
    match selection:
        case Exact(periods=exact):
            return set(known) <= set(exact)
        case FiscalRange(start=Period() as start, end=Period() as end):
            return not known or (
                start.fiscal_end <= known[0].fiscal_end and known[-1].fiscal_end <= end.fiscal_end
            )
    return False  # the service decides where a trailing window ends


@frozen(eq=False)
class Publication:
    """A publication, and what its responses have shown: in each value version, since it may list others.

    A copy with another `confirmed` shares the rest.
    """

    catalogue: Catalogue
    # As the current one: when the request was sent that has confirmed it, aware UTC; None: unconfirmed.
    confirmed: datetime | None = None
    # A byte for each series of the catalogue: whether a response over all of its periods has listed it.
    _listed: dict[str, bytearray] = field(factory=dict)
    _unlisted: dict[str, set[str]] = field(factory=dict)
    # The plans last made, by the key of their question.
    plans: LeastRecentlyUsed[Hashable, Plan] = field()
    # The series requested and not yet received, so that none is requested a second time: in each value
    # version, by id. Not shared by the clients of a cache, whose event loops and lifetimes differ: so all
    # that wait for them are in one lane, the client's.
    _pending: dict[str, dict[str, SharedCall[Received]]] = field(factory=dict)

    @plans.default
    def _no_plans(self) -> LeastRecentlyUsed[Hashable, Plan]:
        most = _PLANNED_SERIES * len(self.catalogue)
        return LeastRecentlyUsed(most, lambda plan: len(plan.series))

    def unlisted(self, value_version: str) -> set[str]:
        """Return the ids of the series that no response lists, to add to.

        Two responses have left them out, the second one over all periods, and none has listed them since.
        """
        return self._unlisted.setdefault(value_version, set())

    def has_listed(self, value_version: str, series: CatalogueSeries) -> bool:
        """Return whether a response over all periods of the publication has listed a series."""
        listed = self._listed.get(value_version)
        return listed is not None and bool(listed[self.catalogue.places[series.series_id]])

    def record_listed(self, value_version: str, places: Sequence[int], periods: Resolved) -> None:
        """Record which series a response over these periods has listed, by their places in the catalogue."""
        if unlisted := self._unlisted.get(value_version):
            unlisted.difference_update(self.catalogue.series[place].series_id for place in places)
        if _covers_all(periods, self.catalogue.periods):
            listed = self._listed.setdefault(value_version, bytearray(len(self.catalogue)))
            for place in places:
                listed[place] = True

    async def gather(
        self,
        value_version: str,
        series_ids: Collection[str],
        request: Callable[[Collection[str]], Coroutine[Any, Any, Received]],
    ) -> list[Received]:
        """Return these series: those that are pending, and the others by a request for them.

        If the caller is cancelled, its request continues for the others that wait for it. If the turn of
        another question ends the request for pending ones, they are requested here.
        """
        # No wait from here to the calls that are held, or the same series could be requested twice.
        pending = self._pending.setdefault(value_version, {})

        def remove(call: SharedCall[Received]) -> None:
            # From now on the series are in the cache, or have to be requested: a failure is not kept.
            for each in [each for each, other in pending.items() if other is call]:
                del pending[each]
            if not pending:
                pending.clear()  # frees its table, of kilobytes for each company

        others = [each for each in series_ids if each not in pending or not pending[each].is_pending]
        if others:
            pending.update(dict.fromkeys(others, SharedCall(request(others), remove)))
        calls: dict[SharedCall[Received], list[str]] = {}
        for each in series_ids:
            calls.setdefault(pending[each], []).append(each)

        async def share(call: SharedCall[Received], wanted: list[str]) -> list[Received]:
            try:
                return [await call.result()]
            except AsyncfinError as error:
                if wanted == others or not is_ended_by_turn(error):  # `others`: requested by this question
                    raise
            return await self.gather(value_version, wanted, request)

        jobs = [partial(share, *each) for each in calls.items()]
        async with AsyncExitStack() as held:
            for call in calls:  # also those whose job is cancelled before its first step
                await held.enter_async_context(call)
            async with bounded(jobs, len(jobs)) as results:
                return [received async for several in results for received in several]


@define(eq=False)
class Unfinished:
    """A catalogue whose read was ended by its turn or a failure; the next read continues it."""

    dataset: Dataset | None  # its metadata, to which its requests are pinned; None: nothing was known of it
    sent: datetime  # when the first request was sent, for these metadata or for the first page; aware UTC
    responses: dict[Request, Response] = field(factory=dict)  # the pages received, by their requests


class Publications:
    """The last publication read of each entity, the most recently used ones, up to 200,000 series in all."""

    def __init__(
        self,
        clock: Callable[[], datetime],
        *,
        cache: Partition | None = None,
        max_age: float = 0.0,
        stale_if_error: float = 0.0,
    ) -> None:
        self.clock = clock
        # The client's part of its cache; None: it has none.
        self.cache = cache
        # Which publication of an entity is current: those of the cache, if there is one.
        self.records: Partition | MemoryRecords = (
            MemoryRecords(Memory(0), b"", clock) if self.cache is None else self.cache
        )
        self.max_age = max_age
        # For how many seconds it may be returned if the metadata cannot be read.
        self.stale_if_error = stale_if_error
        # The catalogues being read, for all reads that need one.
        self.catalogue_reads: SingleFlight[str, Publication] = SingleFlight()
        # The questions in progress, for all that are equal: the result, and whether it is stale.
        self.panels: SingleFlight[Hashable, tuple[Panel, bool]] = SingleFlight()
        self.kept_panels = KeptPanels()
        self.kept: LeastRecentlyUsed[str, Publication] = LeastRecentlyUsed(
            MAX_KEPT_SERIES,
            lambda publication: len(publication.catalogue),
            dropped=lambda publication: self.kept_panels.drop(publication.catalogue),
        )
        # Of catalogues that are not kept, while a question uses them; by the id of the object.
        self._unkept: WeakValueDictionary[int, Publication] = WeakValueDictionary()
        # The catalogues read in part.
        self.unfinished: LeastRecentlyUsed[str, Unfinished] = LeastRecentlyUsed(
            _MAX_UNFINISHED_PAGES, lambda unfinished: len(unfinished.responses)
        )

    async def aclose(self) -> None:
        """Drop the kept panels."""
        self.kept_panels.clear()

    def of(self, catalogue: Catalogue) -> Publication:
        """Return the kept publication of a catalogue, or one that its questions at one time share."""
        kept = self.kept.get(catalogue.entity_id)
        # The same object: what responses have shown is not mixed with a catalogue that the caller has made.
        if kept is not None and kept.catalogue is catalogue:
            return kept
        return self._unkept.setdefault(id(catalogue), Publication(catalogue))

    def kept_as(self, entity_id: str, dataset_id: str) -> Publication | None:
        """Return the kept publication of an entity if it is this one."""
        kept = self.kept.get(entity_id)
        if kept is not None and is_same_publication(kept.catalogue.dataset_id, dataset_id):
            return kept
        return None

    async def catalogue_of(self, dataset: Dataset) -> Catalogue | None:
        """Return the catalogue of a publication if it is kept or cached; the cached one is not kept."""
        if (kept := self.kept_as(dataset.entity_id, dataset.dataset_id)) is not None:
            return kept.catalogue
        if self.cache is None:
            return None
        return await self.cache.catalogue(dataset.entity_id, dataset.dataset_id)

    def keep(self, catalogue: Catalogue) -> Publication:
        """Keep a catalogue as that of the entity's last publication."""
        publication = Publication(catalogue)
        self.kept.put(catalogue.entity_id, publication)
        return publication

    def drop(self, entity_id: str, dataset_id: str) -> None:
        """Drop the kept catalogue of a publication; that of another one stays."""
        if self.kept_as(entity_id, dataset_id) is not None:
            self.kept.pop(entity_id)
