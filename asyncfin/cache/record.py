"""What the last response about an entity has shown, and when its request was sent.

Of two records the later one counts, and of two of the same moment the one that was made
last. So a response that is received late never overrules what a later request has
shown.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import frozen

from asyncfin.model.catalogue import publication_id

# How far the clocks of machines may differ. A record from further in the future counts
# as unknown.
FUTURE = timedelta(minutes=1)


@frozen
class EntityRecord:
    """The current publication of an entity, or the rejection of the last request.

    Attributes:
        sent_at: when the request was sent, aware UTC.
        dataset_id: the publication that the response was of; None after a rejection.
        status: 200, or the status of the rejection: 404, or 403 to one token.
    """

    sent_at: datetime
    dataset_id: str | None = None
    status: int = 200

    def names(self, dataset_id: str) -> bool:
        """Return whether this publication is the current one."""
        if self.dataset_id is None:
            return False
        return publication_id(self.dataset_id) == publication_id(dataset_id)

    def rules_out(self, dataset_id: str) -> bool:
        """Return whether another publication is the current one."""
        return self.dataset_id is not None and not self.names(dataset_id)

    def is_unknown(self, now: datetime) -> bool:
        """Return whether the record is from too far in the future."""
        return self.sent_at > now + FUTURE


def later(
    record: EntityRecord | None, latest: EntityRecord | None, now: datetime
) -> EntityRecord | None:
    """Return the later of two records of an entity; `latest` was made last."""
    if record is not None and record.is_unknown(now):
        record = None
    if latest is None or latest.is_unknown(now):
        return record
    return latest if record is None or latest.sent_at >= record.sent_at else record
