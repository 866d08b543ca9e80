"""Where an extraction's files are kept: what a run needs of a place, and the place that is a local folder."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Protocol, Self, TypeVar

from attrs import evolve

from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.folder import Folder, naming
from asyncfin.extraction.journal import DamagedJournalError, Entry, Journal, copy, set_aside
from asyncfin.extraction.objects import ObjectStore
from asyncfin.extraction.parquet import EntityFile, Footer, Written, read_footer, verified_hash
from asyncfin.extraction.prefix import SCHEMES, Prefix
from asyncfin.extraction.question import SharedQuestion, differences
from asyncfin.extraction.report import Failure
from asyncfin.model.catalogue import Dataset, is_same_publication
from asyncfin.model.words import counted
from asyncfin.table.optional import library
from asyncfin.tasks import wait_for_all

T = TypeVar("T")
_log = logging.getLogger("asyncfin")


class Store(Protocol):
    """The files of one question in one place. `known` has those that are there, by entity."""

    known: dict[str, Written]
    repaired: str | None

    async def open(self, *, replace: bool, stop: asyncio.Event) -> None:
        """Lock the place for a run, and read what is there.

        Args:
            replace: whether files of another question are to be deleted.
            stop: ends a wait for the lock when it is set: nothing is locked or read then.

        Raises:
            ManifestMismatchError: the place is of another question, or another run is at work in it.
            ImportError: a library is not installed.
            OSError: the place can't be read or written.
        """

    async def look(self, *, replace: bool) -> None:
        """Read what is there, and write nothing. Errors as for `open`."""

    async def join(self, known: dict[str, Written], entity_ids: Iterable[str]) -> None:
        """Use a place that another process has locked.

        Args:
            known: the files that it knows of.
            entity_ids: whose files are to be looked for, if they are not known: a worker that was killed
                may have put some in place. A known one that is not current is looked for by `is_current`.
        """

    def check(self) -> None:
        """Find out whether the place is still this run's.

        Raises:
            ManifestMismatchError: another run has taken it over.
        """

    def path(self, entity_id: str) -> str:
        """Return where the file of an entity stands: a path or a URL."""

    async def is_current(self, dataset: Dataset) -> bool:
        """Return whether the known file of the entity is of this publication, and as it was written."""

    async def put(self, file: EntityFile, began: datetime) -> None:
        """Put an entity's file in place, whole.

        Raises:
            ManifestMismatchError: another run has taken the place over.
            OSError: it can't be written.
        """

    async def note_written(self, entity_id: str, written: Written, began: datetime) -> None:
        """Record a file that another process has put in place."""

    async def note_unchanged(self, entity_id: str, began: datetime) -> None:
        """Record that an entity's file is of the current publication."""

    async def note_failed(self, entity_id: str, failure: Failure, requests: int, began: datetime) -> None:
        """Record that an entity failed, and what that cost; its earlier file stays."""

    async def aclose(self) -> None:
        """Release the place, if it was opened. It is awaited to its end however often it is cancelled."""


def place_of(to: str | os.PathLike[str]) -> Folder | Prefix:
    """Return the place that an extraction's files are to stand in: a folder, or a prefix of a bucket.

    Raises:
        ArgumentError: it names none.
    """
    if isinstance(to, str) and to.lower().startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return Prefix.at(to)
    return Folder.at(to)


def store_at(
    place: Folder | Prefix,
    question: SharedQuestion,
    thread: WorkerThread,
    clock: Callable[[], datetime],
    *,
    lock: bool = True,
) -> Store:
    """Return the store of a place."""
    if isinstance(place, Prefix):
        return ObjectStore(place, question, lock=lock)
    return FolderStore(place, question, thread, clock)


class WorkerThread:
    """Runs calls in one thread, one at a time, in the order of asking; a call that has begun always ends.

    Leaving the block waits for the call under way, even if that wait is cancelled, and drops the others.
    anyio's limiter of one token gives neither that order nor that wait: its shield does not hold against
    `Task.cancel`, and SQLite's connection stays in the thread that made it.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "asyncfin-extract")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.finish(lambda: None)
        finally:
            self._executor.shutdown(wait=False)

    async def run(self, call: Callable[[], T]) -> T:
        """Return what a call returns, or raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def finish(self, call: Callable[[], T]) -> T:
        """Return what a call returns, and wait for its end however often this is cancelled."""
        future = asyncio.ensure_future(self.run(call))
        await wait_for_all([future])
        return future.result()


class FolderStore:
    """A local folder, with its journal beside it; see `Store`.

    Args:
        folder: where the files stand.
        question: what they answer.
        thread: where the disk is used.
        clock: gives the wall time, aware UTC.
    """

    def __init__(
        self, folder: Folder, question: SharedQuestion, thread: WorkerThread, clock: Callable[[], datetime]
    ) -> None:
        self._folder, self._question, self._thread, self._clock = folder, question, thread, clock
        self._journal: Journal | None = None
        self._resources = ExitStack()
        self.known: dict[str, Written] = {}
        self.repaired: str | None = None

    async def open(self, *, replace: bool, stop: asyncio.Event) -> None:
        await self._thread.run(partial(self._open, replace=replace))

    async def look(self, *, replace: bool) -> None:
        await self._thread.run(partial(self._look, replace=replace))

    async def join(self, known: dict[str, Written], entity_ids: Iterable[str]) -> None:
        self.known = known
        await self._thread.run(partial(self._find, [each for each in entity_ids if each not in known]))

    def check(self) -> None:
        pass  # the lock of a folder lasts as long as the process

    def path(self, entity_id: str) -> str:
        return str(self._folder.file(entity_id))

    async def is_current(self, dataset: Dataset) -> bool:
        return await self._thread.run(partial(self._is_current, dataset))

    async def put(self, file: EntityFile, began: datetime) -> None:
        await self._thread.run(partial(self._put, file, began))

    async def note_written(self, entity_id: str, written: Written, began: datetime) -> None:
        await self._thread.run(partial(self._note_written, entity_id, written, began))

    async def note_unchanged(self, entity_id: str, began: datetime) -> None:
        if self._journal is not None:
            await self._thread.run(partial(self._journal.unchanged, entity_id, began, self._clock()))

    async def note_failed(self, entity_id: str, failure: Failure, requests: int, began: datetime) -> None:
        if self._journal is not None:
            await self._thread.run(
                partial(self._journal.failed, entity_id, failure, requests, began, self._clock())
            )

    async def aclose(self) -> None:
        await self._thread.finish(self._resources.close)

    # What follows runs in the worker thread.

    def _open(self, *, replace: bool) -> None:
        library("pyarrow.parquet", "arrow")
        folder = self._folder
        # Before anything is made: a folder with files of somebody else's is left as it was.
        if not folder.journal.exists():
            self._refuse_strangers(folder.files())
        folder.make()
        # Before anything is read: what another run writes meanwhile would not be known here.
        self._resources.enter_context(folder.locked())
        # Under the lock: no unfinished file is that of a run at work.
        folder.sweep()
        self._resources.callback(self._sweep_at_end)
        folder.try_out()
        others = self._read(folder.journal, None, folder.files())
        assert self._journal is not None
        if replace:
            for entry in others:
                folder.file(entry.entity_id).unlink(missing_ok=True)
                self._journal.forget(entry.entity_id)
            folder.flush_names()
        else:
            self._refuse_others(others)
        self._journal.forget_failures_of_others()

    def _sweep_at_end(self) -> None:
        """Delete what workers that were killed have left; the next run does it if this one can't."""
        try:
            self._folder.sweep()
        except OSError as error:
            _log.warning("an unfinished file can't be deleted: %s", error)

    def _look(self, *, replace: bool) -> None:
        library("pyarrow.parquet", "arrow")
        folder = self._folder
        folder.refuse_inner()
        files = folder.files()  # first: a run at work notes a file before it is there
        if not folder.journal.exists():
            self._refuse_strangers(files)
        place = Path(self._resources.enter_context(TemporaryDirectory()))
        with naming(folder.journal):
            journal = copy(folder.journal, place)
        others = self._read(journal, folder.journal, files)
        if not replace:
            self._refuse_others(others)

    def _read(self, path: Path, original: Path | None, files: tuple[Path, ...]) -> list[Entry]:
        """Open the journal, read what is known of the files, and return those of other questions.

        Raises:
            ManifestMismatchError: a file is not of an extraction, or the journal is something else.
        """
        try:
            entries = self._entries(path, original)
        except DamagedJournalError as error:
            entries = self._begin_again(path, original, files, error)
        expected = {self._folder.file(entry.entity_id) for entry in entries}
        entries += self._adopted([path for path in files if path not in expected])
        own = {entry.entity_id: entry.written for entry in entries if entry.question == self._question.text}
        self.known = {entity_id: written for entity_id, written in own.items() if written is not None}
        return [entry for entry in entries if entry.entity_id not in own]

    def _entries(self, path: Path, original: Path | None) -> list[Entry]:
        """Open the journal, and return its entries of files."""
        journal = Journal(path, self._question, original=original)
        try:
            entries = [entry for entry in journal.entries() if entry.written is not None]
        except BaseException:
            journal.close()
            raise
        self._journal = self._resources.enter_context(closing(journal))
        return entries

    def _begin_again(
        self, path: Path, original: Path | None, files: tuple[Path, ...], error: DamagedJournalError
    ) -> list[Entry]:
        """Set a damaged journal aside and begin another one, to be filled from the files."""
        journal = original or path
        # Then nothing shows that it ever was a journal, and not somebody's file of that name.
        if not any(map(self._own_footer, files)):
            raise ManifestMismatchError(
                f"{journal} is damaged ({error}), or no journal of an extraction, and there is no file to"
                " rebuild it from: remove it, or name another folder"
            ) from None
        aside = set_aside(path)
        kept = f"; the damaged one is kept as {aside}" if original is None else ""
        self._tell_repaired(
            f"the journal {journal} was damaged ({error}) and is rebuilt from the files{kept}"
        )
        return self._entries(path, original)

    def _adopted(self, files: list[Path]) -> list[Entry]:
        """Record files that the journal does not know, and that say themselves what they are."""
        assert self._journal is not None
        footers = []
        for path in files:
            if (footer := self._own_footer(path)) is not None:
                footers.append(footer)
            else:
                self._folder.refuse(path)
        if footers and self.repaired is None:
            self._tell_repaired(
                f"the journal {self._folder.journal} lacked {counted(len(footers), 'file')} of the folder,"
                " which it now has from what they say of themselves"
            )
        entries = []
        for footer in footers:
            # Read to its end, since a file that nobody has written down may have been cut off.
            sha256 = verified_hash(self._folder.file(footer.entity_id))
            written = evolve(footer.written, sha256=sha256)
            self._journal.adopt(evolve(footer, written=written), self._clock())
            entries.append(Entry(footer.entity_id, footer.question, written))
        return entries

    def _tell_repaired(self, text: str) -> None:
        self.repaired = text
        _log.warning("%s", text)

    def _own_footer(self, path: Path) -> Footer | None:
        """Return what a file says of itself, if it stands where the file of that entity belongs."""
        footer = read_footer(path)
        return footer if footer is not None and self._folder.file(footer.entity_id) == path else None

    def _refuse_strangers(self, files: tuple[Path, ...]) -> None:
        for path in files:
            if self._own_footer(path) is None:
                self._folder.refuse(path)

    def _refuse_others(self, others: list[Entry]) -> None:
        """Refuse a folder with files of another question; those without rows keep no question out.

        Raises:
            ManifestMismatchError: there are some; the message says how the questions differ.
        """
        for entry in others:
            assert entry.written is not None
            file = self._folder.file(entry.entity_id)
            if not file.exists() or (entry.written.rows == 0 and is_whole(file, entry.written)):
                continue
            unknown = f"which the journal {self._folder.journal} does not have (that of {file.name})"
            differing = entry.question and differences(self._question.text, entry.question)
            raise ManifestMismatchError(
                f"{self._folder.data} belongs to another question,"
                f" {f'which differs in {differing}' if differing else unknown}: name another folder,"
                " or have its files deleted (replace=True; --replace on the command line)"
            )

    def _is_current(self, dataset: Dataset) -> bool:
        entity_id = dataset.entity_id
        if not is_same_publication(self.known[entity_id].dataset_id, dataset.dataset_id):
            if self._journal is not None:
                return False
            # A worker that was killed may have replaced the file since the driver has read the journal.
            self._find([entity_id])
        written = self.known[entity_id]
        return is_same_publication(written.dataset_id, dataset.dataset_id) and is_whole(
            self._folder.file(entity_id), written
        )

    def _find(self, entity_ids: Iterable[str]) -> None:
        for entity_id in entity_ids:
            path = self._folder.file(entity_id)
            footer = self._own_footer(path)
            if footer is not None and footer.question == self._question.text:
                self.known[entity_id] = evolve(footer.written, sha256=verified_hash(path))

    def _put(self, file: EntityFile, began: datetime) -> None:
        # A name of its own: a worker that passes for dead may still be writing the same entity's.
        part = self._folder.new_part()
        try:
            with naming(part), part.open("wb") as unfinished:
                unfinished.write(file.content)
                unfinished.flush()
                os.fsync(unfinished.fileno())
            # In this order, so that a killed run leaves no file that its journal does not know. Workers have
            # no journal: the driver notes their files later, and `_adopted` those that it could not.
            self._note_written(file.entity_id, file.written, began)
            self._folder.place(part, file.entity_id)
        finally:
            part.unlink(missing_ok=True)

    def _note_written(self, entity_id: str, written: Written, began: datetime) -> None:
        if self._journal is not None:
            self._journal.done(entity_id, written, began, self._clock())
        self.known[entity_id] = written


def is_whole(file: Path, written: Written) -> bool:
    """Return whether a file is, byte for byte, the one that was put in place."""
    try:
        with file.open("rb") as content:
            return (
                file.stat().st_size == written.bytes
                and file_digest(content, "sha256").hexdigest() == written.sha256
            )
    except FileNotFoundError:
        return False
