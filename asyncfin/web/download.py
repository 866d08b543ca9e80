"""What a visitor takes away: the values of a view as CSV, and the names of files."""

import csv
import io
import re
from collections.abc import Sequence

from asyncfin.table.comparison import periods_of
from asyncfin.table.csv import SERIES_COLUMNS, csv_cell, exact, series_cells
from asyncfin.table.notes import GAP
from asyncfin.web.views import Group

_LONGEST_NAME = 60
# Digits of a number that is computed; further ones would be those of the arithmetic.
_SIGNIFICANT = 12


def view_csv(groups: Sequence[Group]) -> str:
    """Return a view as CSV (RFC 4180): a line for each series and each period of the
    panels, oldest first.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    columns = ("period_label", "view", "unit", "number", "shown", "text")
    writer.writerow(["entity_id", "entity_name", *SERIES_COLUMNS, *columns])
    periods = periods_of({row.panel: None for group in groups for row in group.rows})
    for group in groups:
        for row in group.rows:
            dataset = row.panel.dataset
            names = [
                dataset.entity_id,
                dataset.name,
                *series_cells(row.panel, row.panel.catalogue[row.series.series_id]),
            ]
            for period in periods:
                cell, value = group.cell(row, period), row.values.get(period)
                shown = cell.number
                if shown is not None and group.view != "values":
                    shown = float(f"{shown:.{_SIGNIFICANT}g}")
                line = [
                    *names,
                    period.label,
                    group.described,
                    (row.shown.unit if group.view == "values" else None) or "",
                    "" if value is None else exact(value.number),
                    "" if shown is None else exact(shown),
                    "" if cell.text == GAP else cell.text,
                ]
                writer.writerow(
                    [csv_cell(each) if isinstance(each, str) else each for each in line]
                )
    return text.getvalue()


def file_stem(companies: Sequence[str], view: str, title: str = "") -> str:
    """Return the name of a file without its suffix: the first company, how many more,
    and what it shows.
    """
    first, *others = companies or [""]
    more = f"and-{len(others)}-more" if others else ""
    parts = (
        _plain(first) or "company",
        more,
        _plain(title),
        "" if view == "values" else view,
    )
    return "-".join(filter(None, parts))


def _plain(text: str) -> str:
    # Headers and file systems agree on these characters.
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:_LONGEST_NAME]
