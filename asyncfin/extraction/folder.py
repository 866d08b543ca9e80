"""Where an extraction stands on disk, and that only one run works there at a time.

The data folder holds nothing but one Parquet file an entity, so that every reader can be pointed at
it. The journal, the lock and files still being written stand in a folder beside it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO
from urllib.parse import quote

from attrs import frozen

from asyncfin.errors import ManifestMismatchError, SelectionError
from asyncfin.extraction.disk import failing

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# File systems take 255 bytes, of which ".parquet" is a part.
_LONGEST = 247
_BESIDE = ".journal"
_JOURNAL = "journal.sqlite"


@frozen
class Folder:
    """The places of one extraction.

    Attributes:
        data: the folder of the Parquet files.
        beside: the folder of all else, which has the same name and ``.journal``.
    """

    data: Path
    beside: Path

    @classmethod
    def at(cls, to: str | os.PathLike[str]) -> Folder:
        """Return the places for a data folder, which need not exist.

        Raises:
            SelectionError: it is something other than a folder, or in the way of another extraction, or no
                folder can stand beside it on the same file system.
        """
        data = _resolved(to)
        if os.path.lexists(data) and not data.is_dir():
            raise SelectionError(f"{data} is no folder: name one, or a path where nothing stands yet")
        if os.path.ismount(data):
            raise SelectionError(
                f"{data} is no place for files: name a folder within, such as {data / 'extraction'};"
                " the journal stands beside it, on the same file system"
            )
        folder = cls._of(data)
        if os.path.exists(data / _JOURNAL):
            raise SelectionError(f"{data} holds the journal of an extraction: name another folder")
        if os.path.exists(cls._of(folder.beside).journal):
            raise SelectionError(
                f"the journal would stand in {folder.beside}, whose files are of another extraction"
            )
        for place in data.parents:
            within = place.name.endswith(_BESIDE) and os.path.exists(place / _JOURNAL)
            if within or os.path.exists(cls._of(place).journal):
                raise SelectionError(f"{data} lies within another extraction, {place}: name another folder")
        return folder

    @classmethod
    def _of(cls, data: Path) -> Folder:
        return cls(data, data.parent / f"{data.name}{_BESIDE}")

    @property
    def journal(self) -> Path:
        return self.beside / _JOURNAL

    def file(self, entity_id: str) -> Path:
        """Return an entity's Parquet file."""
        return self.data / f"{_named(entity_id)}.parquet"

    def part(self, entity_id: str) -> Path:
        """Return where an entity's file stands until it is whole."""
        return self.beside / f"{_named(entity_id)}.part"

    def files(self) -> tuple[Path, ...]:
        """Return what readers would take for part of the table, at whatever depth."""
        return tuple(self.data.rglob("*.parquet"))

    def refuse_unknown(self, files: Iterable[Path], entity_ids: Iterable[str] = ()) -> None:
        """Refuse files of the data folder that are of none of these entities.

        Raises:
            ManifestMismatchError: there is one.
        """
        known = set(map(self.file, entity_ids))
        for path in files:
            if path not in known and os.path.lexists(path):  # a run at work may have deleted it meanwhile
                raise ManifestMismatchError(
                    f"{self.data} holds {path.relative_to(self.data)}, which no journal beside it knows,"
                    " and readers would take it for part of the table: remove it, or name another folder"
                )

    def refuse_inner(self) -> None:
        """Refuse new places around another extraction, which they would lock out.

        Raises:
            ManifestMismatchError: they are.
        """
        for place in () if self.journal.exists() else (self.data, self.beside):
            for path in place.rglob(f"*{_BESIDE}/{_JOURNAL}"):
                raise ManifestMismatchError(f"{place} holds another extraction, {path}: name another folder")

    def make(self) -> None:
        """Make the folders where they are missing.

        Raises:
            ManifestMismatchError, OSError: as for `refuse_unknown`; or they can't be made.
        """
        if not self.journal.exists():
            self.refuse_unknown(self.files())
        self.refuse_inner()
        self.data.mkdir(parents=True, exist_ok=True)
        self.beside.mkdir(exist_ok=True)

    def try_out(self) -> None:
        """Find out whether a file can be put into the data folder, before requests are spent on one.

        Raises:
            OSError: it can't.
        """
        TemporaryFile(dir=self.data).close()

    def sweep(self) -> None:
        """Delete what runs that were killed have left unfinished."""
        for path in self.beside.glob("*.part"):
            path.unlink()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs away. The lock ends with the process, however it ends.

        Raises:
            ManifestMismatchError: another run is at work here.
        """
        path = self.beside / "lock"
        with failing(path):
            lock = path.open("ab")
        with lock:
            with failing(path):
                held = _held(lock)
            if not held:
                raise ManifestMismatchError(f"another run is at work on {self.data}: let it end, or stop it")
            yield


def _resolved(to: str | os.PathLike[str]) -> Path:
    try:
        data = Path(os.path.realpath(to))
        str(data).encode()
    except ValueError:
        shown = os.path.abspath(to)
        raise SelectionError(f"{shown!r} is no path in UTF-8, which Parquet files need") from None
    return data


def _named(entity_id: str) -> str:
    """Return an id as file names can hold it: with %XX, and a long one as its beginning and its hash."""
    name = quote(entity_id, safe="")
    if len(name) <= _LONGEST:
        return name
    # No other name has a plus sign, so the two kinds stay apart.
    return f"{name[: _LONGEST - 65]}+{sha256(entity_id.encode()).hexdigest()}"


def _held(lock: BinaryIO) -> bool:
    # Not lockf: what a process locks so, it lets go of by closing the file anywhere, as a backup does.
    try:
        if sys.platform == "win32":
            msvcrt.locking(lock.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
