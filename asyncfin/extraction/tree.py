"""The files of an extraction and of its change feed as one tree, on a disk or in an object store.

The calls block: they run in threads, or in programs without an event loop. Paths are relative to the folder,
or the bucket, in which the extraction is; they use slashes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import IO, Protocol

from asyncfin.extraction.folder import Folder, file_name
from asyncfin.extraction.prefix import Objects, Prefix
from asyncfin.local import flush_names, write_whole

_UNFINISHED = ".tmp"
Fill = Callable[[IO[bytes]], object]


class Tree(Protocol):
    """Where the files are. `name` is the path of the folder of the entities' files."""

    name: str

    def __str__(self) -> str:
        """Return the path or URL of the entities' files, for messages."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the Parquet files in a folder, sorted; none if it does not exist."""

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: it does not exist.
            OSError: it can't be read; it has an `errno`, unlike pyarrow's errors of damaged files.
        """

    def write(self, path: str, fill: Fill) -> None:
        """Write a file that appears when it is complete and durable; `fill` writes its content.

        Raises:
            OSError: it can't be written; nothing has changed.
        """

    def delete(self, path: str) -> None:
        """Delete a file, if it exists; it may be there again after a loss of power."""

    def sweep(self, folder: str) -> None:
        """Delete the unfinished files that killed runs have left in a folder."""


def tree_at(place: Folder | Prefix) -> Tree:
    """Return the tree of an extraction's place."""
    return PrefixTree(place) if isinstance(place, Prefix) else FolderTree(place)


def entity_path(tree: Tree, entity_id: str) -> str:
    """Return the path of an entity's file."""
    return f"{tree.name}/{file_name(entity_id)}.parquet"


class FolderTree:
    """The tree on a disk."""

    def __init__(self, folder: Folder) -> None:
        self._root, self.name = folder.data.parent, folder.data.name

    def __str__(self) -> str:
        return str(self._root / self.name)

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self._root / folder).glob("*.parquet"))

    def open(self, path: str) -> IO[bytes]:
        return (self._root / path).open("rb")

    def write(self, path: str, fill: Fill) -> None:
        file = self._root / path
        self._make(file.parent)
        write_whole(file, file.parent / f"{token_hex(16)}{_UNFINISHED}", fill)

    def delete(self, path: str) -> None:
        (self._root / path).unlink(missing_ok=True)

    def sweep(self, folder: str) -> None:
        for path in (self._root / folder).glob(f"*{_UNFINISHED}"):
            path.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        if not folder.is_dir():
            self._make(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir()
            flush_names(folder.parent)


class PrefixTree:
    """The tree in an object store, where an object is never there in part."""

    def __init__(self, prefix: Prefix) -> None:
        self._prefix, self.name = prefix, prefix.prefix
        self._objects = Objects(prefix)

    def __str__(self) -> str:
        return str(self._prefix)

    def names(self, folder: str) -> list[str]:
        keys = self._objects.keys_in(f"{folder}/")
        names = [key[len(folder) + 1 :] for key in keys]
        return sorted(name for name in names if name.endswith(".parquet") and "/" not in name)

    def open(self, path: str) -> IO[bytes]:
        return self._objects.open(path)

    def write(self, path: str, fill: Fill) -> None:
        # On disk first: a run's file can be larger than memory.
        with TemporaryFile() as content:
            fill(content)
            content.seek(0)
            self._objects.upload(path, content)

    def delete(self, path: str) -> None:
        self._objects.remove(path)

    def sweep(self, folder: str) -> None:
        pass
