"""What a view shows of panels: cells and lines, each with its number and the text that
all faces of it show.

A *line* is one series of one panel, with the values of one duration. Lines that share a
scale are a *chart*; what is computed for a line (its index, its ratio) is computed for
the whole chart, from all values read, whatever the page has room for. Pure: panels in,
numbers and texts out.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import get_args

from attrs import field, frozen

from asyncfin import Panel
from asyncfin.errors import SelectionError, printable
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.scope import parse_path
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.value import Value
from asyncfin.text import GAP, NOT_REQUESTED
from asyncfin.typing import Row as ShownRow
from asyncfin.words import VERSION_WORDS, Unit, counted, entity_names, listed

VIEWS = {
    "values": "values",
    "growth": "growth over a year",
    "index": "index, a common start = 100",
    "ratio": "ratio to a series",
}
SCALES = {"linear": "linear", "log": "logarithmic"}
UNITS = {"": "as published"} | {unit: unit for unit in get_args(Unit) if unit != "auto"}
ORDERS = {
    "": "as usual",
    "metric": "one for each metric",
    "company": "one for each company",
}
VERSIONS = {**VERSION_WORDS, "both": "both, side by side"}
NOT_ABOVE_ZERO = "not above zero"
# Ratios of a chart below this are percentages.
_PERCENT_BELOW = 10


@frozen
class Cell:
    """A cell of a view.

    Attributes:
        text: what the page shows: a text, a reason, `GAP`, `NOT_REQUESTED`, or nothing.
        number: the number of the view, in its unit; None where there is none.
        kind: ``"gap"``, ``"unasked"``, ``"reason"``, ``"negative"``, or nothing.
    """

    text: str = ""
    number: float | None = None
    kind: str = ""


@frozen(eq=False)
class Row:
    """A series of a panel, and the words that name it.

    Attributes:
        shown: how its values are read.
        read: the panel that was read for this one, which may have values of a year
            before it too.
    """

    panel: Panel = field(repr=False)
    read: Panel = field(repr=False)
    shown: ShownRow = field(repr=False)
    company: str
    label: str
    scopes: str
    group: str
    version: str
    description: str

    @property
    def series(self) -> CatalogueSeries:
        return self.shown.series

    @property
    def values(self) -> dict[Period, Value]:
        return self.shown.values

    @cached_property
    def values_read(self) -> dict[Period, Value]:
        return dict(self.read[self.series.series_id].observations())

    @property
    def names(self) -> tuple[str, ...]:
        """What distinguishes rows of a chart, most significant first."""
        return (
            self.company,
            self.label,
            self.scopes,
            self.group,
            self.version,
            self.series.series_id,
        )

    def key(self, period: Period) -> tuple[str, str, str, Period]:
        """Return what names a cell of this row in the marks of a history."""
        dataset, version = self.panel.dataset, self.panel.value_version
        return (dataset.entity_id, version, self.series.series_id, period)

    def without_value(self, period: Period) -> Cell:
        if self.panel.covers(period):
            return Cell(GAP, kind="gap")
        return Cell(NOT_REQUESTED, kind="unasked")


@frozen(eq=False)
class Group:
    """The rows of a chart, and how its view reads them.

    Attributes:
        view: one of `VIEWS`.
        rows: at least one. Those of the view ``values`` have one unit, and one scale of
            percent.
        over: of a ratio, the values of the divisor of each row; None: its company does
            not have it.
        over_label: what a ratio divides by.
        is_of_metric: whether the rows are those of a metric, and not of a company.
    """

    view: str
    rows: Sequence[Row]
    over: Mapping[Row, Mapping[Period, Value] | None] = field(factory=dict, repr=False)
    over_label: str = ""
    is_of_metric: bool = False

    def cell(self, row: Row, period: Period) -> Cell:
        """Return what the view shows of a row at a period."""
        value = row.values.get(period)
        if value is None:
            cell = row.without_value(period)
            # Nothing could be computed: only of a value itself a dot says that there is
            # none.
            return (
                cell
                if self.view in ("values", "index") or cell.kind == "unasked"
                else Cell()
            )
        match self.view:
            case "growth":
                before = year_before(period)
                return _growth(
                    value, None if before is None else row.values_read.get(before)
                )
            case "index":
                return self._index(row, period, value)
            case "ratio":
                return self._ratio(row, period, value)
        scale = row.shown.scale
        kind = "negative" if value.number < 0 else ""
        return Cell(printable(scale.text(value)), scale.number(value), kind)

    def exact(self, row: Row, period: Period) -> str:
        """Return what the view says under the cursor: of a value all digits."""
        cell = self.cell(row, period)
        if self.view != "values" or cell.number is None:
            return cell.text
        return printable(row.shown.scale.exact(row.values[period]))

    @property
    def unit(self) -> Unit | None:
        """What the numbers are divided by."""
        return self._scaled.shown.unit if self.view == "values" else None

    @property
    def percent(self) -> int:
        """What the numbers are multiplied by on an axis in percent; 0: they are not
        percent.
        """
        return self._scaled.shown.percent

    @property
    def _scaled(self) -> Row:
        """A row with the unit and the percent of all that have a value."""
        return next((row for row in self.rows if row.values), self.rows[0])

    @cached_property
    def bases(self) -> dict[int, Period]:
        """The base of the index for each duration: the first period with the most lines
        above zero.
        """
        above: dict[Period, int] = {}
        for row in self.rows:
            for period, value in row.values.items():
                if value.number > 0:
                    above[period] = above.get(period, 0) + 1
        bases: dict[int, Period] = {}
        for period in sorted(above):
            best = bases.setdefault(period.duration_months, period)
            if above[period] > above[best]:
                bases[period.duration_months] = period
        return bases

    @property
    def described(self) -> str:
        """The view, in words."""
        match self.view:
            case "growth":
                return "growth over a year, percent"
            case "index":
                bases = listed(
                    [
                        period.label
                        for _, period in sorted(self.bases.items(), reverse=True)
                    ]
                )
                return f"index, {bases} = 100" if bases else "index"
            case "ratio":
                return f"ratio to {self.over_label}"
        return "values"

    def _index(self, row: Row, period: Period, value: Value) -> Cell:
        base = self.bases.get(period.duration_months)
        if base is None:
            return Cell(NOT_ABOVE_ZERO, kind="reason")
        start = row.values.get(base)
        if start is None:
            return Cell(f"no value in {base.label}", kind="reason")
        if start.number <= 0:
            return Cell(f"{NOT_ABOVE_ZERO} in {base.label}", kind="reason")
        return _computed(_divided(value.number, start.number) * 100, "{:,.1f}".format)

    @cached_property
    def _is_percent(self) -> bool:
        ratios = [
            _divided(value.number, divisor[period].number)
            for row in self.rows
            if (divisor := self.over.get(row))
            for period, value in row.values.items()
            if period in divisor and divisor[period].number
        ]
        return all(abs(ratio) < _PERCENT_BELOW for ratio in ratios)

    def _ratio(self, row: Row, period: Period, value: Value) -> Cell:
        divisor = (self.over.get(row) or {}).get(period)
        if divisor is None:
            return Cell()
        if divisor.number == 0:
            return Cell("divided by zero", kind="reason")
        ratio = _divided(value.number, divisor.number)
        if self._is_percent:
            return _computed(ratio * 100, "{:,.1f}%".format)
        return _computed(ratio, _four_digits)


def year_before(period: Period) -> Period | None:
    """Return the period of the same duration that ends twelve months before; None:
    there is no such year.
    """
    if period.year == 1:
        return None
    return Period(period.year - 1, period.end_month, period.duration_months)


def row_of(
    panel: Panel, shown: ShownRow, company: str, read: Panel | None = None
) -> Row:
    """Return a series of a panel with its words, which are safe to show."""
    catalogue, series = panel.catalogue, shown.series
    words = (
        company,
        shown.label,
        " / ".join(catalogue.scope_names(series.scopes)),
        catalogue.by_group[series.reporting_group_id].name,
        VERSION_WORDS[panel.value_version],
        series.further_description,
    )
    return Row(panel, read or panel, shown, *map(printable, words))


def _growth(value: Value, base: Value | None) -> Cell:
    if base is None:
        return Cell()
    if base.number < 0:
        return Cell("from a loss", kind="reason")
    if base.number == 0:
        return Cell("from zero", kind="reason")
    percent = (_divided(value.number, base.number) - 1) * 100
    return _computed(
        percent, lambda number: f"{'+' if number > 0 else ''}{number:,.1f}%"
    )


def _computed(number: float, text: Callable[[float], str]) -> Cell:
    if not math.isfinite(number):
        return Cell("too large", kind="reason")
    # What rounds to zero has no sign.
    shown = text(number)
    if not any(digit in shown for digit in "123456789"):
        return Cell(text(0.0), number)
    return Cell(shown, number, "negative" if number < 0 else "")


def _divided(number: float, by: float) -> float:
    """Return a quotient, infinite if it is beyond a float."""
    try:
        return number / by
    except OverflowError:
        return math.inf


def _four_digits(number: float) -> str:
    """Return a number with four significant digits, without an exponent."""
    exponent = int(f"{number:.3e}".partition("e")[2])
    # The format ".4g" has no separators, and an exponent beyond 9,999.
    return f"{float(f'{number:.3e}'):,.{max(0, 3 - exponent)}f}"


@frozen(eq=False)
class Line:
    """The values of one duration of a row, as a chart draws them.

    Attributes:
        periods: the row's periods of this duration, oldest first, with those between
            that have no value.
        cells: one for each.
        numbers: what is drawn, one for each; None: nothing.
    """

    row: Row
    months: int
    periods: Sequence[Period]
    cells: Sequence[Cell]
    numbers: Sequence[float | None]


@frozen
class Chart:
    """A chart: what the script draws and what is said around it.

    Attributes:
        ends, labels: the x axis: the fiscal ends of its lines, and the label of the
            longest period at each.
        lines: for each, `label`; `colour`, its number; `numbers` by fiscal end, None
            for a gap and "" where the line has no period; `readings`, what is said
            under the cursor there; `latest`, what the legend says.
        percent: what the numbers are multiplied by on the ticks of the y axis, followed
            by %; 0: no percent.
        is_log: whether the y axis is logarithmic.
        below: what is said below the chart.
        credit: what a picture of it says of its source.
        is_divided: whether the numbers have a unit, which the words above the chart
            name.
        hidden: how many lines are not drawn.
        without: the names of the rows, and of the companies, that have no line.
    """

    title: str
    subtitle: str
    viewed: str
    ends: list[int]
    labels: list[str]
    lines: list[dict[str, object]]
    percent: int
    is_log: bool
    below: str
    credit: str
    hidden: int
    without: Sequence[str]
    is_divided: bool

    @property
    def drawing(self) -> dict[str, object]:
        """What the script draws."""
        return {
            "ends": self.ends,
            "labels": self.labels,
            "lines": self.lines,
            "percent": self.percent,
            "log": self.is_log,
            "divided": self.is_divided,
        }


@frozen
class Body:
    """The rows of the table below one heading: a metric with its description, or a
    company.

    Attributes:
        rows: each with what names it below the heading, its description if that
            differs, and its cells.
    """

    heading: str
    description: str
    rows: Sequence[tuple[Row, str, str, Sequence[Cell]]]


def groups_of(
    panels: Sequence[Panel],
    *,
    view: str,
    order: str,
    unit: Unit | None = None,
    over: Sequence[str] = (),
    read: Mapping[Panel, Panel] = MappingProxyType({}),
) -> list[Group]:
    """Return the groups of panels, in order: one for each metric, or for each company
    and number format, and for each unit of those.

    Args:
        panels: those of a company follow one another.
        view: one of `VIEWS`.
        order: ``"metric"`` or ``"company"``.
        unit: what amounts are divided by, in the view ``values``.
        over: what a ratio divides by, which is not shown: metric, group and path, and
            maybe the series id.
        read: for a panel, the one that was read for it, with values of a year before it
            too.
    """
    by_key: dict[tuple[str, str], list[Row]] = {}
    divisors: dict[Row, Mapping[Period, Value] | None] = {}
    over_label = ""
    names = entity_names(panel.catalogue for panel in panels)
    for panel in panels:
        divisor = series_of(panel.catalogue, over) if over else None
        values = None
        if divisor is not None:
            values = dict(panel[divisor.series_id].observations())
            over_label = over_label or printable(divisor.label)
        for shown in panel.rows(unit=unit if view == "values" else None):
            series = shown.series
            if divisor is not None and series.series_id == divisor.series_id:
                continue
            row = row_of(panel, shown, names[panel.dataset.entity_id], read.get(panel))
            if over:
                divisors[row] = values
            if order == "metric":
                key = (series.metric_id, "")
            else:
                key = (panel.dataset.entity_id, series.number_format)
            by_key.setdefault(key, []).append(row)
    # The formats of a company stay together.
    firsts = list(dict.fromkeys(first for first, _ in by_key))
    ordered = sorted(by_key, key=lambda key: firsts.index(key[0]))
    return [
        Group(view, rows, divisors, over_label, order == "metric")
        for key in ordered
        for rows in (_of_one_scale(by_key[key]) if view == "values" else [by_key[key]])
    ]


def _of_one_scale(rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows by unit and scale of percent, which a chart has one of; empty rows
    with the first.
    """
    scales = {row: (row.shown.unit, row.shown.percent) for row in rows if row.values}
    first = next(iter(scales.values()), None)
    by_scale: dict[object, list[Row]] = {}
    for row in rows:
        by_scale.setdefault(scales.get(row, first), []).append(row)
    return list(by_scale.values())


def series_of(catalogue: Catalogue, row: Sequence[str]) -> CatalogueSeries | None:
    """Return the series that a row of a question means, or None if the catalogue does
    not have it.

    Args:
        row: metric, group and path, and the series id where a catalogue has several of
            them.
    """
    metric_id, group_id, path, *series_ids = row
    try:
        same = catalogue.by_triple.get((metric_id, group_id, parse_path(path)), ())
    except SelectionError:  # not a path
        return None
    if len(same) > 1:
        same = tuple(series for series in same if series.series_id in series_ids)
    return same[0] if same else None


def lines_of(group: Group) -> list[Line]:
    """Return the lines of a group, longest duration first within a row, without those
    that have no value.
    """
    lines = []
    for row in group.rows:
        by_months: dict[int, list[Period]] = {}
        for period in drawn_periods(row.panel):
            by_months.setdefault(period.duration_months, []).append(period)
        for months in sorted(by_months, reverse=True):
            periods = by_months[months]
            if any(period in row.values for period in periods):
                cells = [group.cell(row, each) for each in periods]
                lines.append(
                    Line(row, months, periods, cells, [cell.number for cell in cells])
                )
    return lines


def drawn_periods(panel: Panel) -> list[Period]:
    """Return the panel's periods, and those that the catalogue has between them of the
    same durations.

    A panel of a range lists only periods with a value, so a line would lead over a
    quarter without one.
    """
    if not panel.periods:
        return []
    durations = {period.duration_months for period in panel.periods}
    ends = [period.fiscal_end for period in panel.periods]
    first, last = min(ends), max(ends)
    between: Iterable[Period] = (
        period
        for period in panel.catalogue.periods
        if period.duration_months in durations and first <= period.fiscal_end <= last
    )
    return sorted({*panel.periods, *between})


def charts_of(groups: Sequence[Group], *, most: int, is_log: bool) -> list[Chart]:
    """Return the charts of groups with a value, of each at most some lines."""
    lines = {group: lines_of(group) for group in groups}
    charts = [
        [
            *((line.row.shown, line.months) for line in lines[group]),
            *((row.shown, 0) for row in group.rows if not _has_line(row, lines[group])),
        ]
        for group in groups
    ]
    companies = {
        row.shown.entity_id: row.company for group in groups for row in group.rows
    }
    colours = ShownRow.colours(charts, companies)
    return [
        chart_of(group, drawn, colours, companies, most=most, is_log=is_log)
        for group, drawn in lines.items()
        if drawn
    ]


def _has_line(row: Row, lines: Iterable[Line]) -> bool:
    return any(line.row is row for line in lines)


def chart_of(
    group: Group,
    lines: Sequence[Line],
    colours: Mapping[tuple[ShownRow, int], int],
    companies: Mapping[str, str],
    *,
    most: int,
    is_log: bool,
) -> Chart:
    """Return the chart of a group's lines, of which at most some are drawn.

    Args:
        colours: the number of the colour of each line.
        companies: the names of all companies, by id.
    """
    drawn = lines[:most]
    longest: dict[int, Period] = {}
    for period in sorted(
        (each for line in drawn for each in line.periods),
        key=attrgetter("duration_months"),
    ):
        longest[period.fiscal_end] = period
    ends = sorted(longest)
    rows = [line.row for line in drawn]
    empty = [row for row in group.rows if not _has_line(row, lines)]
    columns = list(zip(*(row.names for row in rows), strict=True))
    durations = {line.months for line in drawn}
    names = _line_names(rows)
    if len(durations) > 1:
        months = [counted(line.months, "month") for line in drawn]
        is_one = len({*names}) == 1 and names[0] == rows[0].label
        names = (
            months if is_one else list(map(" / ".join, zip(names, months, strict=True)))
        )
    named = [
        f"{name}{row.shown.scale.suffix}" for name, row in zip(names, rows, strict=True)
    ]
    absent = (
        []
        if len(companies) == 1
        else [
            name
            for entity_id, name in companies.items()
            if not any(row.shown.entity_id == entity_id for row in group.rows)
        ]
    )
    without = _line_names([*rows, *empty])[len(rows) :] + (
        absent if group.is_of_metric else []
    )
    title, subtitle = _titled(group, rows, columns)
    viewed = [
        group.described if group.view != "values" else "",
        f"in {group.unit}" if group.unit else "",
        "logarithmic scale" if is_log else "",
    ]
    return Chart(
        title,
        subtitle,
        ", ".join(filter(None, viewed)),
        ends,
        [longest[end].label for end in ends],
        [
            _drawn(group, line, label, ends, is_log)
            | {"colour": colours[line.row.shown, line.months]}
            for line, label in zip(drawn, named, strict=True)
        ],
        _percent(group, drawn),
        is_log,
        _below(rows),
        _credit(rows),
        len(lines) - len(drawn),
        without,
        group.unit is not None,
    )


def _line_names(rows: Sequence[Row]) -> list[str]:
    """Return a name for each row: what distinguishes it, or its label."""
    differing = _differing(list(zip(*(row.names for row in rows), strict=True)))
    return [
        " / ".join(row.names[place] for place in differing if row.names[place])
        or row.label
        for row in rows
    ]


def _differing(columns: Sequence[Sequence[str]]) -> list[int]:
    """Return which names distinguish rows: those that differ, the series id only if the
    others do not.
    """
    differing = [at for at, names in enumerate(columns[:-1]) if len(set(names)) > 1]
    texts = (
        set(zip(*(columns[at] for at in differing), strict=True)) if differing else {()}
    )
    lines = set(zip(*columns, strict=True))
    return differing if len(texts) == len(lines) else [*differing, len(columns) - 1]


def _drawn(
    group: Group, line: Line, label: str, ends: Sequence[int], is_log: bool
) -> dict[str, object]:
    numbers: list[float | str | None] = [""] * len(ends)
    readings = [""] * len(ends)
    places = {end: at for at, end in enumerate(ends)}
    latest = "no value"
    for period, cell, number in zip(
        line.periods, line.cells, line.numbers, strict=True
    ):
        at = places[period.fiscal_end]
        is_left_out = is_log and number is not None and number <= 0
        numbers[at] = None if is_left_out else number
        exact = NOT_ABOVE_ZERO if is_left_out else group.exact(line.row, period)
        readings[at] = f"{period.label}: {exact}" if exact else period.label
        if cell.number is not None or cell.kind == "reason":
            latest = f"{period.label}: {NOT_ABOVE_ZERO if is_left_out else cell.text}"
    return {
        "label": label,
        "months": line.months,
        "numbers": numbers,
        "readings": readings,
        "latest": latest,
    }


def _percent(group: Group, lines: Sequence[Line]) -> int:
    """Return by what numbers are multiplied for ticks in percent; 0: the ticks are no
    percentages.
    """
    if group.view == "values":
        return group.percent
    cells = [cell for line in lines for cell in line.cells if cell.number is not None]
    return int(bool(cells) and all(cell.text.endswith("%") for cell in cells))


def _titled(
    group: Group, rows: Sequence[Row], columns: Sequence[Sequence[str]]
) -> tuple[str, str]:
    """Return the title and the line under it: what the chart shows, or of whom, and
    what its lines share.
    """
    company, label, scopes, _, version, _ = ({*names} for names in columns)
    if len(label) == 1:
        title, shared = rows[0].label, [company] if len(company) == 1 else []
    elif len({row.series.metric_id for row in rows}) == 1:
        title, shared = rows[0].label, []
    else:
        title, shared = (rows[0].company if len(company) == 1 else "Values"), []
    words = [
        name
        for names in (*shared, scopes, version)
        if len(names) == 1
        for name in names
        if name
    ]
    descriptions = list(
        dict.fromkeys(row.description for row in rows if row.description)
    )
    if len({row.description for row in rows}) > 1:
        quoted = ", ".join(f"\u201c{each}\u201d" for each in descriptions[:2])
        words.append(f"different descriptions: {quoted}")
    else:
        words += descriptions
    return title, " \u00b7 ".join(words)


def _published(rows: Sequence[Row]) -> str:
    """Return the date of the publication; of several dates each with its company."""
    dates = {
        row.company: f"{row.panel.dataset.created_timestamp:%Y-%m-%d}" for row in rows
    }
    if len(set(dates.values())) == 1:
        return f"publication of {next(iter(dates.values()))}"
    return "publications: " + ", ".join(
        f"{name} {date}" for name, date in dates.items()
    )


def _credit(rows: Sequence[Row]) -> str:
    companies = listed(list(dict.fromkeys(row.company for row in rows)), 5)
    return f"Source: dataset of {companies}, {_published(rows)}; asyncfin"


def _below(rows: Sequence[Row]) -> str:
    """Return what is said below a chart: of which publications it is, and what its axis
    does not say.
    """
    parts = ["fiscal periods", _published(rows)]
    if len({row.panel.dataset.entity_id for row in rows}) > 1:
        parts.append("the same fiscal period can be different months")
    return "; ".join(parts)


def bodies_of(
    groups: Iterable[Group], periods: Sequence[Period], *, order: str, most: int
) -> list[Body]:
    """Return the rows of the table in the order of the charts, at most some of them,
    below their headings.
    """
    by_heading: dict[str, list[tuple[Group, Row]]] = {}
    for group in groups:
        for row in group.rows:
            key = (
                row.series.metric_id
                if order == "metric"
                else row.panel.dataset.entity_id
            )
            by_heading.setdefault(key, []).append((group, row))
    bodies = []
    for grouped in by_heading.values():
        rows = [row for _, row in grouped]
        label = rows[0].label if order == "metric" else rows[0].company
        shared = {row.description for row in rows}
        in_heading = order == "metric" and len(shared) == 1
        first = 0 if order == "metric" else 1
        columns = list(zip(*(row.names for row in rows), strict=True))
        # What the heading says is left out, and so is what does not distinguish the
        # rows below it.
        differing = [at for at in _differing(columns) if at > first]
        shown = grouped[:most]
        most -= len(shown)
        if not shown:
            break
        bodies.append(
            Body(
                label,
                rows[0].description if in_heading else "",
                [
                    (
                        row,
                        " / ".join(
                            row.names[at] for at in (first, *differing) if row.names[at]
                        )
                        + row.shown.scale.suffix,
                        "" if in_heading else row.description,
                        [group.cell(row, period) for period in periods],
                    )
                    for group, row in shown
                ],
            )
        )
    return bodies
