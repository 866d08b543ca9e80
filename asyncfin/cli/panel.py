"""Panels of one or several entities on standard output: as tables, as JSON, as CSV (docs/cli.md)."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from asyncfin.cli.form import QueryForm
from asyncfin.cli.output import print_csv, print_table, print_text, screen
from asyncfin.cli.streams import print_error
from asyncfin.errors import printable
from asyncfin.model.judge import Missing, named, without_periods
from asyncfin.model.words import Unit, counted
from asyncfin.table import text
from asyncfin.table.comparison import Comparison
from asyncfin.table.csv import csv_rows
from asyncfin.table.excerpt import excerpt
from asyncfin.table.notes import entity_names, facts, title
from asyncfin.table.panel import Panel
from asyncfin.table.why import why_empty as why_no_value


def print_result(
    result: Panel | Comparison, panels: Sequence[Panel], form: QueryForm, *, latest: bool
) -> None:
    """Print the panel of one entity, or the panels of several, in the form that is wanted.

    Args:
        latest: of more than 12 periods, only the latest that fit into one table.
    """
    if form.json:
        print_text(result.to_json(indent=2))
    elif form.is_csv:
        # All rows first: a value that breaks the spec must not leave half a file.
        head, *rows = csv_rows(panels, empty=form.all, entities=isinstance(result, Comparison))
        print_csv(head, rows, raw=form.csv_raw)
    elif form.plot is not None:
        from asyncfin.cli.picture import draw  # matplotlib, which is an extra

        draw(panels, form.plot)
    else:
        print_panels(panels, screen(), latest=latest, empty=form.all, unit=form.unit)


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
        unit: what amounts are divided by.
    """
    whole = shown = excerpt(panels, empty=empty, unit=unit)
    # Periods that were named are all shown, in as many tables as it takes.
    if latest and whole.periods > text.MOST_PERIODS:
        shown = text.latest(whole, console.width, empty=empty)
    for panel in panels:
        console.print(title(panel), style="bold")
    if above := shown.names().heading:
        console.print(printable(above))
    console.print()
    for table in text.tables(shown, console.width):
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
    names = entity_names(panel.catalogue for panel in panels)
    for panel in panels:
        lines = [*facts(panel), counted(panel.requests, "request")]
        notes += lines if len(panels) == 1 else [f"{names[panel.dataset.entity_id]}: {'; '.join(lines)}"]
    console.print("\n".join(notes), style="dim")


def print_missing(panels: Sequence[Panel], missing: Mapping[str, Missing], *, why_empty: bool) -> None:
    """Print, on standard error, what entities do not have, and why a panel has no value."""
    names = entity_names(panel.catalogue for panel in panels)
    for panel in panels:
        entity_id = panel.dataset.entity_id
        of_one = missing.get(entity_id, {})
        # Where there are series, the table shows which periods have no value.
        if of_one := without_periods(of_one) if len(panel) else of_one:
            print_error(f"asyncfin: {names[entity_id]} has no {named(of_one)}")
        elif why_empty and (why := why_no_value(panel)):
            print_error(f"asyncfin: {names[entity_id]}: {why}")
