"""The SQLite database of a FileCache, used by one thread of one process.

It contains records, and parts: a catalogue, or the blocks of one put. Each row has a checksum over its key
and content. A database that SQLite cannot read is replaced by an empty one, as soon as no other process has
it open.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Hashable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

from attrs import evolve

from asyncfin.cache import folder as folders
from asyncfin.cache.base import Key
from asyncfin.cache.checksum import sealed, verified
from asyncfin.cache.codec import FORMAT, encode_record, verified_record
from asyncfin.cache.record import EntityRecord, RecordRule
from asyncfin.cache.tiered import Stored
from asyncfin.clock import EPOCH
from asyncfin.model.catalogue import publication_id

FileId: TypeAlias = tuple[int, int]

# How long `held` waits for another process.
_BUSY_SECONDS = 2.0
# Without truncation, eight writers let the write-ahead log grow to 265 MiB.
_PUTS_PER_CHECKPOINT = 16
_LOG_BYTES = 8 * 1024 * 1024
_TOUCHED_EVERY = 3_600
# A record without parts saves at most one request.
_RECORD_SECONDS = 90 * 86_400
# What is evicted to: a put that evicts makes room for several.
_EVICTED_TO = 0.9

# A file of another format is deleted after so long; its release may still be in use.
_OTHER_FORMAT_SECONDS = 7 * 86_400
_serials = count()  # a version is one of a connection, and another connection counts from its own beginning

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    account BLOB NOT NULL, entity TEXT NOT NULL, publication TEXT, changed INTEGER NOT NULL,
    row BLOB NOT NULL, PRIMARY KEY (account, entity)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS part (
    id INTEGER PRIMARY KEY, account BLOB NOT NULL, entity TEXT NOT NULL, publication TEXT NOT NULL,
    kind TEXT NOT NULL, series INTEGER NOT NULL, bytes INTEGER NOT NULL, used INTEGER NOT NULL,
    row BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS part_of ON part (account, entity, publication, kind);
CREATE INDEX IF NOT EXISTS part_used ON part (used, bytes, series);
"""

_RECORD_OF = "SELECT row FROM record WHERE account = ? AND entity = ?"
_PUT_RECORD = "INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?, ?)"
_OLD_RECORDS = """
DELETE FROM record WHERE changed < ? AND NOT EXISTS
    (SELECT 1 FROM part WHERE part.account = record.account AND part.entity = record.entity)
"""
_PARTS_OF = """
SELECT id, CAST(used AS INTEGER) FROM part WHERE account = ? AND entity = ? AND publication = ? AND kind = ?
"""
_ROW = "SELECT row FROM part WHERE id = ?"
_PUT_PART = "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
# Superseded publications first, then the least recently used.
_EVICTION = """
SELECT id, bytes FROM part LEFT JOIN record USING (account, entity) WHERE id != ?
    ORDER BY (record.row IS NOT NULL AND record.publication IS NOT part.publication) DESC, used, id
"""
# From the index alone, so that no body is read.
_HELD = "SELECT coalesce(sum(series), 0), coalesce(sum(bytes), 0) FROM part"


class Database:
    """A connection, and the lock by which other processes see that this one has the file open.

    The file `damaged`, in which damage was found, is replaced if no other process has it open.
    """

    def __init__(
        self, folder: Path, max_bytes: int, *, damaged: FileId | None = None, busy_seconds: float
    ) -> None:
        folders.prepare(folder)
        self._path = path_in(folder)
        self._max_bytes = max_bytes
        self._puts = 0
        self._serial = next(_serials)
        self._busy = 0
        self.replaced = False  # whether a damaged file was
        self._lock = folders.open_private(self._path.with_suffix(".lock"))
        try:
            folders.take_lock(self._lock, exclusive=False, seconds=busy_seconds)
            if damaged is not None and file_id(self._path) == damaged:
                self._delete_file()
            try:
                self._connection = self._opened(busy_seconds)
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not is_damage(error):
                    raise
                self._delete_file()
                self._connection = self._opened(busy_seconds)
            with suppress(OSError):
                folders.delete_databases(folder, keep=self._path.name, unmodified_for=_OTHER_FORMAT_SECONDS)
                self._max_bytes = max(0, max_bytes - folders.bytes_of_other_databases(self._path))
        except BaseException:
            os.close(self._lock)
            raise

    def _opened(self, seconds: float) -> sqlite3.Connection:
        until = monotonic() + seconds
        while True:
            try:
                return self._connected(until - monotonic())
            except sqlite3.OperationalError as error:
                # Where several processes make the file at once, SQLite does not wait by itself.
                if _code(error) & 0xFF != sqlite3.SQLITE_BUSY or monotonic() > until:
                    raise
            sleep(0.02)

    def _connected(self, seconds: float) -> sqlite3.Connection:
        os.close(folders.open_private(self._path))  # SQLite gives its other files the mode of this one
        connection = sqlite3.connect(
            self._path, timeout=max(0.0, seconds), isolation_level=None, check_same_thread=False
        )
        try:
            # The first of these read the header, and fail if it is corrupt.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA journal_mode = WAL")
            # A loss of power may cost the last puts, which are then requested again, but not the file.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            # Damage to the schema is found only by the statements that use what is damaged. EXPLAIN compiles
            # a statement without writing.
            for statement in (_RECORD_OF, _PUT_RECORD, _OLD_RECORDS, _PARTS_OF, _ROW, _PUT_PART, _EVICTION):
                connection.execute(f"EXPLAIN {statement}", (None,) * statement.count("?")).fetchall()
            for statement in (_RECORD_OF, _PARTS_OF):
                connection.execute(statement, (b"",) * statement.count("?")).fetchall()
            connection.execute(_HELD).fetchall()
        except BaseException:
            connection.close()
            raise
        return connection

    def _delete_file(self) -> None:
        """Delete a damaged database; BlockingIOError: another process has it open.

        With others it would go wrong: on closing they delete the log by name, which is then the new one's.
        """
        folders.take_lock(self._lock, exclusive=True)
        folders.delete_database(self._path)
        self.replaced = True
        folders.take_lock(self._lock, exclusive=False)

    def wait_for_others(self, seconds: float) -> None:
        """Wait so long at most for what another connection has locked, in each operation from now on."""
        self._busy = max(0, round(seconds * 1_000))
        self._connection.execute(f"PRAGMA busy_timeout = {self._busy}")

    def close(self) -> None:
        """Close the connection and release the lock."""
        self._connection.close()
        os.close(self._lock)

    def version(self) -> tuple[int, int]:
        """Return what differs once another connection has changed the file."""
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return self._serial, version

    def record(self, account: bytes, entity_id: str) -> Stored:
        version = self.version()  # before the row: a change in between is then seen the next time
        row = self._connection.execute(_RECORD_OF, (account, entity_id)).fetchone()
        if row is None:
            return Stored(EntityRecord(), version)
        record = verified_record(*row, account, entity_id)
        return Stored(record or EntityRecord(), version, corrupt=record is None)

    def change(self, account: bytes, entity_id: str, rule: RecordRule) -> Stored:
        """Apply what a response has shown to the record of an entity, and return it."""
        with self._transaction():
            known = self.record(account, entity_id)
            if (record := rule(known.record)) != known.record or known.corrupt:
                current = record.current
                moments = (current.confirmed if current else None, record.replaced, record.refused)
                latest = max(filter(None, moments), default=EPOCH)
                publication = current and publication_id(current.dataset_id)
                row = sealed(encode_record(record), account, entity_id)
                self._connection.execute(
                    _PUT_RECORD, (account, entity_id, publication, int(latest.timestamp()), row)
                )
            return evolve(known, record=record)

    def entity_ids(self, account: bytes) -> list[str]:
        """Return the entities of an account whose current publication is known, in order."""
        rows = self._connection.execute(
            "SELECT entity FROM record WHERE account = ? AND publication IS NOT NULL ORDER BY entity",
            (account,),
        )
        return [entity_id for (entity_id,) in rows]

    def parts(self, key: Key, now: datetime) -> list[int]:
        """Return the ids of the parts under a key, and stamp them as used."""
        rows = self._connection.execute(_PARTS_OF, key).fetchall()
        # A stamp each time would make a reader a writer: an hour is near enough for what is evicted first.
        stamp = int(now.timestamp())
        if old := [(stamp, part) for part, used in rows if used < stamp - _TOUCHED_EVERY]:
            with suppress(sqlite3.OperationalError), self._without_wait(), self._transaction():
                self._connection.executemany("UPDATE part SET used = ? WHERE id = ?", old)
        return [part for part, _ in rows]

    def read(self, key: Key, parts: Iterable[Hashable]) -> dict[Hashable, bytes | None]:
        """Return the bodies of parts by id; None for a corrupt one."""
        found = {}
        for part in parts:
            row = self._connection.execute(_ROW, (part,)).fetchone()
            if row is not None:  # else evicted by another process since then
                found[part] = verified(*row, *key)
        return found

    def drop(self, parts: Iterable[Hashable]) -> None:
        """Delete parts."""
        with self._transaction():
            self._connection.executemany("DELETE FROM part WHERE id = ?", [(part,) for part in parts])

    def put(self, key: Key, body: bytes, series: int, now: datetime, *, alone: bool = False) -> int | None:
        """Store a part, in place of others under its key if it is `alone`; return its id, None: too large."""
        if len(body) > self._max_bytes:
            return None
        # Never used twice, even after the file was replaced: processes know the parts they have read by id.
        part = secrets.randbits(63)
        row = (part, *key, series, len(body), int(now.timestamp()), sealed(body, *key))
        with self._transaction():
            if alone:
                self._connection.execute(
                    "DELETE FROM part WHERE account = ? AND entity = ? AND publication = ? AND kind = ?", key
                )
            self._connection.execute(_PUT_PART, row)
            self._evict(part, now)
        self._puts += 1
        if self._puts % _PUTS_PER_CHECKPOINT == 0:
            self._truncate_log()
        return part

    def _evict(self, newest: int, now: datetime) -> None:
        """If there are too many bytes, delete superseded parts, the least recently used, and old records."""
        total = self._connection.execute("SELECT sum(bytes) FROM part").fetchone()[0]
        if total <= self._max_bytes:
            return
        ordered = self._connection.execute(_EVICTION, (newest,)).fetchall()
        evicted = []
        for part, size in ordered:
            if total <= self._max_bytes * _EVICTED_TO:
                break
            evicted.append((part,))
            total -= size
        self._connection.executemany("DELETE FROM part WHERE id = ?", evicted)
        deleted = self._connection.execute(_OLD_RECORDS, (int(now.timestamp()) - _RECORD_SECONDS,))
        if deleted.rowcount:  # a connection's own changes leave its data_version as it is
            self._serial = next(_serials)

    def _truncate_log(self) -> None:
        # Not worth a wait for current readers: the next checkpoint truncates it.
        with suppress(sqlite3.OperationalError), self._without_wait():
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    @contextmanager
    def _without_wait(self) -> Iterator[None]:
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            yield
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {self._busy}")

    def clear(self, entity_id: str | None) -> None:
        """Delete what is kept of an entity, or everything, of all accounts, and give the space back."""
        with self._transaction():
            for table in ("record", "part"):
                where = "" if entity_id is None else " WHERE entity = ?"
                self._connection.execute(
                    f"DELETE FROM {table}{where}",  # noqa: S608  fixed names
                    () if entity_id is None else (entity_id,),
                )
        if entity_id is None:
            with suppress(sqlite3.OperationalError):  # another process reads: the pages are used again later
                self._connection.execute("VACUUM")
                self._truncate_log()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # A write lock from the start: a transaction that takes it later fails if another one was quicker.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise


def path_in(folder: Path) -> Path:
    """Return the path of the database in a folder."""
    return folder / f"publications-{FORMAT}.sqlite"


def file_id(path: Path) -> FileId | None:
    """Return what identifies the file at a path; None: there is none."""
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


def held(folder: Path) -> tuple[int, int]:
    """Return the number of series in a folder's database, and their bytes, without changing it.

    Raises:
        OSError: it can't be read.
    """
    path = path_in(folder)
    if file_id(path) is None:
        return 0, 0
    folders.prepare(folder)
    with folders.closing_descriptor(folders.open_private(path.with_suffix(".lock"))) as descriptor:
        folders.take_lock(descriptor, exclusive=False, seconds=_BUSY_SECONDS)
        uri = f"{path.as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection:
                series, size = connection.execute(_HELD).fetchone()
                return int(series), int(size)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise OSError(f"the cache in {folder} can't be read: {type(error).__name__}") from error


def is_damage(error: Exception) -> bool:
    """Return whether an error shows that the file is damaged, or is another database."""
    if isinstance(error, UnicodeDecodeError):  # as in a name of the schema
        return True
    if not isinstance(error, sqlite3.Error):
        return False
    code = _code(error)
    # SQLITE_ERROR: tables or columns are not those of the schema. IOERR_SHORT_READ: the file is cut off.
    damaged = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
    return code & 0xFF in damaged or code == sqlite3.SQLITE_IOERR_SHORT_READ


def _code(error: sqlite3.Error) -> int:
    # Not all errors that the module raises by itself have one.
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR))
