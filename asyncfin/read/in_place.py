"""Publications that were changed in place: the same `dataset_id` with a later `created_timestamp`.

Spec 9.2 forbids it. The aim is only that no old number stays for good, so it is noticed where metadata are
requested, and costs at most one further read.
"""

from __future__ import annotations

import logging
from datetime import datetime

from asyncfin.clock import utc_text
from asyncfin.errors import printable
from asyncfin.model.catalogue import Dataset, publication_id

_log = logging.getLogger("asyncfin")


class Heads:
    """The `created_timestamp` of each publication, in the heads of the responses that one read receives.

    If they differ, the timestamps of the entity show nothing: it is the time of the response, say.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], datetime | None] = {}

    def begin_to_differ(self, head: Dataset) -> bool:
        """Add a head, and return whether it is the first one that differs from those before it."""
        key, created = (head.entity_id, publication_id(head.dataset_id)), head.created_timestamp
        first = self._first.setdefault(key, created)
        if (
            first is None
            or first is created
            or first.replace(microsecond=0) == created.replace(microsecond=0)
        ):
            return False
        self._first[key] = None
        return True


def log_changed_in_place(known: datetime, current: Dataset) -> None:
    """Log that a publication was changed in place since the known `created_timestamp`."""
    _log.warning(
        "%s: publication %s was changed in place (%s -> %s); it is read again",
        printable(current.entity_id),
        printable(current.dataset_id),
        utc_text(known),
        utc_text(current.created_timestamp),
    )
