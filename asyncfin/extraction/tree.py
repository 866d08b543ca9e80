"""The files of an extraction and of its change feed as one tree, on a disk or in an object store.

The calls block: they run in threads, or in programs without an event loop. Paths are relative to the folder,
or the bucket, in which the extraction is; they use slashes.
"""

from __future__ import annotations

from typing import IO, Protocol

from asyncfin.extraction.folder import Folder, file_name
from asyncfin.extraction.prefix import Objects, Prefix
from asyncfin.local import Fill


class Tree(Protocol):
    """Where the files are."""

    @property
    def name(self) -> str:
        """The path of the folder of the entities' files."""

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

    def remove(self, path: str) -> None:
        """Delete a file, if it exists; it may be there again after a loss of power."""

    def sweep(self, folder: str) -> None:
        """Delete the unfinished files that killed runs have left in a folder."""


def tree_at(place: Folder | Prefix) -> Tree:
    """Return the tree of an extraction's place."""
    return Objects(place) if isinstance(place, Prefix) else place


def entity_path(tree: Tree, entity_id: str) -> str:
    """Return the path of an entity's file."""
    return f"{tree.name}/{file_name(entity_id)}.parquet"
