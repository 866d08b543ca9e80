"""The answer to a question: what was read, and what the page and a file show of it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from asyncfin import Catalogue, Comparison, Panel, Period
from asyncfin.csv import csv_text
from asyncfin.errors import AsyncfinError
from asyncfin.text import GAP, NOT_REQUESTED
from asyncfin.typing import Row, Unit
from asyncfin.web.backend import http_error
from asyncfin.web.question import Question
from asyncfin.web.views import (
    MAX_CHARTS,
    MAX_COLUMNS,
    group_entries,
    list_entries,
    make_bodies,
    make_charts,
)
from asyncfin.words import counted, entity_names, listed

_LONGEST_NAME = 60


@frozen
class Answer:
    """What was read for a question.

    Attributes:
        catalogues: those of the companies that could be read.
        comparison: the values of those that could be read.
        errors: those of companies whose catalogue could not be read.
        planned_requests: how many requests were planned.
    """

    question: Question
    catalogues: Sequence[Catalogue]
    comparison: Comparison
    errors: Mapping[str, AsyncfinError] = field(factory=dict)
    planned_requests: int = 0

    @property
    def panels(self) -> list[Panel]:
        """The panels in the order of the question."""
        return list(self.comparison)

    @property
    def file_stem(self) -> str:
        """The name of a file without its suffix: the first company, and how many
        more.
        """
        panels = self.panels
        # Characters that headers and file systems agree on.
        stem = re.sub(r"[^A-Za-z0-9]+", "-", panels[0].dataset.name).strip("-")
        stem = stem[:_LONGEST_NAME] or "company"
        if len(panels) > 1:
            stem += f"-and-{len(panels) - 1}-more"
        return stem

    def make_page(self) -> dict[str, Any]:
        """Make what the page shows: columns, charts, table, notes and the Python."""
        question, panels = self.question, self.panels
        by_metric = question.is_by_metric
        entries = list_entries(panels, question.divisor)
        groups = group_entries(entries, by_metric=by_metric)
        every_period = _list_periods(panels)
        periods = every_period[-MAX_COLUMNS:]
        charts = make_charts(groups, by_metric=by_metric)
        notes = [*self._note_companies(), *_note_panels(panels, periods)]
        for chart in charts[:MAX_CHARTS]:
            if chart.omitted_count:
                lines = counted(chart.omitted_count, "more line")
                notes.append(f"{chart.title}: {lines} not drawn.")
        titles = [chart.title for chart in charts[MAX_CHARTS:]]
        if titles:
            words = counted(len(titles), "more chart")
            notes.append(f"{words} not drawn: {listed(titles, 5)}.")
        if len(every_period) > MAX_COLUMNS:
            words = counted(len(every_period) - MAX_COLUMNS, "earlier period")
            notes.append(f"{words} not shown.")
        publications = {}
        for panel in panels:
            publications[panel.dataset.entity_id] = panel.dataset.dataset_id
        return {
            "periods": periods,
            "has_durations": len({period.duration_months for period in periods}) > 1,
            "charts": charts[:MAX_CHARTS],
            "bodies": make_bodies(groups, periods, by_metric=by_metric),
            "notes": list(dict.fromkeys(notes)),
            "publications": publications,
            "spent": self.comparison.requests,
            "planned": self.planned_requests,
            "python": question.python(panels[0].catalogue),
        }

    def make_csv(self) -> str:
        """Make CSV of all values in the unit of the page."""
        return write_csv(self.panels, self.question.divisor)

    def _note_companies(self) -> Iterator[str]:
        """Note the companies that do not have all of the question."""
        names = entity_names(self.catalogues)
        for entity_id in self.question.companies:
            for errors in (self.errors, self.comparison.failed):
                if entity_id in errors:
                    name = names.get(entity_id, entity_id)
                    yield f"{name}: {http_error(errors[entity_id]).text}."
            if entity_id not in names and entity_id not in self.errors:
                yield f"{entity_id} could not be read when these values were requested."
        labels: dict[str, str] = {}
        pairs = []
        for catalogue in self.catalogues:
            series_by_text = self.question.find_series(catalogue)
            pairs.append((names[catalogue.entity_id], series_by_text))
            for text, series in series_by_text.items():
                words = [*catalogue.scope_names(series.scopes)]
                words.append(catalogue.by_group[series.reporting_group_id].name)
                labels.setdefault(text, f"{series.label} ({', '.join(words)})")
        for name, series_by_text in pairs:
            absent = []
            for text in self.question.series:
                if text not in series_by_text:
                    label = labels.get(text, text)
                    absent.append(label)
            if absent:
                yield f"{name} does not have {listed(absent)}."


def _list_periods(panels: Sequence[Panel]) -> list[Period]:
    periods: set[Period] = set()
    for panel in panels:
        periods.update(panel.periods_with_gaps)
    return sorted(periods)


def write_csv(panels: Sequence[Panel], unit: Unit | None) -> str:
    """Write CSV (RFC 4180): a line for each series and each period, oldest first."""
    periods = _list_periods(panels)
    lines: list[list[Any]] = [
        [*Row.columns, "period_label", "number", "unit", "shown", "text"]
    ]
    for panel in panels:
        for row in panel.rows(unit=unit):
            for period in periods:
                value, text = row.values.get(period), row.cell(period)
                number = number_text = None
                if value is not None:
                    number, number_text = value.number, row.scale.number(value)
                    text = value.text
                elif text == GAP:
                    text = ""
                cells = [period.label, number, row.unit or "", number_text, text]
                lines.append([*row.fields.values(), *cells])
    return csv_text(lines)


def _note_panels(panels: Sequence[Panel], periods: Sequence[Period]) -> Iterator[str]:
    """Yield the notes of panels in the words of the page, a line for each kind."""
    names = entity_names(panel.catalogue for panel in panels)
    names_by_note: dict[str, dict[str, None]] = {}
    for panel in panels:
        notes = [note.removesuffix(" and call latest()") for note in panel.notes]
        labels = [period.label for period in periods if not panel.covers(period)]
        if periods and set(periods).isdisjoint(panel.catalogue.periods):
            notes = ["no data for these periods"]
        elif labels:
            shown_labels = listed(labels, 6)
            notes.append(f"{NOT_REQUESTED} was not requested: {shown_labels}")
        for note in notes:
            names_of = names_by_note.setdefault(note, {})
            names_of[names[panel.dataset.entity_id]] = None
    for note, names_of in names_by_note.items():
        yield f"{listed(list(names_of), 5)}: {note}."
