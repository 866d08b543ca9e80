"""Panels of one or several entities on standard output: as tables, as JSON, as CSV (docs/cli.md)."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import Literal

from rich.console import Console

from asyncfin.cli.output import print_csv, print_table, print_text
from asyncfin.errors import printable
from asyncfin.model.value import Value
from asyncfin.model.words import counted
from asyncfin.table import text
from asyncfin.table.comparison import entity_names, excerpt_of
from asyncfin.table.csv import csv_rows
from asyncfin.table.notes import facts, title
from asyncfin.table.panel import Panel

Unit = Literal["thousands", "millions", "billions"]
_POWERS: dict[Unit, int] = {"thousands": 3, "millions": 6, "billions": 9}


def print_panels_json(panels: Sequence[Panel], *, several: bool) -> None:
    """Print the document of the panel; of several entities, a list."""
    documents = [panel.to_json(indent=2) for panel in panels]
    print_text("[\n" + ",\n".join(documents) + "\n]" if several else documents[0])


def print_panels_csv(panels: Sequence[Panel], *, raw: bool, empty: bool, several: bool) -> None:
    """Print a line for each series: its entity where there are several, what it is, its numbers by period.

    Args:
        raw: leave texts as they are (`print_csv`).
        empty: series without a value too.
        several: begin each line with its entity.
    """
    # All rows first: a value that breaks the spec must not leave half a file.
    head, *rows = csv_rows(panels, empty=empty, entities=several)
    print_csv(head, rows, raw=raw)


def print_panels(
    panels: Sequence[Panel],
    console: Console,
    *,
    latest: bool = False,
    empty: bool = False,
    unit: Unit | None = None,
) -> None:
    """Print titles, tables, what the tables leave out, and the facts of each panel.

    Args:
        latest: of more than 12 periods, only the latest that fit into one table.
        empty: series without a value too.
        unit: what whole numbers are divided by.
    """
    whole = shown = excerpt_of(panels, empty=empty)
    shown_text = in_unit(unit)
    # Periods that were named are all shown, in as many tables as it takes.
    if latest and whole.periods > text.MOST_PERIODS:
        shown = text.latest(whole, console.width, shown_text, empty=empty)
    for panel in panels:
        console.print(title(panel), style="bold")
    heading = [shown.names().heading, f"whole numbers in {unit}" if unit else ""]
    if any(heading):
        console.print(printable(", ".join(filter(None, heading))))
    console.print()
    for table in text.tables(shown, console.width, shown_text):
        print_table(console, table)
        console.print()
    notes = list(
        shown.notes(
            periods_hint=": name periods, such as --annual, or take --csv or --json",
            empty_hint=" (--all shows them)",
        )
    )
    if len(panels) > 1:
        notes.append("the same fiscal period of two entities can be different months")
    names = entity_names(panels)
    for panel in panels:
        lines = [*facts(panel), counted(panel.requests, "request")]
        notes += lines if len(panels) == 1 else [f"{names[panel.dataset.entity_id]}: {'; '.join(lines)}"]
    console.print("\n".join(notes), style="dim")


def in_unit(unit: Unit | None) -> Callable[[Value], str]:
    """Return the function from a value to its text; zeros, decimals and percentages are not scaled."""
    if unit is None:
        return attrgetter("text")

    def scaled(value: Value) -> str:
        # A reported zero stays 0, and rates and earnings per share are not amounts of money.
        if not value.number or set(".%") & set(value.number_format):
            return value.text
        # Decimal: a whole number beyond 2**53 keeps its digits.
        return f"{Decimal(value.number).scaleb(-_POWERS[unit]):,.1f}"

    return scaled
