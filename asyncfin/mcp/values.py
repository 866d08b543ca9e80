"""Which series and periods an assistant's arguments mean, and the rows and notes of
their values. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from attrs import define

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
    Value,
    format_path,
    parse_path,
)
from asyncfin.errors import SelectionError, shorten_middle
from asyncfin.mcp.results import Row
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
_YEAR = re.compile(r"\A\d{4}\Z", re.ASCII)
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
        if len(paths) > MAX_PATHS:
            hidden_count = counted(len(paths) - MAX_PATHS, "more scope path")
            notes.append(f"{name}: {hidden_count}: find_series names them")
        for path in paths[:MAX_PATHS]:
            items[name, path] = None
        if paths:
            continue
        metric_id, _, text = name.rpartition(_AT)
        path = parse_path(text) if metric_id else ()
        if not any(_matching(catalogue, (metric_id, path)) for catalogue in catalogues):
            # A metric that it does not have is an error with close matches.
            catalogues[0].select(Select(metric_id or name))
            raise SelectionError(f"series: no company has {name!r}")
        items[metric_id, path] = None
    return list(items), notes


def _find_paths(metric_id: str, catalogues: Iterable[Catalogue]) -> list[ScopePath]:
    paths: dict[ScopePath, None] = {}
    total_paths: dict[ScopePath, None] = {}
    for catalogue in catalogues:
        for series in catalogue.by_metric.get(metric_id, ()):
            paths[series.scopes] = None
            if series.basis.casefold() == "consolidated":
                total_paths[series.scopes] = None
    return list(total_paths or paths)


def _matching(catalogue: Catalogue, item: Item) -> list[CatalogueSeries]:
    metric_id, path = item
    series = catalogue.by_metric.get(metric_id, ())
    return [member for member in series if member.scopes == path]


def find_series(catalogue: Catalogue, items: Iterable[Item]) -> list[CatalogueSeries]:
    """The series of a company, of every reporting group."""
    series = []
    for item in items:
        series += _matching(catalogue, item)
    return series


def find_periods(
    texts: Sequence[str | int], catalogues: Sequence[Catalogue]
) -> Exact | Trailing:
    """Find the periods that words or labels mean, over all companies together.

    A year means its fiscal year, and not its quarters: 2024 is FY2024.

    Raises:
        SelectionError: they mean none, or no company has such periods.
    """
    labels = list(map(str.strip, ",".join(map(str, texts)).split(",")))
    selection = _find_selection(labels, catalogues[0])
    if isinstance(selection, Trailing):
        return selection
    return selection.resolve(catalogues)


def _find_selection(labels: list[str], catalogue: Catalogue) -> PeriodSelection:
    if labels == ["all periods"]:
        return FiscalRange()
    try:
        return Exact({_YEAR.sub(r"FY\g<0>", label): None for label in labels})
    except SelectionError:
        pass
    words: Any = labels if len(labels) > 1 else labels[0]
    try:
        # The error of a text reports what it means.
        return catalogue.resolve(words)
    except SelectionError as error:
        if isinstance(error.instead, PeriodSelection):
            return error.instead
    raise SelectionError(
        f"periods must be words, such as {PERIOD_WORDS}, or labels, such as FY2023 or "
        f"FY2024-Q3, not {', '.join(labels)!r}"
    )


# --- results


class Line(NamedTuple):
    """A row of a company.

    Attributes:
        item: its metric and path.
        series: the series, or None if the company does not have it.
        group: its reporting group, if the company has two rows of the item.
        values: the values by period, oldest first.
    """

    item: Item
    series: CatalogueSeries | None = None
    group: str = ""
    values: Mapping[Period, Value] = MappingProxyType({})


@define
class Part:
    """One company's part of a result.

    Attributes:
        name: what notes call the company.
        plan: the plan for all periods, or a trailing window, or None if the company
            has none of the series.
        items: the metrics and paths of the query.
        selection: the periods of the query.
        panel: the values, once they were read.
    """

    catalogue: Catalogue
    name: str
    plan: Plan | None
    items: Sequence[Item]
    selection: Exact | Trailing
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

    def lines(self) -> Iterator[Line]:
        """Yield the rows.

        Of the series of a metric and path, such as annual and quarterly ones, those
        with a value are shown.
        """
        for item in self.items:
            lines = []
            empty_lines = []
            for series in _matching(self.catalogue, item):
                values: dict[Period, Value] = {}
                if self.panel is not None and series.series_id in self.panel:
                    values.update(self.panel[series.series_id].observations())
                line = Line(item, series, series.reporting_group_id, values)
                if values.keys().isdisjoint(self.periods):
                    empty_lines.append(line)
                else:
                    lines.append(line)
            if len(lines) > 1:
                yield from lines
            else:
                line = (lines + empty_lines + [Line(item)])[0]
                yield line._replace(group="")


def make_rows(part: Part) -> Iterator[Row]:
    """Make the rows of a company, with its name and fiscal labels before the first."""
    catalogue, labels = part.catalogue, [period.label for period in part.periods]
    date = f"publication of {catalogue.created_timestamp:%Y-%m-%d}"
    title = f"{part.name} ({catalogue.entity_id}), {date}"
    head: tuple[str, ...] = (
        title,
        "\t".join(["series", "label", "scopes", "description", *labels]),
    )
    for item, series, group, values in part.lines():
        metric_id, path = item
        label, description = metric_id, MISSING
        if series is not None:
            label, description = series.label, describe(series)
        scopes = " / ".join(catalogue.scope_names(path))
        if group:
            scopes += f" [{group}]"
        texts = dict.fromkeys(labels, "")
        for period, value in values.items():
            if period.label in texts:
                texts[period.label] = value.text or f"{value.number:,}"
        fields = {
            "company": catalogue.entity_id,
            "series": name_item(item),
            "metric": metric_id,
            "label": label,
            "scopes": scopes,
            "group": group,
            "description": description,
            "values": {period: text for period, text in texts.items() if text},
        }
        cells = [name_item(item), label, scopes, description, *texts.values()]
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
    if isinstance(part.selection, Exact):
        absent = sorted(set(part.selection.periods).difference(periods))
        if absent:
            yield f"{part.name} does not have the periods {_join_labels(absent)}"
    cut_panel = panel.during(set(periods).intersection(panel.periods))
    for note in cut_panel.notes:
        yield f"{part.name}: {note.removesuffix(' and call latest()')}"
    for item, series, group, values in part.lines():
        name = f"{part.name}: {name_item(item)}"
        if group:
            name += f" [{group}]"
        if series is None:
            yield f"{name}: {MISSING}"
        elif series.series_id in panel:
            # A line for each reason why cells are empty.
            periods_by_reason: dict[str, list[Period]] = {}
            restated_periods = []
            for period in periods:
                if period in values:
                    if values[period].value_version == "latest_restated":
                        restated_periods.append(period)
                elif period not in cut_panel.gaps:
                    reason = panel.why(series.series_id, period) or ""
                    periods_by_reason.setdefault(reason, []).append(period)
            for reason, empty_periods in periods_by_reason.items():
                yield f"{name} is empty in {_join_labels(empty_periods)}: {reason}"
            if restated_periods:
                yield f"{name} is restated in {_join_labels(restated_periods)}"


def _join_labels(periods: Iterable[Period]) -> str:
    return listed([period.label for period in periods])
