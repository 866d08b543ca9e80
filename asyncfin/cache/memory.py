"""Publications kept in memory, for as long as the process lasts."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import datetime
from types import MethodType

from asyncfin import checks
from asyncfin.cache.base import MEMORY_BYTES, Cache, Partition
from asyncfin.cache.entries import LeastRecentlyUsed
from asyncfin.cache.store import partition_key
from asyncfin.clock import utc_now
from asyncfin.wire.token import TokenSource

_MAX_CALLABLES = 1_000


class MemoryCache(Cache):
    """Keeps publications in memory.

    The clients of one process may share it, in any event loops and threads.

    Args:
        max_bytes: the limit of what is kept. Pages are kept as received until a quarter
            of it is used, and compressed from then on; a value then takes about 33
            bytes. Publications that are no longer current are evicted first, then what
            was used least recently.
        account: the name of the account: clients with the same base URL and account
            share what is read. None: clients with the same token share it, also one
            after the other; or those with the same token callable, by identity. The
            last 1,000 callables are kept.
        clock: returns the wall time, aware UTC; for tests.

    Raises:
        ArgumentError: an argument is not as described.
    """

    def __init__(
        self,
        max_bytes: int = MEMORY_BYTES,
        *,
        account: str | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        checks.positive_int("max_bytes", max_bytes)
        super().__init__(max_bytes, clock, account=account)
        # A random name for each callable.
        self._names: LeastRecentlyUsed[object, bytes] = LeastRecentlyUsed(
            _MAX_CALLABLES
        )

    def __repr__(self) -> str:
        stats = self.stats()
        return f"<MemoryCache: {stats.series:,} series, {stats.bytes:,} bytes>"

    def _get_token_partition(self, base_url: str, token: TokenSource) -> Partition:
        if isinstance(token, str):
            account = self._secret + token.encode()
        else:
            # What it will return is not known, and may change. Methods are equal if
            # their objects are the same, and are new objects whenever they are read.
            is_method = isinstance(token, MethodType)
            method = token if is_method else token.__call__  # type: ignore[operator]
            account = self._names.get(method) or secrets.token_bytes(16)
            self._names.put(method, account)
        return Partition(self, partition_key(base_url, "token", account))

    async def aclose(self) -> None:
        self._memory.clear(None)
