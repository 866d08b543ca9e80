"""CSV with a line for each series, and cells that no spreadsheet takes for formulas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import Any

from asyncfin.model.period import Period
from asyncfin.model.scope import format_path
from asyncfin.model.series import Series
from asyncfin.table.comparison import sign
from asyncfin.table.notes import NOT_REQUESTED
from asyncfin.table.panel import Panel

SERIES_COLUMNS = ("series_id", "metric_id", "label", "scopes", "reporting_group_id", "basis", "description")


def csv_cell(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would take it for a formula.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("- none")
    ("'=1+1", '-1.5', "'- none")
    """
    # Numbers with a sign stay numbers: a spreadsheet reads those as they are meant. Some take the signs of
    # full width (U+FF1D and others) for the usual ones.
    if not re.match(r"\s*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]", text) or re.fullmatch(
        r"[+-]?\d+(\.\d+)?", text, re.ASCII
    ):
        return text
    return f"'{text}"


def csv_row(panel: Panel, series: Series, periods: Sequence[Period]) -> list[Any]:
    """Return what a series is, and its numbers; a period that was not requested has a sign."""
    numbers: dict[Period, Any] = {
        period: NOT_REQUESTED for period in periods if sign(panel, period) == NOT_REQUESTED
    }
    numbers |= {period: value.number for period, value in series.observations()}
    path = format_path(series.scopes)
    names = (series.series_id, series.metric_id, series.label, path, series.reporting_group_id, series.basis)
    return [*names, panel.catalogue[series.series_id].description, *map(numbers.get, periods)]


def to_csv(panel: Panel) -> str:
    """Return a panel as CSV (RFC 4180): a line for each series, with a column for each period.

    Raises:
        MalformedAnswerError: a value violates the spec.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*SERIES_COLUMNS, *(period.label for period in panel.periods)])
    for series in panel:
        row = csv_row(panel, series, panel.periods)
        writer.writerow([csv_cell(each) if isinstance(each, str) else each for each in row])
    return text.getvalue()
