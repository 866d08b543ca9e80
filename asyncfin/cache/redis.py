"""Publications in Redis, which the machines of one account share (extra `redis`).

A group is a hash, and its names are the fields. It expires when it was not used for
`keep`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from asyncfin import checks
from asyncfin.cache.base import MEMORY_BYTES, STORE_SECONDS, Cache, hash_text
from asyncfin.cache.store import LOCK_SECONDS
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.redis import RedisClients

if TYPE_CHECKING:
    from redis.asyncio import Redis

# What one command lists, so that other clients do not wait for it.
_NAMES_PER_COMMAND = 1_000
_PUT_IF_LATER = """
local stored = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local moment = tonumber(string.sub(stored, 1, 20)) or 0
local later = tonumber(string.sub(ARGV[2], 1, 20)) >= moment
if not later and moment <= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return redis.call('PEXPIRE', KEYS[1], ARGV[4])
"""
_RELEASE = (
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) "
    "end return 0"
)


class RedisCache(Cache):
    """Keeps publications in Redis for the machines that share an account.

    Anyone who can read the Redis database can read the data. Problems of Redis are
    errors of `clear` and `inspect` only: what cannot be read is requested, and what
    cannot be stored is skipped, logged once and counted in `CacheStats.broken`.

    Args:
        redis: a URL (``redis://``, ``rediss://``, ``unix://``), or a
            ``redis.asyncio.Redis`` that does not decode responses, which stays the
            caller's to close.
        account: the name of the account: clients with the same base URL and account
            share what is read.
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
                "redis must not decode responses: what is kept is bytes "
                "(decode_responses=False)"
            )
        checks.text()("account", account)
        if not isinstance(keep, timedelta) or keep < timedelta(seconds=1):
            raise ArgumentError(
                "keep must be a timedelta of at least a second, not "
                f"{checks.short_repr(keep)}"
            )
        prefix = f"asyncfin:cache:{hash_text(account)}:"
        store = RedisStore(self._clients, prefix, keep)
        place = self._clients.address
        super().__init__(MEMORY_BYTES, clock, store, place, account=account)

    def __repr__(self) -> str:
        return f"RedisCache({self._place!r}, account=...)"

    async def aclose(self) -> None:
        await self._clients.aclose()


class RedisStore:
    """The store of a `RedisCache`."""

    def __init__(self, clients: RedisClients, prefix: str, keep: timedelta) -> None:
        self._clients = clients
        self._prefix = prefix  # of all of its keys
        self._keep = keep

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        redis = await self._clients.get()
        group, _, _ = keys[0].rpartition("/")
        group_key = self._prefix + group
        fields = [key.rpartition("/")[2] for key in keys]
        async with redis.pipeline(transaction=False) as steps:
            steps.hmget(group_key, fields)
            steps.pexpire(group_key, self._keep)
            # A replica rejects the second step, and has served the first.
            rows, _ = await steps.execute(raise_on_error=False)
        if isinstance(rows, Exception):
            raise rows
        return list(rows)

    async def put(self, key: str, body: bytes) -> None:
        redis = await self._clients.get()
        group, _, name = key.rpartition("/")
        async with redis.pipeline(transaction=True) as steps:
            steps.hset(self._prefix + group, name, body)
            steps.pexpire(self._prefix + group, self._keep)
            await steps.execute()

    async def names(self, prefix: str) -> list[str]:
        redis = await self._clients.get()
        groups = [self._prefix + prefix.rstrip("/")]
        if prefix.count("/") < 3:  # not a group
            # Digests and slashes, in which Redis sees no pattern.
            pattern = f"{self._prefix}{prefix}*"
            names = redis.scan_iter(pattern, _NAMES_PER_COMMAND, "HASH")
            groups = [name.decode() async for name in names]
        async with redis.pipeline(transaction=False) as steps:
            for group in groups:
                steps.hkeys(group)
            fields = await steps.execute()
        keys = []
        for group, names in zip(groups, fields, strict=True):
            for name in names:
                key = f"{group}/{name.decode('utf-8', 'replace')}"
                keys.append(key.removeprefix(self._prefix))
        return keys

    async def drop(self, keys: Iterable[str]) -> None:
        redis = await self._clients.get()
        async with redis.pipeline(transaction=False) as steps:
            for key in keys:
                group, _, name = key.rpartition("/")
                steps.hdel(self._prefix + group, name)
            await steps.execute()

    async def put_if_later(self, key: str, body: bytes, latest: int) -> None:
        redis = await self._clients.get()
        group, _, name = key.rpartition("/")
        keep = round(self._keep / timedelta(milliseconds=1))
        group_key = self._prefix + group
        # Not EVALSHA: to a distant server its first call takes three times as long.
        await redis.eval(_PUT_IF_LATER, 1, group_key, name, body, latest, keep)

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        redis = await self._clients.get()
        key = f"{self._prefix}{name}/lock"
        holder = secrets.token_hex(16)
        is_held = True  # perhaps, until Redis replies
        try:
            expiry = round(LOCK_SECONDS * 1_000)
            is_held = bool(await redis.set(key, holder, nx=True, px=expiry))
            yield is_held
        finally:
            if is_held:
                with suppress(Exception):  # it ends by itself
                    async with asyncio.timeout(STORE_SECONDS):
                        await redis.eval(_RELEASE, 1, key, holder)
