"""The change feed of an extraction: one immutable Parquet file for each run that
changed something.

    _night.changes/<run>.parquet    the changes of a run; <run> is UTC time, sortable
    _night.changes/head             the name of the last run

Each run's footer names the run before it, and `head` the last one, so that a missing
file is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import IO, Any

import msgspec
from attrs import frozen

from asyncfin import concat
from asyncfin.analysis.changes import (
    BEFORE,
    BEFORE_DATASET,
    BEFORE_TEXT,
    CHANGE,
    KNOWN_FROM,
    RUN,
    SeriesKey,
)
from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.place import Place, Timestamp
from asyncfin.extraction.record import METADATA, Record, open_parquet
from asyncfin.optional import pa, parquet

FORMAT = 1
# Fewer than in an entity's file: a run holds so many at once, and a search for an
# entity reads as many.
_ROWS_A_GROUP = 32_768
_RUN_FORMAT = "%Y%m%dT%H%M%S.%fZ"


@frozen
class Recorded:
    """A publication of an entity in the feed; a pruned entity has the publication that
    it had.

    Attributes:
        known_from: when it became known.
        rows: the rows of its changes.
        created: when it was published.
        ambiguous: its series that share metric, reporting group and scope path with
            another one: their ids, and these three.
        pruned: whether the entity has left the extraction, so that all of its rows
            vanished.
    """

    entity_id: str
    dataset_id: str
    known_from: Timestamp
    rows: int
    created: Timestamp
    ambiguous: Sequence[SeriesKey] = ()
    pruned: bool = False

    def is_of(self, record: Record) -> bool:
        """Return whether an entity's file has this publication."""
        publication = (record.dataset_id, record.created_timestamp, False)
        return (self.dataset_id, self.created, self.pruned) == publication


@frozen
class RunFooter:
    """The footer of a run's file.

    Attributes:
        previous: the run before it in the feed, or None for the first one.
        question: the question of the extraction.
        publications: those that this run has read, in the order of the rows.
    """

    run: str
    previous: str | None
    question: dict[str, Any]
    publications: list[Recorded]

    @property
    def changes(self) -> list[Recorded]:
        """The publications that changed something."""
        return [entry for entry in self.publications if entry.rows]


def run_name(moment: datetime, last: str | None) -> str:
    """Return the name of a run that begins now: later than the last one, even
    if the clock was set back.
    """
    if last is not None:
        moment = max(moment, run_time(last) + timedelta(microseconds=1))
    return moment.astimezone(UTC).strftime(_RUN_FORMAT)


def run_time(run: str) -> datetime:
    """Return when a run began, aware UTC; ValueError: it is not the name of a run."""
    return datetime.strptime(run, _RUN_FORMAT).replace(tzinfo=UTC)


def is_run(text: str) -> bool:
    """Return whether a text is the name of a run."""
    try:
        run_time(text)
    except ValueError:
        return False
    return True


@frozen
class Feed:
    """The feed of an extraction, as it is read and written. All calls block.

    A file that is missing, damaged or foreign is a ManifestMismatchError that names it.
    """

    place: Place

    def __str__(self) -> str:
        return self.place.url(self._folder)

    @property
    def _folder(self) -> str:
        return self.place.beside("changes")

    def path(self, run: str) -> str:
        """Return the path of a run's file."""
        return f"{self._folder}/{run}.parquet"

    def runs(self) -> list[str]:
        """Return the names of the runs, oldest first; the last run's file is there."""
        # Before the runs are listed: a run that finishes in between is not missing.
        head = self.place.read_bytes(f"{self._folder}/head")
        runs = []
        for path in self.place.parquet_paths(self._folder):
            name = path.removeprefix(f"{self._folder}/")
            run = name.removesuffix(".parquet")
            runs.append(run)
            if not is_run(run):
                raise ManifestMismatchError(
                    f"{self} contains {run}.parquet, which is not a run's file: remove "
                    "it"
                )
        if head is None:
            return runs
        last = head.decode(errors="replace").partition("\n")[0]
        if not is_run(last):
            raise ManifestMismatchError(
                f"{self}: head is damaged: restore it, or delete it if no run's file "
                "is missing"
            )
        if last not in runs:
            raise self._describe_break(last, "head names it")
        return runs

    def footer(self, run: str) -> RunFooter:
        """Return the footer of a run's file."""
        with self._open(run) as file:
            footer = msgspec.convert(_read_description(file), RunFooter)
        if footer.run != run:
            raise ManifestMismatchError(
                f"{self}: {run}.parquet is not the file of that run"
            )
        return footer

    def chain(self, since: str | None = None) -> list[RunFooter]:
        """Return the footers of all runs, or of those after `since`, oldest first."""
        runs = self.runs()
        previous = since
        footers = []
        if since is not None:
            runs = runs[runs.index(since) + 1 :]
        for run in runs:
            footer = self.footer(run)
            if footer.previous != previous:
                raise self._describe_break(
                    footer.previous or run, f"{run}.parquet comes after it"
                )
            footers.append(footer)
            previous = run
        return footers

    def write_head(self, run: str) -> None:
        """Note the last run, whose file is durable."""
        self.place.write_bytes(f"{self._folder}/head", run.encode())

    def _describe_break(self, run: str, why: str) -> ManifestMismatchError:
        return ManifestMismatchError(
            f"{self}: {run}.parquet is missing or was replaced ({why}): restore it, or "
            f"move {self} and {self.place} away and begin again"
        )

    def tables(
        self,
        footer: RunFooter,
        columns: Sequence[str] | None = None,
        entity_ids: Iterable[str] | None = None,
    ) -> Iterator[Any]:
        """Yield the rows of a run's file, in pieces; with `entity_ids` only those
        pieces that may have one of them.
        """
        ids = entity_ids and list(entity_ids)
        with self._open(footer.run) as file:
            rows = file.metadata.num_rows
            if rows != sum(publication.rows for publication in footer.publications):
                raise ValueError(f"it has {rows} rows")
            check_columns(file.schema_arrow, empty_rows().schema)
            for group in range(file.num_row_groups):
                description = file.metadata.row_group(group)
                if ids is None or _may_have(description, ids):
                    yield read_groups(
                        file, [group], columns or empty_rows().column_names
                    )

    @contextmanager
    def _open(self, run: str) -> Iterator[Any]:
        try:
            with open_parquet(self.place, self.path(run)) as stream:
                yield parquet_file(stream)
        except FileNotFoundError:
            raise ManifestMismatchError(f"{self}: {run}.parquet is missing") from None
        except ValueError as error:
            raise ManifestMismatchError(
                f"{self}: {run}.parquet is damaged ({error}): restore it"
            ) from None


def parquet_file(stream: IO[bytes]) -> Any:
    """Return a Parquet file whose pages are verified, for `read_groups`."""
    return parquet.ParquetFile(
        stream, page_checksum_verification=True, pre_buffer=False
    )


def read_groups(file: Any, groups: Iterable[int], columns: Iterable[str]) -> Any:
    """Return the rows of row groups, read without threads, which save no time here.

    A thread of pyarrow can release the stream's bytes while the interpreter ends, which
    aborts the process.
    """
    return file.read_row_groups(list(groups), columns=list(columns), use_threads=False)


def check_columns(schema: Any, columns: Any) -> None:
    """Raise ValueError unless a file has all columns, of the right types.

    Only pages have checksums, so a damaged schema has columns of other names or
    types.
    """
    for column in columns:
        index = schema.get_field_index(column.name)
        if index < 0 or schema.field(index).type != column.type:
            raise ValueError(
                f"it does not have the column {column.name} of {column.type}"
            )


def _read_description(file: Any) -> dict[str, Any]:
    """Return the feed's entry of the metadata of a file."""
    metadata = file.metadata.metadata or {}
    entry = json.loads(metadata[METADATA])
    if entry["format"] > FORMAT:
        raise ValueError(
            f"format {entry['format']}: a later version of asyncfin wrote it"
        )
    feed: dict[str, Any] = entry["feed"]
    return feed


def write_rows(stream: IO[bytes], footer: RunFooter, tables: Iterable[Any]) -> None:
    """Write rows, and at the end the footer; row groups are filled across tables."""
    schema = empty_rows().schema
    with parquet.ParquetWriter(
        stream, schema, compression="zstd", write_page_checksum=True
    ) as writer:

        def flush(tables: list[Any]) -> None:
            table = pa.concat_tables(tables).unify_dictionaries()
            writer.write_table(table, row_group_size=_ROWS_A_GROUP)
            # Small tables are small blocks, which the pool would keep between larger
            # ones.
            pa.default_memory_pool().release_unused()

        waiting: list[Any] = []
        for table in tables:
            waiting.append(table.replace_schema_metadata(None))
            if sum(map(len, waiting)) >= _ROWS_A_GROUP:
                flush(waiting)
                waiting = []
        if waiting:
            flush(waiting)
        entry = {"format": FORMAT, "feed": footer}
        writer.add_key_value_metadata({METADATA: msgspec.json.encode(entry)})


@cache
def empty_rows() -> Any:
    """Return the table of a feed without changes."""
    word = pa.dictionary(pa.int32(), pa.string())
    columns = {
        CHANGE: word,
        BEFORE: pa.float64(),
        BEFORE_TEXT: pa.string(),
        BEFORE_DATASET: word,
        KNOWN_FROM: pa.timestamp("us", "UTC"),
        RUN: word,
    }
    long = concat([]).schema
    return pa.schema([*long, *pa.schema(columns)]).empty_table()


def _may_have(group: Any, entity_ids: Iterable[str]) -> bool:
    """Return whether a row group may have rows of an entity, by its statistics."""
    for column in map(group.column, range(group.num_columns)):
        statistics = column.statistics
        if column.path_in_schema == "entity_id" and statistics is not None:
            low = statistics.min
            high = statistics.max
            return low is None or any(low <= name <= high for name in entity_ids)
    return True
