"""Reads the change feed of an extraction: the changes themselves, and the state that
they lead to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin import Period, checks, concat
from asyncfin.analysis.cells import SERIES, TRIPLE, example_rows, numbered, plain
from asyncfin.analysis.changes import CHANGE, KNOWN_FROM
from asyncfin.clock import utc_text
from asyncfin.errors import ArgumentError, ManifestMismatchError
from asyncfin.extraction.feed import (
    Feed,
    Recorded,
    RunFooter,
    empty_rows,
    is_run,
    run_time,
)
from asyncfin.extraction.places import place_of
from asyncfin.optional import compute, library, pa

if TYPE_CHECKING:
    import pyarrow

Moment: TypeAlias = str | date | datetime
# A cell of the state: where a metric, group and path are unique, the id does not belong
# to it.
_CELL = ("entity_id", "asked_version", *TRIPLE, *Period.__struct_fields__)
_NEEDED = (*SERIES, *Period.__struct_fields__, CHANGE, KNOWN_FROM)
_NAMES = ("entity_id", "entity_name")
_ORDER = ("entity_id", "asked_version", *TRIPLE, "series_id", *Period.__struct_fields__)
# Rows that are gathered before they are merged into a smaller state.
_AT_ONCE = 20_000


def read_changes(
    to: str | os.PathLike[str], *, since: Moment | None = None, last: bool = False
) -> pyarrow.Table:
    """Return the change feed that `extract` with ``history=True`` keeps (extra
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

        - `change`, `before`, `before_text`, `before_dataset_id`: as for `changes`. A
          column that an earlier version of the library did not write is null in its
          rows.
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
    feed = kept_feed(to)
    run, moment = _since(feed, since)
    footers = feed.chain(run)
    wanted = [
        each for each in footers if moment is None or run_time(each.run) >= moment
    ]
    if last:
        wanted = wanted[-1:]
    tables = [table for footer in wanted for table in feed.tables(footer)]
    return _joined(tables or [empty_rows()], {"runs": [each.run for each in wanted]})


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
        reporting group,
        scope path, series id and period. The entry `not_kept` of its metadata (the JSON
        under ``asyncfin``)
        lists the entities that the feed has only from a later time on, of which nothing
        earlier is known:
        `entity_id`, `entity_name` and `kept_from` of each.

    Raises:
        ArgumentError: an argument is not as described.
        SelectionError: a column is unknown.
        ManifestMismatchError, OSError, ImportError: as for `read_changes`.
    """
    moment = _moment("when", when)
    wanted = concat([], columns=columns).column_names
    feed = kept_feed(to)
    footers = feed.chain()
    publications = [one for each in footers for one in each.publications]
    needed = tuple(dict.fromkeys([*wanted, *_NEEDED]))
    pieces = (
        table.filter(compute.less_equal(table.column(KNOWN_FROM), pa.scalar(moment)))
        for footer in footers
        if any(one.moment <= moment for one in footer.publications)
        for table in feed.tables(footer, needed)
    )
    state = folded(
        pieces, {one.entity_id for one in publications if one.ambiguous}, needed
    )
    not_kept = _not_kept(feed, footers, moment)
    about = {"as_of": utc_text(moment), "not_kept": not_kept}
    return _joined([_ordered(state).select(wanted)], about)


def _not_kept(
    feed: Feed, footers: Sequence[RunFooter], moment: datetime
) -> list[dict[str, str | None]]:
    """Return the entities that became known only after a time, with that time."""
    first: dict[str, Recorded] = {}
    names: dict[str, str | None] = {}
    for footer in footers:
        new = {
            one.entity_id: one
            for one in footer.publications
            if one.entity_id not in first
        }
        first |= new
        if any(one.moment > moment for one in new.values()):
            for table in feed.tables(footer, _NAMES):
                names |= dict(example_rows(table, numbered(table, _NAMES[:1]), _NAMES))
    return [
        {
            "entity_id": each,
            "entity_name": names[each],
            "kept_from": utc_text(one.moment),
        }
        for each, one in first.items()
        if one.moment > moment
    ]


def folded(
    pieces: Iterable[Any], ambiguous: Iterable[str], columns: Iterable[str]
) -> Any:
    """Return the state after changes: of each cell the last row, unless it vanished.

    Args:
        pieces: the changes, in their order, with the columns of cells.
        ambiguous: the entities with several series of one metric, reporting group and
            scope path, whose cells are distinguished by their series' ids.
        columns: the columns of the result if no piece has rows.
    """
    apart = pa.array(sorted(ambiguous), pa.string())
    waiting, slow, merged = [], [], 0
    for piece in pieces:
        if len(apart):
            is_apart = compute.is_in(plain(piece.column("entity_id")), value_set=apart)
            slow.append(piece.filter(is_apart))
            piece = piece.filter(compute.invert(is_apart))
        waiting.append(piece)
        if sum(map(len, waiting)) - merged >= max(_AT_ONCE, merged):
            waiting = [_latest(pa.concat_tables(waiting).unify_dictionaries())]
            merged = len(waiting[0])
    found = [
        latest(pa.concat_tables(rows).unify_dictionaries())
        for latest, rows in ((_latest, waiting), (_latest_by_id, slow))
        if any(map(len, rows))
    ]
    return (
        pa.concat_tables(found).unify_dictionaries()
        if found
        else empty_rows().select(list(columns))
    )


def _latest(rows: Any) -> Any:
    """Return the last row of each cell, unless it vanished."""
    cells = pa.table(
        {"cell": numbered(rows, _CELL), "row": pa.array(range(len(rows)), pa.int64())}
    )
    last = (
        cells.group_by("cell", use_threads=False)
        .aggregate([("row", "max")])
        .column("row_max")
    )
    kept = rows.take(last)
    return kept.filter(compute.not_equal(plain(kept.column(CHANGE)), "vanished"))


def _latest_by_id(rows: Any) -> Any:
    """Return the same where several series share metric, reporting group and scope
    path.
    """
    cells: dict[int, dict[str, int]] = {}
    series, changes = (
        rows.column("series_id").to_pylist(),
        rows.column(CHANGE).to_pylist(),
    )
    for row, cell in enumerate(numbered(rows, _CELL).to_pylist()):
        latest = cells.setdefault(cell, {})
        # The only row of a cell has the id that its series had when it was written.
        if (
            changes[row] != "appeared"
            and series[row] not in latest
            and len(latest) == 1
        ):
            latest.clear()
        if changes[row] == "vanished":
            latest.pop(series[row], None)
        else:
            latest[series[row]] = row
    kept = [row for latest in cells.values() for row in latest.values()]
    return rows.take(pa.array(kept, pa.int64()))


def _ordered(rows: Any) -> Any:
    keys = pa.table({name: plain(rows.column(name)) for name in _ORDER})
    return rows.take(
        compute.sort_indices(keys, sort_keys=[(name, "ascending") for name in _ORDER])
    )


def _joined(tables: list[Any], about: dict[str, Any]) -> Any:
    table = pa.concat_tables([each.replace_schema_metadata(None) for each in tables])
    metadata = {b"asyncfin": json.dumps({"panels": []} | about)}
    return table.unify_dictionaries().combine_chunks().replace_schema_metadata(metadata)


def feed_at(name: str, place: str | os.PathLike[str]) -> Feed:
    """Return the feed of an extraction, which may be empty; `name` is that of the
    argument.

    Raises:
        ArgumentError: it is not the place of an extraction.
        ImportError: pyarrow is not installed.
    """
    library("pyarrow.parquet", "arrow")
    try:
        return Feed(place_of(place))
    except ArgumentError as error:
        raise ArgumentError(f"{name}{str(error).removeprefix('to')}") from None


def kept_feed(to: str | os.PathLike[str]) -> Feed:
    """Return the feed of an extraction.

    Raises:
        ArgumentError: `to` is not the place of an extraction.
        ManifestMismatchError: it has no feed.
    """
    feed = feed_at("to", to)
    feed.check_head()
    if not feed.runs():
        raise ManifestMismatchError(
            f"{feed.place} has no change feed: begin one with extract(..., "
            "history=True)"
            " (--history on the command line)"
        )
    return feed


def _since(feed: Feed, since: Moment | None) -> tuple[str | None, datetime | None]:
    """Return the run, or the time, from which on changes are wanted."""
    if since is None:
        return None, None
    if isinstance(since, str) and is_run(since):
        if since not in feed.runs():
            feed.chain()  # names it if its file is missing
            raise ArgumentError(
                f"since: {feed} has no run {since}: it was begun again, or this run is "
                "of another feed; read"
                " all of it (since=None), and replace what was read before"
            )
        return since, None
    return None, _moment("since", since)


def _moment(name: str, value: Moment) -> datetime:
    """Return a date or datetime, or its text, as an aware datetime in UTC."""
    if isinstance(value, str):
        if is_run(value):
            return run_time(value)
        with suppress(ValueError):
            value = datetime.fromisoformat(value)
            value = value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ArgumentError(
                f"{name} must be an aware datetime, not {value!r}: write"
                f" {value!r}.replace(tzinfo=UTC) for a time in UTC"
            )
        try:
            return value.astimezone(UTC)
        except OverflowError:
            raise ArgumentError(
                f"{name} must be a time of the years 1 to 9999 UTC, not "
                f"{value.isoformat()}"
            ) from None
    if isinstance(value, date):
        return datetime.combine(value, time(), UTC)
    raise ArgumentError(
        f"{name} must be a date or datetime, or its text, such as 2025-01-31 or "
        "2025-01-31T06:00:00Z,"
        f" not {checks.short_repr(value)}"
    )
