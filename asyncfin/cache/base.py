"""What the three caches have in common: memory within a bound, records, and counts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime
from threading import RLock
from typing import Generic, TypeAlias, TypeVar

from attrs import evolve, frozen

from asyncfin import checks
from asyncfin.cache.record import EntityRecord, later
from asyncfin.cache.store import Cache, CacheStats
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, drop_series, nbytes

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
        superseded: Callable[[K], bool] = lambda key: False,
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
        *others, _ = self._entries
        others.sort(
            key=self._superseded, reverse=True
        )  # stable: the others stay in their order
        for key in others:
            if self.total <= self._bound:
                return
            self.pop(key)


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
        rest = (
            drop_series(block, series_ids)
            if series_ids.intersection(block.series_ids)
            else block
        )
        if rest is not None:
            others.append(rest)
        series_ids.update(block.series_ids)
    return tuple(others)


class MemoryRecords:
    """The records of one account in memory."""

    def __init__(
        self, memory: Memory, account: bytes, clock: Callable[[], datetime]
    ) -> None:
        self._memory = memory
        self._account = account
        self._clock = clock

    async def record(self, entity_id: str, token: str = "") -> EntityRecord | None:
        return self._later_of_token(self._remembered(entity_id), entity_id, token)

    async def observe(
        self, entity_id: str, record: EntityRecord, token: str = ""
    ) -> None:
        key = (self._account, entity_id, token)
        self._memory.observe(key, record, self._clock())

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


class ProcessCache(Cache):
    """A cache's part in this process, of which memory has at most `max_bytes`."""

    def __init__(self, max_bytes: int, clock: Callable[[], datetime]) -> None:
        self._memory = Memory(max_bytes)
        self._clock = checks.plain_callable("clock", clock)
        self._hits = self._misses = self._broken = 0

    def stats(self) -> CacheStats:
        return CacheStats(*self._memory.count(), self._hits, self._misses, self._broken)

    async def inspect(self) -> CacheStats:
        """Return what the cache contains, for all processes that share it, and what
        this one has done.
        """
        return self.stats()

    async def clear(self, entity_id: str | None = None) -> None:
        if entity_id is not None:
            checks.check_entity_id(entity_id)
        self._memory.clear(entity_id)

    def _count(self, hits: int, misses: int) -> None:
        """Count wanted series that were cached, and those that had to be requested."""
        self._hits += hits
        self._misses += misses
