"""An assistant's question: which series and periods its words mean in the catalogues of
some companies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from attrs import evolve, field, frozen

from asyncfin.checks import short_repr
from asyncfin.errors import AsyncfinError, SelectionError
from asyncfin.mcp.handles import Handles, Meaning, is_handle
from asyncfin.mcp.results import company_names
from asyncfin.mcp.values import Part
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.scope import ScopePath
from asyncfin.model.search import close_metrics
from asyncfin.model.select import Select
from asyncfin.model.selection import (
    RULES,
    Exact,
    FiscalRange,
    PeriodSelection,
    Rule,
    Trailing,
    intended_selection,
)
from asyncfin.model.series import CatalogueSeries, is_consolidated
from asyncfin.table.panel import Panel
from asyncfin.words import counted, listed

# How many scope paths of a metric are read, and scopes of a group are named.
MAX_PATHS = 12
# How many periods of each rule a word names, besides the latest one and all.
_YEAR = re.compile(r"\d{4}", re.ASCII)
_COUNTS = {"annual": (5, 10), "quarterly": (4, 8), "half-yearly": (4,)}


def _words(rule: type[Rule]) -> dict[str, PeriodSelection]:
    noun = rule.kind.split()[-1]
    counts = {
        f"last {count} {noun}s": rule(last=count)
        for count in _COUNTS.get(rule.name, ())
    }
    return {f"latest {noun}": rule(last=1), **counts, f"all {noun}s": rule()}


PERIODS: dict[str, PeriodSelection] = {
    **{word: selection for rule in RULES for word, selection in _words(rule).items()},
    "last 12 months": Trailing(12),
    "all periods": FiscalRange(),
}


# Not slotted, for the cached properties.
@frozen(slots=False)
class Question:
    """A question to some companies.

    Attributes:
        catalogues: the catalogues of the companies.
        names: the series, as handles or metric ids.
        handles: the handles of the session.
        selection: which periods are shown.
        unread: notes about companies whose catalogue could not be read.
        items: what each of the names means; a metric id means several paths if
            companies differ.

    Raises:
        SelectionError: no catalogue has one of the metrics.
    """

    catalogues: tuple[Catalogue, ...]
    names: tuple[str, ...]
    handles: Handles
    selection: PeriodSelection
    unread: tuple[str, ...]
    items: tuple[tuple[Meaning, ...], ...] = field(init=False)

    @items.default
    def _items(self) -> tuple[tuple[Meaning, ...], ...]:
        return tuple(
            _meanings(self.handles, name, self.catalogues) for name in self.names
        )

    @property
    def notes(self) -> list[str]:
        """Notes about paths that are not in `items`."""
        notes = []
        for name, item in zip(self.names, self.items, strict=True):
            if not is_handle(name) and (
                more := len(_paths(name, self.catalogues)) - len(item)
            ):
                notes.append(
                    f"{name}: {counted(more, 'more scope path')}: find_series gives "
                    "their handles"
                )
        return notes

    @property
    def range(self) -> FiscalRange | Trailing:
        """The periods to request: all, at no further cost, so that a note can say where
        values are.
        """
        return self.selection if isinstance(self.selection, Trailing) else FiscalRange()

    @cached_property
    def select(self) -> Select:
        """The series to request, in every company and publication."""
        # By metric first: a predicate on each of thousands of series takes long.
        metrics = dict.fromkeys(meaning.metric_id for meaning in self.meanings)
        return Select(
            metrics,
            where=self.wants,
            name=", ".join(map(self.handles.of, self.meanings)),
        )

    @cached_property
    def meanings(self) -> dict[Meaning, None]:
        """What all names together mean."""
        return dict.fromkeys(meaning for item in self.items for meaning in item)

    def wants(self, series: CatalogueSeries) -> bool:
        """Return whether the question requests a series."""
        return Meaning(series.metric_id, series.scopes) in self.meanings

    def over(self, current: Iterable[Catalogue]) -> Question:
        """Return the question with these catalogues in place of those of the same
        companies.

        Raises:
            SelectionError: no catalogue has one of the metrics any more.
        """
        newer = {catalogue.entity_id: catalogue for catalogue in current}
        return evolve(
            self,
            catalogues=tuple(
                newer.get(each.entity_id, each) for each in self.catalogues
            ),
        )

    def parts(self, panels: Sequence[tuple[Panel, Panel | None]]) -> list[Part]:
        """Return the parts of a result: a company's values, and those of the other
        version if it has them.

        Raises:
            SelectionError: no company has such periods.
        """
        if not panels:
            return []
        catalogues = [panel.catalogue for panel, _ in panels]
        shown = shown_periods(self.selection, catalogues)
        named = self.selection.periods if isinstance(self.selection, Exact) else ()
        names = company_names({each.entity_id: each.name for each in catalogues})
        return [
            Part(
                panel,
                other,
                self.items,
                self.handles,
                shown,
                named,
                names[panel.catalogue.entity_id],
            )
            for panel, other in panels
        ]


def selection_of(periods: Sequence[str | int] | str | int) -> PeriodSelection:
    """Return the periods that one of the words of `PERIODS` means, or labels.

    A year means its fiscal year, and not its quarters: 2024 is FY2024.

    Raises:
        SelectionError: it is neither a word nor labels.
    """
    texts = [periods] if isinstance(periods, str | int) else periods
    labels = [label.strip() for text in texts for label in str(text).split(",")]
    if len(labels) == 1 and (word := labels[0].casefold()) in PERIODS:
        return PERIODS[word]
    years = (f"FY{label}" if _YEAR.fullmatch(label) else label for label in labels)
    labels = list(dict.fromkeys(years))
    try:
        return Exact(labels)
    except SelectionError:
        raise SelectionError(
            f"periods must be one of {', '.join(PERIODS)}, or labels such as FY2023 or "
            "FY2024-Q3, not"
            f" {short_repr(periods)}",
            instead=intended_selection(labels if len(labels) > 1 else labels[0]),
        ) from None


def in_words(error: AsyncfinError) -> str:
    """Return an error's text with the words that select the proposed periods, instead
    of Python.
    """
    if not isinstance(error, SelectionError) or error.instead is None:
        return str(error)
    if isinstance(error.instead, Exact):
        words = ", ".join(period.label for period in error.instead.periods)
    else:
        words = next(
            (word for word, meant in PERIODS.items() if meant == error.instead), ""
        )
    return f'{error.problem}; write "{words}"' if words else error.problem


def shown_periods(
    selection: PeriodSelection, catalogues: Iterable[Catalogue]
) -> Exact | Trailing:
    """Return the periods to show; those of a rule are resolved over all companies
    together.

    Raises:
        SelectionError: no company has such periods.
    """
    return (
        selection if isinstance(selection, Trailing) else selection.resolve(catalogues)
    )


def _meanings(
    handles: Handles, name: str, catalogues: Sequence[Catalogue]
) -> tuple[Meaning, ...]:
    """Return what a handle or a metric id means: of a metric the paths of the whole
    company, or else all.

    Raises:
        SelectionError: no catalogue has the metric.
    """
    if (meaning := handles.meaning(name)) is not None:
        return (meaning,)
    paths = _paths(name, catalogues)
    if not paths:
        near = close_metrics(catalogues, name)
        close = f" (close: {listed(near)})" if near else ""
        raise SelectionError(f"series: no company has the metric {name!r}{close}")
    whole = [path for path, is_whole in paths.items() if is_whole]
    return tuple(Meaning(name, path) for path in (whole or list(paths))[:MAX_PATHS])


def _paths(metric_id: str, catalogues: Sequence[Catalogue]) -> dict[ScopePath, bool]:
    """Return the paths of a metric in all catalogues, and whether they are of the whole
    company.
    """
    paths: dict[ScopePath, bool] = {}
    for catalogue in catalogues:
        for series in catalogue.by_metric.get(metric_id, ()):
            paths[series.scopes] = is_consolidated(series) or paths.get(
                series.scopes, False
            )
    return paths
