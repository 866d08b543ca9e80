"""The folder of a FileCache: private to its user, with the salt of its account keys and the locks.

Unix only: it needs `flock` and the owners and modes of files.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep, time

from asyncfin import local
from asyncfin.errors import ArgumentError

# Entities share this many files for their claims, created when they are needed: a file per entity would never
# be deleted. Two that share one wait for each other's requests, so there are many: of 8 entities requested at
# once, some two share one of 4,096 in 0.7 % of cases, and one of 64 in 36 %.
_STRIPES = 4_096
_SALT_BYTES = 32


def prepare(folder: Path) -> None:
    """Create the folder unless it exists; ArgumentError: it is not a folder that is private to this user."""
    try:
        local.make_private_folder(folder)
    except local.NotPrivateError as error:
        raise ArgumentError(f"the cache's {folder} {error}") from None


def open_private(path: Path) -> int:
    """Open a file of the folder, created if it is missing; ArgumentError: it is not private to this user."""
    try:
        return local.open_private(path)
    except local.NotPrivateError as error:
        raise ArgumentError(f"the cache's {path} {error}") from None


def delete_databases(folder: Path, *, keep: str = "", unmodified_for: float = 0) -> None:
    """Delete the databases that no process has open, except `keep` and those modified in the last seconds."""
    for path in folder.glob("publications-*.sqlite"):
        if path.name == keep:
            continue
        with (
            suppress(OSError),
            closing_descriptor(open_private(path.with_suffix(".lock"))) as descriptor,
            lock(descriptor, exclusive=True),
        ):
            logs = (path, Path(f"{path}-wal"))
            modified = max(each.stat().st_mtime for each in logs if each.exists())
            if time() - modified >= unmodified_for:
                delete_database(path)


def delete_database(path: Path) -> None:
    """Delete a database, whose lock is held exclusively."""
    # With its log, which SQLite would apply to a new file of this name.
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")


def bytes_of_other_databases(path: Path) -> int:
    """Return the size of the databases of other formats next to one."""
    others = (each for each in path.parent.glob("publications-*.sqlite") if each != path)
    return sum(each.stat().st_size for each in others)


@contextmanager
def closing_descriptor(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def salt(folder: Path) -> bytes:
    """Return the salt of the folder's account keys; the first process creates it."""
    path = folder / "salt"
    for _ in range(3):
        with (
            closing_descriptor(open_private(path)) as descriptor,
            lock(descriptor, exclusive=True, seconds=10),
        ):
            if len(known := os.read(descriptor, _SALT_BYTES)) == _SALT_BYTES:
                return known
            # New, or truncated: what was stored under the old one is not found any more, and is evicted.
            os.lseek(descriptor, 0, os.SEEK_SET)
            made = secrets.token_bytes(_SALT_BYTES)
            if os.write(descriptor, made) == len(made):
                return made
    raise OSError(f"{path} can't be written")


@contextmanager
def lock(descriptor: int, *, exclusive: bool, seconds: float = 0) -> Iterator[None]:
    """Hold a lock between processes while the block lasts; BlockingIOError as for `take_lock`."""
    take_lock(descriptor, exclusive=exclusive, seconds=seconds)
    try:
        yield
    finally:
        local.unlock(descriptor)


def take_lock(descriptor: int, *, exclusive: bool, seconds: float = 0) -> None:
    """Take a lock between processes, or exchange a shared one for an exclusive one or back.

    If another process holds it even after `seconds`: BlockingIOError.
    """
    until = monotonic() + seconds
    while not local.try_lock(descriptor, exclusive=exclusive):
        if monotonic() >= until:
            raise BlockingIOError("another process holds the lock")
        sleep(0.02)


class Claim:
    """A claim on an entity between processes, which is released when the process ends, however it ends."""

    def __init__(self, folder: Path, stripe: int) -> None:
        self._path = folder / f"claim-{stripe % _STRIPES:04d}"
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the claim if no other process has it; never waits."""
        if self._descriptor is None:
            self._descriptor = open_private(self._path)
        return local.try_lock(self._descriptor)

    def release(self) -> None:
        """Release the claim, or the attempt to take it."""
        if self._descriptor is not None:
            # Unlocked and not only closed: a child forked since then shares the lock, and may live for long.
            local.unlock(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
