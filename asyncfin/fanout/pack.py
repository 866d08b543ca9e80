"""Cut wanted series into parts, each the home of one batch of one page (spec 4.3).

Batches are grown (see `grow`) in several views of the cells: one of all groups that are asked for, then one
for each set of groups that never share a cell, where naming the groups keeps foreign series out. Either a
view is used up before the next is opened, or each batch is taken from the view where it houses most.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from asyncfin.fanout.cells import Cell, Cells, Part, Several
from asyncfin.fanout.grow import PAGE, Batch, Table
from asyncfin.model.query import MAX_REPORTING_GROUP_IDS
from asyncfin.model.series import CatalogueSeries

Homes: TypeAlias = dict[Cell, list[CatalogueSeries]]


def pack(
    cells: Cells, *, enough: int, foreign: bool = True, limit: float = float("inf")
) -> list[Part] | None:
    """Return parts of a page each, and one for each triple of metric, path and group that is larger.

    A batch that houses so many as `enough` is taken without a look at further views. None: a foreign
    series can't be kept out, or there are more parts than the limit; which is given up as soon as batches
    like the best so far would not do.
    """
    packing = _Packing(cells, foreign)
    homes = packing.large()
    most = PAGE
    while 0 < packing.left <= most * (limit - len(homes)) and (batch := packing.batch(enough)):
        homes.append([series for several in batch.values() for series in several])
        most = max(map(len, homes))
    return None if packing.left else list(map(cells.part, homes))


class _View:
    """The cells as a query sees them that names these groups. None: that names none."""

    def __init__(self, cells: Cells, homeless: Homes, groups: set[str] | None, foreign: bool) -> None:
        self._groups = groups
        self._next: Homes | None = None
        matched = {
            (metric, path): count
            for metric, row in cells.known.items()
            for path, several in row.items()
            if (count := len(self.seen(several)))
        }
        if not foreign:  # what can't be asked alone fits on no page
            for cell in matched:
                if matched[cell] > len(self.seen(cells.wanted.get(cell, []))):
                    matched[cell] = PAGE + 1
        counts = {cell: len(self.seen(several)) for cell, several in homeless.items()}
        self._table = Table(matched, {c: n for c, n in counts.items() if n and matched[c] <= PAGE})

    def seen(self, several: list[CatalogueSeries]) -> list[CatalogueSeries]:
        if self._groups is None:
            return several
        return [series for series in several if series.reporting_group_id in self._groups]

    def homes(self, homeless: Homes) -> Homes:
        """Return the series that find a home in the next batch."""
        if self._next is None:
            self._next = {cell: self.seen(homeless[cell]) for cell in Batch(self._table).cells()}
        return self._next

    def settle(self, homes: Homes) -> None:
        for cell, several in homes.items():
            if seen := self.seen(several):
                self._table.settle(cell, len(seen))
                self._next = None


class _Packing:
    def __init__(self, cells: Cells, foreign: bool) -> None:
        self._cells = cells
        self._foreign = foreign
        self._homeless = {cell: list(several) for cell, several in cells.wanted.items()}
        self.left = sum(map(len, self._homeless.values()))
        self._views: list[_View] = []
        self._unopened = _views(cells)

    def large(self) -> list[Several]:
        """House the triples that are larger than a page."""
        homes: list[Several] = []
        for (metric, path), several in self._homeless.items():
            known = self._cells.known[metric][path]
            if len(known) <= PAGE:
                continue
            counts = Counter(series.reporting_group_id for series in known)
            for group in dict.fromkeys(series.reporting_group_id for series in several):
                home = [series for series in several if series.reporting_group_id == group]
                if counts[group] > PAGE and (self._foreign or counts[group] == len(home)):
                    homes.append(home)
                    self.left -= len(home)
                    several[:] = [series for series in several if series.reporting_group_id != group]
        return homes

    def batch(self, enough: int) -> Homes:
        """Return the homes of the next batch, by cell; none when nothing more can be housed."""
        best: Homes = {}
        most = 0
        for view in self._opened():
            homes = view.homes(self._homeless)
            if (count := sum(map(len, homes.values()))) > most:
                best, most = homes, count
            if most >= enough:
                break
        self._settle(best)
        return best

    def _opened(self) -> Iterator[_View]:
        yield from self._views
        for groups in self._unopened:
            self._views.append(_View(self._cells, self._homeless, groups, self._foreign))
            yield self._views[-1]

    def _settle(self, homes: Homes) -> None:
        for view in self._views:
            view.settle(homes)
        for cell, several in homes.items():
            self.left -= len(several)
            if len(several) == len(self._homeless[cell]):
                self._homeless[cell] = []
            else:
                housed = {series.series_id for series in several}
                self._homeless[cell] = [s for s in self._homeless[cell] if s.series_id not in housed]


def _views(cells: Cells) -> Iterator[set[str] | None]:
    """Yield the sets of groups to name: all that are wanted, then those that share no cell."""
    groups = dict.fromkeys(s.reporting_group_id for several in cells.wanted.values() for s in several)
    known = {
        s.reporting_group_id for row in cells.known.values() for several in row.values() for s in several
    }
    yield set(groups) if len(groups) <= MAX_REPORTING_GROUP_IDS and len(groups) < len(known) else None
    apart = _apart(cells, list(groups))
    if len(apart) > 1:
        yield from apart


def _apart(cells: Cells, groups: list[str]) -> list[set[str]]:
    """Return the groups in few sets, none with two groups that share a cell."""
    rivals: dict[str, set[str]] = {group: set() for group in groups}
    for row in cells.known.values():
        for several in row.values():
            if len(several) > 1:
                sharing = {series.reporting_group_id for series in several}
                for group in sharing & rivals.keys():
                    rivals[group] |= sharing - {group}
    sets: list[set[str]] = []
    for group in groups:
        free = (s for s in sets if len(s) < MAX_REPORTING_GROUP_IDS and not s & rivals[group])
        if (found := next(free, None)) is None:
            sets.append(found := set())
        found.add(group)
    return sets
