"""Caches: memory in front of a store outside the process, if there is one."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from hashlib import blake2b
from math import inf
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from asyncfin import checks
from asyncfin.cache.codec import (
    FORMAT,
    decode_blocks,
    decode_catalogue,
    decode_record,
    encode_blocks,
    encode_catalogue,
    encode_record,
    microseconds,
    seal,
    verify,
)
from asyncfin.cache.entries import (
    CATALOGUE,
    FUTURE,
    EntityRecord,
    Entry,
    Key,
    Memory,
    distinct,
    later,
)
from asyncfin.cache.store import LOCK_SECONDS, POLL_SECONDS, Store, partition_key
from asyncfin.errors import ArgumentError, printable
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, compress_blocks
from asyncfin.wire.token import TokenSource

_log = logging.getLogger("asyncfin.cache")

MiB = 1024 * 1024
# Data that was read from a store, or put there, stays decoded up to this much.
MEMORY_BYTES = 64 * MiB
# A store that fails, or takes longer than the first, is not used for the second.
STORE_SECONDS = 2.0
_AWAY_SECONDS = 2.0
# How long `inspect` and `clear` may take.
_STRICT_SECONDS = 60.0
_WARNING_EVERY = 60.0
# The name of a part has the number of its series and its bytes, so that `inspect` reads
# no bodies.
_PART = re.compile(r"/([0-9a-f]{16})-([0-9]+)-([0-9]+)$")
RECORD = "record"

T = TypeVar("T")


class CacheStats(Struct, frozen=True):
    """What a cache holds and has done.

    From `stats`, as in the gauge `asyncfin.cache.bytes`, `series` and `bytes` are those
    in the memory of this process. `await inspect()` counts the folder or Redis.

    Attributes:
        series: how many series it holds, each with all its periods; one for each value
            version.
        bytes: their size and that of the catalogues.
        hits: wanted series that were cached, since the cache was created.
        misses: wanted series that had to be requested.
        broken: how many parts were damaged, and how often the disk or server could not
            be used.
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

    Without a store everything is in memory, at most `max_bytes`. `place` is what the
    log calls the store, without secrets.
    """

    def __init__(
        self,
        max_bytes: int,
        clock: Callable[[], datetime],
        store: Store | None = None,
        place: str = "",
        *,
        account: str | None = None,
    ) -> None:
        self._memory = Memory(max_bytes)
        self._clock = checks.plain_callable("clock", clock)
        self._account = checks.text().optional()("account", account)
        self._store = store
        self._place = place
        # Part of what the data of a token goes by in memory: the digest reveals nothing
        # where it is printed.
        self._secret = secrets.token_bytes(32)
        self._hits = self._misses = self._broken = 0
        self._away_since = -inf
        self._warned_at = -inf

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        """Return the part of the cache that a client sees.

        Raises:
            ArgumentError: the cache cannot determine the account, and needs its
                `account`.
        """
        if self._account is None:
            return self._get_token_partition(base_url, token)
        account = self._account.encode()
        return Partition(self, partition_key(base_url, "account", account))

    def _get_token_partition(self, base_url: str, token: TokenSource) -> Partition:
        """Return the partition of an account that only its token shows."""
        raise NotImplementedError

    def stats(self) -> CacheStats:
        """Count what this process has in memory and has done."""
        return CacheStats(*self._memory.count(), self._hits, self._misses, self._broken)

    async def inspect(self) -> CacheStats:
        """Count the contents of the cache, for all processes that share it, and what
        this one has done.

        Raises:
            ArgumentError: the folder is not one that may be used.
            OSError: the store could not be read.
        """
        if self._store is None:
            return self.stats()
        series = 0
        size = 0
        for name in await self._run_strictly(self._store.names(f"{FORMAT}/")):
            part = _PART.search(name)
            if part is not None:
                series += int(part[2])
                size += int(part[3])
        return replace(self.stats(), series=series, bytes=size)

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is cached of an entity, or everything, of all accounts; in Redis
        of this account.

        Raises:
            SelectionError: the text cannot be an entity id.
            ArgumentError: the folder of the cache is not one that may be used.
            OSError: it could not be deleted, or not wholly.
        """
        prefix = ""
        if entity_id is not None:
            checks.check_entity_id(entity_id)
            prefix = entity_prefix(entity_id)
        try:
            if self._store is not None:
                names = await self._run_strictly(self._store.names(prefix))
                await self._run_strictly(self._store.drop(names))
        finally:
            self._memory.clear(entity_id)

    async def aclose(self) -> None:
        """Release what the cache holds open, and what it has in memory only; it can be
        used again.
        """

    async def _run_strictly(self, work: Awaitable[T]) -> T:
        """Return the result of an operation whose failure is an OSError."""
        try:
            async with asyncio.timeout(_STRICT_SECONDS):
                return await work
        except (ArgumentError, OSError):
            raise
        except Exception as error:  # noqa: BLE001  of a client library's many classes
            # Not from it: its text may contain what a URL contains.
            name = type(error).__name__
            text = f"the cache in {self._place} could not be used: {name}"
            raise OSError(text) from None

    async def _run(
        self, work: Callable[..., Awaitable[T]], *arguments: Any
    ) -> T | None:
        """Return the result of an operation on the store, or None if it fails or takes
        too long.

        Raises:
            ArgumentError: the store is not one that may be used.
        """
        if self._store is None:
            return None
        loop = asyncio.get_running_loop()
        # Not `now < until`: an event loop can have another clock than the last one.
        if 0 <= loop.time() - self._away_since < _AWAY_SECONDS:
            return None
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await work(*arguments)
        except ArgumentError:
            raise
        except Exception as error:  # noqa: BLE001  a cache that fails is as if it were not there
            now = self._away_since = loop.time()
            self._broken += 1
            if not 0 <= now - self._warned_at < _WARNING_EVERY:
                self._warned_at = now
                # Its text may contain a URL with a password.
                reason = getattr(error, "strerror", None) or type(error).__name__
                if isinstance(error, TimeoutError):
                    reason = "it takes too long"
                text = printable(f"{self._place} can't be used at the moment: {reason}")
                _log.warning("the cache in %s; it is skipped", text)
            return None


class Partition:
    """What a cache has of one account of one service.

    Its data in memory goes by `account`. In the store it goes by what `derive` returns,
    and without it by the same.
    """

    def __init__(
        self,
        cache: Cache,
        account: bytes,
        derive: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._cache = cache
        self._memory = cache._memory
        self._run = cache._run
        self._account = self._stored_account = account
        self._derive = derive

    @property
    def _store(self) -> Store:
        assert self._cache._store is not None
        return self._cache._store

    async def _make_prefix(self, entity_id: str) -> str:
        """The beginning of the keys of an entity."""
        if self._derive is not None:
            self._stored_account = await self._derive()
            self._derive = None
        return entity_prefix(entity_id) + self._stored_account.hex()[:32]

    async def record(self, entity_id: str, token: str = "") -> EntityRecord | None:
        """Return the record of an entity, with what other processes have stored, or
        None if unknown.

        `token` is the digest of the client's token: a later rejection of it counts too.
        """
        key = self._account, entity_id, ""
        now = self._cache._clock()
        stored_record = await self._run(self._read_record, entity_id)
        if stored_record is not None:
            self._memory.observe(key, stored_record, now)
        records = self._memory.records
        of_token = records.get((self._account, entity_id, token))
        return later(of_token, records.get(key), now)

    async def _read_record(self, entity_id: str) -> EntityRecord | None:
        prefix = await self._make_prefix(entity_id)
        name = f"{prefix}/{RECORD}"
        records = await self._load({name: RECORD}, decode_record)
        return records.get(RECORD)

    async def observe(
        self, entity_id: str, record: EntityRecord, token: str = ""
    ) -> None:
        """Record what a response has shown of an entity, unless a later request has
        shown something.

        With the digest of a `token`, only clients with this token see it, in this
        process.
        """
        key = self._account, entity_id, token
        now = self._cache._clock()
        is_new = self._memory.observe(key, record, now)
        if is_new and not token:  # other processes have other digests
            await self._run(self._put_record, entity_id, record, now)

    async def _put_record(
        self, entity_id: str, record: EntityRecord, now: datetime
    ) -> None:
        prefix = await self._make_prefix(entity_id)
        name = f"{prefix}/{RECORD}"
        row = seal(encode_record(record), name)
        latest = microseconds(now + FUTURE)
        await self._store.put_if_later(name, row, latest)

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        """Return the catalogue of a publication, or None if it is not cached."""
        key = self._make_key(entity_id, dataset_id, CATALOGUE)
        entry = self._memory.get(key)
        if entry.catalogue is not None:
            return entry.catalogue
        parts: dict[str, Catalogue] | None = await self._run(
            self._read, key, (), decode_catalogue
        )
        for catalogue in (parts or {}).values():
            self._memory.put(key, Entry.of(catalogue))
            return catalogue
        return None

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        """Store the catalogue of its publication."""
        key = self._make_key(catalogue.entity_id, catalogue.dataset_id, CATALOGUE)
        self._memory.put(key, Entry.of(catalogue))
        part = secrets.token_hex(8)
        await self._run(self._put, key, part, 0, encode_catalogue, catalogue)

    async def blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        series_ids: Iterable[str] | None = None,
    ) -> tuple[Block, ...]:
        """Return the cached values of a publication; no series is in two blocks.

        If this process has all `series_ids` in memory, it does not look whether others
        have stored more.
        """
        key = self._make_key(entity_id, dataset_id, value_version)
        entry = self._memory.get(key)
        # Series never change within a publication, so those in memory need no look at
        # the store.
        if series_ids is not None and entry.series_ids.issuperset(series_ids):
            return entry.blocks
        parts = await self._run(self._read, key, entry.parts, decode_blocks) or {}
        for part, blocks in parts.items():
            # Not what memory has of it: that may have been evicted meanwhile.
            entry = entry.add(blocks, part)
            self._memory.add(key, blocks, part)
        return entry.blocks

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
        key = self._make_key(entity_id, dataset_id, value_version)
        blocks = distinct(blocks, set(self._memory.get(key).series_ids))
        if not blocks:
            return
        if not self._memory.has_room(blocks):
            # In a thread, for it takes a millisecond a megabyte.
            blocks = await asyncio.to_thread(compress_blocks, blocks)
        part = secrets.token_hex(8)
        self._memory.add(key, blocks, part)
        series = sum(len(block.series_ids) for block in blocks)
        await self._run(self._put, key, part, series, encode_blocks, blocks)

    def count(self, *, hits: int, misses: int) -> None:
        """Count wanted series that were cached, and those that had to be requested."""
        self._cache._hits += hits
        self._cache._misses += misses

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        """Make others wait that are about to request the same entity, while the block
        lasts: other processes, and other queries of this one.

        Waits for at most 10 seconds for another's claim: then both send their requests.
        """
        async with AsyncExitStack() as claim:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOCK_SECONDS):
                    while await self._run(self._enter, entity_id, claim) is False:  # noqa: ASYNC110
                        await asyncio.sleep(POLL_SECONDS)
            yield

    async def _enter(self, entity_id: str, claim: AsyncExitStack) -> bool:
        """Try to hold the lock of an entity until the claim ends."""
        lock = self._store.try_lock(await self._make_prefix(entity_id))
        is_held = await claim.enter_async_context(lock)
        if not is_held:
            await claim.aclose()
        return is_held

    def _make_key(self, entity_id: str, dataset_id: str, kind: str) -> Key:
        return self._account, entity_id, publication_id(dataset_id), kind

    async def _make_group(self, key: Key) -> str:
        _, entity_id, publication, kind = key
        return f"{await self._make_prefix(entity_id)}/{hash_text(publication)}.{kind}"

    async def _put(
        self, key: Key, part: str, series: int, encode: Callable[[T], bytes], content: T
    ) -> None:
        """Store a part. One that cannot be stored is not tried again."""
        body = await asyncio.to_thread(encode, content)
        group = await self._make_group(key)
        name = f"{group}/{part}-{series}-{len(body)}"
        await self._store.put(name, seal(body, name))

    async def _read(
        self, key: Key, parts: Collection[str], decode: Callable[[bytes], T]
    ) -> dict[str, T]:
        """Return the stored parts under a key, by id, except `parts`."""
        ids = {}
        group = await self._make_group(key)
        names = await self._store.names(f"{group}/")
        for name in names:
            part = _PART.search(name)
            if part is not None and part[1] not in parts:
                ids[name] = part[1]
        return await self._load(ids, decode) if ids else {}

    async def _load(
        self, ids: dict[str, str], decode: Callable[[bytes], T]
    ) -> dict[str, T]:
        """Read the values stored under names of one group, by the ids of the names.
        A corrupt one is deleted.
        """
        results: dict[str, T] = {}
        corrupt = []
        rows = await self._store.get([*ids])
        for name, row in zip(ids, rows, strict=True):
            if row is None:
                continue  # evicted since
            try:
                body = verify(row, name)
                results[ids[name]] = decode(body)
            except Exception:  # noqa: BLE001  verified, but not of this form
                corrupt.append(name)
        if corrupt:
            self._cache._broken += len(corrupt)
            with suppress(Exception):  # a read-only disk
                await self._store.drop(corrupt)
        return results


def entity_prefix(entity_id: str) -> str:
    """The beginning of all keys of an entity, whatever the account."""
    return f"{FORMAT}/{hash_text(entity_id)}-"


def hash_text(text: str) -> str:
    """Return a text that can be the name of a folder."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    return digest.hexdigest()
