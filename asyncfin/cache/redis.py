"""Publications kept in Redis, which the machines of one account share (extra `redis`).

Pointers and catalogues are strings; the parts of a publication's values are the fields of a hash. All carry
checksums over their key and content, and expire when they were not used for `keep`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from asyncfin.cache.codec import FORMAT, checksum
from asyncfin.cache.memory import Memory, MiB, utc_now
from asyncfin.cache.store import CacheStats, Partition, Pointer, partition_key
from asyncfin.cache.tiered import TieredPartition
from asyncfin.errors import ArgumentError, printable
from asyncfin.model import checks
from asyncfin.table.optional import library
from asyncfin.wire.protocol import check_entity_id
from asyncfin.wire.token import TokenSource

if TYPE_CHECKING:
    from redis.asyncio import Redis

_log = logging.getLogger("asyncfin.cache")

_MEMORY_BYTES = 64 * MiB
_SUM_BYTES = 16
# A Redis that does not answer costs a question so much, and the next ones nothing for a while.
_TIMEOUT = 2.0
_LEFT_ALONE = 2.0
_CLAIM_SECONDS = 10.0
_CLAIM_POLL_SECONDS = 0.05

# Confirmations only move forward, whichever machine stores them; one of the future gives way.
_PUT_POINTER = """
local known = redis.call('HGET', KEYS[1], 'confirmed')
if known and tonumber(known) > tonumber(ARGV[1]) and tonumber(known) <= tonumber(ARGV[2]) then return 0 end
redis.call('HSET', KEYS[1], 'confirmed', ARGV[1], 'row', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"

# redis.asyncio.Redis, whose own annotations are those of both worlds at once, and change with its releases.
Client: TypeAlias = Any
T = TypeVar("T")


class RedisCache:
    """Keeps publications in Redis for the machines that share an account.

    Whoever can read the Redis database can read the data. Problems of Redis are never errors: what cannot be
    read is requested, and what cannot be stored is skipped, logged once and counted in `CacheStats.broken`.

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
        library("redis.asyncio", "redis")
        _check_redis(redis)
        self._url = redis if isinstance(redis, str) else None
        self._client: Client | None = None if isinstance(redis, str) else redis
        self._account = checks.text()("account", account).encode()
        if not isinstance(keep, timedelta) or keep < timedelta(seconds=1):
            raise ArgumentError(f"keep must be a timedelta of at least a second, not {checks.shown(keep)}")
        self.keep_ms = round(keep / timedelta(milliseconds=1))
        self._clock = checks.plain_callable("clock", clock)
        self._memory = Memory(_MEMORY_BYTES)
        self._partitions: dict[bytes, TieredPartition] = {}
        self._hits = self._misses = self._broken = 0
        self._warned = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._silent_until = 0.0

    def __repr__(self) -> str:
        return f"RedisCache({_address(self._url) if self._url else 'Redis(...)'!r}, account=...)"

    def __reduce__(self) -> Any:
        raise TypeError("a RedisCache cannot be pickled: its URL may hold a password")

    @property
    def prefix(self) -> str:
        """What all keys of this account begin with."""
        return f"asyncfin:cache:{FORMAT}:{blake2b(self._account, digest_size=16).hexdigest()}"

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        """Return the part of the cache that a client sees; the same object for the same base URL."""
        digest = partition_key(base_url, "account", self._account)
        if digest not in self._partitions:
            rows = _RedisRows(self, f"{self.prefix}:{{{digest.hex()}}}", digest)
            self._partitions[digest] = TieredPartition(digest, self._memory, rows, self._count, self._clock)
        return self._partitions[digest]

    def stats(self) -> CacheStats:
        """Return what this process has of it in memory, and what it has done."""
        return CacheStats(*self._memory.held(), self._hits, self._misses, self._broken)

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is kept of an entity, or everything, of this account.

        Raises:
            SelectionError: the entity id is not ``O-`` and 32 characters.
        """
        if entity_id is not None:
            check_entity_id(entity_id)
        self._memory.clear(entity_id)
        pattern = f"{self.prefix}:*" if entity_id is None else f"{self.prefix}:*:{entity_id}:*"

        async def delete(redis: Client) -> None:
            async for name in redis.scan_iter(match=pattern, count=1_000):
                await redis.delete(name)

        await self.run(delete, None)

    async def aclose(self) -> None:
        """Close the connections of this event loop; they open again when the cache is used."""
        if self._url is not None and self._client is not None:
            client, self._client = self._client, None
            if self._loop is asyncio.get_running_loop():
                await client.aclose()

    async def run(self, work: Callable[[Client], Awaitable[T]], otherwise: T) -> T:
        """Return what a piece of work with Redis brings; `otherwise` if that fails, or has just failed."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._silent_until and loop is self._loop:
            return otherwise
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await work(self._connected(loop))
        except Exception as error:  # noqa: BLE001  a cache that fails is as if it were not there
            # A server that is away would cost each question the whole timeout.
            self._silent_until = loop.time() + _LEFT_ALONE
            self._loop = loop
            self.failed(error)
            return otherwise

    def _connected(self, loop: asyncio.AbstractEventLoop) -> Client:
        """Return the client; connections of another event loop are left to it."""
        if self._url is not None and (self._client is None or self._loop is not loop):
            self._client = library("redis.asyncio", "redis").Redis.from_url(self._url)
        self._loop = loop
        assert self._client is not None
        return self._client

    def failed(self, error: Exception) -> None:
        """Count a fault, and log the first. Texts of the server could hold what the URL holds."""
        self._broken += 1
        if not self._warned:
            self._warned = True
            _log.warning(
                "the cache in %s can't be used just now, and is passed over: %s",
                printable(_address(self._url) if self._url else "Redis"),
                type(error).__name__,
            )

    def broke(self) -> None:
        """Count a damaged row."""
        self._broken += 1

    def _count(self, hits: int, misses: int) -> None:
        self._hits += hits
        self._misses += misses


class _RedisRows:
    """The rows of one account and base URL in Redis, whose keys share a tag: a cluster has them together."""

    def __init__(self, cache: RedisCache, prefix: str, account: bytes) -> None:
        self._cache = cache
        self._prefix = prefix
        self._account = account

    async def pointer(self, entity_id: str, otherwise: Pointer | None) -> Pointer | None:
        async def read(redis: Client) -> Pointer | None:
            row = await redis.hget(self._name(entity_id, "pointer"), "row")
            if row is None:
                return None
            stored, body = row[:_SUM_BYTES], row[_SUM_BYTES:]
            if stored != checksum(self._account, entity_id, body):
                self._cache.broke()
                return None
            dataset_id, confirmed = msgspec.msgpack.decode(body, type=tuple[str, int])
            return Pointer(dataset_id, _EPOCH + timedelta(microseconds=confirmed))

        return await self._cache.run(read, otherwise)

    async def put_pointer(self, entity_id: str, pointer: Pointer, now: datetime) -> None:
        confirmed = _microseconds(pointer.confirmed)
        body = msgspec.msgpack.encode((pointer.dataset_id, confirmed))
        row = checksum(self._account, entity_id, body) + body
        arguments = (confirmed, _microseconds(now), row, self._cache.keep_ms)
        name = self._name(entity_id, "pointer")
        await self._cache.run(lambda redis: _evaluated(redis, _PUT_POINTER, name, *arguments), None)

    async def forget(self, entity_id: str) -> None:
        await self._cache.run(lambda redis: redis.delete(self._name(entity_id, "pointer")), None)

    async def bodies(
        self, key: tuple[str, str, str], known: Collection[int], now: datetime
    ) -> dict[int, bytes]:
        async def read(redis: Client) -> dict[int, bytes]:
            parts = [int(part) for part in await redis.hkeys(name)]
            # The names first: what is in memory already is not sent again.
            if not (wanted := [part for part in parts if part not in known]):
                return {}
            rows = await redis.hmget(name, [str(part) for part in wanted])
            # What is read lives on; what nobody reads goes by itself.
            await redis.pexpire(name, self._cache.keep_ms)
            return {part: row for part, row in zip(wanted, rows, strict=True) if row is not None}

        name = self._name(key[0], *key[1:])
        found = {}
        nothing: dict[int, bytes] = {}
        for part, row in (await self._cache.run(read, nothing)).items():
            body = row[_SUM_BYTES:]
            if row[:_SUM_BYTES] == checksum(self._account, *key, body):
                found[part] = body
            else:
                await self.drop(key, part)
        return found

    async def put(
        self, key: tuple[str, str, str], body: bytes, series: int, now: datetime, *, alone: bool
    ) -> int | None:
        part = secrets.randbits(63)
        name = self._name(key[0], *key[1:])

        async def store(redis: Client) -> int | None:
            # Whole or not at all: a reader never sees a catalogue deleted and its successor not there.
            async with redis.pipeline(transaction=True) as steps:
                if alone:
                    steps.delete(name)
                steps.hset(name, str(part), checksum(self._account, *key, body) + body)
                steps.pexpire(name, self._cache.keep_ms)
                await steps.execute()
            return part

        return await self._cache.run(store, None)

    async def drop(self, key: tuple[str, str, str], part: int) -> None:
        self._cache.broke()
        name = self._name(key[0], *key[1:])
        await self._cache.run(lambda redis: redis.hdel(name, str(part)), None)

    def failed(self, error: Exception) -> None:
        self._cache.failed(error)

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        name, own = self._name(entity_id, "claim"), secrets.token_hex(16)
        loop = asyncio.get_running_loop()
        until = loop.time() + _CLAIM_SECONDS

        async def take(redis: Client) -> bool:
            return bool(await redis.set(name, own, nx=True, px=round(_CLAIM_SECONDS * 1_000)))

        try:
            # Where Redis fails nobody else can hold a claim either.
            while loop.time() < until and not await self._cache.run(take, True):  # noqa: ASYNC110  not ours
                await asyncio.sleep(_CLAIM_POLL_SECONDS)
            yield
        finally:
            # If this is cancelled too, the claim ends by itself after ten seconds.
            await self._cache.run(lambda redis: _evaluated(redis, _RELEASE, name, own), None)

    def _name(self, entity_id: str, *rest: str) -> str:
        return ":".join((self._prefix, entity_id, *rest))


_EPOCH = datetime.fromtimestamp(0, UTC)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


async def _evaluated(redis: Client, script: str, name: str, *arguments: Any) -> None:
    await redis.eval(script, 1, name, *arguments)


def _check_redis(redis: object) -> None:
    if isinstance(redis, str):
        if not re.match(r"(redis|rediss|unix)://", redis):
            raise ArgumentError("redis must be a URL that begins with redis://, rediss:// or unix://")
        return
    if not isinstance(redis, library("redis.asyncio", "redis").Redis):
        raise ArgumentError(f"redis must be a URL or a redis.asyncio.Redis, not {type(redis).__name__}")
    if redis.connection_pool.connection_kwargs.get("decode_responses"):
        raise ArgumentError("redis must not decode responses: what is kept is bytes (decode_responses=False)")


def _address(url: str) -> str:
    """Return a URL without what may be secret in it."""
    scheme, _, rest = url.partition("://")
    place = rest.partition("?")[0].rpartition("@")[2]
    return f"{scheme}://{place}"
