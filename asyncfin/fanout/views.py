"""What queries see of the cells, by the reporting groups that they name.

View 0 is of queries that name all wanted groups. The further ones are of sets of groups that never share a
cell, where naming them keeps foreign series out; each wanted group is in one of them.
"""

from functools import cached_property
from typing import TypeAlias

from asyncfin.fanout.cells import Cell, Cells
from asyncfin.fanout.grow import PAGE, Lines, lines
from asyncfin.model.query import MAX_REPORTING_GROUP_IDS
from asyncfin.model.series import CatalogueSeries

Seen: TypeAlias = dict[Cell, list[CatalogueSeries]]


class Views:
    """The cells in their views, counted once for all ways to pack."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self._known: Seen = {
            (metric, path): several for metric, row in cells.known.items() for path, several in row.items()
        }
        self._matched: dict[tuple[int, bool], Lines] = {}

    def matched(self, view: int, *, foreign: bool) -> Lines:
        """Return how many series each cell matches; more than a page where a foreign one must not come."""
        if (view, foreign) not in self._matched:
            known = self._known_apart[view - 1] if view else self._named
            counts = {cell: len(several) for cell, several in known.items()}
            if not foreign:  # what can't be asked alone fits on no page
                wanted = self._wanted_apart[view - 1] if view else self.cells.wanted
                counts = {c: n if n == len(wanted.get(c, ())) else PAGE + 1 for c, n in counts.items()}
            self._matched[view, foreign] = lines(counts)
        return self._matched[view, foreign]

    def split(self, cells: Seen) -> list[Seen]:
        """Return what each of the further views sees of these cells."""
        view_of = {group: view for view, groups in enumerate(self._apart) for group in groups}
        seen: list[Seen] = [{} for _ in self._apart]
        for cell, several in cells.items():
            for series in several:
                if (view := view_of.get(series.reporting_group_id)) is not None:
                    seen[view].setdefault(cell, []).append(series)
        return seen

    @cached_property
    def _groups(self) -> dict[str, None]:
        return _groups(self.cells.wanted)

    @cached_property
    def _named(self) -> Seen:
        """What view 0 sees: all, where naming the groups makes no difference, or they are too many."""
        if len(self._groups) > MAX_REPORTING_GROUP_IDS or len(self._groups) == len(_groups(self._known)):
            return self._known
        named = {
            cell: [series for series in several if series.reporting_group_id in self._groups]
            for cell, several in self._known.items()
        }
        return {cell: several for cell, several in named.items() if several}

    @cached_property
    def _known_apart(self) -> list[Seen]:
        return self.split(self._known)

    @cached_property
    def _wanted_apart(self) -> list[Seen]:
        return self.split(self.cells.wanted)

    @cached_property
    def _apart(self) -> list[set[str]]:
        """The wanted groups in few sets, none with two groups that share a cell; none, if one would do."""
        rivals: dict[str, set[str]] = {group: set() for group in self._groups}
        for several in self._known.values():
            if len(several) > 1:
                sharing = {series.reporting_group_id for series in several}
                for group in sharing & rivals.keys():
                    rivals[group] |= sharing - {group}
        sets: list[set[str]] = []
        for group in self._groups:
            free = (s for s in sets if len(s) < MAX_REPORTING_GROUP_IDS and not s & rivals[group])
            if (found := next(free, None)) is None:
                sets.append(found := set())
            found.add(group)
        return sets if len(sets) > 1 else []


def _groups(cells: Seen) -> dict[str, None]:
    return dict.fromkeys(series.reporting_group_id for several in cells.values() for series in several)
