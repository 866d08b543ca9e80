"""What caches have in common: memory within a bound, and an account's part."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from threading import RLock
from typing import Generic, TypeAlias, TypeVar

from attrs import evolve, frozen

from asyncfin import checks
from asyncfin.cache.record import EntityRecord, later
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, compressed, drop_series, nbytes
from asyncfin.wire.token import TokenSource

MiB = 1024 * 1024
# Blocks stay as received until this share of the memory is used, and are compressed
# from then on.
_UNCOMPRESSED_SHARE = 0.25
# Records are dropped beyond this: a program may read any number of entities.
MAX_RECORDS = 100_000

# Account, entity, publication, and which part of it: the catalogue, or a value version.
Key: TypeAlias = tuple[bytes, str, str, str]
CATALOGUE = "catalogue"
# Account, entity, and the digest of a token if only its clients see the record.
RecordKey: TypeAlias = tuple[bytes, str, str]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecentlyUsed(Generic[K, V]):
    """Values by key, of which the least recently used are evicted beyond a bound.

    For any number of threads. Those whose key is `superseded` are evicted first. The
    last one stored stays, whatever its size; an empty one has size 1. `dropped` is
    called with each value that is evicted, replaced or removed.
    """

    def __init__(
        self,
        bound: float,
        size: Callable[[V], int] = lambda value: 1,
        *,
        superseded: Callable[[K], bool] | None = None,
        dropped: Callable[[V], object] = lambda value: None,
    ) -> None:
        self._bound = bound
        self._size = size
        self._superseded = superseded
        self._dropped = dropped
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = RLock()
        self.total = 0

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.items())

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and values, which does not count as a use of them."""
        with self._lock:
            return [(key, value) for key, (value, _) in self._entries.items()]

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as its use, or None if there is
        none.
        """
        try:
            self._entries.move_to_end(key)
            return self._entries[key][0]
        except KeyError:  # in between too: another thread may have evicted it
            return None

    def put(self, key: K, value: V) -> None:
        """Store the value of a key, in place of the one it had."""
        size = max(1, self._size(value))  # so that no number of empty ones stays
        with self._lock:
            self.pop(key)
            self._entries[key] = value, size
            self.total += size
            if self.total > self._bound:
                self._evict()

    def pop(self, key: K) -> None:
        """Drop a key."""
        with self._lock:
            if key in self._entries:
                value, size = self._entries.pop(key)
                self.total -= size
                self._dropped(value)

    def _evict(self) -> None:
        if self._superseded is not None:
            *others, _ = self._entries
            for key in filter(self._superseded, others):
                if self.total <= self._bound:
                    return
                self.pop(key)
        while self.total > self._bound and len(self._entries) > 1:
            self.pop(next(iter(self._entries)))


@frozen(eq=False)
class Entry:
    """What memory has under one key: a catalogue, or the blocks of one value
    version.
    """

    bytes: int = 0
    catalogue: Catalogue | None = None
    blocks: tuple[Block, ...] = ()
    series_ids: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()  # which parts of a store the blocks are from


class Memory:
    """Records, and catalogues and blocks within a bound, by key; for any number of
    threads.

    When it is full, publications that are no longer the current ones go first, then the
    least recently used.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: LeastRecentlyUsed[Key, Entry] = LeastRecentlyUsed(
            max_bytes, lambda entry: entry.bytes, superseded=self._is_superseded
        )
        self._lock = RLock()
        self.records: LeastRecentlyUsed[RecordKey, EntityRecord] = LeastRecentlyUsed(
            MAX_RECORDS
        )

    def observe(self, key: RecordKey, record: EntityRecord, now: datetime) -> None:
        """Record what a response has shown of an entity."""
        with self._lock:
            latest = later(self.records.get(key), record, now)
            if latest is not None:
                self.records.put(key, latest)

    def get(self, key: Key) -> Entry:
        """Return what is cached under a key, perhaps nothing."""
        return self._entries.get(key) or Entry()

    def put_catalogue(self, key: Key, catalogue: Catalogue) -> None:
        """Store a catalogue."""
        texts = sum(
            len(series.label) + len(series.description) for series in catalogue.series
        )
        size = (
            1_000 + texts + 600 * len(catalogue.series) + 100 * len(catalogue.periods)
        )
        self._put(key, Entry(size, catalogue))

    def has_room(self, blocks: Iterable[Block]) -> bool:
        """Return whether blocks may stay as received: they are shared with the caller's
        panel.
        """
        return (
            self._entries.total + nbytes(blocks)
            <= self._max_bytes * _UNCOMPRESSED_SHARE
        )

    def put_blocks(
        self, key: Key, blocks: Iterable[Block], parts: Iterable[str] = ()
    ) -> None:
        """Add blocks; series that are cached stay as they are."""
        with self._lock:
            entry = self.get(key)
            series_ids = set(entry.series_ids)
            added = distinct(blocks, series_ids)
            entry = evolve(
                entry,
                bytes=entry.bytes + nbytes(added),
                blocks=entry.blocks + added,
                series_ids=frozenset(series_ids),
                # Also if nothing was added: a part that was read is not read again.
                parts=entry.parts.union(parts),
            )
            self._put(key, entry)

    def clear(self, entity_id: str | None) -> None:
        """Drop an entity, or everything."""
        drop_entity(self._entries, entity_id)
        drop_entity(self.records, entity_id)

    def count(self) -> tuple[int, int]:
        """Return the number of series, and the bytes."""
        entries = [entry for _, entry in self._entries.items()]
        return sum(len(entry.series_ids) for entry in entries), sum(
            entry.bytes for entry in entries
        )

    def _put(self, key: Key, entry: Entry) -> None:
        if entry.bytes > self._max_bytes:  # it would evict everything
            self._entries.pop(key)
        else:
            self._entries.put(key, entry)

    def _is_superseded(self, key: Key) -> bool:
        account, entity_id, publication, _ = key
        record = self.records.get((account, entity_id, ""))
        return record is not None and record.rules_out(publication)


def drop_entity(cached: LeastRecentlyUsed[K, V], entity_id: str | None) -> None:
    """Drop the keys of an entity, which is the second part of each, or all."""
    for key in cached:
        if entity_id in (None, key[1]):  # type: ignore[index]
            cached.pop(key)


def distinct(blocks: Iterable[Block], series_ids: set[str]) -> tuple[Block, ...]:
    """Return the blocks without some series, and add theirs to these."""
    others = []
    for block in blocks:
        part = (
            drop_series(block, series_ids)
            if series_ids.intersection(block.series_ids)
            else block
        )
        if part is not None:
            others.append(part)
        series_ids.update(block.series_ids)
    return tuple(others)


@frozen
class CacheStats:
    """What a cache holds and has done.

    Attributes:
        series: how many series it holds, each with all its periods; one for each value
            version.
        bytes: their size and that of the catalogues.
        hits: wanted series that were cached, since the cache was created.
        misses: wanted series that had to be requested.
        broken: how many parts were damaged or could not be encoded, and how often the
            disk or server could not be used.
    """

    series: int
    bytes: int
    hits: int
    misses: int
    broken: int


class Cache:
    """What `MemoryCache`, `FileCache` and `RedisCache` have in common.

    A publication never changes, so what was read of it stays true; only which
    publication is current has to be confirmed. So a cache has three things: for each
    entity an `EntityRecord`, which names it; catalogues; and the values of a
    publication, in the blocks in which they were received, each series with all its
    periods. What a cache cannot store or read counts as not cached.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], datetime]) -> None:
        self._memory = Memory(max_bytes)
        self._clock = checks.plain_callable("clock", clock)
        self._hits = self._misses = self._broken = 0

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        """Return the part of the cache that a client sees; the same object for the same
        account.

        Raises:
            ArgumentError: the cache cannot determine the account, and needs its
                `account`.
        """
        raise NotImplementedError

    def stats(self) -> CacheStats:
        """Return what this process has in memory and has done."""
        return CacheStats(*self._memory.count(), self._hits, self._misses, self._broken)

    async def inspect(self) -> CacheStats:
        """Return what the cache contains, for all processes that share it, and what
        this one has done.
        """
        return self.stats()

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is cached of an entity, or everything, of all accounts; in Redis
        of this account.

        Raises:
            SelectionError: the text cannot be an entity id.
            ArgumentError: the folder of the cache is not one that may be used.
            OSError: it could not be deleted, or not wholly.
        """
        if entity_id is not None:
            checks.check_entity_id(entity_id)
        self._memory.clear(entity_id)

    async def aclose(self) -> None:
        """Release what the cache holds open, and what it has in memory only; it can be
        used again.
        """


class Partition:
    """What a cache has of one account of one service, in memory."""

    def __init__(self, cache: Cache, account: bytes) -> None:
        self._cache = cache
        self._memory = cache._memory
        self._clock = cache._clock
        self._account = account

    async def record(self, entity_id: str, token: str = "") -> EntityRecord | None:
        """Return the record of an entity, with what other processes have stored, or
        None if unknown.

        `token` is the digest of the client's token: a later rejection of it counts too.
        """
        return self._later_of_token(self._remembered(entity_id), entity_id, token)

    async def observe(
        self, entity_id: str, record: EntityRecord, token: str = ""
    ) -> None:
        """Record what a response has shown of an entity, unless a later request has
        shown something.

        With the digest of a `token`, only clients with this token see it, in this
        process.
        """
        key = (self._account, entity_id, token)
        self._memory.observe(key, record, self._clock())

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        """Return the catalogue of a publication, or None if it is not cached."""
        return self._memory.get(self._key(entity_id, dataset_id, CATALOGUE)).catalogue

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        """Store the catalogue of its publication."""
        key = self._key(catalogue.entity_id, catalogue.dataset_id, CATALOGUE)
        self._memory.put_catalogue(key, catalogue)

    async def blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        wanted: Iterable[str] | None = None,
    ) -> tuple[Block, ...]:
        """Return the cached values of a publication; no series is in two blocks.

        If this process has all `wanted` series in memory, it does not look whether
        others have stored more.
        """
        return self._memory.get(self._key(entity_id, dataset_id, value_version)).blocks

    async def put_blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        blocks: Iterable[Block],
    ) -> None:
        """Store blocks of series with all their periods; a series that is cached
        already stays as it is.
        """
        put = tuple(blocks)
        if not self._memory.has_room(put):
            # In a thread, for it takes a millisecond a megabyte.
            put = await asyncio.to_thread(compressed, put)
        self._memory.put_blocks(self._key(entity_id, dataset_id, value_version), put)

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        """Make others wait that are about to request the same entity, while the block
        lasts: other processes, and other queries of this one.

        Waits for at most 10 seconds for another's claim: then both send their requests.
        """
        return nullcontext()

    def count(self, *, hits: int, misses: int) -> None:
        """Count wanted series that were cached, and those that had to be requested."""
        self._cache._hits += hits
        self._cache._misses += misses

    def _remembered(self, entity_id: str, token: str = "") -> EntityRecord | None:
        return self._memory.records.get((self._account, entity_id, token))

    def _later_of_token(
        self, record: EntityRecord | None, entity_id: str, token: str
    ) -> EntityRecord | None:
        """Return the later of an entity's record and that for a token."""
        of_token = self._remembered(entity_id, token) if token else None
        return later(of_token, record, self._clock())

    def _key(self, entity_id: str, dataset_id: str, kind: str) -> Key:
        return self._account, entity_id, publication_id(dataset_id), kind
