"""A view of stored series: which series, at which periods. Cutting a panel makes a new
view.
"""

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Any, TypeAlias, TypeVar

from attrs import field, frozen

from asyncfin.clock import utc_text
from asyncfin.errors import MalformedAnswerError, complete_error
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries, Value
from asyncfin.table.block import Axis, Block, Store, find_indices

K = TypeVar("K")
T = TypeVar("T")
GapRun: TypeAlias = tuple[Period, ...]

# The durations whose periods follow each other at their own length. Of others, such as
# half-years that overlap, none is missed.
DURATIONS = (3, 12)
# A longer run of gaps is only named: rows for it would be most of a table.
MOST_ROWS = 40


@frozen(eq=False)
class Grid:
    """Series by periods.

    Attributes:
        catalogue: the publication that the series are of.
        value_version: the requested value version.
        series: the series, in catalogue order.
        periods: the periods, oldest first.
        store: holds the observations, possibly of more series and periods.
        select: the selection of series.
        query_periods: the periods of the query, oldest first.
        unlisted_ids: those of series that the service left out of its responses.
        anchor: the end of the window of a `Trailing` query.
        is_whole: False for a piece of a stream, which has no gaps: other periods may be
            in another piece.
    """

    catalogue: Catalogue
    value_version: str
    series: tuple[CatalogueSeries, ...]
    periods: tuple[Period, ...]
    store: Store
    select: Select
    query_periods: tuple[Period, ...] = ()
    unlisted_ids: tuple[str, ...] = ()
    anchor: Period | None = None
    is_whole: bool = True
    # `evolve` makes other ones for a cut, whose periods differ.
    _indices: dict[Axis, tuple[int, ...]] = field(init=False, factory=dict)
    _pickers: dict[Axis, Callable[[Any], Any]] = field(init=False, factory=dict)

    @cached_property
    def by_id(self) -> dict[str, CatalogueSeries]:
        return {series.series_id: series for series in self.series}

    @cached_property
    def by_metric(self) -> dict[str, list[CatalogueSeries]]:
        return group_pairs((series.metric_id, series) for series in self.series)

    @cached_property
    def omitted_periods(self) -> frozenset[Period]:
        """The periods of the catalogue that the query leaves out: only there can an
        empty cell have a value.
        """
        return frozenset(self.catalogue.periods).difference(self.query_periods)

    @cached_property
    def last_omitted(self) -> Period | None:
        """The last omitted period of the query's durations, if any."""
        durations = set(map(attrgetter("duration_months"), self.query_periods))
        for period in sorted(self.omitted_periods, reverse=True):
            if period.duration_months in durations:
                return period
        return None

    @cached_property
    def populated(self) -> frozenset[Period]:
        """All periods in which a series of the grid has a value, cut away or not."""
        return frozenset().union(*map(self.find_periods, self.by_id))

    def find_periods(self, series_id: str) -> tuple[Period, ...]:
        """Return all periods in which a series has a value, cut away or not, oldest
        first.
        """
        if (place := self.store.find(series_id)) is None:
            return ()
        block, row = place
        positions, _ = block.observations(row)
        return tuple(map(block.axis.periods.__getitem__, positions))

    def find_observed(self, periods: Collection[Period]) -> set[str]:
        """Return the ids of the series with a value at one of some of the periods."""
        periods = set(periods).intersection(self.periods)
        series_ids: set[str] = set()
        for block, rows in self.rows():
            axis = enumerate(block.axis.periods)
            axis_positions = {place for place, period in axis if period in periods}
            for row in rows:
                positions, _ = block.observations(row)
                # The first such position ends the search: of 170,000 values few are
                # examined.
                if not axis_positions.isdisjoint(positions):
                    series_ids.add(block.series_ids[row])
        return series_ids

    @cached_property
    def gap_runs(self) -> tuple[GapRun, ...]:
        """The missing periods between those of the grid, in uninterrupted runs, by
        duration, oldest first.

        An omitted period is not missing. One that the catalogue has nowhere begins or
        ends no gap.
        """
        runs: list[GapRun] = []
        if not self.is_whole:
            return ()
        present = self.omitted_periods.union(self.periods)
        listed_periods = set(self.periods).intersection(self.catalogue.periods)
        for earlier, later in pair_periods(sorted(listed_periods)):
            duration = earlier.duration_months
            ends = range(earlier.fiscal_end + duration, later.fiscal_end, duration)
            between = (Period.ending(end, duration) for end in ends)
            for is_present, run in groupby(between, present.__contains__):
                if not is_present:
                    runs.append(tuple(run))
        return tuple(runs)

    @property
    def gaps(self) -> tuple[Period, ...]:
        """The missing periods, oldest first."""
        return tuple(sorted(chain.from_iterable(self.gap_runs)))

    @cached_property
    def rows_of_wide(self) -> tuple[Period, ...]:
        """The periods of the wide layouts, oldest first: the grid's and its gaps,
        without very long runs.
        """
        rows = set(self.periods)
        for run in self.gap_runs:
            if len(run) <= MOST_ROWS:
                rows.update(run)
        return tuple(sorted(rows))

    def join_scopes(self, series: CatalogueSeries) -> str:
        """Return the names of a series' scopes as one text."""
        return " / ".join(self.catalogue.scope_names(series.scopes))

    def indices(self, axis: Axis) -> tuple[int, ...]:
        """Return the index in `periods` of each period of an axis; -1 where it is not
        among them.
        """
        # The blocks and series of a page share its axis.
        if axis not in self._indices:
            self._indices[axis] = find_indices(axis.periods, self.periods)
        return self._indices[axis]

    def observations(self, series_id: str) -> "tuple[array[int], array[float]]":
        """Return the indices of the periods in which a series has a value, ascending,
        and the numbers.
        """
        if (place := self.store.find(series_id)) is None:
            return array("i"), array("d")
        block, row = place
        positions, numbers = block.observations(row)
        # The common case: a panel that was not cut, of pages that all list the same
        # periods.
        if block.axis.periods == self.periods:
            return positions, numbers
        index_of = self.indices(block.axis)
        indices, cut_numbers = array("i"), array("d")
        for position, number in zip(positions, numbers, strict=True):
            if (index := index_of[position]) >= 0:
                indices.append(index)
                cut_numbers.append(number)
        return indices, cut_numbers

    def numbers(self, series_id: str) -> dict[Period, float]:
        """Return a series' numbers by period, oldest first."""
        indices, numbers = self.observations(series_id)
        periods = map(self.periods.__getitem__, indices)
        return dict(zip(periods, numbers, strict=True))

    def values(self, series_id: str) -> tuple[Value | None, ...]:
        """Return a series' values, one entry a period.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        if (place := self.store.find(series_id)) is None:
            return (None,) * len(self.periods)
        block, row = place
        try:
            values = self.store.values(block, row)
        except MalformedAnswerError as error:
            self.complete(error)
            raise
        return tuple(self.align(block.axis, values))

    def align(self, axis: Axis, entries: Sequence[T | None]) -> Sequence[T | None]:
        """Return the entries of an axis at the periods of the grid, and None at those
        that it does not have.
        """
        if axis.periods == self.periods:
            return entries
        if axis not in self._pickers:
            places = find_indices(self.periods, axis.periods)
            # One C call a series: a loop took a tenth longer. Two more places, because
            # an itemgetter of a single index returns no tuple.
            self._pickers[axis] = itemgetter(*places, -1, -1)
        aligned_entries: tuple[T | None, ...] = self._pickers[axis]([*entries, None])
        return aligned_entries[:-2]

    def rows(self) -> Iterator[tuple[Block, list[int]]]:
        """Yield each block that holds series of the grid, with the rows of these
        series.
        """
        return self.store.rows(self.by_id)

    def complete(self, error: MalformedAnswerError) -> None:
        """Add operation and entity to an error, which stored bytes do not know."""
        complete_error(error, "query", self.catalogue.entity_id)

    @cached_property
    def value_count(self) -> int:
        """The number of values."""
        total = 0
        for block, rows in self.rows():
            indices = self.indices(block.axis)
            for row in rows:
                positions, _ = block.observations(row)
                if -1 in indices:
                    for position in positions:
                        total += indices[position] >= 0
                else:
                    total += len(positions)
        return total


def group_pairs(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the second entries of pairs by the first ones, all in their order."""
    groups: dict[K, list[T]] = {}
    for key, entry in pairs:
        groups.setdefault(key, []).append(entry)
    return groups


def group_by_duration(periods: Iterable[Period]) -> dict[int, list[Period]]:
    """Return periods by their months, in their order."""
    return group_pairs((period.duration_months, period) for period in periods)


def pair_periods(periods: Sequence[Period]) -> Iterator[tuple[Period, Period]]:
    """Yield each quarter and each year with the next one."""
    for duration in DURATIONS:
        yield from pairwise(
            period for period in periods if period.duration_months == duration
        )


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """Describe a publication in the service's terms (spec 2.2)."""
    return {
        "entity_id": dataset.entity_id,
        "name": dataset.name,
        "dataset_id": dataset.dataset_id,
        "created_timestamp": utc_text(dataset.created_timestamp),
    }


def describe_panel(grid: Grid) -> dict[str, Any]:
    """Describe a panel for the metadata of tables."""
    return {
        **describe_dataset(grid.catalogue),
        "select": str(grid.select),
        "value_version": grid.value_version,
        "periods": list(map(str, grid.periods)),
        "gaps": list(map(str, grid.gaps)),
        "anchor": grid.anchor and grid.anchor.label,
        "unlisted": list(grid.unlisted_ids),
    }
