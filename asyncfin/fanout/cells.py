"""The catalogue as a table of metrics and scope paths, and what a batch matches in it.

A batch is known by its home series alone: its query names their metrics, paths and groups, and no others.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from math import ceil
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

Several: TypeAlias = Sequence[CatalogueSeries]
Cell: TypeAlias = tuple[int, int]


class Part(NamedTuple):
    """Home series of one batch, what to name for them, and all series that the query then matches.

    `groups` is None where naming them makes no difference, or they are too many to name.
    """

    home: Several
    metric_ids: tuple[str, ...]
    paths: tuple[ScopePath, ...]
    groups: tuple[str, ...] | None
    matched: Several

    @property
    def requests(self) -> int:
        """How many pages that query takes."""
        return ceil(len(self.matched) / MAX_PAGE_SIZE)


class Places(NamedTuple):
    """The metrics and paths of a catalogue by their numbers, and the cell of each series."""

    metric_ids: Sequence[str]
    paths: Sequence[ScopePath]
    cells: Mapping[str, Cell]


class Cells:
    """The series that queries for the wanted ones can match, by the numbers of their metric and path."""

    def __init__(self, known: Iterable[CatalogueSeries], wanted: Several, places: Places) -> None:
        self.places = places
        self.wanted: dict[Cell, list[CatalogueSeries]] = {}
        for series in wanted:
            self.wanted.setdefault(places.cells[series.series_id], []).append(series)
        paths = {path for _, path in self.wanted}
        self.known: dict[int, dict[int, list[CatalogueSeries]]] = {metric: {} for metric, _ in self.wanted}
        for series in known:
            metric, path = places.cells[series.series_id]
            if path in paths:
                self.known[metric].setdefault(path, []).append(series)

    @classmethod
    def of(cls, catalogue: Catalogue, wanted: Several) -> "Cells":
        """Return the cells that matter for wanted series of a catalogue."""
        metrics = {series.metric_id for series in wanted}
        rows = [several for metric, several in catalogue.by_metric.items() if metric in metrics]
        path_of = {s.series_id: at for at, each in enumerate(catalogue.by_path.values()) for s in each}
        cells = {s.series_id: (at, path_of[s.series_id]) for at, each in enumerate(rows) for s in each}
        places = Places([several[0].metric_id for several in rows], list(catalogue.by_path), cells)
        return cls(chain.from_iterable(rows), wanted, places)

    def crossed_by(self, wanted: Several) -> "Cells":
        """Return the cells that matter for some of the wanted series."""
        metrics = dict.fromkeys(self.places.cells[series.series_id][0] for series in wanted)
        rows = (several for metric in metrics for several in self.known[metric].values())
        return Cells(chain.from_iterable(rows), wanted, self.places)

    @cached_property
    def lower_bound(self) -> int:
        """How many requests the wanted series take at least."""
        return lower_bound(sum(map(len, self.wanted.values())), self.wanted)

    def part(self, home: Several) -> Part:
        """Return these home series with all that the query for them matches."""
        cells = [self.places.cells[series.series_id] for series in home]
        metrics = dict.fromkeys(metric for metric, _ in cells)
        paths = dict.fromkeys(path for _, path in cells)
        crossed = [
            series
            for metric in metrics
            for path, several in self.known[metric].items()
            if path in paths
            for series in several
        ]
        groups = dict.fromkeys(series.reporting_group_id for series in home)
        matched = [series for series in crossed if series.reporting_group_id in groups]
        plain = len(groups) > MAX_REPORTING_GROUP_IDS or len(matched) == len(crossed)
        return Part(
            home,
            tuple(self.places.metric_ids[metric] for metric in metrics),
            tuple(self.places.paths[path] for path in paths),
            None if plain else tuple(groups),
            crossed if plain else matched,
        )


def lower_bound(series: int, crossings: Collection[tuple[object, object]]) -> int:
    """Return how many requests the caps make necessary for so many series of these (metric, path) (spec 8).

    Whatever is asked for, an answer brings at most 100 series of at most 50 metrics and 50 paths, and so
    does each further page of a cursor.
    """
    paths_of = Counter(metric for metric, _ in crossings)
    metrics_of = Counter(path for _, path in crossings)
    return max(
        ceil(series / MAX_PAGE_SIZE),
        ceil(max(len(paths_of), *metrics_of.values()) / MAX_METRIC_IDS),
        ceil(max(len(metrics_of), *paths_of.values()) / MAX_SCOPE_COMBINATIONS),
    )
