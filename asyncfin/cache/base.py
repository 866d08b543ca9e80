"""What the three caches have in common: memory within a bound, counts, and one warning about faults."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime
from threading import Lock, RLock
from typing import Generic, TypeAlias, TypeVar

from attrs import Factory, define

from asyncfin import checks
from asyncfin.cache.record import EntityRecord, later
from asyncfin.cache.store import Cache, CacheStats
from asyncfin.checks import check_entity_id
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, drop_series, nbytes

MiB = 1024 * 1024
# Blocks are kept as received until this share of the memory is used, and compressed from then on.
_UNCOMPRESSED_SHARE = 0.25
# Records are dropped beyond this: a program may read any number of entities.
MAX_RECORDS = 100_000

# Account, entity, publication, and which part of it: the catalogue, or a value version.
Key: TypeAlias = tuple[bytes, str, str, str]
CATALOGUE = "catalogue"
# Account and entity.
EntityKey: TypeAlias = tuple[bytes, str]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@define(eq=False)
class _Kept:
    """What is kept under one key: a catalogue, or the blocks of one value version."""

    bytes: int = 0
    catalogue: Catalogue | None = None
    blocks: tuple[Block, ...] = ()
    series_ids: set[str] = Factory(set)
    parts: set[Hashable] = Factory(set)  # which parts of a file the blocks are from


class LeastRecentlyUsed(Generic[K, V]):
    """Values by key, of which some are evicted while all together are larger than a bound.

    For any number of threads. The least recently used are evicted first, after those whose key is
    `superseded`. The last one stored is kept, whatever its size. An empty one counts as one of size 1.
    `dropped` is called with each value that is evicted, replaced or removed.
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
        self._values: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self._lock = RLock()
        self.total = 0

    def __iter__(self) -> Iterator[K]:
        with self._lock:
            return iter(list(self._values))

    def items(self) -> list[tuple[K, V]]:
        """Return all keys and values, which does not count as a use of them."""
        with self._lock:
            return list(self._values.items())

    def values(self) -> list[V]:
        """Return all values, which does not count as a use of them."""
        with self._lock:
            return list(self._values.values())

    def get(self, key: K) -> V | None:
        """Return the value of a key, which counts as its use; None if there is none."""
        try:
            self._values.move_to_end(key)
            return self._values[key]
        except KeyError:  # in between too: another thread may have evicted it
            return None

    def put(self, key: K, value: V) -> None:
        """Store the value of a key, in place of the one it had."""
        with self._lock:
            # Before anything changes: it may raise.
            size = max(1, self._size(value))  # so that no number of empty ones stays
            if key in self._values:
                self.pop(key)
            self._sizes[key] = size
            self._values[key] = value
            self.total += size
            if self.total > self._bound:
                self._evict()

    def pop(self, key: K) -> V | None:
        """Drop a key and return its value; None if there is none."""
        with self._lock:
            if key not in self._values:
                return None
            self.total -= self._sizes.pop(key)
            value = self._values.pop(key)
            self._dropped(value)
            return value

    def _evict(self) -> None:
        *others, _ = self._values
        if self._superseded is not None:
            others.sort(key=self._superseded, reverse=True)  # stable: the rest stays in its order
        for key in others:
            if self.total <= self._bound:
                return
            self.pop(key)


class Memory:
    """Records, and catalogues and blocks within a bound, by key; for any number of threads.

    When it is full, publications that are no longer the current ones go first, then the least recently used.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: LeastRecentlyUsed[Key, _Kept] = LeastRecentlyUsed(
            max_bytes, lambda kept: kept.bytes, superseded=self._is_superseded
        )
        self._lock = Lock()
        self._records: LeastRecentlyUsed[EntityKey, EntityRecord] = LeastRecentlyUsed(MAX_RECORDS)

    def record(self, key: EntityKey) -> EntityRecord | None:
        """Return the record of an entity."""
        return self._records.get(key)

    def set_record(self, key: EntityKey, record: EntityRecord | None) -> None:
        """Replace the record of an entity."""
        if record is None:
            self._records.pop(key)
        else:
            self._records.put(key, record)

    def observe(self, key: EntityKey, record: EntityRecord, now: datetime) -> None:
        """Record what a response has shown of an entity."""
        with self._lock:
            self.set_record(key, later(self._records.get(key), record, now))

    def catalogue(self, key: Key) -> Catalogue | None:
        with self._lock:
            return self._used(key).catalogue

    def blocks(self, key: Key) -> tuple[Block, ...]:
        with self._lock:
            return self._used(key).blocks

    def series_ids(self, key: Key) -> set[str]:
        """Return the series of a key's blocks."""
        with self._lock:
            return set(self._used(key).series_ids)

    def has(self, key: Key, series_ids: Iterable[str]) -> bool:
        """Return whether all of these series are among the blocks of a key."""
        with self._lock:
            return self._used(key).series_ids.issuperset(series_ids)

    def parts(self, key: Key) -> frozenset[Hashable]:
        """Return which parts of a file the blocks of a key are from."""
        with self._lock:
            return frozenset(self._used(key).parts)

    def put_catalogue(self, key: Key, catalogue: Catalogue) -> None:
        with self._lock:
            self._put(key, _Kept(_catalogue_bytes(catalogue), catalogue))

    def has_room(self, blocks: Iterable[Block]) -> bool:
        """Return whether blocks may be kept as received: they are shared with the caller's panel."""
        return self._kept.total + nbytes(blocks) <= self._max_bytes * _UNCOMPRESSED_SHARE

    def put_blocks(self, key: Key, blocks: Iterable[Block], parts: Iterable[Hashable] = ()) -> None:
        with self._lock:
            kept = self._used(key)
            # Recorded even if the blocks contain nothing new: a part that was read is not read again.
            kept.parts.update(parts)
            new = distinct(blocks, kept.series_ids)
            kept.blocks += new
            kept.bytes += nbytes(new)
            self._put(key, kept)

    def clear(self, entity_id: str | None) -> None:
        with self._lock:
            for key in [key for key in self._kept if entity_id in (None, key[1])]:
                self._kept.pop(key)
            for entity in [key for key in self._records if entity_id in (None, key[1])]:
                self._records.pop(entity)

    def held(self) -> tuple[int, int]:
        """Return the number of series, and the bytes."""
        with self._lock:
            kept = self._kept.values()
            return sum(len(each.series_ids) for each in kept), sum(each.bytes for each in kept)

    def _used(self, key: Key) -> _Kept:
        return self._kept.get(key) or _Kept()

    def _put(self, key: Key, kept: _Kept) -> None:
        if kept.bytes > self._max_bytes:  # what is larger than all that may be kept evicts nothing
            self._kept.pop(key)
        else:
            self._kept.put(key, kept)

    def _is_superseded(self, key: Key) -> bool:
        record = self._records.get(key[:2])
        return record is not None and record.rules_out(key[2])


def distinct(blocks: Iterable[Block], known: set[str]) -> tuple[Block, ...]:
    """Return the blocks without the series that are known, and make theirs known."""
    found = []
    for block in blocks:
        if known.isdisjoint(block.series_ids):
            found.append(block)
        elif rest := drop_series(block, known):
            found.append(rest)
        known.update(block.series_ids)
    return tuple(found)


class MemoryRecords:
    """The records of one account in memory."""

    def __init__(self, memory: Memory, account: bytes, clock: Callable[[], datetime]) -> None:
        self._memory = memory
        self._account = account
        self._clock = clock

    async def record(self, entity_id: str) -> EntityRecord | None:
        record = self._memory.record((self._account, entity_id))
        return later(None, record, self._clock())

    async def observe(self, entity_id: str, record: EntityRecord) -> None:
        self._memory.observe((self._account, entity_id), record, self._clock())

    def _key(self, entity_id: str, dataset_id: str, kind: str) -> Key:
        return self._account, entity_id, publication_id(dataset_id), kind


class ProcessCache(Cache):
    """A cache's part in this process, of which memory keeps at most `max_bytes`."""

    def __init__(self, max_bytes: int, clock: Callable[[], datetime]) -> None:
        self._memory = Memory(max_bytes)
        self._clock = checks.plain_callable("clock", clock)
        self._hits = self._misses = self._broken = 0

    def stats(self) -> CacheStats:
        return CacheStats(*self._memory.held(), self._hits, self._misses, self._broken)

    async def inspect(self) -> CacheStats:
        """Return what the cache contains, for all processes that share it, and what this one has done."""
        return self.stats()

    def _count(self, hits: int, misses: int) -> None:
        """Count wanted series that were cached, and those that had to be requested."""
        self._hits += hits
        self._misses += misses


def check_entity_id_or_none(entity_id: str | None) -> None:
    """Raise SelectionError for what cannot be an entity id; None means all entities."""
    if entity_id is not None:
        check_entity_id(entity_id)


def _catalogue_bytes(catalogue: Catalogue) -> int:
    """Return about how much memory a catalogue takes."""
    texts = sum(len(each.label) + len(each.description) for each in catalogue.series)
    return 1_000 + texts + 600 * len(catalogue.series) + 100 * len(catalogue.periods)
