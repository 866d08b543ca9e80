"""`asyncfin changes` and `asyncfin as-of`: what changed in an extraction, and what was known when."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import frozen
from cyclopts import Parameter

from asyncfin.analysis.changes import CHANGES
from asyncfin.checks import local_path
from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsCsv, AsJson, AsRawCsv, Several, choose_one, require
from asyncfin.cli.output import print_csv, print_json, print_table, replace_file, screen
from asyncfin.cli.streams import print_error
from asyncfin.clock import utc_text
from asyncfin.extraction.as_of import as_of as state_as_of, read_changes
from asyncfin.extraction.contents import FeedContents, feed_contents
from asyncfin.extraction.feed import run_time
from asyncfin.extraction.files import place_of
from asyncfin.extraction.prefix import Prefix
from asyncfin.model.words import counted, listed, number_text
from asyncfin.table.arrow import METADATA
from asyncfin.table.text import columns

if TYPE_CHECKING:
    import pyarrow

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


def changes(
    place: str,
    /,
    *entities: str,
    since: str | None = None,
    last: bool = False,
    change: Several = (),
    metric: Several = (),
    names: Names = Names(),
    output: Output = Output(),
) -> None:
    """Show what changed in an extraction, from the change feed that it keeps.

    `asyncfin extract --history` begins a feed, and later runs continue it. No
    request is sent.

      asyncfin changes night --last --change restated
      asyncfin changes night nvidia --since 2025-01-31 --names names.csv
      asyncfin changes s3://bucket/night --csv > changes.csv

    Args:
        place: The folder or URL of the extraction.
        entities: Only these entities, O- and 32 characters each, or their names.
        since: Only runs later than this run, or runs that began on this date or at this time (UTC) or later.
        last: Only the newest run.
        change: Only appeared, restated, relabelled or vanished rows; repeat it for any of several.
        metric: Only this metric id; repeat it for any of several.
    """
    require_feed(place)
    choose_one({"--since": since is not None, "--last": last})
    contents = feed_contents(place)
    wanted = {
        "entity_id": _chosen("", [names.entity_id(each) for each in entities], contents.names, place),
        "metric_id": _chosen("--metric ", metric, dict.fromkeys(contents.metrics, ""), place),
        "change": _chosen("--change ", change, dict.fromkeys(CHANGES, ""), place),
    }
    table = _filtered(read_changes(place, since=since, last=last), wanted)
    if output.write(table):
        return
    if not len(table):
        screen().print("no changes")
        return
    # The rows of an entity that enters the feed would hide the others, unless they are asked for.
    rows, entries = (table, []) if change else _without_entries(table, contents)
    kinds = table.column("change").to_pylist()
    found = ", ".join(f"{kinds.count(kind):,} {kind}" for kind in CHANGES)
    runs = counted(len(table.column("run").unique()), "run")
    of = f"{counted(len(table), 'change')} in {runs}{_versions(table)}"
    summary = f"{of}: {found}; the last run is {contents.runs[-1]}"
    _print(*_table_of_changes(rows), len(rows), [*entries, summary])


def _chosen(option: str, given: Sequence[str], known: Mapping[str, str], place: str) -> Sequence[str]:
    """Return the given ids or words; refuse one that the feed does not have, and say what it has."""
    for each in given:
        if each not in known:
            has = listed([f"{one} ({name})" if name else one for one, name in known.items()], _MOST_NAMED)
            raise UsageError(f"{option}{each!r} is not in the change feed of {place}, which has {has}")
    return given


def _filtered(table: "pyarrow.Table", wanted: Mapping[str, Sequence[str]]) -> "pyarrow.Table":
    """Return the rows with one of the wanted entries in each column; no entry is no condition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, entries in wanted.items():
        if entries:
            table = table.filter(pc.is_in(table.column(name).cast("string"), value_set=pa.array(entries)))
    return table


def _without_entries(table: "pyarrow.Table", contents: FeedContents) -> tuple["pyarrow.Table", list[str]]:
    """Return the rows without those with which entities entered the feed, and a line for each such run."""
    runs, ids = table.column("run").to_pylist(), table.column("entity_id").to_pylist()
    entering = [contents.entered[entity_id] == run for run, entity_id in zip(runs, ids, strict=True)]
    counts: dict[str, Counter[str]] = {}
    for run, entity_id, enters in zip(runs, ids, entering, strict=True):
        if enters:
            counts.setdefault(run, Counter())[entity_id] += 1
    lines = []
    for run, by_entity in counts.items():
        (first, *others) = by_entity
        who = counted(len(by_entity), "entity", "entities") if others else contents.names[first]
        verb = "began the feed" if run == contents.runs[0] else "entered it"
        lines.append(f"{counted(by_entity.total(), 'row')} of {who} {verb} on {run_time(run):%Y-%m-%d}")
    return table.filter([not each for each in entering]), lines


def _table_of_changes(table: "pyarrow.Table") -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the heads and the first rows of the table for people: the newest first."""
    import pyarrow as pa

    # Stable: what became known together stays in the feed's order.
    moments = table.column("known_from").to_pylist()
    order = sorted(range(len(table)), key=moments.__getitem__, reverse=True)[:_MOST_ROWS]
    shown = _shown(table)
    rows = [
        (
            f"{run_time(row['run']):%Y-%m-%d}",
            f"{row['known_from']:%Y-%m-%d %H:%M}",
            row["change"],
            *(row[name] or "" for name in shown),
            row["before_text"] or _number(row["before"]),
            "" if row["change"] == "vanished" else row["text"] or _number(row["number"]),
            _percent(row),
        )
        for row in table.take(pa.array(order, pa.int64())).to_pylist()
    ]
    return ("found", "known from", "change", *shown.values(), "before", "now", "percent"), rows


def _percent(row: Mapping[str, Any]) -> str:
    """Return the change of a restated row relative to the absolute value before, if that is not 0."""
    before = row["before"]
    return f"{(row['number'] - before) / abs(before):+.1%}" if row["change"] == "restated" and before else ""


def as_of(
    place: str, when: str, /, *entities: str, names: Names = Names(), output: Output = Output()
) -> None:
    """Show all rows of an extraction as they were known at a time.

    It needs the change feed that `asyncfin extract --history` begins. No request
    is sent.

      asyncfin as-of night 2025-01-31
      asyncfin as-of night 2025-01-31T06:00 nvidia --to then.parquet

    Args:
        place: The folder or URL of the extraction.
        when: A date or time (UTC); a date is its first moment.
        entities: Only these entities, O- and 32 characters each, or their names.
    """
    require_feed(place)
    table = state_as_of(place, when)
    wanted = [names.entity_id(each) for each in entities]
    if wanted:
        table = _filtered(table, {"entity_id": _chosen("", wanted, feed_contents(place).names, place)})
    lines = _lines_not_kept(table, wanted)
    if output.write(table):
        for line in lines:
            print_error(line)
        return
    shown = _shown(table)
    rows = [
        (*(row[name] or "" for name in shown), row["text"] or _number(row["number"]))
        for row in table.slice(0, _MOST_ROWS).to_pylist()
    ]
    of = counted(len(table.column("entity_id").unique()), "entity", "entities")
    lines.append(f"{counted(len(table), 'row')} of {of}{_versions(table)}")
    _print((*shown.values(), "value"), rows, len(table), lines)


def _lines_not_kept(table: "pyarrow.Table", wanted: Sequence[str]) -> list[str]:
    """Return a line for each entity of which the feed has nothing so early: of the wanted ones, or of all."""
    found = [
        each
        for each in json.loads(table.schema.metadata[METADATA])["not_kept"]
        if not wanted or each["entity_id"] in wanted
    ]
    lines = []
    for each in found[:_MOST_NAMED]:
        name, since = each["entity_name"] or each["entity_id"], each["kept_from"][:10]
        lines.append(f"{name}: kept from {since} on; nothing earlier is known")
    more = len(found) - _MOST_NAMED
    return lines + ([f"and {counted(more, 'more entity', 'more entities')}"] if more > 0 else [])


def require_feed(place: str) -> None:
    """Raise unless the libraries that read a change feed at this place are installed.

    Raises:
        UsageError: one is not.
    """
    require("pyarrow.parquet", "arrow", "the change feed")
    if isinstance(place_of(place), Prefix):
        require("obstore", "store", place)


def _shown(table: "pyarrow.Table") -> dict[str, str]:
    """Return the columns that name a row, with their heads: the version too where there are rows of both."""
    both = len(table.column("asked_version").unique()) > 1
    return _SHOWN | {"asked_version": "asked version"} if both else _SHOWN


def _versions(table: "pyarrow.Table") -> str:
    """Return of which version the values of a table are, as the end of a phrase; nothing without rows."""
    versions = table.column("asked_version").unique().to_pylist()
    return f", {' and '.join(versions)} values" if versions else ""


def _plain(value: Any) -> Any:
    return utc_text(value) if isinstance(value, datetime) else value


def _number(number: float | None) -> str:
    return "" if number is None else number_text(number)


def _print(heads: Sequence[str], rows: Sequence[Sequence[str]], count: int, lines: Iterable[str]) -> None:
    console = screen()
    if rows:
        print_table(console, columns(heads, rows, console.width))
        console.print()
    if count > len(rows):
        console.print(f"{count - len(rows):,} more rows: --csv, --json and --to have all of them")
    for line in lines:
        console.print(line)
