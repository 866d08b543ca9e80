"""The Panel: the result of a query, as series by periods."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from attrs import evolve, field, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError, shorten
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import Period, read_label, write_hint
from asyncfin.model.select import Select
from asyncfin.model.selection import Exact, FiscalRange, Rule
from asyncfin.model.series import CatalogueSeries, Series, no_series
from asyncfin.optional import library
from asyncfin.table import document, notes
from asyncfin.table.grid import Grid, describe_panel
from asyncfin.table.reasons import explain_cell
from asyncfin.table.result import Result
from asyncfin.wire.values import series_of
from asyncfin.words import counted, listed, named_entity

if TYPE_CHECKING:  # none of these is needed to import the library
    import numpy
    import pyarrow

    from asyncfin.table.columns import Layout

# How much of a label an error names.
_LONGEST = 200
Cut: TypeAlias = Exact | FiscalRange | Rule | Period | str | Iterable[Period | str]


class Periods(tuple[Period, ...]):
    """Periods in which labels are found too."""

    __slots__ = ()

    def __contains__(self, period: object) -> bool:
        if isinstance(period, str):
            return read_label(period) in self
        return super().__contains__(period)

    def index(self, period: Any, /, *bounds: SupportsIndex) -> int:
        """Return the index of a `Period` or a label.

        Raises:
            SelectionError: the period is unknown. It is a ValueError too.
        """
        period = _parse_period(period)
        if period not in self:
            periods = notes.describe_periods(self)
            raise SelectionError(f"the panel has no period {period}; it has {periods}")
        return super().index(period, *bounds)


@frozen(eq=False, repr=False)
class Panel(Result):
    """The result of one query: series in catalogue order, each with its values by
    period.

    Iterating yields each `Series`, ``len`` counts them, ``key in panel`` and
    ``panel[key]`` find one by its id, or by that of a metric that only one series has.
    A panel is always true. ``str(panel)`` is a table of the values' texts, at most 100
    columns wide, which ends with what it leaves out. ``numpy.array(panel)`` is
    `to_numpy`.

    Numbers are ready to use. The other fields of the values are decoded on access,
    which raises MalformedAnswerError if they break the spec (`check` decodes all of
    them). A Series keeps the values it has decoded, but the panel does not keep its
    Series: iterating holds the values of one at a time.

    A panel can be pickled, unless the predicate of its `select` is a lambda.

    Attributes:
        requests: the number of requests spent, including retries, metadata and
            catalogue. 0: everything was cached, or shared with an equal question that
            was pending.
        confirmed_at: when its publication was last known to be the current one, aware
            UTC. None: never, which is possible for cached values of a given Catalogue.
        replies: what `asyncfin.web.reply` has built of the panel, by media type.
    """

    _grid: Grid
    requests: int = 0
    confirmed_at: datetime | None = None
    # No argument: a cut begins with none.
    replies: dict[str, Any] = field(init=False, factory=dict)
    _layout = "long"
    _has_entities = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Panel, (self._grid, self.requests, self.confirmed_at)

    @property
    def _grids(self) -> Sequence[Grid]:
        return (self._grid,)

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
        """The requested value version, ``"original"`` or ``"latest_restated"``."""
        return self._grid.value_version

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods that the values are aligned with, oldest first.

        For `Exact` and rules such as `Annual` these are all periods of the question,
        otherwise those in which a series has a value. ``in`` and ``index`` take labels
        too: ``"FY2024" in panel.periods``.
        """
        return Periods(self._grid.periods)

    @property
    def periods_asked(self) -> tuple[Period, ...]:
        """The periods of the question, oldest first.

        For `Exact` and rules such as `Annual` these are all that it resolved to,
        otherwise the periods of the catalogue in the range or window; none for a window
        without an anchor. `during` removes those that it cuts away.
        """
        return self._grid.query_periods

    @property
    def select(self) -> Select:
        """The selection of series."""
        return self._grid.select

    @property
    def unlisted(self) -> tuple[str, ...]:
        """The ids of the selected series that the service left out of its responses.

        They are in the panel, without values.
        """
        return self._grid.unlisted_ids

    @property
    def anchor(self) -> Period | None:
        """The latest period with a value, at which the window of a `Trailing` query
        ends. Parts of a panel have the same. None for other queries, and without a
        value.
        """
        return self._grid.anchor

    @property
    def gaps(self) -> tuple[Period, ...]:
        """The quarters and years missing between the first and the last, oldest first.

        A row of quarters without FY2024-Q2 has that gap if the question includes
        FY2024-Q2, or if the catalogue does not have it. Gaps are not in `periods`,
        `values` and `to_numpy`; the wide layouts have them as rows without values, but
        for more than 40 in a row. A piece of a stream has none.
        """
        return self._grid.gaps

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, a line each, as `str` ends with them.

        They name gaps, uneven distances of quarters and years, scope paths that contain
        others, why there is no value, the end of a window, unlisted series, and series
        that do not state a word of the Select.
        A piece of a stream has no line of gaps and distances.
        """
        return tuple(notes.list_notes(self._grid))

    @property
    def series(self) -> tuple[Series, ...]:
        """The series, in catalogue order. Each access makes new `Series`, which decode
        their own values.
        """
        return tuple(self)

    @property
    def series_ids(self) -> tuple[str, ...]:
        """The ids of the series, in catalogue order."""
        return tuple(self._grid.by_id)

    @property
    def anchored_by(self) -> tuple[str, ...]:
        """The ids of the series with a value at the anchor's fiscal end, which set the
        window.

        Empty without an anchor, and in a part of a panel that does not have these
        series.
        """
        return notes.find_anchoring(self._grid)

    @property
    def value_count(self) -> int:
        """The number of values, reported zeros included. Gaps do not count."""
        return self._grid.value_count

    def __len__(self) -> int:
        return len(self._grid.series)

    def __iter__(self) -> Iterator[Series]:
        return map(self._make_series, self._grid.series)

    def __bool__(self) -> bool:
        """Return True, also without series: ``len`` counts these."""
        return True

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not None

    def __getitem__(self, key: str) -> Series:
        """Return a series, by its id or by the id of a metric that no other series of
        the panel has.

        Raises:
            KeyError: there is none, or several series have the metric.
        """
        return self._make_series(self._find_head(key))

    def _find(self, key: str) -> CatalogueSeries | None:
        # A metric id never hides a series id.
        if (head := self._grid.by_id.get(key)) is not None:
            return head
        of_metric = self._grid.by_metric.get(key, ())
        if len(of_metric) == 1:
            return of_metric[0]
        return None

    def _find_head(self, key: object) -> CatalogueSeries:
        # A list has no hash, so that it can't be looked up.
        if isinstance(key, str) and (head := self._find(key)) is not None:
            return head
        if isinstance(key, tuple) and len(key) == 2:
            raise KeyError(f"no series {key!r}: write panel[{key[0]!r}][{key[1]!r}]")
        if hint := write_hint(key).removeprefix("; write "):
            raise KeyError(
                f"no series {key!r}: a period is the second key, "
                f"panel[series_id][{hint}]"
            )
        raise no_series(key, self._grid.series)

    def _make_series(self, head: CatalogueSeries) -> Series:
        decode = partial(self._grid.values, head.series_id)
        return series_of(head, self._grid.periods, decode, self.value_version)

    def one(self) -> Series:
        """Return the only series.

        Raises:
            SelectionError: there are two or more series, which the message names, or
                none.
        """
        if len(self) == 1:
            return next(iter(self))
        names = []
        for head in self._grid.series:
            label, scopes = shorten(head.label, _LONGEST), self._grid.join_scopes(head)
            group_id = head.reporting_group_id
            names.append(f"{head.series_id} ({label}, {scopes}, {group_id})")
        message = f"one series was expected, the panel has {len(self)}: "
        message += listed(names, 5, between="; ")
        raise SelectionError(message.removesuffix(": "))

    def covers(self, period: Period | str) -> bool:
        """Return whether an empty cell at a period means that no value exists.

        True if the query includes the period (`periods_asked`), or the catalogue does
        not have it. False: there may be values.

        Raises:
            SelectionError: it is neither a Period nor a period's label.
        """
        return _parse_period(period) not in self._grid.omitted_periods

    def why(self, key: str, period: Period | str) -> str | None:
        """Return why a series has no value at a period, or None if it has one. No
        request.

        Args:
            key: a series id, or a metric id that only one series has, as for
                ``panel[key]``.
            period: a Period or its label.

        The first of these reasons that applies:

        1. unlisted: the service left the series out of its responses
        2. outside the catalogue's span
        3. inactive scope: one of the path was not active in any month of the period
        4. not requested: the query does not include the period
        5. values for other durations only
        6. before the first, or after the last value of the series for periods of this
           duration
        7. the catalogue does not have the period
        8. no requested series has a value in the period
        9. no value

        Reasons 5 and 6 claim nothing about periods that the query does not include.

        Raises:
            KeyError: the panel does not have the series.
            SelectionError: `period` is neither a Period nor a period's label.
        """
        head = self._find_head(key)
        return explain_cell(self._grid, head, _parse_period(period))

    @property
    def about(self) -> dict[str, Any]:
        """What the panel is of, as the metadata of its tables have it
        (docs/schema.md).
        """
        return describe_panel(self._grid)

    def numbers(self) -> dict[str, dict[Period, float]]:
        """Return the numbers of each series by period, oldest first, by series id.

        Nothing is decoded, and no library is needed.
        """
        return {id_: self._grid.numbers(id_) for id_ in self.series_ids}

    def check(self) -> None:
        """Decode every value and discard it.

        Raises:
            MalformedAnswerError: a value breaks the spec.
        """
        for series_id in self._grid.by_id:
            self._grid.values(series_id)

    def where(self, predicate: Callable[[Series], bool]) -> "Panel":
        """Return the panel of the series for which the predicate is true, at the same
        periods.

        Raises:
            ArgumentError: the predicate is not a function, or an async one.
        """
        checks.plain_callable("predicate", predicate)
        heads = []
        for head in self._grid.series:
            # A separate Series each time, so that a predicate on values holds those of
            # one series.
            if predicate(self._make_series(head)):
                heads.append(head)
        return self._cut(heads, self.periods)

    def during(self, periods: Cut) -> "Panel":
        """Return the panel of the same series at fewer periods.

        Args:
            periods: a Period or its label, a list of them, or a selection: `Exact`,
                `FiscalRange`, or a rule such as `Annual`. Rules are resolved against
                this panel's periods.

        Raises:
            SelectionError: a period is named that the panel does not have.
        """
        if isinstance(periods, FiscalRange | Rule):
            remaining = periods.among(self.periods)
        else:
            if isinstance(periods, Period | str):
                periods = (periods,)
            if not isinstance(periods, Exact):
                periods = Exact(periods)
            remaining = tuple(sorted(periods.periods))
            for period in remaining:
                self.periods.index(period)
        removed_periods = set(self._grid.periods).difference(remaining)
        query_periods = [
            period
            for period in self._grid.query_periods
            if period not in removed_periods
        ]
        grid = evolve(self._grid, periods=remaining, query_periods=tuple(query_periods))
        return evolve(self, grid=grid)

    def drop_empty(self) -> "Panel":
        """Return the panel without the series and the periods that have no value."""
        all_indices: set[int] = set()
        heads = []
        for head in self._grid.series:
            indices, _ = self._grid.observations(head.series_id)
            all_indices.update(indices)
            if indices:
                heads.append(head)
        periods = map(self._grid.periods.__getitem__, sorted(all_indices))
        return self._cut(heads, tuple(periods))

    def _cut(
        self, series: Iterable[CatalogueSeries], periods: tuple[Period, ...]
    ) -> "Panel":
        # The store is shared: a cut copies nothing.
        grid = evolve(self._grid, series=tuple(series), periods=periods)
        unlisted_ids = filter(grid.by_id.__contains__, self.unlisted)
        grid = evolve(grid, unlisted_ids=tuple(unlisted_ids))
        return evolve(self, grid=grid)

    def to_numpy(self) -> "numpy.typing.NDArray[numpy.float64]":
        """Return the numbers as a float64 array of NumPy, series x periods. A gap is
        NaN, a reported zero 0.

        Raises:
            ImportError: NumPy is not installed.
        """
        library("numpy", "pandas")  # reports which extra is missing
        import numpy

        grid = self._grid
        numbers = numpy.full((len(grid.series), len(grid.periods)), numpy.nan)
        for row, series in zip(numbers, grid.series, strict=True):
            indices, series_numbers = grid.observations(series.series_id)
            row[indices] = series_numbers
        return numbers

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return `to_numpy` for ``numpy.array(panel)`` and ``numpy.asarray(panel)``."""
        # NumPy's protocol: the numbers are not in one array, so there is none that
        # could be shared.
        if copy is False:
            raise ValueError(
                "a panel has no array to share: numpy.asarray(panel) makes one"
            )
        array = self.to_numpy()
        if dtype is None:
            return array
        return array.astype(dtype)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the long table as a stream of Arrow's C interface, which other
        libraries read.
        """
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the panel as one JSON document, the query response of the service
        without pages.

        It has the fields of spec 2.4, all series in catalogue order, periods oldest
        first, and null for a gap, and `value_version`, `unlisted`, `anchor` and
        `requests`.

        Args:
            indent: the number of blanks by which nested lines are indented. None: one
                line without blanks.

        Raises:
            ArgumentError: `indent` is not a whole number from 1.
            MalformedAnswerError: a value breaks the spec.
        """
        text = document.write_panel(self._grid, self.requests)
        return document.write_indented(text, indent)

    def _write_lines_below(self) -> Sequence[str]:
        return notes.describe_contents(self._grid)

    def __repr__(self) -> str:
        # asyncio.run formats its result and discards the text: nothing is counted or
        # decoded here.
        periods = counted(len(self.periods), "period")
        return (
            f"<Panel of {named_entity(self.catalogue)}: {len(self):,} series by "
            f"{periods}>"
        )


def concat(
    panels: Panel | Iterable[Panel],
    layout: "Layout" = "long",
    labels: bool = False,
    *,
    columns: Iterable[str] | None = None,
) -> "pyarrow.Table":
    """Return the tables of several panels as one pyarrow Table.

    Fiscal periods of the same name can mean different months in different entities.

    Args:
        panels: the panels, or a single one.
        layout: as for `Panel.to_arrow`. The long table has the rows of one panel after
            the other. The wide table has a column for each series, named by entity id
            and series id, joined by a comma and a blank; value version and publication
            follow where only they distinguish columns. A panel without series has no
            column.
        labels: as for `Panel.to_arrow`, but the names begin with the entity's, and with
            its id where two entities share a name.
        columns: as for `Panel.to_arrow`; of the wide layout, names of its columns, or
            series ids, which mean every series of that id.

    Raises:
        ArgumentError: as for `Panel.to_arrow`, or something else than a Panel is among
            them.
        SelectionError: as for `Panel.to_arrow`; the same series is in two panels (in
            the long layout: at the same periods); or, in the wide layout, a period was
            not requested for a panel whose catalogue has it, and another panel shows
            it, so that null would have two meanings.
    """
    all_panels: Iterable[Any] = panels
    # A panel is an iterable too, of Series.
    if isinstance(panels, Panel) or not isinstance(panels, Iterable):
        all_panels = [panels]
    grids = []
    for panel in all_panels:
        checks.instance_of(Panel)("each of panels", panel)
        grids.append(panel._grid)
    from asyncfin.table.arrow import make_table

    return make_table(grids, layout, columns, labels=labels, entities=True)


def reconfirmed(panel: Panel, confirmed_at: datetime | None) -> Panel:
    """Return a panel as of another confirmation of its publication. It shares values
    and replies.
    """
    copy = evolve(panel, confirmed_at=confirmed_at)
    object.__setattr__(copy, "replies", panel.replies)
    return copy


def release_decoded(panel: Panel) -> None:
    """Drop what a panel caches of its decoded pages."""
    panel._grid.store.release()


def _parse_period(period: Period | str) -> Period:
    if isinstance(period, Period):
        return period
    return Period.parse(period)
