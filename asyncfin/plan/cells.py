"""The catalogue as a table of metrics and scope paths, and what queries match in it.

A cell is one metric on one path, with a series for each reporting group that has one
there. A line is a metric (side 0) or a path (side 1). Metrics and paths are represented
by their numbers in the catalogue's order, which are cheap to compare and make equal
plans of equal queries, in whatever order the series are named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence, Sized
from functools import cached_property
from itertools import chain, count
from math import ceil
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeAlias

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import (
    MAX_METRIC_IDS,
    MAX_PAGE_SIZE,
    MAX_REPORTING_GROUP_IDS,
    MAX_SCOPE_COMBINATIONS,
)
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries

MAX_LINES = (MAX_METRIC_IDS, MAX_SCOPE_COMBINATIONS)
_metric_id = attrgetter("metric_id")
_group_id = attrgetter("reporting_group_id")

Cell: TypeAlias = tuple[int, int]
SeriesByCell: TypeAlias = dict[Cell, list[CatalogueSeries]]
# How many series the cells of each line have, by the line that crosses it there.
Counts: TypeAlias = dict[int, dict[int, int]]
CountsByLine: TypeAlias = tuple[Counts, Counts]


class CrossProduct(NamedTuple):
    """What one query names, and what it matches."""

    home: Sequence[CatalogueSeries]  # the wanted series that the query is sent for
    metric_ids: tuple[str, ...]
    paths: tuple[ScopePath, ...]
    # None: naming them makes no difference, or they are too many.
    groups: tuple[str, ...] | None
    # All series of the catalogue that the query matches, at home here or not.
    matching_series: Sequence[CatalogueSeries]


class View(NamedTuple):
    """The table as queries that name certain reporting groups match it."""

    # how many series each cell has, by metric and path, and by path and metric
    counts: CountsByLine
    cells: SeriesByCell  # the wanted series of each cell


class Cells:
    """The cells that queries for the wanted series can match: `wanted`, and all cells
    of the catalogue that are on their lines, `listed`.
    """

    def __init__(
        self, catalogue: Catalogue, wanted_series: Iterable[CatalogueSeries]
    ) -> None:
        wanted_series = list(wanted_series)
        wanted_metrics = set(map(_metric_id, wanted_series))
        self._metric_ids: list[str] = []
        self._paths = list(catalogue.by_path)
        path_of = dict(zip(self._paths, count()))
        self._cell_of: dict[str, Cell] = {}
        rows: list[Sequence[CatalogueSeries]] = []
        # In the catalogue's order, not in that of the wanted series: equal queries have
        # equal plans.
        for metric_id, row in catalogue.by_metric.items():
            if metric_id not in wanted_metrics:
                continue
            for series in row:
                path = path_of[series.scopes]
                self._cell_of[series.series_id] = len(rows), path
            self._metric_ids.append(metric_id)
            rows.append(row)
        self.wanted: SeriesByCell = {}
        self._wanted_paths = set[int]()
        for series in wanted_series:
            cell = self._cell_of[series.series_id]
            self.wanted.setdefault(cell, []).append(series)
            self._wanted_paths.add(cell[1])
        # A query matches only series on its metrics and paths, so no others are
        # examined.
        self.listed: SeriesByCell = {}
        self._paths_of: dict[int, list[int]] = {}
        for series in chain.from_iterable(rows):
            cell = self._cell_of[series.series_id]
            metric, path = cell
            if path not in self._wanted_paths:
                continue
            if cell not in self.listed:
                self._paths_of.setdefault(metric, []).append(path)
            self.listed.setdefault(cell, []).append(series)

    @property
    def density(self) -> float:
        """The share of wanted cells in the table of their metrics and paths."""
        size = len(self._metric_ids) * len(self._wanted_paths)
        return len(self.wanted) / size

    def make_product(self, home: Sequence[CatalogueSeries]) -> CrossProduct:
        """Return the query for these series: their metrics, paths and groups, and no
        others.
        """
        metrics: dict[int, None] = {}
        paths: dict[int, None] = {}
        groups: dict[str, None] = {}
        for series in home:
            metric, path = self._cell_of[series.series_id]
            metrics[metric] = None
            paths[path] = None
            groups[series.reporting_group_id] = None
        candidates: list[CatalogueSeries] = []
        for metric in metrics:
            for path in self._paths_of[metric]:
                if path in paths:
                    candidates += self.listed[metric, path]
        metric_ids = tuple(map(self._metric_ids.__getitem__, metrics))
        scope_paths = tuple(map(self._paths.__getitem__, paths))
        matches = [item for item in candidates if item.reporting_group_id in groups]
        has_too_many = len(groups) > MAX_REPORTING_GROUP_IDS
        if has_too_many or len(matches) == len(candidates):
            return CrossProduct(home, metric_ids, scope_paths, None, candidates)
        return CrossProduct(home, metric_ids, scope_paths, tuple(groups), matches)

    def find_single_product(self) -> CrossProduct | None:
        """Return a single query for all wanted series, if the caps allow one."""
        if len(self._metric_ids) > MAX_METRIC_IDS:
            return None
        if len(self._wanted_paths) > MAX_SCOPE_COMBINATIONS:
            return None
        series = chain.from_iterable(self.wanted.values())
        return self.make_product(list(series))

    def list_oversized(self) -> list[Cell]:
        """Return the cells that have more than a page of series."""
        cells = []
        for cell in self.wanted:
            series = self._matched_series[cell]
            if len(series) > MAX_PAGE_SIZE:
                cells.append(cell)
        return cells

    def make_views(self, cells: SeriesByCell) -> Iterator[View]:
        """Yield the views of queries that name all wanted groups, and of queries that
        name some of them.

        The first view is of all wanted groups. The others, if any, are of sets of
        groups that share no cell, where naming the groups excludes the series of other
        groups; each wanted group is in one set. They are made lazily, from what
        `wanted` contains then.
        """
        yield View(self._matched, cells)
        if not self._groups_apart:
            return
        tables = self._split_sets(cells)
        for counts, table in zip(self._matched_apart, tables, strict=True):
            if table:
                yield View(counts, table)

    @cached_property
    def _named(self) -> dict[str, None]:
        """The wanted groups."""
        return _collect_groups(self.wanted)

    @cached_property
    def _matched_series(self) -> SeriesByCell:
        """The series that a query which names the wanted groups can match; too many
        groups are not named.
        """
        groups = self._named
        group_count = len(_collect_groups(self.listed))
        if len(groups) > MAX_REPORTING_GROUP_IDS or len(groups) == group_count:
            return self.listed
        selection: SeriesByCell = {}
        for cell, cell_series in self.listed.items():
            for series in cell_series:
                if series.reporting_group_id in groups:
                    selection.setdefault(cell, []).append(series)
        return selection

    @cached_property
    def _matched(self) -> CountsByLine:
        """What a query that names all wanted groups matches, by line."""
        return count_by_line(self._matched_series)

    @cached_property
    def _matched_apart(self) -> list[CountsByLine]:
        """What a query that names one of the sets of groups matches, by line."""
        tables = self._split_sets(self.listed)
        return list(map(count_by_line, tables))

    def _split_sets(self, cells: SeriesByCell) -> list[SeriesByCell]:
        """Return the cells of each set of groups separately."""
        set_of: dict[str, int] = {}
        for index, groups in enumerate(self._groups_apart):
            set_of.update(dict.fromkeys(groups, index))
        tables: list[SeriesByCell] = [{} for _ in self._groups_apart]
        for cell, cell_series in cells.items():
            for series in cell_series:
                group_id = series.reporting_group_id
                if group_id in set_of:
                    table = tables[set_of[group_id]]
                    table.setdefault(cell, []).append(series)
        return tables

    @cached_property
    def _groups_apart(self) -> list[set[str]]:
        """The wanted groups in few sets without two groups that share a cell; empty if
        one set suffices.
        """
        # Colour the graph whose edges are shared cells: a group goes into the first set
        # without a neighbour.
        sharing: dict[str, set[str]] = {}
        for group in self._named:
            sharing[group] = set()
        for cell_series in self.listed.values():
            if len(cell_series) == 1:
                continue
            groups = set(map(_group_id, cell_series))
            for group in groups & sharing.keys():
                sharing[group] |= groups - {group}
        sets: list[set[str]] = []
        for group in self._named:
            for group_set in sets:
                has_room = len(group_set) < MAX_REPORTING_GROUP_IDS
                if has_room and group_set.isdisjoint(sharing[group]):
                    group_set.add(group)
                    break
            else:
                sets.append({group})
        if len(sets) == 1:
            return []
        return sets


def count_by_line(cells: SeriesByCell) -> CountsByLine:
    """Return how many series cells have, by metric and path, and by path and metric."""
    by_metric: Counts = {}
    by_path: Counts = {}
    for (metric, path), series in cells.items():
        number = len(series)
        by_metric.setdefault(metric, {})[path] = number
        by_path.setdefault(path, {})[metric] = number
    return by_metric, by_path


def count_pages(matches: Sized) -> int:
    """Return how many pages a query takes that matches these series."""
    return ceil(len(matches) / MAX_PAGE_SIZE)


def count_least_requests(
    series: int, crossings: Collection[tuple[object, object]]
) -> int:
    """Return how many requests the caps of spec 8 make necessary for so many series at
    these crossings.

    A response has at most 100 series of at most 50 metrics and 50 paths, and so has
    each further page of a cursor.
    """
    metrics = set(map(itemgetter(0), crossings))
    paths = set(map(itemgetter(1), crossings))
    return max(
        ceil(series / MAX_PAGE_SIZE),
        ceil(len(metrics) / MAX_METRIC_IDS),
        ceil(len(paths) / MAX_SCOPE_COMBINATIONS),
    )


def _collect_groups(cells: SeriesByCell) -> dict[str, None]:
    series = chain.from_iterable(cells.values())
    return dict.fromkeys(map(_group_id, series))
