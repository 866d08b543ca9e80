"""Publications kept in memory, for as long as the process lasts."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeAlias

from attrs import Factory, define

from asyncfin import checks
from asyncfin.cache.record import EntityRecord, Pointer, Rule
from asyncfin.cache.store import CacheStats, Partition, partition_key
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, nbytes, packed, without
from asyncfin.wire.protocol import check_entity_id
from asyncfin.wire.token import TokenSource

MiB = 1024 * 1024
# Blocks are kept as they come until this share of the memory is used, and compressed from then on.
_AS_THEY_COME = 0.25

# Of an entity of an account: its publication, and what of it (the catalogue, or a value version).
Key: TypeAlias = tuple[bytes, str, str, str]
CATALOGUE = "catalogue"
# Of an account: an entity.
EntityKey: TypeAlias = tuple[bytes, str]


_NOTHING = EntityRecord()


@define(eq=False)
class _Kept:
    """What is kept under one key: a catalogue, or the blocks of one value version."""

    bytes: int = 0
    catalogue: Catalogue | None = None
    blocks: tuple[Block, ...] = ()
    series_ids: set[str] = Factory(set)
    parts: set[int] = Factory(set)  # which parts of a file the blocks are from


class Memory:
    """Records, and catalogues and blocks within a bound, by key; for any number of threads.

    When it is full, publications that are no longer the current ones go first, then the least recently used.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()
        self._records: dict[EntityKey, EntityRecord] = {}

    def record(self, key: EntityKey) -> EntityRecord:
        with self._lock:
            return self._records.get(key, _NOTHING)

    def change(self, key: EntityKey, rule: Rule) -> EntityRecord:
        """Apply what a response has shown to the record of an entity, and return it."""
        with self._lock:
            known = self._records.get(key, _NOTHING)
            if (record := rule(known)) is not known:
                self._records[key] = record
            return record

    def catalogue(self, key: Key) -> Catalogue | None:
        with self._lock:
            kept = self._used(key)
            return kept.catalogue if kept else None

    def blocks(self, key: Key) -> tuple[Block, ...]:
        with self._lock:
            kept = self._used(key)
            return kept.blocks if kept else ()

    def series_ids(self, key: Key) -> set[str]:
        """Return the series of a key's blocks."""
        with self._lock:
            return set(self._kept[key].series_ids) if key in self._kept else set()

    def has(self, key: Key, series_ids: Iterable[str]) -> bool:
        """Return whether all of these series are among the blocks of a key."""
        with self._lock:
            return key in self._kept and self._kept[key].series_ids.issuperset(series_ids)

    def parts(self, key: Key) -> frozenset[int]:
        """Return which parts of a file the blocks of a key are from."""
        with self._lock:
            return frozenset(self._kept[key].parts) if key in self._kept else frozenset()

    def put_catalogue(self, key: Key, catalogue: Catalogue) -> None:
        size = _catalogue_bytes(catalogue)
        with self._lock:
            self._drop(key)
            self._kept[key] = _Kept(size, catalogue)
            self._bytes += size
            self._evict()

    def has_room(self, blocks: Iterable[Block]) -> bool:
        """Return whether blocks may be kept as they came: while somebody has the answer, they are its own."""
        return self._bytes + nbytes(blocks) <= self._max_bytes * _AS_THEY_COME

    def put_blocks(self, key: Key, blocks: Iterable[Block], parts: Iterable[int] = ()) -> None:
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
            # Noted even where the blocks bring nothing new: a part that was read is not read again.
            kept.parts.update(parts)
            new = distinct(blocks, kept.series_ids)
            size = nbytes(new)
            kept.blocks += new
            kept.bytes += size
            self._bytes += size
            self._kept.move_to_end(key)
            self._evict()

    def clear(self, entity_id: str | None) -> None:
        with self._lock:
            for key in [key for key in self._kept if entity_id in (None, key[1])]:
                self._drop(key)
            for entity in [key for key in self._records if entity_id in (None, key[1])]:
                del self._records[entity]

    def held(self) -> tuple[int, int]:
        """Return the number of series, and the bytes."""
        with self._lock:
            return sum(len(kept.series_ids) for kept in self._kept.values()), self._bytes

    def _used(self, key: Key) -> _Kept | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def _drop(self, key: Key) -> None:
        if kept := self._kept.pop(key, None):
            self._bytes -= kept.bytes

    def _evict(self) -> None:
        if self._bytes <= self._max_bytes:
            return
        superseded = [key for key in self._kept if self._records.get(key[:2], _NOTHING).rules_out(key[2])]
        for key in superseded + list(self._kept):
            if self._bytes <= self._max_bytes:
                return
            self._drop(key)


def distinct(blocks: Iterable[Block], known: set[str]) -> tuple[Block, ...]:
    """Return the blocks without the series that are known, and make theirs known."""
    found = []
    for block in blocks:
        if known.isdisjoint(block.series_ids):
            found.append(block)
        elif rest := without(block, known):
            found.append(rest)
        known.update(block.series_ids)
    return tuple(found)


class MemoryCache:
    """Keeps publications in memory.

    The clients of one process may share it, in any event loops and threads.

    Args:
        max_bytes: the limit of what is kept. Pages are kept as they came until a quarter of it is used, and
            compressed from then on; a value then takes about 33 bytes. Publications that are no longer
            current are evicted first, then what was used least recently.
        account: the name of the account: clients with the same base URL and account share what is read.
            None: clients with the same token, or the same token callable, share it. The cache keeps each
            callable for as long as itself, so one made for every client needs an account.

    Raises:
        ArgumentError: an argument is not as described.
    """

    def __init__(
        self,
        max_bytes: int = 64 * MiB,
        *,
        account: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._memory = Memory(checks.positive_int("max_bytes", max_bytes))
        self._account = checks.text().optional()("account", account)
        self._clock = checks.plain_callable("clock", clock)
        self._secret = secrets.token_bytes(32)
        self._callables: dict[Hashable, bytes] = {}
        self._partitions: dict[bytes, _MemoryPartition] = {}
        self._hits = self._misses = 0

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<MemoryCache: {stats.series:,} series, {stats.bytes:,} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError("a MemoryCache cannot be pickled: it belongs to its process")

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        """Return the part of the cache that a client sees."""
        key = partition_key(base_url, *self._whose(token))
        if key not in self._partitions:
            self._partitions[key] = _MemoryPartition(self, self._memory, key, self._clock)
        return self._partitions[key]

    def _whose(self, token: TokenSource) -> tuple[str, bytes]:
        if self._account is not None:
            return "account", self._account.encode()
        if isinstance(token, str):
            # Keyed by what only this process knows: the digest gives nothing away where it is printed.
            return "token", blake2b(token.encode(), key=self._secret).digest()
        try:
            hash(token)
        except TypeError:
            raise ArgumentError(
                "account must name the account of a token callable that can't be hashed:"
                " MemoryCache(account=...)"
            ) from None
        # By the callable itself: what it will return is not known, and may change.
        return "callable", self._callables.setdefault(token, len(self._callables).to_bytes(8, "big"))

    def stats(self) -> CacheStats:
        """Return what the cache holds and has done."""
        return CacheStats(*self._memory.held(), self._hits, self._misses, 0)

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is kept of an entity, or everything, of all accounts.

        Raises:
            SelectionError: the text cannot be an entity id.
        """
        if entity_id is not None:
            check_entity_id(entity_id)
        self._memory.clear(entity_id)

    async def aclose(self) -> None:
        """Forget everything; the cache can be used again."""
        self._memory.clear(None)


class _MemoryPartition:
    def __init__(self, cache: MemoryCache, memory: Memory, key: bytes, clock: Callable[[], datetime]) -> None:
        self._cache = cache
        self._memory = memory
        self._key = key
        self._clock = clock

    async def record(self, entity_id: str) -> EntityRecord:
        now = self._clock()
        return self._memory.change((self._key, entity_id), lambda known: known.clipped(now))

    async def confirm(self, entity_id: str, pointer: Pointer) -> EntityRecord:
        now = self._clock()
        return self._memory.change((self._key, entity_id), lambda known: known.confirm(pointer, now))

    async def replace(self, entity_id: str, dataset_id: str) -> None:
        now = self._clock()
        self._memory.change((self._key, entity_id), lambda known: known.replace(dataset_id, now))

    async def refuse(self, entity_id: str) -> None:
        now = self._clock()
        self._memory.change((self._key, entity_id), lambda known: known.refuse(now))

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        return self._memory.catalogue((self._key, entity_id, publication_id(dataset_id), CATALOGUE))

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        key = (self._key, catalogue.entity_id, publication_id(catalogue.dataset_id), CATALOGUE)
        self._memory.put_catalogue(key, catalogue)

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        return self._memory.blocks((self._key, entity_id, publication_id(dataset_id), value_version))

    async def put_blocks(
        self, entity_id: str, dataset_id: str, value_version: str, blocks: Iterable[Block]
    ) -> None:
        put = tuple(blocks)
        if not self._memory.has_room(put):
            # In a thread, for it takes a millisecond a megabyte.
            put = await asyncio.to_thread(packed, put)
        self._memory.put_blocks((self._key, entity_id, publication_id(dataset_id), value_version), put)

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        yield  # nobody else sees this memory

    def count(self, *, hits: int, misses: int) -> None:
        self._cache._hits += hits
        self._cache._misses += misses


def _catalogue_bytes(catalogue: Catalogue) -> int:
    """Return about how much memory a catalogue takes."""
    texts = sum(len(each.label) + len(each.description) for each in catalogue.series)
    return 1_000 + texts + 600 * len(catalogue.series) + 100 * len(catalogue.periods)
