"""Panels as CSV: a line for each series, and a column for each period."""

from collections.abc import Iterator, Sequence
from typing import Any

from asyncfin.csv import csv_text
from asyncfin.model.period import Period
from asyncfin.table.rows import SERIES_COLUMNS, Row, rows_of
from asyncfin.table.why import Result
from asyncfin.text import NOT_REQUESTED


def to_csv(panels: Sequence[Result], *, empty: bool, raw: bool, entities: bool) -> str:
    """Return panels as CSV, as `Panel.to_csv` does.

    Args:
        entities: begin each line with its entity.
    """
    return csv_text(_lines(panels, empty, entities), raw=raw)


def _lines(
    panels: Sequence[Result], empty: bool, entities: bool
) -> Iterator[list[Any]]:
    grids = [panel._grid for panel in panels]
    # A column means the same fiscal period in each line.
    periods = sorted({period for grid in grids for period in grid.rows_of_wide})
    heads = Row.columns if entities else SERIES_COLUMNS
    yield [*heads, *(period.label for period in periods)]
    for row in rows_of(grids):
        if row.values or empty:
            fields = row.fields
            yield [
                *(fields[head] for head in heads),
                *(_cell(row, period) for period in periods),
            ]


def _cell(row: Row, period: Period) -> float | str | None:
    if (value := row.values.get(period)) is not None:
        return value.number
    return None if row.grid.covers(period) else NOT_REQUESTED
