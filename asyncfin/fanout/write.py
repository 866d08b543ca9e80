"""Puts what the pages of a read bring into the cache, those that come within a moment together.

For a file a put is a transaction and two turns in threads, whatever it holds: a put for each page would take
several times as long as compressing what the pages hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from asyncfin.table.block import Block

# What a process that is killed loses at most, beside what it is just writing.
_SECONDS = 0.25


class CacheWriter:
    """Gathers blocks of one publication and value version, and puts them into a cache.

    Nobody waits in the background: the page that comes first after a quarter of a second has all written that
    came so far, and the reader does at the end, also where the question fails.

    Args:
        put: puts blocks into the cache.
    """

    def __init__(self, put: Callable[[tuple[Block, ...]], Awaitable[None]]) -> None:
        self._put = put
        self._gathered: list[Block] = []
        self._loop = asyncio.get_running_loop()
        self._written = self._loop.time()
        # Those who bring more meanwhile wait too, so that a slow disk bounds what is gathered.
        self._lock = asyncio.Lock()

    async def add(self, blocks: Iterable[Block]) -> None:
        """Gather what a page has brought, and write all if it is time."""
        self._gathered += blocks
        if self._loop.time() - self._written >= _SECONDS:
            await self.flush()

    async def flush(self) -> None:
        """Write all that was gathered."""
        async with self._lock:
            if blocks := tuple(self._gathered):
                await self._put(blocks)
                # Not before: what one who is cancelled has not written, the next one writes.
                del self._gathered[: len(blocks)]
            self._written = self._loop.time()
