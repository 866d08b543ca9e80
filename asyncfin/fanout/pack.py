"""Cut wanted series into parts, each the home of one batch of one page (spec 4.3).

Batches are grown (see `grow`) in several views of the cells (see `views`). Either a view is used up before
the next is opened, or each batch is taken from the view where it houses most.
"""

from collections import Counter
from collections.abc import Iterator

from asyncfin.fanout.cells import Cell, Part, Several
from asyncfin.fanout.grow import PAGE, Batch, Lines, Table
from asyncfin.fanout.views import Seen, Views
from asyncfin.model.series import CatalogueSeries


def pack(
    views: Views, *, enough: int, foreign: bool = True, limit: float = float("inf")
) -> list[Part] | None:
    """Return parts of a page each, and one for each triple of metric, path and group that is larger.

    A batch that houses so many as `enough` is taken without a look at further views. None: a foreign
    series can't be kept out, or there are more parts than the limit; which is given up as soon as batches
    like the last two would not do.
    """
    packing = _Packing(views, foreign)
    homes = packing.large()
    most = PAGE
    while 0 < packing.left <= most * (limit - len(homes)) and (home := packing.batch(enough)):
        homes.append(home)
        most = max(map(len, homes[-2:]))
    return None if packing.left else list(map(views.cells.part, homes))


class _View:
    """The series without a home that one view sees, and the batch that would house most of them."""

    def __init__(self, matched: Lines, homeless: Seen) -> None:
        self.homeless = homeless
        askable = {
            (metric, path): len(several)
            for (metric, path), several in homeless.items()
            if matched[0][metric][path] <= PAGE
        }
        self._table = Table(matched, askable)
        self._next: list[Cell] | None = None

    def next(self) -> list[Cell]:
        if self._next is None:
            self._next = Batch(self._table).cells()
        return self._next

    def settle(self, cells: list[Cell], housed: set[str]) -> None:
        """Take note that series of these cells have found a home."""
        for cell in cells:
            several = self.homeless.get(cell, [])
            left = [series for series in several if series.series_id not in housed]
            if len(left) == len(several):
                continue
            self._table.settle(cell, len(several) - len(left))
            self._next = None
            if left:
                self.homeless[cell] = left
            else:
                del self.homeless[cell]


class _Packing:
    def __init__(self, views: Views, foreign: bool) -> None:
        self._views = views
        self._foreign = foreign
        self._homeless = {cell: list(several) for cell, several in views.cells.wanted.items()}
        self._opened: list[_View] = []
        self.left = sum(map(len, self._homeless.values()))

    def large(self) -> list[Several]:
        """House the triples that are larger than a page."""
        homes: list[Several] = []
        for (metric, path), several in list(self._homeless.items()):
            known = self._views.cells.known[metric][path]
            if len(known) <= PAGE:
                continue
            counts = Counter(series.reporting_group_id for series in known)
            for group in dict.fromkeys(series.reporting_group_id for series in several):
                home = [series for series in several if series.reporting_group_id == group]
                if counts[group] > PAGE and (self._foreign or counts[group] == len(home)):
                    homes.append(home)
                    self.left -= len(home)
                    several[:] = [series for series in several if series.reporting_group_id != group]
            if not several:
                del self._homeless[metric, path]
        return homes

    def batch(self, enough: int) -> Several:
        """Return the home series of the next batch; none when nothing more can be housed."""
        best: list[CatalogueSeries] = []
        cells: list[Cell] = []
        for view in self._open():
            home = [series for cell in view.next() for series in view.homeless[cell]]
            if len(home) > len(best):
                best, cells = home, view.next()
            if len(best) >= enough:
                break
        self.left -= len(best)
        housed = {series.series_id for series in best}
        for view in self._opened:
            view.settle(cells, housed)
        return best

    def _open(self) -> Iterator[_View]:
        """Yield view 0, and then the further ones, which are opened together."""
        if not self._opened:
            self._opened.append(_View(self._views.matched(0, foreign=self._foreign), self._homeless))
        yield self._opened[0]
        if len(self._opened) == 1:
            for at, homeless in enumerate(self._views.split(self._homeless), 1):
                self._opened.append(_View(self._views.matched(at, foreign=self._foreign), homeless))
        yield from self._opened[1:]
