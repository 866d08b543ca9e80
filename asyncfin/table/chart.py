"""Plots of panels: numbers over fiscal time, as lines.

A line is of one series and one duration, because a year and its quarters are different
quantities. Lines of different number formats do not share a scale, on which a ratio
next to billions would be flat: the service has no field for the unit, and the number
format is what differs between amounts, ratios and percentages. Nor do percentages that
are numbers such as 0.12 and such as 12.
"""

from collections.abc import Collection, Sequence
from functools import partial
from itertools import islice
from math import ceil, floor, inf, log10
from operator import attrgetter
from textwrap import fill
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from attrs import frozen

from asyncfin import checks
from asyncfin.errors import SelectionError, printable, shorten_middle
from asyncfin.model.period import Period
from asyncfin.optional import library
from asyncfin.table.grid import DURATIONS, Grid, group_by_duration, group_pairs
from asyncfin.table.naming import join_texts, name_rows
from asyncfin.table.rows import Row, rows_of
from asyncfin.words import VERSION_WORDS, entity_names, listed

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
_MOST_TICKS = 10
# Characters of a line of the title and of the legend, and of the label of the y axis;
# how many descriptions this has, and characters of each.
_LINE_WIDTH = 85
_LABEL_WIDTH = 60
_MOST_LABELS = 3
# What the title has of what all lines share.
_TITLE_HEADS = ("entity", "series", "scopes")
_LONGEST_LABEL = 180
# How much of any text is drawn.
_LONGEST = 1_000
# Over fewer months than this every period is labelled; over more, only year ends.
_SHORT_SPAN = 24
# The largest first.
_MAGNITUDES = {
    1e12: " T",
    1e9: " B",
    1e6: " M",
    1e3: " k",
}

_read_entity_id = attrgetter("row.entity_id")
# What series of different reporting groups have in common.
_read_meaning = attrgetter(
    "entity_id",
    "grid.value_version",
    "series.metric_id",
    "series.scopes",
    "series.basis",
)


@frozen(eq=False)
class _Line:
    """The observations of a series in periods of one duration."""

    row: Row
    duration: int
    points: Sequence[tuple[Period, float]]

    @property
    def scale(self) -> tuple[str, int]:
        """What lines of one pair of axes have in common."""
        return self.row.series.number_format, self.row.percent

    def list_coordinates(self) -> tuple[list[int], list[float]]:
        """Return fiscal ends and numbers. NaN breaks the line at a gap."""
        step: float = inf
        if self.duration in DURATIONS:
            step = self.duration
        ends: list[int] = []
        numbers: list[float] = []
        for period, number in self.points:
            if ends and period.fiscal_end - ends[-1] > step:
                ends.append(ends[-1] + self.duration)
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
        earlier += _find_lines(ax).values()
    rows = rows_of(grids)
    lines: list[_Line] = []
    for row in rows:
        lines += _read_lines(row)
    all_lines = [*earlier, *lines]
    charts = group_pairs((line.scale, line) for line in all_lines)
    shares_axes = len(charts) > 1 and ax is not None
    _check_lines(grids, lines, len(earlier), shares_axes)
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
    entity_ids = list(map(_read_entity_id, earlier))
    entity_ids += map(attrgetter("catalogue.entity_id"), grids)
    colours = Row.colours(
        [list(map(_read_entity_id, chart)) for chart in charts.values()], entity_ids
    )
    missing = _name_missing(grids, all_lines, rows)
    for axes, chart, numbers in zip(all_axes, charts.values(), colours, strict=True):
        coloured_lines = zip(chart, numbers, strict=True)
        for line, number in islice(coloured_lines, len(earlier), None):
            (artist,) = axes.plot(
                *line.list_coordinates(),
                color=f"C{number % _COLOURS}",
                linestyle=_DASHES[number // _COLOURS % len(_DASHES)],
                marker="o",
                markersize=3,
            )
            _LINES[artist] = line
        _describe(axes, missing)
        missing = []  # the first axes name what has no line
        _label_ends(axes, all_lines)
        axes.tick_params(labelbottom=True)
        formatter = partial(_format_tick, axes, chart[0].row.percent)
        axes.yaxis.set_major_formatter(formatter)
        axes.grid(alpha=0.3)
    all_axes[-1].set_xlabel("fiscal periods", fontsize="small")
    first_axes: Axes = all_axes[0]
    return first_axes


def _find_lines(ax: "Axes") -> "dict[Line2D, _Line]":
    """Find the lines that were drawn on axes, by artist."""
    lines = {}
    for artist in ax.lines:
        if artist in _LINES:
            lines[artist] = _LINES[artist]
    return lines


def _check_lines(
    grids: Sequence[Grid],
    lines: Sequence[_Line],
    earlier_count: int,
    shares_axes: bool,
) -> None:
    """Reject what cannot be drawn, before the user's axes change.

    Args:
        earlier_count: the number of lines that the axes have already.
        shares_axes: whether different number formats would share the user's axes.
    """
    if not lines:
        names = dict.fromkeys(map(attrgetter("catalogue.name"), grids))
        raise SelectionError(
            f"there is nothing to draw: no series of {' or '.join(names)} has a value "
            "here"
        )
    count = earlier_count + len(lines)
    if count > MOST_LINES:
        raise SelectionError(
            f"a plot must have at most {MOST_LINES} lines, one for each series and "
            f"duration, not {count}: select fewer series, or periods of one "
            "duration"
        )
    if shares_axes:
        raise SelectionError(
            "ax takes series of a single number format: leave it out, or draw "
            "panel.where(lambda series: series.number_format == ...) into axes for each"
        )


def _name_missing(
    grids: Sequence[Grid], lines: Sequence[_Line], rows: Sequence[Row]
) -> list[str]:
    """Return the names of what has no line: companies, and series of the others.

    A series of which another reporting group is drawn is not missing.
    """
    drawn_rows = dict.fromkeys(map(attrgetter("row"), lines))
    by_meaning: dict[object, Row] = {}
    for row in [*drawn_rows, *rows]:
        by_meaning.setdefault(_read_meaning(row), row)
    companies = grids if len(grids) > 1 else ()
    names = name_rows(
        list(by_meaning.values()), group_names=True, entities=companies
    ).joined
    company_names = entity_names(map(attrgetter("catalogue"), companies))
    for row in drawn_rows:
        company_names.pop(row.entity_id, None)
    missing = list(company_names.values())
    for row, name in names.items():
        if row not in drawn_rows and row.entity_id not in company_names:
            missing.append(name)
    return missing


def _read_lines(row: Row) -> list[_Line]:
    """Return the lines of a row: one for each duration of its periods."""
    numbers = row.grid.numbers(row.series.series_id)
    lines = []
    for duration, periods in sorted(group_by_duration(numbers).items()):
        points = [(period, numbers[period]) for period in periods]
        lines.append(_Line(row, duration, points))
    return lines


def _describe(ax: "Axes", missing: Sequence[str]) -> None:
    """Write what the lines share into the title, and the others into the legend.

    Args:
        missing: the names of what has no value.
    """
    lines = _find_lines(ax)
    drawn_rows = map(attrgetter("row"), lines.values())
    rows = list(dict.fromkeys(drawn_rows))
    durations = set(map(attrgetter("duration"), lines.values()))
    names = name_rows(rows, group_names=True)
    for artist, line in lines.items():
        texts = [VERSION_WORDS.get(text, text) for text in names.texts[line.row]]
        if len(durations) > 1:
            texts.append(f"{line.duration} months")
        artist.set_label(_wrap(join_texts(texts)))
    versions = dict.fromkeys(map(attrgetter("grid.value_version"), rows))
    words = " and ".join(map(VERSION_WORDS.__getitem__, versions))
    texts = [names.shared_texts.get(head, "") for head in _TITLE_HEADS]
    ax.set_title(_wrap(join_texts([*texts, words])), loc="left")
    # The descriptions state the units.
    descriptions = dict.fromkeys(map(attrgetter("series.description"), rows))
    units = []
    for text in list(descriptions)[:_MOST_LABELS]:
        units.append(_wrap(shorten_middle(text.strip(), _LONGEST_LABEL), _LABEL_WIDTH))
    ax.set_ylabel("\n".join(filter(None, units)), fontsize="small")
    handles: list[Any] = list(lines)
    if missing:
        line = library("matplotlib.lines", "plot").Line2D
        label = _wrap(f"no value: {listed([*dict.fromkeys(missing)], _MOST_EMPTY)}")
        handles.append(line([], [], linestyle="none", label=label))
    if len(handles) == 1:
        return
    # Without a layout engine the figure has no room for a legend below the axes.
    place: dict[str, Any] = {}
    if ax.figure.get_layout_engine():
        place = {"loc": "upper left", "bbox_to_anchor": (0, -0.1)}
    ax.legend(handles=handles, fontsize="small", frameon=False, **place)


def _label_ends(ax: "Axes", lines: Collection[_Line]) -> None:
    """Put the ticks at fiscal ends, with period labels; over years only at the ends of
    years.
    """
    durations, all_ends = set[int](), set[int]()
    for line in lines:
        durations.add(line.duration)
        for period, _ in line.points:
            all_ends.add(period.fiscal_end)
    ends = sorted(all_ends)
    # Ticks at every period would be uneven where quarters are missing, and be too many
    # over years.
    if len(durations) > 1 or ends[-1] - ends[0] >= _SHORT_SPAN:
        year_ends = [end for end in ends if end % 12 == 0]
        ends = year_ends or ends
    # Thinned out from the latest tick, which readers look for.
    step = ceil(len(ends) / _MOST_TICKS)
    ends = ends[::-step][::-1]
    duration = 12
    if len(durations) == 1:
        (duration,) = durations
    labels = [Period.ending(end, duration).label for end in ends]
    ax.set_xticks(ends, labels, fontsize="small")


def _format_tick(
    ax: "Axes",
    percent: int,
    number: float,
    _: object = None,
) -> str:
    """Return the label of a tick, which is exactly its number.

    Args:
        percent: what the numbers are multiplied by to be percent; 0: they are not.
    """
    low, high = ax.get_ylim()
    # What is far below the distance of ticks is noise of the arithmetic.
    digits = 4 - floor(log10(abs(high - low)))
    number = round(float(number), digits)
    if percent:
        return f"{number * percent:,.15g}%"
    for size, suffix in _MAGNITUDES.items():
        if abs(number) >= size:
            return f"{number / size:,.15g}{suffix}"
    return f"{number:,.15g}"


def _wrap(text: str, width: int = _LINE_WIDTH) -> str:
    """Return a text in lines that fit its axes; a name can have a megabyte.

    matplotlib draws it as it is: a dollar sign does not start a formula, and a leading
    underscore does not hide a line from the legend.
    """
    lines = fill(shorten_middle(text, _LONGEST), width).splitlines()
    text = "\n".join(map(printable, lines)).replace("$", r"\$")
    if text.startswith("_"):
        return " " + text
    return text
