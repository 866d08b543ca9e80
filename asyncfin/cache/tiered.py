"""A partition whose rows are outside the process, and which keeps in memory what was read of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, TypeVar

from attrs import frozen

from asyncfin.cache.base import (
    CATALOGUE,
    MAX_RECORDS,
    Key,
    LeastRecentlyUsed,
    MiB,
    ProcessCache,
    Recorder,
    distinct,
)
from asyncfin.cache.codec import decode_blocks, decode_catalogue, encode_blocks, encode_catalogue
from asyncfin.cache.record import EntityRecord, Rule
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, compressed

# What was read from the rows, or put into them, is kept decoded up to this much.
_MEMORY_BYTES = 64 * MiB

T = TypeVar("T")


@frozen
class Stored:
    """A record as it is stored; `version` differs once another process has changed it."""

    record: EntityRecord
    version: Hashable


class Rows(Protocol):
    """Where the rows of a partition are. A key names the entity, its publication, and what of it."""

    async def version(self, entity_id: str) -> Hashable:
        """Return what differs once another process has changed an entity's record; None: unreadable."""
        ...

    async def record(self, entity_id: str) -> Stored | None:
        """Return the record of an entity; None: it cannot be read."""
        ...

    async def change(self, entity_id: str, rule: Rule) -> Stored | None:
        """Apply what a response has shown to the record of an entity; None: it is not stored."""
        ...

    async def bodies(
        self, key: tuple[str, str, str], known: Collection[Hashable], now: datetime
    ) -> dict[Hashable, bytes]:
        """Return the parts under a key whose ids are not known, verified: corrupt ones are dropped."""
        ...

    async def put(
        self, key: tuple[str, str, str], body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        """Store a part, in place of all others under its key if it is `alone`; return its id, or None."""
        ...

    async def drop_corrupt(self, key: tuple[str, str, str], part: Hashable) -> None:
        """Count and delete a part that is not what was stored."""
        ...

    def failed(self, error: Exception) -> None:
        """Count that something could not be stored, and log the first time."""
        ...

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        """Make other processes wait, as `Partition.claim` says."""
        ...


class TieredPartition(Recorder):
    """The partition of one account.

    Its data is in `rows`, and goes by `digest` in the memory that all partitions of a cache share.
    """

    def __init__(self, cache: ProcessCache, digest: bytes, rows: Rows) -> None:
        super().__init__(cache._clock)
        self._cache, self._memory = cache, cache._memory
        self._digest = digest
        self._rows = rows
        # Records as they were last read or stored, and what responses have shown that is not stored yet.
        self._stored: LeastRecentlyUsed[str, Stored] = LeastRecentlyUsed(MAX_RECORDS)
        self._unstored: LeastRecentlyUsed[str, EntityRecord] = LeastRecentlyUsed(MAX_RECORDS)

    async def record(self, entity_id: str) -> EntityRecord | None:
        version, stored = await self._rows.version(entity_id), self._stored.get(entity_id)
        if version is None or stored is None or stored.version != version:
            stored = await self._rows.record(entity_id)
        if stored is None:
            return None
        now = self._clock()
        unstored = self._unstored.get(entity_id) or EntityRecord()
        # Clipped in the store too, or no later request could lift a refusal of the future.
        if stored.record.clipped(now).merged(unstored, now) != stored.record:
            stored = await self._store(entity_id, unstored, now) or stored
        return self._known(entity_id, stored, now)

    async def _change(self, entity_id: str, rule: Rule) -> EntityRecord | None:
        # Noted first: it applies while it is being stored, and if that fails.
        noted = rule(self._unstored.get(entity_id) or EntityRecord())
        self._unstored.put(entity_id, noted)
        now = self._clock()
        stored = await self._store(entity_id, noted, now) or await self._rows.record(entity_id)
        return None if stored is None else self._known(entity_id, stored, now)

    async def _store(self, entity_id: str, noted: EntityRecord, now: datetime) -> Stored | None:
        stored = await self._rows.change(entity_id, lambda known: known.clipped(now).merged(noted, now))
        if stored is not None and self._unstored.get(entity_id) is noted:
            self._unstored.pop(entity_id)
        return stored

    def _known(self, entity_id: str, stored: Stored, now: datetime) -> EntityRecord:
        self._stored.put(entity_id, stored)
        record = stored.record.merged(self._unstored.get(entity_id) or EntityRecord(), now)
        # Memory evicts by it: superseded publications first.
        self._memory.change((self._digest, entity_id), lambda _: record)
        return record

    def clear(self, entity_id: str | None) -> None:
        """Drop what is known of an entity, or everything; the rows stay."""
        for known in (self._stored, self._unstored):
            for each in [each for each in known if entity_id in (None, each)]:
                known.pop(each)

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        key = self._key(entity_id, dataset_id, CATALOGUE)
        if (kept := self._memory.catalogue(key)) is not None:
            if self._memory.has_unstored(key) and await self._can_store(entity_id):
                await self.put_catalogue(kept)
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
            part = await self._rows.put(key[1:], body, 0, self._clock(), alone=True)
            if part is None:
                self._memory.add_unstored(key, {CATALOGUE})

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        key = self._key(entity_id, dataset_id, value_version)
        if self._memory.has_unstored(key) and await self._can_store(entity_id):
            await self._store_blocks(key)
        if self._memory.has_unstored(self._key(entity_id, dataset_id, CATALOGUE)):
            await self.catalogue(entity_id, dataset_id)  # it is used too, but clients keep it
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
            stored = await asyncio.to_thread(compressed, new)
            parts, unstored = await self._put(key, stored)
            kept = new if self._memory.has_room(new) else stored
            # Together: a part that is noted without its blocks would never be read again.
            self._memory.put_blocks(key, kept, parts)
            self._memory.add_unstored(key, unstored)

    async def _put(self, key: Key, blocks: tuple[Block, ...]) -> tuple[tuple[Hashable, ...], set[str]]:
        """Store blocks, and return the id of their part, or the ids of the series if that failed."""
        series_ids = {series_id for block in blocks for series_id in block.series_ids}
        if (body := await self._encoded(encode_blocks, blocks)) is None:
            return (), set()
        part = await self._rows.put(key[1:], body, len(series_ids), self._clock(), alone=False)
        return ((), series_ids) if part is None else ((part,), set())

    async def _store_blocks(self, key: Key) -> None:
        """Store what memory still has of the blocks that could not be stored."""
        series_ids = self._memory.take_unstored(key)
        blocks = [each for each in self._memory.blocks(key) if not series_ids.isdisjoint(each.series_ids)]
        if blocks:
            try:
                parts, unstored = await self._put(key, await asyncio.to_thread(compressed, blocks))
            except BaseException:
                self._memory.add_unstored(key, series_ids)  # cancelled: to be stored when next used
                raise
            # With the blocks: memory may have dropped them during the wait.
            self._memory.put_blocks(key, blocks, parts)
            self._memory.add_unstored(key, unstored)

    async def _can_store(self, entity_id: str) -> bool:
        # Encoding takes longer than finding out whether the store is there.
        return await self._rows.version(entity_id) is not None

    async def _encoded(self, encode: Callable[[T], bytes], value: T) -> bytes | None:
        # In another thread than that of the file, for which every read waits.
        try:
            return await asyncio.to_thread(encode, value)
        except Exception as error:  # noqa: BLE001  a result is never lost because it can't be stored
            self._rows.failed(error)
            return None

    async def _decoded(self, decode: Callable[[bytes], T], key: Key, part: Hashable, body: bytes) -> T | None:
        try:
            return decode(body)
        except Exception:  # noqa: BLE001  verified, but not of this format
            await self._rows.drop_corrupt(key[1:], part)
            return None

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        return self._rows.claim(entity_id)

    def count(self, *, hits: int, misses: int) -> None:
        self._cache.count(hits, misses)

    def _key(self, entity_id: str, dataset_id: str, kind: str) -> Key:
        return self._digest, entity_id, publication_id(dataset_id), kind


class TieredCache(ProcessCache):
    """A cache whose rows are outside the process."""

    def __init__(self, max_bytes: int, clock: Callable[[], datetime]) -> None:
        super().__init__(min(_MEMORY_BYTES, max_bytes), clock)
        self._partitions: dict[bytes, TieredPartition] = {}

    def _partition(self, digest: bytes, rows: Callable[[], Rows]) -> TieredPartition:
        """Return the partition of an account; `rows` makes its rows."""
        if digest not in self._partitions:
            self._partitions[digest] = TieredPartition(self, digest, rows())
        return self._partitions[digest]

    def _clear_memory(self, entity_id: str | None) -> None:
        self._memory.clear(entity_id)
        for partition in self._partitions.values():
            partition.clear(entity_id)
