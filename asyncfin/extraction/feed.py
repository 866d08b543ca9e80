"""The change feed of an extraction: one immutable Parquet file for each run that
changed something.

    _night.changes/<run>.parquet    the changes of a run; <run> is UTC time, sortable
    _night.changes/head             the name of the last run
    _night.changes/pending/         parts of a run that has not finished, one for each entity that it changed

Each run's footer names the run before it, and `head` the last one, so that a missing
file is noticed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import IO, Any, Literal, TypeVar

from attrs import asdict, define, evolve, field, frozen

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
from asyncfin.extraction.place import (
    Place,
    beside,
    entity_path,
    file_name,
    read_bytes,
    structure,
    url,
)
from asyncfin.extraction.question import canonical
from asyncfin.optional import pa, parquet

FORMAT = 1
T = TypeVar("T")
# Tables of a few rows that are gathered before they become one: whatever their rows,
# each takes 60 kB.
_AT_ONCE = 64
# Fewer than in an entity's file: a run holds so many at once, and a search for an
# entity reads as many.
_ROWS_A_GROUP = 32_768
_RUN_FORMAT = "%Y%m%dT%H%M%S.%fZ"


@frozen
class Recorded:
    """A publication of an entity in the feed; a pruned entity has the publication that
    it had.

    Attributes:
        known_from: when it became known, as ISO text in UTC.
        rows: the rows of its changes.
        ambiguous: its series that share metric, reporting group and scope path with
            another one: their ids, and these three.
        pruned: whether the entity has left the extraction, so that all of its rows
            vanished.
    """

    entity_id: str
    dataset_id: str
    known_from: str
    rows: int
    ambiguous: tuple[SeriesKey, ...] = ()
    pruned: bool = False

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.known_from)


@frozen
class RunFooter:
    """The footer of a run's file, or of a part of one.

    Attributes:
        previous: the run before it in the feed; None: it is the first one.
        question: the question of the extraction.
        publications: those that changed something, in the order of the rows.
        parts: the names of the pending parts that became this file.
        expects: of a part: whether the entity's file has been ``"replaced"`` or
            ``"pruned"`` if the run got that far. None: the footer of a run's file.
        file_run: of a part: the run that the replaced file names.
    """

    run: str
    previous: str | None
    question: dict[str, Any]
    publications: tuple[Recorded, ...]
    parts: tuple[str, ...] = ()
    expects: str | None = None
    file_run: str | None = None


Expects = Literal["replaced", "pruned"]


def run_name(moment: datetime, last: str | None) -> str:
    """Return the name of a run that begins now: later than the last one, whatever the
    clock says.
    """
    if last is not None:
        moment = max(moment, run_time(last) + timedelta(microseconds=1))
    return (
        moment.astimezone(UTC)
        .strftime(_RUN_FORMAT)
        .rjust(len("20250131T060000.000000Z"), "0")
    )


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


@define
class Feed:
    """The feed of an extraction, as it is read and written. All calls block.

    A file that is missing, damaged or foreign is a ManifestMismatchError that names it.
    """

    place: Place
    _footers: dict[str, RunFooter] = field(factory=dict)
    _questions: dict[str, dict[str, Any]] = field(factory=dict)  # by their texts

    def __str__(self) -> str:
        return url(self.place, self._folder)

    @property
    def _folder(self) -> str:
        return beside(self.place, "changes")

    @property
    def _head(self) -> str:
        return f"{self._folder}/head"

    @property
    def _pending(self) -> str:
        return f"{self._folder}/pending"

    def runs(self) -> list[str]:
        """Return the names of the runs, oldest first."""
        names = [name for name in self.place.names(self._folder) if "/" not in name]
        found = [name.removesuffix(".parquet") for name in names]
        for run in found:
            if not is_run(run):
                raise ManifestMismatchError(
                    f"{self} contains {run}.parquet, which is not a run's file: remove "
                    "it"
                )
        return found

    def footer(self, run: str) -> RunFooter:
        """Return the footer of a run's file."""
        if run not in self._footers:
            path = f"{self._folder}/{run}.parquet"
            footer = self._read_footer(path)
            if footer.run != run or footer.expects is not None:
                raise ManifestMismatchError(
                    f"{self}: {run}.parquet is not the file of that run"
                )
            self._footers[run] = footer
        return self._footers[run]

    def chain(self, since: str | None = None) -> list[RunFooter]:
        """Return the footers of all runs, or of those after `since`, oldest first."""
        runs = self.runs()
        before = since
        footers = []
        for run in runs[runs.index(since) + 1 :] if since is not None else runs:
            footer = self.footer(run)
            if footer.previous != before:
                raise self._broken(
                    footer.previous or run, f"{run}.parquet comes after it"
                )
            footers.append(footer)
            before = run
        return footers

    def publications(self) -> dict[str, list[tuple[RunFooter, Recorded]]]:
        """Return the publications of each entity in the feed, oldest first, with their
        runs.
        """
        found: dict[str, list[tuple[RunFooter, Recorded]]] = {}
        for footer in self.chain():
            for recorded in footer.publications:
                found.setdefault(recorded.entity_id, []).append((footer, recorded))
        return found

    def check_head(self) -> None:
        """Verify that the last run's file is there: if it only pruned, no other file
        names it.
        """
        # Before the runs are listed: a run that finishes in between is not missing.
        content = read_bytes(self.place, self._head)
        if content is None:
            return
        if not is_run(run := content.decode(errors="replace")):
            raise ManifestMismatchError(
                f"{self}: head is damaged: restore it, or delete it if no run's file "
                "is missing"
            )
        if run not in self.runs():
            raise self._broken(run, "head names it")

    def write_head(self, run: str) -> None:
        """Note the last run, whose file is durable."""
        self.place.write(self._head, lambda stream: stream.write(run.encode()))

    def _broken(self, run: str, why: str) -> ManifestMismatchError:
        return ManifestMismatchError(
            f"{self}: {run}.parquet is missing or was replaced ({why}): restore it, or "
            f"move {self} and"
            f" {self.place} away and begin again"
        )

    def tables(
        self,
        footer: RunFooter,
        columns: Sequence[str] | None = None,
        entity_id: str | None = None,
    ) -> Iterator[Any]:
        """Yield the rows of a run's file, in pieces; with `entity_id` only those pieces
        that may have it.
        """
        name = (
            f"pending/{footer.parts[0]}" if footer.expects else f"{footer.run}.parquet"
        )
        with self._opened(f"{self._folder}/{name}") as file:
            rows = file.metadata.num_rows
            if rows != sum(publication.rows for publication in footer.publications):
                raise ValueError(f"it has {rows} rows")
            _check_columns(file.schema_arrow, empty_rows().schema)
            for group in range(file.num_row_groups):
                if entity_id is None or _may_have(
                    file.metadata.row_group(group), entity_id
                ):
                    yield _read(file, [group], columns or empty_rows().column_names)

    @contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        name = path.removeprefix(f"{self._folder}/")
        try:
            with self.place.open(path) as stream:
                yield _parquet_file(stream)
        except FileNotFoundError:
            raise ManifestMismatchError(f"{self}: {name} is missing") from None
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            _raise_if_unreadable(error)
            raise ManifestMismatchError(
                f"{self}: {name} is damaged ({str(error).partition(chr(10))[0]}): "
                "restore it"
            ) from None

    def _read_footer(self, path: str) -> RunFooter:
        with self._opened(path) as file:
            footer = structure(_described(file), RunFooter)
        # One object for all of them: a run has a part for each entity, and all are of
        # one question.
        return evolve(
            footer,
            question=self._questions.setdefault(
                canonical(footer.question), footer.question
            ),
        )

    def pending_names(self) -> set[str]:
        """Return the names of the pending parts."""
        return set(self.place.names(self._pending))

    def part(self, name: str) -> RunFooter:
        """Return the footer of a pending part, with its name as the only one in
        `parts`.
        """
        return evolve(self._read_footer(f"{self._pending}/{name}"), parts=(name,))

    def parts(self) -> list[RunFooter]:
        """Return the footers of all pending parts, by name."""
        return [self.part(name) for name in sorted(self.pending_names())]

    def write_part(self, name: str, footer: RunFooter, rows: Any) -> None:
        """Write the changes of one entity, durable."""
        self.place.write(
            f"{self._pending}/{name}", lambda stream: write_rows(stream, footer, [rows])
        )

    def complete(
        self,
        run: str,
        parts: Sequence[RunFooter],
        previous: str | None,
        question: dict[str, Any],
    ) -> None:
        """Make one file of the parts of a run, which stay."""
        names = tuple(name for part in parts for name in part.parts)
        publications = tuple(each for part in parts for each in part.publications)
        footer = RunFooter(run, previous, question, publications, names)
        self.place.write(
            f"{self._folder}/{run}.parquet",
            lambda stream: write_rows(
                stream, footer, (rows for each in parts for rows in self.tables(each))
            ),
        )

    def discard(self, names: Iterable[str]) -> None:
        """Delete parts."""
        for name in names:
            self.place.remove(f"{self._pending}/{name}")

    def question(self) -> str | None:
        """Return the text of the feed's question; None without a feed."""
        runs = self.runs()
        names = [] if runs else sorted(self.pending_names())
        if not runs and not names:
            return None
        name = f"{runs[-1]}.parquet" if runs else f"pending/{names[0]}"
        with self._opened(f"{self._folder}/{name}") as file:
            # Not the whole footer, which names all entities of the run: unchanged
            # nights need no more.
            question: dict[str, Any] = _described(file)["question"]
            return canonical(question)

    def describe_file(self, path: str) -> dict[str, Any] | None:
        """Return the metadata of an entity's file; None if it does not exist or can't
        be read.
        """

        def described(stream: IO[bytes]) -> dict[str, Any]:
            metadata = parquet.read_metadata(stream).metadata or {}
            return dict(json.loads(metadata[b"asyncfin"])["panels"][0])

        return self._of_file(path, described)

    def describe_entity_file(self, entity_id: str) -> dict[str, Any] | None:
        """Return the metadata of the file of an entity, as `describe_file` does."""
        return self.describe_file(entity_path(self.place, entity_id))

    def entity_table(self, entity_id: str) -> Any:
        """Return the rows of an entity's file, or None if it can't be read."""

        def rows(stream: IO[bytes]) -> Any:
            file, long = _parquet_file(stream), concat([]).schema
            _check_columns(file.schema_arrow, long)
            return _read(
                file, range(file.num_row_groups), long.names
            ).replace_schema_metadata(None)

        return self._of_file(entity_path(self.place, entity_id), rows)

    def _of_file(self, path: str, read: Callable[[IO[bytes]], T]) -> T | None:
        try:
            with self.place.open(path) as stream:
                return read(stream)
        except FileNotFoundError:
            return None
        except (
            OSError,
            ValueError,
            LookupError,
            TypeError,
            pa.ArrowException,
        ) as error:
            _raise_if_unreadable(error)
            return None


def _parquet_file(stream: IO[bytes]) -> Any:
    """Return a Parquet file whose pages are verified, for `_read`."""
    return parquet.ParquetFile(
        stream, page_checksum_verification=True, pre_buffer=False
    )


def _read(
    file: Any, groups: Iterable[int], columns: Iterable[str] | None = None
) -> Any:
    """Return the rows of some row groups, read without threads, which save no time
    here.

    A thread of pyarrow can release the stream's bytes while the interpreter ends, which
    aborts the process.
    """
    wanted = None if columns is None else list(columns)
    return file.read_row_groups(list(groups), columns=wanted, use_threads=False)


def _check_columns(schema: Any, expected: Any) -> None:
    """Raise ValueError unless a file has all columns, of the right types.

    Only pages have checksums, so a damaged schema gives columns of other names or
    types.
    """
    for column in expected:
        if (
            column.name not in schema.names
            or schema.field(column.name).type != column.type
        ):
            raise ValueError(
                f"it does not have the column {column.name} of {column.type}"
            )


def _described(file: Any) -> dict[str, Any]:
    """Return the feed's entry of the metadata of a file."""
    described = json.loads((file.metadata.metadata or {})[b"asyncfin"])
    if described["format"] > FORMAT:
        raise ValueError(
            f"format {described['format']}: a later version of asyncfin wrote it"
        )
    feed: dict[str, Any] = described["feed"]
    return feed


def _raise_if_unreadable(error: Exception) -> None:
    """Raise the error of a disk or store, which says nothing of a file; pyarrow's
    errors have no number.
    """
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def write_rows(stream: IO[bytes], footer: RunFooter, tables: Iterable[Any]) -> None:
    """Write rows with the footer; row groups are filled across parts."""
    metadata = {b"asyncfin": json.dumps({"format": FORMAT, "feed": asdict(footer)})}
    schema = empty_rows().schema.with_metadata(metadata)
    # Tables of a few rows each, and such as were made of many of them.
    few: list[Any] = []
    many: list[Any] = []
    rows = 0
    with parquet.ParquetWriter(
        stream, schema, compression="zstd", write_page_checksum=True
    ) as writer:

        def flush() -> None:
            table = pa.concat_tables([*many, *few]).unify_dictionaries()
            writer.write_table(table, row_group_size=_ROWS_A_GROUP)
            # Tables of a few rows are small blocks, which the pool would keep between
            # larger ones.
            pa.default_memory_pool().release_unused()

        for table in tables:
            few.append(table.replace_schema_metadata(None))
            rows += len(table)
            if rows >= _ROWS_A_GROUP:
                flush()
                few, many, rows = [], [], 0
            elif len(few) >= _AT_ONCE:
                # Each has separate dictionaries, which take more memory than a few
                # rows.
                many.append(pa.concat_tables(few).unify_dictionaries().combine_chunks())
                few = []
        if rows:
            flush()


@cache
def empty_rows() -> Any:
    """Return the table of a feed without changes."""
    word = pa.dictionary(pa.int32(), pa.string())
    long = concat([]).schema
    added = [
        (CHANGE, word),
        (BEFORE, pa.float64()),
        (BEFORE_TEXT, pa.string()),
        (BEFORE_DATASET, word),
    ]
    added += [(KNOWN_FROM, pa.timestamp("us", "UTC")), (RUN, word)]
    return pa.schema([*long, *(pa.field(*each) for each in added)]).empty_table()


def part_name(entity_id: str, number: int) -> str:
    # File systems take 255 bytes; the name of an entity's file leaves room for this.
    name = file_name(entity_id)
    return f"{name[:240]}.{number}.parquet" if number else f"{name}.parquet"


def _may_have(group: Any, entity_id: str) -> bool:
    """Return whether a row group may have rows of an entity, by its statistics."""
    statistics = next(
        column.statistics
        for column in map(group.column, range(group.num_columns))
        if column.path_in_schema == "entity_id"
    )
    return (
        statistics is None
        or not statistics.has_min_max
        or statistics.min <= entity_id <= statistics.max
    )


def with_run(rows: Any, run: str) -> Any:
    """Return rows with the column `run`."""
    names = pa.DictionaryArray.from_arrays(
        pa.repeat(pa.scalar(0, pa.int32()), len(rows)), pa.array([run])
    )
    return rows.append_column(RUN, names)
