"""What the last response about an entity has shown, and when its request was sent.

Of two records the later one counts, and of two of the same moment the one that was made
last. So a response that is received late never overrules what a later request has
shown.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import frozen

from asyncfin.model.catalogue import is_same_publication

# How far the clocks of machines may differ. A record from further in the future counts
# as unknown.
FUTURE = timedelta(minutes=1)


@frozen
class EntityRecord:
    """The current publication of an entity, or the rejection of the last request.

    Attributes:
        sent: when the request was sent, aware UTC.
        dataset_id: the publication that the response was of, or that a 409 has
            rejected; None after a 403 or 404.
        status: 200, or the status of the rejection.
        token: of a 403, a digest of the token that was rejected.
    """

    sent: datetime
    dataset_id: str | None = None
    status: int = 200
    token: str = ""

    @property
    def current(self) -> str | None:
        """The current publication, or None after a rejection."""
        return self.dataset_id if self.status == 200 else None

    @property
    def is_rejection(self) -> bool:
        """Whether the entity was rejected as a whole (403, 404)."""
        return self.status in (403, 404)

    def names(self, dataset_id: str) -> bool:
        """Return whether this publication is the current one."""
        return self.current is not None and is_same_publication(
            self.current, dataset_id
        )

    def rules_out(self, dataset_id: str) -> bool:
        """Return whether a publication was replaced."""
        if self.dataset_id is None:
            return False
        is_same = is_same_publication(self.dataset_id, dataset_id)
        return is_same if self.status == 409 else not is_same

    def is_unknown(self, now: datetime) -> bool:
        """Return whether the record is from too far in the future."""
        return self.sent > now + FUTURE


def later(
    record: EntityRecord | None, other: EntityRecord | None, now: datetime
) -> EntityRecord | None:
    """Return the later of two records of an entity; `other` was made last."""
    records = [
        record for record in (record, other) if record and not record.is_unknown(now)
    ]
    if len(records) < 2:
        return records[0] if records else None
    first, last = records
    if last.status == 409 and first.dataset_id is not None:
        # That a publication was replaced shows nothing about another one.
        is_about_first = is_same_publication(first.dataset_id, last.dataset_id or "")
        if not is_about_first:
            return first
    return last if last.sent >= first.sent else first
