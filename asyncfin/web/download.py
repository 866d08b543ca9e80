"""What a visitor takes away: the values of a view as CSV, and the names of files."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from asyncfin.csv import csv_text
from asyncfin.text import GAP
from asyncfin.typing import Row
from asyncfin.web.views import Group

_LONGEST_NAME = 60
# Digits of a number that is computed; further ones would be those of the arithmetic.
_SIGNIFICANT = 12


def view_csv(groups: Sequence[Group]) -> str:
    """Return a view as CSV (RFC 4180): a line for each series and each period of the
    panels, oldest first.
    """
    return csv_text(_lines(groups))


def _lines(groups: Sequence[Group]) -> Iterator[list[Any]]:
    columns = ("period_label", "view", "unit", "number", "shown", "text")
    yield [*Row.columns, *columns]
    panels = {row.panel for group in groups for row in group.rows}
    periods = sorted({period for panel in panels for period in panel.periods_with_gaps})
    for group in groups:
        for row in group.rows:
            fields = row.shown.fields
            for period in periods:
                cell, value = group.cell(row, period), row.values.get(period)
                shown = cell.number
                if shown is not None and group.view != "values":
                    shown = float(f"{shown:.{_SIGNIFICANT}g}")
                yield [
                    *fields.values(),
                    period.label,
                    group.described,
                    (row.shown.unit if group.view == "values" else None) or "",
                    None if value is None else value.number,
                    shown,
                    "" if cell.text == GAP else cell.text,
                ]


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
