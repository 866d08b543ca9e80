"""`asyncfin changes` and `asyncfin as-of`: what changed in an extraction, and what was
known when.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal, get_args

from asyncfin.cli.errors import UsageError, print_error
from asyncfin.cli.options import Form, Names, choose_one, require_place
from asyncfin.cli.terminal import print_line, print_rows, print_table
from asyncfin.words import counted, listed, number_text

if TYPE_CHECKING:
    import pyarrow

    from asyncfin.extraction.contents import FeedContents

Change = Literal["appeared", "restated", "relabelled", "vanished"]
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


def changes(
    place: str,
    /,
    *entities: str,
    since: str | None = None,
    last: bool = False,
    change: tuple[Change, ...] = (),
    names: Names = Names(),
    form: Form = Form(),
) -> None:
    """Show what changed in an extraction.

    `asyncfin extract --history` begins a feed, and later runs continue it. No
    request is sent.

      asyncfin changes night --last --change restated
      asyncfin changes night nvidia --since 2025-01-31 --names names.csv
      asyncfin changes s3://bucket/night --csv > changes.csv

    Args:
        place: The folder or URL of the extraction.
        entities: Only these entities, O- and 32 characters each, or their names.
        since: Only runs later than this run, or runs that began on this date or at this
            time (UTC) or later.
        last: Only the newest run.
        change: Only rows of this kind; repeat it for any of several.
    """
    choose_one({"--since": since is not None, "--last": last})
    entity_ids = names.entity_ids(entities)
    require_place(place, "the change feed")

    from asyncfin import read_changes
    from asyncfin.extraction.contents import read_contents

    table = read_changes(place, since=since, last=last)
    # After the rows: an entity of a run that finishes in between is then in the
    # contents only.
    contents = read_contents(place)
    _check_ids(entity_ids, contents.names, place)
    table = _filter(table, entity_id=entity_ids, change=change)
    if form.json or form.csv:
        _print_all(table, form)
        return
    _print_changes(table, contents, has_entries=bool(change))


def as_of(
    place: str,
    when: str,
    /,
    *entities: str,
    names: Names = Names(),
    form: Form = Form(),
) -> None:
    """Show an extraction as it was known at a time.

    It needs the change feed that `asyncfin extract --history` begins. No request
    is sent.

      asyncfin as-of night 2025-01-31
      asyncfin as-of night 2025-01-31T06:00 nvidia --csv > then.csv

    Args:
        place: The folder or URL of the extraction.
        when: A date or time (UTC); a date is its first moment.
        entities: Only these entities, O- and 32 characters each, or their names.
    """
    entity_ids = names.entity_ids(entities)
    require_place(place, "the change feed")

    from asyncfin import as_of as read_state
    from asyncfin.extraction.contents import read_contents

    table = read_state(place, when)
    entity_names = read_contents(place).names
    _check_ids(entity_ids, entity_names, place)
    table = _filter(table, entity_id=entity_ids)
    lines = _describe_unknown(table, entity_ids, entity_names)
    if form.json or form.csv:
        _print_all(table, form)
        for line in lines:
            print_error(line)
        return
    heads = _heads(table)
    rows = []
    for row in table.slice(0, _MOST_ROWS).to_pylist():
        value = _write_value(row["text"], row["number"])
        rows.append([*_read_cells(row, heads), value])
    entity_count = len(table.column("entity_id").unique())
    entities_text = counted(entity_count, "entity", "entities")
    lines.append(f"{counted(len(table), 'row')} of {entities_text}")
    _print([*heads.values(), "value"], rows, len(table), lines)


def _check_ids(ids: Sequence[str], names: Mapping[str, str], place: str) -> None:
    """Raise UsageError for an id that is not among those of a change feed.

    Args:
        names: the ids of the feed, with their names or "".
    """
    for unknown in ids:
        if unknown not in names:
            texts = []
            for key, name in names.items():
                text = f"{key} ({name})"
                texts.append(text.removesuffix(" ()"))
            raise UsageError(
                f"{unknown!r} is not in the change feed of {place}, which has "
                f"{listed(texts, _MOST_NAMED)}"
            )


def _filter(table: "pyarrow.Table", **entries: Sequence[str]) -> "pyarrow.Table":
    """Return the rows with one of the entries in each column that has entries."""
    import pyarrow
    from pyarrow.compute import is_in

    for name, texts in entries.items():
        if texts:
            column = table.column(name).cast("string")
            table = table.filter(is_in(column, value_set=pyarrow.array(texts)))
    return table


def _print_all(table: "pyarrow.Table", form: Form) -> None:
    """Print all rows as JSON, or as CSV, which has no columns of lists."""
    from pyarrow.types import is_list

    heads = [item.name for item in table.schema if not is_list(item.type)]
    print_rows(table.to_pylist(), as_json=form.json, heads=heads)


def _print_changes(
    table: "pyarrow.Table", contents: "FeedContents", *, has_entries: bool
) -> None:
    """Print changes for people: the newest first, and below them how many there are.

    Args:
        has_entries: show the rows with which entities entered the feed too.
    """
    if not len(table):
        print_line("no changes")
        return
    rows, lines = table.to_pylist(), list[str]()
    kinds = Counter(map(itemgetter("change"), rows))
    counts = ", ".join(f"{kinds[kind]:,} {kind}" for kind in get_args(Change))
    runs = counted(len(table.column("run").unique()), "run")
    summary = (
        f"{counted(len(rows), 'change')} in {runs}: {counts}; the "
        f"last run is {contents.runs[-1]}"
    )
    if not has_entries:
        # The rows of an entity that enters the feed would hide the others.
        changes = []
        for row in rows:
            if contents.entry_runs[row["entity_id"]] != row["run"]:
                changes.append(row)
        if entry_count := len(rows) - len(changes):
            text = f"{counted(entry_count, 'row')} with which entities entered the feed"
            lines.append(f"{text}: --change appeared shows them")
        rows = changes
    # Stable: what became known together stays in the feed's order.
    rows.sort(key=lambda row: row["known_from"], reverse=True)
    heads, cells = _heads(table), []
    for row in rows[:_MOST_ROWS]:
        value = ""
        if row["change"] != "vanished":
            value = _write_value(row["text"], row["number"])
        cells.append(
            [
                f"{row['known_from']:%Y-%m-%d %H:%M}",
                row["change"],
                *_read_cells(row, heads),
                _write_value(row["before_text"], row["before"]),
                value,
                _percent(row),
            ]
        )
    titles = ["known from", "change", *heads.values(), "before", "now"]
    _print([*titles, "percent"], cells, len(rows), [*lines, summary])


def _percent(row: Mapping[str, Any]) -> str:
    """Return the change of a restated row relative to the absolute value before, if
    that is not 0.
    """
    base = row["before"]
    if row["change"] != "restated" or not base:
        return ""
    return f"{(row['number'] - base) / abs(base):+.1%}"


def _describe_unknown(
    table: "pyarrow.Table", entity_ids: Sequence[str], names: Mapping[str, str]
) -> list[str]:
    """Return a line about the entities of which the feed has nothing so early."""
    texts = []
    for entry in json.loads(table.schema.metadata[b"asyncfin"])["not_kept"]:
        if not entity_ids or entry["entity_id"] in entity_ids:
            name, day = names[entry["entity_id"]], entry["kept_from"][:10]
            texts.append(f"{name} (from {day})")
    if not texts:
        return []
    return [f"in the feed only later: {listed(texts, _MOST_NAMED)}"]


def _heads(table: "pyarrow.Table") -> dict[str, str]:
    """Return the columns that name a row, with their heads: the version too where there
    are rows of both.
    """
    if len(table.column("asked_version").unique()) > 1:
        return _SHOWN | {"asked_version": "asked version"}
    return _SHOWN


def _read_cells(row: Mapping[str, Any], heads: Iterable[str]) -> list[str]:
    return [row[name] or "" for name in heads]


def _write_value(text: str | None, number: float | None) -> str:
    if text or number is None:
        return text or ""
    return number_text(number)


def _print(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    count: int,
    lines: Iterable[str],
) -> None:
    """Print the first rows of so many, and lines below them."""
    if rows:
        print_table(heads, rows)
        print_line("")
    if count > len(rows):
        hidden_count = count - len(rows)
        print_line(f"{hidden_count:,} more rows: --csv and --json have all of them")
    for line in lines:
        print_line(line)
