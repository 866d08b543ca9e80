"""Plots of panels: numbers over fiscal time, as lines.

A line is of one series and one duration, because a year and its quarters are different
quantities. Lines of different number formats do not share a scale, on which a ratio
next to billions would be flat: the service has no field for the unit, and the number
format is what differs between amounts, ratios and percentages. Nor do percentages that
are numbers such as 0.12 and such as 12.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from math import ceil, floor, log10
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
from asyncfin.table.rows import Row, rows_of
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
# For each inch of the axes' width: ticks with a label each, and characters of the
# title and of the legend.
_TICKS = 1.2
_CHARACTERS = 10
# The label of the y axis: how many descriptions, characters of each, and characters of
# a line.
_MOST_LABELS = 3
_LONGEST_LABEL = 180
_LABEL_WIDTH = 60
# Over fewer months than this every period is labelled; over more, only year ends.
_SHORT_SPAN = 24
_MAGNITUDES = {1e12: " T", 1e9: " B", 1e6: " M", 1e3: " k"}


@frozen(eq=False)
class _Line:
    """The observations of a series in periods of one duration.

    Attributes:
        step: the months from one such period to the next in the catalogue. Where an
            observation follows later than that, there is a gap.
    """

    row: Row
    duration: int
    points: Sequence[tuple[Period, float]]
    step: int

    @property
    def scale(self) -> tuple[str, int]:
        """What lines of one pair of axes have in common."""
        return self.row.series.number_format, self.row.percent

    def coordinates(self) -> tuple[list[int], list[float]]:
        """Return fiscal ends and numbers; NaN between them breaks the line."""
        ends: list[int] = []
        numbers: list[float] = []
        for period, number in self.points:
            if ends and period.fiscal_end - ends[-1] > self.step:
                ends.append(ends[-1] + self.step)
                numbers.append(float("nan"))
            ends.append(period.fiscal_end)
            numbers.append(number)
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
    earlier: list[_Line] = []
    if ax is not None:
        checks.instance_of(library("matplotlib.axes", "plot").Axes)("ax", ax)
        earlier = [_LINES[artist] for artist in ax.lines if artist in _LINES]
    lines = [line for grid in grids for line in _read_lines(grid)]
    charts: dict[tuple[str, int], list[_Line]] = {}
    for line in [*earlier, *lines]:
        charts.setdefault(line.scale, []).append(line)
    _check_lines(grids, lines, len(earlier), len(charts) > 1 and ax is not None)
    all_axes: list[Any] = [ax]
    if ax is None:
        height = max(_HEIGHT, _STACKED_HEIGHT * len(charts))
        _, stack = pyplot.subplots(
            len(charts),
            sharex=True,
            squeeze=False,
            figsize=(_WIDTH, height),
            layout="constrained",
        )
        all_axes = list(stack[:, 0])
    colours = Row.colours(
        [[(line.row, line.duration) for line in chart] for chart in charts.values()],
        [
            *(line.row.entity_id for line in earlier),
            *(grid.catalogue.entity_id for grid in grids),
        ],
    )
    missing = _name_missing(grids, lines)
    for axes, chart in zip(all_axes, charts.values(), strict=True):
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
        _describe(axes, missing if axes is all_axes[0] else "")
        _label_ends(axes, [*earlier, *lines])
        axes.tick_params(labelbottom=True)
        percent = chart[0].row.percent
        axes.yaxis.set_major_formatter(partial(_format_tick, axes, percent))
        axes.grid(alpha=0.3)
    catalogues = [line.row.grid.catalogue for line in [*earlier, *lines]]
    dates = sorted(
        {f"{catalogue.created_timestamp:%Y-%m-%d}" for catalogue in catalogues}
    )
    plural = "s" if len(dates) > 1 else ""
    text = f"fiscal periods; publication{plural} of {spanned(dates)}"
    all_axes[-1].set_xlabel(text, fontsize="small")
    first_axes: Axes = all_axes[0]
    return first_axes


def _check_lines(
    grids: Sequence[Grid], lines: Sequence[_Line], earlier: int, has_formats: bool
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
    if has_formats:
        raise SelectionError(
            "ax takes series of a single number format: leave it out, or draw "
            "panel.where(lambda series: series.number_format == ...) into axes for each"
        )


def _read_lines(grid: Grid) -> Iterator[_Line]:
    step_of = steps([*grid.catalogue.periods, *grid.periods])
    for row in rows_of([grid]):
        by_duration: dict[int, list[tuple[Period, float]]] = {}
        for index, number in zip(*grid.observations(row.series.series_id), strict=True):
            period = grid.periods[index]
            by_duration.setdefault(period.duration_months, []).append((period, number))
        for duration, points in sorted(by_duration.items()):
            yield _Line(row, duration, points, step_of.get(duration, duration))


def _name_missing(grids: Sequence[Grid], lines: Sequence[_Line]) -> str:
    """Name the series without a value, and the companies without a series."""
    rows = rows_of(grids)
    drawn = {(line.row.grid, line.row.series) for line in lines}
    names = name_rows(rows, group_names=True)
    texts = [
        join_texts(names.texts[row])
        for row in rows
        if (row.grid, row.series) not in drawn
    ]
    texts += [grid.catalogue.name for grid in grids if not grid.series]
    return listed([*dict.fromkeys(map(_cut, texts))], _MOST_EMPTY)


def _describe(ax: "Axes", missing: str) -> None:
    """Write what the lines share into the title, and the others into the legend.

    Args:
        missing: the names of what has no value.
    """
    characters = max(1, int(_measure_inches(ax) * _CHARACTERS))
    lines = {artist: _LINES[artist] for artist in ax.lines if artist in _LINES}
    rows = list(dict.fromkeys(line.row for line in lines.values()))
    names = name_rows(rows, group_names=True)
    has_durations = len({line.duration for line in lines.values()}) > 1
    for artist, line in lines.items():
        texts = [VERSION_WORDS.get(text, _cut(text)) for text in names.texts[line.row]]
        if has_durations:
            texts.append(f"{line.duration} months")
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
    handles: list[Any] = list(lines)
    if missing:
        line = library("matplotlib.lines", "plot").Line2D
        label = _wrap(f"no value: {missing}", characters)
        handles.append(line([], [], linestyle="none", label=label))
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    if len(handles) == 1:
        return
    # Without a layout engine the figure has no room for a legend below the axes.
    place: dict[str, Any] = {}
    if ax.figure.get_layout_engine():
        place = {"loc": "upper left", "bbox_to_anchor": (0, -0.1)}
    ax.legend(handles=handles, fontsize="small", frameon=False, **place)


def _name_units(rows: Sequence[Row]) -> str:
    """Return the descriptions of the rows, which state their units, as the label of an
    axis.
    """
    # With one description the title or the legend names what it is of.
    descriptions = list({row.series.description.strip() for row in rows})
    if len(descriptions) > 1:
        descriptions = list(describe_rows(rows))
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
    step = ceil(len(labels) / max(1, _measure_inches(ax) * _TICKS))
    shown = sorted(labels)[::-step][::-1]
    ax.set_xticks(shown, [labels[end] for end in shown], fontsize="small")


def _format_tick(ax: "Axes", percent: int, number: float, _: object = None) -> str:
    """Return the label of a tick, which is exactly its number.

    Args:
        percent: what the numbers are multiplied by to be percent; 0: they are not.
    """
    low, high = ax.get_ylim()
    # What is far below the distance of ticks is noise of the arithmetic.
    number = round(float(number), 4 - floor(log10(abs(high - low))))
    if percent:
        return f"{number * percent:,.15g}%"
    sizes = [size for size in _MAGNITUDES if abs(number) >= size]
    size = max(sizes, default=1.0)
    return f"{number / size:,.15g}{_MAGNITUDES.get(size, '')}"


def _measure_inches(ax: "Axes") -> float:
    width: float = ax.get_window_extent().width / ax.figure.dpi
    return width


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
