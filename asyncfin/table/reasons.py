"""Why a cell of a panel is empty, as far as its responses and its catalogue show."""

import json
from operator import attrgetter

from asyncfin.errors import printable
from asyncfin.model.period import Period, write_fiscal_month
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.grid import Grid, group_by_duration
from asyncfin.words import counted, either, spanned


def explain_cell(grid: Grid, series: CatalogueSeries, period: Period) -> str | None:
    """Explain why a series has no value at a period, as `Panel.why` does."""
    observed_periods = grid.find_periods(series.series_id)
    if period in observed_periods:
        return None
    if series.series_id in grid.unlisted_ids:
        return "unlisted: the service left the series out of its responses"
    catalogue_periods = grid.catalogue.periods  # oldest first
    ends = list(map(attrgetter("fiscal_end"), catalogue_periods))
    if not ends or not ends[0] <= period.fiscal_end <= ends[-1]:
        span_text = spanned(catalogue_periods) or "it has no periods"
        return f"outside the catalogue's span: {span_text}"
    if inactive := _describe_inactive_scope(grid, series.scopes, period):
        return f"inactive scope: {inactive}"
    if period in grid.omitted_periods:
        return f"not requested: the query does not include {period}"
    # In these the series may have values, so nothing is claimed about them.
    omitted_periods = group_by_duration(grid.omitted_periods)
    unknown = omitted_periods.get(period.duration_months, [])
    durations = group_by_duration(observed_periods)
    of_duration = durations.get(period.duration_months, [])
    if durations and not of_duration:
        *shorter, longest = sorted(durations)
        lengths = [*map(str, shorter), counted(longest, "month")]
        limit = ""
        if unknown:
            limit = ", as far as the query includes them"
        return f"values for other durations only: {either(lengths, 'and')}{limit}"
    if of_duration:
        first, last = of_duration[0], of_duration[-1]
        if period < first and first <= min(unknown, default=first):
            return f"before the first value of the series: {first}"
        if period > last and last >= max(unknown, default=last):
            return f"after the last value of the series: {last}"
    if period not in catalogue_periods:
        return f"the catalogue does not have {period}"
    if period not in grid.populated:
        return f"no requested series has a value in {period}"
    return "no value"


def _describe_inactive_scope(grid: Grid, path: ScopePath, period: Period) -> str:
    """Describe when the first scope of a path that was not active in any month of a
    period was active; "" if all were.
    """
    for scope in grid.catalogue.listed_scopes(path):
        start, end = scope.active_start, scope.active_end
        is_before = start is not None and period.fiscal_end < start.fiscal_end
        is_after = end is not None and end.fiscal_end < period.fiscal_start
        if is_before or is_after:
            # In quotes, as it is data and no part of the sentence.
            name = json.dumps(
                printable(scope.name or scope.scope_id), ensure_ascii=False
            )
            bounds = f"from {write_fiscal_month(start)}" if start else ""
            if end:
                bounds += f" until {write_fiscal_month(end)}"
            return f"{name} was active {bounds.strip()}"
    return ""
