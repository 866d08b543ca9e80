"""CSV with a line for each series, and cells that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

from asyncfin.clock import utc_text
from asyncfin.model.period import Period
from asyncfin.model.series import (
    COLUMN_OF,
    LEFT_OUT,
    SERIES_FIELDS,
    CatalogueSeries,
    cell_of,
)
from asyncfin.table.comparison import periods_of
from asyncfin.table.notes import NOT_REQUESTED
from asyncfin.table.panel import Panel

ENTITY_COLUMNS = ("entity_id", "entity_name")
_FIRST = (
    "series_id",
    "metric_id",
    "label",
    "scopes",
    "reporting_group_id",
    "basis",
    "description",
    "number_format",
)
_FURTHER = tuple(
    name for name in SERIES_FIELDS if name not in (*_FIRST, *LEFT_OUT["csv"])
)
SERIES_COLUMNS = (
    *(COLUMN_OF[name] for name in _FIRST),
    "asked_version",
    "published",
    *(COLUMN_OF[name] for name in _FURTHER),
)


def csv_cell(text: str) -> str:
    """Return a text with an apostrophe before what a spreadsheet would take for a
    formula.

    Every line of the text counts, as a program may split it there.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("+3.2%"), csv_cell("- none")
    ("'=1+1", '-1.5', '+3.2%', "'- none")
    """
    return _LINES.sub(_guard, text)


# Some spreadsheets take the signs of full width (U+FF1D and others) for the usual ones.
_LINES = re.compile(
    r"\A\r|(?:^|(?<=[\r\n]))[^\S\r\n]*[=+\-@\t\uff1d\uff0b\uff0d\uff20][^\r\n]*"
)


def _guard(line: re.Match[str]) -> str:
    # Numbers with a sign stay numbers: a spreadsheet reads those as they are meant.
    is_number = re.fullmatch(r"[+-]?\d+(\.\d+)?%?", line[0], re.ASCII)
    return line[0] if is_number else f"'{line[0]}"


def series_cells(panel: Panel, series: CatalogueSeries) -> list[str | None]:
    """Return the cells of `SERIES_COLUMNS`, which are equal in all forms of CSV."""
    return [
        *(cell_of(series, name) for name in _FIRST),
        panel.value_version,
        utc_text(panel.dataset.created_timestamp),
        *(cell_of(series, name) for name in _FURTHER),
    ]


def exact(number: float) -> int | float:
    """Return a number as it is written: a whole one as an int, which has no
    exponent.
    """
    return int(number) if number == int(number) else number


def csv_rows(
    panels: Sequence[Panel], *, empty: bool = True, entities: bool = False
) -> Iterator[list[Any]]:
    """Yield the head, then a row for each series: what it is, and a number or None for
    each period.

    A period that was not requested has a sign.

    Args:
        empty: series without a value too.
        entities: begin each row with its entity.

    Raises:
        MalformedAnswerError: a value violates the spec.
    """
    # So that one column means one fiscal period in each row.
    periods = periods_of(panels)
    heads = ENTITY_COLUMNS if entities else ()
    yield [*heads, *SERIES_COLUMNS, *(period.label for period in periods)]
    for panel in panels:
        of_entity = (panel.dataset.entity_id, panel.dataset.name) if entities else ()
        signs: dict[Period, Any] = {
            period: NOT_REQUESTED for period in periods if not panel.covers(period)
        }
        for series in panel:
            numbers = {
                period: exact(value.number) for period, value in series.observations()
            }
            if numbers or empty:
                cells = series_cells(panel, panel.catalogue[series.series_id])
                yield [*of_entity, *cells, *map((signs | numbers).get, periods)]


def to_csv(panel: Panel) -> str:
    """Return a panel as CSV (RFC 4180): a line for each series, with a column for each
    period.

    Raises:
        MalformedAnswerError: a value violates the spec.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    for row in csv_rows([panel]):
        writer.writerow(
            [csv_cell(each) if isinstance(each, str) else each for each in row]
        )
    return text.getvalue()
