"""The Panel: what a question comes to, as series by periods; what users see of it, and how it is cut."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve, frozen

from asyncfin.errors import SelectionError
from asyncfin.model import near
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import (
    Annual,
    Exact,
    FiscalRange,
    Period,
    Quarterly,
    Trailing,
    resolve,
)
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries, Series
from asyncfin.model.words import counted, spanned
from asyncfin.table import frames
from asyncfin.table.frames import Layout
from asyncfin.table.grid import Grid
from asyncfin.wire.values import series_of

if TYPE_CHECKING:  # the types of what other libraries hold; none of them is needed to import the library
    import numpy
    import pandas
    import polars
    import pyarrow

Cut: TypeAlias = Exact | FiscalRange | Annual | Quarterly | Period | str | Iterable[Period | str]


@frozen(eq=False, repr=False)
class Panel:
    """The answer to one question: series in catalogue order, each with its values by period.

    Iterating gives a `Series` each, ``len`` counts them, ``series_id in panel`` and
    ``panel[series_id]`` find one by its id. Numbers are at hand; all other parts of the values are
    decoded when looked at, and MalformedAnswerError is raised then if they break the spec (`check`
    looks at all of them). A Series keeps the values it has decoded, and the panel keeps no Series:
    looking at one after the other holds the values of one.

    A panel can be pickled if its parts can: not where `select` holds a lambda as its predicate.

    Attributes:
        select: what was asked for.
        unlisted: the ids of asked series that the service left out of its answers. They are in the
            panel, without values.
        anchor: the latest period with a value, at which the window of a `Trailing` question ends.
            None for other questions, and without any value. A cut panel keeps it.
        requests: how many requests were spent, everything counted.
    """

    _grid: Grid
    select: Select
    unlisted: tuple[str, ...] = ()
    anchor: Period | None = None
    requests: int = 0

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue of the publication."""
        return self._grid.catalogue

    @property
    def dataset(self) -> Dataset:
        """The publication's metadata."""
        return self.catalogue.dataset

    @property
    def value_version(self) -> str:
        """Which values were asked for, ``"original"`` or ``"latest_restated"``."""
        return self._grid.value_version

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods of all values, oldest first.

        For `Exact` (and rules) all that were asked for; otherwise those in which a series has a value.
        """
        return self._grid.periods

    @property
    def series(self) -> tuple[Series, ...]:
        """The series, in catalogue order. They are made anew at each access."""
        return tuple(self)

    @property
    def series_ids(self) -> tuple[str, ...]:
        """The ids of the series, in catalogue order."""
        return tuple(series.series_id for series in self._grid.series)

    @property
    def anchored_by(self) -> tuple[str, ...]:
        """The ids of the series with a value at the anchor's fiscal end. One stray late value sets it.

        None may be left in a panel that was cut.
        """
        if self.anchor is None:
            return ()
        end = self.anchor.fiscal_end
        last = {index for index, period in enumerate(self.periods) if period.fiscal_end == end}
        return tuple(
            series_id
            for series_id in self.series_ids
            if not last.isdisjoint(self._grid.observations(series_id)[0])
        )

    @property
    def value_count(self) -> int:
        """How many values there are. A reported zero counts, a gap does not."""
        return self._grid.value_count()

    def __len__(self) -> int:
        return len(self._grid.series)

    def __iter__(self) -> Iterator[Series]:
        return map(self._series, self._grid.series)

    def __contains__(self, series_id: object) -> bool:
        return series_id in self._grid.by_id

    def __getitem__(self, series_id: str) -> Series:
        if (head := self._grid.by_id.get(series_id)) is None:
            raise near.no_series(series_id, self._grid.series)
        return self._series(head)

    def _series(self, head: CatalogueSeries) -> Series:
        return series_of(head, self.periods, partial(self._grid.values, head.series_id))

    def one(self) -> Series:
        """Return the only series.

        Raises:
            SelectionError: there are several, which the message names, or none.
        """
        if len(self) == 1:
            return next(iter(self))
        named = "; ".join(
            f"{head.series_id} ({head.label}, {self._grid.path_names(head)}, {head.reporting_group_id})"
            for head in self._grid.series[:5]
        )
        more = f"; and {len(self) - 5} more" if len(self) > 5 else ""
        raise SelectionError(
            f"one series was expected, the panel has {len(self)}{': ' if named else ''}{named}{more}"
        )

    def check(self) -> None:
        """Decode every value and discard it.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        with self._grid.error_context():
            for stored in self._grid.stored():
                stored.values()

    def where(self, predicate: Callable[[Series], bool]) -> "Panel":
        """Return the panel of those series that a predicate is true of, at the same periods."""
        kept = tuple(head for head in self._grid.series if predicate(self._series(head)))
        ids = {head.series_id for head in kept}
        return evolve(
            self,
            grid=evolve(self._grid, series=kept),
            unlisted=tuple(series_id for series_id in self.unlisted if series_id in ids),
        )

    def during(self, periods: Cut) -> "Panel":
        """Return the panel of the same series at fewer periods.

        Args:
            periods: a Period or its label, several of them, or a selection: `Exact`, `FiscalRange`,
                `Annual`, `Quarterly`. Rules are resolved against this panel's periods.

        Raises:
            SelectionError: a period is named that the panel does not have.
        """
        return evolve(self, grid=evolve(self._grid, periods=_cut(self.periods, periods)))

    def to_arrow(self, layout: Layout = "long", *, columns: Iterable[str] | None = None) -> "pyarrow.Table":
        """Return a pyarrow Table (extra ``arrow``). docs/schema.md has its columns.

        Args:
            layout: ``"long"``: one row an observation, series in catalogue order, each oldest first.
                ``"wide"``: one row a period, with year, end_month and duration_months, then a column
                of numbers for each series, named by its id.
            columns: the names of the wanted ones, in their order; they cost only themselves: asking
                for numbers decodes no texts. None: all.

        Raises:
            SelectionError: there is no such layout or column.
            MalformedAnswerError: what a wanted column is read from breaks the spec.
            ImportError: pyarrow is not installed.
        """
        return frames.to_arrow(self._grid, layout, columns, self._about())

    def to_pandas(
        self, layout: Layout = "long", *, columns: Iterable[str] | None = None
    ) -> "pandas.DataFrame":
        """Return a pandas DataFrame (extra ``pandas``); arguments and errors as for `to_arrow`.

        The wide one has an index of year, end_month and duration_months, which sorts as periods do;
        its gaps are NaN. No dates are derived: fiscal months are not calendar months.
        """
        return frames.to_pandas(self._grid, layout, columns, self._about())

    def to_polars(
        self, layout: Layout = "long", *, columns: Iterable[str] | None = None
    ) -> "polars.DataFrame":
        """Return a polars DataFrame (extra ``polars``); arguments and errors as for `to_arrow`."""
        return frames.to_polars(self._grid, layout, columns, self._about())

    def to_numpy(self) -> "numpy.typing.NDArray[numpy.float64]":
        """Return the numbers as a float64 array of NumPy, series x periods. A gap is NaN, a reported zero 0.

        Raises:
            ImportError: NumPy is not installed.
        """
        return frames.to_numpy(self._grid)

    def plot(self, ax: Any = None) -> Any:
        """Draw the numbers as lines over fiscal time, for a quick look (extra ``plot``).

        Each series has a line for each duration of its periods. Fiscal months are drawn evenly; they are
        no calendar months.

        Args:
            ax: the Axes of matplotlib to draw on; None: a new figure.

        Returns:
            The Axes; ``panel.plot().figure.savefig("panel.png")`` keeps the picture.

        Raises:
            SelectionError: there are more than 10 lines.
            ImportError: matplotlib is not installed.
        """
        from asyncfin.table.plot import plot

        return plot(self._grid, ax)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the long table to whatever reads Arrow's C stream interface."""
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream

    def _about(self) -> dict[str, Any]:
        """Return what a table's metadata says of this panel."""
        return {
            "entity_id": self.dataset.entity_id,
            "name": self.dataset.name,
            "dataset_id": self.dataset.dataset_id,
            "created_timestamp": self.dataset.created_timestamp.isoformat(),
            "select": str(self.select),
            "value_version": self.value_version,
            "periods": [period.label for period in self.periods],
            "anchor": self.anchor and self.anchor.label,
            "unlisted": list(self.unlisted),
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        # asyncio.run writes the result's repr, and throws it away: nothing is counted here.
        return (
            f"<Panel of {self.catalogue.name} ({self.catalogue.entity_id}): {len(self):,} series by"
            f" {counted(len(self.periods), 'period')}>"
        )

    def _repr_html_(self) -> str:
        from asyncfin.table.notebook import panel_html

        return panel_html(self._grid, self._lines())

    def _lines(self) -> list[str]:
        """Return what the panel is, a line each."""
        count, cells = self.value_count, len(self) * len(self.periods)
        lines = [
            f"{self.catalogue.name} ({self.catalogue.entity_id}), {self.value_version} values",
            f"publication {self.dataset.dataset_id} of {self.dataset.created_timestamp:%Y-%m-%d %H:%M} UTC",
            f"{len(self):,} series by {_span(self.periods)}",
            counted(count, "value") + (f", {count / cells:.0%} of the cells" if cells else ""),
        ]
        if self.anchor is not None:
            by = f", set by {_listed(self.anchored_by)}" if self.anchored_by else ""
            lines.append(f"the window ends at {self.anchor}{by}")
        if self.unlisted:
            lines.append(f"{len(self.unlisted):,} series were left out by the service")
        return lines


def concat(panels: Iterable[Panel], *, columns: Iterable[str] | None = None) -> "pyarrow.Table":
    """Return the long tables of several panels as one pyarrow Table, in their order.

    Companies are joined by nothing but the columns: the same fiscal period of two of them can mean
    different months. Arguments and errors as for `Panel.to_arrow`.
    """
    from asyncfin.table.arrow import empty_table, joined

    names = frames.column_names(columns)
    tables = [panel.to_arrow(columns=names) for panel in panels]
    return joined(tables) if tables else empty_table(names)


def _listed(ids: tuple[str, ...]) -> str:
    if len(ids) <= 3:
        return ", ".join(ids)
    return f"{', '.join(ids[:2])} and {len(ids) - 2} other series"


def _cut(have: tuple[Period, ...], cut: Cut) -> tuple[Period, ...]:
    """Return which periods are meant, oldest first."""
    if isinstance(cut, (Period, str)):
        cut = (cut,)
    selection = cut if isinstance(cut, (Exact, FiscalRange, Trailing, Annual, Quarterly)) else Exact(cut)
    match resolve(selection, have):
        case None:
            return ()
        case Exact(periods=exact):
            if absent := [period.label for period in exact if period not in have]:
                raise SelectionError(f"the panel has no period {', '.join(absent)}; it has {_span(have)}")
            return tuple(sorted(exact))
        case FiscalRange(start=Period() as start, end=Period() as end):
            return tuple(each for each in have if start.fiscal_end <= each.fiscal_end <= end.fiscal_end)
    raise SelectionError(f"periods must be Exact, FiscalRange, Annual, Quarterly or periods, not {cut!r}")


def _span(periods: tuple[Period, ...]) -> str:
    return counted(len(periods), "period") + (f", {spanned(periods)}" if periods else "")
