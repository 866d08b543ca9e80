"""Plots of panels: numbers over fiscal time, as lines.

A line is of one series and one duration, because a year and its quarters are different
quantities. Lines of different number formats do not share a scale, on which a ratio
next to billions would be flat: the service has no field for the unit, and the number
format is what differs between amounts, ratios and percentages. Nor do percentages that
are numbers such as 0.12 and such as 12.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from attrs import frozen

from asyncfin import checks
from asyncfin.errors import SelectionError, printable, shorten, shorten_middle
from asyncfin.model.period import Period
from asyncfin.optional import library
from asyncfin.table.gaps import steps
from asyncfin.table.grid import Grid
from asyncfin.table.naming import join_texts, name_rows
from asyncfin.table.notes import describe_rows
from asyncfin.table.rows import Row, rows_of, tick_text
from asyncfin.words import VERSION_WORDS, listed, spanned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

# More lines cannot be distinguished.
MOST_LINES = 10
# A colour comes again with another dash.
_COLOURS = 10
_DASHES = ("-", "--", ":", "-.")
# How many names without a value a legend has.
_MOST_EMPTY = 6
# The size of a figure in inches: with one axes, and the height of each of several.
_WIDTH = 9.0
_HEIGHT = 5.5
_STACKED_HEIGHT = 4.0
# From the axes down to the legend, for the labels of the ticks.
_LEGEND_GAP = 0.35
# The label of the y axis: how many descriptions, characters of each, and characters of
# a line.
_MOST_LABELS = 3
_LONGEST_LABEL = 180
_LABEL_WIDTH = 60
# For each inch of the axes' width: ticks with a label each, and characters of the
# title and of the legend.
_TICKS = 1.2
_CHARACTERS = 10
# Over fewer months than this every period is labelled; over more, only year ends.
_SHORT_SPAN = 24


@frozen(eq=False)
class _Line:
    """The observations of a series in periods of one duration.

    Attributes:
        step: the months from one such period to the next in the catalogue. Where an
            observation follows later than that, there is a gap.
    """

    row: Row
    duration: int
    points: tuple[tuple[Period, float], ...]
    step: int

    @property
    def scale(self) -> tuple[str, int]:
        """What lines of one pair of axes have in common."""
        return self.row.series.number_format, self.row.percent

    def coordinates(self) -> tuple[list[int], list[float]]:
        """Return fiscal ends and numbers; NaN between them breaks the line."""
        ends, numbers = [], []
        for (period, number), (following, _) in pairwise(
            [*self.points, self.points[-1]]
        ):
            ends.append(period.fiscal_end)
            numbers.append(number)
            if following.fiscal_end - period.fiscal_end > self.step:
                ends.append(period.fiscal_end + self.step)
                numbers.append(float("nan"))
        return ends, numbers


# What was drawn by which artist: title, legend and ticks hold for all panels on the
# same axes.
_LINES: "WeakKeyDictionary[Line2D, _Line]" = WeakKeyDictionary()


def draw(grids: Sequence[Grid], ax: "Axes | None" = None) -> "Axes":
    """Draw the numbers of each series, with separate axes for each number format.

    Args:
        ax: the axes to add to. None: a new figure.

    Returns:
        The given axes, or the first ones of the new figure.

    Raises:
        SelectionError: as for `Panel.plot`.
    """
    pyplot = library("matplotlib.pyplot", "plot")
    if ax is not None:
        checks.instance_of(library("matplotlib.axes", "plot").Axes)("ax", ax)
    lines = [line for grid in grids for line in _read_lines(grid)]
    earlier = [] if ax is None else list(_find_lines(ax).values())
    charts: dict[tuple[str, int], list[_Line]] = {}
    for line in [*earlier, *lines]:
        charts.setdefault(line.scale, []).append(line)
    _check_lines(grids, lines, len(earlier), len(charts) > 1 and ax is not None)
    if ax is not None:
        all_axes = [ax]
    else:
        height = _HEIGHT if len(charts) == 1 else _STACKED_HEIGHT * len(charts)
        _, stack = pyplot.subplots(
            len(charts),
            sharex=True,
            squeeze=False,
            figsize=(_WIDTH, height),
            layout="constrained",
        )
        all_axes = list(stack[:, 0])
    empty = _assign_empty(grids, charts)
    coloured_lines = []
    for chart, rows in zip(charts.values(), empty, strict=True):
        chart_lines = [(line.row, line.duration) for line in chart]
        coloured_lines.append([*chart_lines, *((row, 0) for row in rows)])
    entity_ids = [line.row.entity_id for line in earlier]
    entity_ids += [grid.catalogue.entity_id for grid in grids]
    colours = Row.colours(coloured_lines, entity_ids)
    without_series = [grid.catalogue.name for grid in grids if not grid.series]
    for axes, chart, rows in zip(all_axes, charts.values(), empty, strict=True):
        for line in chart[len(earlier) :]:
            number = colours[line.row, line.duration]
            (artist,) = axes.plot(
                *line.coordinates(),
                color=f"C{number % _COLOURS}",
                linestyle=_DASHES[number // _COLOURS % len(_DASHES)],
                marker="o",
                markersize=3,
            )
            _LINES[artist] = line
        others = without_series if axes is all_axes[0] else []
        _describe(axes, _find_lines(axes), rows, others)
        _label_ends(axes, [*earlier, *lines])
        axes.tick_params(labelbottom=True)
        percent = max(line.row.percent for line in chart)
        axes.yaxis.set_major_formatter(partial(_format_tick, axes, percent))
        axes.grid(alpha=0.3)
    catalogues = [line.row.grid.catalogue for line in [*earlier, *lines]]
    dates = sorted(
        {f"{catalogue.created_timestamp:%Y-%m-%d}" for catalogue in catalogues}
    )
    plural = "s" if len(dates) > 1 else ""
    text = f"fiscal periods; publication{plural} of {spanned(dates)}"
    all_axes[-1].set_xlabel(text, fontsize="small")
    return all_axes[0]


def _check_lines(
    grids: Sequence[Grid],
    lines: Sequence[_Line],
    earlier: int,
    has_other_formats: bool,
) -> None:
    """Reject what cannot be drawn, before the user's axes change."""
    if not lines:
        entities = " or ".join(dict.fromkeys(grid.catalogue.name for grid in grids))
        raise SelectionError(
            f"there is nothing to draw: no series of {entities} has a value here"
        )
    count = earlier + len(lines)
    if count > MOST_LINES:
        raise SelectionError(
            f"a plot must have at most {MOST_LINES} lines, one for each series and "
            f"duration, not {count}: select fewer series, or periods of one "
            "duration"
        )
    if has_other_formats:
        raise SelectionError(
            "ax takes series of a single number format: leave it out, or draw "
            "panel.where(lambda series: series.number_format == ...) into axes for each"
        )


def _find_lines(ax: "Axes") -> "dict[Line2D, _Line]":
    """Return the lines of panels on the axes, without those that the user has
    removed.
    """
    return {artist: _LINES[artist] for artist in ax.lines if artist in _LINES}


def _assign_empty(
    grids: Sequence[Grid], charts: Mapping[tuple[str, int], Sequence[_Line]]
) -> list[list[Row]]:
    """Return the rows without a line for each chart: that of their number format, else
    the first.
    """
    drawn = {
        (line.row.grid, line.row.series) for chart in charts.values() for line in chart
    }
    formats = [number_format for number_format, _ in charts]
    empty: list[list[Row]] = [[] for _ in charts]
    for row in rows_of(grids):
        if (row.grid, row.series) not in drawn:
            number_format = row.series.number_format
            place = formats.index(number_format) if number_format in formats else 0
            empty[place].append(row)
    return empty


def _read_lines(grid: Grid) -> Iterator[_Line]:
    step_of = steps([*grid.catalogue.periods, *grid.periods])
    for row in rows_of([grid]):
        by_duration: dict[int, list[tuple[Period, float]]] = {}
        for index, number in zip(*grid.observations(row.series.series_id), strict=True):
            period = grid.periods[index]
            by_duration.setdefault(period.duration_months, []).append((period, number))
        for duration, points in sorted(by_duration.items()):
            yield _Line(row, duration, tuple(points), step_of.get(duration, duration))


def _describe(
    ax: "Axes",
    lines: "Mapping[Line2D, _Line]",
    empty: Sequence[Row],
    entities: Sequence[str],
) -> None:
    """Write what the lines share into the title, and the others into the legend.

    Args:
        empty: the rows without a line.
        entities: the names of companies without a series.
    """
    inches = ax.get_window_extent().width / ax.figure.dpi
    characters = max(1, int(inches * _CHARACTERS))
    rows = list(dict.fromkeys(line.row for line in lines.values()))
    names = name_rows(rows, group_names=True)
    has_durations = len({line.duration for line in lines.values()}) > 1
    for artist, line in lines.items():
        texts = [
            VERSION_WORDS[text] if head == "values" else _cut(text)
            for head, text in zip(names.heads, names.texts[line.row], strict=True)
        ]
        texts += [f"{line.duration} months"] if has_durations else []
        artist.set_label(_wrap(join_texts(texts), characters))
    versions = dict.fromkeys(VERSION_WORDS[row.grid.value_version] for row in rows)
    shared = [
        _cut(text)
        for head, text in names.shared.items()
        if head not in ("values", "group")
    ]
    title = join_texts([*shared, " and ".join(versions)])
    ax.set_title(_wrap(title, characters), loc="left")
    ax.set_ylabel(_name_units(rows), fontsize="small")
    all_names = name_rows([*rows, *empty], group_names=True)
    without = [_cut(join_texts(all_names.texts[row])) for row in empty]
    without += map(_cut, entities)
    handles: list[Any] = list(lines)
    if without:
        text = listed(list(dict.fromkeys(without)), _MOST_EMPTY)
        line = library("matplotlib.lines", "plot").Line2D
        label = _wrap(f"no value: {text}", characters)
        handles.append(line([], [], linestyle="none", label=label))
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    if len(handles) == 1:
        return
    # Without a layout engine the figure has no room for a legend below the axes.
    below: dict[str, Any] = {}
    if ax.figure.get_layout_engine():
        down = library("matplotlib.transforms", "plot").ScaledTranslation(
            0, -_LEGEND_GAP, ax.figure.dpi_scale_trans
        )
        below = {
            "loc": "upper left",
            "bbox_to_anchor": (0, 0),
            "bbox_transform": ax.transAxes + down,
        }
    ax.legend(handles=handles, fontsize="small", frameon=False, **below)


def _name_units(rows: Sequence[Row]) -> str:
    """Return the descriptions of the rows, which state their units, as the label of an
    axis.
    """
    # With one description the title or the legend names what it is of.
    descriptions = list({row.series.description.strip() for row in rows})
    if len(descriptions) > 1:
        groups = {}
        for row in rows:
            by_group = row.grid.catalogue.by_group
            groups[row] = by_group[row.series.reporting_group_id].name
        descriptions = list(describe_rows(groups))
    lines: list[str] = []
    for text in descriptions[:_MOST_LABELS]:
        text = shorten_middle(text, _LONGEST_LABEL)
        lines += fill(text, _LABEL_WIDTH).splitlines()
    return "\n".join(map(_escape_markup, lines))


def _label_ends(ax: "Axes", lines: Collection[_Line]) -> None:
    """Put the ticks at year ends, with period labels; of few periods of one duration,
    at each of them.
    """
    durations = {line.duration for line in lines}
    labels = {
        period.fiscal_end: period.label for line in lines for period, _ in line.points
    }
    first, last = (round(end) for end in ax.dataLim.intervalx)
    # Ticks at every period would be uneven where quarters are missing, and be too many
    # over years.
    if len(durations) > 1 or last - first >= _SHORT_SPAN:
        duration = 3 if durations == {3} else 12
        years = range(-(-first // 12) - 1, last // 12)
        ends = [Period(year, 12, duration) for year in years]
        labels = {period.fiscal_end: period.label for period in ends} or labels
    # Thinned out from the latest tick, which readers look for.
    inches = ax.get_window_extent().width / ax.figure.dpi
    step = ceil(len(labels) / max(1, inches * _TICKS))
    shown = sorted(labels)[::-step][::-1]
    ax.set_xticks(shown, [labels[end] for end in shown], fontsize="small")


def _cut(text: str) -> str:
    """Return a text of the service as it is drawn: a name can have a megabyte."""
    return shorten(text, _LONGEST_LABEL)


def _wrap(text: str, characters: int) -> str:
    """Return a text in lines of so many characters, so that it fits its axes."""
    return "\n".join(map(_escape_markup, fill(text, characters).splitlines()))


def _escape_markup(text: str) -> str:
    """Return a text that matplotlib draws as it is: a dollar sign does not start a
    formula, and a leading underscore does not keep a line out of the legend."""
    text = printable(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _format_tick(ax: "Axes", percent: int, number: float, _: object = None) -> str:
    ticks = sorted({*map(float, ax.yaxis.get_majorticklocs()), float(number)})
    step = min((after - before for before, after in pairwise(ticks)), default=0.0)
    return tick_text(float(number), step or abs(number), percent)
