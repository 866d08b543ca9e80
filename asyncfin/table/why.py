"""Why a cell of a panel is empty, or a panel as a whole, as far as its responses and
its catalogue show.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from asyncfin.errors import printable
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period, fiscal_month
from asyncfin.model.scope import ScopePath
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.grid import Grid
from asyncfin.words import counted, listed, spanned


def why(
    panel: Result, several: Sequence[CatalogueSeries], period: Period
) -> str | None:
    """Return why none of several series has a value at a period, as `Panel.why`
    does.
    """
    grid = panel._grid
    observed = sorted(
        {at for series in several for at in grid.observed(series.series_id)}
    )
    if period in observed:
        return None
    return next(_reasons(grid, panel.unlisted, several, period, observed))


def _reasons(
    grid: Grid,
    unlisted: Collection[str],
    several: Sequence[CatalogueSeries],
    period: Period,
    observed: Sequence[Period],
) -> Iterator[str]:
    """Yield all reasons that apply, in their order; at least one."""
    listed = grid.catalogue.periods  # oldest first
    if all(series.series_id in unlisted for series in several):
        yield "unlisted: the service left the series out of its responses"
    if (
        not listed
        or not listed[0].fiscal_end <= period.fiscal_end <= listed[-1].fiscal_end
    ):
        yield f"outside the catalogue's span: {spanned(listed) or 'it has no periods'}"
    if inactive := next(_inactive(grid.catalogue, several[0].scopes, period), None):
        yield f"inactive scope: {inactive}"
    if not grid.covers(period):
        yield f"not requested: the question does not include {period}"
    of_duration = [
        each for each in observed if each.duration_months == period.duration_months
    ]
    # In these the series may have values, so nothing is claimed about them.
    unknown = [
        each
        for each in listed
        if each.duration_months == period.duration_months and not grid.covers(each)
    ]
    if observed and not of_duration:
        durations = sorted({each.duration_months for each in observed})
        shorter = ", ".join(map(str, durations[:-1]))
        months = " and ".join(filter(None, [shorter, counted(durations[-1], "month")]))
        limit = ", as far as the question includes them" if unknown else ""
        yield f"values for other durations only: {months}{limit}"
    if of_duration:
        first, last = of_duration[0], of_duration[-1]
        if period < first and not any(each < first for each in unknown):
            yield f"before the first value of the series: {first}"
        if period > last and not any(each > last for each in unknown):
            yield f"after the last value of the series: {last}"
    if period not in grid.populated:
        yield f"no value in any series of the panel in {period}"
    yield "no value"


def _inactive(catalogue: Catalogue, path: ScopePath, period: Period) -> Iterator[str]:
    """Yield the scopes of a path that were not active in any month of a period, and
    when they were active.
    """
    for scope in catalogue.listed_scopes(path):
        start, end = scope.active_start, scope.active_end
        if (start and period.fiscal_end < start.fiscal_end) or (
            end and end.fiscal_end < period.fiscal_start
        ):
            bounds = [
                f"{word} {fiscal_month(month)}"
                for word, month in (("from", start), ("until", end))
                if month
            ]
            # In quotes, as it is data and no part of the sentence.
            name = json.dumps(
                printable(scope.name or scope.scope_id), ensure_ascii=False
            )
            yield f"{name} was active {' '.join(bounds)}"


class Result(Protocol):
    """A Panel, for functions that its own methods call."""

    @property
    def _grid(self) -> Grid: ...
    @property
    def catalogue(self) -> Catalogue: ...
    @property
    def select(self) -> Select: ...
    @property
    def value_version(self) -> str: ...
    @property
    def periods(self) -> tuple[Period, ...]: ...
    @property
    def gaps(self) -> tuple[Period, ...]: ...
    @property
    def unlisted(self) -> tuple[str, ...]: ...
    @property
    def anchor(self) -> Period | None: ...
    @property
    def anchored_by(self) -> tuple[str, ...]: ...
    @property
    def value_count(self) -> int: ...


def why_empty(panel: Result) -> str | None:
    """Return why a panel has no value, as far as its catalogue shows; None if it has
    one.
    """
    if panel.value_count:
        return None
    series = panel._grid.series
    if not series:
        return "no values, because no series is selected"
    groups = panel.catalogue.by_group
    cadences = dict.fromkeys(groups[each.reporting_group_id].cadence for each in series)
    when = span(panel.periods) if panel.periods else "the requested periods"
    return (
        f"no values, because no series has one in {when}; the cadence of their "
        "reporting groups is"
        f" {listed(list(cadences))}, and the catalogue has "
        f"{span(panel.catalogue.periods)}"
        f"{_balances_hint(panel._grid)}: request other series or periods"
    )


def _balances_hint(grid: Grid) -> str:
    """Return that the catalogue has points in time, which a question for years does not
    include.
    """
    points = sum(not period.duration_months for period in grid.catalogue.periods)
    if not points or not all(period.duration_months for period in grid.asked):
        return ""
    return (
        f", {points:,} of them of duration 0, such as balances: FiscalRange includes "
        "these,"
        " and rules such as Annual do not"
    )


def span(periods: Sequence[Period]) -> str:
    """Return how many periods there are, and which."""
    return counted(len(periods), "period") + (
        f", {spanned(periods)}" if periods else ""
    )
