"""A folder of this machine as the place of an extraction; its lock ends with the
process.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import IO
from weakref import WeakSet

from attrs import frozen

from asyncfin.checks import expand_user
from asyncfin.errors import ArgumentError, RunInProgressError
from asyncfin.extraction.place import Holder, beside, lock_path
from asyncfin.local import Fill, flush_names, naming, try_lock, write_whole

_PART = ".part"
# The locks that this process holds, or is taking.
_locks: WeakSet[FileIO] = WeakSet()


def _close_inherited() -> None:
    for lock in list(_locks):
        lock.close()


if os.name == "posix":
    # A child would share the lock: a worker of a process pool outlives a driver that is
    # killed.
    os.register_at_fork(after_in_child=_close_inherited)


@frozen
class Folder:
    """The place of an extraction on disk; see `Place`."""

    root: str
    name: str

    def __str__(self) -> str:
        return str(self._at(self.name))

    def _at(self, path: str) -> Path:
        return Path(self.root, path)

    def names(self, folder: str) -> list[str]:
        below = self._at(folder)
        return sorted(
            path.relative_to(below).as_posix() for path in below.rglob("*.parquet")
        )

    def open(self, path: str) -> IO[bytes]:
        return self._at(path).open("rb")

    def write(self, path: str, fill: Fill) -> None:
        file, parts = self._at(path), self._at(beside(self, "journal"))
        for folder in (parts, file.parent):
            _make(folder)
        # A new name each time: a worker that was taken for dead may still be writing
        # the same file.
        write_whole(file, parts / f"{token_hex(16)}{_PART}", fill)

    def remove(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def lock(self, holder: Holder, stale: str | None = None) -> FolderLock:
        path = self._at(lock_path(self))
        _make(path.parent)
        return FolderLock(self, path, holder)

    def is_locked(self) -> bool:
        """Return whether a run holds the lock; it is asked for by a lock that lasts for
        a moment.
        """
        with suppress(FileNotFoundError), self._at(lock_path(self)).open("rb") as lock:
            return not try_lock(lock.fileno(), exclusive=False)
        return False

    def sweep(self) -> None:
        for path in self._at(beside(self, "journal")).glob(f"*{_PART}"):
            path.unlink(
                missing_ok=True
            )  # a worker that was taken for dead may delete its own too


class FolderLock:
    """Excludes other runs from a folder; it ends with the process, however that
    ends.
    """

    def __init__(self, folder: Folder, path: Path, holder: Holder) -> None:
        # Never deleted: a run could then hold the lock of a file that the next one does
        # not see.
        with naming(path):
            self._file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        _locks.add(self._file)
        self._path, self._holder = path, holder
        try:
            with naming(path):
                held = try_lock(self._file.fileno())
            if not held:
                raise RunInProgressError(
                    f"another run is at work on {folder}: let it end, or stop it"
                )
            self.renew()
        except BaseException:
            self._file.close()
            raise

    def renew(self) -> None:
        self._holder = self._holder.renew()
        with naming(self._path):
            self._file.seek(0)
            self._file.write(self._holder.content)
            self._file.truncate()

    def check(self) -> None:
        """Do nothing: the lock lasts as long as this process."""

    def release(self) -> None:
        self._file.close()


def folder_at(to: str | os.PathLike[str]) -> Folder:
    """Return the place for a data folder, which need not exist.

    Raises:
        ArgumentError: it is not a folder, is in another extraction, or can't have a
            folder next to it on the same file system.
    """
    address = os.fspath(to)
    # Path("s3://bucket") is the path s3:/bucket, and must not pass for a folder. C:/ is
    # one.
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/|(?i:s3|gs|az):", address):
        raise ArgumentError(
            f"to: {scheme[0]}... is not an address that files can be written to; give "
            "s3://bucket/prefix, the"
            " same with gs or az, or the path of a folder"
        )
    try:
        data = Path(os.path.realpath(expand_user(address)))
        str(data).encode()
    except ValueError:
        raise ArgumentError(
            f"to: {address!r} is not a path in UTF-8, which Parquet files need"
        ) from None
    if os.path.lexists(data) and not data.is_dir():
        raise ArgumentError(f"to: {data} is not a folder; give a folder or a new path")
    # A rename within one file system is atomic; between two it is a copy.
    if os.path.ismount(data):
        raise ArgumentError(
            f"to: {data} is a mount point; give a folder within it, such as "
            f"{data / 'extraction'}: unfinished"
            " files are written next to the folder, on the same file system"
        )
    folder = Folder(str(data.parent), data.name)
    for parent in data.parents:
        outer = Folder(str(parent.parent), parent.name)
        if parent.name and outer._at(lock_path(outer)).exists():
            raise ArgumentError(
                f"to: {data} is in another extraction, {parent}; give another folder"
            )
    return folder


def _make(folder: Path) -> None:
    """Make a folder, durably."""
    if not folder.is_dir():
        _make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        flush_names(folder.parent)
