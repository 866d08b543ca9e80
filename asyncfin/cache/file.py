"""Publications in a folder that the processes of a machine share.

A publication and value version is a folder, and the series of one response are a file
in it. A file is written next to its place and then renamed, so readers see all of it or
nothing. Unix only: it needs `flock`, and the owners and modes of files.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from errno import ELOOP
from functools import cache, partial
from hashlib import scrypt
from pathlib import Path
from threading import Lock, Thread
from time import time
from typing import TypeVar

from asyncfin import checks, local
from asyncfin.cache.base import MEMORY_BYTES, RECORD, Cache, MiB, Partition, hash_text
from asyncfin.cache.codec import decode_record, row_moment, verify
from asyncfin.cache.store import POLL_SECONDS, partition_key
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.model.catalogue import publication_id
from asyncfin.wire.token import TokenSource

T = TypeVar("T")

_ATTEMPTS = 3  # to make the folder of a file
_SALT_BYTES = 32
# A file takes at least a block.
_BLOCK = 4096
# What is evicted to, and the share of the limit that is written between two looks at
# the whole folder.
_EVICTED_TO = 0.9
_WRITTEN_BETWEEN = 1 / 16
_TOUCHED_EVERY = 3_600
# For how long a put waits for an eviction: less than a store may take.
EVICTION_SECONDS = 0.5
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = _FOLDER | os.O_NONBLOCK


class FileCache(Cache):
    """Keeps publications in a folder that the processes of a machine share.

    The folder belongs to this user alone (mode 0700, files 0600). It contains which
    entities were read, but no token. It must be on a local disk: ``flock`` is not
    reliable over NFS. Problems of the disk are errors of `clear` and `inspect` only:
    what cannot be read is requested, and what cannot be stored is skipped, logged once
    and counted in `CacheStats.broken`.

    Args:
        folder: the folder, which is made at first use.
        account: the name of the account: clients with the same base URL and account
            share what is read. None: clients with the same fixed token share it; a
            token callable needs a name.
        max_bytes: the limit of what is on disk; a value takes about 33 bytes.
            Publications that are no longer current are evicted first, then what was
            used least recently.
        clock: returns the wall time, aware UTC; for tests.

    Raises:
        ArgumentError: an argument is not as described, or the system is Windows. At
            first use: the folder belongs to another user, is open to others, or is of
            another kind.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        account: str | None = None,
        max_bytes: int = 1024 * MiB,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if not local.SUPPORTED:
            raise ArgumentError(
                "FileCache needs file locks that this system does not have: use "
                "MemoryCache"
            )
        path = checks.local_path(
            "folder", "folder", folder, "a Redis server is for a RedisCache"
        )
        folder = os.path.abspath(path)
        checks.positive_int("max_bytes", max_bytes)
        self._files = FolderStore(Path(folder), max_bytes)
        # What a token's data goes by in the folder: by that in memory, and the salt.
        self._keys: dict[tuple[bytes, bytes], bytes] = {}
        self._keys_lock = Lock()
        memory = min(MEMORY_BYTES, max_bytes)
        super().__init__(memory, clock, self._files, folder, account=account)

    def __repr__(self) -> str:
        return f"FileCache({self._place!r})"

    def _get_token_partition(self, base_url: str, token: TokenSource) -> Partition:
        if not isinstance(token, str):
            raise ArgumentError(
                "account must name the account of a token callable, whose tokens may "
                f"change: FileCache({self._place!r}, account=...)"
            )
        account = partition_key(base_url, "token", self._secret + token.encode())

        def stretch(salt: bytes) -> bytes:
            # Slow on purpose, so that no token can be guessed from the folder. Clients
            # that begin together wait for the first one's.
            with self._keys_lock:
                if (account, salt) not in self._keys:
                    key = scrypt(token.encode(), salt=salt, n=2**14, r=8, p=1)
                    stored_account = partition_key(base_url, "token", key)
                    self._keys[account, salt] = stored_account
                return self._keys[account, salt]

        async def derive() -> bytes:
            salt = await self._files.salt()
            return await asyncio.to_thread(stretch, salt)

        return Partition(self, account, derive)


class FolderStore:
    """The store of a `FileCache`: each key is the path of a file.

    Its methods run in threads, except for reading a record and claiming an entity,
    which take microseconds.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._checked = False
        self._eviction = Thread()  # the last one
        # At random, so that of many short processes some look at the whole folder too.
        self._until_look = random.random() * max_bytes * _WRITTEN_BETWEEN  # noqa: S311

    async def get(self, keys: Sequence[str]) -> list[bytes | None]:
        # A record, or a part that is small beside a turn of a thread.
        if len(keys) == 1:
            self._check()
            return [self._read(keys[0], is_use=True)]
        return await self._run(lambda: [self._read(key, is_use=True) for key in keys])

    async def put(self, key: str, body: bytes) -> None:
        def put() -> None:
            self._write(key, body)
            self._until_look -= max(len(body), _BLOCK)
            if self._until_look > 0:
                return
            # Of many files it takes longer, and goes on alone. In a process that was
            # forked meanwhile the other one's thread counts as ended.
            eviction = self._eviction
            if not eviction.is_alive():
                self._until_look = self._max_bytes * _WRITTEN_BETWEEN
                eviction = Thread(target=evict, name="asyncfin eviction")
                eviction.start()
                self._eviction = eviction
            eviction.join(EVICTION_SECONDS)

        def evict() -> None:
            with suppress(OSError):  # a disk that fails: the next look tries again
                self._evict()

        if len(body) <= self._max_bytes:
            await self._run(put)

    async def names(self, prefix: str) -> list[str]:
        return await self._run(lambda: [key for key, _ in self._iter_files(prefix)])

    async def drop(self, keys: Iterable[str]) -> None:
        await self._run(partial(self._drop, keys))

    async def put_if_later(self, key: str, body: bytes, latest: int) -> None:
        def put() -> bool:
            stored_moment = row_moment(self._read(key) or b"")
            if not row_moment(body) < stored_moment <= latest:
                self._write(key, body)
            return True

        await self._run_alone(put)

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        self._check()
        with self._lock_folder(name) as is_held:
            yield is_held

    async def salt(self) -> bytes:
        """Return the salt of the folder's account keys; the first process creates
        it.
        """

        def read_or_write() -> bytes:
            salt = self._read("salt") or b""
            if len(salt) != _SALT_BYTES:
                # New, or damaged: then what was stored under the old one is not
                # found, and is evicted.
                salt = secrets.token_bytes(_SALT_BYTES)
                self._write("salt", salt)
            return salt

        return await self._run_alone(read_or_write)

    async def _run_alone(self, call: Callable[[], T]) -> T:
        """Run a call, whose result is true, in a thread that holds the folder's
        lock.
        """

        def try_call() -> T | None:
            with self._lock_folder("") as is_held:
                return call() if is_held else None

        while not (result := await self._run(try_call)):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        return result

    @contextmanager
    def _lock_folder(self, name: str) -> Iterator[bool]:
        """Lock a folder, unless another process does; yield whether it is held."""
        # The folder itself: a file for each entity would never be deleted.
        descriptor = self._open(f"{self._folder}/{name}", _FOLDER, name)
        try:
            yield local.try_lock(descriptor)
        finally:
            # Unlocked and not only closed: a child forked since then shares the lock.
            local.unlock(descriptor)
            os.close(descriptor)

    async def _run(self, call: Callable[[], T]) -> T:
        self._check()
        return await asyncio.to_thread(call)

    def _check(self) -> None:
        """Make the folder at first use; ArgumentError: it is not private to this
        user.
        """
        if not self._checked:
            try:
                local.make_private_folder(self._folder)
            except local.NotPrivateError as error:
                raise ArgumentError(f"the cache's {self._folder} {error}") from None
            self._checked = True

    def _open(self, path: str, flags: int, group: str) -> int:
        """Open a file, or a folder, whose group's folders are made if they are missing.

        Another process can delete them again meanwhile, when it evicts or clears.
        """
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError):
                return os.open(path, flags, 0o600)
            with suppress(FileNotFoundError):
                folder = self._folder  # deleted since, perhaps
                for part in ("", *group.split("/")):
                    folder /= part
                    local.make_private_folder(folder)
        return os.open(path, flags, 0o600)

    def _read(self, key: str, *, is_use: bool = False) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist. One that is not
        ours counts as empty. A use is noted, for eviction.
        """
        try:
            descriptor = os.open(f"{self._folder}/{key}", _READ)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno == ELOOP:  # a symlink, which could lead anywhere
                return b""
            raise
        with open(descriptor, "rb", buffering=0) as file:
            stat = os.fstat(descriptor)
            if stat.st_uid != os.geteuid():
                return b""
            # A stamp each time would make a reader a writer.
            if is_use and time() - stat.st_mtime > _TOUCHED_EVERY:
                with suppress(OSError):  # a read-only disk
                    os.utime(descriptor)
            return file.read()

    def _write(self, key: str, body: bytes) -> None:
        """Write a file next to its place, and put it there."""
        group, _, _ = key.rpartition("/")
        temporary_path = f"{self._folder}/{group}/.{secrets.token_hex(8)}"
        descriptor = self._open(temporary_path, _CREATE, group)
        try:
            with open(descriptor, "wb") as file:
                file.write(body)
            os.replace(temporary_path, f"{self._folder}/{key}")
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary_path)
            raise

    def _iter_files(self, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Yield the files whose keys begin with a prefix, with their keys."""
        folders = [prefix.rpartition("/")[0]]
        while folders:
            folder = folders.pop()
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                os.scandir(self._folder / folder) as entries,
            ):
                for entry in entries:
                    key = f"{folder}/{entry.name}" if folder else entry.name
                    if not key.startswith(prefix):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(key)
                    elif folder:  # not the salt
                        yield key, entry

    def _drop(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._folder / key
            with suppress(FileNotFoundError):
                path.unlink()
            with suppress(OSError):  # not empty
                path.parent.rmdir()
                path.parent.parent.rmdir()

    def _evict(self) -> None:
        """Delete replaced publications, and then the files last used, if there are too
        many bytes.
        """
        total = 0
        files = []
        for key, entry in self._iter_files():
            with suppress(FileNotFoundError):
                stat = entry.stat(follow_symlinks=False)
                size = max(stat.st_size, _BLOCK)
                total += size
                files.append((stat.st_mtime, size, key))
        if total <= self._max_bytes:
            return

        @cache
        def find_current(entity: str) -> str:
            """The beginning of the keys of an entity's current publication, or of all
            if no record shows it.
            """
            name = f"{entity}/{RECORD}"
            with suppress(Exception):  # none, or a corrupt one
                body = verify(self._read(name) or b"", name)
                record = decode_record(body)
                if record.dataset_id is not None:
                    return f"{entity}/{hash_text(publication_id(record.dataset_id))}."
            return entity

        def is_current(key: str) -> bool:
            if "/." in key:  # of a file that is being written
                return True
            entity = "/".join(key.split("/")[:2])
            names = f"{entity}/{RECORD}", find_current(entity)
            return key.startswith(names)

        files.sort(key=lambda file: (is_current(file[2]), file[0]))
        for _, size, key in files:
            if total <= self._max_bytes * _EVICTED_TO:
                break
            total -= size
            with suppress(OSError):  # one that stays must not keep the others
                self._drop([key])
