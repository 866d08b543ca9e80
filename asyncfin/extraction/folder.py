"""A folder of this machine as the place of an extraction; its lock ends with the
process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import IO
from weakref import WeakSet

from attrs import frozen

from asyncfin.errors import RunInProgressError
from asyncfin.extraction.place import Holder, Lock, Place
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


@frozen(slots=False)
class Folder(Place):
    """The place of an extraction on disk; see `Place`."""

    def path(self, path: str) -> Path:
        """Return the path on this machine."""
        return Path(self.root, path)

    def names(self, folder: str) -> list[str]:
        below = self.path(folder)
        return sorted(
            path.relative_to(below).as_posix() for path in below.rglob("*.parquet")
        )

    def open(self, path: str) -> IO[bytes]:
        return self.path(path).open("rb")

    def write(self, path: str, fill: Fill) -> None:
        file, parts = self.path(path), self.path(self.beside("journal"))
        for folder in (parts, file.parent):
            _make(folder)
        # A new name each time: a worker that was taken for dead may still be writing
        # the same file.
        write_whole(file, parts / f"{token_hex(16)}{_PART}", fill)

    def remove(self, path: str) -> None:
        self.path(path).unlink(missing_ok=True)

    def lock(self, holder: Holder, stale: str | None = None) -> Lock:
        path = self.path(self.lock_path)
        _make(path.parent)
        with naming(path):
            # Never deleted: a run could then hold the lock of a file that the next one
            # does not see.
            file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+")
            _locks.add(file)
            lock = FolderLock(file, holder)
            try:
                if not try_lock(file.fileno()):
                    raise RunInProgressError(
                        f"another run is at work on {self}: let it end, or stop it"
                    )
                lock.renew()
            except BaseException:
                lock.release()
                raise
        return lock

    def is_running(self) -> bool:
        # Asked for by a lock that lasts for a moment.
        with suppress(FileNotFoundError), self.open(self.lock_path) as lock:
            return not try_lock(lock.fileno(), exclusive=False)
        return False

    def sweep(self) -> None:
        for path in self.path(self.beside("journal")).glob(f"*{_PART}"):
            # A worker that was taken for dead may delete its own too.
            path.unlink(missing_ok=True)


class FolderLock(Lock):
    """Excludes other runs from a folder; it ends with the process, however that
    ends.
    """

    def __init__(self, file: FileIO, holder: Holder) -> None:
        self._file, self._holder = file, holder

    def renew(self) -> None:
        self._holder = self._holder.renew()
        self._file.seek(0)
        self._file.write(self._holder.content)
        self._file.truncate()

    def check(self) -> None:
        """Do nothing: the lock lasts as long as this process."""

    def release(self) -> None:
        self._file.close()


def _make(folder: Path) -> None:
    """Make a folder, durably."""
    if not folder.is_dir():
        _make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        flush_names(folder.parent)
