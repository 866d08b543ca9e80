"""A panel on standard output: as tables for people, as a JSON document, as CSV (docs/cli.md)."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from asyncfin.cli.output import GAP, bare_table, print_csv
from asyncfin.model.scope import format_path
from asyncfin.model.series import Series
from asyncfin.model.value import Value
from asyncfin.model.words import counted
from asyncfin.table.panel import Panel

_SERIES_FIELDS = (
    "series_id",
    "reporting_group_id",
    "metric_id",
    "label",
    "basis",
    "scopes",
    "number_format",
    "period_meaning",
)
_COLUMN_GAP = 2
_MOST_PERIODS = 12

Unit = Literal["thousands", "millions", "billions"]
_POWERS: dict[Unit, int] = {"thousands": 3, "millions": 6, "billions": 9}


def panel_document(panel: Panel) -> dict[str, Any]:
    """Return the query answer of spec 2.4 in whole, and what else the panel knows."""
    dataset = panel.dataset
    return {
        "entity_id": dataset.entity_id,
        "name": dataset.name,
        "dataset_id": dataset.dataset_id,
        "created_timestamp": dataset.created_timestamp,
        "value_version": panel.value_version,
        "periods": panel.periods,
        "series": [
            {name: getattr(series, name) for name in _SERIES_FIELDS} | {"values": series.values}
            for series in panel
        ],
        "unlisted": panel.unlisted,
        "anchor": panel.anchor,
        "requests": panel.requests,
    }


def print_panel_csv(panel: Panel) -> None:
    """Print a line for each series: what it is, then its numbers by period."""
    heads = ("series_id", "metric_id", "label", "scopes", "reporting_group_id", "basis")
    periods = [period.label for period in panel.periods]
    # All of it first: a value that breaks the spec must not leave half a file behind.
    rows = [[*_names(series), *_numbers(series)] for series in panel]
    print_csv([*heads, *periods], rows)


def _names(series: Series) -> tuple[str, ...]:
    path = format_path(series.scopes)
    return series.series_id, series.metric_id, series.label, path, series.reporting_group_id, series.basis


def _numbers(series: Series) -> list[int | float | None]:
    return [None if value is None else value.number for value in series.values]


def print_panel(
    panel: Panel, console: Console, *, latest: bool = False, empty: bool = False, unit: Unit | None = None
) -> None:
    """Print a panel's name, its tables one below the other, and what is known about it as a whole.

    Args:
        latest: Of more than 12 periods, only the latest that fit into one table.
        empty: Series without a value too.
        unit: What whole numbers are divided by.
    """
    title, *lines = str(panel).splitlines()
    shown = panel if empty else panel.where(_has_value)
    if latest and len(panel.periods) > _MOST_PERIODS:
        shown = _latest(shown, console.width, empty, unit)
    console.print(title, style="bold")
    if heading := _heading(shown, unit):
        console.print(heading)
    console.print()
    if len(shown) and shown.periods:
        for table in _tables(shown, console.width, unit):
            console.print(table)
            console.print()
    notes = _left_out(panel, shown)
    console.print("\n".join([*notes, *lines, counted(panel.requests, "request")]), style="dim")


def _has_value(series: Series) -> bool:
    return any(value is not None for value in series.values)


def _latest(panel: Panel, width: int, empty: bool, unit: Unit | None) -> Panel:
    """Return the panel of its latest periods that fit side by side, of 12 at most."""
    few = panel.during(panel.periods[-_MOST_PERIODS:])
    few = few if empty else few.where(_has_value)
    if not len(few):
        return few
    heads, names = _row_names(few)
    widths = [cell_len(column[0]) for column in _period_columns(few, unit)]
    _, fitting = next(_runs(widths[::-1], _room(_left_widths(heads, names, width), width)))
    few = few.during(few.periods[-fitting:])
    return few if empty else few.where(_has_value)


def _heading(panel: Panel, unit: Unit | None) -> str:
    """Return what holds for the whole table: the label that all series share, and the unit."""
    parts = []
    if len(panel) and "series" not in _row_names(panel)[0]:
        parts.append(next(iter(panel)).label)
    if unit is not None:
        parts.append(f"whole numbers in {unit}")
    return ", ".join(parts)


def _left_out(panel: Panel, shown: Panel) -> Iterator[str]:
    """Yield a line for the periods, and one for the series, that the table lacks."""
    where = ""
    if hidden := len(panel.periods) - len(shown.periods):
        where = " in these periods"
        yield (
            f"the latest of {len(panel.periods)} periods; {hidden} not shown: name periods,"
            " such as --annual, or take --csv or --json"
        )
    if empty := len(panel) - len(shown):
        yield f"{empty:,} series without a value{where} left out (--all shows them)"


def _tables(panel: Panel, width: int, unit: Unit | None) -> Iterator[Table]:
    """Yield tables of as many periods as fit side by side, the oldest first."""
    heads, names = _row_names(panel)
    columns = list(_period_columns(panel, unit))
    left = _left_widths(heads, names, width)
    widths = [cell_len(column[0]) for column in columns]
    for start, end in _runs(widths, _room(left, width)):
        # One column of ready lines: a cell each would take rich half a minute for a large panel.
        title, *lines = map((" " * _COLUMN_GAP).join, zip(*columns[start:end], strict=True))
        table = bare_table(*heads, right=[title])
        for column, cap in zip(table.columns, left, strict=False):
            column.max_width = cap
        for row, line in zip(names, lines, strict=True):
            table.add_row(*row, line)
        yield table


def _left_widths(heads: Sequence[str], names: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return how wide the columns are that name the series: half of the whole width at most."""
    return _shrunk([_widest(column) for column in zip(heads, *names, strict=True)], width // 2)


def _room(left: Sequence[int], width: int) -> int:
    """Return what the named columns leave for periods."""
    return width - sum(left) - _COLUMN_GAP * (len(left) - 1)


def _period_columns(panel: Panel, unit: Unit | None) -> Iterator[list[str]]:
    """Yield the texts of each period, its label first, right-aligned."""
    rows = (series.values for series in panel)
    for period, values in zip(panel.periods, zip(*rows, strict=True), strict=True):
        texts = [period.label, *(_text(value, unit) if value else GAP for value in values)]
        width = _widest(texts)
        yield [" " * (width - cell_len(text)) + text for text in texts]


def _text(value: Value, unit: Unit | None) -> str:
    """Return a value's text; in a unit, unless its pattern has decimals or is a percentage, or it is 0."""
    if unit is None or not value.number or set(".%") & set(value.number_format):
        return value.text
    return f"{Decimal(value.number).scaleb(-_POWERS[unit]):,.1f}"


def _row_names(panel: Panel) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and texts of the columns that tell the series apart: label, scopes, group.

    Where nothing does, the label.
    """
    named = {
        "series": [series.label for series in panel],
        "scopes": [" / ".join(panel.catalogue.scope_names(series.scopes)) for series in panel],
        "group": [series.reporting_group_id for series in panel],
    }
    telling = {head: texts for head, texts in named.items() if len(set(texts)) > 1}
    shown = telling or {"series": named["series"]}
    return tuple(shown), list(zip(*shown.values(), strict=True))


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts))


def _shrunk(widths: list[int], room: int) -> list[int]:
    """Take from the widest columns until all fit into the room."""
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    return widths


def _runs(widths: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Cut columns of these widths into runs that fit into the room, of one column at least."""
    start = used = 0
    for index, width in enumerate(widths):
        if index > start and used + width + _COLUMN_GAP > room:
            yield start, index
            start, used = index, 0
        used += width + _COLUMN_GAP
    yield start, len(widths)
