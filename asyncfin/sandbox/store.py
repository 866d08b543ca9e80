"""The store: publications, tokens, accounts and daily request counts in SQLite, in
memory or in a file.

It contains encoded series, so that a page is joined from pieces and nothing is rendered
again. One connection serves the loop; every read goes by an index. What the last pages
were made of is cached in memory.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from attrs import asdict, define, frozen

from asyncfin.sandbox.accounts import Account, Token
from asyncfin.sandbox.dataset import Period, Publication
from asyncfin.sandbox.encode import BETWEEN, NULL, encode_series, write_head
from asyncfin.sandbox.errors import SandboxError

_VERSION = 3  # of the schema
_SCHEMA = f"""
PRAGMA user_version = {_VERSION};
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS publication (
    number INTEGER PRIMARY KEY, entity_id TEXT UNIQUE, dataset_id TEXT,
    digest BLOB, head BLOB, periods TEXT, scope_groups TEXT, groups TEXT);
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, publication INTEGER, position INTEGER,
    metric_id TEXT, path TEXT, reporting_group_id TEXT,
    populated BLOB, populated_latest BLOB);
CREATE INDEX IF NOT EXISTS series_by_position ON series (publication, position);
CREATE INDEX IF NOT EXISTS series_by_metric ON series (publication, metric_id, path);
CREATE INDEX IF NOT EXISTS series_by_path ON series (publication, path);
CREATE TABLE IF NOT EXISTS encoded (
    series INTEGER PRIMARY KEY, catalogue BLOB, head BLOB, original BLOB, latest BLOB);
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, settings TEXT);
CREATE TABLE IF NOT EXISTS token (
    digest BLOB PRIMARY KEY, account TEXT, permissions TEXT, audience TEXT);
CREATE TABLE IF NOT EXISTS request_count (
    account TEXT, day TEXT, operation TEXT, requests INTEGER,
    PRIMARY KEY (account, day, operation));
"""

# Lists of ids come as JSON arrays, so that every statement is constant.
_KNOWN_METRICS = """
SELECT value FROM json_each(?) WHERE EXISTS (
    SELECT 1 FROM series WHERE publication = ? AND metric_id = value)
"""
_KNOWN_PATHS = """
SELECT value FROM json_each(?) WHERE EXISTS (
    SELECT 1 FROM series WHERE publication = ? AND path = value)
"""
# The plus prevents the order from choosing the index by position, which would scan the
# whole publication.
_MATCHING = """
SELECT id, CASE :version WHEN 'original' THEN populated
    ELSE coalesce(populated_latest, populated) END
FROM series
WHERE publication = :publication
    AND metric_id IN (SELECT value FROM json_each(:metrics))
    AND path IN (SELECT value FROM json_each(:paths))
    AND (:groups IS NULL
        OR reporting_group_id IN (SELECT value FROM json_each(:groups)))
ORDER BY +position
"""
_ENCODED = """
SELECT series, head, CASE :version WHEN 'original' THEN original
    ELSE coalesce(latest, original) END
FROM encoded
WHERE series IN (SELECT value FROM json_each(:series))
"""

T = TypeVar("T")
# The sizes of what is cached for further pages: series that match, and bytes of cells.
_MAX_MATCHES = 100_000
_MAX_BYTES = 16_000_000


@frozen
class Current:
    """The current publication of an entity, without its series. head: the open JSON of
    spec 2.2.
    """

    number: int
    entity_id: str
    dataset_id: str
    digest: bytes
    head: bytes
    periods: tuple[Period, ...]
    scope_groups: tuple[dict[str, Any], ...]
    groups: dict[str, dict[str, Any]]


@define
class _Replaced:
    """The head of the publication before the current one, and how many answers have
    named it since.
    """

    head: bytes
    answers: int = 0


@frozen
class Match:
    """A series that a query matches.

    Bit i of `valued_periods` is set if it has a value in period i.
    """

    series: int
    valued_periods: int


@frozen
class Selection:
    """What a publication has of a query: its metrics and paths, and the series that
    match, in order.
    """

    metrics: frozenset[str]
    paths: frozenset[str]
    matches: tuple[Match, ...]


@frozen(slots=False)
class Stored:
    """The pieces of a query series: its head, and its cells in one value version, as in
    EncodedSeries.
    """

    head: bytes
    cells: bytes

    @cached_property
    def entries(self) -> list[bytes]:
        """The cell of each period of the publication, and at the end, at place -1, one
        without a value.
        """
        # One object for all that are null: most cells are.
        return [
            NULL if cell == NULL else cell
            for cell in [*self.cells.split(BETWEEN), NULL]
        ]


class _Bounded(Generic[T]):
    """Values by publication and key, the least recently used dropped first."""

    def __init__(self, bound: int, size: Callable[[T], int]) -> None:
        self._bound, self._size = bound, size
        self._total = 0
        self._values: OrderedDict[tuple[int, Any], T] = OrderedDict()

    def get(self, number: int, key: Any) -> T | None:
        if (value := self._values.get((number, key))) is not None:
            self._values.move_to_end((number, key))
        return value

    def put(self, number: int, key: Any, value: T) -> None:
        self._values[number, key] = value
        self._total += self._size(value)
        while self._total > self._bound:
            self._total -= self._size(self._values.popitem(last=False)[1])

    def drop(self, number: int | None = None) -> None:
        """Drop the cached pieces of a publication, or everything."""
        for key in list(self._values):
            if number in (None, key[0]):
                self._total -= self._size(self._values.pop(key))


class Store:
    """The publications, tokens, accounts and counts in a SQLite file, or in ":memory:".
    Close it.
    """

    def __init__(self, name: str | Path = ":memory:") -> None:
        # Threads may share the sandbox (the pytest fixture's do); it lets in one at a
        # time. The loop waits too when another program holds the file, so not for
        # long.
        self._db = sqlite3.connect(
            name, timeout=0.1, isolation_level=None, check_same_thread=False
        )
        try:
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            tables = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[
                0
            ]
            if tables and version != _VERSION:
                raise SandboxError(
                    f"the store {str(name)!r} is of another version, or of something "
                    "else: name a new file"
                )
            self._db.executescript(_SCHEMA)
            rows = self._db.execute(
                "SELECT * FROM publication ORDER BY number"
            ).fetchall()
            self._current = {row[1]: _make_current(row) for row in rows}
            self._replaced: dict[str, _Replaced] = {}
            # What pages are made of, so that the next page of a series need not be read
            # and split.
            self._selections = _Bounded[Selection](
                _MAX_MATCHES, lambda selection: 1 + len(selection.matches)
            )
            self._series = _Bounded[Stored](
                _MAX_BYTES, lambda pieces: len(pieces.head) + len(pieces.cells)
            )
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Keep everything that is done inside, or nothing; one inside another is part
        of it.
        """
        if self._db.in_transaction:
            yield
            return
        previous = dict(self._current), dict(self._replaced)
        self._db.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            self._forget()  # the numbers of what was rolled back are used again
            self._current, self._replaced = previous
            raise
        self._db.execute("COMMIT")

    # publications

    def publish(self, publication: Publication) -> None:
        """Make a publication the current one, in one transaction; the same one again
        changes nothing.
        """
        previous = self._current.get(publication.entity_id)
        if (
            previous is not None
            and previous.dataset_id.lower() == publication.dataset_id.lower()
        ):
            if previous.digest == publication.digest:
                return
            raise SandboxError(
                f"dataset_id {previous.dataset_id} of {previous.entity_id} already "
                "identifies other content:"
                " give it a new dataset_id"
            )
        with self.transaction():
            if previous is not None:
                # Only the current publication is stored: the service has no other one
                # (spec 9 rule 2).
                number = (previous.number,)
                self._forget(previous.number)
                self._db.execute(
                    "DELETE FROM encoded WHERE series IN (SELECT id FROM series WHERE "
                    "publication = ?)",
                    number,
                )
                self._db.execute("DELETE FROM series WHERE publication = ?", number)
                self._db.execute("DELETE FROM publication WHERE number = ?", number)
            current = self._insert(publication)
        if previous is not None:
            # After the transaction, as is the next line: memory must not know what the
            # file has taken back.
            self._replaced[previous.entity_id] = _Replaced(previous.head)
        self._current.pop(publication.entity_id, None)  # the last published is the last
        self._current[publication.entity_id] = current

    def _insert(self, publication: Publication) -> Current:
        groups = []
        for group in publication.groups:
            fields = dict(group)
            del fields["series"]
            groups.append(fields)
        row = self._db.execute(
            "INSERT INTO publication (entity_id, dataset_id, digest, head, periods, "
            "scope_groups, groups)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING *",
            (
                publication.entity_id,
                publication.dataset_id,
                publication.digest,
                write_head(publication),
                json.dumps(publication.periods),
                json.dumps(publication.scope_groups),
                json.dumps(groups),
            ),
        ).fetchone()
        for position, series in enumerate(encode_series(publication)):
            names = series.metric_id, series.path, series.reporting_group_id
            cursor = self._db.execute(
                "INSERT INTO series (publication, position, metric_id, path, "
                "reporting_group_id, populated,"
                " populated_latest) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (row[0], position, *names, series.valued_periods, series.valued_latest),
            )
            self._db.execute(
                "INSERT INTO encoded VALUES (?, ?, ?, ?, ?)",
                (
                    cursor.lastrowid,
                    series.catalogue,
                    series.head,
                    series.original,
                    series.latest,
                ),
            )
        return _make_current(row)

    def entities(self) -> tuple[str, ...]:
        """Return the entities with a publication, in the order of their publishing."""
        return tuple(self._current)

    def current(self, entity_id: str) -> Current | None:
        """Return the current publication, or None."""
        return self._current.get(entity_id)

    def name(self, entity_id: str) -> str:
        """Return the name of an entity, as its current publication has it."""
        return str(json.loads(self._current[entity_id].head + b"}")["name"])

    def read_metadata_head(self, entity_id: str, lag: int) -> bytes:
        """Return the head of the next answer with the metadata: at first, `lag` times,
        the old one.
        """
        earlier = self._replaced.get(entity_id)
        if earlier is None or earlier.answers >= lag:
            return self._current[entity_id].head
        earlier.answers += 1
        return earlier.head

    # series

    def size(self, number: int) -> int:
        """Return how many series the publication has."""
        row = self._db.execute(
            "SELECT count(*) FROM series WHERE publication = ?", (number,)
        ).fetchone()
        return int(row[0])

    def read_catalogue(
        self, number: int, offset: int, limit: int
    ) -> list[tuple[str, bytes]]:
        """Return pairs of reporting_group_id and catalogue series in JSON, in catalogue
        order.
        """
        return self._db.execute(
            "SELECT s.reporting_group_id, e.catalogue FROM series s JOIN encoded e ON "
            "e.series = s.id"
            " WHERE s.publication = ? AND s.position >= ? ORDER BY s.position LIMIT ?",
            (number, offset, limit),
        ).fetchall()

    def selection(
        self,
        number: int,
        metric_ids: Sequence[str],
        paths: Sequence[str],
        groups: Sequence[str] | None,
        value_version: str,
    ) -> Selection:
        """Select the publication's series of these metrics, paths and groups, or of all
        groups.
        """
        group_ids = None if groups is None else tuple(groups)
        key = tuple(metric_ids), tuple(paths), group_ids, value_version
        if (value := self._selections.get(number, key)) is not None:
            return value
        metrics, path_texts = json.dumps(metric_ids), json.dumps(paths)
        rows = self._db.execute(
            _MATCHING,
            {
                "publication": number,
                "metrics": metrics,
                "paths": path_texts,
                "groups": groups if groups is None else json.dumps(groups),
                "version": value_version,
            },
        )
        matches = []
        for series, mask in rows:
            matches.append(Match(series, int.from_bytes(mask, "little")))
        metric_rows = self._db.execute(_KNOWN_METRICS, (metrics, number))
        path_rows = self._db.execute(_KNOWN_PATHS, (path_texts, number))
        value = Selection(
            metrics=frozenset(map(itemgetter(0), metric_rows)),
            paths=frozenset(map(itemgetter(0), path_rows)),
            matches=tuple(matches),
        )
        self._selections.put(number, key, value)
        return value

    def series(
        self, number: int, series: Sequence[int], value_version: str
    ) -> list[Stored]:
        """Return the pieces of these series of the publication, in this order."""
        entries: dict[int, Stored | None] = {}
        missing_ids = []
        for series_id in series:
            entry = self._series.get(number, (series_id, value_version))
            entries[series_id] = entry
            if entry is None:
                missing_ids.append(series_id)
        if missing_ids:
            parameters = {"series": json.dumps(missing_ids), "version": value_version}
            for series_id, *pieces in self._db.execute(_ENCODED, parameters):
                entries[series_id] = entry = Stored(*pieces)
                self._series.put(number, (series_id, value_version), entry)
        return [entry for entry in entries.values() if entry is not None]

    def _forget(self, number: int | None = None) -> None:
        self._selections.drop(number)
        self._series.drop(number)

    # accounts, tokens and counts

    def put_account(self, account: Account) -> None:
        """Add an account, or change the one of this name."""
        self._db.execute(
            "INSERT OR REPLACE INTO account VALUES (?, ?)",
            (account.name, json.dumps(asdict(account))),
        )

    def account(self, name: str) -> Account | None:
        """Return the account of this name, or None."""
        row = self._db.execute(
            "SELECT settings FROM account WHERE name = ?", (name,)
        ).fetchone()
        if row is None:
            return None
        return Account(**json.loads(row[0]))

    def put_token(self, text: str, token: Token) -> None:
        """Store what a token grants; of the token itself only the hash."""
        self._db.execute(
            "INSERT OR REPLACE INTO token VALUES (?, ?, ?, ?)",
            (
                _hash_token(text),
                token.account,
                json.dumps(token.permissions),
                token.audience,
            ),
        )

    def token(self, text: str) -> Token | None:
        """The grants of a token, or None if it was never issued."""
        row = self._db.execute(
            "SELECT account, permissions, audience FROM token WHERE digest = ?",
            (_hash_token(text),),
        ).fetchone()
        return row and Token(row[0], tuple(json.loads(row[1])), row[2])

    def count(self, account: str, day: date, operation: str) -> None:
        """Count a data request of the account on that day."""
        self._db.execute(
            "INSERT INTO request_count VALUES (?, ?, ?, 1)"
            " ON CONFLICT (account, day, operation) DO UPDATE SET requests = requests "
            "+ 1",
            (account, day.isoformat(), operation),
        )

    def list_counts(
        self, account: str, start: date, end: date
    ) -> list[tuple[str, str, int]]:
        """Return (day, operation, data requests) from start to end, both included,
        without idle days.
        """
        return self._db.execute(
            "SELECT day, operation, requests FROM request_count WHERE account = ? AND "
            "day BETWEEN ? AND ?",
            (account, start.isoformat(), end.isoformat()),
        ).fetchall()


def _hash_token(token: str) -> bytes:
    # A store in a file outlives the sandbox, so it contains no token.
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _make_current(row: tuple[Any, ...]) -> Current:
    number, entity_id, dataset_id, digest, head, periods, scope_groups, groups = row
    return Current(
        number,
        entity_id,
        dataset_id,
        digest,
        head,
        tuple(tuple(period) for period in json.loads(periods)),
        tuple(json.loads(scope_groups)),
        {group["reporting_group_id"]: group for group in json.loads(groups)},
    )
