"""The forms in which people and programs get a result: a panel, or a comparison."""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from asyncfin import checks
from asyncfin.csv import csv_text
from asyncfin.errors import printable
from asyncfin.model.frame import make_pandas_frame
from asyncfin.model.period import Period
from asyncfin.optional import library
from asyncfin.table.grid import Grid
from asyncfin.table.notes import write_heading
from asyncfin.table.rows import ENTITY_COLUMNS, Row, rows_of
from asyncfin.table.show import Latest, Showable, Shown, show
from asyncfin.text import NOT_REQUESTED
from asyncfin.words import Unit

if TYPE_CHECKING:  # none of these is needed to import the library
    import pandas
    import polars
    import pyarrow
    from matplotlib.axes import Axes

    from asyncfin.table.columns import Layout


class Result(Showable):
    """The forms that Panel and Comparison share. Errors of Python name it."""

    __slots__ = ()
    # What `layout` and `labels` are if they are None, and whether entities are named.
    _layout: ClassVar["Layout"]
    _has_entities: ClassVar[bool]

    @property
    @abstractmethod
    def _grids(self) -> Sequence[Grid]: ...

    def _describe_failed(self) -> dict[str, str] | None:
        """Return why entities of a comparison could not be read."""
        return None

    @abstractmethod
    def _write_lines_below(self) -> Sequence[str]:
        """Return the lines about the panels that `show` adds to those of its tables."""

    @property
    def periods_with_gaps(self) -> tuple[Period, ...]:
        """The rows of the wide layouts, oldest first: `periods`, and the gaps without
        runs of more than 40.
        """
        rows_of_wide = map(attrgetter("rows_of_wide"), self._grids)
        return tuple(sorted(set().union(*rows_of_wide)))

    def to_arrow(
        self,
        layout: "Layout | None" = None,
        *,
        columns: Iterable[str] | None = None,
        labels: bool | None = None,
    ) -> "pyarrow.Table":
        """Return a pyarrow Table (extra ``arrow``).

        Args:
            layout: ``"long"``: one row an observation, series in catalogue order, each
                oldest first. ``"wide"``: one row a period, with year, end_month and
                duration_months, then a column of numbers for each series, named by its
                id. `Panel.gaps` have rows without numbers. In pandas the columns of the
                period are the index. None: long for a panel, wide for a comparison.
            columns: the names of the wanted columns, in the wanted order; of the wide
                layout also series ids. Each costs only itself: numbers alone decode no
                texts. None: all columns.
            labels: of the wide layout: name the series by label, scopes and reporting
                group, as far as these distinguish them; a single one by its label. The
                column ``period``, with labels such as FY2024, is in place of the
                period's fields. None: for a comparison only.

        Of a comparison the table is that of `concat`. An entity that could not be read
        has no column, since null means "no value": the entry ``failed`` of the metadata
        (the JSON under ``asyncfin``) has its error, by entity id.

        Raises:
            ArgumentError: the layout is unknown, a column is not a str, or the long
                layout has `labels`.
            SelectionError: a column is unknown; of a comparison, as for `concat`.
            MalformedAnswerError: the values that a wanted column is read from break the
                spec.
            ImportError: pyarrow is not installed.
        """
        from asyncfin.table.arrow import make_table

        return make_table(
            self._grids,
            layout or self._layout,
            columns,
            labels=labels,
            entities=self._has_entities,
            errors=self._describe_failed(),
        )

    def to_pandas(
        self,
        layout: "Layout | None" = None,
        *,
        columns: Iterable[str] | None = None,
        labels: bool | None = None,
    ) -> "pandas.DataFrame":
        """Return a pandas DataFrame (extra ``pandas``); arguments and errors as for
        `to_arrow`.

        The wide one has an index of year, end_month and duration_months, which sorts as
        periods do; with `labels`, an index of period labels, which does not, whatever
        `columns` are. Its gaps are NaN, and all its columns are numbers. No dates are
        derived: fiscal months are not calendar months. ``frame.attrs["asyncfin"]`` is a
        short text: entity and value version, or of a comparison the entities that
        failed.
        """
        library("pandas", "pandas")
        has_labels = self._has_entities if labels is None else labels
        if columns is not None and has_labels and (layout or self._layout) == "wide":
            # pandas aligns frames by their index: rows without periods would be added
            # by number.
            columns = ("period", *checks.texts("columns", columns, "name"))
        table = self.to_arrow(layout, columns=columns, labels=labels)
        frame: pandas.DataFrame = make_pandas_frame(table)
        # One short text, which pandas copies whenever it makes another frame of this
        # one.
        texts = [write_heading(self._grids)]
        for entity_id, error in (self._describe_failed() or {}).items():
            texts.append(f"failed: {entity_id}: {error}")
        frame.attrs = {"asyncfin": printable("; ".join(texts))}
        return frame

    def to_polars(
        self,
        layout: "Layout | None" = None,
        *,
        columns: Iterable[str] | None = None,
        labels: bool | None = None,
    ) -> "polars.DataFrame":
        """Return a polars DataFrame (extra ``polars``); arguments and errors as for
        `to_arrow`.
        """
        from_arrow = library("polars", "polars").from_arrow
        table = self.to_arrow(layout, columns=columns, labels=labels)
        frame: polars.DataFrame = from_arrow(table)
        return frame

    def to_csv(self, *, empty: bool = True) -> str:
        """Return CSV (RFC 4180): a line for each series, and a column for each of
        `periods_with_gaps`.

        A cell without a value is empty, one that was not requested is ``?``. In a
        comparison each line begins with the entity. An apostrophe is put before what a
        spreadsheet would take for a formula.

        Args:
            empty: series without a value too.

        Raises:
            MalformedAnswerError: a value breaks the spec.
        """
        periods = self.periods_with_gaps
        columns = Row.columns
        if not self._has_entities:
            columns = columns[len(ENTITY_COLUMNS) :]
        lines: list[list[Any]] = [[*columns, *map(str, periods)]]
        for row in rows_of(self._grids):
            if not row.values and not empty:
                continue
            line: list[Any] = list(map(row.fields.__getitem__, columns))
            for period in periods:
                if (value := row.values.get(period)) is not None:
                    line.append(value.number)
                elif period in row.grid.omitted_periods:
                    line.append(NOT_REQUESTED)
                else:
                    line.append(None)
            lines.append(line)
        return csv_text(lines)

    def rows(self, unit: Unit | None = None) -> list[Row]:
        """Return how people read each series, in catalogue order: `show` and plots are
        made of it. The series of a comparison share one unit.

        Args:
            unit: what amounts are divided by: ``"thousands"``, ``"millions"``,
                ``"billions"``, or ``"auto"``, the largest of these that the median of
                the largest numbers of the series reaches. Not divided are series whose
                numbers are all below 1,000, percentages, and series with texts that are
                more than a number with its sign, currency and scale. None: nothing is.

        Raises:
            ArgumentError: `unit` is not one of these.
        """
        return rows_of(self._grids, unit)

    def latest(self, n: int = 1) -> Latest:
        """Return the last values of each series, with their own periods.

        The panel's periods count: query all years, which costs no more requests than
        the last one.

        Args:
            n: how many of each series.

        Raises:
            ArgumentError: `n` is not a whole number from 1.
        """
        return Latest(self._grids, checks.whole_number(1)("n", n))

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the numbers as lines over fiscal time, for a quick look (extra
        ``plot``).

        Each series has a line for each duration of its periods, broken where a period
        has no value. Fiscal months are drawn evenly; they are not calendar months.
        Series of different number formats, such as amounts and percentages, are drawn
        in separate Axes, one below the other.

        Args:
            ax: the Axes of matplotlib to draw on. The lines are added to those of other
                panels there, and title, legend and ticks are made to hold for all of
                them. They take series of one number format. None: a new figure.

        Returns:
            The given Axes, or the first of the new figure, whose `figure.axes` are all
            of them.
            ``panel.plot().figure.savefig("panel.png")`` writes the picture.

        Raises:
            SelectionError: no value can be drawn, there are more than 10 lines in all,
                or series of different number formats would share the given Axes.
            ImportError: matplotlib is not installed.
        """
        from asyncfin.table.chart import draw

        return draw(self._grids, ax)

    def show(
        self,
        unit: Unit | None = None,
        width: int | None = None,
        *,
        all_series: bool = False,
        all_periods: bool = False,
        empty: bool = False,
    ) -> Shown:
        """Return the table that `str` and notebooks show, with large numbers divided,
        or of another width.

        Prints nothing: the result's ``str`` and ``repr`` are the text, and a notebook
        shows it as HTML.

        Args:
            unit: what amounts are divided by, as for `rows`. None: the service's texts.
            width: of the text, in columns, 40 at least. None: 100.
            all_series: not only the first 10 of a panel, with their whole names.
            all_periods: not only the latest ones that fit the width.
            empty: series without a value too.

        Raises:
            ArgumentError: `unit` or `width` is not one of these.
            MalformedAnswerError: a value that is shown breaks the spec.
        """
        return show(
            self._grids,
            self._write_lines_below(),
            unit,
            width,
            all_series=all_series,
            all_periods=all_periods,
            empty=empty,
        )
