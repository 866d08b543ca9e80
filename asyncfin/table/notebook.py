"""How a panel looks in a notebook."""

from collections.abc import Iterable
from html import escape

from asyncfin.model.series import CatalogueSeries
from asyncfin.table.grid import Grid

_SHOWN_SERIES = 12
_SHOWN_PERIODS = 8


def panel_html(grid: Grid, lines: Iterable[str]) -> str:
    """Return a panel's description and its first series at its latest periods, as HTML."""
    head = "<br>".join(map(escape, lines))
    shown = range(max(0, len(grid.periods) - _SHOWN_PERIODS), len(grid.periods))
    titles = "".join(f"<th>{escape(grid.periods[index].label)}</th>" for index in shown)
    rows = "".join(_row(grid, series, shown) for series in grid.series[:_SHOWN_SERIES])
    left_out = len(grid.series) - _SHOWN_SERIES
    foot = f"<p>and {left_out} more series</p>" if left_out > 0 else ""
    return (
        f"<p>{head}</p><table><thead><tr><th>series</th><th>scopes</th>{titles}</tr></thead>"
        f"<tbody>{rows}</tbody></table>{foot}"
    )


def _row(grid: Grid, series: CatalogueSeries, shown: range) -> str:
    numbers = dict(zip(*grid.observations(series.series_id), strict=True))
    cells = "".join(f"<td>{_number(numbers[at]) if at in numbers else ''}</td>" for at in shown)
    names = escape(grid.path_names(series))
    return f"<tr><th>{escape(series.label)}</th><td>{names}</td>{cells}</tr>"


def _number(number: float) -> str:
    return f"{number:,.0f}" if number.is_integer() else f"{number:,.6g}"
