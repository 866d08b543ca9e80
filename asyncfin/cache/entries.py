"""What a cache has in memory: the least recently used goes first; and the records of
entities.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from datetime import datetime, timedelta
from operator import attrgetter
from threading import RLock
from typing import Any, Generic, TypeAlias, TypeVar

from attrs import frozen

from asyncfin.model.catalogue import Catalogue, is_same_publication, publication_id
from asyncfin.model.query import VALUE_VERSIONS
from asyncfin.table.block import Block, drop_series, nbytes

# Blocks stay as received until this share of the memory is used, and are compressed
# from then on.
_UNCOMPRESSED_SHARE = 0.25
# Records are dropped beyond this: a program may read any number of entities.
MAX_RECORDS = 100_000
# How far the clocks of machines may differ. A record from further in the future counts
# as unknown.
FUTURE = timedelta(minutes=1)

# Account, entity, publication, and which part of it: the catalogue, or a value version.
Key: TypeAlias = tuple[bytes, str, str, str]
CATALOGUE = "catalogue"
# Account, entity, and the digest of a token if only its clients see the record.
RecordKey: TypeAlias = tuple[bytes, str, str]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LeastRecentlyUsed(Generic[K, V]):
    """Values by key, of which the least recently used are evicted beyond a bound.

    For any number of threads. The last one stored stays, whatever its size; an empty
    one has size 1.
    """

    def __init__(self, bound: float) -> None:
        self._bound = bound
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.lock = RLock()
        self.total = 0

    def list_items(self) -> list[tuple[K, V]]:
        """All keys and values, which does not count as a use of them."""
        with self.lock:
            return [(key, value) for key, (value, _) in self._entries.items()]

    def get(self, key: K) -> V | None:
        """The value of a key, which counts as its use, or None if there is none."""
        with self.lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: K, value: V, size: int = 1) -> None:
        """Store the value of a key, in place of the one it had."""
        size = max(1, size)  # so that no number of empty ones stays
        with self.lock:
            self.pop(key)
            self._entries[key] = value, size
            self.total += size
            while self.total > self._bound and len(self._entries) > 1:
                self.pop(next(iter(self._entries)))

    def pop(self, key: K) -> None:
        """Drop a key."""
        with self.lock:
            if key in self._entries:
                self.total -= self._entries.pop(key)[1]

    def demote(self, key: K) -> None:
        """Evict a key before all others, unless it is used again."""
        with self.lock:
            if key in self._entries:
                self._entries.move_to_end(key, last=False)


@frozen
class EntityRecord:
    """What the last response about an entity has shown: its current publication, or a
    rejection.

    Attributes:
        sent_at: when the request was sent, aware UTC.
        dataset_id: the publication that the response was of; None after a rejection.
        status: 200, or the status of the rejection: 404, or 403 to one token.
    """

    sent_at: datetime
    dataset_id: str | None = None
    status: int = 200


def later(
    record: EntityRecord | None, latest: EntityRecord | None, now: datetime
) -> EntityRecord | None:
    """Return the later of two records of an entity; `latest` was made last, and counts
    if both are of one moment.

    So a response that is received late never overrules what a later request has shown.
    """
    records = []
    for candidate in (latest, record):
        if candidate is not None and candidate.sent_at <= now + FUTURE:
            records.append(candidate)
    return max(records, key=attrgetter("sent_at"), default=None)


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

    @classmethod
    def of(cls, catalogue: Catalogue) -> Entry:
        """Return the entry of a catalogue."""
        size = 1_000 + 600 * len(catalogue.series) + 100 * len(catalogue.periods)
        for series in catalogue.series:
            size += len(series.label) + len(series.description)
        return cls(size, catalogue)

    def add(self, blocks: Iterable[Block], part: str) -> Entry:
        """Return the entry with the blocks of a part; series that it has stay as they
        are.
        """
        series_ids = set(self.series_ids)
        new_blocks = distinct(blocks, series_ids)
        return Entry(
            self.bytes + nbytes(new_blocks),
            None,
            self.blocks + new_blocks,
            frozenset(series_ids),
            # Also if nothing was added: a part that was read is not read again.
            self.parts | {part},
        )


class Memory:
    """Records, and catalogues and blocks within a bound, by key; for any number of
    threads.

    When it is full, the least recently used go first. A publication that is replaced
    goes before them, unless it is used again.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: LeastRecentlyUsed[Key, Entry] = LeastRecentlyUsed(max_bytes)
        self.records: LeastRecentlyUsed[RecordKey, EntityRecord] = LeastRecentlyUsed(
            MAX_RECORDS
        )

    def observe(self, key: RecordKey, record: EntityRecord, now: datetime) -> bool:
        """Record what a response has shown of an entity, unless a later request has
        shown something, and return whether that is new.
        """
        with self.records.lock:
            last = self.records.get(key)
            if last == record or later(last, record, now) is not record:
                return False
            self.records.put(key, record)
        old_id = last.dataset_id if last is not None else None
        new_id = record.dataset_id
        if old_id and new_id and not is_same_publication(old_id, new_id):
            publication = publication_id(old_id)
            for kind in (CATALOGUE, *VALUE_VERSIONS):
                self._entries.demote((key[0], key[1], publication, kind))
        return True

    def get(self, key: Key) -> Entry:
        """What is cached under a key, perhaps nothing."""
        return self._entries.get(key) or Entry()

    def put(self, key: Key, entry: Entry) -> None:
        """Store an entry, unless it would evict everything."""
        if entry.bytes > self._max_bytes:
            self._entries.pop(key)
        else:
            self._entries.put(key, entry, entry.bytes)

    def add(self, key: Key, blocks: Iterable[Block], part: str) -> None:
        """Add the blocks of a part to what is stored under a key."""
        with self._entries.lock:
            self.put(key, self.get(key).add(blocks, part))

    def has_room(self, blocks: Iterable[Block]) -> bool:
        """Whether blocks may stay as received: they are shared with the caller's
        panel.
        """
        size = self._entries.total + nbytes(blocks)
        return size <= self._max_bytes * _UNCOMPRESSED_SHARE

    def clear(self, entity_id: str | None) -> None:
        """Drop an entity, or everything."""
        stores: tuple[LeastRecentlyUsed[Any, Any], ...] = self._entries, self.records
        for store in stores:
            for key, _ in store.list_items():
                if entity_id in (None, key[1]):
                    store.pop(key)

    def count(self) -> tuple[int, int]:
        """The number of series, and the bytes."""
        entries = self._entries.list_items()
        series = sum(len(entry.series_ids) for _, entry in entries)
        return series, self._entries.total


def distinct(blocks: Iterable[Block], series_ids: set[str]) -> tuple[Block, ...]:
    """Return the blocks without some series, and add theirs to these."""
    parts = []
    for block in blocks:
        part: Block | None = block
        if series_ids.intersection(block.series_ids):
            part = drop_series(block, series_ids)
        if part is not None:
            parts.append(part)
        series_ids.update(block.series_ids)
    return tuple(parts)
