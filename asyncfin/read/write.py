"""Stores the series of a read's pages in the cache, together if they are received
within a moment.

A put is a file and a turn in a thread, whatever it holds: a put for each page would
take several times as long as compressing what the pages hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Self

from asyncfin.table.block import Block, nbytes
from asyncfin.tasks import wait_for_all

# What a process that is killed loses at most, apart from the current put.
_SECONDS = 0.25
_BYTES = 4 * 1024 * 1024


class CacheWriter:
    """Gathers blocks of one publication and value version, and puts them into a cache
    in a separate task.

    They are put a quarter of a second after the first of them was received, or as soon
    as they take 4 MiB. Leaving the `async with` block puts the rest and waits for that,
    also if the question fails or is cancelled. A put is never cancelled: its thread
    would go on, and what it stores would be put again.
    """

    def __init__(self, put: Callable[[tuple[Block, ...]], Awaitable[None]]) -> None:
        self._put = put
        self._gathered: list[Block] = []
        self._ended = False
        self._wanted = (
            asyncio.Event()
        )  # set while there is something to put, or no more will come
        self._due = asyncio.Event()  # set when the put should not wait for more
        self._idle = asyncio.Event()  # not set during a put
        self._idle.set()

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._ended = True
        self._wanted.set()
        self._due.set()
        await wait_for_all([self._writer])
        self._writer.result()

    async def add(self, blocks: Iterable[Block]) -> None:
        """Gather the blocks of a page, and wait for the current put."""
        self._gathered += blocks
        if self._gathered:
            self._wanted.set()
        if nbytes(self._gathered) > _BYTES:
            self._due.set()
        # Or more would be gathered than a slow disk takes.
        await self._idle.wait()

    async def _write(self) -> None:
        while not self._ended:
            await self._wanted.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS):
                    await self._due.wait()
            blocks, self._gathered = tuple(self._gathered), []
            self._wanted.clear()
            self._due.clear()
            if blocks:
                self._idle.clear()
                try:
                    await self._put(blocks)
                finally:
                    self._idle.set()
        if self._gathered:
            await self._put(tuple(self._gathered))
