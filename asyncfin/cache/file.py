"""Publications kept in a folder that the processes of a machine share.

The database is used in a separate thread, and opened at first use and again in a child process: neither
SQLite's connections nor locks may cross a fork. Only the claims and `FileCache.stats` touch the disk in the
caller's thread. What was read from the file stays in memory too.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sqlite3
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from hashlib import blake2b, scrypt
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar
from zlib import crc32

from asyncfin import checks
from asyncfin.cache import folder as folders
from asyncfin.cache.base import MiB, check_entity_id_or_none
from asyncfin.cache.database import Database, FileId, file_id, held, is_damage, path_in
from asyncfin.cache.record import Rule
from asyncfin.cache.store import CacheStats, Partition, partition_key
from asyncfin.cache.tiered import Stored, TieredCache
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.model.catalogue import Dataset
from asyncfin.wire.token import TokenSource

_CLAIM_SECONDS = 10.0
_CLAIM_POLL_SECONDS = 0.02

T = TypeVar("T")


class FileCache(TieredCache):
    """Keeps publications in a folder that the processes of a machine share.

    The folder belongs to this user alone (mode 0700, files 0600). It contains which entities were read, but
    no token. It must be on a local disk: SQLite and ``flock`` are not reliable over NFS. Problems of the disk
    are errors of `clear` only: what cannot be read is requested, and what cannot be stored is skipped, logged
    once and counted in `CacheStats.broken`.

    Args:
        folder: the folder, which is made at first use.
        account: the name of the account: clients with the same base URL and account share what is read.
            None: clients with the same fixed token share it; a token callable needs a name.
        max_bytes: the limit of what is kept; a value takes about 33 bytes. Publications that are no longer
            current are evicted first, then what was used least recently.

    Raises:
        ArgumentError: an argument is not as described, or the system is Windows. At first use:
            the folder or a file in it belongs to another user, is open to others, or is of another kind.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        account: str | None = None,
        max_bytes: int = 1024 * MiB,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if not folders.SUPPORTED:
            raise ArgumentError("FileCache needs file locks that this system does not have: use MemoryCache")
        given = checks.local_path("folder", "folder", folder, "a Redis server is for a RedisCache")
        self._folder = Path(os.path.abspath(os.path.expanduser(given)))
        self._account = checks.text().optional()("account", account)
        self._max_bytes = checks.positive_int("max_bytes", max_bytes)
        super().__init__(max_bytes, clock)
        self._secret = secrets.token_bytes(32)
        self._pid = os.getpid()
        self._thread: ThreadPoolExecutor | None = None
        self._open = _Open()
        # An abandoned connection would warn.
        weakref.finalize(self, self._open.close)

    def __repr__(self) -> str:
        return f"FileCache({str(self._folder)!r})"

    def __reduce__(self) -> Any:
        return partial(FileCache, account=self._account, max_bytes=self._max_bytes), (str(self._folder),)

    def partition(self, base_url: str, token: TokenSource) -> Partition:
        whose = self._whose(token)
        # Keyed by what only this process knows: the digest reveals nothing where it is printed.
        digest = blake2b(partition_key(base_url, "", whose), key=self._secret).digest()
        return self._partition(digest, lambda: self._rows(base_url, whose))

    def datasets(self, base_url: str, token: TokenSource) -> Awaitable[tuple[Dataset, ...]]:
        """Return the metadata of the publications kept for a client, by entity id. No request is sent.

        Kept are those whose catalogue was read. They need not be current any longer.

        Raises:
            ArgumentError: as for `partition`; or, when awaited, the folder is not one that may be used.
        """
        # Not async itself: the frame of a coroutine would hold the token while it waits.
        return self._datasets(self.partition(base_url, token), self._rows(base_url, self._whose(token)))

    async def _datasets(self, partition: Partition, rows: _FileRows) -> tuple[Dataset, ...]:
        found = []
        for entity_id in await rows.entity_ids():
            if (record := await partition.record(entity_id)) is None or record.current is None:
                continue
            if (catalogue := await partition.catalogue(entity_id, record.current.dataset_id)) is not None:
                found.append(catalogue.dataset)
        return tuple(found)

    def _whose(self, token: TokenSource) -> bytes:
        """Return what identifies the account of a client.

        Raises:
            ArgumentError: the token is a callable, and the cache has no `account`.
        """
        if self._account is not None:
            return self._account.encode()
        if isinstance(token, str):
            return token.encode()
        raise ArgumentError(
            "account must name the account of a token callable, whose tokens may change:"
            f" FileCache({str(self._folder)!r}, account=...)"
        )

    def _rows(self, base_url: str, whose: bytes) -> _FileRows:
        # A name needs no key stretching; a token does, since the folder must not help to guess it.
        if self._account is None:
            return _FileRows(self, _Derivation(partial(_token_key, base_url, whose)))
        key = partition_key(base_url, "account", whose)
        return _FileRows(self, _Derivation(lambda _: key))

    def stats(self) -> CacheStats:
        """Return what the cache contains, for all accounts and processes, and what this process has done.

        Reads the file, about a millisecond; `inspect` does so without blocking the event loop. A file that
        can't be read counts as empty here.

        Raises:
            ArgumentError: the folder is not one that may be used.
        """
        try:
            return self._stats()
        except OSError:
            return CacheStats(0, 0, self._hits, self._misses, self._broken)

    def _stats(self) -> CacheStats:
        return CacheStats(*held(self._folder), self._hits, self._misses, self._broken)

    async def inspect(self) -> CacheStats:
        """Read and return what `stats` returns.

        Raises:
            ArgumentError: the folder is not one that may be used.
            OSError: the file can't be read: it is damaged, or locked for longer than a moment.
        """
        return await asyncio.to_thread(self._stats)

    async def clear(self, entity_id: str | None = None) -> None:
        """Delete what is kept of an entity, or everything, of all accounts.

        Files of other formats are deleted with everything, unless another process has them open.

        Raises:
            SelectionError: the text cannot be an entity id.
            ArgumentError: the folder is not one that may be used.
            OSError: the file could not be written, and nothing was deleted.
        """
        check_entity_id_or_none(entity_id)

        def clear() -> bool:
            # In the same thread, after what reads: nothing that was read before comes back afterwards.
            self._clear_memory(entity_id)
            try:
                self._open.database(self._folder, self._max_bytes).clear(entity_id)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if entity_id is not None or not is_damage(error):
                    raise
                self._open.close_damaged(self._folder)
                self._open.database(self._folder, self._max_bytes)  # which replaces the damaged file
            if entity_id is None:
                folders.delete_databases(self._folder, keep=path_in(self._folder).name)
            return True

        if not await self._in_thread(clear, False):
            raise OSError(f"the cache in {self._folder} can't be written, and was not cleared")

    async def aclose(self) -> None:
        if self._thread is not None and self._pid == os.getpid():
            thread, self._thread = self._thread, None
            await asyncio.get_running_loop().run_in_executor(thread, self._open.close)
            # The one call before it was the thread's last, so there is nothing to wait for.
            thread.shutdown(wait=False)

    async def run(self, work: Callable[[Database], T], otherwise: T) -> T:
        """Return the result of a piece of work with the database; `otherwise` if the cache can't do it.

        Raises:
            ArgumentError: the folder is not one that may be used.
        """
        return await self._in_thread(
            lambda: work(self._open.database(self._folder, self._max_bytes)), otherwise
        )

    async def _in_thread(self, work: Callable[[], T], otherwise: T) -> T:
        if self._pid != os.getpid():  # after a fork, what is open is the parent's, and its thread is not here
            self._pid, self._thread = os.getpid(), None
            self._open.abandon()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "asyncfin-cache")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._tried, work, otherwise)

    async def version(self) -> Hashable:
        """Return what differs once another process has changed the file; None: it cannot be read."""
        # Here, and not in the thread, which costs ten times as long: it reads shared memory, not the disk.
        if self._open.is_open and self._open.lock.acquire(blocking=False):
            try:
                if self._open.is_open:
                    return self._open.database(self._folder, self._max_bytes).version()
            except sqlite3.Error:
                pass
            finally:
                self._open.lock.release()
        return await self.run(lambda database: database.version(), None)

    def _tried(self, work: Callable[[], T], otherwise: T) -> T:
        try:
            with self._open.lock:
                return work()
        except ArgumentError:
            raise
        except Exception as error:  # noqa: BLE001  a cache that fails is as if it were not there
            if is_damage(error):
                self._open.close_damaged(self._folder)
            self.failed(error)
            return otherwise
        finally:
            # Damage is found while reading, in the database's thread, and counted here.
            self._broken += self._open.take_broken()

    def failed(self, error: Exception) -> None:
        """Count a fault, and log the first."""
        self._failed(self._folder, error, f": {error}")


class _Open:
    """The open database of a process, apart from the cache so that it can be closed without it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._database: Database | None = None
        self._damaged: FileId | None = None
        # The cache may be used from several threads, or while it is being closed.
        self.lock = RLock()

    @property
    def is_open(self) -> bool:
        return self._pid == os.getpid() and self._database is not None

    def database(self, folder: Path, max_bytes: int) -> Database:
        if self._database is None:
            self._database = Database(folder, max_bytes, damaged=self._damaged)
            self._damaged = None
        return self._database

    def take_broken(self) -> int:
        """Return how many damaged parts were found since the last call."""
        if self._database is None:
            return 0
        broken, self._database.broken = self._database.broken, 0
        return broken

    def close(self) -> None:
        if self._pid != os.getpid():
            return
        with self.lock:
            database, self._database = self._database, None
            if database is not None:
                with suppress(sqlite3.Error):
                    database.close()

    def close_damaged(self, folder: Path) -> None:
        """Close the file in which damage was found, and have it replaced when it is opened again."""
        if self._database is not None:
            self._damaged = file_id(path_in(folder))
        self.close()

    def abandon(self) -> None:
        """Leave the parent's database alone: even closing it here would give up locks of the parent."""
        if self._database is not None:
            _abandoned.append(self._database)
            self._database = None
        self._pid, self.lock = os.getpid(), RLock()  # a thread of the parent may have held the old one


_abandoned: list[Database] = []


class _Derivation:
    """The key of a partition, made once in a process; it hides the token that it is made from."""

    def __init__(self, derive: Callable[[Path], bytes]) -> None:
        self._derive: Callable[[Path], bytes] | None = derive
        self._key = b""

    def key(self, folder: Path) -> bytes:
        if self._derive is not None:
            self._key = self._derive(folder)
            self._derive = None
        return self._key

    def __repr__(self) -> str:
        return "<the key of a partition>"

    def __reduce__(self) -> Any:
        raise TypeError("the key of a partition cannot be pickled")


def _token_key(base_url: str, token: bytes, folder: Path) -> bytes:
    """Return the key of a token's account: slow on purpose, so that no token can be guessed from it."""
    return partition_key(base_url, "token", scrypt(token, salt=folders.salt(folder), n=2**14, r=8, p=1))


class _FileRows:
    """The rows of one account in the file. Each operation is a piece of work for the cache's thread."""

    def __init__(self, cache: FileCache, derivation: _Derivation) -> None:
        self._cache = cache
        self._derivation = derivation

    @property
    def _account(self) -> bytes:
        return self._derivation.key(self._cache._folder)

    async def version(self, entity_id: str) -> Hashable:
        return await self._cache.version()

    async def record(self, entity_id: str) -> Stored | None:
        return await self._cache.run(lambda database: database.record(self._account, entity_id), None)

    async def change(self, entity_id: str, rule: Rule) -> Stored | None:
        return await self._cache.run(lambda database: database.change(self._account, entity_id, rule), None)

    async def entity_ids(self) -> list[str]:
        nothing: list[str] = []
        return await self._cache.run(lambda database: database.entity_ids(self._account), nothing)

    async def bodies(
        self, key: tuple[str, str, str], known: Collection[Hashable], now: datetime
    ) -> dict[Hashable, bytes]:
        nothing: dict[Hashable, bytes] = {}
        return await self._cache.run(
            lambda database: database.bodies((self._account, *key), known, now), nothing
        )

    async def put(
        self, key: tuple[str, str, str], body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        return await self._cache.run(
            lambda database: database.put((self._account, *key), body, series, now, alone=alone), None
        )

    async def drop_corrupt(self, key: tuple[str, str, str], part: Hashable) -> None:
        await self._cache.run(lambda database: database.drop_corrupt(part), None)

    def failed(self, error: Exception) -> None:
        self._cache.failed(error)

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        # By the entity alone: two accounts that request one at the same time wait a little for each other.
        claim = folders.Claim(self._cache._folder, crc32(entity_id.encode()))
        # Opened first: that makes the folder, and nothing may be written to one that may not be used.
        if not self._cache._open.is_open:
            await self._cache.run(lambda database: None, None)
        loop = asyncio.get_running_loop()
        until = loop.time() + _CLAIM_SECONDS
        try:
            try:
                while not claim.take() and loop.time() < until:  # noqa: ASYNC110  between processes
                    await asyncio.sleep(_CLAIM_POLL_SECONDS)
            except OSError as error:
                self._cache.failed(error)  # then both send the request: it costs one more, and nothing else
            yield
        finally:
            claim.release()
