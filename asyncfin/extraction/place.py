"""Where an extraction's files are: a folder, or a prefix of a bucket, behind six calls
that block.

Paths are relative to the folder or bucket that contains the data, and use slashes:

    night/<entity_id>.parquet      the data, and nothing else
    _night.journal/                the lock, the outcomes of runs, on disks parts
    _night.changes/                the change feed

Readers of Parquet skip names that begin with an underscore.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from contextlib import suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from secrets import token_hex
from typing import IO, Annotated, TypeVar
from urllib.parse import quote
from weakref import WeakSet

import msgspec
from attrs import define, evolve, field, frozen

from asyncfin.clock import utc_now
from asyncfin.errors import RunInProgressError
from asyncfin.local import Fill, flush_names, naming, try_lock, write_whole

T = TypeVar("T")
# A time with an offset from UTC.
Timestamp = Annotated[datetime, msgspec.Meta(tz=True)]
# A run renews its lock each minute; one that was not renewed for five minutes is that
# of a killed run.
RENEW_SECONDS = 60.0
STALE_SECONDS = 300.0
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
class Holder:
    """The run that holds a lock, as the lock names it in JSON.

    Attributes:
        owner: a random text: two runs of one process id differ in it.
        host, pid: its machine and process.
        began, renewed: when it took the lock, and renewed it last, as ISO text by its
            machine's clock. No two contents of its locks have an equal `renewed`.
    """

    owner: str = field(factory=token_hex)
    host: str = field(factory=socket.gethostname)
    pid: int = field(factory=os.getpid)
    began: Timestamp = field(factory=utc_now)
    renewed: Timestamp = field(factory=utc_now)

    def renew(self) -> Holder:
        """Return the holder as it is to be written next."""
        return evolve(self, renewed=utc_now())

    @property
    def content(self) -> bytes:
        """The content of its lock."""
        return msgspec.json.encode(self)


def parse(content: bytes, kind: type[T]) -> T | None:
    """Return JSON as an object, or None if it is of another kind."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


@define
class Lock:
    """The lock of a run; this one excludes nobody.

    Attributes:
        owner: that of its holder, or None if other runs may be at work.
    """

    owner: str | None = None

    def renew(self) -> None:
        """Note that the run is still at work."""

    def check(self) -> None:
        """Raise RunInProgressError if another run may have taken the lock over."""

    def release(self) -> None:
        """End the lock; it does nothing the second time."""

    def withdraw(self) -> None:
        """End the lock of a run that has not begun, as if it had never been taken."""
        self.release()


@frozen(slots=False)
class Place(ABC):
    """The files of an extraction and of its change feed.

    Attributes:
        root: the folder or the bucket's URL.
        name: the path of the data.
    """

    root: str
    name: str

    def __str__(self) -> str:
        return self.url(self.name)

    @abstractmethod
    def parquet_paths(self, folder: str) -> list[str]:
        """Return the paths of the Parquet files below a folder, sorted."""

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: it does not exist.
            OSError: it can't be read; it has an `errno`, unlike pyarrow's errors of
                damaged files.
        """

    @abstractmethod
    def write(self, path: str, fill: Fill) -> None:
        """Write a file that appears when it is complete and durable; `fill` writes its
        content.

        Raises:
            OSError: it can't be written; nothing has changed.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def lock(self, holder: Holder, stale: str | None = None) -> Lock | str:
        """Take the lock, or return the tag of the lock of another run.

        `stale` is the tag of a lock that has not changed for
        `STALE_SECONDS`: it is taken over.

        Raises:
            RunInProgressError: another run is certainly at work.
            ArgumentError: the store has no conditional writes.
            OSError: the lock can't be written.
        """

    @abstractmethod
    def sweep(self) -> None:
        """Delete the unfinished files that killed runs have left."""

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether a run holds the lock, as far as can be seen."""

    def url(self, path: str) -> str:
        """Return the full path or URL of a file."""
        return f"{self.root.rstrip('/')}/{path}"

    def beside(self, kind: str) -> str:
        """Return the path of a folder next to the data: ``journal`` or ``changes``."""
        head, slash, tail = self.name.rpartition("/")
        return f"{head}{slash}_{tail}.{kind}"

    def journal_path(self, name: str) -> str:
        """Return the path of the lock, or of an outcome next to it."""
        return f"{self.beside('journal')}/{name}"

    def entity_path(self, entity_id: str) -> str:
        """Return the path of an entity's file."""
        return f"{self.name}/{quote(entity_id, safe='')}.parquet"

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""
        try:
            with self.open(path) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def read_journal(self, name: str, kind: type[T]) -> T | None:
        """Read a JSON file of the journal, or return None if it does not exist or is
        of another kind.
        """
        content = self.read_bytes(self.journal_path(name))
        return parse(content or b"", kind)

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a small file, as `write` does."""
        self.write(path, lambda stream: stream.write(content))

    def write_journal(self, name: str, content: bytes) -> None:
        """Write a file of the journal."""
        self.write_bytes(self.journal_path(name), content)

    def check_owner(self, owner: str) -> None:
        """Raise RunInProgressError if the lock is that of another run."""
        holder = self.read_journal("lock", Holder)
        if holder is not None and holder.owner != owner:
            raise RunInProgressError(
                f"another run has taken over {self}, and nothing more is written"
            )


@frozen(slots=False)
class Folder(Place):
    """The place of an extraction on disk; its lock ends with the process."""

    def path(self, path: str) -> Path:
        """Return the path on this machine."""
        return Path(self.root, path)

    def parquet_paths(self, folder: str) -> list[str]:
        files = self.path(folder).rglob("*.parquet")
        return sorted(file.relative_to(self.root).as_posix() for file in files)

    def open(self, path: str) -> IO[bytes]:
        return self.path(path).open("rb")

    def write(self, path: str, fill: Fill) -> None:
        file = self.path(path)
        parts = self.path(self.beside("journal"))
        for folder in (parts, file.parent):
            _make_folder(folder)
        # A new name each time: a worker that was taken for dead may still be writing
        # the same file.
        write_whole(file, parts / f"{token_hex(16)}{_PART}", fill)

    def remove(self, path: str) -> None:
        self.path(path).unlink(missing_ok=True)

    def lock(self, holder: Holder, stale: str | None = None) -> Lock:
        path = self.path(self.journal_path("lock"))
        try:
            _make_folder(path.parent)
            # Never deleted: a run could then hold the lock of a file that the next one
            # does not see.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            text = f"the folder or its lock can't be written ({error.strerror})"
            raise OSError(error.errno, text, str(self)) from None
        with naming(path):
            file = FileIO(descriptor, "r+")
            _locks.add(file)
            lock = FolderLock(holder.owner, file=file, holder=holder)
            try:
                if not try_lock(file.fileno()):
                    raise RunInProgressError(
                        f"another run is at work on {self}: let it end, or stop it"
                    )
                lock.previous = file.read()
                lock.renew()
            except BaseException:
                lock.release()
                raise
        return lock

    def is_running(self) -> bool:
        # Asked for by a lock that lasts for a moment.
        path = self.journal_path("lock")
        with suppress(FileNotFoundError), self.open(path) as lock:
            return not try_lock(lock.fileno(), exclusive=False)
        return False

    def sweep(self) -> None:
        parts = self.path(self.beside("journal"))
        for path in parts.glob(f"*{_PART}"):
            # A worker that was taken for dead may delete its own too.
            path.unlink(missing_ok=True)


@define
class FolderLock(Lock):
    """Excludes other runs from a folder; it ends with the process, however that
    ends.

    Attributes:
        previous: what the run before has left.
    """

    _file: FileIO = field(kw_only=True)
    _holder: Holder = field(kw_only=True)
    previous: bytes = b""

    def renew(self) -> None:
        self._holder = self._holder.renew()
        self._write(self._holder.content)

    def withdraw(self) -> None:
        with suppress(OSError):
            self._write(self.previous)
        self.release()

    def _write(self, content: bytes) -> None:
        self._file.seek(0)
        self._file.write(content)
        self._file.truncate()

    def release(self) -> None:
        self._file.close()


def _make_folder(folder: Path) -> None:
    """Make a folder, durably."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        flush_names(folder.parent)
