"""Where an extraction stands on disk, and that only one run works there at a time.

The data folder holds nothing but one Parquet file an entity, so that every reader can be pointed at
it. The journal, the lock and files still being written stand in a folder beside it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from attrs import frozen

from asyncfin.errors import ArgumentError, ManifestMismatchError
from asyncfin.local import try_lock

# File systems take 255 bytes, of which ".parquet" is a part.
_LONGEST = 247
_BESIDE = ".journal"
_JOURNAL = "journal.sqlite"
_TRIAL = ".asyncfin-trial"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add this path to an OSError that names no file.

    Raises:
        OSError: the block failed.
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


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
        """Return the places for a data folder, which need not exist; a ``file:`` URL names one too.

        Raises:
            ArgumentError: it is something other than a folder, or in the way of another extraction, or no
                folder can stand beside it on the same file system.
        """
        data = _resolved(to)
        if os.path.lexists(data) and not data.is_dir():
            raise ArgumentError(f"{data} is no folder: name one, or a path where nothing stands yet")
        # A rename within one file system is whole or not at all; between two it is a copy.
        if os.path.ismount(data):
            raise ArgumentError(
                f"{data} is no place for files: name a folder within, such as {data / 'extraction'};"
                " the journal stands beside it, on the same file system"
            )
        folder = cls._of(data)
        if os.path.exists(data / _JOURNAL):
            raise ArgumentError(f"{data} holds the journal of an extraction: name another folder")
        if os.path.exists(cls._of(folder.beside).journal):
            raise ArgumentError(
                f"the journal would stand in {folder.beside}, whose files are of another extraction"
            )
        for place in data.parents:
            within = place.name.endswith(_BESIDE) and os.path.exists(place / _JOURNAL)
            if within or os.path.exists(cls._of(place).journal):
                raise ArgumentError(f"{data} lies within another extraction, {place}: name another folder")
        return folder

    @classmethod
    def _of(cls, data: Path) -> Folder:
        return cls(data, data.parent / f"{data.name}{_BESIDE}")

    @property
    def journal(self) -> Path:
        """The SQLite file of what is known of each entity."""
        return self.beside / _JOURNAL

    def file(self, entity_id: str) -> Path:
        """Return an entity's Parquet file."""
        return self.data / f"{file_name(entity_id)}.parquet"

    def new_part(self) -> Path:
        """Return the path of a file until it is complete: another one each time."""
        return self.beside / f"{token_hex(16)}.part"

    def files(self) -> tuple[Path, ...]:
        """Return what readers would take for part of the table, at whatever depth."""
        # At any depth, since readers of a folder of Parquet files look into its folders too.
        return tuple(self.data.rglob("*.parquet"))

    def refuse(self, path: Path) -> None:
        """Refuse a file in the data folder that does not belong to an extraction.

        Raises:
            ManifestMismatchError: always, unless it has been deleted meanwhile.
        """
        if os.path.lexists(path):
            raise ManifestMismatchError(
                f"{self.data} holds {path.relative_to(self.data)}, which no journal beside it knows, nor"
                " does it say that it is of an extraction, and readers would take it for part of the table:"
                " remove it, or name another folder"
            )

    def refuse_inner(self) -> None:
        """Refuse a new folder around another extraction, which it would lock out.

        Raises:
            ManifestMismatchError: it holds one.
        """
        for place in () if self.journal.exists() else (self.data, self.beside):
            for path in place.rglob(f"*{_BESIDE}/{_JOURNAL}"):
                raise ManifestMismatchError(f"{place} holds another extraction, {path}: name another folder")

    def make(self) -> None:
        """Make the folders where they are missing.

        Raises:
            ManifestMismatchError: as for `refuse_inner`.
            OSError: they can't be made.
        """
        self.refuse_inner()
        self.data.mkdir(parents=True, exist_ok=True)
        self.beside.mkdir(exist_ok=True)

    def try_out(self) -> None:
        """Find out whether a file can be renamed into the data folder, before requests are spent on one.

        Raises:
            OSError: it can't: it is read-only, or on another file system than the journal.
        """
        TemporaryFile(dir=self.data).close()
        # A rename from the journal's folder, as each finished file is one: it also finds two file systems.
        written, placed = self.beside / _TRIAL, self.data / _TRIAL
        written.touch()
        try:
            with naming(placed):
                written.rename(placed)
        finally:
            written.unlink(missing_ok=True)
            placed.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Delete what killed runs have left unfinished."""
        for path in self.beside.glob("*.part"):
            path.unlink(missing_ok=True)  # a worker that passes for dead may delete its own meanwhile

    def place(self, part: Path, entity_id: str) -> None:
        """Put an entity's finished file in place: readers see the previous file, or this one.

        Raises:
            OSError: it can't be put there.
        """
        file = self.file(entity_id)
        with naming(file):
            part.replace(file)
        self.flush_names()

    def flush_names(self) -> None:
        """Make renamings and deletions outlast a loss of power, where directories can be flushed."""
        if os.name == "posix":
            with naming(self.data):
                names = os.open(self.data, os.O_RDONLY)
                try:
                    os.fsync(names)
                finally:
                    os.close(names)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs away. The lock ends with the process, however it ends.

        Raises:
            ManifestMismatchError: another run is at work here.
        """
        # Never deleted: a run could then hold the lock of a file that the next one does not see.
        path = self.beside / "lock"
        with naming(path):
            lock = path.open("ab")
        with lock:
            with naming(path):
                held = try_lock(lock.fileno())
            if not held:
                raise ManifestMismatchError(f"another run is at work on {self.data}: let it end, or stop it")
            yield


def _resolved(to: str | os.PathLike[str]) -> Path:
    address = os.fspath(to)
    # Path("s3://bucket") is the path s3:/bucket, and must not pass for a folder either. C:/ is one.
    if address[:5].lower() == "file:":
        url = urlsplit(address)
        if url.netloc not in ("", "localhost") or url.path[:1] != "/" or url.query or url.fragment:
            raise ArgumentError(f"{address!r} is no folder of this machine: write file:///path")
        to = url2pathname(url.path)
    elif found := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/|(?i:s3|gs|az):", address):
        raise ArgumentError(
            f"{found[0]}... is no address of a place for files: name s3://bucket/prefix, or the like with"
            " gs or az, or the path or file: URL of a folder"
        )
    try:
        data = Path(os.path.realpath(to))
        str(data).encode()
    except ValueError:
        shown = os.path.abspath(to)
        raise ArgumentError(f"{shown!r} is no path in UTF-8, which Parquet files need") from None
    return data


def file_name(entity_id: str) -> str:
    """Return an id as file names and keys can hold it: with %XX, a long one as its beginning and its hash."""
    name = quote(entity_id, safe="")
    if len(name) <= _LONGEST:
        return name
    # No other name has a plus sign, so the two kinds stay apart.
    return f"{name[: _LONGEST - 65]}+{sha256(entity_id.encode()).hexdigest()}"
