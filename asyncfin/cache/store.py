"""What a store of publications has to do, and the key of an account's data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import Protocol

# How long a process waits for another one that requests the same entity, and between
# two attempts to hold a lock.
LOCK_SECONDS = 10.0
POLL_SECONDS = 0.02


class Store(Protocol):
    """Bytes by key, outside the process: a folder, or Redis.

    A key is a group and a name with a slash in between. What fails raises what the disk
    or server raises.
    """

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return the bytes of keys of one group, and None for each that does not exist.
        This counts as a use of them.
        """

    async def put(self, key: str, body: bytes) -> None:
        """Store bytes as a whole, or not at all."""

    async def names(self, prefix: str) -> list[str]:
        """Return the keys that begin with a prefix; one that ends in a slash is that of
        a group.
        """

    async def drop(self, keys: Iterable[str]) -> None:
        """Delete keys."""

    async def put_if_later(self, key: str, body: bytes, latest: int) -> None:
        """Store bytes unless later ones are stored.

        The bytes begin with their moment, as 20 digits of microseconds. Those of a
        moment after `latest` are replaced.
        """

    def try_lock(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Try to hold a lock between processes, without waiting; yield whether it is
        held.

        It ends with the process that holds it. In Redis, which does not see that, it
        also ends after `LOCK_SECONDS`.
        """


def partition_key(base_url: str, kind: str, account: bytes) -> bytes:
    """Return the key of an account's data, which no other account has.

    Each part is preceded by its length, so no two combinations share a key. `kind` says
    what the account is: a name, or what was derived from a token.
    """
    digest = blake2b(digest_size=32)
    for part in (base_url.encode(), kind.encode(), account):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
