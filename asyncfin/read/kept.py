"""The panels that a client keeps, so that an equal question which needs no request is not stitched again.

Each is in the memory of the cache, with the blocks that it is made of, and is dropped with them. The client
keeps its owner, and drops that with the publication. Whether the publication still counts as the current one
is decided before a kept panel is returned, as for any other question.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from datetime import datetime

from attrs import define, frozen

from asyncfin.cache.base import LeastRecentlyUsed
from asyncfin.cache.store import Partition
from asyncfin.model.catalogue import Catalogue
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.table.block import Block
from asyncfin.table.panel import Panel, has_at_most, reconfirmed, release_decoded

MAX_PANELS = 256
MAX_VALUES = 2_000


@frozen(eq=False)
class Owner:
    """The owner of a kept panel, which is dropped when the owner is."""

    plan: Plan


@define(eq=False)
class _Kept:
    """A panel as it was last returned."""

    panel: Panel


class KeptPanels:
    """The panels last returned without a request, one for each question, at most 256.

    Only those of at most 2,000 values, without unlisted series, of which a response
    to another question may list one.
    """

    def __init__(self) -> None:
        self._owners: LeastRecentlyUsed[Hashable, Owner] = LeastRecentlyUsed(MAX_PANELS)
        self._last: Callable[[], _Kept | None] = lambda: None  # a weak reference to the one returned last

    def owner(self, question: Question, plan: Plan | None = None) -> Owner | None:
        """Return the owner of the panel of a question; None: none is kept, or it is not of the given plan."""
        owner = self._owners.get(question.key) if _can_be_kept(question) else None
        return None if owner is None or (plan and not _is_same(plan, owner.plan)) else owner

    def get(self, cache: Partition | None, owner: Owner | None, confirmed: datetime | None) -> Panel | None:
        """Return a kept panel, as of a confirmation of its publication; None: it is not kept any more.

        It is the same object as long as the confirmation is the same.
        """
        if cache is None or owner is None:
            return None
        catalogue, version = owner.plan.catalogue, owner.plan.question.value_version
        made = cache.made  # type: ignore[attr-defined]  # it has kept the panel
        kept: _Kept | None = made(catalogue.entity_id, catalogue.dataset_id, version, owner)
        if kept is None:
            return None
        if kept.panel.confirmed_at != confirmed:
            kept.panel = reconfirmed(kept.panel, confirmed)
        # What decoding keeps may be a hundred times as large as the values: for one kept panel at a time.
        if (last := self._last()) is not kept:
            if last is not None:
                release_decoded(last.panel)
            self._last = weakref.ref(kept)
        return kept.panel

    def put(self, cache: Partition | None, plan: Plan, panel: Panel, blocks: Iterable[Block]) -> None:
        """Keep the panel of a plan, made of these cached blocks, if it is one of those to keep."""
        # A user's own cache need not say when it drops blocks.
        keep_made = getattr(cache, "keep_made", None)
        if keep_made is None or panel.requests or panel.unlisted or not _can_be_kept(plan.question):
            return
        if not has_at_most(panel, MAX_VALUES):
            return
        owner, catalogue, version = Owner(plan), plan.catalogue, plan.question.value_version
        if keep_made(catalogue.entity_id, catalogue.dataset_id, version, owner, blocks, _Kept(panel)):
            self._owners.put(plan.question.key, owner)

    def drop(self, catalogue: Catalogue) -> None:
        """Drop the panels of a publication, given by its catalogue."""
        for key, owner in self._owners.items():
            if owner.plan.catalogue is catalogue:
                self._owners.pop(key)

    def clear(self) -> None:
        """Drop all panels."""
        for key in self._owners:
            self._owners.pop(key)


def _can_be_kept(question: Question) -> bool:
    # A predicate may depend on anything. With a Catalogue, and with `known_only`, other rules apply.
    return question.select.where is None and not question.known_only and isinstance(question.source, str)


def _is_same(one: Plan, other: Plan) -> bool:
    """Return whether plans of equal questions are of the same series and periods of one catalogue."""
    if one is other:
        return True
    same_catalogue = one.catalogue is other.catalogue
    return same_catalogue and one.series == other.series and one.periods == other.periods
