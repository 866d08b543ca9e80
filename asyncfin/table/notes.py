"""The lines next to the tables of panels: what they are of, and what a reader must
know.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from asyncfin.errors import printable, shorten_middle
from asyncfin.model.judge import note_unstated
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath, ScopeRef, format_path
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.grid import GapRun, Grid, group_pairs, pair_periods
from asyncfin.table.naming import join_texts, name_rows
from asyncfin.table.rows import Row, read_divisor
from asyncfin.words import counted, listed, named_entity, spanned

# The length of a description. Many end with the unit, so the middle is cut.
LONGEST_DESCRIPTION = 160
# How many metrics or entities a line names, how many labels of a panel, and how many
# periods.
MOST_NAMED = 12
_MOST_LABELS = 3
MOST_PERIODS_NAMED = 6
# How many runs of gaps, or uneven distances, a line names.
_MOST_RUNS = 6
# The line on series that a query of the last periods leaves empty.
LATEST = "for the last values of each series, query all periods and call latest()"


def write_heading(grids: Sequence[Grid]) -> str:
    """Describe in one line what panels are of: the entity, or how many."""
    versions = " and ".join(dict.fromkeys(map(attrgetter("value_version"), grids)))
    entity_ids = set(map(attrgetter("catalogue.entity_id"), grids))
    entities = counted(len(entity_ids), "company", "companies")
    if len(grids) == 1:
        entities = named_entity(grids[0].catalogue)
    return f"{entities}, {versions} values"


def describe_contents(grid: Grid) -> list[str]:
    """Describe the publication of a panel and how much it has, and add its notes."""
    catalogue = grid.catalogue
    return [
        f"publication {catalogue.dataset_id} of "
        f"{catalogue.created_timestamp:%Y-%m-%d %H:%M} UTC",
        f"{len(grid.series):,} series by {describe_periods(grid.periods)}: "
        f"{counted(grid.value_count, 'value')}",
        *list_notes(grid),
    ]


def list_notes(grid: Grid) -> Iterator[str]:
    """Yield the lines of `Panel.notes`."""
    lines = []
    absent_periods = sorted(set(grid.query_periods).difference(grid.catalogue.periods))
    if absent_periods:
        labels = listed(list(map(str, absent_periods)), MOST_PERIODS_NAMED)
        lines.append(f"no data for {labels}")
    lines += [_note_empty_series(grid), _note_scaled_texts(grid)]
    if grid.is_whole:
        lines += [_describe_gaps(grid.gap_runs), _describe_uneven(grid.periods)]
    lines += [_note_containing_paths(grid), _explain_empty(grid)]
    lines += note_unstated(grid.catalogue, grid.select)
    if grid.anchor is not None:
        line = f"the window ends at {grid.anchor}"
        if ids := find_anchoring(grid):
            line += f", set by {_list_labels(map(grid.by_id.__getitem__, ids))}"
        lines.append(line)
    if grid.unlisted_ids:
        verb = "was" if len(grid.unlisted_ids) == 1 else "were"
        lines.append(
            f"{len(grid.unlisted_ids):,} series {verb} left out by the service: "
            f"{_list_labels(map(grid.by_id.__getitem__, grid.unlisted_ids))}"
        )
    yield from map(printable, filter(None, lines))


def find_anchoring(grid: Grid) -> tuple[str, ...]:
    """Return the ids of the series with a value at the anchor's fiscal end."""
    if grid.anchor is None:
        return ()
    end = grid.anchor.fiscal_end
    anchors = [period for period in grid.periods if period.fiscal_end == end]
    ids = grid.find_observed(anchors)
    return tuple(filter(ids.__contains__, grid.by_id))


def _describe_uneven(periods: Sequence[Period]) -> str:
    """Name the quarters and years that do not follow the one before at a multiple of
    their length; "" if all do. Four rows are then no year.
    """
    spans = []
    for earlier, later in pair_periods(periods):
        if (later.fiscal_end - earlier.fiscal_end) % earlier.duration_months:
            spans.append(spanned([earlier, later]))
    if not spans:
        return ""
    return f"uneven distances: {listed(spans, _MOST_RUNS)}"


def _describe_gaps(runs: Sequence[GapRun]) -> str:
    """Describe the gaps in a line: how many there are, and which; "" without any."""
    if not runs:
        return ""
    number = sum(map(len, runs))
    spans = listed(list(map(spanned, sorted(runs))), _MOST_RUNS)
    return f"{counted(number, 'gap')}, where no series has a value: {spans}"


def _note_empty_series(grid: Grid) -> str:
    """Name `latest` where a query of some periods leaves series empty."""
    if not grid.is_whole or grid.last_omitted is None:
        return ""
    if len(grid.find_observed(grid.query_periods)) == len(grid.series):
        return ""
    return LATEST


def _note_scaled_texts(grid: Grid) -> str:
    """Name the texts that are scaled by their formats, as 12 for 12,000,000 in the
    format #,##0,,
    """
    series_of = group_pairs((series.number_format, series) for series in grid.series)
    notes = []
    for number_format, all_series in series_of.items():
        divisor = read_divisor(number_format)
        if divisor > 1:
            labels = _list_labels(all_series)
            notes.append(
                f"texts of {labels} are scaled by their format {number_format}: 1 is "
                f"{divisor:,}"
            )
    return "; ".join(notes)


def _note_containing_paths(grid: Grid) -> str:
    """Count the scope paths that contain others, as adding up their figures counts
    values twice.
    """
    paths = dict.fromkeys(map(attrgetter("scopes"), grid.series))
    paths_with: dict[ScopeRef, set[ScopePath]] = {}
    for path in paths:
        for scope in path:
            paths_with.setdefault(scope, set()).add(path)
    path_counts = {}
    for path in paths:
        narrower = set(paths).intersection(*map(paths_with.__getitem__, path))
        if len(narrower) > 1:
            path_counts[path] = len(narrower) - 1
    if not path_counts:
        return ""
    widest = max(path_counts, key=path_counts.__getitem__)
    verb = "contains" if len(path_counts) == 1 else "contain"
    return (
        f"{counted(len(path_counts), 'scope path')} {verb} others; adding them up "
        f"counts twice ({format_path(widest) or 'the empty path'} contains "
        f"{path_counts[widest]:,})"
    )


def _list_labels(all_series: Iterable[CatalogueSeries]) -> str:
    labels = [_shorten(series.label) for series in all_series]
    return listed(list(dict.fromkeys(labels)), _MOST_LABELS)


def describe_rows(rows: Iterable[Row], *, all_rows: bool = True) -> Iterator[str]:
    """Yield the descriptions of series, which state their units: a line for each, with
    its labels. A series whose description is its label has none.

    Args:
        all_rows: False: only of labels with two or more descriptions.
    """
    names = name_rows(list(rows), group_names=True)
    pairs = []
    for row, texts in names.texts.items():
        columns = dict(zip(names.heads, texts, strict=True))
        label = columns.pop("series", row.label)
        name = columns.get("entity") or join_texts(columns.values())
        text = _shorten(row.series.description.strip())
        pairs.append((_shorten(label), (text, _shorten(name))))
    lines, same_texts = [], []
    for label, entries in group_pairs(pairs).items():
        by_text = group_pairs(entries)
        if len(by_text) == 1:
            (text,) = by_text
            same_texts.append((text, label))
            continue
        # First: figures with different units look alike.
        parts = []
        for text, names_of in by_text.items():
            parts.append(
                f"{listed([*dict.fromkeys(names_of)], MOST_NAMED)}: {text or 'none'}"
            )
        lines.append(f"{label}, different descriptions: {'; '.join(parts)}")
    for text, labels in group_pairs(same_texts).items():
        if all_rows and text and labels != [text]:
            lines.append(f"{listed(labels, MOST_NAMED)}: {text}")
    yield from map(printable, lines[:MOST_NAMED])
    if hidden_lines := lines[MOST_NAMED:]:
        yield f"{counted(len(hidden_lines), 'more description')} not shown"


def _shorten(text: str) -> str:
    return shorten_middle(text, LONGEST_DESCRIPTION)


def _explain_empty(grid: Grid) -> str:
    """Explain why a panel has no value, as far as its catalogue shows; "" if it has
    one.
    """
    if grid.value_count:
        return ""
    if not grid.series:
        return "no values, because no series is selected"
    groups = grid.catalogue.by_group
    cadences: dict[str, None] = {}
    for series in grid.series:
        cadences[groups[series.reporting_group_id].cadence] = None
    when = "the requested periods"
    if grid.periods:
        when = describe_periods(grid.periods)
    return (
        f"no values, because no series has one in {when}; the cadence of their "
        f"reporting groups is {listed(list(cadences))}, and the catalogue has "
        f"{describe_periods(grid.catalogue.periods)}: choose other series or periods"
    )


def describe_periods(periods: Sequence[Period]) -> str:
    """Describe how many periods there are, and which."""
    count = counted(len(periods), "period")
    if not periods:
        return count
    return f"{count}, {spanned(periods)}"
