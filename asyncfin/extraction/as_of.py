"""Reads the change feed of an extraction: the changes themselves, and the state that
they lead to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin import Period, checks, concat
from asyncfin.analysis.cells import SERIES, TRIPLE, decode_plain, number_rows
from asyncfin.analysis.changes import CHANGE, KNOWN_FROM
from asyncfin.clock import utc_text
from asyncfin.errors import ArgumentError, ManifestMismatchError
from asyncfin.extraction.feed import (
    Feed,
    RunFooter,
    empty_rows,
    is_run,
    run_time,
)
from asyncfin.extraction.places import check_exists, place_of
from asyncfin.extraction.record import METADATA
from asyncfin.optional import compute, library, pa

if TYPE_CHECKING:
    import pyarrow

Moment: TypeAlias = str | date | datetime
_PERIOD = Period.__struct_fields__
# A cell of the state: where a metric, group and path are unique, the id does not belong
# to it.
_CELL = ("entity_id", "asked_version", *TRIPLE, *_PERIOD)
_NEEDED = (*SERIES, *_PERIOD, CHANGE, KNOWN_FROM)
_ORDER = ("entity_id", "asked_version", *TRIPLE, "series_id", *_PERIOD)
# Rows that are gathered before they are merged into a smaller state.
_AT_ONCE = 20_000


def read_changes(
    to: str | os.PathLike[str], *, since: Moment | None = None, last: bool = False
) -> pyarrow.Table:
    """Return the change feed that `extract` with ``history=True`` writes (extra
    ``arrow``).

    Only whole runs are read: the changes of a run that has not finished follow once it,
    or the next one, has. Sends no request to the service. The call blocks; in a
    coroutine, await it with `asyncio.to_thread`.

    Args:
        to: the folder or URL of the extraction, as for `extract`.
        since: a run, as in the column `run`: only later runs; or a date or datetime:
            only runs that began then or later. As text too:
            ``"20250131T060000.000000Z"``, ``"2025-01-31"``, ``"2025-01-31T06:00:00Z"``.
            Times are UTC, and a date is its first moment. None: all runs.
        last: only the newest run of the feed; not with `since`.

    Returns:
        The long table (docs/schema.md), with one row for each change, oldest runs
        first, and the columns

        - `change`, `before`, `before_text`, `before_dataset_id`: as for `changes`.
        - `known_from`: when the publication became known, aware UTC: when it was
          created, or when the run began that read it, if that is earlier, or if it was
          created before what was known already. It increases with each publication of
          an entity.
        - `run`: the run that found the change.

    Raises:
        ArgumentError: an argument is not as described, or the feed has no run `since`.
        ManifestMismatchError: the feed, or a file of it, is missing or damaged; the
            message names it.
        OSError: it can't be read.
        ImportError: pyarrow, or obstore for a URL, is not installed.
    """
    if checks.flag("last", last) and since is not None:
        raise ArgumentError(
            "last=True is the newest run alone: leave out since, or last"
        )
    feed = open_feed(to)
    run, moment = _check_since(feed, since)
    footers = feed.chain(run)
    if last:
        footers = footers[-1:]
    runs = []
    tables = [empty_rows()]
    for footer in footers:
        if moment is None or run_time(footer.run) >= moment:
            runs.append(footer.run)
            tables += feed.tables(footer)
    return _join(tables, {"runs": runs})


def as_of(
    to: str | os.PathLike[str], when: Moment, *, columns: Iterable[str] | None = None
) -> pyarrow.Table:
    """Return all rows of an extraction as they were known at a time, from its change
    feed (extra ``arrow``).

    For each entity it is the state after its last publication with ``known_from <=
    when``. It equals the files of that night in series, periods, numbers, texts, fill
    types, report periods and formats; sources, ids, labels and descriptions are those
    of the row's last change. Memory is bounded by the result. Sends no request to the
    service. The call blocks; in a coroutine, await it with `asyncio.to_thread`.

    Args:
        to: the folder or URL of the extraction, as for `extract`.
        when: a date or datetime, or its ISO text. Times are UTC, and a date is its
            first moment.
        columns: the names of the wanted columns of the long table, in the wanted order.
            None: all.

    Returns:
        The long table (docs/schema.md), ordered by entity, requested version, metric,
        reporting group, scope path, series id and period. The entry `not_kept` of its
        metadata (the JSON under ``asyncfin``) lists the entities that the feed has only
        from a later time on, of which nothing earlier is known: `entity_id` and
        `kept_from` of each.

    Raises:
        ArgumentError: an argument is not as described.
        SelectionError: a column is unknown.
        ManifestMismatchError, OSError, ImportError: as for `read_changes`.
    """
    moment = _check_moment("when", when)
    names = concat([], columns=columns).column_names
    feed = open_feed(to)
    footers = feed.chain()
    columns_read = tuple(dict.fromkeys([*names, *_NEEDED]))
    until = pa.scalar(moment)
    early = []
    for footer in footers:
        if any(entry.known_from <= moment for entry in footer.changes):
            early.append(footer)

    def select(table: Any) -> Any:
        return compute.less_equal(table.column(KNOWN_FROM), until)

    rows = fold_changes(feed, early, columns_read, select)
    columns_of_order = list(map(decode_plain, rows.select(_ORDER)))
    keys = pa.table(columns_of_order, _ORDER)
    sort_keys = [(name, "ascending") for name in _ORDER]
    order = compute.sort_indices(keys, sort_keys)
    rows = rows.take(order).select(names)
    facts = {
        "as_of": utc_text(moment),
        "not_kept": _find_later(footers, moment),
    }
    return _join([rows], facts)


def _find_later(footers: Iterable[RunFooter], moment: datetime) -> list[dict[str, str]]:
    """Return the entities that became known only after a time, with that time."""
    moments: dict[str, datetime] = {}
    for footer in footers:
        for entry in footer.changes:
            moments.setdefault(entry.entity_id, entry.known_from)
    later = []
    for entity_id, known_from in moments.items():
        if known_from > moment:
            later.append({"entity_id": entity_id, "kept_from": utc_text(known_from)})
    return later


def fold_changes(
    feed: Feed,
    footers: Iterable[RunFooter],
    columns: Sequence[str],
    select: Callable[[Any], Any],
    entity_ids: Iterable[str] | None = None,
) -> Any:
    """Return the state after the changes of runs: of each cell the last row, unless it
    vanished.

    Args:
        footers: the runs, oldest first.
        columns: what is read, with those of cells.
        select: returns which rows of a table count.
        entity_ids: the entities, if not all.
    """
    footers = list(footers)
    # Cells of entities with several series of one metric, reporting group and scope
    # path are distinguished by their series' ids.
    ambiguous = set()
    for footer in footers:
        for entry in footer.changes:
            if entry.ambiguous:
                ambiguous.add(entry.entity_id)
    id_set = pa.array(sorted(ambiguous), pa.string())
    waiting = []
    slow = []
    count = 0
    for footer in footers:
        for table in feed.tables(footer, columns, entity_ids):
            piece = table.filter(select(table))
            if ambiguous:
                is_slow = compute.is_in(
                    decode_plain(piece.column("entity_id")), value_set=id_set
                )
                slow.append(piece.filter(is_slow))
                piece = piece.filter(compute.invert(is_slow))
            waiting.append(piece)
            total = sum(map(len, waiting))
            if total - count >= max(_AT_ONCE, count):
                waiting = [_latest(pa.concat_tables(waiting).unify_dictionaries())]
                count = len(waiting[0])
    tables = [empty_rows().select(list(columns))]
    for latest, rows in ((_latest, waiting), (_latest_by_id, slow)):
        if any(map(len, rows)):
            tables.append(latest(pa.concat_tables(rows).unify_dictionaries()))
    return pa.concat_tables(tables).unify_dictionaries()


def _latest(rows: Any) -> Any:
    """Return the last row of each cell, unless it vanished."""
    columns = {
        "cell": number_rows(rows, _CELL),
        "row": pa.array(range(len(rows)), pa.int64()),
    }
    cells = pa.table(columns)
    groups = cells.group_by("cell", use_threads=False)
    last = groups.aggregate([("row", "max")])
    rows = rows.take(last.column("row_max"))
    words = decode_plain(rows.column(CHANGE))
    return rows.filter(compute.not_equal(words, "vanished"))


def _latest_by_id(rows: Any) -> Any:
    """Return the same where multiple series share metric, reporting group and scope
    path.
    """
    cells: dict[int, dict[str, int]] = {}
    entries = zip(
        number_rows(rows, _CELL).to_pylist(),
        rows.column("series_id").to_pylist(),
        rows.column(CHANGE).to_pylist(),
        strict=True,
    )
    for row, (cell, series_id, change) in enumerate(entries):
        latest = cells.setdefault(cell, {})
        # The only row of a cell has the id that its series had when it was written.
        if change != "appeared" and series_id not in latest and len(latest) == 1:
            latest.clear()
        if change == "vanished":
            latest.pop(series_id, None)
        else:
            latest[series_id] = row
    last: list[int] = []
    for latest in cells.values():
        last += latest.values()
    return rows.take(pa.array(last, pa.int64()))


def _join(tables: list[Any], facts: dict[str, Any]) -> Any:
    bare_tables = [table.replace_schema_metadata(None) for table in tables]
    table = pa.concat_tables(bare_tables)
    table = table.unify_dictionaries().combine_chunks()
    description = {"panels": []} | facts
    return table.replace_schema_metadata({METADATA: json.dumps(description)})


def open_feed(address: str | os.PathLike[str]) -> Feed:
    """Return the feed of an extraction.

    Raises:
        ArgumentError: `address` is not the place of an extraction, or does not exist.
        ManifestMismatchError: it has no feed.
    """
    library("pyarrow.parquet", "arrow")
    feed = Feed(place_of(address))
    if not feed.runs():
        check_exists(feed.place)
        raise ManifestMismatchError(
            f"{feed.place} has no change feed: the option `history` of an extraction "
            "begins one"
        )
    return feed


def _check_since(
    feed: Feed, since: Moment | None
) -> tuple[str | None, datetime | None]:
    """Return the run, or the time, from which on changes are read."""
    if since is None:
        return None, None
    if not isinstance(since, str) or not is_run(since):
        return None, _check_moment("since", since)
    if since not in feed.runs():
        feed.chain()  # names it if its file is missing
        raise ArgumentError(
            f"since: {feed} has no run {since}: it was begun again, or this run is of "
            "another feed; read all of it (since=None), and replace what was read "
            "before"
        )
    return since, None


def _check_moment(name: str, value: Moment) -> datetime:
    """Return a date or datetime, or its text, as an aware datetime in UTC."""
    if isinstance(value, str):
        if is_run(value):
            return run_time(value)
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
            value = value.replace(tzinfo=value.tzinfo or UTC)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    raise ArgumentError(
        f"{name} must be a date, or a time with its zone, such as 2025-01-31 or "
        f"2025-01-31T06:00:00Z, not {checks.short_repr(value)}"
    )
