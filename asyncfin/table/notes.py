"""The lines next to the tables of panels: what they are of, and what a reader must
know.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from asyncfin.errors import printable, shorten_middle
from asyncfin.model.judge import unstated_notes
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath, ScopeRef, format_path
from asyncfin.table.gaps import describe_gaps, describe_uneven
from asyncfin.table.grid import Grid
from asyncfin.table.reasons import explain_empty, span
from asyncfin.table.rows import Row, scaling
from asyncfin.text import NOT_REQUESTED
from asyncfin.words import counted, entity_names, listed, named_entity

# The length of a description. Many end with the unit, so the middle is cut.
LONGEST_DESCRIPTION = 160
# How many metrics or entities a line names, and how many periods.
_MOST = 12
MOST_PERIODS_NAMED = 6


def heading(grids: Sequence[Grid]) -> str:
    """Describe in one line what panels are of: the entity, or how many."""
    versions = " and ".join(dict.fromkeys(grid.value_version for grid in grids))
    entities = counted(
        len({grid.catalogue.entity_id for grid in grids}), "company", "companies"
    )
    if len(grids) == 1:
        entities = named_entity(grids[0].catalogue)
    return f"{entities}, {versions} values"


def facts(grid: Grid) -> list[str]:
    """Describe the publication of a panel and how much it has, and add its notes."""
    catalogue, count = grid.catalogue, grid.value_count
    cells = len(grid.series) * len(grid.periods)
    share = f", {count / cells:.0%} of the cells" if cells else ""
    return [
        f"publication {catalogue.dataset_id} of "
        f"{catalogue.created_timestamp:%Y-%m-%d %H:%M} UTC",
        f"{len(grid.series):,} series by {span(grid.periods)}",
        counted(count, "value") + share,
        *panel_notes(grid),
    ]


def panel_notes(grid: Grid, *, has_periods: bool = True) -> Iterator[str]:
    """Yield the lines of `Panel.notes`.

    Args:
        has_periods: with the requested periods that the catalogue does not have.
    """
    unlisted = find_unlisted_periods(grid) if has_periods else []
    periods = listed(unlisted, MOST_PERIODS_NAMED)
    lines = [
        f"the catalogue does not have {periods}" if unlisted else "",
        _note_empty_series(grid),
        _note_scaled_texts(grid),
        describe_gaps(grid.gap_runs),
        *(describe_uneven(grid.periods, grid.listed) if grid.whole else ()),
        _note_containing_paths(grid),
        explain_empty(grid),
    ]
    if grid.anchor is not None:
        cause = f", set by {_name_series(ids)}" if (ids := anchoring(grid)) else ""
        lines.append(f"the window ends at {grid.anchor}{cause}")
    if grid.unlisted:
        lines.append(
            f"{len(grid.unlisted):,} series were left out by the service: "
            f"{_name_series(grid.unlisted)}"
        )
    lines += unstated_notes(grid.catalogue, grid.select)
    yield from (printable(line) for line in lines if line)


def anchoring(grid: Grid) -> tuple[str, ...]:
    """Return the ids of the series with a value at the anchor's fiscal end."""
    if grid.anchor is None:
        return ()
    end = grid.anchor.fiscal_end
    observed = grid.find_observed(
        [period for period in grid.periods if period.fiscal_end == end]
    )
    return tuple(
        series.series_id for series in grid.series if series.series_id in observed
    )


def find_unlisted_periods(grid: Grid) -> list[str]:
    """Return the labels of the requested periods that the catalogue does not have."""
    return [period.label for period in grid.asked if period not in grid.listed]


def _note_empty_series(grid: Grid) -> str:
    """Count the series without a value in the last periods, as a rule with `last` asks
    for.
    """
    durations = {period.duration_months for period in grid.asked}
    periods = [
        period
        for period in grid.catalogue.periods
        if period.duration_months in durations
    ]
    asked = list(grid.asked)
    if not grid.whole or len(asked) >= len(periods) or asked != periods[-len(asked) :]:
        return ""
    empty = len(grid.series) - len(grid.find_observed(asked))
    if not empty:
        return ""
    return (
        f"{empty:,} series without a value in these periods: query all periods for the "
        "latest values of each series"
    )


def _note_scaled_texts(grid: Grid) -> str:
    """Name the texts that are scaled by their formats, as 12 for 12,000,000 in the
    format #,##0,,
    """
    formats: dict[str, dict[str, None]] = {}
    for series in grid.series:
        if scaling(series.number_format) > 1:
            labels = formats.setdefault(series.number_format, {})
            labels[_shorten(series.label)] = None
    return "; ".join(
        f"texts of {listed(list(labels), 3)} are scaled by their format "
        f"{number_format}: 1 is {scaling(number_format):,}"
        for number_format, labels in formats.items()
    )


def _note_containing_paths(grid: Grid) -> str:
    """Count the scope paths that contain others, as adding up their figures counts
    values twice.
    """
    paths = dict.fromkeys(series.scopes for series in grid.series)
    paths_with: dict[ScopeRef, set[ScopePath]] = {}
    for path in paths:
        for scope in path:
            paths_with.setdefault(scope, set()).add(path)
    contained = {}
    for path in paths:
        narrower = set(paths).intersection(*(paths_with[scope] for scope in path))
        if len(narrower) > 1:
            contained[path] = len(narrower) - 1
    if not contained:
        return ""
    widest = max(contained, key=contained.__getitem__)
    verb = "contains" if len(contained) == 1 else "contain"
    return (
        f"{counted(len(contained), 'scope path')} {verb} others; adding them up counts "
        f"twice ({format_path(widest) or 'the empty path'} contains "
        f"{contained[widest]:,})"
    )


def _name_series(series_ids: Sequence[str]) -> str:
    if len(series_ids) <= 3:
        return ", ".join(series_ids)
    return f"{', '.join(series_ids[:2])} and {len(series_ids) - 2:,} other series"


def join_alike(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield what companies have, a line for each kind, given their names and what
    follows "has".
    """
    by_kind: dict[str, list[str]] = {}
    for name, kind in pairs:
        by_kind.setdefault(kind, []).append(name)
    for kind, names in by_kind.items():
        if len(names) == 1:
            yield f"{names[0]} has {kind}"
        else:
            yield f"{len(names):,} companies have {kind}: {listed(names, _MOST)}"


def table_notes(grids: Sequence[Grid], periods: Sequence[Period]) -> Iterator[str]:
    """Yield what a reader of the table of panels at these periods must know, a line
    each.
    """
    names = entity_names(grid.catalogue for grid in grids)
    unrequested = []
    absent = []
    labels = listed([period.label for period in periods], MOST_PERIODS_NAMED)
    for grid in grids:
        name = names[grid.catalogue.entity_id]
        unknown = [period.label for period in periods if not grid.covers(period)]
        if unknown:
            unrequested.append(f"{name} ({listed(unknown, MOST_PERIODS_NAMED)})")
        if len(grids) > 1 and periods and grid.listed.isdisjoint(periods):
            absent.append((name, f"no {labels}"))
    if unrequested:
        yield printable(
            f"{NOT_REQUESTED} was not requested, so there may be a value: "
            f"{listed(unrequested, _MOST)}"
        )
    yield from map(printable, join_alike(absent))


def describe_rows(rows: Mapping[Row, str]) -> Iterator[str]:
    """Yield the descriptions of series, which state their units: a line for each, with
    its metrics.

    A metric whose description is its name has none.

    Args:
        rows: the series, with what distinguishes each from the others of its entity.
            Series of two or more entities are named by the entity.
    """
    by_metric = _group_by_description(rows)
    # Differences first: figures with different units look alike.
    lines = list(_describe_differences(by_metric))
    metrics_of: dict[str, list[str]] = {}
    for metric, names_of in by_metric:
        text = next(iter(names_of))
        if len(names_of) == 1 and text and _shorten(text) != metric:
            metrics_of.setdefault(text, []).append(metric)
    for text, metrics in metrics_of.items():
        lines.append(f"{listed(metrics, _MOST)}: {_shorten(text)}")
    yield from map(printable, lines[:_MOST])
    if len(lines) > _MOST:
        yield f"{counted(len(lines) - _MOST, 'more description')} not shown"


def describe_differences(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each metric that entities describe differently."""
    by_metric = _group_by_description(dict.fromkeys(rows, ""))
    yield from map(printable, _describe_differences(by_metric))


def _describe_differences(
    by_metric: Iterable[tuple[str, Mapping[str, Mapping[str, None]]]],
) -> Iterator[str]:
    for metric, names_of in by_metric:
        if len(names_of) > 1:
            texts = [
                f"{listed(list(names), _MOST)}: {_shorten(text) or 'none'}"
                for text, names in names_of.items()
            ]
            yield f"{metric}, different descriptions: {'; '.join(texts)}"


def _group_by_description(
    rows: Mapping[Row, str],
) -> list[tuple[str, dict[str, dict[str, None]]]]:
    """Return the name of each metric, and the names that each of its descriptions is
    of.
    """
    entities = entity_names(row.grid.catalogue for row in rows)
    by_metric: dict[str, tuple[str, dict[str, dict[str, None]]]] = {}
    for row, distinction in rows.items():
        name = entities[row.entity_id] if len(entities) > 1 else _shorten(distinction)
        _, names_of = by_metric.setdefault(
            row.series.metric_id, (_shorten(row.label), {})
        )
        names_of.setdefault(row.series.description.strip(), {})[name] = None
    return list(by_metric.values())


def _shorten(text: str) -> str:
    return shorten_middle(text, LONGEST_DESCRIPTION)
