"""Which series and periods an assistant's arguments mean, and the rows and notes of
their values. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from attrs import frozen

from asyncfin import (
    Catalogue,
    CatalogueSeries,
    Exact,
    FiscalRange,
    Panel,
    Period,
    Plan,
    Select,
    Trailing,
    format_path,
    parse_path,
)
from asyncfin.errors import SelectionError, shorten_middle
from asyncfin.mcp.results import Row, quote
from asyncfin.typing import PeriodSelection, ScopePath
from asyncfin.words import counted, listed, spanned

# A metric and a scope path, in every company and publication.
Item: TypeAlias = tuple[str, ScopePath]
# How many scope paths of a metric are read.
MAX_PATHS = 12
PERIOD_WORDS = (
    "latest year, last 5 years, all years, latest quarter, last 8 quarters, last 4 "
    "half-years, last 12 months, all periods"
)
MISSING = "this company does not have the series"
_AT = " @ "
_YEAR = re.compile(r"\d{4}", re.ASCII)
_LONGEST = 160


# --- arguments


def name_item(item: Item) -> str:
    """The name of a series: its metric, and its scope path if it has one."""
    metric_id, path = item
    return f"{metric_id}{_AT}{format_path(path)}" if path else metric_id


def find_items(
    names: Sequence[str], catalogues: Sequence[Catalogue]
) -> tuple[list[Item], list[str]]:
    """Find what names mean, and make notes about paths that are not read.

    A metric alone means its paths of the whole company, or else all of them.

    Raises:
        SelectionError: no catalogue has one of the series.
    """
    items: dict[Item, None] = {}
    notes = []
    for name in names:
        paths = _find_paths(name, catalogues)
        if paths:
            items.update(((name, path), None) for path in paths[:MAX_PATHS])
            if len(paths) > MAX_PATHS:
                hidden_count = counted(len(paths) - MAX_PATHS, "more scope path")
                notes.append(f"{name}: {hidden_count}: find_series names them")
            continue
        metric_id, _, text = name.rpartition(_AT)
        path = parse_path(text) if metric_id else ()
        if not any(_matching(catalogue, (metric_id, path)) for catalogue in catalogues):
            raise _reject_series(name, metric_id or name, catalogues)
        items[metric_id, path] = None
    return list(items), notes


def _find_paths(metric_id: str, catalogues: Iterable[Catalogue]) -> list[ScopePath]:
    series = [
        entry
        for catalogue in catalogues
        for entry in catalogue.by_metric.get(metric_id, ())
    ]
    totals = [entry for entry in series if entry.basis.casefold() == "consolidated"]
    return list(dict.fromkeys(entry.scopes for entry in totals or series))


def _reject_series(
    name: str, metric_id: str, catalogues: Sequence[Catalogue]
) -> SelectionError:
    problem = f"series: no company has {name!r}"
    try:
        catalogues[0].select(Select(metric_id))
    except SelectionError as error:
        problem = error.problem
    return SelectionError(f"{problem}; call find_series")


def _matching(catalogue: Catalogue, item: Item) -> list[CatalogueSeries]:
    metric_id, path = item
    return [
        series
        for series in catalogue.by_metric.get(metric_id, ())
        if series.scopes == path
    ]


def find_series(catalogue: Catalogue, items: Iterable[Item]) -> list[CatalogueSeries]:
    """The series of a company, of every reporting group."""
    return [series for item in items for series in _matching(catalogue, item)]


def find_periods(
    texts: Sequence[str | int], catalogues: Sequence[Catalogue]
) -> tuple[Exact | Trailing, tuple[Period, ...]]:
    """Find the periods that words or labels mean, over all companies together, and
    those that labels name.

    A year means its fiscal year, and not its quarters: 2024 is FY2024.

    Raises:
        SelectionError: they mean none, or no company has such periods.
    """
    labels = [label.strip() for text in texts for label in str(text).split(",")]
    selection = _find_selection(labels, catalogues[0])
    if isinstance(selection, Trailing):
        return selection, ()
    named_periods = selection.periods if isinstance(selection, Exact) else ()
    return selection.resolve(catalogues), named_periods


def _find_selection(labels: list[str], catalogue: Catalogue) -> PeriodSelection:
    if labels == ["all periods"]:
        return FiscalRange()
    try:
        return Exact(
            dict.fromkeys(
                f"FY{label}" if _YEAR.fullmatch(label) else label for label in labels
            )
        )
    except SelectionError:
        pass
    try:
        # The error of a text reports what it means.
        return catalogue.resolve(cast(Any, labels if len(labels) > 1 else labels[0]))
    except SelectionError as error:
        if isinstance(error.instead, PeriodSelection):
            return error.instead
    raise SelectionError(
        f"periods must be words, such as {PERIOD_WORDS}, or labels, such as FY2023 or "
        f"FY2024-Q3, not {', '.join(labels)!r}"
    )


# --- results


@frozen
class Part:
    """One company's part of a result.

    Attributes:
        name: what notes call the company.
        plan: the plan for all periods, or a trailing window, or None if the company
            has none of the series.
        items: the metrics and paths of the query.
        selection: the periods of the query.
        named_periods: those that it names by labels.
        panel: the values, once they were read.
    """

    catalogue: Catalogue
    name: str
    plan: Plan | None
    items: Sequence[Item]
    selection: Exact | Trailing
    named_periods: tuple[Period, ...]
    panel: Panel | None = None

    @property
    def requests(self) -> int:
        return 0 if self.plan is None else self.plan.requests

    @property
    def periods(self) -> tuple[Period, ...]:
        """The selected periods that the company has, oldest first."""
        if isinstance(self.selection, Exact):
            listed_periods = set(self.catalogue.periods)
            return tuple(sorted(listed_periods.intersection(self.selection.periods)))
        return () if self.panel is None else self.panel.periods

    def lines(self) -> Iterator[tuple[Item, CatalogueSeries | None, str]]:
        """Yield the series of each row, with its reporting group if it has two rows.

        Of the series of a metric and path, such as annual and quarterly ones, those
        with a value are shown.
        """
        for item in self.items:
            series = _matching(self.catalogue, item)
            with_values = [entry for entry in series if self._has_value(entry)]
            for entry in with_values or series[:1]:
                group = entry.reporting_group_id if len(with_values) > 1 else ""
                yield item, entry, group
            if not series:
                yield item, None, ""

    def _has_value(self, series: CatalogueSeries) -> bool:
        return not self.values(series).keys().isdisjoint(self.periods)

    def values(self, series: CatalogueSeries) -> dict[Period, str]:
        """The texts of a series by period, oldest first."""
        if self.panel is None or series.series_id not in self.panel:
            return {}
        return {
            period: value.text or f"{value.number:,}"
            for period, value in self.panel[series.series_id].observations()
        }


def make_rows(part: Part) -> Iterator[Row]:
    """Make the rows of a company, with its name and fiscal labels before the first."""
    catalogue, labels = part.catalogue, [period.label for period in part.periods]
    date = f"publication of {catalogue.created_timestamp:%Y-%m-%d}"
    title = f"{part.name} ({catalogue.entity_id}), {date}"
    if not labels:
        title += ", has none of these periods"
    head: tuple[str, ...] = (
        title,
        "\t".join(["series", "label", "scopes", "description", *labels]),
    )
    for item, series, group in part.lines():
        label, description, values = item[0], MISSING, dict[Period, str]()
        if series is not None:
            label, values = series.label, part.values(series)
            description = describe(series)
        scopes = " / ".join(catalogue.scope_names(item[1]))
        if group:
            scopes += f" [{group}]"
        texts = [values.get(period, "") for period in part.periods]
        pairs = zip(labels, texts, strict=True)
        fields = {
            "company": catalogue.entity_id,
            "series": name_item(item),
            "metric": item[0],
            "label": label,
            "scopes": scopes,
            "group": group,
            "description": description,
            "values": {period: text for period, text in pairs if text},
        }
        cells = [name_item(item), label, scopes, description, *texts]
        yield Row(cells, fields, head)
        head = ()


def describe(series: CatalogueSeries) -> str:
    """The description of a series, without its middle; nothing if it is the label."""
    if series.description == series.label:
        return ""
    return shorten_middle(series.description, _LONGEST)


def make_notes(part: Part) -> Iterator[str]:
    """Note missing periods, empty cells, and restated values of a company."""
    periods, panel = part.periods, part.panel
    if panel is None:
        return
    if not periods:
        span = spanned(part.catalogue.periods) or "none"
        yield f"{part.name} has none of these periods; it has {span}"
        return
    if absent := sorted(set(part.named_periods).difference(periods)):
        yield f"{part.name} does not have the periods {_join_labels(absent)}"
    cut_panel = panel.during(set(periods).intersection(panel.periods))
    yield from (f"{part.name}: {note}" for note in cut_panel.notes)
    for item, series, group in part.lines():
        name = f"{part.name}: {name_item(item)}" + (f" [{group}]" if group else "")
        if series is None:
            yield f"{name}: {MISSING}"
        elif series.series_id in panel:
            yield from _note_empty_cells(part, panel, name, series, cut_panel.gaps)
            restated_periods = [
                period
                for period, value in panel[series.series_id].observations()
                if period in periods and value.value_version == "latest_restated"
            ]
            if restated_periods:
                yield f"{name} is restated in {_join_labels(restated_periods)}"


def _note_empty_cells(
    part: Part,
    panel: Panel,
    name: str,
    series: CatalogueSeries,
    gaps: Sequence[Period],
) -> Iterator[str]:
    """Note why cells of a row are empty, a line for each reason."""
    values = part.values(series)
    periods_by_reason: dict[str, list[Period]] = {}
    for period in part.periods:
        if period not in values and period not in gaps:
            reason = panel.why(series.series_id, period) or ""
            periods_by_reason.setdefault(reason, []).append(period)
    for reason, periods in periods_by_reason.items():
        yield f"{name} is empty in {_join_labels(periods)}: {reason}"
    if periods_by_reason and values.keys().isdisjoint(part.periods):
        yield f"{name} has values in: {spanned(list(values)) or 'no period'}"


def note_differences(parts: Sequence[Part]) -> Iterator[str]:
    """Note the metrics that companies describe differently: their units may differ."""
    descriptions: dict[str, dict[str, dict[str, None]]] = {}
    for part in parts:
        for item, series, _ in part.lines():
            if series is not None:
                companies = descriptions.setdefault(item[0], {})
                text = series.description.strip()
                companies.setdefault(text, {})[part.name] = None
    for metric_id, companies in descriptions.items():
        if len(companies) > 1:
            texts = [
                f"{', '.join(names)}: {quote(shorten_middle(text, _LONGEST))}"
                for text, names in companies.items()
            ]
            yield f"{metric_id} has different descriptions: {'; '.join(texts)}"


def _join_labels(periods: Iterable[Period]) -> str:
    return listed([period.label for period in periods])
