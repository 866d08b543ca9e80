"""Publications kept in memory, for as long as the process lasts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import blake2b
from typing import Any

from asyncfin import checks
from asyncfin.cache.base import CATALOGUE, MemoryRecords, MiB, ProcessCache, check_entity_id_or_none
from asyncfin.cache.store import Partition, partition_key
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.model.catalogue import Catalogue, publication_id
from asyncfin.table.block import Block, compressed
from asyncfin.wire.token import TokenSource


class MemoryCache(ProcessCache):
    """Keeps publications in memory.

    The clients of one process may share it, in any event loops and threads.

    Args:
        max_bytes: the limit of what is kept. Pages are kept as received until a quarter of it is used, and
            compressed from then on; a value then takes about 33 bytes. Publications that are no longer
            current are evicted first, then what was used least recently.
        account: the name of the account: clients with the same base URL and account share what is read.
            None: clients with the same token, or the same token callable, share it. The cache keeps each
            callable for as long as itself, so one made for every client needs an account.

    Raises:
        ArgumentError: an argument is not as described.
    """

    def __init__(
        self,
        max_bytes: int = 64 * MiB,
        *,
        account: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        super().__init__(checks.positive_int("max_bytes", max_bytes), clock)
        self._account = checks.text().optional()("account", account)
        self._secret = secrets.token_bytes(32)
        self._callables: dict[Hashable, bytes] = {}
        self._partitions: dict[bytes, _MemoryPartition] = {}

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<MemoryCache: {stats.series:,} series, {stats.bytes:,} bytes>"

    def __reduce__(self) -> Any:
        raise TypeError("a MemoryCache cannot be pickled: it belongs to its process")

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        key = partition_key(base_url, *self._whose(token))
        if key not in self._partitions:
            self._partitions[key] = _MemoryPartition(self, key)
        return self._partitions[key]

    def _whose(self, token: TokenSource) -> tuple[str, bytes]:
        if self._account is not None:
            return "account", self._account.encode()
        if isinstance(token, str):
            # Keyed by what only this process knows: the digest reveals nothing where it is printed.
            return "token", blake2b(token.encode(), key=self._secret).digest()
        try:
            hash(token)
        except TypeError:
            raise ArgumentError(
                "account must name the account of a token callable that can't be hashed:"
                " MemoryCache(account=...)"
            ) from None
        # By the callable itself: what it will return is not known, and may change.
        return "callable", self._callables.setdefault(token, len(self._callables).to_bytes(8, "big"))

    async def clear(self, entity_id: str | None = None) -> None:
        check_entity_id_or_none(entity_id)
        self._memory.clear(entity_id)

    async def aclose(self) -> None:
        self._memory.clear(None)


class _MemoryPartition(MemoryRecords):
    def __init__(self, cache: MemoryCache, account: bytes) -> None:
        super().__init__(cache._memory, account, cache._clock)
        self._cache = cache

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        return self._memory.catalogue((self._account, entity_id, publication_id(dataset_id), CATALOGUE))

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        key = (self._account, catalogue.entity_id, publication_id(catalogue.dataset_id), CATALOGUE)
        self._memory.put_catalogue(key, catalogue)

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        return self._memory.blocks((self._account, entity_id, publication_id(dataset_id), value_version))

    async def put_blocks(
        self, entity_id: str, dataset_id: str, value_version: str, blocks: Iterable[Block]
    ) -> None:
        put = tuple(blocks)
        if not self._memory.has_room(put):
            # In a thread, for it takes a millisecond a megabyte.
            put = await asyncio.to_thread(compressed, put)
        self._memory.put_blocks((self._account, entity_id, publication_id(dataset_id), value_version), put)

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        yield  # no other process sees this memory

    def count(self, *, hits: int, misses: int) -> None:
        self._cache._count(hits, misses)
