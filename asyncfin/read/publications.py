"""What a client knows of publications: the last one of each entity in memory, and the
cache, if it has one.

A stored catalogue may be stale. The pin makes that harmless: a request that was planned
with it is rejected with `dataset_changed`, and the catalogue is read again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable
from datetime import datetime
from enum import Enum, auto
from typing import NamedTuple
from weakref import WeakValueDictionary

from asyncfin.cache.base import Cache, Partition
from asyncfin.cache.entries import LeastRecentlyUsed
from asyncfin.model.catalogue import Catalogue, is_same_publication
from asyncfin.plan.plan import Plan
from asyncfin.table.panel import Panel
from asyncfin.tasks import SingleFlight
from asyncfin.wire.sender import Sender

MAX_CATALOGUE_SERIES = 200_000
# The panels that a client stores, of up to so many values each.
MAX_PANELS = 256
MAX_PANEL_VALUES = 2_000
# The plans stored with a catalogue contain at most this many series for each series of
# it: a plan takes a fraction of the memory that its catalogue takes.
_PLANNED_SERIES = 2


class Publication:
    """A publication, and what its responses have shown: in each value version, since it
    may list others.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        # The ids of the series that a response over all periods has listed, by value
        # version.
        self.listed_ids = defaultdict[str, set[str]](set)
        # Those that two responses have left out, the second one over all periods, and
        # that none has listed since.
        self.unlisted_ids = defaultdict[str, set[str]](set)
        # The plans last made, by the key of their query.
        self.plans: LeastRecentlyUsed[Hashable, Plan] = LeastRecentlyUsed(
            _PLANNED_SERIES * len(catalogue)
        )
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def lock(self) -> asyncio.Lock:
        """Held by the query that requests series for the cache, in the running loop: a
        client can be used in another one.
        """
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock


class Standing(Enum):
    """What a read may do with a publication."""

    CURRENT = auto()  # return it without a request
    STALE = auto()  # return it if the current one cannot be found out
    UNCONFIRMED = auto()  # ask the service


class LastPublication(NamedTuple):
    """The publication last confirmed as current, when, and how a read stands to it."""

    publication: Publication
    sent_at: datetime  # aware UTC; when the request was sent that confirmed it
    standing: Standing


class Publications:
    """The last publication read of each entity, the most recently used ones, up to
    200,000 series in all.
    """

    def __init__(
        self,
        sender: Sender,
        *,
        cache: Partition | None = None,
        max_age: float = 0.0,
        stale_if_error: float = 0.0,
    ) -> None:
        self.sender = sender
        self.clock = sender.transport.clock
        # How many requests may be in flight at once.
        self.limit = sender.transport.max_in_flight
        # The client's part of its cache, or None.
        self.cache = cache
        # Which publication of an entity is current: those of the cache, if there is
        # one.
        self.records = cache or Partition(Cache(0, self.clock), b"")
        self.max_age = max_age
        # For how many seconds it may be returned if the metadata cannot be read.
        self.stale_if_error = stale_if_error
        # The catalogues being read, for all reads that need one.
        self.pending_catalogues: SingleFlight[str, LastPublication] = SingleFlight()
        # The queries in progress, for all that are equal: the read that leads, its
        # panel, and whether it is stale.
        self.pending_panels: SingleFlight[Hashable, tuple[object, Panel, bool]] = (
            SingleFlight()
        )
        # The panels last returned without a request, by the key of their query, and the
        # last one of them that was returned again.
        self.panels: LeastRecentlyUsed[Hashable, Panel] = LeastRecentlyUsed(MAX_PANELS)
        self.last_panel: Panel | None = None
        # By entity id.
        self.stored: LeastRecentlyUsed[str, Publication] = LeastRecentlyUsed(
            MAX_CATALOGUE_SERIES
        )
        # Of catalogues that are not stored, while a query uses them; by the id of the
        # object.
        self._passing: WeakValueDictionary[int, Publication] = WeakValueDictionary()

    def of(self, catalogue: Catalogue, *, store: bool = False) -> Publication:
        """Return the stored publication of a catalogue, or one that its queries at one
        time share.

        With `store` it is stored as the entity's last one.
        """
        last = self.find(catalogue.entity_id, catalogue.dataset_id)
        # The same object: what responses have shown is not mixed with a catalogue that
        # the caller has made.
        if last is not None and (store or last.catalogue is catalogue):
            return last
        publication = self._passing.setdefault(id(catalogue), Publication(catalogue))
        if store:
            self.stored.put(catalogue.entity_id, publication, len(catalogue))
        return publication

    def find(self, entity_id: str, dataset_id: str) -> Publication | None:
        """Return the stored publication of an entity if it is this one."""
        last = self.stored.get(entity_id)
        if last and is_same_publication(last.catalogue.dataset_id, dataset_id):
            return last
        return None
