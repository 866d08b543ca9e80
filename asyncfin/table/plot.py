"""The quick look: numbers over fiscal time, as lines. A line is of one series and one duration, because a
year and its quarters are different quantities.
"""

from collections.abc import Iterator
from typing import Any

from attrs import evolve, frozen

from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.table.grid import Grid
from asyncfin.table.optional import library

# More lines can't be told apart.
_MOST_LINES = 10
_MOST_TICKS = 10
_MAGNITUDES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


@frozen
class _Line:
    label: str
    duration: int
    points: tuple[tuple[Period, float], ...]


def plot(grid: Grid, ax: Any) -> Any:
    """Draw the numbers of each series against the fiscal ends of their periods, and return the axes."""
    pyplot = library("matplotlib.pyplot", "plot")
    lines = _lines(grid)
    if ax is None:
        _, ax = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    for line in lines:
        ends = [period.fiscal_end for period, _ in line.points]
        ax.plot(ends, [number for _, number in line.points], marker="o", markersize=3, label=line.label)
    ax.set_title(", ".join([grid.catalogue.name, *_shared(_names(grid))]), loc="left", wrap=True)
    ax.yaxis.set_major_formatter(lambda number, _: _short(number))
    ax.grid(alpha=0.3)
    _label_ends(ax, lines)
    if lines:
        ax.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(0, -0.08))
    return ax


def _lines(grid: Grid) -> list[_Line]:
    """Return what to draw.

    Raises:
        SelectionError: it is too much for one picture.
    """
    lines = list(_all_lines(grid))
    if len(lines) > _MOST_LINES:
        raise SelectionError(
            f"a plot must have at most {_MOST_LINES} lines, one for each series and duration,"
            f" not {len(lines)}: cut the panel with where() and during()"
        )
    if len({line.duration for line in lines}) > 1:
        return [evolve(line, label=f"{line.label}, {line.duration} months") for line in lines]
    return lines


def _all_lines(grid: Grid) -> Iterator[_Line]:
    names = _names(grid)
    shared = _shared(names)
    for series, parts in zip(grid.series, names, strict=True):
        own = [part for part in parts if part not in shared] or [series.label]
        by_duration: dict[int, list[tuple[Period, float]]] = {}
        for index, number in zip(*grid.observations(series.series_id), strict=True):
            period = grid.periods[index]
            by_duration.setdefault(period.duration_months, []).append((period, number))
        for duration, points in sorted(by_duration.items()):
            yield _Line(", ".join(own), duration, tuple(points))


def _names(grid: Grid) -> list[tuple[str, str, str]]:
    """Return what tells each series from others, for people."""
    return [(each.label, grid.path_names(each), each.reporting_group_id) for each in grid.series]


def _shared(names: list[tuple[str, str, str]]) -> list[str]:
    """Return the parts that are the same in all names: they belong into the title."""
    return [parts[0] for parts in zip(*names, strict=True) if len(set(parts)) == 1]


def _label_ends(ax: Any, lines: list[_Line]) -> None:
    """Write period labels where all lines are of one duration, and else the last months of fiscal years."""
    periods = {period for line in lines for period, _ in line.points}
    labels = {period.fiscal_end: period.label for period in sorted(periods)}
    if len({line.duration for line in lines}) > 1:
        years = range(min(periods).year - 1, max(periods).year + 1)
        labels = {year * 12 + 12: f"{year:04d}-12" for year in years}
    ends = sorted(labels)
    shown = ends[:: -(-len(ends) // _MOST_TICKS) or 1]
    ax.set_xticks(shown, [labels[end] for end in shown], fontsize="small")


def _short(number: float) -> str:
    for size, letter in _MAGNITUDES:
        if abs(number) >= size:
            return f"{number / size:,.4g} {letter}"
    return f"{number:,.4g}"
