"""What the page shows of panels: the rows of the table, the lines of the charts, and notes."""

from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from asyncfin.errors import printable
from asyncfin.model.period import Period
from asyncfin.model.query import VERSION_WORDS
from asyncfin.model.series import Series, further_description
from asyncfin.model.value import Value, shown_text
from asyncfin.table import comparison
from asyncfin.table.notes import NOT_REQUESTED
from asyncfin.table.panel import Panel
from asyncfin.web.history import Marks

# How much of a large answer a page shows; the rest is counted.
MAX_ROWS = 200
MAX_COLUMNS = 120
MAX_LINES = 12


@frozen
class Cell:
    """A cell: its text and number, its class, and what changed in it with the last publication."""

    text: str = ""
    number: float | None = None
    kind: str = ""
    change: str = ""


@frozen
class Row:
    """A series of a panel, with a cell for each period of the table."""

    panel: Panel = field(repr=False)
    series: Series = field(repr=False)
    marks: Marks = field(repr=False)
    company: str
    label: str
    scopes: str
    version: str
    description: str
    number_format: str

    @property
    def names(self) -> tuple[str, ...]:
        return (self.company, self.label, self.scopes, self.version)

    def cells(self, periods: Sequence[Period]) -> list[Cell]:
        values = dict(self.series.observations())
        return [self._cell(values, period) for period in periods]

    def _cell(self, values: Mapping[Period, Value], period: Period) -> Cell:
        entity_id, version = self.panel.dataset.entity_id, self.panel.value_version
        change = self.marks.cells.get((entity_id, version, self.series.series_id, period), "")
        value = values.get(period)
        if value is None:
            asked = comparison.sign(self.panel, period) != NOT_REQUESTED
            return Cell(kind="gap" if asked else "unasked", change=change)
        return Cell(shown_text(value), value.number, "negative" if value.number < 0 else "", change)


@frozen
class Shown:
    """All that the page shows of panels.

    Attributes:
        periods: the columns of the table, oldest first.
        rows: those shown, with their cells.
        charts: a chart for each number format.
        marks: what changed with the last publications.
    """

    periods: tuple[Period, ...]
    rows: list[tuple[Row, list[Cell]]]
    charts: list[dict[str, object]]
    notes: list[str]
    several: bool
    marks: Marks

    @property
    def durations(self) -> set[int]:
        return {period.duration_months for period in self.periods}


def shown(panels: Sequence[Panel], marks: Marks) -> Shown:
    """Return what the page shows of panels of several companies or value versions."""
    rows = [_row(panel, series, marks) for panel in panels for series in panel]
    every = comparison.periods_of(panels)
    periods = every[-MAX_COLUMNS:]
    charts, hidden = _charts(rows)
    notes = [f"{panel.dataset.name}: {note}" for panel in panels for note in panel.notes]
    notes += comparison.notes(panels, periods)
    if hidden:
        notes.append(f"{hidden} more lines are not drawn.")
    if len(every) > len(periods):
        notes.append(f"{len(every) - len(periods)} earlier periods are not shown.")
    if len(rows) > MAX_ROWS:
        notes.append(f"{len(rows) - MAX_ROWS:,} more series are not shown.")
    several = len({row.company for row in rows}) > 1
    table = [(row, row.cells(periods)) for row in rows[:MAX_ROWS]]
    return Shown(periods, table, charts, notes, several, marks)


def _row(panel: Panel, series: Series, marks: Marks) -> Row:
    catalogue = panel.catalogue
    texts = (
        catalogue.name,
        series.label,
        " / ".join(catalogue.scope_names(series.scopes)),
        VERSION_WORDS[panel.value_version],
        further_description(catalogue[series.series_id]),
        series.number_format,
    )
    return Row(panel, series, marks, *map(printable, texts))


def _charts(rows: Sequence[Row]) -> tuple[list[dict[str, object]], int]:
    """Return a chart for each number format, and how many lines are not drawn.

    A chart has a line for each series and duration, by fiscal end. Amounts and ratios do not share a scale. A
    gap is None. A fiscal end without a period of a line's duration is "", which is not a gap.
    """
    # By panel, as companies may share a name.
    periods = {panel: _with_gaps(panel) for panel in dict.fromkeys(row.panel for row in rows)}
    every = set().union(*periods.values())
    ends = sorted({period.fiscal_end for period in every})
    # Where periods have the same end, the longest one gives the label: FY2021, not 2021-Q4.
    labels = {period.fiscal_end: period.label for period in sorted(every, key=lambda p: p.duration_months)}
    lines: list[tuple[Row, int, list[object]]] = []
    for row in rows:
        by_duration: dict[int, dict[int, float | None]] = {}
        values = dict(row.series.observations())
        for period in periods[row.panel]:
            number = values[period].number if period in values else None
            by_duration.setdefault(period.duration_months, {})[period.fiscal_end] = number
        lines += [
            (row, months, [line.get(end, "") for end in ends])
            for months, line in by_duration.items()
            if any(number is not None for number in line.values())
        ]
    drawn = lines[:MAX_LINES]
    by_format: dict[str, list[tuple[Row, int, list[object]]]] = {}
    for line in drawn:
        by_format.setdefault(line[0].number_format, []).append(line)
    axis = {"ends": ends, "labels": [labels[end] for end in ends]}
    return [{**axis, **_named(several)} for several in by_format.values()], len(lines) - len(drawn)


def _named(lines: Sequence[tuple[Row, int, list[object]]]) -> dict[str, object]:
    """Return the title, the subtitle and the lines of a chart; a line's name is what distinguishes it."""
    rows = [row for row, _, _ in lines]
    kinds = list(zip(*(row.names for row in rows), strict=True))
    differing = [at for at, names in enumerate(kinds) if len(set(names)) > 1] or [1]
    # As analysts name a chart: what it shows, or else of whom.
    common = {at: names[0] for at, names in enumerate(kinds) if len(set(names)) == 1 and names[0]}
    first = next((at for at in (1, 0) if at in common), None)
    metrics = {row.series.metric_id for row in rows}
    title = common[first] if first is not None else rows[0].label if len(metrics) == 1 else "Values"
    units = list(dict.fromkeys(row.description for row in rows if row.description))
    subtitle = [name for at, name in common.items() if at != first]
    if len(units) == 1:  # of several the table says which is which
        subtitle += units
    durations = {months for _, months, _ in lines}
    return {
        "title": title,
        "subtitle": " · ".join(subtitle),
        "lines": [
            {
                "label": " / ".join(row.names[at] for at in differing)
                + (f", {months} months" if len(durations) > 1 else ""),
                "months": months,
                "numbers": numbers,
            }
            for row, months, numbers in lines
        ],
    }


def _with_gaps(panel: Panel) -> list[Period]:
    """Return the panel's periods, and those that the catalogue has between them of the same durations.

    A panel of a range lists only periods with a value, so a line would lead over a quarter without one.
    """
    durations = {period.duration_months for period in panel.periods}
    ends = [period.fiscal_end for period in panel.periods]
    between: Iterable[Period] = (
        period
        for period in panel.catalogue.periods
        if period.duration_months in durations and min(ends) <= period.fiscal_end <= max(ends)
    )
    return sorted({*panel.periods, *between})
