"""Plots of panels: numbers over fiscal time, as lines.

A line is of one series and one duration, because a year and its quarters are different
quantities. Lines of different number formats do not share a scale, on which a ratio
next to billions would be flat: the service has no field for the unit, and the number
format is what differs between amounts, ratios and percentages. Nor do percentages that
are numbers such as 0.12 and such as 12.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from asyncfin.table.rows import Line, Row, rows_of, tick_text
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
# Between axes one below the other, for labels of one and the title of the next, as a
# share of their height.
_STACKED_GAP = 0.8
# From the axes down to the legend, for the labels of the ticks.
_LEGEND_GAP = 0.35
# The label of the y axis: how many descriptions, characters of each, and characters of
# a line.
_MOST_LABELS = 3
_LONGEST_LABEL = 180
_LABEL_WIDTH = 60
# For each inch of the axes' width: ticks with a label each, and characters of the
# title.
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


# What was drawn by which artist: titles, legends and ticks hold for all panels on the
# same axes.
_LINES: "WeakKeyDictionary[Line2D, _Line]" = WeakKeyDictionary()
# The series without a value that belong to the same axes, and companies without a
# series.
_EMPTY: "WeakKeyDictionary[Axes, list[Row | Grid]]" = WeakKeyDictionary()
# The labels of x axes that were written here: another one is the user's.
_DATES: "WeakKeyDictionary[Axes, str]" = WeakKeyDictionary()


def draw(grids: Sequence[Grid], ax: "Axes | None" = None) -> "Axes":
    """Draw the numbers of each series, with separate axes for each number format.

    Args:
        ax: the axes to add to. Number formats that they do not have go to others that
            share their x axis, or to new ones below, in the same place. None: a new
            figure.

    Returns:
        The given axes, or the first ones of the new figure.

    Raises:
        SelectionError: as for `Panel.plot`.
    """
    pyplot = library("matplotlib.pyplot", "plot")
    if ax is not None:
        checks.instance_of(library("matplotlib.axes", "plot").Axes)("ax", ax)
    lines = [line for grid in grids for line in _lines(grid)]
    if not lines:
        entities = " or ".join(dict.fromkeys(grid.catalogue.name for grid in grids))
        raise SelectionError(
            f"there is nothing to draw: no series of {entities} has a value here"
        )
    formats = dict.fromkeys(line.scale for line in lines)
    places = {} if ax is None else _places(ax)
    new = [each for each in formats if each not in places]
    count = len(lines) + sum(
        len(_drawn(places[each])) for each in formats if each in places
    )
    if count > MOST_LINES:
        raise SelectionError(
            f"a plot must have at most {MOST_LINES} lines, one for each series and "
            f"duration, not {count}: select fewer series, or periods of one duration"
        )
    if ax is None:
        height = _HEIGHT if len(new) == 1 else _STACKED_HEIGHT * len(new)
        _, ax = pyplot.subplots(figsize=(_WIDTH, height), layout="constrained")
    free = _split(ax, len(new) + bool(places))
    places |= zip(new, free[bool(places) :], strict=True)
    # Everything has been checked: axes of the user's own are never left with half of
    # the lines.
    for empty in _without_line(grids, lines):
        _EMPTY.setdefault(_axes_of(empty, places, ax), []).append(empty)
    colours = _colours(ax, lines, places)
    for line in lines:
        number = colours[line.row, line.duration]
        dash, colour = (
            _DASHES[number // _COLOURS % len(_DASHES)],
            f"C{number % _COLOURS}",
        )
        (artist,) = places[line.scale].plot(
            *line.coordinates(), color=colour, linestyle=dash, marker="o", markersize=3
        )
        _LINES[artist] = line
    drawn = {each: _drawn(each) for each in _stack(ax)}
    # They share the x axis, and so its ticks.
    every = [line for lines in drawn.values() for line in lines.values()]
    for each in filter(drawn.get, drawn):
        inches = each.get_window_extent().width / each.figure.dpi
        _name(each, drawn[each], inches)
        _label_ends(each, every, inches)
        percent = max(line.row.percent for line in drawn[each].values())
        each.yaxis.set_major_formatter(partial(_tick, each, percent))
        each.grid(alpha=0.3)
    _date(drawn)
    return ax


def _without_line(
    grids: Iterable[Grid], lines: Iterable[_Line]
) -> Iterator[Row | Grid]:
    """Yield the series that have no line, and the panels that have no series."""
    drawn = {(line.row.grid, line.row.series.series_id) for line in lines}
    for grid in grids:
        if not grid.series:
            yield grid
        yield from (
            row for row in rows_of([grid]) if (grid, row.series.series_id) not in drawn
        )


def _axes_of(
    empty: Row | Grid, places: "Mapping[tuple[str, int], Axes]", ax: "Axes"
) -> "Axes":
    """Return the axes to whose lines a series without a value belongs."""
    if isinstance(empty, Grid):
        return ax
    number_format = empty.series.number_format
    return next(
        (axes for scale, axes in places.items() if scale[0] == number_format), ax
    )


def _colours(
    ax: "Axes", lines: Iterable[_Line], places: "Mapping[tuple[str, int], Axes]"
) -> Mapping[Line, int]:
    """Return the numbers of the colours of lines, which those that are drawn already
    keep.
    """
    charts: dict[Axes, list[Line]] = {}
    for axes in {**dict.fromkeys(_stack(ax)), **dict.fromkeys(places.values())}:
        charts[axes] = [(line.row, line.duration) for line in _drawn(axes).values()]
    for line in lines:
        charts[places[line.scale]].append((line.row, line.duration))
    for axes, chart in charts.items():
        chart += [(row, 0) for row in _EMPTY.get(axes, ()) if isinstance(row, Row)]
    entity_ids = dict.fromkeys(
        row.entity_id for chart in charts.values() for row, _ in chart
    )
    return Row.colours([*charts.values()], entity_ids)


def _places(ax: "Axes") -> "dict[tuple[str, int], Axes]":
    """Return the axes that have lines of each number format: these, or others with the
    same x axis.
    """
    if not _drawn(ax):
        return {}
    # The given ones last: they are preferred to others of the same format.
    return {
        line.scale: each for each in [*_stack(ax), ax] for line in _drawn(each).values()
    }


def _split(ax: "Axes", count: int) -> "list[Axes]":
    """Return the axes and new ones below them, which have their place together.

    Raises:
        SelectionError: they have no subplot to split, as those of `Figure.add_axes`
            have none.
    """
    if count == 1:
        return [ax]
    if (place := ax.get_subplotspec()) is None:
        raise SelectionError(
            "ax must be a subplot, or the panel must have a single number format: draw"
            " panel.where(lambda series: series.number_format == ...) into axes for "
            "each"
        )
    # A layout engine keeps texts apart, and would add this to it.
    rows = place.subgridspec(
        count, 1, hspace=None if ax.figure.get_layout_engine() else _STACKED_GAP
    )
    ax.set_subplotspec(rows[0])
    return [
        ax,
        *(ax.figure.add_subplot(rows[row], sharex=ax) for row in range(1, count)),
    ]


def _stack(ax: "Axes") -> "list[Axes]":
    """Return the axes that share the x axis of these, and themselves."""
    return list(ax.get_shared_x_axes().get_siblings(ax))


def _drawn(ax: "Axes") -> "dict[Line2D, _Line]":
    """Return the lines of panels on the axes, without those that the user has
    removed.
    """
    return {artist: _LINES[artist] for artist in ax.lines if artist in _LINES}


def _lines(grid: Grid) -> Iterator[_Line]:
    step_of = steps([*grid.catalogue.periods, *grid.periods])
    for row in rows_of([grid]):
        by_duration: dict[int, list[tuple[Period, float]]] = {}
        for index, number in zip(*grid.observations(row.series.series_id), strict=True):
            period = grid.periods[index]
            by_duration.setdefault(period.duration_months, []).append((period, number))
        for duration, points in sorted(by_duration.items()):
            yield _Line(row, duration, tuple(points), step_of.get(duration, duration))


def _name(ax: "Axes", drawn: "Mapping[Line2D, _Line]", inches: float) -> None:
    """Write what the lines share into the title, and the rest into the legend of
    several lines.
    """
    rows = list(dict.fromkeys(line.row for line in drawn.values()))
    names = name_rows(rows, group_names=True)
    mixed = len({line.duration for line in drawn.values()}) > 1
    for artist, line in drawn.items():
        own = zip(names.heads, names.texts[line.row], strict=True)
        texts = [
            VERSION_WORDS[text] if head == "values" else _cut(text)
            for head, text in own
        ]
        texts += [f"{line.duration} months"] if mixed else []
        artist.set_label(_plain(join_texts(texts)))
    versions = dict.fromkeys(VERSION_WORDS[row.grid.value_version] for row in rows)
    shared = [
        _cut(text)
        for head, text in names.shared.items()
        if head not in ("values", "group")
    ]
    title = fill(
        join_texts([*shared, " and ".join(versions)]), max(1, int(inches * _CHARACTERS))
    )
    ax.set_title("\n".join(map(_plain, title.splitlines())), loc="left")
    ax.set_ylabel(_units(list(drawn.values())), fontsize="small")
    handles: list[Any] = list(drawn)
    if without := _names_without(ax, rows):
        line = library("matplotlib.lines", "plot").Line2D
        handles.append(
            line([], [], linestyle="none", label=_plain(f"no value: {without}"))
        )
    if len(handles) == 1:
        if (legend := ax.get_legend()) is not None:
            legend.remove()
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


def _names_without(ax: "Axes", rows: Sequence[Row]) -> str:
    """Return the names of what belongs to axes and has no line there."""
    empty = _EMPTY.get(ax, [])
    series = [row for row in empty if isinstance(row, Row)]
    names = name_rows([*rows, *series], group_names=True)
    texts = [_cut(join_texts(names.texts[row])) for row in series]
    texts += [_cut(grid.catalogue.name) for grid in empty if isinstance(grid, Grid)]
    return listed(list(dict.fromkeys(texts)), _MOST_EMPTY)


def _units(lines: Sequence[_Line]) -> str:
    """Return the descriptions of the lines, which state their units, as the label of an
    axis.
    """
    rows = {
        line.row: line.row.grid.catalogue.by_group[
            line.row.series.reporting_group_id
        ].name
        for line in lines
    }
    # With one description the title or the legend names what it is of.
    alone = {row.series.description.strip() for row in rows}
    found = list(alone if len(alone) == 1 else describe_rows(rows))
    label = "\n".join(
        fill(shorten_middle(text, _LONGEST_LABEL), _LABEL_WIDTH)
        for text in found[:_MOST_LABELS]
    )
    return "\n".join(map(_plain, label.splitlines()))


def _label_ends(ax: "Axes", lines: Collection[_Line], inches: float) -> None:
    """Put the ticks at year ends, with period labels; of few periods of one duration,
    at each of them.
    """
    periods = sorted({period for line in lines for period, _ in line.points})
    durations = {line.duration for line in lines}
    labels = {period.fiscal_end: period.label for period in periods}
    first, last = min(labels), max(labels)
    # Ticks at every period would be uneven where quarters are missing, and be too many
    # over years.
    if len(durations) > 1 or last - first >= _SHORT_SPAN:
        duration = 3 if durations == {3} else 12
        ends = (
            Period(year, 12, duration)
            for year in range(-(-first // 12) - 1, last // 12)
        )
        labels = {period.fiscal_end: period.label for period in ends} or labels
    # Thinned out from the latest tick, which readers look for.
    every = ceil(len(labels) / max(1, inches * _TICKS))
    shown = sorted(labels)[::-every][::-1]
    ax.set_xticks(shown, [labels[end] for end in shown], fontsize="small")


def _cut(text: str) -> str:
    """Return a text of the service as it is drawn: a name can have a megabyte."""
    return shorten(text, _LONGEST_LABEL)


def _plain(text: str) -> str:
    """Return a text that matplotlib draws as it is: a dollar sign does not start a
    formula, and a leading underscore does not keep a line out of the legend."""
    text = printable(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _date(drawn: "Mapping[Axes, Mapping[Line2D, _Line]]") -> None:
    """Write the dates of the publications below the lowest axes, unless the user has
    written a label.
    """
    rows = [line.row for lines in drawn.values() for line in lines.values()]
    dates = sorted({f"{row.grid.catalogue.created_timestamp:%Y-%m-%d}" for row in rows})
    several = "s" if len(dates) > 1 else ""
    text = f"fiscal periods; publication{several} of {spanned(dates)}"
    with_lines = [ax for ax in drawn if drawn[ax]]
    lowest = min(with_lines, key=lambda ax: _place(ax).y0)
    for ax in with_lines:
        if ax.get_xlabel() in ("", _DATES.get(ax)):
            _DATES[ax] = text if ax is lowest else ""
            ax.set_xlabel(_DATES[ax], fontsize="small")


def _place(ax: "Axes") -> Any:
    """Return where the axes are in their figure, before a layout engine has moved
    them.
    """
    place = ax.get_subplotspec()
    return ax.get_position() if place is None else place.get_position(ax.figure)  # type: ignore[arg-type]


def _tick(ax: "Axes", percent: int, number: float, _: object = None) -> str:
    ticks = sorted({*map(float, ax.yaxis.get_majorticklocs()), float(number)})
    step = min((after - before for before, after in pairwise(ticks)), default=0.0)
    return tick_text(float(number), step or abs(number), percent)
