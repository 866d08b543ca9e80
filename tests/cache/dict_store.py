"""A store in a dict, which fails or is slow when a test says so, and a cache over it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from asyncfin.cache.base import Cache, Partition
from asyncfin.cache.codec import row_moment
from asyncfin.cache.store import partition_key
from asyncfin.clock import utc_now
from asyncfin.wire.token import TokenSource


class DictStore:
    """Bytes in a dict, which other stores may share.

    Attributes:
        fails: whether each operation fails.
        seconds: how long each takes.
        calls: how many operations there were, those that failed too.
    """

    def __init__(self, rows: dict[str, bytes] | None = None) -> None:
        self.rows = {} if rows is None else rows
        self.fails, self.seconds, self.calls = False, 0.0, 0

    async def _work(self) -> None:
        self.calls += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise ConnectionError("away")

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        await self._work()
        return [self.rows.get(key) for key in keys]

    async def put(self, key: str, body: bytes) -> None:
        await self._work()
        self.rows[key] = body

    async def names(self, prefix: str) -> list[str]:
        await self._work()
        return [key for key in self.rows if key.startswith(prefix)]

    async def drop(self, keys: Iterable[str]) -> None:
        await self._work()
        for key in keys:
            self.rows.pop(key, None)

    async def put_if_later(self, key: str, body: bytes, latest: int) -> None:
        await self._work()
        if not row_moment(body) < row_moment(self.rows.get(key, b"")) <= latest:
            self.rows[key] = body

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        await self._work()
        key = f"lock {name}"
        is_held = key not in self.rows
        if is_held:
            self.rows[key] = b""
        yield is_held
        if is_held:
            del self.rows[key]


class DictCache(Cache):
    """A cache over a `DictStore`."""

    def __init__(
        self,
        rows: dict[str, bytes] | None = None,
        *,
        account: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.store = DictStore(rows)
        super().__init__(64 * 1024 * 1024, clock, self.store, "a dict", account=account)

    def _get_token_partition(self, base_url: str, token: TokenSource) -> Partition:
        return Partition(self, partition_key(base_url, "token", str(token).encode()))
