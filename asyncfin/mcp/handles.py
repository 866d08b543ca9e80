"""Short names of series, valid for one session: `r1`, `r2`, ..."""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock

from attrs import frozen

from asyncfin.model.scope import ScopePath

# Sessions whose handles are kept; the least recently used are dropped beyond it.
MAX_SESSIONS = 1_000
_HANDLE = re.compile(r"r[1-9]\d*", re.ASCII)


@frozen
class Meaning:
    """What a handle means, in every company and publication: a metric and a scope
    path.
    """

    metric_id: str
    scopes: ScopePath


class Handles:
    """The handles of one session. A handle keeps its meaning.

    Args:
        given: how many handles were given out before.
    """

    def __init__(self, given: int = 0) -> None:
        self._first = given + 1
        self._meanings: list[Meaning] = []
        self._handles: dict[Meaning, str] = {}
        # Rows are made in threads, and a session may have several calls at once.
        self._lock = Lock()

    @property
    def given(self) -> int:
        """The number of the last handle."""
        return self._first + len(self._meanings) - 1

    def of(self, meaning: Meaning) -> str:
        """Return the handle of a metric and path, a new one if it has none."""
        with self._lock:
            if (handle := self._handles.get(meaning)) is None:
                self._meanings.append(meaning)
                handle = self._handles[meaning] = f"r{self.given}"
        return handle

    def meaning(self, handle: str) -> Meaning | None:
        """Return what a handle means; None if this session has not given it out."""
        place = int(handle[1:]) - self._first if is_handle(handle) else -1
        return self._meanings[place] if 0 <= place < len(self._meanings) else None


def is_handle(text: str) -> bool:
    """Return whether a text has the form of a handle."""
    return len(text) < 20 and _HANDLE.fullmatch(text) is not None


class Sessions:
    """The handles of the sessions of one server, by session id; over stdio there is one
    session, None.
    """

    def __init__(self) -> None:
        self._sessions: OrderedDict[str | None, Handles] = OrderedDict()
        self._dropped = (
            0  # the highest number in a dropped session, which may still be open
        )

    def of(self, session_id: str | None) -> Handles:
        """Return the handles of a session."""
        handles = self._sessions.setdefault(session_id, Handles(self._dropped))
        self._sessions.move_to_end(session_id)
        if len(self._sessions) > MAX_SESSIONS:
            _, dropped = self._sessions.popitem(last=False)
            self._dropped = max(self._dropped, dropped.given)
        return handles
