"""What every cache of publications can do, and whose data is whose.

A publication should not change (spec 9.2), so what was read of it stays true; only which publication is
current has to be confirmed. So a cache keeps three things: for each entity an `EntityRecord`, which names it;
catalogues; and the values of a publication, in the blocks in which they were received, each series with all
its periods.

A client sees only the partition of its account. What a cache cannot store or read counts as not cached: only
`record` raises errors.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import Protocol, TypeVar, cast, runtime_checkable

from attrs import frozen

from asyncfin.cache.record import EntityRecord, Pointer
from asyncfin.model.catalogue import Catalogue
from asyncfin.table.block import Block
from asyncfin.wire.token import TokenSource


@frozen
class CacheStats:
    """What a cache holds and has done.

    Attributes:
        series: how many series it holds, each with all its periods; one for each value version.
        bytes: their size and that of the catalogues.
        hits: wanted series that were cached, since the cache was created.
        misses: wanted series that had to be requested.
        broken: how many parts were damaged or could not be encoded, and how often the disk or server could
            not be used: an outage counts once, however many questions it concerns.
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
        """Return the part of the cache that a client sees; the same object for the same account.

        Raises:
            ArgumentError: the cache cannot determine the account, and needs its `account`.
        """
        ...

    def stats(self) -> CacheStats:
        """Return what the cache holds and has done."""
        ...

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is cached of an entity, or everything, of all accounts; in Redis of this account.

        Files of other formats are deleted with everything, unless another process has them open.

        Raises:
            SelectionError: the text cannot be an entity id.
            ArgumentError: the folder of the cache is not one that may be used.
            OSError: it could not be deleted, or not wholly.
        """
        ...

    async def aclose(self) -> None:
        """Release what the cache holds open, and what it keeps in memory only; it can be used again."""
        ...


class Partition(Protocol):
    """What a cache keeps for one account of one service."""

    async def record(self, entity_id: str) -> EntityRecord | None:
        """Return what is known of an entity, including what other processes have stored since.

        None: that cannot be read, so nothing may be returned without a request.
        """
        ...

    async def confirm(self, entity_id: str, pointer: Pointer) -> EntityRecord | None:
        """Record that a request has confirmed a publication as the current one; return as `record`."""
        ...

    async def mark_replaced(self, entity_id: str, dataset_id: str) -> None:
        """Record that a response has just refused a publication as no longer current."""
        ...

    async def mark_refused(self, entity_id: str) -> None:
        """Record that a response has just refused the entity (403, 404)."""
        ...

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        """Return the catalogue of a publication."""
        ...

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        """Store the catalogue of its publication."""
        ...

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        """Return what is kept of a publication's values; no series is in two blocks.

        If this process has all `wanted` series in memory, it does not look whether others have stored more.
        """
        ...

    async def put_blocks(
        self, entity_id: str, dataset_id: str, value_version: str, blocks: Iterable[Block]
    ) -> None:
        """Store blocks of series with all their periods; a series that is known already stays as it is."""
        ...

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        """Make other processes wait that are about to request the same entity, while the block lasts.

        Waits for at most 10 seconds for another's claim: then both send their requests.
        """
        ...

    def count(self, *, hits: int, misses: int) -> None:
        """Count wanted series that were cached, and those that had to be requested."""
        ...


P = TypeVar("P", bound=Partition)


def of_question(partition: P) -> P:
    """Return a partition as one question sees it: our own bound how long that waits for their store."""
    bounded = getattr(partition, "of_question", None)
    return partition if bounded is None else cast("P", bounded())


def partition_key(base_url: str, kind: str, account: bytes) -> bytes:
    """Return the key of an account's data, which no other account has.

    Each part is preceded by its length, so no two combinations share a key. `kind` says what the account
    is: a name, or what was derived from a token.
    """
    digest = blake2b(digest_size=32)
    for part in (base_url.encode(), kind.encode(), account):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
