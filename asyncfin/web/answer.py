"""The answer to a question: what was read, and what the page and a file show of it."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from attrs import evolve, frozen

from asyncfin import Comparison
from asyncfin.web.backend import http_error
from asyncfin.web.question import Question
from asyncfin.web.views import (
    MAX_CHARTS,
    MAX_COLUMNS,
    Chart,
    group_entries,
    list_entries,
    make_bodies,
    make_charts,
)
from asyncfin.words import counted, listed

# Visitors choose periods on the page, and call nothing.
_CALL = " and call latest()"


@frozen
class Answer:
    """The values that were read for a question.

    Attributes:
        names: the names of companies by id, as far as they are confirmed.
    """

    question: Question
    comparison: Comparison
    names: Mapping[str, str]

    def make_page(self) -> dict[str, Any]:
        """Make what the page shows: columns, charts, table, notes and the Python."""
        by_metric = self.question.is_by_metric
        panels = list(self.comparison)
        entries = list_entries(panels, self.question.divisor)
        groups = group_entries(entries, by_metric=by_metric)
        charts = make_charts(groups, by_metric=by_metric)
        periods = self.comparison.periods_with_gaps[-MAX_COLUMNS:]
        return {
            "panels": panels,
            "periods": periods,
            "charts": charts[:MAX_CHARTS],
            "bodies": make_bodies(groups, periods, by_metric=by_metric),
            "notes": [*self._note_companies(), *self._note_omitted(charts)],
            "spent": self.comparison.requests,
            "python": self.question.python,
        }

    def _note_companies(self) -> Iterator[str]:
        """Note the companies that were not read, then what the others do not have."""
        comparison = self.comparison
        for entity_id in self.question.companies:
            name = self.names[entity_id] or entity_id
            if entity_id in comparison.failed:
                yield f"{name}: {http_error(comparison.failed[entity_id]).text}."
            elif entity_id not in comparison:
                yield f"{name} could not be read when these values were requested."
        # Failures were named in words for visitors.
        for note in evolve(comparison, failed={}).notes:
            text = note.removesuffix(_CALL)
            yield f"{text[:1].upper()}{text[1:]}."

    def _note_omitted(self, charts: Sequence[Chart]) -> Iterator[str]:
        """Count what the page does not show."""
        for chart in charts[:MAX_CHARTS]:
            if chart.omitted_count:
                lines = counted(chart.omitted_count, "more line")
                yield f"{chart.title}: {lines} not drawn."
        titles = list(map(attrgetter("title"), charts[MAX_CHARTS:]))
        if titles:
            words = counted(len(titles), "more chart")
            yield f"{words} not drawn: {listed(titles, 5)}."
        omitted_count = len(self.comparison.periods_with_gaps) - MAX_COLUMNS
        if omitted_count > 0:
            yield f"{counted(omitted_count, 'earlier period')} not shown."
