"""What every cache of publications can do, what a store has to do, and whose data is
whose.

A publication never changes, so what was read of it stays true; only which publication
is current has to be confirmed. So a cache has three things: for each entity an
`EntityRecord`, which names it; catalogues; and the values of a publication, in the
blocks in which they were received, each series with all its periods.

A client sees only the partition of its account. What a cache cannot store or read
counts as not cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Protocol, runtime_checkable

from attrs import frozen

from asyncfin.cache.record import EntityRecord
from asyncfin.model.catalogue import Catalogue
from asyncfin.table.block import Block
from asyncfin.wire.token import TokenSource


@frozen
class CacheStats:
    """What a cache holds and has done.

    Attributes:
        series: how many series it holds, each with all its periods; one for each value
            version.
        bytes: their size and that of the catalogues.
        hits: wanted series that were cached, since the cache was created.
        misses: wanted series that had to be requested.
        broken: how many parts were damaged or could not be encoded, and how often the
            disk or server could not be used.
    """

    series: int
    bytes: int
    hits: int
    misses: int
    broken: int


@runtime_checkable
class Cache(Protocol):
    """The protocol of caches: `MemoryCache`, `FileCache` and `RedisCache` have it."""

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        """Return the part of the cache that a client sees; the same object for the same
        account.

        Raises:
            ArgumentError: the cache cannot determine the account, and needs its
                `account`.
        """
        ...

    def stats(self) -> CacheStats:
        """Return what this process has in memory and has done."""
        ...

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is cached of an entity, or everything, of all accounts; in Redis
        of this account.

        Raises:
            SelectionError: the text cannot be an entity id.
            ArgumentError: the folder of the cache is not one that may be used.
            OSError: it could not be deleted, or not wholly.
        """
        ...

    async def aclose(self) -> None:
        """Release what the cache holds open, and what it has in memory only; it can be
        used again.
        """
        ...


class Partition(Protocol):
    """What a cache has of one account of one service."""

    async def record(self, entity_id: str, token: str = "") -> EntityRecord | None:
        """Return the record of an entity, with what other processes have stored, or
        None if unknown.

        `token` is the digest of the client's token: a later rejection of it counts too.
        """
        ...

    async def observe(
        self, entity_id: str, record: EntityRecord, token: str = ""
    ) -> None:
        """Record what a response has shown of an entity, unless a later request has
        shown something.

        With the digest of a `token`, only clients with this token see it, in this
        process.
        """
        ...

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        """Return the catalogue of a publication, or None if it is not cached."""
        ...

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        """Store the catalogue of its publication."""
        ...

    async def blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        wanted: Iterable[str] | None = None,
    ) -> tuple[Block, ...]:
        """Return the cached values of a publication; no series is in two blocks.

        If this process has all `wanted` series in memory, it does not look whether
        others have stored more.
        """
        ...

    async def put_blocks(
        self,
        entity_id: str,
        dataset_id: str,
        value_version: str,
        blocks: Iterable[Block],
    ) -> None:
        """Store blocks of series with all their periods; a series that is cached
        already stays as it is.
        """
        ...

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        """Make other processes wait that are about to request the same entity, while
        the block lasts.

        Waits for at most 10 seconds for another's claim: then both send their requests.
        """
        ...

    def count(self, *, hits: int, misses: int) -> None:
        """Count wanted series that were cached, and those that had to be requested."""
        ...


class Store(Protocol):
    """Bytes by key, outside the process: a folder, or Redis.

    A key is a group and a name with a slash in between. What fails raises what the disk
    or server raises.
    """

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the bytes of keys of one group, and None for each that does not
        exist.
        """
        ...

    async def put(self, key: str, body: bytes, *, ttl: timedelta | None = None) -> None:
        """Store bytes as a whole, or not at all."""
        ...

    async def names(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix; one that ends in a slash is that of
        a group.
        """
        ...

    async def drop(self, keys: Iterable[str]) -> None:
        """Delete keys."""
        ...

    async def touch(self, group: str) -> None:
        """Record that a group is used."""
        ...

    async def put_if_later(self, key: str, body: bytes, moment: datetime) -> bool:
        """Store bytes unless later ones are stored, and return whether they were.

        The bytes begin with their moment, as 20 digits of microseconds. Those of a
        moment more than a minute in the future are replaced.
        """
        ...

    def lock(self, name: str, seconds: float) -> AbstractAsyncContextManager[bool]:
        """Hold a lock between processes, for which it waits at most `seconds`; yield
        whether it is held.

        It ends with the process that holds it, or after the same time.
        """
        ...


def partition_key(base_url: str, kind: str, account: bytes) -> bytes:
    """Return the key of an account's data, which no other account has.

    Each part is preceded by its length, so no two combinations share a key. `kind` says
    what the account is: a name, or what was derived from a token.
    """
    digest = blake2b(digest_size=32)
    for part in (base_url.encode(), kind.encode(), account):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
