"""What is known of each entity of an extraction, in a SQLite file: what a later run can rely on.

A row tells of the file that is in place, and of how the last attempt ended. It is written before the
file is put there: so none stands there unknown, and by the hash a later run sees whether it does stand
there. There are no cursors: an entity is done as a whole or not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import fields, frozen

from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.disk import failing
from asyncfin.extraction.question import Lacking, Question, differences

_VERSION = 2
# The two files of a journal are copied again if one has changed meanwhile; a busy run must not hold that up.
_PARTS = ("", "-wal")
_COPIES = 5
_TABLES = """
CREATE TABLE question (hash TEXT PRIMARY KEY, text TEXT NOT NULL);
CREATE TABLE entity (
    entity_id TEXT PRIMARY KEY,
    question TEXT NOT NULL REFERENCES question,
    state TEXT NOT NULL,
    dataset_id TEXT, rows INTEGER, bytes INTEGER, sha256 TEXT, requests INTEGER, lacking TEXT,
    error TEXT, message TEXT, status INTEGER, code TEXT, request_id TEXT, failed_requests INTEGER,
    began TEXT NOT NULL, ended TEXT NOT NULL
) WITHOUT ROWID;
"""


@frozen
class Written:
    """The file of an entity that is in place.

    Attributes:
        dataset_id: of which publication it is.
        rows, bytes: how large it is.
        sha256: of its content.
        requests: how many the extraction took, everything counted.
        lacking: the asked ids and words that the catalogue lacks.
    """

    dataset_id: str
    rows: int
    bytes: int
    sha256: str
    requests: int
    lacking: Lacking


@frozen
class Failure:
    """How an attempt failed: the error's class, and what the service said of it."""

    error: str
    message: str
    status: int | None = None
    code: str | None = None
    request_id: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Failure:
        known = {name: getattr(error, name, None) for name in ("status", "code", "request_id")}
        return cls(type(error).__name__, str(error), **known)


class Journal:
    """The journal of a folder, for one question.

    Args:
        path: the file; it is made where it is missing.
        question: what is asked.
        original: what the file is a copy of, if it is one.

    Raises:
        ManifestMismatchError: it is no journal, or of another version of this library.
        OSError: it can't be written.
    """

    def __init__(self, path: Path, question: Question, *, original: Path | None = None) -> None:
        self._path, self._question = original or path, question
        with failing(self._path):
            if path.exists():  # of one that is read-only SQLite would make a -shm that stays so
                path.open("ab").close()
            self._rows = sqlite3.connect(path, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._rows.close()
                raise

    def _open(self) -> None:
        (version,) = self._rows.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._begin()
        elif version != _VERSION:
            raise ManifestMismatchError(
                f"{self._path} is of another version of asyncfin: name another folder"
            )
        # A loss of power may cost the last entries, but for those of `done`; never the journal.
        self._rows.execute("PRAGMA synchronous = NORMAL")
        asked = (self._question.hash, self._question.text)
        self._rows.execute("INSERT OR IGNORE INTO question VALUES (?, ?)", asked)

    def _begin(self) -> None:
        if self._rows.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise ManifestMismatchError(f"{self._path} is no journal of an extraction: name another folder")
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")

    def with_files(self) -> frozenset[str]:
        """Return the entities of which there are files, whatever they answer."""
        return frozenset(
            each for (each,) in self._run("SELECT entity_id FROM entity WHERE dataset_id IS NOT NULL")
        )

    def others(self) -> tuple[str, ...]:
        """Return the entities whose files answer another question; without a publication there is no file."""
        found = self._run(
            "SELECT entity_id FROM entity WHERE question != ? AND dataset_id IS NOT NULL", self._question.hash
        )
        return tuple(entity_id for (entity_id,) in found)

    def refuse_others(self) -> None:
        """Refuse a folder with files of another question.

        Raises:
            ManifestMismatchError: there are some; the message says in what it differs.
        """
        found = self._run(
            "SELECT text FROM question JOIN entity ON hash = question"
            " WHERE question != ? AND dataset_id IS NOT NULL LIMIT 1",
            self._question.hash,
        )
        for (text,) in found:
            raise ManifestMismatchError(
                f"the folder belongs to another question, which differs in"
                f" {differences(self._question.text, text)}: name another folder, or have its files"
                " deleted (replace=True; --replace on the command line)"
            )

    def forget_others(self) -> None:
        """Delete what is known of other questions."""
        self._run("DELETE FROM entity WHERE question != ?", self._question.hash)

    def written(self, entity_id: str) -> Written | None:
        """Return what is known of an entity's file; None: there is none that answers the question."""
        found = self._run(
            f"SELECT {_FILE} FROM entity WHERE entity_id = ? AND question = ?",  # noqa: S608  our own names
            entity_id,
            self._question.hash,
        )
        return _written(*found[0]) if found else None

    def mean_requests(self) -> float | None:
        """Return how many requests an entity has taken for the question, in the mean; None: no file."""
        ((mean,),) = self._run("SELECT avg(requests) FROM entity WHERE question = ?", self._question.hash)
        return None if mean is None else float(mean)

    def done(self, entity_id: str, written: Written, began: datetime, ended: datetime) -> None:
        """Note an entity's file, which may be put in place then: the note outlasts a loss of power too."""
        file = _columns(written) | {"lacking": json.dumps(dict(written.lacking), ensure_ascii=False)}
        self._run("PRAGMA synchronous = FULL")
        self._put(entity_id, "done", began, ended, **file, **_WELL)
        self._run("PRAGMA synchronous = NORMAL")

    def unchanged(self, entity_id: str, began: datetime, ended: datetime) -> None:
        """Note that the file in place is of the current publication."""
        self._put(entity_id, "done", began, ended, **_WELL)

    def failed(self, entity_id: str, failure: Failure, spent: int, began: datetime, ended: datetime) -> None:
        """Note that an attempt failed after so many requests. The file that was in place stays."""
        self._put(entity_id, "failed", began, ended, **_columns(failure), failed_requests=spent)

    def close(self) -> None:
        """Fold the journal into its one file, and close it."""
        with failing(self._path):
            self._rows.close()

    def _put(self, entity_id: str, state: str, began: datetime, ended: datetime, **columns: Any) -> None:
        times = {"began": began.isoformat(), "ended": ended.isoformat()}
        row = {"entity_id": entity_id, "question": self._question.hash, "state": state, **times, **columns}
        named, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        changed = ", ".join(f"{name} = excluded.{name}" for name in row)
        with failing(self._path):
            self._rows.execute(
                f"INSERT INTO entity ({named}) VALUES ({places})"  # noqa: S608  our own names
                f" ON CONFLICT (entity_id) DO UPDATE SET {changed}",
                row,
            )

    def _run(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with failing(self._path):
            return self._rows.execute(query, parameters).fetchall()


@contextmanager
def copied(path: Path, question: Question) -> Iterator[Journal]:
    """Open a copy of a journal, or of none: SQLite writes beside a file even if it only reads it.

    Raises:
        ManifestMismatchError, OSError: as for `Journal`.
    """
    with TemporaryDirectory() as place:
        copy = Path(place) / path.name
        for _ in range(_COPIES):
            before = _stamps(path)
            _copy(path, copy)
            if _stamps(path) == before:
                break
        with closing(Journal(copy, question, original=path)) as journal:
            yield journal


def _copy(path: Path, copy: Path) -> None:
    for ending in _PARTS:
        Path(f"{copy}{ending}").unlink(missing_ok=True)
        with failing(path), suppress(FileNotFoundError):
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")


def _stamps(path: Path) -> list[tuple[int, int] | None]:
    """Return what shows that a run at work has changed one of a journal's files; None: it is not there."""
    stamps: list[tuple[int, int] | None] = []
    for ending in _PARTS:
        try:
            found = os.stat(f"{path}{ending}")
        except FileNotFoundError:
            stamps.append(None)
        else:
            stamps.append((found.st_size, found.st_mtime_ns))
    return stamps


def _columns(value: Written | Failure) -> dict[str, Any]:
    return {each.name: getattr(value, each.name) for each in fields(type(value))}


_FILE = ", ".join(each.name for each in fields(Written))
_WELL = dict.fromkeys([*(each.name for each in fields(Failure)), "failed_requests"])


def _written(*row: Any) -> Written | None:
    known = dict(zip((each.name for each in fields(Written)), row, strict=True))
    if known["lacking"] is None:
        return None
    known["lacking"] = {name: tuple(ids) for name, ids in json.loads(known["lacking"]).items()}
    return Written(**known)
