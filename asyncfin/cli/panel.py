"""Panels of one or several entities on standard output: as tables, as JSON, as CSV
(docs/cli.md).
"""

from collections.abc import Sequence

from rich.console import Console

from asyncfin.cli.form import QueryForm
from asyncfin.cli.output import print_csv, print_json, print_table, print_text, screen
from asyncfin.cli.streams import print_error
from asyncfin.errors import printable
from asyncfin.table import text
from asyncfin.table.comparison import Comparison
from asyncfin.table.csv import csv_rows
from asyncfin.table.excerpt import MOST_PERIODS, excerpt, excerpt_of_several
from asyncfin.table.notes import facts, heading
from asyncfin.table.panel import Panel
from asyncfin.table.why import why_empty as why_no_value
from asyncfin.words import Unit, counted

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
        shown = latest.show(form.unit, max(40, console.width), most=_ALL)
        console.print(str(shown))


def print_result(
    result: Panel | Comparison,
    panels: Sequence[Panel],
    form: QueryForm,
    *,
    latest: bool,
) -> None:
    """Print the panel of one entity, or the panels of several, in the form that is
    wanted.

    Args:
        latest: of more than 12 periods, only the latest that fit into one table.
    """
    if form.json:
        print_text(result.to_json(indent=2))
    elif form.is_csv:
        # All rows first: a value that breaks the spec must not leave half a file.
        head, *rows = csv_rows(
            panels, empty=form.all, entities=isinstance(result, Comparison)
        )
        print_csv(head, rows, raw=form.csv_raw)
    elif form.plot is not None:
        from asyncfin.cli.picture import draw  # matplotlib, which is an extra

        draw(panels, form.plot)
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
    """Print titles, tables, what the tables leave out, and the facts of each panel.

    Args:
        latest: of more than 12 periods, only the latest that fit into one table.
        empty: series without a value too.
        unit: what amounts are divided by.
    """
    panels = [*result] if isinstance(result, Comparison) else [result]
    if len(panels) > 1:
        whole = shown = excerpt_of_several(
            panels, empty=empty, unit=unit, latest=latest
        )
    else:
        whole = shown = excerpt(panels, empty=empty, unit=unit)
    # Periods that were named are all shown, in as many tables as it takes.
    if latest and whole.periods > MOST_PERIODS:
        shown = text.latest(whole, console.width, empty=empty or len(panels) > 1)
    console.print(heading(panels), style="bold")
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
    if isinstance(result, Comparison):
        notes += result.notes
    else:
        notes += facts(result)
    notes.append(counted(result.requests, "request"))
    console.print("\n".join(dict.fromkeys(notes)), style="dim")


def print_missing(result: Panel | Comparison, *, has_table: bool) -> None:
    """Print what entities do not have on standard error, and why there is no value if
    no table says it.
    """
    lines: list[str] = []
    if isinstance(result, Comparison):
        lines += result.lacking(periods=not has_table)
    elif not has_table and (why := why_no_value(result)):
        lines.append(f"{result.dataset.name}: {why}")
    for line in lines:
        print_error(f"asyncfin: {line}")
