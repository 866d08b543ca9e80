"""What a client keeps of the publications it has read: once for a publication, not once for a question.

A kept catalogue may be stale. The pin makes that harmless: what is asked with it is refused with
`dataset_changed`, and it is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Generic, TypeVar

from asyncfin.fanout.plan import Plan
from asyncfin.fanout.question import Question
from asyncfin.model.catalogue import Catalogue, is_same_publication
from asyncfin.model.period import Exact, FiscalRange, Period, Resolved
from asyncfin.wire.tasks import SingleFlight

MAX_KEPT_SERIES = 200_000
# The plans kept beside a catalogue name at most this many series for each of its own: a plan takes a
# fraction of the memory that its catalogue takes.
_PLANNED_SERIES = 2

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecentlyUsed(Generic[K, V]):
    """Values by key; the least recently used are dropped while all together are larger than a bound.

    The last one stored is kept, whatever its size.
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
        self._total += self._size(value)
        while self._total > self._bound and len(self._values) > 1:
            self.drop(next(iter(self._values)))

    def drop(self, key: K) -> None:
        """Drop a key and its value, if it is there."""
        if key in self._values:
            self._total -= self._size(self._values.pop(key))


class Publication:
    """A publication, and what its responses have shown of it.

    Attributes:
        catalogue: all that it holds.
        listed: ids of series that a response over all of its periods has listed.
        left_out: ids of series that two responses have left out, the second one over all periods, and that
            no response has listed since.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.listed: set[str] = set()
        self.left_out: set[str] = set()
        self._plans: LeastRecentlyUsed[Hashable, Plan] = LeastRecentlyUsed(
            _PLANNED_SERIES * len(catalogue), lambda plan: len(plan.series)
        )

    def record(self, series_ids: Collection[str], asked: Resolved) -> None:
        """Record which series a response has listed that asked for these periods."""
        self.left_out.difference_update(series_ids)
        if self._covers_all(asked):
            self.listed.update(series_ids)

    def _covers_all(self, asked: Resolved) -> bool:
        known = self.catalogue.periods
        match asked:
            case Exact(periods=exact):
                return set(known) <= set(exact)
            case FiscalRange(start=Period() as start, end=Period() as end):
                return all(start.fiscal_end <= each.fiscal_end <= end.fiscal_end for each in known)
        return False  # where a trailing window ends is the service's to say

    def plan(self, question: Question) -> Plan | None:
        """Return the plan that was last made for an equal question."""
        key = _plan_key(question)
        return None if key is None else self._plans.get(key)

    def keep_plan(self, plan: Plan) -> None:
        """Keep a plan, so that an equal question need not be planned again."""
        key = _plan_key(plan.question)
        if key is not None:
            self._plans.put(key, plan)


def _plan_key(question: Question) -> Hashable | None:
    # A predicate may depend on anything, so a Select with one may mean other series the next time.
    if question.select.where is not None:
        return None
    return question.pinned, question.select, question.periods, question.value_version


class Publications:
    """The last publication read of each entity, the most recently used ones, up to 200,000 series in all.

    `reads` are the catalogues under way, by entity, which all who need one share.
    """

    def __init__(self) -> None:
        self.reads: SingleFlight[str, Publication] = SingleFlight()
        self._kept: LeastRecentlyUsed[str, Publication] = LeastRecentlyUsed(
            MAX_KEPT_SERIES, lambda publication: len(publication.catalogue)
        )

    def kept(self, entity_id: str) -> Publication | None:
        """Return the last publication read of an entity, if it is still kept."""
        return self._kept.get(entity_id)

    def of(self, catalogue: Catalogue) -> Publication:
        """Return the kept publication of a catalogue, or one that only the caller keeps."""
        kept = self.kept(catalogue.entity_id)
        return kept if kept is not None and kept.catalogue is catalogue else Publication(catalogue)

    def keep(self, catalogue: Catalogue) -> Publication:
        """Keep what was read as the entity's last publication."""
        publication = Publication(catalogue)
        self._kept.put(catalogue.entity_id, publication)
        return publication

    def forget(self, entity_id: str, dataset_id: str) -> None:
        """Drop a publication whose pin was refused, unless another one has been read since."""
        kept = self._kept.get(entity_id)
        if kept is not None and is_same_publication(kept.catalogue.dataset_id, dataset_id):
            self._kept.drop(entity_id)
