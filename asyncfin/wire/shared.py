"""Readings that callers share: whoever asks while one is under way waits for it instead of repeating it."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from asyncfin.wire.ending import end

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _Reading(Generic[T]):
    def __init__(self, task: "asyncio.Task[T]") -> None:
        self.task = task
        self.waiting = 0


class SharedReads(Generic[K, T]):
    """At most one reading a key. A caller that is cancelled leaves it to the others; the last one ends it."""

    def __init__(self) -> None:
        self._under_way: dict[K, _Reading[T]] = {}

    async def share(self, key: K, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the reading under way for this key gives; `read` begins one where there is none."""
        reading = self._under_way.get(key)
        if reading is None or reading.task.get_loop() is not asyncio.get_running_loop():
            reading = self._under_way[key] = _Reading(asyncio.create_task(read()))
        reading.waiting += 1
        try:
            return await asyncio.shield(reading.task)
        finally:
            reading.waiting -= 1
            if reading.task.done() or not reading.waiting:
                self._forget(key, reading)
            if not reading.task.done() and not reading.waiting:
                await end([reading.task])

    def _forget(self, key: K, reading: _Reading[T]) -> None:
        if self._under_way.get(key) is reading:
            del self._under_way[key]
