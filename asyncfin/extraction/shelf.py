"""The folder, its lock and its journal as one: what the worker thread does for a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from datetime import datetime

from asyncfin.errors import AsyncfinError
from asyncfin.extraction import files
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.journal import Failure, Journal, Written, copied
from asyncfin.extraction.question import Lacking, Question
from asyncfin.table.optional import library
from asyncfin.table.panel import Panel


class Shelf:
    """The files of one question. Every call is made in one and the same thread.

    Args:
        folder: where they stand.
        question: what they answer.
        clock: gives the wall time, aware UTC.
    """

    def __init__(self, folder: Folder, question: Question, clock: Callable[[], datetime]) -> None:
        self._folder, self._question, self._clock = folder, question, clock
        self._life = ExitStack()
        self._journal: Journal  # from `open` or `look` on

    def open(self, *, replace: bool) -> None:
        """Take hold of the folder, and clear away what killed runs have left.

        Args:
            replace: whether the files of another question are to be deleted.

        Raises:
            ManifestMismatchError: the folder is of another question, or another run is at work in it.
            ImportError: pyarrow is not installed.
            OSError: the folder can't be written.
        """
        library("pyarrow.parquet", "arrow")
        self._folder.make()
        self._life.enter_context(self._folder.locked())
        self._folder.sweep()
        self._folder.try_out()
        self._journal = self._life.enter_context(closing(Journal(self._folder.journal, self._question)))
        self._folder.refuse_unknown(self._folder.files(), self._journal.with_files())
        if not replace:
            self._journal.refuse_others()
        for entity_id in self._journal.others():
            self._folder.file(entity_id).unlink(missing_ok=True)
        files.flush_names(self._folder.data)
        self._journal.forget_others()

    def look(self, *, replace: bool) -> None:
        """Open only a copy of the journal, and write nothing here. Errors as for `open`."""
        library("pyarrow.parquet", "arrow")
        self._folder.refuse_inner()
        files = self._folder.files()  # first: a run at work notes a file before it is there
        self._journal = self._life.enter_context(copied(self._folder.journal, self._question))
        self._folder.refuse_unknown(files, self._journal.with_files())
        if not replace:
            self._journal.refuse_others()

    def close(self) -> None:
        """Let go of the folder, if it was taken."""
        self._life.close()

    def last(self, entity_id: str) -> Written | None:
        """Return what the journal knows of an entity's file."""
        return self._journal.written(entity_id)

    def known(self, entity_ids: Iterable[str]) -> frozenset[str]:
        """Return those of the entities of whose files the journal knows."""
        return frozenset(each for each in entity_ids if self.last(each) is not None)

    def usual_requests(self) -> float | None:
        """Return how many requests an entity of the journal has taken, in the mean; None: there is none."""
        return self._journal.mean_requests()

    def current(self, entity_id: str, dataset_id: str) -> Written | None:
        """Return an entity's file if it is in place, whole, and of this publication."""
        written = self.last(entity_id)
        if written is None or written.dataset_id != dataset_id:
            return None
        return written if files.is_whole(self._folder.file(entity_id), written) else None

    def keep(self, entity_id: str, dataset_id: str, began: datetime) -> Written | None:
        """Return what `current` does, and note it."""
        written = self.current(entity_id, dataset_id)
        if written is not None:
            self._journal.unchanged(entity_id, began, self._clock())
        return written

    def put(self, panel: Panel, lacking: Lacking, *, requests: int, began: datetime) -> Written:
        """Note an entity's file, and put it in place.

        Raises:
            MalformedAnswerError: a value breaks the spec.
            OSError: the file or the journal can't be written.
        """
        entity_id = panel.dataset.entity_id
        part = self._folder.part(entity_id)
        try:
            written = files.write(part, panel, self._question, requests=requests, lacking=lacking)
            self._journal.done(entity_id, written, began, self._clock())
            files.place(part, self._folder.file(entity_id))
        finally:
            part.unlink(missing_ok=True)
        return written

    def fail(self, entity_id: str, error: AsyncfinError, spent: int, began: datetime) -> Failure:
        """Note that an entity failed after so many requests; its file of before stays."""
        failure = Failure.of(error)
        self._journal.failed(entity_id, failure, spent, began, self._clock())
        return failure
