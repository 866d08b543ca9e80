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
from collections.abc import Awaitable, Callable, Collection, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from functools import partial
from hashlib import blake2b, scrypt
from pathlib import Path
from threading import RLock
from time import monotonic
from typing import Any, TypeVar
from zlib import crc32

from asyncfin import checks
from asyncfin.cache import folder as folders
from asyncfin.cache.availability import seconds_left
from asyncfin.cache.base import MiB
from asyncfin.cache.database import Database, FileId, file_id, held, is_damage, path_in
from asyncfin.cache.record import RecordRule
from asyncfin.cache.store import CacheStats, Partition, partition_key
from asyncfin.cache.tiered import RowKey, Stored, TieredCache, TieredPartition
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.local import SUPPORTED
from asyncfin.model.catalogue import Dataset
from asyncfin.wire.token import TokenSource

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
        clock: returns the wall time, aware UTC; for tests.

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
        if not SUPPORTED:
            raise ArgumentError("FileCache needs file locks that this system does not have: use MemoryCache")
        given = checks.local_path("folder", "folder", folder, "a Redis server is for a RedisCache")
        self._folder = Path(os.path.abspath(os.path.expanduser(given)))
        self._account = checks.text().optional()("account", account)
        self._max_bytes = checks.positive_int("max_bytes", max_bytes)
        super().__init__(str(self._folder), max_bytes, clock)
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

    async def _clear_rows(self, entity_id: str | None) -> None:
        def clear(database: Database) -> None:
            database.clear(entity_id)
            if entity_id is None:
                folders.delete_databases(self._folder, keep=path_in(self._folder).name)

        try:
            await self._in_thread(clear)
        except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
            raise OSError(
                f"the cache in {self._folder} can't be written, and was not cleared: {error}"
            ) from error

    async def aclose(self) -> None:
        if self._thread is not None and self._pid == os.getpid():
            thread, self._thread = self._thread, None
            await asyncio.get_running_loop().run_in_executor(thread, self._open.close)
            # The one call before it was the thread's last, so there is nothing to wait for.
            thread.shutdown(wait=False)

    async def _open_store(self) -> None:
        # Before a claim too: that makes the folder, and nothing may be written to one that may not be used.
        if not self._open.is_open:
            await self._in_thread(lambda database: None)

    async def _close_unused(self) -> None:
        await self.aclose()

    async def _in_thread(self, work: Callable[[Database], T]) -> T:
        """Return the result of a piece of work with the database, which is replaced if it is damaged."""
        if self._pid != os.getpid():  # after a fork, what is open is the parent's, and its thread is not here
            self._pid, self._thread = os.getpid(), None
            self._open.abandon()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "asyncfin-cache")
        until = monotonic() + seconds_left.get()

        def run() -> T:
            with self._open.lock:
                try:
                    return work(self._database(until))
                except (sqlite3.Error, UnicodeDecodeError) as error:
                    if not is_damage(error):
                        raise
                    self._open.close_damaged(self._folder)
                return work(self._database(until))

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    def _database(self, until: float) -> Database:
        if (seconds := until - monotonic()) <= 0:  # the thread was busy, and the caller has gone on
            raise TimeoutError("the disk was busy")
        database = self._open.database(self._folder, self._max_bytes, seconds)
        self._broken += database.replaced
        database.replaced = False
        return database

    async def _version(self) -> Hashable:
        """Return what differs once another process has changed the file."""
        # Here, and not in the thread, which costs ten times as long: it reads shared memory, not the disk.
        if self._open.is_open and self._open.lock.acquire(blocking=False):
            try:
                if self._open.is_open:
                    return self._open.database(self._folder, self._max_bytes, 0).version()
            except sqlite3.Error:
                pass
            finally:
                self._open.lock.release()
        return await self._in_thread(Database.version)

    def _reason(self, error: Exception) -> str:
        return f"{type(error).__name__}: {error}"


def datasets(cache: FileCache, base_url: str, token: TokenSource) -> Awaitable[tuple[Dataset, ...]]:
    """Return the metadata of the publications kept for a client, by entity id. No request is sent.

    Kept are those whose catalogue was read. They need not be current any longer.

    Raises:
        ArgumentError: as for `partition`; or, when awaited, the folder is not one that may be used.
    """
    # Not async itself: the frame of a coroutine would hold the token while it waits.
    return _datasets(cache.partition(base_url, token))


async def _datasets(partition: Partition) -> tuple[Dataset, ...]:
    assert isinstance(partition, TieredPartition)
    rows, nothing, found = partition._rows, list[str](), []
    assert isinstance(rows, _FileRows)
    for entity_id in await partition._run(rows.entity_ids, nothing):
        if (record := await partition.record(entity_id)) is None or record.current is None:
            continue
        if (catalogue := await partition.catalogue(entity_id, record.current.dataset_id)) is not None:
            found.append(catalogue.dataset)
    return tuple(found)


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

    def database(self, folder: Path, max_bytes: int, seconds: float) -> Database:
        """Return the database, opened if it is not; its operations wait so long for other processes."""
        if self._database is None:
            self._database = Database(folder, max_bytes, damaged=self._damaged, busy_seconds=seconds)
            self._damaged = None
        if seconds:
            self._database.wait_for_others(seconds)
        return self._database

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
            self._key, self._derive = self._derive(folder), None
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
        return await self._cache._version()

    async def record(self, entity_id: str) -> Stored:
        return await self._cache._in_thread(lambda database: database.record(self._account, entity_id))

    async def change(self, entity_id: str, rule: RecordRule) -> Stored:
        return await self._cache._in_thread(lambda database: database.change(self._account, entity_id, rule))

    async def entity_ids(self) -> list[str]:
        return await self._cache._in_thread(lambda database: database.entity_ids(self._account))

    async def parts(self, key: RowKey, now: datetime) -> Collection[Hashable]:
        return await self._cache._in_thread(lambda database: database.parts((self._account, *key), now))

    async def read(self, key: RowKey, parts: Collection[Hashable]) -> dict[Hashable, bytes | None]:
        return await self._cache._in_thread(lambda database: database.read((self._account, *key), parts))

    async def put(
        self, key: RowKey, body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        return await self._cache._in_thread(
            lambda database: database.put((self._account, *key), body, series, now, alone=alone)
        )

    async def drop(self, key: RowKey, parts: Collection[Hashable]) -> None:
        await self._cache._in_thread(lambda database: database.drop(parts))

    def claim(self, entity_id: str) -> _FileClaim:
        return _FileClaim(self._cache, entity_id)


class _FileClaim:
    """A claim by the entity alone: two accounts that request one at the same time wait for each other."""

    def __init__(self, cache: FileCache, entity_id: str) -> None:
        self._cache = cache
        self._claim = folders.Claim(cache._folder, crc32(entity_id.encode()))

    async def take(self) -> bool:
        return self._claim.take()

    async def release(self) -> None:
        self._claim.release()
