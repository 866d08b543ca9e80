"""What the page shows of panels: charts and a table of `panel.rows`.

1. `list_entries` makes an entry of each row: the row, and the words that name it.
2. `group_entries` puts entries into groups that share a chart: one metric, or one
   company and number format; and one unit.
3. `make_charts` draws the groups; a line has the values of one duration of an entry.
4. `make_bodies` lists the same entries as a table.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from attrs import field, frozen

from asyncfin import Panel, Period
from asyncfin.errors import printable
from asyncfin.typing import Row, Unit
from asyncfin.web.question import VERSIONS
from asyncfin.words import counted, entity_names

# How much of a large answer a page shows; the rest is counted.
MAX_COLUMNS = 120
MAX_LINES = 12
MAX_CHARTS = 12


@frozen(eq=False)
class Entry:
    """A row of a panel, and the words that name it.

    Attributes:
        names: company, label, scopes, group and series id: what may distinguish it,
            the most significant first.
        description: that of the series, if it is more than the label.
    """

    panel: Panel = field(repr=False)
    row: Row = field(repr=False)
    names: tuple[str, ...]
    description: str

    @property
    def company(self) -> str:
        return self.names[0]

    @property
    def label(self) -> str:
        return self.names[1]


class Cell(NamedTuple):
    """A cell of the table: its text, and the style of it."""

    text: str
    kind: str


Group: TypeAlias = Sequence[Entry]


# --- entries and groups


def list_entries(panels: Sequence[Panel], unit: Unit | None) -> list[Entry]:
    """Make an entry of each row of the panels."""
    companies = entity_names(panel.catalogue for panel in panels)
    entries = []
    for panel in panels:
        company = companies[panel.dataset.entity_id]
        for row in panel.rows(unit=unit):
            entry = make_entry(panel, row, company)
            entries.append(entry)
    return entries


def make_entry(panel: Panel, row: Row, company: str) -> Entry:
    """Make an entry; its words are safe to show."""
    catalogue, series = panel.catalogue, row.series
    names = (
        company,
        row.label,
        " / ".join(catalogue.scope_names(series.scopes)),
        catalogue.by_group[series.reporting_group_id].name,
        series.series_id,
    )
    description = series.description
    if description == series.label:
        description = ""
    return Entry(panel, row, tuple(map(printable, names)), printable(description))


def group_entries(entries: Iterable[Entry], *, by_metric: bool) -> list[Group]:
    """Put entries into groups that share a chart, in the order of the entries.

    An axis has one unit and one scale of percent. An entry without values goes to the
    first group of its metric, or of its company and format.
    """
    families: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        series = entry.row.series
        family = entry.row.entity_id, series.number_format
        if by_metric:
            family = series.metric_id, ""
        families.setdefault(family, []).append(entry)
    groups: list[Group] = []
    for members in families.values():
        rows = list(map(attrgetter("row"), members))
        first_row = next(filter(attrgetter("values"), rows), rows[0])
        members_by_scale: dict[object, list[Entry]] = {}
        for entry in members:
            row = entry.row
            if not row.values:
                row = first_row
            scale = row.unit, row.percent
            members_by_scale.setdefault(scale, []).append(entry)
        groups += members_by_scale.values()
    return groups


def list_names(entries: Iterable[Entry], position: int) -> list[str]:
    """The different names of entries at a position, in the order of the entries."""
    return list(dict.fromkeys(entry.names[position] for entry in entries))


def find_differing(entries: Sequence[Entry]) -> list[int]:
    """The positions of the names that distinguish entries.

    The series id is one of them only if the others do not suffice.
    """
    last = len(entries[0].names) - 1
    differing = []
    for index in range(last):
        if len(list_names(entries, index)) > 1:
            differing.append(index)
    texts = {tuple(map(entry.names.__getitem__, differing)) for entry in entries}
    if len(texts) < len(entries):
        differing.append(last)
    return differing


def _join_names(entry: Entry, positions: Iterable[int]) -> str:
    texts = map(entry.names.__getitem__, positions)
    return " / ".join(filter(None, texts))


# --- charts


@frozen(eq=False)
class Line:
    """The values of one duration of an entry."""

    entry: Entry
    months: int
    periods: Sequence[Period]


@frozen
class Chart:
    """A chart: what the script draws, and the words around it.

    Attributes:
        unit: what the numbers are divided by, in words.
        drawing: what the script draws: `ends` and `labels` of the x axis, `lines`,
            `percent` and `divided`. Of each line: `label`; `colour`, its number;
            `numbers` by fiscal end, None for a gap and "" where the line has no period;
            `readings`, shown under the cursor there; `latest`, shown in the legend.
        omitted_count: how many lines are not drawn.
        empty_names: the names of the entries that have no value.
    """

    title: str
    subtitle: str
    unit: str
    drawing: Mapping[str, object]
    omitted_count: int
    empty_names: Sequence[str]


def make_charts(groups: Sequence[Group], *, by_metric: bool) -> list[Chart]:
    """Make the charts of the groups that have a value."""
    entity_ids: dict[str, None] = {}
    lines_of_groups = []
    companies_of_groups = []
    for group in groups:
        for entry in group:
            entity_ids[entry.row.entity_id] = None
        lines = list_lines(group)
        lines_of_groups.append(lines)
        companies_of_groups.append([line.entry.row.entity_id for line in lines])
    colours = Row.colours(companies_of_groups, entity_ids)
    charts = []
    for group, lines, numbers in zip(groups, lines_of_groups, colours, strict=True):
        if lines:
            chart = _make_chart(group, lines, numbers)
            charts.append(chart)
    return charts


def list_lines(group: Group) -> list[Line]:
    """The lines of a group, the longest duration of an entry first."""
    lines = []
    for entry in group:
        periods_by_months: dict[int, list[Period]] = {}
        for period in entry.panel.periods_with_gaps:
            periods_by_months.setdefault(period.duration_months, []).append(period)
        values = entry.row.values
        for months in sorted(periods_by_months, reverse=True):
            periods = periods_by_months[months]
            if not values.keys().isdisjoint(periods):
                line = Line(entry, months, periods)
                lines.append(line)
    return lines


def _make_chart(
    group: Group,
    lines: Sequence[Line],
    colours: Sequence[int],
) -> Chart:
    omitted_count = max(0, len(lines) - MAX_LINES)
    lines = lines[:MAX_LINES]
    entries = list(dict.fromkeys(line.entry for line in lines))
    empty = [entry for entry in group if not entry.row.values]
    # Entries are named by what distinguishes them, or by their label.
    differing = find_differing([*entries, *empty])
    names = {}
    for entry in (*entries, *empty):
        names[entry] = _join_names(entry, differing) or entry.label
    unit = entries[0].row.unit
    return Chart(
        _make_title(entries),
        _make_subtitle(entries),
        f"in {unit}" if unit else "",
        _draw(lines, names, colours),
        omitted_count,
        list(map(names.__getitem__, empty)),
    )


def _draw(
    lines: Sequence[Line],
    names: Mapping[Entry, str],
    colours: Iterable[int],
) -> dict[str, object]:
    """Make what the script draws: see `Chart.drawing`."""
    # The x axis has the fiscal ends, each with the label of its longest period.
    periods: set[Period] = set()
    for line in lines:
        periods.update(line.periods)
    labels = {period.fiscal_end: period.label for period in sorted(periods)}
    ends = list(labels)
    has_durations = len({line.months for line in lines}) > 1
    drawn_lines = []
    for line, colour in zip(lines, colours, strict=False):
        row = line.entry.row
        label = names[line.entry]
        if has_durations:
            label += f" / {counted(line.months, 'month')}"
        drawn_line = {
            "label": label + row.scale.suffix,
            "colour": colour,
        }
        drawn_lines.append(drawn_line | _draw_line(line, ends))
    row = lines[0].entry.row
    return {
        "ends": ends,
        "labels": list(labels.values()),
        "lines": drawn_lines,
        "percent": row.percent,
        "divided": row.unit is not None,
    }


def _draw_line(line: Line, ends: Sequence[int]) -> dict[str, object]:
    row = line.entry.row
    numbers: list[float | str | None] = [""] * len(ends)
    readings = [""] * len(ends)
    latest = "no value"
    for period in line.periods:
        index = ends.index(period.fiscal_end)
        value = row.values.get(period)
        if value is None:
            numbers[index] = None
            readings[index] = f"{period.label}: {row.cell(period)}"
            continue
        numbers[index] = row.scale.number(value)
        readings[index] = f"{period.label}: {printable(row.scale.exact(value))}"
        latest = f"{period.label}: {printable(row.scale.text(value))}"
    return {
        "months": line.months,
        "numbers": numbers,
        "readings": readings,
        "latest": latest,
    }


def _make_title(entries: Sequence[Entry]) -> str:
    """What the lines of a chart are of: a metric, or a company."""
    metric_ids = {entry.row.series.metric_id for entry in entries}
    labels = list_names(entries, 1)
    companies = list_names(entries, 0)
    if len(labels) == 1 or len(metric_ids) == 1:
        return labels[0]
    if len(companies) == 1:
        return companies[0]
    return "Values"


def _make_subtitle(entries: Sequence[Entry]) -> str:
    """What else all lines of a chart have in common."""
    columns = [
        list_names(entries, 2),
        [VERSIONS[entries[0].panel.value_version]],
        list(dict.fromkeys(entry.description for entry in entries)),
    ]
    if len(list_names(entries, 1)) == 1:
        columns.insert(0, list_names(entries, 0))
    words = []
    for names in columns:
        if len(names) == 1 and names[0]:
            words += names
    return " \u00b7 ".join(words)


# --- the table


@frozen
class Body:
    """The rows of the table below one heading: a metric, or a company.

    Attributes:
        rows: each entry with its name below the heading, its description if that
            differs, and its cells.
    """

    heading: str
    description: str
    rows: Sequence[tuple[Entry, str, str, Sequence[Cell]]]


def make_bodies(
    groups: Iterable[Group], periods: Sequence[Period], *, by_metric: bool
) -> list[Body]:
    """Make the table in the order of the charts."""
    members_by_heading: dict[str, list[Entry]] = {}
    for group in groups:
        for entry in group:
            row = entry.row
            key = row.series.metric_id if by_metric else row.entity_id
            members_by_heading.setdefault(key, []).append(entry)
    # The heading has the label, and the rows begin with the company; or the other way
    # round.
    heading, first = (1, 0) if by_metric else (0, 1)
    bodies = []
    for entries in members_by_heading.values():
        positions = [first]
        for index in find_differing(entries):
            if index > first:
                positions.append(index)
        shared_text = ""
        if by_metric and len({entry.description for entry in entries}) == 1:
            shared_text = entries[0].description
        rows: list[tuple[Entry, str, str, Sequence[Cell]]] = []
        for entry in entries:
            name = _join_names(entry, positions) + entry.row.scale.suffix
            description = entry.description
            if description == shared_text:
                description = ""
            cells = [make_cell(entry, period) for period in periods]
            rows.append((entry, name, description, cells))
        bodies.append(Body(entries[0].names[heading], shared_text, rows))
    return bodies


def make_cell(entry: Entry, period: Period) -> Cell:
    """Make the cell of an entry at a period."""
    value = entry.row.values.get(period)
    kind = ""
    if value is None:
        kind = "gap" if entry.panel.covers(period) else "unasked"
    elif value.number < 0:
        kind = "negative"
    return Cell(printable(entry.row.cell(period)), kind)
