"""What is said of one or several panels next to their tables, a line each."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from typing import Any, Protocol

from asyncfin.clock import utc_text
from asyncfin.errors import printable, shorten_middle
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import unstated_notes
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef, format_path
from asyncfin.table.gaps import described
from asyncfin.table.grid import Grid
from asyncfin.table.rows import Row, scaling
from asyncfin.table.why import Result, span, why_empty
from asyncfin.text import GAP, NOT_REQUESTED
from asyncfin.words import counted, entity_names, listed, named_entity, spanned

# The length of a description. Many end with the unit, so the middle is cut.
LONGEST_DESCRIPTION = 160
_LONG_PATH = 8
# How many metrics or entities the lines below one table name, and how many periods.
_MOST = 12
MOST_PERIODS_NAMED = 6


class Covering(Protocol):
    """A Panel, or the grid of one."""

    @property
    def catalogue(self) -> Catalogue: ...
    def covers(self, period: Period, /) -> bool: ...


def about(panel: Result) -> dict[str, Any]:
    """Return the description of a panel for the metadata of tables."""
    dataset = panel.catalogue
    return {
        "entity_id": dataset.entity_id,
        "name": dataset.name,
        "dataset_id": dataset.dataset_id,
        "created_timestamp": utc_text(dataset.created_timestamp),
        "select": str(panel.select),
        "value_version": panel.value_version,
        "periods": [period.label for period in panel.periods],
        "gaps": [period.label for period in panel.gaps],
        "anchor": panel.anchor and panel.anchor.label,
        "unlisted": list(panel.unlisted),
    }


def title(panel: Result) -> str:
    """Return the entity and the value version in one line."""
    return f"{named_entity(panel.catalogue)}, {panel.value_version} values"


def heading(panels: Sequence[Result]) -> str:
    """Return what panels are of in one line: the entity, or how many."""
    if len(panels) == 1:
        return title(panels[0])
    versions = " and ".join(dict.fromkeys(panel.value_version for panel in panels))
    entities = len({panel.catalogue.entity_id for panel in panels})
    return f"{counted(entities, 'company', 'companies')}, {versions} values"


def facts(panel: Result) -> list[str]:
    """Return what a panel is of, how much it has, and its notes, a line each."""
    dataset, count = panel.catalogue, panel.value_count
    series = len(panel._grid.series)
    cells = series * (len(panel.periods) + len(panel.gaps))
    share = f", {count / cells:.0%} of the cells" if cells else ""
    return [
        f"publication {dataset.dataset_id} of "
        f"{dataset.created_timestamp:%Y-%m-%d %H:%M} UTC",
        f"{series:,} series by {span(panel.periods)}",
        counted(count, "value") + share,
        *notes_of(panel),
    ]


def notes_of(panel: Result) -> Iterator[str]:
    """Yield the lines of `Panel.notes`."""
    lines = [
        _emptied(panel),
        _scaled(panel._grid),
        described(panel._grid.gap_runs, panel.catalogue.periods),
        *panel._grid.uneven(),
        contained(panel._grid),
        why_empty(panel),
    ]
    if panel.anchor is not None:
        by = f", set by {_some(panel.anchored_by)}" if panel.anchored_by else ""
        lines.append(f"the window ends at {panel.anchor}{by}")
    if panel.unlisted:
        lines.append(
            f"{len(panel.unlisted):,} series were left out by the service: "
            f"{_some(panel.unlisted)}"
        )
    lines += unstated_notes(panel.catalogue, panel.select)
    yield from (printable(line) for line in lines if line)


def _emptied(panel: Result) -> str:
    """Return how many series have no value in the last periods, as a rule with `last`
    asks for.
    """
    grid = panel._grid
    durations = {period.duration_months for period in grid.asked}
    listed = [
        period
        for period in panel.catalogue.periods
        if period.duration_months in durations
    ]
    is_last = (
        grid.whole
        and len(grid.asked) < len(listed)
        and [*grid.asked] == listed[-len(grid.asked) :]
    )
    empty = (
        sum(not grid.observations(series.series_id)[0] for series in grid.series)
        if is_last
        else 0
    )
    if not empty:
        return ""
    return (
        f"{empty:,} series without a value in these periods: query all years, and take "
        "panel.latest()"
    )


def _scaled(grid: Grid) -> str:
    """Return which texts are scaled by their formats, as 12 for 12,000,000 in the
    format #,##0,,
    """
    formats: dict[str, list[str]] = {}
    for series in grid.series:
        if scaling(series.number_format) > 1:
            formats.setdefault(series.number_format, []).append(series.label)
    return "; ".join(
        f"texts of {listed(list(dict.fromkeys(map(_middle, labels))), 3)} are scaled "
        "by their format"
        f" {number_format}: 1 is {scaling(number_format):,}"
        for number_format, labels in formats.items()
    )


def _some(series_ids: Sequence[str]) -> str:
    if len(series_ids) <= 3:
        return ", ".join(series_ids)
    return f"{', '.join(series_ids[:2])} and {len(series_ids) - 2:,} other series"


def sign(grid: Grid, period: Period) -> str:
    """Return the sign of a cell without a value: a period that was not requested may
    have one.
    """
    return GAP if grid.covers(period) else NOT_REQUESTED


def alike(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
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


def notes(panels: Sequence[Covering], periods: Sequence[Period]) -> Iterator[str]:
    """Yield what a reader of several panels at these periods must know, a line each."""
    names = entity_names(panel.catalogue for panel in panels)
    unknown = {
        panel: {period for period in periods if not panel.covers(period)}
        for panel in panels
    }
    named = [
        f"{names[panel.catalogue.entity_id]} "
        f"({', '.join(map(spanned, _runs(missing, periods)))})"
        for panel, missing in unknown.items()
        if missing
    ]
    if named:
        yield printable(
            f"{NOT_REQUESTED} was not requested, so there may be a value: "
            f"{listed(named, _MOST)}"
        )
    if len(panels) > 1 and periods:
        absent = [
            panel
            for panel in panels
            if not set(periods).intersection(panel.catalogue.periods)
        ]
        labels = listed([period.label for period in periods], MOST_PERIODS_NAMED)
        pairs = ((names[panel.catalogue.entity_id], f"no {labels}") for panel in absent)
        yield from map(printable, alike(pairs))


def _runs(
    some: Collection[Period], periods: Sequence[Period]
) -> Iterator[list[Period]]:
    """Yield some of the periods in runs without others of their duration in between."""
    for duration in sorted({period.duration_months for period in some}):
        of_duration = (
            period for period in periods if period.duration_months == duration
        )
        yield from (
            list(run)
            for is_wanted, run in groupby(of_duration, some.__contains__)
            if is_wanted
        )


def descriptions(rows: Mapping[Row, str]) -> Iterator[str]:
    """Yield the descriptions of series, which state their units: a line for each, with
    its metrics.

    A metric whose description is its name has none.

    Args:
        rows: the series, with what distinguishes each from the others of its entity.
            Series of several entities are named by the entity.
    """
    described = _described(rows)
    equal = dict[str, list[str]]()
    for name, texts in described:
        if len(texts) == 1 and (text := next(iter(texts))) and _middle(text) != name:
            equal.setdefault(text, []).append(name)
    # Differences first: figures with different units look alike.
    lines = [
        *_differences(described),
        *(f"{listed(names, _MOST)}: {_middle(text)}" for text, names in equal.items()),
    ]
    yield from map(printable, lines[:_MOST])
    if len(lines) > _MOST:
        yield f"{counted(len(lines) - _MOST, 'more description')} not shown"


def differing(rows: Iterable[Row]) -> Iterator[str]:
    """Yield a line for each metric that entities describe differently, as
    `descriptions` does.
    """
    yield from map(printable, _differences(_described(dict.fromkeys(rows, ""))))


def _differences(
    described: Iterable[tuple[str, Mapping[str, list[str]]]],
) -> Iterator[str]:
    for name, texts in described:
        if len(texts) > 1:
            of = [
                (listed(list(dict.fromkeys(who)), _MOST), _middle(text) or "none")
                for text, who in texts.items()
            ]
            yield f"{name}, different descriptions: {'; '.join(map(': '.join, of))}"


def _described(rows: Mapping[Row, str]) -> list[tuple[str, dict[str, list[str]]]]:
    """Return the name of each metric, and who is described by each of its texts."""
    names = entity_names(row.grid.catalogue for row in rows)
    by_metric: dict[str, tuple[str, dict[str, list[str]]]] = {}
    for row, apart in rows.items():
        _, texts = by_metric.setdefault(row.series.metric_id, (_middle(row.label), {}))
        who = names[row.grid.catalogue.entity_id] if len(names) > 1 else _middle(apart)
        texts.setdefault(row.series.description.strip(), []).append(who)
    return list(by_metric.values())


def contained(grid: Grid) -> str | None:
    """Return which scope paths contain others, as adding up their figures counts some
    twice.
    """
    paths = dict.fromkeys(series.scopes for series in grid.series)
    known = Counter(map(frozenset, paths))
    # Each contains the other where only the order differs.
    counts = {scopes: alike - 1 for scopes, alike in known.items()}
    for scopes, alike in known.items():
        for fewer in _subsets(scopes, known):
            counts[fewer] += alike
    containing = {path: count for path in paths if (count := counts[frozenset(path)])}
    if not containing:
        return None
    most = max(containing, key=containing.__getitem__)
    some = (
        "1 scope path contains"
        if len(containing) == 1
        else f"{len(containing):,} scope paths contain"
    )
    return (
        f"{some} others; adding them up counts twice"
        f" ({format_path(most) or 'the empty path'} contains {containing[most]:,})"
    )


def _subsets(
    scopes: frozenset[ScopeRef], known: Collection[frozenset[ScopeRef]]
) -> Iterator[frozenset[ScopeRef]]:
    """Yield the known sets that have some of the scopes, but not all."""
    if len(scopes) > _LONG_PATH:
        yield from (each for each in known if each < scopes)
        return
    # Paths are short: to compare each with all others takes a tenth of a second for 800
    # paths.
    for size in range(len(scopes)):
        yield from (
            each for each in map(frozenset, combinations(scopes, size)) if each in known
        )


def _middle(text: str) -> str:
    return shorten_middle(text, LONGEST_DESCRIPTION)
