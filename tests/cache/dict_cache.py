"""A cache whose rows are in a dict: what a store has to do, and no more."""

import asyncio
from collections.abc import Callable, Collection, Hashable
from datetime import datetime
from itertools import count
from typing import Any

from asyncfin.cache.checksum import sealed, verified
from asyncfin.cache.codec import encode_record, verified_record
from asyncfin.cache.record import EntityRecord, RecordRule
from asyncfin.cache.store import partition_key
from asyncfin.cache.tiered import RowKey, Stored, TieredCache, TieredPartition
from asyncfin.clock import utc_now
from asyncfin.wire.token import TokenSource


class DictCache(TieredCache):
    """Keeps rows in a dict, which other caches may share.

    Attributes:
        fails: whether each operation fails.
        seconds: how long each takes.
        done: how many operations there were, those that failed too.
    """

    def __init__(
        self,
        rows: dict[Any, Any] | None = None,
        *,
        account: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__("a dict", 64 * 1024 * 1024, clock)
        self.rows: dict[Any, Any] = {} if rows is None else rows
        self.fails, self.seconds, self.done = False, 0.0, 0
        self._account = account

    def partition(self, base_url: str, token: TokenSource) -> TieredPartition:
        whose = self._account or str(token)
        digest = partition_key(base_url, "account", whose.encode())
        return self._partition(digest, lambda: DictRows(self, digest))

    async def work(self) -> dict[Any, Any]:
        self.done += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise ConnectionError("away")
        return self.rows

    async def _clear_rows(self, entity_id: str | None) -> None:
        rows = await self.work()
        for key in [key for key in rows if entity_id in (None, key[1])]:
            del rows[key]

    async def aclose(self) -> None:
        pass


class DictRows:
    def __init__(self, cache: DictCache, account: bytes) -> None:
        self._cache, self._account = cache, account
        self._ids = count()

    async def version(self, entity_id: str) -> Hashable:
        return (await self._cache.work()).get((self._account, entity_id), b"")

    async def record(self, entity_id: str) -> Stored:
        row = await self.version(entity_id)
        record = verified_record(row, self._account, entity_id)
        return Stored(record or EntityRecord(), row, corrupt=bool(row) and record is None)

    async def change(self, entity_id: str, rule: RecordRule) -> Stored:
        known = await self.record(entity_id)
        record = rule(known.record)
        row = sealed(encode_record(record), self._account, entity_id)
        self._cache.rows[self._account, entity_id] = row
        return Stored(record, row, known.corrupt)

    async def parts(self, key: RowKey, now: datetime) -> Collection[Hashable]:
        return list((await self._cache.work()).get((self._account, *key), ()))

    async def read(self, key: RowKey, parts: Collection[Hashable]) -> dict[Hashable, bytes | None]:
        rows = (await self._cache.work())[self._account, *key]
        return {part: verified(rows[part], self._account, *key) for part in parts}

    async def put(
        self, key: RowKey, body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        rows = (await self._cache.work()).setdefault((self._account, *key), {})
        if alone:
            rows.clear()
        part = f"{id(self)}-{next(self._ids)}"
        rows[part] = sealed(body, self._account, *key)
        return part

    async def drop(self, key: RowKey, parts: Collection[Hashable]) -> None:
        rows = (await self._cache.work())[self._account, *key]
        for part in parts:
            del rows[part]

    def claim(self, entity_id: str) -> "DictClaim":
        return DictClaim(self._cache, (self._account, entity_id, "claim"))


class DictClaim:
    def __init__(self, cache: DictCache, key: Any) -> None:
        self._cache, self._key = cache, key

    async def take(self) -> bool:
        return (await self._cache.work()).setdefault(self._key, self) is self

    async def release(self) -> None:
        rows = await self._cache.work()
        if rows.get(self._key) is self:
            del rows[self._key]
