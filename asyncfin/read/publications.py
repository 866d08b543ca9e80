"""What a client knows of publications: the last one of each entity in memory, and the cache, if it has one.

A kept catalogue may be stale. The pin makes that harmless: what is asked with it is refused with
`dataset_changed`, and it is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Hashable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from asyncfin.cache.store import Partition
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.model.period import Exact, FiscalRange, Period, Resolved
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Plan
from asyncfin.table.block import Block
from asyncfin.table.panel import Panel
from asyncfin.tasks import SingleFlight, bounded

MAX_KEPT_SERIES = 200_000
# The plans kept beside a catalogue name at most this many series for each of its own: a plan takes a
# fraction of the memory that its catalogue takes.
_PLANNED_SERIES = 2

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecentlyUsed(Generic[K, V]):
    """Values by key; the least recently used are dropped while all together are larger than a bound.

    The last one stored is kept, whatever its size. An empty one counts as one of size 1.
    """

    def __init__(self, bound: float, size: Callable[[V], int]) -> None:
        self._bound = bound
        self._size = size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._total = 0

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as its use; None if there is none."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        """Store the value of a key, in place of the one it had."""
        self.drop(key)
        self._values[key] = value
        self._total += self._weight(value)
        while self._total > self._bound and len(self._values) > 1:
            self.drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Drop a key and its value, if it is there."""
        if key in self._values:
            self._total -= self._weight(self._values.pop(key))

    def _weight(self, value: V) -> int:
        return max(1, self._size(value))  # so that no number of empty ones stays


class Listing:
    """What the responses of one value version have shown: a service may list a series in one version only.

    Args:
        catalogue: the catalogue of the publication.

    Attributes:
        unlisted: ids of series that two responses have left out, the second one over all periods, and that
            no response has listed since.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        # A byte for each series of the catalogue: whether a response over all of its periods has listed it.
        self._listed = bytearray(len(catalogue))
        self.unlisted: set[str] = set()

    def has_listed(self, series: CatalogueSeries) -> bool:
        """Return whether a response over all periods of the publication has listed a series."""
        return bool(self._listed[self._catalogue.places[series.series_id]])

    def record(self, places: Sequence[int], periods: Resolved) -> None:
        """Record which series a response over these periods has listed, by their places in the catalogue."""
        if self.unlisted:
            self.unlisted.difference_update(self._catalogue.series[place].series_id for place in places)
        if _covers_all(periods, self._catalogue.periods):
            for place in places:
                self._listed[place] = True


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


class Publication:
    """A publication, and what its responses have shown.

    Attributes:
        catalogue: its catalogue.
        confirmed: when it was last known to be the current one, aware UTC; None: never by this client.
        plans: the plans last made for it, by the key of their question.
    """

    def __init__(self, catalogue: Catalogue, confirmed: datetime | None = None) -> None:
        self.catalogue = catalogue
        self.confirmed = confirmed
        self._listings: dict[str, Listing] = {}
        self.plans: LeastRecentlyUsed[Hashable, Plan] = LeastRecentlyUsed(
            _PLANNED_SERIES * len(catalogue), lambda plan: len(plan.series)
        )

    def confirm(self, moment: datetime) -> None:
        """Record that it was the current publication at a moment; confirmations only move forward."""
        self.confirmed = max(moment, self.confirmed or moment)

    def is_current(self, asked: datetime, max_age: float, now: datetime) -> bool:
        """Return whether it counts as the current one for a question that was asked at a moment.

        A confirmation from the future tells nothing: the clock was set back meanwhile.
        """
        if self.confirmed is None or self.confirmed > now:
            return False
        return (asked - self.confirmed).total_seconds() <= max_age

    def listing(self, value_version: str) -> Listing:
        """Return what responses in a value version have shown."""
        return self._listings.setdefault(value_version, Listing(self.catalogue))


class _Flight:
    """Requests for some series, under way once for all who need one of them."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, tuple[Block, ...]]]) -> None:
        self.ask = ask


class Flights:
    """Which series are being asked for, so that nobody asks for them a second time."""

    def __init__(self) -> None:
        self._calls: SingleFlight[_Flight, tuple[Block, ...]] = SingleFlight()
        self._under_way: dict[Hashable, dict[str, _Flight]] = {}

    async def gather(
        self,
        publication: Hashable,
        series_ids: Collection[str],
        ask: Callable[[Collection[str]], Coroutine[Any, Any, tuple[Block, ...]]],
    ) -> list[tuple[Block, ...]]:
        """Return the blocks of these series: from flights under way, and from one of its own for the rest.

        A caller that is cancelled leaves its flight to the others; a flight that fails fails for all of them.
        """
        # No await from here to the start of the jobs: nobody else can begin a flight for the same series.
        under_way = self._under_way.setdefault(publication, {})
        flights = dict.fromkeys(under_way[each] for each in series_ids if each in under_way)
        if own := [each for each in series_ids if each not in under_way]:
            flight = _Flight(lambda: self._fly(flight, publication, ask(own)))
            under_way.update(dict.fromkeys(own, flight))
            flights[flight] = None
        jobs = [partial(self._calls.share, each, each.ask) for each in flights]
        async with bounded(jobs, len(jobs)) as results:
            return [blocks async for blocks in results]

    async def _fly(
        self, flight: _Flight, publication: Hashable, asking: Coroutine[Any, Any, tuple[Block, ...]]
    ) -> tuple[Block, ...]:
        try:
            return await asking
        finally:
            # From now on the series are in the cache, or have to be asked for: a failure is not kept.
            under_way = self._under_way.pop(publication, {})
            if rest := {each: other for each, other in under_way.items() if other is not flight}:
                self._under_way[publication] = rest


class Publications:
    """The last publication read of each entity, the most recently used ones, up to 200,000 series in all.

    Attributes:
        cache: the client's part of its cache; None: it has none.
        max_age: for how many seconds a publication counts as the current one, where a question does not say.
        stale_if_error: for how many seconds it may be returned when the current one can't be confirmed.
        clock: gives the wall time, aware UTC.
        kept: the last publications read, by entity.
        reads: the catalogues being read, by entity, which all who need one share.
        answers: the questions being answered, which all who ask an equal one share.
        flights: the series being asked for, for the cache.
    """

    def __init__(
        self,
        clock: Callable[[], datetime],
        *,
        cache: Partition | None = None,
        max_age: float = 0.0,
        stale_if_error: float = 0.0,
    ) -> None:
        self.clock = clock
        self.cache = cache
        self.max_age = max_age
        self.stale_if_error = stale_if_error
        self.reads: SingleFlight[str, Publication] = SingleFlight()
        self.answers: SingleFlight[Hashable, Panel] = SingleFlight()
        # Of one client, also where several share a cache: their event loops and ends differ. So all who wait
        # for a flight are in one lane, the client's, and it never has to move to a better one.
        self.flights = Flights()
        self.kept: LeastRecentlyUsed[str, Publication] = LeastRecentlyUsed(
            MAX_KEPT_SERIES, lambda publication: len(publication.catalogue)
        )

    def of(self, catalogue: Catalogue) -> Publication:
        """Return the kept publication of a catalogue, or one that only the caller keeps."""
        kept = self.kept.get(catalogue.entity_id)
        # The very object: what was learned of a publication is not mixed with a catalogue that the caller has
        # made.
        return kept if kept is not None and kept.catalogue is catalogue else Publication(catalogue)

    def keep(self, catalogue: Catalogue, confirmed: datetime) -> Publication:
        """Keep what was read as the entity's last publication."""
        publication = Publication(catalogue, confirmed)
        self.kept.put(catalogue.entity_id, publication)
        return publication

    def confirm(self, dataset: Dataset, asked: datetime) -> None:
        """Record which publication is current, as a request that was sent at a moment has shown."""
        if (kept := self.kept.get(dataset.entity_id)) is None:
            return
        if is_same_publication(kept.catalogue.dataset_id, dataset.dataset_id):
            kept.confirm(asked)
        else:
            self.kept.drop(dataset.entity_id)

    async def forget(self, entity_id: str, dataset_id: str | None = None) -> None:
        """Drop an entity's publication, in the cache too: its pin was refused, or it may not be read.

        Args:
            dataset_id: the refused publication. Another one that has been read since, by this client or by
                another one of the cache, is kept. None: whichever it is.
        """
        kept = self.kept.get(entity_id)
        if kept is not None and (
            dataset_id is None or is_same_publication(kept.catalogue.dataset_id, dataset_id)
        ):
            self.kept.drop(entity_id)
        if self.cache is not None:
            await self.cache.forget(entity_id, dataset_id)
