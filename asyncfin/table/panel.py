"""The Panel: the result of a question, as series by periods, and the forms in which
users get it.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from attrs import evolve, field, frozen

from asyncfin import checks
from asyncfin.errors import ArgumentError, SelectionError, shorten
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import Period, period_hint, read_label
from asyncfin.model.select import Select
from asyncfin.model.selection import (
    Exact,
    FiscalRange,
    PeriodSelection,
    Rule,
    Trailing,
    class_names,
)
from asyncfin.model.series import CatalogueSeries, Series, no_series
from asyncfin.table import document, frames
from asyncfin.table.csv import to_csv
from asyncfin.table.frames import Layout
from asyncfin.table.grid import Grid
from asyncfin.table.notes import about, facts, notes_of
from asyncfin.table.why import span, why
from asyncfin.wire.values import series_of
from asyncfin.words import counted, listed, named_entity

if TYPE_CHECKING:  # none of these is needed to import the library
    import matplotlib.axes
    import numpy
    import pandas
    import polars
    import pyarrow

    from asyncfin.table.latest import Latest
    from asyncfin.table.rows import Row
    from asyncfin.table.show import Shown
    from asyncfin.words import Unit

_indent = checks.whole_number(0).optional()
# How much of a label an error names.
_LONGEST = 200
_SELECTIONS = (Exact, FiscalRange, Trailing, Rule)
Cut: TypeAlias = Exact | FiscalRange | Rule | Period | str | Iterable[Period | str]


class Periods(tuple[Period, ...]):
    """Periods in which labels are found too."""

    __slots__ = ()

    def __contains__(self, period: object) -> bool:
        if isinstance(period, str):
            return read_label(period) in self
        return super().__contains__(period)

    def index(self, period: Any, /, *bounds: SupportsIndex) -> int:
        """Return the index of a period, given as a `Period` or its label.

        Raises:
            SelectionError: the period is unknown; it is a ValueError too.
        """
        try:
            return super().index(_period(period), *bounds)
        except SelectionError:
            raise
        except ValueError:
            raise SelectionError(
                f"the panel has no period {period}; it has {span(self)}"
            ) from None


@frozen(eq=False, repr=False)
class Panel:
    """The result of one question: series in catalogue order, each with its values by
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
        select: the selection of series.
        unlisted: the ids of the selected series that the service left out of its
            responses. They are in the panel, without values.
        anchor: the latest period with a value, at which the window of a `Trailing`
            question ends. None for other questions, and without a value. Parts of a
            panel keep it.
        requests: the number of requests spent, including retries, metadata and
            catalogue. 0: everything was cached, or shared with an equal question that
            was pending.
        confirmed_at: when its publication was last known to be the current one, aware
            UTC. None: never, which is possible for cached values of a given Catalogue.
    """

    _grid: Grid
    select: Select
    unlisted: tuple[str, ...] = ()
    anchor: Period | None = None
    requests: int = 0
    confirmed_at: datetime | None = None
    # What `asyncfin.web.reply` has built of it, by media type. No argument, so that no
    # other panel has it.
    _replies: dict[str, Any] = field(init=False, factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        fields = (
            self._grid,
            self.select,
            self.unlisted,
            self.anchor,
            self.requests,
            self.confirmed_at,
        )
        return Panel, fields

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
        return self._grid.asked

    @property
    def gaps(self) -> tuple[Period, ...]:
        """The periods missing between the first and the last period of each duration,
        oldest first.

        A row of quarters without FY2024-Q2 has that gap if the question includes
        FY2024-Q2, or if the catalogue does not have it. Periods of 3 and of 12 months
        follow each other at these distances, others at the most frequent distance in
        the catalogue; between neighbours that are further apart, a gap lies at each
        step from the earlier one. Gaps are not in `periods`, `values` and `to_numpy`;
        the wide layouts have them as rows without values, but for more than 40 in a
        row. A piece of a stream has none.
        """
        return tuple(sorted(period for run in self._grid.gap_runs for period in run))

    @property
    def periods_with_gaps(self) -> tuple[Period, ...]:
        """The rows of the wide layouts: `periods`, and `gaps` without runs of more than
        40.
        """
        return self._grid.rows_of_wide

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers must know, a line each, as `str` ends with them.

        In this order: gaps, uneven distances between periods of one duration, scope
        paths that contain others, why there is no value, the end of a window, unlisted
        series, series that do not state a word of the Select. A piece of a stream has
        no line of gaps and distances.
        """
        return tuple(notes_of(self))

    @property
    def series(self) -> tuple[Series, ...]:
        """The series, in catalogue order. Each access makes new `Series`, which decode
        their own values.
        """
        return tuple(self)

    @property
    def series_ids(self) -> tuple[str, ...]:
        """The ids of the series, in catalogue order."""
        return tuple(series.series_id for series in self._grid.series)

    @property
    def anchored_by(self) -> tuple[str, ...]:
        """The ids of the series with a value at the anchor's fiscal end, which set the
        window.

        Empty without an anchor, and in a part of a panel that does not have these
        series.
        """
        if self.anchor is None:
            return ()
        end = self.anchor.fiscal_end
        last = {
            index
            for index, period in enumerate(self.periods)
            if period.fiscal_end == end
        }
        return tuple(
            series_id
            for series_id in self.series_ids
            if not last.isdisjoint(self._grid.observations(series_id)[0])
        )

    @property
    def value_count(self) -> int:
        """The number of values, reported zeros included. Gaps do not count."""
        return self._grid.value_count()

    def __len__(self) -> int:
        return len(self._grid.series)

    def __iter__(self) -> Iterator[Series]:
        return map(self._series, self._grid.series)

    def __bool__(self) -> bool:
        """Return True, also without series: ``len`` counts these."""
        return True

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._found(key) is not None

    def __getitem__(self, key: str) -> Series:
        """Return a series, by its id or by the id of a metric that no other series of
        the panel has.

        Raises:
            KeyError: there is none, or several series have the metric.
        """
        return self._series(self._head(key))

    def _found(self, key: str) -> CatalogueSeries | None:
        # A metric id never hides a series id.
        if (head := self._grid.by_id.get(key)) is not None:
            return head
        of_metric = self._grid.by_metric.get(key, ())
        return of_metric[0] if len(of_metric) == 1 else None

    def _head(self, key: object) -> CatalogueSeries:
        # A list has no hash, so that it can't be looked up.
        if isinstance(key, str) and (head := self._found(key)) is not None:
            return head
        if isinstance(key, tuple) and len(key) == 2:
            raise KeyError(f"no series {key!r}: write panel[{key[0]!r}][{key[1]!r}]")
        if hint := period_hint(key).removeprefix("; write "):
            raise KeyError(
                f"no series {key!r}: a period is the second key, "
                f"panel[series_id][{hint}]"
            )
        raise no_series(key, self._grid.series)

    def _ipython_key_completions_(self) -> list[str]:
        """Return the series ids, which notebooks offer for ``panel["``."""
        return list(self.series_ids)

    def _series(self, head: CatalogueSeries) -> Series:
        decode = partial(self._grid.values, head.series_id)
        return series_of(head, self._grid.periods, decode, self.value_version)

    def one(self) -> Series:
        """Return the only series.

        Raises:
            SelectionError: there are several series, which the message names, or none.
        """
        if len(self) == 1:
            return next(iter(self))
        named = [
            f"{head.series_id} ({shorten(head.label, _LONGEST)},"
            f" {self._grid.path_names(head)}, {head.reporting_group_id})"
            for head in self._grid.series
        ]
        raise SelectionError(
            f"one series was expected, the panel has {len(self)}{': ' if named else ''}"
            + listed(named, 5, between="; ")
        )

    def covers(self, period: Period | str) -> bool:
        """Return whether an empty cell at a period means that no value exists.

        True if the question includes the period (`periods_asked`), or the catalogue
        does not have it. False: nothing is known of the period, and there may be
        values.

        Raises:
            SelectionError: it is neither a Period nor a period's label.
        """
        return self._grid.covers(_period(period))

    def why(self, key: str | Iterable[str], period: Period | str) -> str | None:
        """Return why a series has no value at a period, or None if it has one. No
        request.

        Args:
            key: a series id, or a metric id that only one series has, as for
                ``panel[key]``. Of two or more, of one scope path: why none of them has
                a value.
            period: a Period or its label.

        The first of these reasons that applies:

        1. unlisted: the service left the series out of its responses
        2. outside the catalogue's span
        3. inactive scope: one of the path was not active in any month of the period
        4. not requested: the question does not include the period
        5. values for other durations only
        6. before the first, or after the last value of the series for periods of this
        duration
        7. no value in any series of the panel
        8. no value

        Reasons 5 and 6 claim nothing about periods that the question does not include.

        Raises:
            KeyError: the panel does not have the series.
            SelectionError: `period` is neither a Period nor a period's label.
        """
        keys = [key] if isinstance(key, str) or not isinstance(key, Iterable) else key
        return why(self, [self._head(key) for key in keys], _period(period))

    @property
    def about(self) -> dict[str, Any]:
        """What the panel is of, as the metadata of its tables have it
        (docs/schema.md).
        """
        return about(self)

    def numbers(self) -> dict[str, dict[Period, float]]:
        """Return the numbers of each series by period, oldest first, by series id.

        Nothing is decoded, and no library is needed.
        """
        period_of = self._grid.periods.__getitem__
        numbers = {}
        for series_id in self.series_ids:
            indices, row = self._grid.observations(series_id)
            numbers[series_id] = dict(zip(map(period_of, indices), row, strict=True))
        return numbers

    def check(self) -> None:
        """Decode every value and discard it.

        Raises:
            MalformedAnswerError: a value breaks the spec.
        """
        with self._grid.error_context():
            for block, rows in self._grid.rows():
                for row in rows:
                    self._grid.store.values(block, row)

    def where(self, predicate: Callable[[Series], bool]) -> "Panel":
        """Return the panel of the series for which the predicate is true, at the same
        periods.

        Raises:
            ArgumentError: the predicate is not a function, or an async one.
        """
        checks.plain_callable("predicate", predicate)
        # A separate Series each time, so that a predicate on values holds those of one
        # series.
        kept = tuple(
            head for head in self._grid.series if predicate(self._series(head))
        )
        return self._cut(kept, self.periods)

    def during(self, periods: Cut) -> "Panel":
        """Return the panel of the same series at fewer periods.

        Args:
            periods: a Period or its label, several of them, or a selection: `Exact`,
                `FiscalRange`, or a rule such as `Annual`. Rules are resolved against
                this panel's periods.

        Raises:
            SelectionError: a period is named that the panel does not have.
        """
        given = (periods,) if isinstance(periods, (Period, str)) else periods
        selection = given if isinstance(given, _SELECTIONS) else Exact(given)
        kept = _periods(self.periods, selection)
        cut_away = set(self._grid.periods).difference(kept)
        grid = evolve(
            self._grid,
            periods=kept,
            asked=tuple(
                period for period in self.periods_asked if period not in cut_away
            ),
        )
        return evolve(self, grid=grid)

    def drop_empty(self) -> "Panel":
        """Return the panel without the series and the periods that have no value."""
        observed: set[int] = set()
        kept = []
        for head in self._grid.series:
            indices, _ = self._grid.observations(head.series_id)
            observed.update(indices)
            if indices:
                kept.append(head)
        periods = tuple(
            period for index, period in enumerate(self.periods) if index in observed
        )
        return self._cut(tuple(kept), periods)

    def _cut(
        self, series: tuple[CatalogueSeries, ...], periods: tuple[Period, ...]
    ) -> "Panel":
        ids = {head.series_id for head in series}
        return evolve(
            self,
            # The store is shared: a cut copies nothing.
            grid=evolve(self._grid, series=series, periods=periods),
            unlisted=tuple(
                series_id for series_id in self.unlisted if series_id in ids
            ),
        )

    def to_arrow(
        self,
        layout: Layout = "long",
        *,
        columns: Iterable[str] | None = None,
        labels: bool = False,
        complete: bool = False,
    ) -> "pyarrow.Table":
        """Return a pyarrow Table (extra ``arrow``).

        Args:
            layout: ``"long"``: one row an observation, series in catalogue order, each
                oldest first. ``"wide"``: one row a period, with year, end_month and
                duration_months, then a column of numbers for each series, named by its
                id. `gaps` have rows without numbers. In pandas the columns of the
                period are the index.
            columns: the names of the wanted columns, in the wanted order; of the wide
                layout also series ids. Each costs only itself: numbers alone decode no
                texts. None: all columns.
            labels: name the series by label, scopes and reporting group, as far as
                these distinguish them; a single one by its label. The wide table has
                the column ``period``, with labels such as FY2024, in place of the
                period's fields. The long table has the columns for people: year,
                end_month, duration_months, period_label, entity_name, series (the
                name), number, text, description.
            complete: of the long layout: a row for each series and each of `periods`
                and `gaps` (those that the wide layout has). Without a value, number and
                the columns of values are null.

        Raises:
            ArgumentError: the layout is unknown, a column is not a str, or `complete`
                with the wide layout.
            SelectionError: a column is unknown.
            MalformedAnswerError: the values that a wanted column is read from break the
                spec.
            ImportError: pyarrow is not installed.
        """
        return frames.to_arrow(
            self._grid, layout, columns, about(self), labels=labels, complete=complete
        )

    def to_pandas(
        self,
        layout: Layout = "long",
        *,
        columns: Iterable[str] | None = None,
        labels: bool = False,
        complete: bool = False,
    ) -> "pandas.DataFrame":
        """Return a pandas DataFrame (extra ``pandas``); arguments and errors as for
        `to_arrow`.

        The wide one has an index of year, end_month and duration_months, which sorts as
        periods do; with `labels`, an index of period labels, which does not, whatever
        `columns` are. Its gaps are NaN. No dates are derived: fiscal months are not
        calendar months. ``frame.attrs["asyncfin"]`` is a short text about the panel,
        with the description of its series if they all have the same.
        """
        return frames.to_pandas(
            self._grid, layout, columns, about(self), labels=labels, complete=complete
        )

    def to_polars(
        self,
        layout: Layout = "long",
        *,
        columns: Iterable[str] | None = None,
        labels: bool = False,
        complete: bool = False,
    ) -> "polars.DataFrame":
        """Return a polars DataFrame (extra ``polars``); arguments and errors as for
        `to_arrow`.

        Raises:
            ArgumentError: a column would be named by a series id that contains NUL.
        """
        return frames.to_polars(
            self._grid, layout, columns, about(self), labels=labels, complete=complete
        )

    def to_numpy(self) -> "numpy.typing.NDArray[numpy.float64]":
        """Return the numbers as a float64 array of NumPy, series x periods. A gap is
        NaN, a reported zero 0.

        Raises:
            ImportError: NumPy is not installed.
        """
        return frames.to_numpy(self._grid)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return `to_numpy` for ``numpy.array(panel)`` and ``numpy.asarray(panel)``."""
        # NumPy's protocol: the numbers are not in one array, so there is none that
        # could be shared.
        if copy is False:
            raise ValueError(
                "a panel has no array to share: numpy.asarray(panel) makes one"
            )
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype)

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
            ArgumentError: `indent` is not a whole number.
            MalformedAnswerError: a value breaks the spec.
        """
        _indent("indent", indent)
        before = {
            "entity_id": self.dataset.entity_id,
            "name": self.dataset.name,
            "dataset_id": self.dataset.dataset_id,
            "created_timestamp": self.dataset.created_timestamp,
            "value_version": self.value_version,
            "periods": self._grid.periods,
        }
        after = {
            "unlisted": self.unlisted,
            "anchor": self.anchor,
            "requests": self.requests,
        }
        return document.panel_json(self._grid, before, after, indent)

    def to_csv(self, *, empty: bool = True, raw: bool = False) -> str:
        """Return CSV (RFC 4180): a line for each series, and a column for each of
        `periods_with_gaps`.

        A cell without a value is empty, one that was not requested is ``?``.

        Args:
            empty: series without a value too.
            raw: write texts as they are. False: an apostrophe is put before what a
                spreadsheet would take for a formula.

        Raises:
            MalformedAnswerError: a value breaks the spec.
        """
        return to_csv([self], empty=empty, raw=raw, entities=False)

    def plot(self, ax: "matplotlib.axes.Axes | None" = None) -> "matplotlib.axes.Axes":
        """Draw the numbers as lines over fiscal time, for a quick look (extra
        ``plot``).

        Each series has a line for each duration of its periods, broken where a period
        has no value. Fiscal months are drawn evenly; they are not calendar months.
        Series of different number formats, such as amounts and percentages, are drawn
        in separate Axes, one below the other.

        Args:
            ax: the Axes of matplotlib to draw on. The lines are added to those of other
                panels there, and title, legend and ticks are made to hold for all of
                them. Number formats that they do not have yet go to Axes that share
                their x axis, or to new ones, which take a part of their place. None: a
                new figure.

        Returns:
            The given Axes, or the first of the new figure, whose `figure.axes` are all
            of them.
            ``panel.plot().figure.savefig("panel.png")`` writes the picture.

        Raises:
            SelectionError: no value can be drawn, there are more than 10 lines in all,
                or several number formats would share Axes that are not a subplot.
            ImportError: matplotlib is not installed.
        """
        from asyncfin.table.plot import plot

        return plot([self], ax)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the long table as a stream of Arrow's C interface, which other
        libraries read.
        """
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream

    def rows(self, unit: "Unit | None" = None) -> "list[Row]":
        """Return how people read each series, in catalogue order: `show` and plots are
        made of it.

        Args:
            unit: what amounts are divided by: ``"thousands"``, ``"millions"``,
                ``"billions"``, or ``"auto"``, the largest of these that the median of
                the largest numbers of the series reaches. Not divided are series whose
                numbers are all below 1,000, percentages, and series with texts that are
                more than a number with its sign, currency and scale. None: nothing is.

        Raises:
            ArgumentError: `unit` is not one of these.
        """
        from asyncfin.table.rows import rows_of

        return rows_of([self._grid], unit)

    def latest(self, n: int = 1) -> "Latest":
        """Return the last values of each series, with their own periods.

        The panel's periods count: query all years, which costs no more requests than
        the last one.

        Args:
            n: how many of each series.

        Raises:
            ArgumentError: `n` is not a whole number from 1.
        """
        from asyncfin.table.latest import latest

        return latest([self], n)

    def show(
        self,
        unit: "Unit | None" = None,
        width: int | None = None,
        *,
        all_series: bool = False,
        all_periods: bool = False,
        empty: bool = False,
    ) -> "Shown":
        """Return the table that `str` and notebooks show, with large numbers divided,
        or of another width.

        Prints nothing: the result's ``str`` and ``repr`` are the text, and a notebook
        shows it as HTML.

        Args:
            unit: what amounts are divided by, as for `rows`. None: the service's texts.
            width: of the text, in columns, 40 at least. None: 100.
            all_series: of the text, not only the first 10, with their whole names.
            all_periods: of the text, not only the latest ones that fit the width.
            empty: series and periods without a value too.

        Raises:
            ArgumentError: `unit` or `width` is not one of these.
        """
        from asyncfin.table.show import show

        return show(
            [self],
            lambda: facts(self),
            unit,
            width,
            all_series=all_series,
            all_periods=all_periods,
            empty=empty,
        )

    def __str__(self) -> str:
        return str(self.show())

    def __repr__(self) -> str:
        # asyncio.run formats its result and discards the text: nothing is counted or
        # decoded here.
        periods = counted(len(self.periods), "period")
        return (
            f"<Panel of {named_entity(self.catalogue)}: {len(self):,} series by "
            f"{periods}>"
        )

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()


def concat(
    panels: Panel | Iterable[Panel],
    layout: Layout = "long",
    labels: bool = False,
    *,
    columns: Iterable[str] | None = None,
    complete: bool = False,
) -> "pyarrow.Table":
    """Return the tables of several panels as one pyarrow Table.

    Fiscal periods of the same name can mean different months in different entities.

    Args:
        panels: the panels, or a single one.
        layout: as for `Panel.to_arrow`. The long table has the rows of one panel after
            the other. The wide table has a column for each series, named by entity id
            and series id, joined by a comma and a blank; value version and publication
            follow where only they distinguish columns. A panel without series has a
            column of nulls, named by its entity.
        labels: as for `Panel.to_arrow`, but the names begin with the entity's, and with
            its id where two entities share a name.
        columns: as for `Panel.to_arrow`; of the wide layout, names of its columns, or
            series ids, which mean every series of that id.
        complete: as for `Panel.to_arrow`; each panel keeps its own periods.

    Raises:
        ArgumentError: as for `Panel.to_arrow`, or something else than a Panel is among
            them.
        SelectionError: as for `Panel.to_arrow`; the same series is in two panels (in
            the long layout: at the same periods); or, in the wide layout, a period was
            not requested for a panel whose catalogue has it, and another panel shows
            it, so that null would have two meanings.
    """
    panels = _panels_of(panels)
    if isinstance(layout, Panel):
        raise ArgumentError(
            "panels must be one collection; write concat([first, second])"
        )
    abouts = [about(panel) for panel in panels]
    return frames.concat(
        [panel._grid for panel in panels],
        layout,
        columns,
        abouts,
        labels=labels,
        complete=complete,
    )


def _panels_of(panels: Panel | Iterable[Panel]) -> tuple[Panel, ...]:
    """Return panels, given as one or several.

    Raises:
        ArgumentError: something else is among them.
    """
    # A panel is an iterable of Series, whose missing methods would be a puzzling
    # complaint.
    found = (
        (panels,)
        if isinstance(panels, Panel) or not isinstance(panels, Iterable)
        else tuple(panels)
    )
    for panel in found:
        checks.instance_of(Panel)("each of panels", panel)
    return found


def reconfirmed(panel: Panel, confirmed_at: datetime | None) -> Panel:
    """Return a panel as of another confirmation of its publication. It shares values
    and replies.
    """
    again = evolve(panel, confirmed_at=confirmed_at)
    object.__setattr__(again, "_replies", panel._replies)
    return again


def has_at_most(panel: Panel, values: int) -> bool:
    """Return whether a panel has at most so many values."""
    return panel._grid.value_count(enough=values) <= values


def release_decoded(panel: Panel) -> None:
    """Drop what a panel keeps of its decoded pages."""
    panel._grid.store.release()


def _period(given: Period | str) -> Period:
    return given if isinstance(given, Period) else Period.parse(given)


def _periods(
    have: tuple[Period, ...], selection: PeriodSelection
) -> tuple[Period, ...]:
    """Return the periods that a cut means, oldest first."""
    match selection:
        case Exact(periods=exact):
            if missing := [period.label for period in exact if period not in have]:
                raise SelectionError(
                    f"the panel has no period {listed(missing)}; it has {span(have)}"
                )
            return tuple(sorted(exact))
        case FiscalRange() | Rule():
            return selection.among(have)
    raise SelectionError(
        f"periods must be periods, {class_names(Exact, FiscalRange)}, not "
        f"{checks.short_repr(selection)}"
    )
