"""`asyncfin changes` and `asyncfin as-of`: what changed in an extraction, and what was known when."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import frozen
from cyclopts import Parameter

from asyncfin.checks import local_path
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsCsv, AsJson, AsRawCsv, choose_one, require
from asyncfin.cli.output import print_csv, print_json, print_table, replace_file, screen
from asyncfin.clock import utc_text
from asyncfin.extraction.as_of import as_of as state_as_of, read_changes
from asyncfin.extraction.files import place_of
from asyncfin.extraction.prefix import Prefix
from asyncfin.model.words import counted, number_text
from asyncfin.table.text import columns

if TYPE_CHECKING:
    import pyarrow

# The rows that a table for people shows; files and the other forms have all.
_MOST_ROWS = 50
_SHOWN = ("entity_name", "series_label", "scope_path", "reporting_group_id", "period_label")


@Parameter(name="*")
@frozen(kw_only=True)
class Output:
    """Other forms than the table for people."""

    json: AsJson = False
    csv: AsCsv = False
    csv_raw: AsRawCsv = False
    to: Annotated[Path | None, Parameter(help="Write the rows to this Parquet file.")] = None

    def __attrs_post_init__(self) -> None:
        choose_one(
            {"--json": self.json, "--csv": self.csv, "--csv-raw": self.csv_raw, "--to": self.to is not None}
        )
        if self.to is not None and self.to.suffix != ".parquet":
            raise UsageError(f"--to must be the path of a .parquet file, not {self.to}")
        if self.to is not None:
            local_path("--to", "file", self.to, "copy it there from here")
            if not self.to.parent.is_dir():
                raise UsageError(f"--to {self.to} can't be written: {self.to.parent} is not a folder")

    def write(self, table: "pyarrow.Table") -> bool:
        """Write the rows, if one of the forms is wanted; return whether that is so."""
        if self.to is not None:
            from pyarrow.parquet import write_table

            replace_file(self.to, partial(write_table, table, compression="zstd"))
            screen().print(f"{self.to}: {counted(len(table), 'row')}")
        elif self.json:
            print_json(table.to_pylist())
        elif self.csv or self.csv_raw:
            # Lists are not for lines of comma-separated values.
            names = [each.name for each in table.schema if not str(each.type).startswith("list")]
            rows = table.select(names).to_pylist()
            print_csv(names, [[_plain(each) for each in row.values()] for row in rows], raw=self.csv_raw)
        else:
            return False
        return True


def changes(place: str, /, *, since: str | None = None, output: Output = Output()) -> None:
    """Show what changed in an extraction, from the change feed that it keeps.

    `asyncfin extract --history` begins a feed, and later runs continue it. No
    request is sent.

      asyncfin changes night --since 2025-01-31
      asyncfin changes s3://bucket/night --csv > changes.csv

    Args:
        place: The folder or URL of the extraction.
        since: Only runs later than this run, or runs that began on this date or at this time (UTC) or later.
    """
    require_feed(place)
    table = read_changes(place, since=since)
    if output.write(table):
        return
    shown = _shown(table)
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
    runs = counted(len(table.column("run").unique()), "run")
    _print(
        ("known from", "change", *map(_head, shown), "before", "now"),
        rows,
        len(table),
        f"{counted(len(table), 'change')} in {runs}: {', '.join(found)}",
    )


def as_of(place: str, when: str, /, *, output: Output = Output()) -> None:
    """Show all rows of an extraction as they were known at a time.

    It needs the change feed that `asyncfin extract --history` begins. No request
    is sent.

      asyncfin as-of night 2025-01-31
      asyncfin as-of night 2025-01-31T06:00 --to then.parquet

    Args:
        place: The folder or URL of the extraction.
        when: A date or time (UTC); a date is its first moment.
    """
    require_feed(place)
    table = state_as_of(place, when)
    if output.write(table):
        return
    shown = _shown(table)
    rows = [(*(row[name] for name in shown), row["text"]) for row in table.slice(0, _MOST_ROWS).to_pylist()]
    entities = counted(len(table.column("entity_id").unique()), "entity", "entities")
    _print((*map(_head, shown), "value"), rows, len(table), f"{counted(len(table), 'row')} of {entities}")


def require_feed(place: str) -> None:
    """Raise unless the libraries that read a change feed at this place are installed.

    Raises:
        UsageError: one is not.
    """
    require("pyarrow.parquet", "arrow", "the change feed")
    if isinstance(place_of(place), Prefix):
        require("obstore", "store", place)


def _shown(table: "pyarrow.Table") -> tuple[str, ...]:
    """Return the columns that name a row: the requested version too where there are rows of both."""
    both = len(table.column("asked_version").unique()) > 1
    return (*_SHOWN, "asked_version") if both else _SHOWN


def _plain(value: Any) -> Any:
    return utc_text(value) if isinstance(value, datetime) else value


def _head(name: str) -> str:
    return name.removesuffix("_id").removesuffix("_label").removesuffix("_name").replace("_", " ")


def _number(number: float | None) -> str:
    return "" if number is None else number_text(number)


def _print(heads: Sequence[str], rows: Sequence[Sequence[str]], count: int, summary: str) -> None:
    console = screen()
    if rows:
        print_table(console, columns(heads, rows, console.width))
        console.print()
    if count > len(rows):
        console.print(f"{count - len(rows):,} more rows: --csv, --json and --to have all of them")
    console.print(summary)
