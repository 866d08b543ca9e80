"""A cache whose data is in a store outside the process, with memory in front of it."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from math import inf
from typing import TypeVar

from asyncfin.cache.base import (
    CATALOGUE,
    MAX_RECORDS,
    Cache,
    CacheStats,
    Key,
    LeastRecentlyUsed,
    MiB,
    Partition,
    RecordKey,
    distinct,
    drop_entity,
)
from asyncfin.cache.checksum import sealed, verified
from asyncfin.cache.codec import (
    FORMAT,
    decode_blocks,
    decode_catalogue,
    decode_record,
    encode_blocks,
    encode_catalogue,
    encode_record,
)
from asyncfin.cache.record import EntityRecord, later
from asyncfin.cache.store import Store
from asyncfin.errors import ArgumentError, printable
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, compressed

_log = logging.getLogger("asyncfin.cache")

# Data that was read from the store, or put into it, stays decoded up to this much.
_MEMORY_BYTES = 64 * MiB
# A store that fails, or takes longer than the first, is not used for the second.
STORE_SECONDS = 2.0
_AWAY_SECONDS = 2.0
_WARNING_EVERY = 60.0
# How long a process waits for another one that requests the same entity.
LOCK_SECONDS = 10.0
# The name of a part has the number of its series and its bytes, so that `inspect` reads
# no bodies.
_PART = re.compile(r"[0-9a-f]{16}-([0-9]+)-([0-9]+)")
_RECORD = "record"

T = TypeVar("T")


class StoredPartition(Partition):
    """The partition of one account, whose data in memory goes by `digest`.

    `account` returns the digest by which it goes in the store. It may take long, and
    runs in a thread.
    """

    def __init__(
        self, cache: StoredCache, digest: bytes, account: Callable[[], bytes]
    ) -> None:
        super().__init__(cache, digest)
        self._stored = cache
        self._store = cache._store
        self._derive: Callable[[], bytes] | None = account
        self._account_name = ""

    async def _name(self) -> str:
        """Return the name of the account in the store."""
        if self._derive is not None:
            self._account_name = (await asyncio.to_thread(self._derive)).hex()[:32]
            self._derive = None
        return self._account_name

    async def _entity(self, entity_id: str) -> str:
        """Return what the keys of an entity begin with."""
        return entity_prefix(entity_id) + (self._account_name or await self._name())

    async def record(self, entity_id: str, token: str = "") -> EntityRecord | None:
        key = (self._account, entity_id, "")
        rows = await self._stored._run(partial(self._read_record, entity_id))
        if rows is None:  # the store is away, so this process goes by its memory
            record = self._remembered(entity_id)
        else:
            record = later(rows[0], self._stored._unstored.get(key), self._clock())
            if record is None:
                self._memory.records.pop(key)
            else:
                self._memory.records.put(key, record)  # memory evicts by it
        return self._later_of_token(record, entity_id, token)

    async def _read_record(self, entity_id: str) -> tuple[EntityRecord | None]:
        key = f"{await self._entity(entity_id)}/{_RECORD}"
        (row,) = await self._store.get([key])
        if row is None:
            return (None,)
        record = decode_record(key, row)
        if record is None:
            self._stored._broken += 1
            await self._store.drop([key])
        return (record,)

    async def observe(
        self, entity_id: str, record: EntityRecord, token: str = ""
    ) -> None:
        if token:  # other processes have other digests
            await super().observe(entity_id, record, token)
            return
        key, stored = (self._account, entity_id, ""), await self.record(entity_id)
        if stored == record or later(stored, record, self._clock()) is not record:
            return
        self._memory.records.put(key, record)
        if (
            await self._stored._run(partial(self._put_record, entity_id, record))
            is None
        ):
            self._stored._unstored.put(key, record)
        else:
            self._stored._unstored.pop(key)

    async def _put_record(self, entity_id: str, record: EntityRecord) -> bool:
        key = f"{await self._entity(entity_id)}/{_RECORD}"
        return await self._store.put_if_later(
            key, encode_record(key, record), record.sent
        )

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        key = self._key(entity_id, dataset_id, CATALOGUE)
        if (catalogue := self._memory.get(key).catalogue) is not None:
            return catalogue
        for catalogue in (await self._read(key, (), decode_catalogue)).values():
            self._memory.put_catalogue(key, catalogue)
            return catalogue
        return None

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        await super().put_catalogue(catalogue)
        key = self._key(catalogue.entity_id, catalogue.dataset_id, CATALOGUE)
        await self._put(key, new_part(), 0, partial(encode_catalogue, catalogue))

    async def blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        wanted: Iterable[str] | None = None,
    ) -> tuple[Block, ...]:
        key = self._key(entity_id, dataset_id, value_version)
        entry = self._memory.get(key)
        # Series never change within a publication, so those in memory need no look at
        # the store.
        if wanted is not None and entry.series_ids.issuperset(wanted):
            return entry.blocks
        blocks, series_ids = entry.blocks, set(entry.series_ids)
        parts = await self._read(key, entry.parts, decode_blocks)
        for part, stored in parts.items():
            others = distinct(stored, series_ids)
            # Also where nothing is new: see `Memory.put_blocks`.
            self._memory.put_blocks(key, others, (part,))
            blocks += others
        return blocks

    async def put_blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        blocks: Iterable[Block],
    ) -> None:
        key = self._key(entity_id, dataset_id, value_version)
        others = distinct(blocks, set(self._memory.get(key).series_ids))
        if not others:
            return
        stored = await asyncio.to_thread(compressed, others)
        part = new_part()
        # Together, and first: a part that is noted without its blocks would never be
        # read again.
        self._memory.put_blocks(
            key, others if self._memory.has_room(others) else stored, (part,)
        )
        series = sum(len(block.series_ids) for block in stored)
        await self._put(key, part, series, partial(encode_blocks, stored))

    async def _group(self, key: Key) -> str:
        _, entity_id, publication, kind = key
        return f"{await self._entity(entity_id)}/{publication_name(publication)}.{kind}"

    async def _put(
        self, key: Key, part: str, series: int, encode: Callable[[], bytes]
    ) -> None:
        """Store a part. One that cannot be stored is not tried again."""
        if self._stored._is_away():
            return
        try:
            body = await asyncio.to_thread(encode)
        except Exception:  # noqa: BLE001  a result is never lost because it can't be stored
            self._stored._broken += 1
            return

        async def put() -> None:
            name = f"{await self._group(key)}/{part}-{series}-{len(body)}"
            await self._store.put(name, sealed(body, name), ttl=self._stored._ttl)

        await self._stored._run(put)

    async def _read(
        self, key: Key, parts: Collection[object], decode: Callable[[bytes], T]
    ) -> dict[str, T]:
        """Return the stored parts under a key, by name, except `parts`."""
        group = await self._stored._run(partial(self._group, key))
        return {} if group is None else await self._decode_parts(group, parts, decode)

    async def _decode_parts(
        self, group: str, parts: Collection[object], decode: Callable[[bytes], T]
    ) -> dict[str, T]:
        """Return the parts of a group, by name, except `parts`. Corrupt ones are
        deleted.
        """
        decoded: dict[str, T] = {}
        corrupt = []
        names = await self._stored._run(partial(self._store.names, f"{group}/")) or []
        keys = [key for key in names if _part(key) not in (None, *parts)]
        rows = None
        if keys:
            rows = await self._stored._run(partial(self._store.get, keys))
        for key, row in zip(keys, rows or (), strict=False):
            if row is None:
                continue  # evicted since
            try:
                body = verified(row, key)
                if body is None:
                    raise ValueError("corrupt")
                decoded[_part(key) or ""] = decode(body)
            except Exception:  # noqa: BLE001  verified, but not of this form
                corrupt.append(key)
        if corrupt:
            self._stored._broken += len(corrupt)
            await self._stored._run(partial(self._store.drop, corrupt))
        if decoded:
            await self._stored._run(partial(self._store.touch, group))
        return decoded

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        async with AsyncExitStack() as claim:

            async def enter() -> None:
                lock = self._store.lock(await self._entity(entity_id), LOCK_SECONDS)
                await claim.enter_async_context(lock)

            await self._stored._run(enter, waiting=LOCK_SECONDS)
            yield


class StoredCache(Cache):
    """A cache over a store at a `place`, whose text has no secrets.

    Args:
        store: the store.
        place: what the log calls it.
        max_bytes: the limit of what the cache holds; at most 64 MiB of it are in
            memory.
        ttl: how long the store keeps unused data; None: until it is evicted.
        clock: returns the wall time, aware UTC.
    """

    def __init__(
        self,
        store: Store,
        place: str,
        max_bytes: int,
        clock: Callable[[], datetime],
        *,
        ttl: timedelta | None = None,
    ) -> None:
        super().__init__(min(_MEMORY_BYTES, max_bytes), clock)
        self._store = store
        self._place = place
        self._ttl = ttl
        self._partitions: dict[bytes, StoredPartition] = {}
        # Observations that could not be stored, and apply in this process.
        self._unstored: LeastRecentlyUsed[RecordKey, EntityRecord] = LeastRecentlyUsed(
            MAX_RECORDS
        )
        self._away_since = -inf
        self._warned_at = -inf

    def _partition(
        self, digest: bytes, account: Callable[[], bytes]
    ) -> StoredPartition:
        if digest not in self._partitions:
            self._partitions[digest] = StoredPartition(self, digest, account)
        return self._partitions[digest]

    async def inspect(self) -> CacheStats:
        """Return what the store has, for all processes that share it, and what this one
        has done.

        Raises:
            ArgumentError: the folder is not one that may be used.
            OSError: the store could not be read.
        """
        series = size = 0
        for name in await self._outright(self._store.names(f"{FORMAT}/"), "read"):
            if part := _PART.fullmatch(name.rpartition("/")[2]):
                series += int(part[1])
                size += int(part[2])
        return CacheStats(series, size, self._hits, self._misses, self._broken)

    async def clear(self, entity_id: str | None = None) -> None:
        await super().clear(entity_id)
        drop_entity(self._unstored, entity_id)
        prefix = "" if entity_id is None else entity_prefix(entity_id)

        async def clear() -> None:
            await self._store.drop(await self._store.names(prefix))

        try:
            await self._outright(clear(), "cleared")
        finally:
            self._memory.clear(entity_id)  # read again meanwhile

    async def _outright(self, work: Awaitable[T], done: str) -> T:
        """Return the result of an operation whose failure is an OSError."""
        try:
            return await work
        except (ArgumentError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  of a client library's many classes
            # Not from it: its text may contain what a URL contains.
            text = (
                f"the cache in {self._place} could not be {done}: "
                f"{type(error).__name__}"
            )
            raise OSError(text) from None

    def _is_away(self) -> bool:
        """Return whether the store has just failed."""
        # Not `now < until`: an event loop can have another clock than the last one.
        return 0 <= asyncio.get_running_loop().time() - self._away_since < _AWAY_SECONDS

    async def _run(
        self, work: Callable[[], Awaitable[T]], *, waiting: float = 0.0
    ) -> T | None:
        """Return the result of an operation on the store, or None if it fails or takes
        too long.

        `waiting` is how long it may wait for another process.

        Raises:
            ArgumentError: the store is not one that may be used.
        """
        if self._is_away():
            return None
        try:
            async with asyncio.timeout(STORE_SECONDS + waiting):
                return await work()
        except ArgumentError:
            raise
        except Exception as error:  # noqa: BLE001  a cache that fails is as if it were not there
            self._fail(error)
            return None

    def _fail(self, error: Exception) -> None:
        now = asyncio.get_running_loop().time()
        self._away_since = now
        self._broken += 1
        if not 0 <= now - self._warned_at < _WARNING_EVERY:
            self._warned_at = now
            text = printable(
                f"{self._place} can't be used at the moment: {self._reason(error)}"
            )
            _log.warning("the cache in %s; it is skipped", text)

    def _reason(self, error: Exception) -> str:
        """Return what is logged of an error."""
        return type(error).__name__


def entity_prefix(entity_id: str) -> str:
    """Return what all keys of an entity begin with, whatever the account."""
    digest = blake2b(entity_id.encode("utf-8", "surrogatepass"), digest_size=16)
    return f"{FORMAT}/{digest.hexdigest()}-"


def publication_name(publication: str) -> str:
    """Return a text for a publication that can be the name of a folder."""
    digest = blake2b(publication.encode("utf-8", "surrogatepass"), digest_size=8)
    return digest.hexdigest()


def new_part() -> str:
    """Return the name of a part, which no other part has."""
    return secrets.token_hex(8)


def _part(key: str) -> str | None:
    """Return the name of the part that a key is of, or None if it is of another
    kind.
    """
    name = key.rpartition("/")[2]
    return name[:16] if _PART.fullmatch(name) else None


def current_group(key: str, row: bytes) -> str | None:
    """Return what the groups of an entity's current publication begin with, by its
    record.
    """
    record = decode_record(key, row)
    if record is None or record.dataset_id is None:
        return None
    entity = key.removesuffix(f"/{_RECORD}")
    return f"{entity}/{publication_name(publication_id(record.dataset_id))}."
