"""Panels of one or several entities on standard output: as tables, as JSON, as CSV
(docs/cli.md).
"""

from rich.console import Console

from asyncfin import Comparison, Panel
from asyncfin.cli.form import QueryForm
from asyncfin.cli.output import (
    print_csv,
    print_csv_text,
    print_json,
    print_table,
    print_text,
    screen,
)
from asyncfin.cli.streams import print_error
from asyncfin.typing import Shown
from asyncfin.words import Unit, counted

_LEAST_WIDTH = 40
# How to see what a table leaves out, by the end of its note.
_HINTS = {
    "periods are shown": ": name periods, such as --annual, or take --csv or --json",
    "left out": " (--all shows them)",
}
# A table of latest values has all of them, and names are wrapped.
_ALL = 10**9


def print_latest(result: Panel | Comparison, count: int, form: QueryForm) -> None:
    """Print the last values of each series in the form that is wanted."""
    latest = result.latest(count)
    if form.json:
        print_json(latest.to_dicts())
    elif form.is_csv:
        rows = latest.to_dicts()
        print_csv(
            [*rows[0]] if rows else [],
            [[*row.values()] for row in rows],
            raw=form.csv_raw,
        )
    else:
        console = screen()
        width = max(_LEAST_WIDTH, console.width)
        print_shown(latest.show(form.unit, width, most=_ALL), console)


def print_result(result: Panel | Comparison, form: QueryForm, *, latest: bool) -> None:
    """Print a panel or a comparison in the form that is wanted.

    Args:
        latest: only the latest periods that fit into one table.
    """
    if form.json:
        print_text(result.to_json(indent=2))
    elif form.is_csv:
        # All rows first: a value that breaks the spec must not leave half a file.
        print_csv_text(
            result.to_csv(empty=form.all, raw=form.csv_raw), raw=form.csv_raw
        )
    elif form.plot is not None:
        from asyncfin.cli.picture import draw  # matplotlib, which is an extra

        draw(result, form.plot)
    else:
        print_panels(result, screen(), latest=latest, empty=form.all, unit=form.unit)


def print_panels(
    result: Panel | Comparison,
    console: Console,
    *,
    latest: bool = False,
    empty: bool = False,
    unit: Unit | None = None,
) -> None:
    """Print heading, tables, what the tables leave out, and the notes.

    Args:
        latest: only the latest periods that fit into one table.
        empty: series without a value too.
        unit: what amounts are divided by.
    """
    shown = result.show(
        unit,
        max(_LEAST_WIDTH, console.width),
        all_series=True,
        all_periods=not latest,
        empty=empty,
    )
    print_shown(shown, console)
    console.print(counted(result.requests, "request"), style="dim")


def print_shown(shown: Shown, console: Console) -> None:
    """Print the parts of a table for people."""
    title, *above = shown.heading.splitlines()
    console.print(title, style="bold")
    console.print("\n".join([*above, ""]))
    for table in shown.tables:
        print_table(console, table.split("\n"))
        console.print()
    for note in shown.notes:
        hint = next((text for end, text in _HINTS.items() if note.endswith(end)), "")
        console.print(note + hint, style="dim")


def print_missing(result: Panel | Comparison, *, has_table: bool) -> None:
    """Print what entities do not have on standard error, and why there is no value if
    no table shows it.
    """
    lines: list[str] = []
    if isinstance(result, Comparison):
        lines += result.lacking(periods=not has_table)
    elif not has_table and not result.value_count:
        lines += [f"{result.dataset.name}: {note}" for note in result.notes]
    for line in lines:
        print_error(f"asyncfin: {line}")
