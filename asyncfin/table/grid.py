"""A view of stored series: which series, at which periods. Cutting a panel makes a new
view.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any

from attrs import field, frozen

from asyncfin.errors import MalformedAnswerError, error_context
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.value import Value
from asyncfin.table.block import Axis, Block, Store
from asyncfin.table.gaps import MOST_ROWS, GapRun, gap_runs, uneven


@frozen(eq=False)
class Grid:
    """Series by periods.

    Attributes:
        catalogue: the publication that the series are of.
        value_version: the requested value version.
        series: the series, in catalogue order.
        periods: the periods, oldest first.
        store: holds the observations, possibly of more series and periods.
        asked: the periods of the question, oldest first.
        whole: False for a piece of a stream. The periods that it does not have may be
            in another piece, so it has no gaps.
    """

    catalogue: Catalogue
    value_version: str
    series: tuple[CatalogueSeries, ...]
    periods: tuple[Period, ...]
    store: Store
    asked: tuple[Period, ...] = ()
    whole: bool = True
    # Caches. `evolve` makes others for a cut, whose periods are others.
    _indices: dict[Axis, tuple[int, ...]] = field(init=False, factory=dict)
    _getters: dict[Axis, Callable[[list[Any]], tuple[Any, ...]]] = field(
        init=False, factory=dict
    )

    @cached_property
    def by_id(self) -> dict[str, CatalogueSeries]:
        return {series.series_id: series for series in self.series}

    @cached_property
    def by_metric(self) -> dict[str, list[CatalogueSeries]]:
        found: dict[str, list[CatalogueSeries]] = {}
        for series in self.series:
            found.setdefault(series.metric_id, []).append(series)
        return found

    @cached_property
    def _asked(self) -> frozenset[Period]:
        return frozenset(self.asked)

    @cached_property
    def _listed(self) -> frozenset[Period]:
        return frozenset(self.catalogue.periods)

    def covers(self, period: Period) -> bool:
        """Return whether a period was requested, or the catalogue does not have it."""
        return period in self._asked or period not in self._listed

    @cached_property
    def populated(self) -> frozenset[Period]:
        """All periods in which a series of the grid has a value, cut away or not."""
        return frozenset(
            block.axis.periods[at]
            for block, rows in self.rows()
            for at in set().union(*(block.observations(row)[0] for row in rows))
        )

    def observed(self, series_id: str) -> tuple[Period, ...]:
        """Return all periods in which a series has a value, cut away or not, oldest
        first.
        """
        if (found := self.store.find(series_id)) is None:
            return ()
        block, row = found
        return tuple(block.axis.periods[at] for at in block.observations(row)[0])

    @cached_property
    def gap_runs(self) -> tuple[GapRun, ...]:
        """The missing periods between those of the grid, in uninterrupted runs."""
        if not self.whole:
            return ()
        return gap_runs(self.periods, self._asked, self._listed)

    def uneven(self) -> Iterator[str]:
        """Yield a line for each duration whose periods are unevenly distant."""
        return uneven(self.periods, self._listed) if self.whole else iter(())

    @cached_property
    def rows_of_wide(self) -> tuple[Period, ...]:
        """The periods of the wide layouts, oldest first: the grid's and its gaps,
        without very long runs.
        """
        filled = [
            period for run in self.gap_runs if len(run) <= MOST_ROWS for period in run
        ]
        return tuple(sorted([*self.periods, *filled])) if filled else self.periods

    def path_names(self, series: CatalogueSeries) -> str:
        """Return the names of a series' scopes as one text."""
        return " / ".join(self.catalogue.scope_names(series.scopes))

    def indices(self, axis: Axis) -> tuple[int, ...]:
        """Return the index in `periods` of each period of an axis; -1 where it is not
        among them.
        """
        # A page's axis is shared by its blocks and series, so this is worked out once a
        # page.
        if axis not in self._indices:
            index = {period: at for at, period in enumerate(self.periods)}
            self._indices[axis] = tuple(
                index.get(period, -1) for period in axis.periods
            )
        return self._indices[axis]

    def observations(self, series_id: str) -> "tuple[array[int], array[float]]":
        """Return the indices of the periods in which a series has a value, ascending,
        and the numbers.
        """
        if (found := self.store.find(series_id)) is None:
            return array("i"), array("d")
        block, row = found
        positions, numbers = block.observations(row)
        # The common case: a panel that was not cut, of pages that all list the same
        # periods.
        if block.axis.periods == self.periods:
            return positions, numbers
        # A panel may be cut, or made of pages that list other periods.
        indices = self.indices(block.axis)
        at = [indices[position] for position in positions]
        if -1 in at:
            numbers = array(
                "d", (number for i, number in zip(at, numbers, strict=True) if i >= 0)
            )
            at = [i for i in at if i >= 0]
        return array("i", at), numbers

    def values(self, series_id: str) -> tuple[Value | None, ...]:
        """Return a series' values, one entry a period.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        if (found := self.store.find(series_id)) is None:
            return (None,) * len(self.periods)
        block, row = found
        try:
            values = self.store.values(block, row)
        except MalformedAnswerError:
            with self.error_context():
                raise
        return self._picks(block.axis)([*values, None])[:-2]

    def _picks(
        self, axis: Axis
    ) -> Callable[[list[Value | None]], tuple[Value | None, ...]]:
        """Return what picks an entry a period, and two more, from those of a page that
        None follows.
        """
        if axis not in self._getters:
            self._getters[axis] = self._getter(axis.positions())
        return self._getters[axis]

    def _getter(
        self, positions: Mapping[Period, int]
    ) -> Callable[[list[Any]], tuple[Any, ...]]:
        # One C call a series: of a sparse one most periods have no value, and an entity
        # has thousands. Two more, because an itemgetter of a single index returns no
        # tuple.
        return itemgetter(*(positions.get(each, -1) for each in self.periods), -1, -1)

    def aligned(
        self, axis: Axis, entries: Iterable[list[Value | None]]
    ) -> Iterable[Sequence[Value | None]]:
        """Yield the entries of series, given by an axis, one a period."""
        if axis.periods == self.periods:
            return entries
        pick = self._getter({period: at for at, period in enumerate(axis.periods)})
        return (pick([*each, None])[:-2] for each in entries)

    def rows(self) -> Iterator[tuple[Block, list[int]]]:
        """Yield each block that holds series of the grid, with the rows of these
        series.
        """
        return self.store.rows(self.by_id)

    def error_context(self) -> AbstractContextManager[None]:
        """Add operation and entity to a `MalformedAnswerError`, which stored bytes do
        not know.
        """
        return error_context("query", self.catalogue.entity_id)

    def value_count(self, enough: float = inf) -> int:
        """Return how many values there are; of more than `enough` not all are
        counted.
        """
        count = 0
        for block, rows in self.rows():
            positions: Iterable[int] = block.positions
            if len(rows) < len(block.series_ids):
                positions = chain.from_iterable(
                    block.observations(row)[0] for row in rows
                )
            is_counted = [at >= 0 for at in self.indices(block.axis)]
            # A block that is in the panel as a whole knows its count; a cut one has to
            # be counted.
            whole = positions is block.positions and all(is_counted)
            count += (
                len(block.positions)
                if whole
                else sum(map(is_counted.__getitem__, positions))
            )
            if count > enough:
                break
        return count
