"""Redis clients: one per event loop, closed with it (extra `redis`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin.checks import without_password
from asyncfin.errors import ArgumentError
from asyncfin.tasks import closed_with_loop

if TYPE_CHECKING:
    from redis.asyncio import Redis

# redis.asyncio.Redis, whose annotations mix both worlds, and change with its releases.
RedisClient: TypeAlias = Any


class RedisClients:
    """The Redis client of each event loop, closed with the loop.

    It is made from a URL; a `redis.asyncio.Redis` is used by every loop, and closed by
    the caller.
    """

    def __init__(self, redis: object) -> None:
        try:
            from redis.asyncio import Redis
        except ImportError:
            raise ImportError(
                "redis is not installed: pip install 'asyncfin[redis]'", name="redis"
            ) from None
        self._given: Redis | None = None
        self._url = ""
        self._clients: dict[
            asyncio.AbstractEventLoop, tuple[RedisClient, AsyncGenerator[None, None]]
        ] = {}
        if isinstance(redis, Redis):
            self._given = redis
        elif isinstance(redis, str):
            self._url = redis
        else:
            raise ArgumentError(
                "redis must be a URL or a redis.asyncio.Redis, not "
                f"{type(redis).__name__}"
            )
        try:
            # Nothing connects before the first command.
            probe: RedisClient = self._make()
            if self._url:
                probe.connection_pool.make_connection()
        # The URL is not shown: it may contain a password.
        except ValueError:
            raise ArgumentError(
                "redis must be a URL that begins with redis://, rediss:// or unix://, "
                "and this one does not"
            ) from None
        except TypeError:
            raise ArgumentError(
                "redis must be a URL with parameters of redis-py, or none, after ?"
            ) from None
        self.decodes = bool(
            probe.connection_pool.connection_kwargs.get("decode_responses")
        )

    @property
    def address(self) -> str:
        """The URL without what may be secret in it."""
        return without_password(self._url) if self._url else "Redis(...)"

    async def get(self) -> RedisClient:
        """Return the client of the running loop, or the caller's."""
        if self._given is not None:
            return self._given
        # After a fork the loop is another one, whose connections are not the parent's.
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # A copy made in one step: loops of other threads come and go.
            for other_loop in list(self._clients):
                if other_loop.is_closed():
                    self._clients.pop(other_loop, None)
            client = self._make()

            async def close() -> None:
                self._clients.pop(loop, None)
                await client.aclose()

            life = closed_with_loop(close)
            self._clients[loop] = client, life
            await anext(life)
        return self._clients[loop][0]

    async def aclose(self) -> None:
        """Close the client of the running loop, unless it is the caller's; `get` makes
        another one.
        """
        if client := self._clients.get(asyncio.get_running_loop()):
            await client[1].aclose()

    def _make(self) -> Redis:
        if self._given is not None:
            return self._given
        from redis.asyncio import Redis

        return Redis.from_url(self._url)
