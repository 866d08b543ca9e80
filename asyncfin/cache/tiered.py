"""A partition whose rows are outside the process, and which keeps in memory what was read of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeVar

from asyncfin.cache.codec import decode_blocks, decode_catalogue, encode_blocks, encode_catalogue
from asyncfin.cache.memory import CATALOGUE, Key, Memory, distinct
from asyncfin.cache.store import Pointer
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, packed

T = TypeVar("T")


class Rows(Protocol):
    """Where the rows of a partition are. A key names the entity, its publication, and what of it.

    What can't be read is as if it were not there, and what can't be stored is passed over.
    """

    async def pointer(self, entity_id: str, otherwise: Pointer | None) -> Pointer | None:
        """Return the pointer of an entity; `otherwise` where that can't be known."""
        ...

    async def put_pointer(self, entity_id: str, pointer: Pointer, now: datetime) -> None:
        """Store a pointer, if it replaces the one that is there."""
        ...

    async def forget(self, entity_id: str, dataset_id: str | None) -> bool:
        """Delete a pointer, if it names this publication (None: whatever it names); False if that failed."""
        ...

    async def bodies(
        self, key: tuple[str, str, str], known: Collection[int], now: datetime
    ) -> dict[int, bytes]:
        """Return the parts under a key whose ids are not known, each as it was stored."""
        ...

    async def put(
        self, key: tuple[str, str, str], body: bytes, series: int, now: datetime, *, alone: bool
    ) -> int | None:
        """Store a part and return its id, or None if it is not stored.

        Args:
            alone: whether it replaces all others under its key.
        """
        ...

    async def drop(self, key: tuple[str, str, str], part: int) -> None:
        """Delete a part that can't be read."""
        ...

    def failed(self, error: Exception) -> None:
        """Count that something could not be stored, and log the first time."""
        ...

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        """Hold off other processes, as `Partition.claim` says."""
        ...


class TieredPartition:
    """The partition of one account.

    Args:
        digest: what the account's data goes by in this process's memory.
        memory: holds what was read and stored, for all partitions of a cache.
        rows: where everything is.
        counted: called with the hits and misses that a client counts.
        clock: gives the wall time, aware UTC.
    """

    def __init__(
        self,
        digest: bytes,
        memory: Memory,
        rows: Rows,
        counted: Callable[[int, int], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._digest = digest
        self._memory = memory
        self._rows = rows
        self._counted = counted
        self._clock = clock
        self._forgotten: dict[str, datetime] = {}

    async def pointer(self, entity_id: str) -> Pointer | None:
        # Asked for each time: another process may have confirmed it, or found that it has changed.
        key = self._digest, entity_id
        pointer = await self._rows.pointer(entity_id, self._memory.pointer(key))
        forgotten = self._forgotten.get(entity_id)
        if pointer is None or (forgotten is not None and pointer.confirmed <= forgotten):
            self._memory.forget(key)
            return None
        self._memory.put_pointer(key, pointer, self._clock())
        return self._memory.pointer(key)  # which may be a later one than was stored

    async def put_pointer(self, entity_id: str, pointer: Pointer) -> None:
        now, key = self._clock(), (self._digest, entity_id)
        # It is stored already.
        if self._memory.pointer(key) == pointer:
            return
        self._memory.put_pointer(key, pointer, now)
        if self._memory.pointer(key) == pointer:
            self._forgotten.pop(entity_id, None)
        await self._rows.put_pointer(entity_id, pointer, now)

    async def forget(self, entity_id: str, dataset_id: str | None = None) -> None:
        self._memory.forget((self._digest, entity_id), dataset_id)
        # Until it is deleted, as on a full disk it can't be.
        self._forgotten[entity_id] = self._clock()
        if await self._rows.forget(entity_id, dataset_id):
            self._forgotten.pop(entity_id, None)

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        key = self._key(entity_id, dataset_id, CATALOGUE)
        if (kept := self._memory.catalogue(key)) is not None:
            return kept
        bodies = await self._rows.bodies(key[1:], (), self._clock())
        for part, body in bodies.items():
            if (catalogue := await self._decoded(decode_catalogue, key, part, body)) is not None:
                self._memory.put_catalogue(key, catalogue)
                return catalogue
        return None

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        key = self._key(catalogue.entity_id, catalogue.dataset_id, CATALOGUE)
        self._memory.put_catalogue(key, catalogue)
        if (body := await self._encoded(encode_catalogue, catalogue)) is not None:
            await self._rows.put(key[1:], body, 0, self._clock(), alone=True)

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        key = self._key(entity_id, dataset_id, value_version)
        # Series never change within a publication, so what is in memory needs no look at the rows.
        if wanted is not None and self._memory.has(key, wanted):
            return self._memory.blocks(key)
        found, parts = self._memory.blocks(key), self._memory.parts(key)
        known = {series_id for block in found for series_id in block.series_ids}
        bodies = await self._rows.bodies(key[1:], parts, self._clock())
        for part, body in bodies.items():
            new = distinct(await self._decoded(decode_blocks, key, part, body) or (), known)
            # Also where nothing is new: see `Memory.put_blocks`.
            self._memory.put_blocks(key, new, (part,))
            found += new
        return found

    async def put_blocks(
        self, entity_id: str, dataset_id: str, value_version: str, blocks: Iterable[Block]
    ) -> None:
        key = self._key(entity_id, dataset_id, value_version)
        if new := distinct(blocks, self._memory.series_ids(key)):
            part, series = None, sum(len(block.series_ids) for block in new)
            stored = await asyncio.to_thread(packed, new)
            if (body := await self._encoded(encode_blocks, stored)) is not None:
                part = await self._rows.put(key[1:], body, series, self._clock(), alone=False)
            kept = new if self._memory.has_room(new) else stored
            # Together: a part that is noted without its blocks would never be read again.
            self._memory.put_blocks(key, kept, () if part is None else (part,))

    async def _encoded(self, encode: Callable[[T], bytes], value: T) -> bytes | None:
        # In a thread, and not in that of a file, which is there for all who look something up.
        try:
            return await asyncio.to_thread(encode, value)
        except Exception as error:  # noqa: BLE001  an answer is never lost because it can't be stored
            self._rows.failed(error)
            return None

    async def _decoded(self, decode: Callable[[bytes], T], key: Key, part: int, body: bytes) -> T | None:
        try:
            return decode(body)
        except Exception:  # noqa: BLE001  the bytes that were stored, but not of this format
            await self._rows.drop(key[1:], part)
            return None

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        return self._rows.claim(entity_id)

    def count(self, *, hits: int, misses: int) -> None:
        self._counted(hits, misses)

    def _key(self, entity_id: str, dataset_id: str, kind: str) -> Key:
        return self._digest, entity_id, publication_id(dataset_id), kind
