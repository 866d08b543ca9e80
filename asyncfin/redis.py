"""Redis clients: one per event loop, closed with it, and how long a command may take (extra `redis`)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin.checks import without_password
from asyncfin.errors import ArgumentError
from asyncfin.tasks import closed_with_loop

if TYPE_CHECKING:
    from redis.asyncio import Redis

# redis.asyncio.Redis, whose annotations mix both worlds, and change with its releases.
RedisClient: TypeAlias = Any

# A timer that fires later than this, in seconds, measured the event loop's delay and not the server's.
_LATE = 0.05
_EXTENSIONS = 3
_TIMERS = 10  # of one wait


class RedisClients:
    """The Redis client of each event loop, closed with the loop.

    It is made from a URL; a `redis.asyncio.Redis` is used by every loop, and closed by the caller.
    """

    def __init__(self, redis: object) -> None:
        try:
            from redis.asyncio import Redis
        except ImportError:
            raise ImportError("redis is not installed: pip install 'asyncfin[redis]'", name="redis") from None
        self._given: Redis | None = None
        self._url = ""
        self._pid = os.getpid()
        self._clients: dict[asyncio.AbstractEventLoop, tuple[RedisClient, AsyncGenerator[None, None]]] = {}
        if isinstance(redis, Redis):
            self._given = redis
        elif isinstance(redis, str):
            self._url = redis
        else:
            raise ArgumentError(f"redis must be a URL or a redis.asyncio.Redis, not {type(redis).__name__}")
        try:
            probe: RedisClient = self._make()  # nothing connects before the first command
            if self._url:
                probe.connection_pool.make_connection()
        # The URL is not shown: it may contain a password.
        except ValueError:
            raise ArgumentError(
                "redis must be a URL that begins with redis://, rediss:// or unix://, and this one does not"
            ) from None
        except TypeError:
            raise ArgumentError("redis must be a URL with parameters of redis-py, or none, after ?") from None
        self.decodes = bool(probe.connection_pool.connection_kwargs.get("decode_responses"))

    @property
    def address(self) -> str:
        """The URL without what may be secret in it."""
        return without_password(self._url) if self._url else "Redis(...)"

    async def get(self) -> RedisClient:
        """Return the client of the running loop, or the caller's."""
        if self._given is not None:
            return self._given
        if os.getpid() != self._pid:  # after a fork, the connections are the parent's
            self._pid, self._clients = os.getpid(), {}
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            for each in list(self._clients):  # a copy made in one step: loops of other threads come and go
                if each.is_closed():
                    self._clients.pop(each, None)
            client = self._make()

            async def close() -> None:
                self._clients.pop(loop, None)
                await client.aclose()

            life = closed_with_loop(close)
            self._clients[loop] = client, life
            await anext(life)
        return self._clients[loop][0]

    async def aclose(self) -> None:
        """Close the client of the running loop, unless it is the caller's; `get` makes another one."""
        if opened := self._clients.get(asyncio.get_running_loop()):
            await opened[1].aclose()

    def _make(self) -> Redis:
        if self._given is not None:
            return self._given
        from redis.asyncio import Redis

        return Redis.from_url(self._url)


@asynccontextmanager
async def unless_silent(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds` in which the event loop was running: TimeoutError.

    A wait in which a timer fired more than 50 ms late has measured a busy loop, and the response may have
    been received since: the block gets the same time again, at most three times.
    """
    loop = asyncio.get_running_loop()
    extensions = 0
    timer: asyncio.TimerHandle

    def start(end: float, busy: bool) -> None:
        nonlocal timer
        # Several timers: the last one alone may be in time although the loop was blocked before it.
        due = min(loop.time() + seconds / _TIMERS, end)
        timer = loop.call_at(due, look, due, end, busy)

    def look(due: float, end: float, busy: bool) -> None:
        nonlocal extensions
        now = loop.time()
        busy = busy or now - due > _LATE
        if now < end:
            start(end, busy)
        elif busy and extensions < _EXTENSIONS:
            extensions += 1
            start(now + seconds, False)
        else:
            limit.reschedule(now)

    try:
        async with asyncio.timeout(None) as limit:
            start(loop.time() + seconds, False)
            try:
                yield
            finally:
                timer.cancel()
    except TimeoutError:
        busy = "; the event loop was busy" if extensions else ""
        raise TimeoutError(f"no response within {seconds:g} s{busy}") from None
