"""What is known of each entity of an extraction, in a SQLite file: what a later run can rely on.

A row describes the file that is in place, and how the last attempt ended. One process writes it before it
puts the file there, and the hash shows a later run whether the file does stand there. With an executor,
workers put files in place and the driver notes them afterwards: a file that it could not note is adopted by
the next run (`FolderStore._adopted`). There are no cursors: an entity is done as a whole or not at all.

The journal is a cache of what the files say of themselves. A damaged one is set aside, and rebuilt from them.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from attrs import asdict, fields, frozen

from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.parquet import Footer, Written
from asyncfin.extraction.question import SharedQuestion, text_hash
from asyncfin.extraction.report import Failure
from asyncfin.extraction.strict import structure

_VERSION = 2
# A backup, or somebody who looks at the journal, may hold it for a while.
_LOCKED_SECONDS = 60.0
# The two files of a journal are copied again if one has changed meanwhile; a busy run must not hold that up.
_ENDINGS = ("", "-wal")
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
_SCHEMA = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
_WRITTEN = tuple(each.name for each in fields(Written))
_FAILURE = tuple(each.name for each in fields(Failure))


class DamagedJournalError(ManifestMismatchError):
    """A journal of an extraction cannot be read; the message says why."""


@frozen
class Entry:
    """What the journal knows of an entity.

    Attributes:
        question: the text of the question that its file answers; None where the journal lacks it.
        written: its file; None where there is none.
    """

    entity_id: str
    question: str | None
    written: Written | None


class Journal:
    """The journal of a folder, for one question.

    Args:
        path: the file; it is made where it is missing.
        question: what is asked.
        original: what the file is a copy of, if it is one.

    Raises:
        DamagedJournalError: it is no SQLite file, or a damaged one.
        ManifestMismatchError: it is a database of something else, or of another version of this library.
        OSError: it can't be read or written.
    """

    def __init__(self, path: Path, question: SharedQuestion, *, original: Path | None = None) -> None:
        self._path, self._question = original or path, question
        with _meaning(self._path):
            if path.exists():  # SQLite would leave a read-only -shm beside a read-only journal
                path.open("ab").close()
            self._rows = sqlite3.connect(path, isolation_level=None, timeout=_LOCKED_SECONDS)
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
        # Once a run: a damaged page would otherwise show only when it is read, hours later.
        ((verdict,),) = self._rows.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise DamagedJournalError(verdict)
        if self._rows.execute(_SCHEMA).fetchall() != _expected_schema():
            raise DamagedJournalError("its tables are not those of a journal")
        # A loss of power may cost the last rows, except those of `done`; never the journal.
        self._rows.execute("PRAGMA synchronous = NORMAL")
        self._add_question(self._question.text)

    def _begin(self) -> None:
        if self._rows.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise ManifestMismatchError(f"{self._path} is no journal of an extraction: name another folder")
        # So that a backup or a reader of the journal does not hold up a run, nor a run them.
        self._rows.execute("PRAGMA journal_mode = WAL")
        self._rows.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")

    def _add_question(self, text: str) -> str:
        self._rows.execute("INSERT OR IGNORE INTO question VALUES (?, ?)", (text_hash(text), text))
        return text_hash(text)

    def entries(self) -> Iterator[Entry]:
        """Yield what is known of each entity, whatever question its file answers.

        Raises:
            DamagedJournalError: a row is not as it was written.
        """
        with _meaning(self._path):
            # Whatever question a file answers: `replace` and the refusals need to know the others too.
            columns = ", ".join(f"entity.{name}" for name in _WRITTEN)
            found = self._rows.execute(
                f"SELECT entity_id, text, {columns} FROM entity"  # noqa: S608  our own names
                " LEFT JOIN question ON question.hash = entity.question"
            )
            for entity_id, text, *row in found:
                yield _entry(entity_id, text, dict(zip(_WRITTEN, row, strict=True)))

    def forget_failures_of_others(self) -> None:
        """Delete the rows of other questions that describe no file."""
        with _meaning(self._path):
            self._rows.execute(
                "DELETE FROM entity WHERE question != ? AND dataset_id IS NULL", [self._question.hash]
            )

    def forget(self, entity_id: str) -> None:
        """Delete the row of an entity."""
        with _meaning(self._path):
            self._rows.execute("DELETE FROM entity WHERE entity_id = ?", [entity_id])

    def adopt(self, footer: Footer, now: datetime) -> None:
        """Record a file of which only the file itself knows."""
        with _meaning(self._path):
            question = self._add_question(footer.question)
        self._put(footer.entity_id, "done", now, now, question=question, **_columns(footer.written))

    def done(self, entity_id: str, written: Written, began: datetime, ended: datetime) -> None:
        """Record an entity's file, which may be put in place then: the row outlasts a loss of power too."""
        with _meaning(self._path):
            # The file is renamed into place next. Were the row lost then, nothing would say what the file is
            # of.
            self._rows.execute("PRAGMA synchronous = FULL")
            try:
                self._put(entity_id, "done", began, ended, **_columns(written), **_NO_FAILURE)
            finally:
                self._rows.execute("PRAGMA synchronous = NORMAL")

    def unchanged(self, entity_id: str, began: datetime, ended: datetime) -> None:
        """Record that an entity's file is of the current publication."""
        self._put(entity_id, "done", began, ended, **_NO_FAILURE)

    def failed(
        self, entity_id: str, failure: Failure, requests: int, began: datetime, ended: datetime
    ) -> None:
        """Record that an entity failed; what is known of its file stays."""
        # Only these are named, so the row keeps what it says of the file.
        columns = asdict(failure) | {"failed_requests": requests}
        self._put(entity_id, "failed", began, ended, **columns)

    def close(self) -> None:
        """Fold the journal into its one file, and close it."""
        with _meaning(self._path):
            self._rows.close()

    def _put(self, entity_id: str, state: str, began: datetime, ended: datetime, **columns: Any) -> None:
        row = {
            "entity_id": entity_id,
            "question": self._question.hash,
            "state": state,
            "began": began.isoformat(),
            "ended": ended.isoformat(),
        } | columns
        named, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        changed = ", ".join(f"{name} = excluded.{name}" for name in row)
        with _meaning(self._path):
            self._rows.execute(
                f"INSERT INTO entity ({named}) VALUES ({values})"  # noqa: S608  our own names
                f" ON CONFLICT (entity_id) DO UPDATE SET {changed}",
                row,
            )


_NO_FAILURE = dict.fromkeys([*_FAILURE, "failed_requests"])


@cache
def _expected_schema() -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(":memory:")) as rows:
        rows.executescript(_TABLES)
        return rows.execute(_SCHEMA).fetchall()


def _columns(written: Written) -> dict[str, Any]:
    return asdict(written) | {"lacking": json.dumps(dict(written.lacking), ensure_ascii=False)}


def _entry(entity_id: Any, text: Any, row: dict[str, Any]) -> Entry:
    try:
        if not isinstance(entity_id, str):
            raise ValueError(f"{entity_id!r:.100} is no entity id")
        if text is not None and not isinstance(json.loads(text), dict):
            raise ValueError(f"{text!r:.100} is no question")
        # A failure of an entity that has no file.
        if all(value is None for value in row.values()):
            return Entry(entity_id, text, None)
        row["lacking"] = json.loads(row["lacking"])
        return Entry(entity_id, text, structure(row, Written))
    except (ValueError, TypeError, RecursionError) as error:
        raise DamagedJournalError(f"the row of {entity_id!r:.100}: {error}") from None


def set_aside(path: Path) -> Path:
    """Rename a damaged journal, so that another can be begun, and return its new name.

    Raises:
        OSError: it can't be renamed.
    """
    number = 1
    # Numbered and kept, not overwritten: somebody may want to know what has damaged it.
    while (aside := Path(f"{path}.damaged-{number}")).exists():
        number += 1
    # The journal itself comes last: a process killed before that finds it damaged again.
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            Path(f"{path}{ending}").rename(f"{aside}{ending}")
    return aside


def copy(path: Path, place: Path) -> Path:
    """Copy a journal, or none, and return the copy: SQLite writes beside a file even if it only reads it.

    Raises:
        OSError: it can't be read.
    """
    target = place / path.name
    for _ in range(_COPIES):
        # A checkpoint between the two copies would move rows from one file to the other.
        before = _stamps(path)
        for ending in _ENDINGS:
            Path(f"{target}{ending}").unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{ending}", f"{target}{ending}")
        if _stamps(path) == before:
            break
    return target


def _stamps(path: Path) -> list[tuple[int, int] | None]:
    """Return what shows that a run at work has changed one of a journal's files; None: it is not there."""
    stamps: list[tuple[int, int] | None] = []
    for ending in _ENDINGS:
        try:
            found = os.stat(f"{path}{ending}")
        except FileNotFoundError:
            stamps.append(None)
        else:
            stamps.append((found.st_size, found.st_mtime_ns))
    return stamps


@contextmanager
def _meaning(path: Path) -> Iterator[None]:
    """Translate a failure of SQLite into an error that names the file.

    Raises:
        OSError: it can't be read or written, with the errno that says why.
        DamagedJournalError: it is no SQLite file, or a damaged one.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        failure = _meant(path, error)
    except UnicodeDecodeError as error:  # of a damaged name in SQLite's own message
        failure = DamagedJournalError(str(error))
    else:
        return
    raise failure


def _meant(path: Path, error: sqlite3.DatabaseError) -> Exception:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            number = errno.ENOSPC
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            number = errno.EACCES
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return OSError(errno.EBUSY, f"locked by another process for {_LOCKED_SECONDS:.0f} s", str(path))
        case sqlite3.SQLITE_IOERR:
            number = _writing_fails(path.parent)
        case _:  # what SQLite cannot make sense of, also text that is not UTF-8
            return DamagedJournalError(str(error))
    return OSError(number, os.strerror(number), str(path))


def _writing_fails(folder: Path) -> int:
    """Return the errno of writing to a folder: SQLite calls most failures of a disk "disk I/O error"."""
    trial = folder / ".asyncfin-trial"
    try:
        with trial.open("wb") as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno or errno.EIO
    finally:
        trial.unlink(missing_ok=True)
    return errno.EIO
