"""The catalogue as a table of metrics and scope paths, and what a batch matches in it.

A batch is known by its home series alone: its query names their metrics, paths and groups, and no others.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import TypeAlias

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import MAX_PAGE_SIZE, MAX_REPORTING_GROUP_IDS
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries

Cell: TypeAlias = tuple[int, int]
Part: TypeAlias = Sequence[CatalogueSeries]


class Cells:
    """The series that queries for the wanted ones can match, by metric and path.

    Metrics and paths are numbered in the order in which the wanted series name them.
    """

    def __init__(self, known: Iterable[CatalogueSeries], wanted: Part) -> None:
        self.metrics: dict[str, int] = {}
        self.paths: dict[ScopePath, int] = {}
        self.wanted: dict[Cell, list[CatalogueSeries]] = {}
        self.known: dict[int, dict[int, list[CatalogueSeries]]] = {}
        for series in wanted:
            metric = self.metrics.setdefault(series.metric_id, len(self.metrics))
            path = self.paths.setdefault(series.scopes, len(self.paths))
            self.wanted.setdefault((metric, path), []).append(series)
        for series in known:
            if series.metric_id in self.metrics and (path := self.paths.get(series.scopes)) is not None:
                row = self.known.setdefault(self.metrics[series.metric_id], {})
                row.setdefault(path, []).append(series)

    @classmethod
    def of(cls, catalogue: Catalogue, wanted: Part) -> "Cells":
        """Return the cells that matter for wanted series of a catalogue."""
        metrics = dict.fromkeys(series.metric_id for series in wanted)
        return cls((series for metric in metrics for series in catalogue.by_metric[metric]), wanted)

    def matched(self, part: Part) -> Iterator[CatalogueSeries]:
        """Return all series that the query for these matches."""
        paths = {self.paths[series.scopes] for series in part}
        groups = groups_asked(part)
        for metric in dict.fromkeys(series.metric_id for series in part):
            for path, several in self.known[self.metrics[metric]].items():
                if path in paths:
                    for series in several:
                        if groups is None or series.reporting_group_id in groups:
                            yield series

    def requests(self, part: Part) -> int:
        """Return how many pages the query for these takes."""
        return ceil(sum(1 for _ in self.matched(part)) / MAX_PAGE_SIZE)


def groups_asked(part: Part) -> dict[str, None] | None:
    """Return the groups that the query for these names; None where they are too many to name."""
    groups = dict.fromkeys(series.reporting_group_id for series in part)
    return groups if len(groups) <= MAX_REPORTING_GROUP_IDS else None
