"""Stores the series of a read's pages in the cache, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Self

from asyncfin.table.block import Block, nbytes
from asyncfin.tasks import finish

# A put is a file and a turn in a thread, whatever it holds: a put for each page would
# take multiple times as long as compressing the pages.
_BYTES = 4 * 1024 * 1024


class CacheWriter:
    """Gathers blocks of one publication and value version, and puts them into a cache.

    They are put as soon as they take 4 MiB. Leaving the `async with` block puts the
    others, also if the query fails or is cancelled. A put is never cancelled: its
    thread would go on, and its blocks would be put again.
    """

    def __init__(self, put: Callable[[tuple[Block, ...]], Awaitable[None]]) -> None:
        self._put = put
        self._gathered: list[Block] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await finish(self._flush())

    async def add(self, blocks: Iterable[Block]) -> None:
        """Gather the blocks of a page, and put all if they are many."""
        self._gathered += blocks
        if nbytes(self._gathered) > _BYTES:
            await finish(self._flush())

    async def _flush(self) -> None:
        blocks, self._gathered = tuple(self._gathered), []
        if blocks:
            await self._put(blocks)
