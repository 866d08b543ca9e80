"""The folders of an extraction on disk, and the lock that keeps two runs apart.

The data folder contains one Parquet file per entity and nothing else, so that readers can take it for one
table. The lock and unfinished files are in a folder next to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import IO
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname
from weakref import WeakSet

from attrs import frozen

from asyncfin.errors import ArgumentError, ManifestMismatchError, RunInProgressError
from asyncfin.extraction.holder import Holder, holder_in
from asyncfin.extraction.parquet import Footer, read_footer
from asyncfin.local import Fill, flush_names, naming, try_lock, write_whole

# File systems take 255 bytes, of which ".parquet" is a part.
_LONGEST = 247
_BESIDE = ".journal"
_CHANGES = ".changes"
_LOCK = "lock"
_PART = ".part"
_TRIAL = ".asyncfin-trial"
# The locks that this process holds, or is taking.
_locks: WeakSet[FileIO] = WeakSet()


def _close_inherited() -> None:
    for lock in list(_locks):
        lock.close()


if os.name == "posix":
    # A child would share the lock: a worker of a process pool outlives a driver that is killed.
    os.register_at_fork(after_in_child=_close_inherited)


@frozen
class Folder:
    """The places of one extraction.

    Attributes:
        data: the folder of the Parquet files.
        beside: the folder of the lock and of unfinished files, which has the same name and ``.journal``.
    """

    data: Path
    beside: Path

    @classmethod
    def at(cls, to: str | os.PathLike[str]) -> Folder:
        """Return the places for a data folder, which need not exist; a ``file:`` URL names one too.

        Raises:
            ArgumentError: it is not a folder, is part of another extraction, or can't have a folder next
                to it on the same file system.
        """
        data = _resolved(to)
        if os.path.lexists(data) and not data.is_dir():
            raise ArgumentError(f"{data} is not a folder; give a folder or a new path")
        # A rename within one file system is atomic; between two it is a copy.
        if os.path.ismount(data):
            raise ArgumentError(
                f"{data} is a mount point; give a folder within it, such as {data / 'extraction'}:"
                " unfinished files are written next to the folder, on the same file system"
            )
        folder = cls._of(data)
        if folder._of(folder.beside).is_extraction:
            raise ArgumentError(
                f"{folder.beside} is where the lock would be, and it has the files of another extraction"
            )
        for place in (data, *data.parents):
            for suffix, purpose in ((_BESIDE, "lock folder"), (_CHANGES, "change feed")):
                name = place.name.removesuffix(suffix)
                if name in ("", place.name):
                    continue
                if (owner := cls._of(place.with_name(name))).is_extraction:
                    raise ArgumentError(f"{data} is the {purpose} of {owner.data}, or in it; give another")
            if place != data and cls._of(place).is_extraction:
                raise ArgumentError(f"{data} is in another extraction, {place}; give another folder")
        return folder

    @classmethod
    def _of(cls, data: Path) -> Folder:
        return cls(data, data.parent / f"{data.name}{_BESIDE}")

    def __str__(self) -> str:
        return str(self.data)

    @property
    def name(self) -> str:
        """The name of the data folder."""
        return self.data.name

    def _at(self, path: str) -> Path:
        return self.data.parent / path

    def names(self, folder: str) -> list[str]:
        """Return the names of the Parquet files in a folder; see `Tree`, of which this is one."""
        return sorted(path.name for path in self._at(folder).glob("*.parquet"))

    def open(self, path: str) -> IO[bytes]:
        return self._at(path).open("rb")

    def write(self, path: str, fill: Fill) -> None:
        file = self._at(path)
        _make(file.parent)
        write_whole(file, _new_part(file.parent), fill)

    def remove(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def sweep(self, folder: str) -> None:
        for path in self._at(folder).glob(f"*{_PART}"):
            path.unlink(missing_ok=True)  # a worker that was taken for dead may delete its own too

    @property
    def is_extraction(self) -> bool:
        """Whether a run has used it: there is its lock, or a file with the footer of an extraction."""
        return self.lock.exists() or any(
            self.owned_footer(path) is not None for path in _matching(self.data, "*.parquet")
        )

    @property
    def lock(self) -> Path:
        """The file that a run locks."""
        return self.beside / _LOCK

    def file(self, entity_id: str) -> Path:
        """Return the path of an entity's file."""
        return self.data / f"{file_name(entity_id)}.parquet"

    @property
    def holder(self) -> Holder | None:
        """The run that took the lock last; None: the file does not name one, or can't be read."""
        with suppress(OSError):
            return holder_in(self.lock.read_bytes())
        return None

    def new_part(self) -> Path:
        """Return the path of a file until it is complete: another one each time."""
        return _new_part(self.beside)

    def files(self) -> tuple[Path, ...]:
        """Return what readers would take for part of the table, at any depth."""
        return tuple(self.data.rglob("*.parquet"))

    def footer(self, path: Path) -> Footer | None:
        """Return the footer of a file that is where its entity's file belongs; None if it is foreign.

        Errors as for `read_footer`.
        """
        footer = read_footer(path)
        return footer if footer is not None and self.file(footer.entity_id) == path else None

    def owned_footer(self, path: Path) -> Footer | None:
        """Return what `footer` returns; None also if the file can't be read."""
        try:
            return self.footer(path)
        except (OSError, ValueError):
            return None

    def may_be_damaged(self, path: Path) -> bool:
        """Return whether a file that is not readable as Parquet has the name of an entity's file."""
        return path.parent == self.data and path.name.startswith("O-")

    def refuse(self, path: Path) -> None:
        """Raise ManifestMismatchError for a foreign file in the data folder, if it is still there."""
        if os.path.lexists(path):
            raise ManifestMismatchError(
                f"{self.data} contains {path.relative_to(self.data)}, which is not an extraction's file, and"
                " readers would take it for part of the table: remove it, or give another folder"
            )

    def refuse_inner(self) -> None:
        """Raise ManifestMismatchError for a new folder around another extraction."""
        if self.is_extraction:
            return
        for place in (self.data, self.beside):
            for path in _matching(place, f"**/*{_BESIDE}/{_LOCK}"):
                raise ManifestMismatchError(
                    f"{place} contains another extraction, {path}; give another folder"
                )

    def make(self) -> None:
        """Make the folders that do not exist, where `refuse_inner` permits it."""
        self.refuse_inner()
        self.data.mkdir(parents=True, exist_ok=True)
        self.beside.mkdir(exist_ok=True)

    def try_out(self) -> None:
        """Rename a file into the data folder, before requests are spent on one.

        This fails if it is read-only, or on another file system than the folder of unfinished files.
        """
        TemporaryFile(dir=self.data).close()
        written, placed = self.beside / _TRIAL, self.data / _TRIAL
        written.touch()
        try:
            with naming(placed):
                written.rename(placed)
        finally:
            written.unlink(missing_ok=True)
            placed.unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[Callable[[], None]]:
        """Exclude other runs. The lock ends with the process, however it ends.

        The function that is yielded notes in it that the run is still at work.
        """
        # Never deleted: a run could then hold the lock of a file that the next one does not see.
        with naming(self.lock):
            lock = FileIO(os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o666), "r+")
        holder = Holder()

        def write() -> None:
            nonlocal holder
            holder = holder.renew()
            with naming(self.lock):
                lock.seek(0)
                lock.write(holder.content)
                lock.truncate()

        with lock:
            _locks.add(lock)
            with naming(self.lock):
                held = try_lock(lock.fileno())
            if not held:
                raise RunInProgressError(f"another run is at work on {self.data}: let it end, or stop it")
            write()
            yield write


def _new_part(folder: Path) -> Path:
    return folder / f"{token_hex(16)}{_PART}"


def _make(folder: Path) -> None:
    """Make a folder, durably."""
    if not folder.is_dir():
        _make(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir()
        flush_names(folder.parent)


def _matching(place: Path, pattern: str) -> Iterator[Path]:
    """Yield what matches below a place; nothing where it can't be looked at."""
    with suppress(PermissionError, NotADirectoryError):
        yield from place.glob(pattern)


def _resolved(to: str | os.PathLike[str]) -> Path:
    address = os.fspath(to)
    # Path("s3://bucket") is the path s3:/bucket, and must not pass for a folder either. C:/ is one.
    if address[:5].lower() == "file:":
        url = urlsplit(address)
        if url.netloc not in ("", "localhost") or url.path[:1] != "/" or url.query or url.fragment:
            # Not its text: a host can be given with a password.
            raise ArgumentError("this file: URL is not a folder of this machine; write file:///path")
        to = url2pathname(url.path)
    elif found := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/|(?i:s3|gs|az):", address):
        raise ArgumentError(
            f"{found[0]}... is not an address that files can be written to; give s3://bucket/prefix, the same"
            " with gs or az, or the path or file: URL of a folder"
        )
    try:
        data = Path(os.path.realpath(to))
        str(data).encode()
    except ValueError:
        shown = os.path.abspath(to)
        raise ArgumentError(f"{shown!r} is not a path in UTF-8, which Parquet files need") from None
    return data


def file_name(entity_id: str) -> str:
    """Return an id as part of a file name or key: with %XX, a long one as its beginning and its hash."""
    name = quote(entity_id, safe="")
    if len(name) <= _LONGEST:
        return name
    # No other name has a plus sign, so the two kinds stay apart.
    return f"{name[: _LONGEST - 65]}+{sha256(entity_id.encode()).hexdigest()}"
