"""Publications kept in Redis, which the machines of one account share (extra `redis`).

Records are hashes; catalogues and the parts of a publication's values are fields of hashes. All have
checksums over their key and content, and expire when they were not used for `keep`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Collection, Hashable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve

from asyncfin import checks
from asyncfin.cache.availability import QUESTION_SECONDS
from asyncfin.cache.checksum import sealed, verified
from asyncfin.cache.codec import CLOCK_STEP, FORMAT, encode_record, verified_record
from asyncfin.cache.record import EntityRecord, RecordRule
from asyncfin.cache.store import CacheStats, Partition, partition_key
from asyncfin.cache.tiered import CLAIM_SECONDS, RowKey, Stored, TieredCache
from asyncfin.clock import EPOCH, utc_now
from asyncfin.errors import ArgumentError
from asyncfin.redis import RedisClient, RedisClients
from asyncfin.tasks import unless_silent
from asyncfin.wire.token import TokenSource

if TYPE_CHECKING:
    from redis.asyncio import Redis

# What one command lists or deletes, so that its reply is in time.
_NAMES_PER_SCAN = 1_000

# Compare and set: the rules are the same for all caches, and are not written a second time here.
_CHANGE = """
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'row', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
_CHANGE_ATTEMPTS = 20
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

T = TypeVar("T")


class RedisCache(TieredCache):
    """Keeps publications in Redis for the machines that share an account.

    Anyone who can read the Redis database can read the data. Only `clear` raises errors of Redis:
    what cannot be read is requested, and what cannot be stored is skipped, logged once and counted in
    `CacheStats.broken`.

    Args:
        redis: a URL (``redis://``, ``rediss://``, ``unix://``), or a ``redis.asyncio.Redis`` that does not
            decode responses, which stays the caller's to close.
        account: the name of the account: clients with the same base URL and account share what is read.
        keep: how long unused data is kept, at least a second.
        clock: returns the wall time, aware UTC; for tests.

    Raises:
        ArgumentError: an argument is not as described.
        ImportError: the package redis is not installed.
    """

    def __init__(
        self,
        redis: str | Redis,
        *,
        account: str,
        keep: timedelta = timedelta(days=30),
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._clients = RedisClients(redis)
        if self._clients.decodes:
            raise ArgumentError(
                "redis must not decode responses: what is kept is bytes (decode_responses=False)"
            )
        self._account = checks.text()("account", account).encode()
        if not isinstance(keep, timedelta) or keep < timedelta(seconds=1):
            raise ArgumentError(
                f"keep must be a timedelta of at least a second, not {checks.short_repr(keep)}"
            )
        self._keep_ms = round(keep / timedelta(milliseconds=1))
        super().__init__(self._clients.address, sys.maxsize, clock)
        self._ahead = timedelta()

    def __repr__(self) -> str:
        return f"RedisCache({self._clients.address!r}, account=...)"

    def __reduce__(self) -> Any:
        raise TypeError("a RedisCache cannot be pickled: its URL may hold a password")

    @property
    def _prefix(self) -> str:
        """What all keys of this account begin with."""
        return f"asyncfin:cache:{FORMAT}:{blake2b(self._account, digest_size=16).hexdigest()}"

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        digest = partition_key(base_url, "account", self._account)
        prefix = f"{self._prefix}:{{{digest.hex()}}}"
        return self._partition(digest, lambda: _RedisRows(self, prefix, digest))

    async def inspect(self) -> CacheStats:
        """Return what Redis has of this account, and what this process has done.

        Raises:
            OSError: Redis failed or did not answer.
        """
        series = size = 0

        async def add(redis: RedisClient, names: list[bytes]) -> None:
            nonlocal series, size
            async with redis.pipeline(transaction=False) as steps:
                for name in names:
                    steps.hkeys(name)
                found = await steps.execute(raise_on_error=False)
            for fields in found:
                for part in map(_part, fields if isinstance(fields, list) else ()):
                    if part is not None:
                        _, count, length = part.split("-")
                        series, size = series + int(count), size + int(length)

        await self._scan(f"{self._prefix}:*", add, "could not be read, or not wholly")
        return CacheStats(series, size, self._hits, self._misses, self._broken)

    async def _clear_rows(self, entity_id: str | None) -> None:
        pattern = f"{self._prefix}:*" if entity_id is None else f"{self._prefix}:*:{_escaped(entity_id)}:*"
        await self._scan(pattern, lambda redis, names: redis.unlink(*names), "was not cleared, or not wholly")

    async def _scan(
        self, pattern: str, work: Callable[[RedisClient, list[bytes]], Awaitable[object]], problem: str
    ) -> None:
        try:
            redis = await self._clients.get()
            cursor = None
            while cursor != 0:  # where the scan ends
                async with unless_silent(QUESTION_SECONDS):
                    cursor, names = await redis.scan(cursor or 0, match=pattern, count=_NAMES_PER_SCAN)
                if names:
                    async with unless_silent(QUESTION_SECONDS):
                        await work(redis, names)
        except Exception as error:  # noqa: BLE001  of the client's or the system's many classes
            # Not from it: its text may contain what the URL contains.
            raise OSError(f"the cache in {self._clients.address} {problem}: {type(error).__name__}") from None

    async def aclose(self) -> None:
        await self._clients.aclose()

    def _compare_clocks(self, theirs: datetime) -> timedelta:
        """Return how far the clock of Redis, which has just shown this time, is ahead of this process's.

        Records are stored by the clock of Redis, since the clocks of machines differ.
        """
        ahead = theirs - self._clock()
        # A smaller step is not followed: what this process has recorded stays in order.
        if abs(ahead - self._ahead) > CLOCK_STEP:
            self._ahead = ahead
        return self._ahead


class _RedisRows:
    """The rows of one account and base URL in Redis, whose keys share a tag: a cluster has them together."""

    def __init__(self, cache: RedisCache, prefix: str, account: bytes) -> None:
        self._cache = cache
        self._prefix = prefix
        self._account = account

    async def version(self, entity_id: str) -> Hashable:
        redis = await self._cache._clients.get()
        return await redis.hget(self._name(entity_id, "record"), "version") or b""

    async def record(self, entity_id: str) -> Stored:
        redis = await self._cache._clients.get()
        async with redis.pipeline(transaction=False) as steps:
            steps.time()
            steps.hmget(self._name(entity_id, "record"), "version", "row")
            (seconds, microseconds), (version, row) = await steps.execute()
        ahead = self._cache._compare_clocks(EPOCH + timedelta(seconds=seconds, microseconds=microseconds))
        stored = Stored(EntityRecord(), version or b"")
        if row is None:
            return stored
        record = verified_record(row, self._account, entity_id, ahead=ahead)
        return evolve(stored, record=record or EntityRecord(), corrupt=record is None)

    async def change(self, entity_id: str, rule: RecordRule) -> Stored:
        redis, name = await self._cache._clients.get(), self._name(entity_id, "record")
        for _ in range(_CHANGE_ATTEMPTS):
            known = await self.record(entity_id)
            if (record := rule(known.record)) == known.record and not known.corrupt:
                return known
            row = sealed(encode_record(record, self._cache._ahead), self._account, entity_id)
            version = secrets.token_hex(8).encode()
            if await redis.eval(_CHANGE, 1, name, known.version, version, row, self._cache._keep_ms):
                return evolve(known, record=record, version=version)
        raise OSError("other processes have changed the record each time")

    async def parts(self, key: RowKey, now: datetime) -> Collection[Hashable]:
        redis = await self._cache._clients.get()
        # The names alone: what is in memory already is not sent again.
        names = map(_part, await redis.hkeys(self._name(*key)))
        return [part for part in names if part is not None]

    async def read(self, key: RowKey, parts: Collection[Hashable]) -> dict[Hashable, bytes | None]:
        redis, name = await self._cache._clients.get(), self._name(*key)
        rows = await redis.hmget(name, list(parts))
        # What is read stays; what is not expires by itself.
        await redis.pexpire(name, self._cache._keep_ms)
        found = zip(parts, rows, strict=True)
        return {part: verified(row, self._account, *key) for part, row in found if row is not None}

    async def put(
        self, key: RowKey, body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        redis, name = await self._cache._clients.get(), self._name(*key)
        part = f"{secrets.randbits(63)}-{series}-{len(body)}"
        # In one transaction: a reader never sees a catalogue deleted and its successor missing.
        async with redis.pipeline(transaction=True) as steps:
            if alone:
                steps.delete(name)
            steps.hset(name, part, sealed(body, self._account, *key))
            steps.pexpire(name, self._cache._keep_ms)
            await steps.execute()
        return part

    async def drop(self, key: RowKey, parts: Collection[Hashable]) -> None:
        await (await self._cache._clients.get()).hdel(self._name(*key), *parts)

    def claim(self, entity_id: str) -> _RedisClaim:
        return _RedisClaim(self._cache, self._name(entity_id, "claim"))

    def _name(self, entity_id: str, *rest: str) -> str:
        return ":".join((self._prefix, entity_id, *rest))


class _RedisClaim:
    """A claim that ends by itself after ten seconds; a unique value says whose it is."""

    def __init__(self, cache: RedisCache, name: str) -> None:
        self._cache, self._name = cache, name
        self._own = secrets.token_hex(16)

    async def take(self) -> bool:
        redis = await self._cache._clients.get()
        return bool(await redis.set(self._name, self._own, nx=True, px=round(CLAIM_SECONDS * 1_000)))

    async def release(self) -> None:
        if not self._cache._availability.is_closed(asyncio.get_running_loop().time()):
            redis = await self._cache._clients.get()
            await redis.eval(_RELEASE, 1, self._name, self._own)


def _part(name: bytes) -> str | None:
    """Return the part that a field of a hash is; None for a field that is not of this library.

    The name has a random number, the number of series, and the bytes, so that `inspect` reads no body.
    """
    return name.decode() if re.fullmatch(rb"[0-9]+-[0-9]+-[0-9]+", name) else None


def _escaped(text: str) -> str:
    """Return a text in which Redis sees no pattern."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", text)
