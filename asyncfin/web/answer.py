"""What the page shows of panels: charts, the table, and notes, within the limits of a
page.
"""

from collections.abc import Collection, Iterable, Sequence

from attrs import frozen

from asyncfin import Panel
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.text import NOT_REQUESTED
from asyncfin.web.history import Marks
from asyncfin.web.question import Question
from asyncfin.web.views import Body, Chart, Group, bodies_of, charts_of, groups_of
from asyncfin.words import counted, entity_names, listed

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
        companies: the names of those shown.
    """

    periods: tuple[Period, ...]
    charts: Sequence[Chart]
    bodies: Sequence[Body]
    notes: Sequence[str]
    marks: Marks
    companies: Sequence[str]

    @property
    def durations(self) -> set[int]:
        return {period.duration_months for period in self.periods}


def groups(
    question: Question, read: Sequence[Panel], catalogues: Sequence[Catalogue]
) -> list[Group]:
    """Return the charts of the panels that were read for a question, and of each the
    rows.

    Args:
        catalogues: those over which the question's periods were resolved.
    """
    over = question.divisor(read[0].catalogue) if question.view == "ratio" else ()
    shown = {
        question.shown_of(panel, catalogues): panel for panel in read if len(panel)
    }
    return groups_of(
        # For growth a company may have the periods of a year before, and none of these.
        [panel for panel in shown if not _is_beside(panel, panel.periods)],
        view=question.view,
        order=question.ordered,
        unit=question.divided_by,
        over=over,
        read=shown,
    )


def content(
    question: Question,
    read: Sequence[Panel],
    catalogues: Sequence[Catalogue],
    marks: Marks,
) -> Content:
    """Return what the page shows of panels, of several companies or value versions."""
    every = groups(question, read, catalogues)
    panels = list(dict.fromkeys(row.panel for group in every for row in group.rows))
    periods = sorted({period for panel in panels for period in panel.periods_with_gaps})
    shown = tuple(periods[-MAX_COLUMNS:])
    charts = charts_of(every, most=MAX_LINES, is_log=question.is_log)
    bodies = bodies_of(every, shown, order=question.ordered, most=MAX_ROWS)
    names = entity_names(panel.catalogue for panel in read)
    notes = [
        f"{names[panel.dataset.entity_id]}: {note}"
        for panel in panels
        for note in panel.notes
    ]
    unrequested = {
        names[panel.dataset.entity_id]: [
            period.label for period in shown if not panel.covers(period)
        ]
        for panel in panels
    }
    notes += [
        f"{name}: {NOT_REQUESTED} was not requested, so there may be a value: "
        f"{listed(labels, 6)}"
        for name, labels in unrequested.items()
        if labels
    ]
    notes += [
        f"{names[panel.dataset.entity_id]} has none of these periods"
        for panel in read
        if _is_beside(panel, shown)
    ]
    notes += _without_divisor(every)
    notes += [
        f"{chart.title}: {counted(chart.hidden, 'more line is', 'more lines are')} not "
        "drawn."
        for chart in charts[:MAX_CHARTS]
        if chart.hidden
    ]
    if more := charts[MAX_CHARTS:]:
        titles = listed([chart.title for chart in more], 5)
        notes.append(
            f"{counted(len(more), 'more chart is', 'more charts are')} not drawn: "
            f"{titles}."
        )
    if len(periods) > len(shown):
        earlier = counted(
            len(periods) - len(shown), "earlier period is", "earlier periods are"
        )
        notes.append(f"{earlier} not shown.")
    if (hidden := sum(len(group.rows) for group in every) - MAX_ROWS) > 0:
        notes.append(
            f"{counted(hidden, 'more series is', 'more series are')} not shown."
        )
    notes = list(dict.fromkeys(notes))
    return Content(
        shown, charts[:MAX_CHARTS], bodies, notes, marks, company_names(every)
    )


def company_names(every: Iterable[Group]) -> list[str]:
    """Return the names of the companies that groups show, one for each company."""
    datasets = {
        row.panel.dataset.entity_id: row.panel.dataset
        for group in every
        for row in group.rows
    }
    return [dataset.name for dataset in datasets.values()]


def _is_beside(panel: Panel, periods: Collection[Period]) -> bool:
    """Return whether there are periods, and the panel's company has none of them."""
    return bool(periods) and not set(periods).intersection(panel.catalogue.periods)


def _without_divisor(every: Sequence[Group]) -> list[str]:
    """Return a line for each company that does not have what the ratio divides by."""
    names = dict.fromkeys(
        row.company
        for group in every
        for row in group.rows
        if row in group.over and group.over[row] is None
    )
    return [f"{name} does not have what the ratio divides by." for name in names]
