"""`asyncfin changes` and `asyncfin as-of`: what changed in an extraction, and what was known when."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, choose_one, require
from asyncfin.cli.output import print_csv, print_json, print_table, screen
from asyncfin.clock import utc_text
from asyncfin.extraction.as_of import as_of as state_as_of, read_changes
from asyncfin.extraction.prefix import Prefix
from asyncfin.extraction.store import place_of
from asyncfin.model.words import counted
from asyncfin.table.text import columns

if TYPE_CHECKING:
    import pyarrow

# The rows that a table for people shows; files and the other forms have all.
_MOST_ROWS = 50
# Lists are not for lines of comma-separated values.
_NOT_IN_CSV = ("scopes", "scope_names", "sources")
_SHOWN = ("entity_name", "series_label", "scope_path", "reporting_group_id", "period_label")


def changes(
    place: str,
    /,
    *,
    since: str | None = None,
    json: AsJson = False,
    csv: bool = False,
    csv_raw: bool = False,
    to: Path | None = None,
) -> None:
    """Show what changed in an extraction, from the change feed that it keeps.

    `asyncfin extract --history` begins a feed, and later runs continue it. No
    request is sent.

      asyncfin changes night --since 2025-01-31
      asyncfin changes s3://bucket/night --csv > changes.csv

    Args:
        place: The folder or URL of the extraction.
        since: Only runs later than this run, or runs that began on this date or at this time (UTC) or later.
        csv: Print a comma-separated line for each change. Texts like formulas get a leading apostrophe.
        csv_raw: The same, with every text unchanged.
        to: Write the changes to this Parquet file.
    """
    _require(place)
    form = _form(json, csv, csv_raw, to)
    table = read_changes(place, since=since)
    if form:
        _write(table, form, to)
        return
    shown = _shown(table)
    heads = ("known from", "change", *map(_head, shown), "before", "now")
    rows = [
        (
            f"{row['known_from']:%Y-%m-%d %H:%M}",
            row["change"],
            *(row[name] for name in shown),
            _number(row["before"]),
            "" if row["change"] == "vanished" else _number(row["number"]),
        )
        for row in table.slice(0, _MOST_ROWS).to_pylist()
    ]
    kinds = table.column("change").to_pylist()
    found = [f"{kinds.count(kind):,} {kind}" for kind in ("appeared", "restated", "relabelled", "vanished")]
    runs = len(table.column("run").unique())
    _print(
        heads,
        rows,
        len(table),
        f"{counted(len(table), 'change')} in {counted(runs, 'run')}: {', '.join(found)}",
    )


def as_of(
    place: str,
    when: str,
    /,
    *,
    json: AsJson = False,
    csv: bool = False,
    csv_raw: bool = False,
    to: Path | None = None,
) -> None:
    """Show all rows of an extraction as they were known at a time.

    It needs the change feed that `asyncfin extract --history` begins. No request
    is sent.

      asyncfin as-of night 2025-01-31
      asyncfin as-of night 2025-01-31T06:00 --to then.parquet

    Args:
        place: The folder or URL of the extraction.
        when: A date or time (UTC); a date is its first moment.
        csv: Print a comma-separated line for each row. Texts like formulas get a leading apostrophe.
        csv_raw: The same, with every text unchanged.
        to: Write the rows to this Parquet file.
    """
    _require(place)
    form = _form(json, csv, csv_raw, to)
    table = state_as_of(place, when)
    if form:
        _write(table, form, to)
        return
    shown = _shown(table)
    heads = (*map(_head, shown), "value")
    rows = [(*(row[name] for name in shown), row["text"]) for row in table.slice(0, _MOST_ROWS).to_pylist()]
    entities = counted(len(table.column("entity_id").unique()), "entity", "entities")
    _print(heads, rows, len(table), f"{counted(len(table), 'row')} of {entities}")


def _require(place: str) -> None:
    require("pyarrow.parquet", "arrow", "the change feed")
    if isinstance(place_of(place), Prefix):
        require("obstore", "store", place)


def _form(json: bool, csv: bool, csv_raw: bool, to: Path | None) -> str | None:
    form = choose_one({"--json": json, "--csv": csv, "--csv-raw": csv_raw, "--to": to is not None})
    if to is not None and to.suffix != ".parquet":
        raise UsageError(f"--to must be the path of a .parquet file, not {to}")
    return form


def _write(table: "pyarrow.Table", form: str, to: Path | None) -> None:
    if to is not None:
        import pyarrow.parquet as pq

        pq.write_table(table, to, compression="zstd")
        screen().print(f"{to}: {counted(len(table), 'row')}")
    elif form == "--json":
        print_json(table.to_pylist())
    else:
        names = [name for name in table.column_names if name not in _NOT_IN_CSV]
        rows = table.select(names).to_pylist()
        print_csv(names, [[_plain(each) for each in row.values()] for row in rows], raw=form == "--csv-raw")


def _shown(table: "pyarrow.Table") -> tuple[str, ...]:
    """Return the columns that name a row: the requested version too where there are rows of both."""
    both = len(table.column("asked_version").unique()) > 1
    return (*_SHOWN, "asked_version") if both else _SHOWN


def _plain(value: Any) -> Any:
    return utc_text(value) if isinstance(value, datetime) else value


def _head(name: str) -> str:
    return name.removesuffix("_id").removesuffix("_label").removesuffix("_name").replace("_", " ")


def _number(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number:,.0f}" if number == int(number) else f"{number:,}"


def _print(heads: Sequence[str], rows: Sequence[Sequence[str]], count: int, summary: str) -> None:
    console = screen()
    if rows:
        print_table(console, columns(heads, rows, console.width))
        console.print()
    if count > len(rows):
        console.print(f"{count - len(rows):,} more rows: --csv, --json and --to have all of them")
    console.print(summary)
