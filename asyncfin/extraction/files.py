"""The files of one question in one place: which are there, of which publication, and how one is put there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.folder_files import FolderFiles
from asyncfin.extraction.objects import ObjectFiles
from asyncfin.extraction.parquet import EntityFile, Found, Written
from asyncfin.extraction.prefix import SCHEMES, Prefix
from asyncfin.extraction.question import SharedQuestion, differences
from asyncfin.tasks import bounded

if TYPE_CHECKING:
    from asyncfin.read.read import Metadata

# Files that are looked for, or deleted, at once.
_AT_ONCE = 32


class Files(Protocol):
    """The files of an extraction in a folder or an object store. Their footers are the record."""

    async def lock(self, stop: asyncio.Event) -> bool:
        """Exclude other runs until `aclose`; return False if `stop` was set during a wait for the lock.

        Raises:
            ManifestMismatchError: the place has foreign files.
            RunInProgressError: another run is using it.
            ArgumentError: the place is in an object store without conditional writes.
            OSError: the lock can't be written.
        """

    async def found(self) -> list[Found]:
        """Return the files that are there, of any question; ManifestMismatchError: there are foreign ones."""

    async def find(self, entity_id: str) -> Found | None:
        """Return the file of an entity; None if there is none."""

    async def question(self, entity_id: str) -> str | None:
        """Return the text of the question of an entity's file; None if it can't be read."""

    def check(self) -> None:
        """Raise RunInProgressError if another run has taken over the place that this one has locked."""

    def path(self, entity_id: str) -> str:
        """Return the path or URL of an entity's file."""

    async def put(self, file: EntityFile, question: str) -> None:
        """Put an entity's file in place as a whole; `question` is the hash of its question."""

    async def delete(self, entity_id: str) -> None:
        """Delete an entity's file."""

    async def aclose(self) -> None:
        """Release the lock, if it was taken. It runs to its end however often it is cancelled."""


@define
class QuestionFiles:
    """The files of one question in one place.

    Attributes:
        place: where they are.
        known: the files of this question, by entity.
        is_locked: whether this run has locked the place.
    """

    place: Files
    _question: SharedQuestion
    known: dict[str, Written] = field(factory=dict)
    is_locked: bool = False

    @property
    def has_rows(self) -> bool:
        """Whether a file of the question has a row."""
        return any(written.rows for written in self.known.values())

    async def open(self, *, replace: bool, stop: asyncio.Event) -> bool:
        """Lock the place for a run, and read what is there; return False if `stop` has ended the wait for it.

        Files of another question are deleted if `replace` is set.

        Raises:
            ManifestMismatchError: as for `Files.lock`; or there are files of another question, and `replace`
                is not set.
            RunInProgressError: as for `Files.lock`.
        """
        self.is_locked = await self.place.lock(stop)
        if not self.is_locked:
            return False
        others = await self._read()
        if replace:
            await _all([partial(self.place.delete, each.entity_id) for each in others])
        else:
            await self._refuse_others(others)
        return True

    async def read(self, *, replace: bool) -> None:
        """Read what is there, as `open` does, and write nothing."""
        others = await self._read()
        if not replace:
            await self._refuse_others(others)

    async def join(self, known: dict[str, Written], entity_ids: Iterable[str]) -> None:
        """Use a place that another process has locked, and the files that it knows of."""
        self.known = known
        # A worker that was killed may have put others in place.
        await _all([partial(self._find, each) for each in entity_ids if each not in known])

    async def is_current(self, current: Metadata) -> bool:
        """Return whether the known file of the entity is of the publication that the metadata show."""
        entity_id = current.dataset.entity_id
        if not self.is_locked and not self.known[entity_id].is_current(current):
            # A worker that was killed may have replaced the file since the driver has read it.
            await self._find(entity_id)
        return self.known[entity_id].is_current(current)

    async def put(self, file: EntityFile) -> None:
        """Put an entity's file in place."""
        await self.place.put(file, self._question.hash)
        self.known[file.entity_id] = file.written

    async def delete(self, entity_id: str) -> None:
        """Delete an entity's file."""
        await self.place.delete(entity_id)
        del self.known[entity_id]

    async def _find(self, entity_id: str) -> None:
        found = await self.place.find(entity_id)
        if found is not None and found.question == self._question.hash:
            self.known[entity_id] = found.written

    async def _read(self) -> list[Found]:
        """Read the files of this question, and return those of others."""
        others = []
        for found in await self.place.found():
            if found.question == self._question.hash:
                self.known[found.entity_id] = found.written
            else:
                others.append(found)
        return others

    async def _refuse_others(self, others: list[Found]) -> None:
        """Raise ManifestMismatchError if files of another question have rows."""
        for found in others:
            if found.written.rows == 0 or (text := await self.place.question(found.entity_id)) is None:
                continue
            raise ManifestMismatchError(
                f"{self.place} belongs to another question, which differs in"
                f" {differences(self._question.text, text)}: give another place, or have its files deleted"
                " (replace=True; --replace on the command line)"
            )


async def _all(jobs: list[Callable[[], Awaitable[None]]]) -> None:
    async with bounded(jobs, _AT_ONCE) as done:
        async for _ in done:
            pass


def place_of(to: str | os.PathLike[str]) -> Folder | Prefix:
    """Return the place of an extraction's files: a folder, or a prefix of a bucket."""
    if isinstance(to, str) and to.lower().startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return Prefix.at(to)
    return Folder.at(to)


def files_at(
    place: Folder | Prefix, question: SharedQuestion, *, lock: bool = True, owner: str | None = None
) -> QuestionFiles:
    """Return the files of a question in a place; `owner` is of a folder that a worker's driver has locked."""
    if isinstance(place, Prefix):
        return QuestionFiles(ObjectFiles(place, lock=lock), question)
    return QuestionFiles(FolderFiles(place, owner), question)
