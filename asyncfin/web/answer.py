"""What the page shows of panels: charts, the table, and notes, within the limits of a page."""

from collections.abc import Sequence

from attrs import frozen

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.words import counted, listed
from asyncfin.table import comparison
from asyncfin.table.panel import Panel
from asyncfin.web.history import Marks
from asyncfin.web.question import Question
from asyncfin.web.views import Body, Chart, Group, bodies_of, chart_of, groups_of, lines_of

# How much of a large answer a page shows; the rest is counted.
MAX_ROWS = 200
MAX_COLUMNS = 120
MAX_LINES = 12
MAX_CHARTS = 12


@frozen
class Content:
    """All that the page shows of panels.

    Attributes:
        periods: the columns of the table, oldest first.
        charts: those drawn.
        bodies: the rows of the table, by heading.
        marks: what changed with the last publications.
    """

    periods: tuple[Period, ...]
    charts: Sequence[Chart]
    bodies: Sequence[Body]
    notes: Sequence[str]
    marks: Marks

    @property
    def durations(self) -> set[int]:
        return {period.duration_months for period in self.periods}


def groups(question: Question, read: Sequence[Panel], catalogues: Sequence[Catalogue]) -> list[Group]:
    """Return the charts of the panels that were read for a question, and of each the rows.

    Args:
        catalogues: those over which the question's periods were resolved.
    """
    over = question.divisor(read[0].catalogue) if question.view == "ratio" else ()
    shown = {question.shown_of(panel, catalogues): panel for panel in read}
    return groups_of(
        list(shown),
        view=question.view,
        order=question.ordered,
        unit=question.divided_by,
        over=over,
        read=shown,
    )


def content(
    question: Question, read: Sequence[Panel], catalogues: Sequence[Catalogue], marks: Marks
) -> Content:
    """Return what the page shows of panels that have series, of several companies or value versions."""
    every = groups(question, read, catalogues)
    panels = list(dict.fromkeys(row.panel for group in every for row in group.rows))
    periods = comparison.periods_of(panels)
    shown = periods[-MAX_COLUMNS:]
    # A change is one of values: it says nothing of what is computed from them.
    marks = marks if question.view == "values" else Marks()
    charts = [
        chart_of(group, lines, most=MAX_LINES, is_log=question.is_log)
        for group in every
        if (lines := lines_of(group))
    ]
    bodies = bodies_of(every, shown, order=question.ordered, most=MAX_ROWS)
    notes = [f"{panel.dataset.name}: {note}" for panel in panels for note in panel.notes]
    notes += comparison.notes(panels, shown)
    notes += _without_divisor(every)
    notes += [
        f"{chart.title}: {counted(chart.hidden, 'more line is', 'more lines are')} not drawn."
        for chart in charts[:MAX_CHARTS]
        if chart.hidden
    ]
    if more := charts[MAX_CHARTS:]:
        titles = listed([chart.title for chart in more], 5)
        notes.append(f"{counted(len(more), 'more chart is', 'more charts are')} not drawn: {titles}.")
    if len(periods) > len(shown):
        earlier = counted(len(periods) - len(shown), "earlier period is", "earlier periods are")
        notes.append(f"{earlier} not shown.")
    if (hidden := sum(len(group.rows) for group in every) - MAX_ROWS) > 0:
        notes.append(f"{counted(hidden, 'more series is', 'more series are')} not shown.")
    return Content(shown, charts[:MAX_CHARTS], bodies, list(dict.fromkeys(notes)), marks)


def _without_divisor(every: Sequence[Group]) -> list[str]:
    """Return a line for each company that does not have what the ratio divides by."""
    names = dict.fromkeys(
        row.company for group in every for row in group.rows if row in group.over and group.over[row] is None
    )
    return [f"{name} does not have what the ratio divides by." for name in names]
