"""A panel on standard output: as tables for people, as a JSON document, as CSV (docs/cli.md)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from asyncfin.cli.output import GAP, bare_table, print_csv
from asyncfin.cli.session import counted
from asyncfin.model.scope import format_path
from asyncfin.model.series import Series
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


def print_panel(panel: Panel, console: Console) -> None:
    """Print a panel's name, its tables one below the other, and what is known about it as a whole."""
    title, *lines = str(panel).splitlines()
    console.print(title, style="bold")
    console.print()
    if len(panel) and panel.periods:
        for table in _tables(panel, console.width):
            console.print(table)
            console.print()
    console.print("\n".join([*lines, counted(panel.requests, "request")]), style="dim")


def _tables(panel: Panel, width: int) -> Iterator[Table]:
    """Yield tables of as many periods as fit side by side, the oldest first."""
    heads, names = _row_names(panel)
    columns = list(_period_columns(panel))
    left = _shrunk([_widest(column) for column in zip(heads, *names, strict=True)], width // 2)
    widths = [cell_len(column[0]) for column in columns]
    for start, end in _runs(widths, width - sum(left) - _COLUMN_GAP * (len(left) - 1)):
        # One column of ready lines: a cell each would take rich half a minute for a large panel.
        title, *lines = map((" " * _COLUMN_GAP).join, zip(*columns[start:end], strict=True))
        table = bare_table(*heads, right=[title])
        for column, cap in zip(table.columns, left, strict=False):
            column.max_width = cap
        for row, line in zip(names, lines, strict=True):
            table.add_row(*row, line)
        yield table


def _period_columns(panel: Panel) -> Iterator[list[str]]:
    """Yield the texts of each period, its label first, right-aligned."""
    rows = (series.values for series in panel)
    for period, values in zip(panel.periods, zip(*rows, strict=True), strict=True):
        texts = [period.label, *(value.text if value else GAP for value in values)]
        width = _widest(texts)
        yield [" " * (width - cell_len(text)) + text for text in texts]


def _row_names(panel: Panel) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the heads and texts of the columns that tell the series apart: label, then scopes and group."""
    named = {
        "series": [series.label for series in panel],
        "scopes": [" / ".join(panel.catalogue.scope_names(series.scopes)) for series in panel],
        "group": [series.reporting_group_id for series in panel],
    }
    shown = {head: texts for head, texts in named.items() if head == "series" or len(set(texts)) > 1}
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
