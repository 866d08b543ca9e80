"""Publications kept in Redis, which the machines of one account share (extra `redis`).

Records are hashes; catalogues and the parts of a publication's values are fields of hashes. All have
checksums over their key and content, and expire when they were not used for `keep`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from attrs import evolve

from asyncfin import checks
from asyncfin.cache.base import check_entity_id_or_none
from asyncfin.cache.checksum import checksum, verified
from asyncfin.cache.codec import CLOCK_STEP, FORMAT, encode_record, verified_record
from asyncfin.cache.record import EntityRecord, Rule
from asyncfin.cache.store import CacheStats, Partition, partition_key
from asyncfin.cache.tiered import Stored, TieredCache
from asyncfin.clock import EPOCH, utc_now
from asyncfin.errors import ArgumentError
from asyncfin.redis import RedisClient, RedisClients, unless_silent
from asyncfin.wire.token import TokenSource

if TYPE_CHECKING:
    from redis.asyncio import Redis

_SUM_BYTES = 16
# How long a question waits for a reply, and for how long the next ones do not try at all.
_TIMEOUT = 2.0
_NOT_TRIED_SECONDS = 2.0
# What one command reads or deletes, so that its reply is in time.
_PARTS_PER_READ = 8
# What a question spends on reading a hash at most; the rest counts as not cached.
_QUESTION_SECONDS = 5.0
_NAMES_PER_SCAN = 1_000
_CLAIM_SECONDS = 10.0
_CLAIM_POLL_SECONDS = 0.05

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
        keep: how long unused data is kept.

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
        self.keep_ms = round(keep / timedelta(milliseconds=1))
        super().__init__(sys.maxsize, clock)
        self.ahead = timedelta()
        # By each loop's own clock.
        self._silent_until: WeakKeyDictionary[asyncio.AbstractEventLoop, float] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"RedisCache({self._clients.address!r}, account=...)"

    def __reduce__(self) -> Any:
        raise TypeError("a RedisCache cannot be pickled: its URL may hold a password")

    @property
    def prefix(self) -> str:
        """What all keys of this account begin with."""
        return f"asyncfin:cache:{FORMAT}:{blake2b(self._account, digest_size=16).hexdigest()}"

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        digest = partition_key(base_url, "account", self._account)
        prefix = f"{self.prefix}:{{{digest.hex()}}}"
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

        await self._scan(f"{self.prefix}:*", add, "could not be read, or not wholly")
        return CacheStats(series, size, self._hits, self._misses, self._broken)

    async def clear(self, entity_id: str | None = None) -> None:
        check_entity_id_or_none(entity_id)
        pattern = f"{self.prefix}:*" if entity_id is None else f"{self.prefix}:*:{_escaped(entity_id)}:*"
        try:
            await self._scan(
                pattern, lambda redis, names: redis.unlink(*names), "was not cleared, or not wholly"
            )
        finally:
            self._clear_memory(entity_id)

    async def _scan(
        self, pattern: str, work: Callable[[RedisClient, list[bytes]], Awaitable[object]], problem: str
    ) -> None:
        try:
            redis = await self._clients.get()
            cursor = None
            while cursor != 0:  # where the scan ends
                async with unless_silent(_TIMEOUT):
                    cursor, names = await redis.scan(cursor or 0, match=pattern, count=_NAMES_PER_SCAN)
                if names:
                    async with unless_silent(_TIMEOUT):
                        await work(redis, names)
        except Exception as error:  # noqa: BLE001  of the client's or the system's many classes
            # Not from it: its text may contain what the URL contains.
            raise OSError(f"the cache in {self._clients.address} {problem}: {type(error).__name__}") from None

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def run(self, work: Callable[[RedisClient], Awaitable[T]], otherwise: T) -> T:
        """Return the result of one or a few commands; `otherwise` if they fail, or Redis has just failed."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._silent_until.get(loop, 0.0):
            return otherwise
        try:
            async with unless_silent(_TIMEOUT):
                return await work(await self._clients.get())
        except Exception as error:  # noqa: BLE001  a cache that fails is as if it were not there
            # An unreachable server would cost each question the whole timeout.
            self._silent_until[loop] = loop.time() + _NOT_TRIED_SECONDS
            self.failed(error)
            return otherwise

    def failed(self, error: Exception) -> None:
        """Count a fault, and log the first. Texts of the server could contain what the URL contains."""
        self._failed(self._clients.address, error)

    def compare_clocks(self, theirs: datetime) -> timedelta:
        """Return how far the clock of Redis, which has just shown this time, is ahead of this process's.

        Records are stored by the clock of Redis, since the clocks of machines differ.
        """
        ahead = theirs - self._clock()
        # A smaller step is not followed: what this process has recorded stays in order.
        if abs(ahead - self.ahead) > CLOCK_STEP:
            self.ahead = ahead
        return self.ahead


class _RedisRows:
    """The rows of one account and base URL in Redis, whose keys share a tag: a cluster has them together."""

    def __init__(self, cache: RedisCache, prefix: str, account: bytes) -> None:
        self._cache = cache
        self._prefix = prefix
        self._account = account

    async def version(self, entity_id: str) -> Hashable:
        name = self._name(entity_id, "record")

        async def read(redis: RedisClient) -> bytes:
            return await redis.hget(name, "version") or b""

        return await self._cache.run(read, None)

    async def record(self, entity_id: str) -> Stored | None:
        return await self._cache.run(partial(self._record, entity_id), None)

    async def change(self, entity_id: str, rule: Rule) -> Stored | None:
        name = self._name(entity_id, "record")

        async def change(redis: RedisClient) -> Stored | None:
            for _ in range(_CHANGE_ATTEMPTS):
                known = await self._record(entity_id, redis)
                if (record := rule(known.record)) == known.record:
                    return known
                body = encode_record(record, self._cache.ahead)
                version = secrets.token_hex(8).encode()
                arguments = (known.version, version, checksum(self._account, entity_id, body) + body)
                if await _evaluated(redis, _CHANGE, name, *arguments, self._cache.keep_ms):
                    return Stored(record, version)
            raise OSError("other processes have changed the record each time")

        return await self._cache.run(change, None)

    async def _record(self, entity_id: str, redis: RedisClient) -> Stored:
        async with redis.pipeline(transaction=False) as steps:
            steps.time()
            steps.hmget(self._name(entity_id, "record"), "version", "row")
            (seconds, microseconds), (version, row) = await steps.execute()
        ahead = self._cache.compare_clocks(EPOCH + timedelta(seconds=seconds, microseconds=microseconds))
        stored = Stored(EntityRecord(), version or b"")
        if row is None:
            return stored
        if (record := verified_record(*_split(row), self._account, entity_id, ahead=ahead)) is not None:
            return evolve(stored, record=record)
        self._cache.count_corrupt()
        return stored

    async def bodies(
        self, key: tuple[str, str, str], known: Collection[Hashable], now: datetime
    ) -> dict[Hashable, bytes]:
        name = self._name(*key)
        nothing: list[bytes] = []
        # The names first: what is in memory already is not sent again.
        names = await self._cache.run(lambda redis: redis.hkeys(name), nothing)
        wanted = [part for part in map(_part, names) if part is not None and part not in known]

        async def read(parts: list[str], redis: RedisClient) -> list[tuple[str, bytes | None]]:
            rows = await redis.hmget(name, parts)
            # What is read stays; what is not expires by itself.
            await redis.pexpire(name, self._cache.keep_ms)
            return list(zip(parts, rows, strict=True))

        found: dict[Hashable, bytes] = {}
        corrupt: list[Hashable] = []
        unread: list[tuple[str, bytes | None]] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + _QUESTION_SECONDS
        for begin in range(0, len(wanted), _PARTS_PER_READ):
            if loop.time() > until:
                break  # the rest counts as not cached
            some = partial(read, wanted[begin : begin + _PARTS_PER_READ])
            for part, row in await self._cache.run(some, unread):
                if row is None:
                    continue
                if (body := verified(*_split(row), self._account, *key)) is not None:
                    found[part] = body
                else:
                    corrupt.append(part)
        if corrupt:
            await self.drop_corrupt(key, *corrupt)
        return found

    async def put(
        self, key: tuple[str, str, str], body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        part = f"{secrets.randbits(63)}-{series}-{len(body)}"
        name = self._name(*key)

        async def store(redis: RedisClient) -> str:
            # In one transaction: a reader never sees a catalogue deleted and its successor missing.
            async with redis.pipeline(transaction=True) as steps:
                if alone:
                    steps.delete(name)
                steps.hset(name, part, checksum(self._account, *key, body) + body)
                steps.pexpire(name, self._cache.keep_ms)
                await steps.execute()
            return part

        return await self._cache.run(store, None)

    def failed(self, error: Exception) -> None:
        self._cache.failed(error)

    async def drop_corrupt(self, key: tuple[str, str, str], *parts: Hashable) -> None:
        for _ in parts:
            self._cache.count_corrupt()
        name = self._name(*key)
        await self._cache.run(lambda redis: redis.hdel(name, *parts), None)

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        name, own = self._name(entity_id, "claim"), secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        until = loop.time() + _CLAIM_SECONDS

        async def take(redis: RedisClient) -> bool:
            return bool(await redis.set(name, own, nx=True, px=round(_CLAIM_SECONDS * 1_000)))

        try:
            # If Redis fails, no other process can hold a claim either.
            while loop.time() < until and not await self._cache.run(take, True):  # noqa: ASYNC110  not ours
                await asyncio.sleep(_CLAIM_POLL_SECONDS)
            yield
        finally:
            # If this is cancelled too, the claim ends by itself after ten seconds.
            await self._cache.run(lambda redis: _evaluated(redis, _RELEASE, name, own), 0)

    def _name(self, entity_id: str, *rest: str) -> str:
        return ":".join((self._prefix, entity_id, *rest))


def _split(row: bytes) -> tuple[bytes, bytes]:
    """Return the checksum and the body of a row."""
    return row[:_SUM_BYTES], row[_SUM_BYTES:]


def _part(name: bytes) -> str | None:
    """Return the part that a field of a hash is; None for a field that is not of this library.

    The name has a random number, the number of series, and the bytes, so that `inspect` reads no body.
    """
    return name.decode() if re.fullmatch(rb"[0-9]+-[0-9]+-[0-9]+", name) else None


async def _evaluated(redis: RedisClient, script: str, name: str, *arguments: Any) -> int:
    return int(await redis.eval(script, 1, name, *arguments))


def _escaped(text: str) -> str:
    """Return a text in which Redis sees no pattern."""
    return re.sub(r"([\\*?\[\]^-])", r"\\\1", text)
