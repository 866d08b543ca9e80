"""What the clients of an account know of an entity: which publication is current, and whether it was refused.

The rules are here, without I/O; caches apply them to what they store. A confirmation proves something about
the moment at which its request was sent, a refusal about the one at which it arrived. So a late response
never overrules what a later request has shown.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeAlias

from attrs import evolve, frozen

from asyncfin.clock import EPOCH
from asyncfin.model.catalogue import is_same_publication


@frozen
class Pointer:
    """Which publication of an entity was the current one, and when that was last known."""

    dataset_id: str
    confirmed: datetime  # aware UTC; when the request was sent that confirmed it

    def names(self, dataset_id: str) -> bool:
        """Return whether it names this publication."""
        return is_same_publication(self.dataset_id, dataset_id)


@frozen
class EntityRecord:
    """What responses have shown of an entity."""

    pointer: Pointer | None = None  # the publication that was last confirmed as the current one
    replaced: datetime | None = None  # when a response arrived that refused `pointer` as no longer current
    # When a 403 or 404 arrived that no later request has lifted; then the pointer is None.
    refused: datetime | None = None

    @property
    def current(self) -> Pointer | None:
        """The publication that counts as the current one; None: unknown, replaced or refused."""
        return None if self.replaced else self.pointer

    def rules_out(self, dataset_id: str) -> bool:
        """Return whether a publication was replaced, as far as is known."""
        if self.pointer is None:
            return False
        return self.replaced is not None if self.pointer.names(dataset_id) else self.replaced is None

    def clipped(self, now: datetime) -> EntityRecord:
        """Return the record with times in the future counted as now: after the clock was set back."""
        if self.replaced is None and self.refused is None:
            return self
        if max(self.replaced or now, self.refused or now) <= now:
            return self
        replaced, refused = (moment and min(moment, now) for moment in (self.replaced, self.refused))
        return evolve(self, replaced=replaced, refused=refused)

    def confirm(self, pointer: Pointer, now: datetime) -> EntityRecord:
        """Return the record after a confirmation; unchanged if a later request has shown otherwise."""
        record = self.clipped(now)
        if record.refused is not None and pointer.confirmed < record.refused:
            return record
        known = record.pointer
        if known is not None and known.confirmed <= now:
            if pointer.confirmed < known.confirmed:
                return record
            if record.replaced is not None and known.names(pointer.dataset_id):
                return record if pointer.confirmed < record.replaced else record._with(pointer)
        return record._with(pointer)

    def as_replaced(self, dataset_id: str, arrived: datetime) -> EntityRecord:
        """Return the record after a response that refused a publication as no longer current."""
        if self.pointer is None and self.refused is None:
            return self._with(Pointer(dataset_id, EPOCH), replaced=arrived)
        if self.pointer is None or not self.pointer.names(dataset_id):
            return self  # another publication was confirmed since
        return evolve(self, replaced=max(arrived, self.replaced or arrived))

    def as_refused(self, arrived: datetime) -> EntityRecord:
        """Return the record after a response that refused the entity (403, 404)."""
        return self._with(None, refused=max(arrived, self.refused or arrived))

    def _with(
        self, pointer: Pointer | None, *, replaced: datetime | None = None, refused: datetime | None = None
    ) -> EntityRecord:
        return EntityRecord(pointer, replaced, refused)

    def merged(self, other: EntityRecord, now: datetime) -> EntityRecord:
        """Return the record after what another one of the same entity has recorded."""
        record = self
        if other.pointer is not None:
            record = record.confirm(other.pointer, now)
            if other.replaced is not None:
                record = record.as_replaced(other.pointer.dataset_id, other.replaced)
        known = record.current
        lifted = known is not None and other.refused is not None and other.refused < known.confirmed <= now
        return record if other.refused is None or lifted else record.as_refused(other.refused)


# What a response makes of a record.
RecordRule: TypeAlias = Callable[[EntityRecord], EntityRecord]
