"""Who is next of those that wait for a bucket: first come, first served in a lane, and lanes take turns."""

from __future__ import annotations

import asyncio
from collections import deque

from asyncfin.errors import AllowanceExhaustedError
from asyncfin.model.query import Lane

# While both lanes wait, bulk gets one grant after this many to interactive.
_BULK_TURN = 9


class Waiter:
    """One call of `acquire` or `rest`; its verdict is the loop time of the grant, or why there is none."""

    def __init__(self, weight: float, verdict: asyncio.Future[float | AllowanceExhaustedError]) -> None:
        self.weight = weight
        self.verdict = verdict


class Lanes:
    """The queues of a bucket. `queues` has each lane's, the one that goes before first."""

    def __init__(self) -> None:
        self._interactive: deque[Waiter] = deque()
        self._bulk: deque[Waiter] = deque()
        self.queues: dict[Lane, deque[Waiter]] = {"interactive": self._interactive, "bulk": self._bulk}
        self._passed = 0  # grants to interactive while bulk waited

    def next(self) -> deque[Waiter] | None:
        """Return the lane whose head is next; heads cancelled in this turn of the loop are gone."""
        for queue in self.queues.values():
            while queue and queue[0].verdict.cancelled():
                queue.popleft()
        if self._bulk and (not self._interactive or self._passed >= _BULK_TURN):
            return self._bulk
        return self._interactive or None

    def pop(self, queue: deque[Waiter]) -> None:
        """Take the head out of the lane that `next` returned: it has its turn."""
        queue.popleft()
        self._passed = self._passed + 1 if self._bulk and queue is self._interactive else 0

    def clear(self) -> None:
        """Forget all who wait."""
        for queue in self.queues.values():
            queue.clear()
