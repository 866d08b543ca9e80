"""Rows of a change feed on standard output: as a table for people, as JSON, as CSV, or
in a file.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow
from pyarrow.compute import is_in
from pyarrow.parquet import write_table

from asyncfin.analysis.changes import CHANGES
from asyncfin.cli.exits import UsageError
from asyncfin.cli.form import FeedForm
from asyncfin.cli.output import print_rows, print_table, replace_file, screen
from asyncfin.extraction.contents import FeedContents
from asyncfin.extraction.feed import run_time
from asyncfin.text import table_lines
from asyncfin.words import counted, listed, number_text

# The rows that a table for people shows; files and the other forms have all.
_MOST_ROWS = 50
# The entities, metrics or words that a message or the lines below a table name.
_MOST_NAMED = 12
_SHOWN = {
    "entity_name": "entity",
    "series_label": "label",
    "scope_path": "scope path",
    "reporting_group_id": "group",
    "period_label": "period",
}


def write(table: pyarrow.Table, form: FeedForm) -> bool:
    """Write the rows, if one of the forms is wanted; return whether that is so."""
    if form.to is not None:
        replace_file(form.to, partial(write_table, table, compression="zstd"))
        screen().print(f"{form.to}: {counted(len(table), 'row')}")
    elif form.json or form.is_csv:
        print_rows(table, as_json=form.json, raw=form.csv_raw)
    else:
        return False
    return True


def check_known(
    option: str, given: Sequence[str], known: Mapping[str, str], place: str
) -> None:
    """Raise UsageError for an id or a word that a change feed does not have; the
    message says what it has.

    Args:
        option: what the message begins with.
        known: the ids or words of the feed, with their names or "".
    """
    for each in given:
        if each not in known:
            has = listed(
                [f"{one} ({name})" if name else one for one, name in known.items()],
                _MOST_NAMED,
            )
            raise UsageError(
                f"{option}{each!r} is not in the change feed of {place}, which has "
                f"{has}"
            )


def filtered(
    table: pyarrow.Table, wanted: Mapping[str, Sequence[str]]
) -> pyarrow.Table:
    """Return the rows with one of the wanted entries in each column; a column without
    entries keeps all.
    """
    for name, entries in wanted.items():
        if entries:
            table = table.filter(
                is_in(
                    table.column(name).cast("string"), value_set=pyarrow.array(entries)
                )
            )
    return table


def print_changes(
    table: pyarrow.Table, contents: FeedContents, *, entries: bool
) -> None:
    """Print changes for people: the newest first, and below them how many there are.

    Args:
        entries: show the rows with which entities entered the feed too.
    """
    if not len(table):
        screen().print("no changes")
        return
    rows, lines = (table, []) if entries else _without_entries(table, contents)
    kinds = table.column("change").to_pylist()
    found = ", ".join(f"{kinds.count(kind):,} {kind}" for kind in CHANGES)
    runs = counted(len(table.column("run").unique()), "run")
    of = f"{counted(len(table), 'change')} in {runs}{_versions(table)}"
    summary = f"{of}: {found}; the last run is {contents.runs[-1]}"
    _print(*_table_of_changes(rows), len(rows), [*lines, summary])


def print_state(table: pyarrow.Table, lines: Sequence[str]) -> None:
    """Print the rows of a time for people, and below them the lines and how many rows
    there are.
    """
    shown = _shown(table)
    rows = [
        (*(row[name] or "" for name in shown), row["text"] or _number(row["number"]))
        for row in table.slice(0, _MOST_ROWS).to_pylist()
    ]
    of = counted(len(table.column("entity_id").unique()), "entity", "entities")
    counts = f"{counted(len(table), 'row')} of {of}{_versions(table)}"
    _print((*shown.values(), "value"), rows, len(table), [*lines, counts])


def _without_entries(
    table: pyarrow.Table, contents: FeedContents
) -> tuple[pyarrow.Table, list[str]]:
    """Return the rows without those with which entities entered the feed, and a line
    for each such run.
    """
    runs, ids = table.column("run").to_pylist(), table.column("entity_id").to_pylist()
    entering = [
        contents.entered[entity_id] == run
        for run, entity_id in zip(runs, ids, strict=True)
    ]
    counts: dict[str, Counter[str]] = {}
    for run, entity_id, enters in zip(runs, ids, entering, strict=True):
        if enters:
            counts.setdefault(run, Counter())[entity_id] += 1
    lines = []
    for run, by_entity in counts.items():
        (first, *others) = by_entity
        who = (
            counted(len(by_entity), "entity", "entities")
            if others
            else contents.names[first]
        )
        verb = "began the feed" if run == contents.runs[0] else "entered it"
        lines.append(
            f"{counted(by_entity.total(), 'row')} of {who} {verb} on "
            f"{run_time(run):%Y-%m-%d}"
        )
    return table.filter([not each for each in entering]), lines


def _table_of_changes(
    table: pyarrow.Table,
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the heads and the first rows of the table for people: the newest first."""
    # Stable: what became known together stays in the feed's order.
    moments = table.column("known_from").to_pylist()
    order = sorted(range(len(table)), key=moments.__getitem__, reverse=True)[
        :_MOST_ROWS
    ]
    shown = _shown(table)
    rows = [
        (
            f"{run_time(row['run']):%Y-%m-%d}",
            f"{row['known_from']:%Y-%m-%d %H:%M}",
            row["change"],
            *(row[name] or "" for name in shown),
            row["before_text"] or _number(row["before"]),
            ""
            if row["change"] == "vanished"
            else row["text"] or _number(row["number"]),
            _percent(row),
        )
        for row in table.take(pyarrow.array(order, pyarrow.int64())).to_pylist()
    ]
    return (
        "found",
        "known from",
        "change",
        *shown.values(),
        "before",
        "now",
        "percent",
    ), rows


def _percent(row: Mapping[str, Any]) -> str:
    """Return the change of a restated row relative to the absolute value before, if
    that is not 0.
    """
    before = row["before"]
    return (
        f"{(row['number'] - before) / abs(before):+.1%}"
        if row["change"] == "restated" and before
        else ""
    )


def lines_not_kept(table: pyarrow.Table, wanted: Sequence[str]) -> list[str]:
    """Return a line for each entity of which the feed has nothing so early: of the
    wanted ones, or of all.
    """
    found = [
        each
        for each in json.loads(table.schema.metadata[b"asyncfin"])["not_kept"]
        if not wanted or each["entity_id"] in wanted
    ]
    lines = []
    for each in found[:_MOST_NAMED]:
        name, since = each["entity_name"] or each["entity_id"], each["kept_from"][:10]
        lines.append(f"{name}: kept from {since} on; nothing earlier is known")
    more = len(found) - _MOST_NAMED
    return lines + (
        [f"and {counted(more, 'more entity', 'more entities')}"] if more > 0 else []
    )


def _shown(table: pyarrow.Table) -> dict[str, str]:
    """Return the columns that name a row, with their heads: the version too where there
    are rows of both.
    """
    both = len(table.column("asked_version").unique()) > 1
    return _SHOWN | {"asked_version": "asked version"} if both else _SHOWN


def _versions(table: pyarrow.Table) -> str:
    """Return of which version the values of a table are, as the end of a phrase;
    nothing without rows.
    """
    versions = table.column("asked_version").unique().to_pylist()
    return f", {' and '.join(versions)} values" if versions else ""


def _number(number: float | None) -> str:
    return "" if number is None else number_text(number)


def _print(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    count: int,
    lines: Iterable[str],
) -> None:
    console = screen()
    if rows:
        print_table(console, table_lines(heads, rows, console.width))
        console.print()
    if count > len(rows):
        console.print(
            f"{count - len(rows):,} more rows: --csv, --json and --to have all of them"
        )
    for line in lines:
        console.print(line)
