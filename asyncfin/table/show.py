"""Panels for people: tables of their texts on a terminal or in a notebook, and what
they leave out, and the last values of each series.

A year and its quarters are different quantities, so a table holds periods of one
duration. A series with values of two durations is in two tables.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from attrs import frozen

from asyncfin import checks
from asyncfin.errors import printable, shorten
from asyncfin.html import Table, document
from asyncfin.model.period import Period
from asyncfin.optional import library
from asyncfin.table.grid import Grid, group_by_duration
from asyncfin.table.naming import SeriesNames, join_texts, name_rows
from asyncfin.table.notes import describe_contents, describe_rows, write_heading
from asyncfin.table.rows import Row, rows_of
from asyncfin.text import NOT_REQUESTED, count_fitting, figure_tables, fold
from asyncfin.words import Unit, counted, either, entity_names

if TYPE_CHECKING:
    import pandas

# A text is an overview that fits a terminal.
_WIDTH = 100
# How much of a line is wrapped: a name of the service can have a megabyte.
_LONGEST = 10_000
# The series of one panel, and of two or more; the periods, and the tables.
_SERIES = 10
_SERIES_OF_MANY = 40
_PERIODS = 12
_SECTIONS = 4
# Half years and nine months are sums of quarters: they come after these.
_DURATIONS = (12, 3, 6, 9)
# What the last values of a series have besides the columns of the series.
_VALUE_COLUMNS = ("period_label", "duration_months", "number", "text")
_check_width = checks.whole_number(40).optional()


@frozen(repr=False, eq=False)
class Shown:
    """A table for people: ``str`` and ``repr`` are its text, and a notebook shows it as
    HTML.
    """

    _lines: Sequence[str]
    _tables: Sequence[Table]
    _notes: Sequence[str]
    _width: int
    _clip: bool

    @property
    def heading(self) -> str:
        """The lines above the tables: of what they are, and what all rows share."""
        return "\n".join(map(printable, self._lines))

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables, each a text that fits the width."""
        texts: list[str] = []
        for table in self._tables:
            caption = []
            if table.caption:
                caption.append(printable(table.caption))
            for lines in figure_tables(table, self._width, clip=self._clip):
                texts.append("\n".join([*caption, *lines]))
        return tuple(texts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the tables leave out, and what a reader must know, a line each."""
        return tuple(dict.fromkeys(self._notes))

    def __str__(self) -> str:
        lines = self.heading.split("\n")
        for table in self.tables:
            lines += ["", *table.split("\n")]
        lines += ["", *self.notes]
        parts: list[str] = []
        for line in lines:
            parts += fold(
                shorten(line, _LONGEST),
                self._width,
                subsequent_indent="  ",
                break_on_hyphens=False,
            )
        return "\n".join(parts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return document(self._lines, self._tables, self.notes)


class Showable(ABC):
    """What has a table for people."""

    __slots__ = ()

    @abstractmethod
    def show(self) -> Shown:
        """Return the table that `str` and notebooks show."""

    def __str__(self) -> str:
        return str(self.show())

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()


def show(
    grids: Sequence[Grid],
    notes: Iterable[str],
    unit: Unit | None,
    width: int | None,
    *,
    all_series: bool,
    all_periods: bool,
    empty: bool,
) -> Shown:
    """Show panels as `Panel.show` does; `notes` are the lines about them."""
    _check_width("width", width)
    width = width or _WIDTH
    rows = rows_of(grids, unit)
    companies: Sequence[Grid] = ()
    limit = _SERIES
    if len(grids) > 1:
        companies = grids
        limit = _SERIES_OF_MANY
    elif all_series:
        limit = len(rows)
    lines = [write_heading(grids)]
    tables = []
    candidates: set[Row] = set()
    shown_rows: dict[Row, None] = {}
    shown_periods: set[Period] = set()
    groups = _group_periods(grids)
    for periods in groups[:_SECTIONS]:
        if not all_periods:
            periods = periods[-_PERIODS:]
        section = rows
        if not empty:
            section = _find_rows(grids, rows, periods)
        candidates.update(section)
        section = _choose_rows(section, limit)
        if not section:
            continue
        names = name_rows(section, entities=companies)
        table = _make_table(names, periods)
        if not all_periods:
            count = count_fitting(table, width, clip=not all_series)
            periods = periods[-count:]
        caption = names.caption
        if len(groups) > 1:
            duration = counted(periods[0].duration_months, "month")
            caption = join_texts([f"periods of {duration}", caption])
        elif caption:
            lines.append(caption)
            caption = ""
        tables.append(_make_table(names, periods, caption))
        shown_rows |= dict.fromkeys(section)
        shown_periods.update(periods)
    notes_below = _describe_hidden(
        shown_periods=len(shown_periods),
        all_periods=sum(map(len, groups)),
        empty_series=len(rows) - len(candidates),
        hidden_series=len(candidates) - len(shown_rows),
    )
    lines_of_tables = chain.from_iterable(map(attrgetter("rows"), tables))
    if NOT_REQUESTED in chain.from_iterable(lines_of_tables):
        notes_below.append(
            f"{NOT_REQUESTED} was not requested, so there may be a value"
        )
    notes_below += [*describe_rows(shown_rows), *notes]
    return Shown(lines, tables, notes_below, width, not all_series)


def _describe_hidden(
    *, shown_periods: int, all_periods: int, empty_series: int, hidden_series: int
) -> list[str]:
    """Describe what tables leave out, from the numbers of periods and series."""
    lines = []
    where = ""
    if 0 < shown_periods < all_periods:
        where = " in these periods"
        latest = "latest"
        verb = "is"
        if shown_periods > 1:
            latest = f"latest {shown_periods}"
            verb = "are"
        lines.append(f"the {latest} of {all_periods} periods {verb} shown")
    if empty_series:
        lines.append(f"{empty_series:,} series without a value{where} left out")
    if hidden_series:
        lines.append(f"{hidden_series:,} more series not shown")
    return lines


def _group_periods(grids: Sequence[Grid]) -> list[list[Period]]:
    """Return the periods of panels by duration, oldest first: years, quarters, half
    years, nine months, then all others.
    """
    periods = set().union(*map(attrgetter("periods"), grids))
    by_duration = group_by_duration(sorted(periods))
    durations = dict.fromkeys([*_DURATIONS, *sorted(by_duration)])
    return [by_duration[months] for months in durations if months in by_duration]


def _find_rows(
    grids: Sequence[Grid], rows: Sequence[Row], periods: Sequence[Period]
) -> list[Row]:
    """Return the rows with a value at one of some periods."""
    ids_of = {grid: grid.find_observed(periods) for grid in grids}
    return [row for row in rows if row.series.series_id in ids_of[row.grid]]


def _choose_rows(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return the first rows in their order, at least one of each entity as far as
    possible.
    """
    firsts: dict[str, Row] = {}
    for row in rows:
        firsts.setdefault(row.entity_id, row)
    candidates = dict.fromkeys([*firsts.values(), *rows])
    chosen_rows = list(candidates)[:limit]
    return sorted(chosen_rows, key=rows.index)


def _make_table(
    names: SeriesNames, periods: Sequence[Period], caption: str = ""
) -> Table:
    """Make the table of named rows at some periods."""
    rows = []
    for row in names.texts:
        cells = map(row.cell, periods)
        rows.append([*names.name(row), *cells])
    heads = [*names.heads, *map(str, periods)]
    return Table(heads, rows, len(names.heads), caption)


@frozen(eq=False, repr=False)
class Latest(Showable):
    """The last values of each series. Iterating yields a `Row` for each series that has
    one.

    ``str(latest)`` is a table with a line for each value, and the `notes`.
    """

    _grids: Sequence[Grid]
    count: int

    def rows(self, unit: Unit | None = None) -> list[Row]:
        """Return the series that have a value, with their last ones; `unit` as for
        `Panel.rows`.
        """
        rows = rows_of(self._grids, unit, last=self.count)
        return [row for row in rows if row.values]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, a line each: series without a value, periods of
        different durations, and that other periods may have the last values.
        """
        empty = 0
        durations: set[int] = set()
        may_omit_values = False
        for grid in self._grids:
            last_omitted = grid.last_omitted
            for numbers in map(grid.numbers, grid.by_id):
                periods = list(numbers)[-self.count :]
                empty += not periods
                durations.update(map(attrgetter("duration_months"), periods))
                if last_omitted is None:
                    continue
                if len(periods) < self.count or periods[0] < last_omitted:
                    may_omit_values = True
        lines = []
        if empty:
            lines.append(f"{empty:,} series without a value left out")
        if len(durations) > 1:
            months = either(list(map(str, sorted(durations))), "and")
            lines.append(f"periods of {months} months do not compare")
        if may_omit_values:
            lines.append(
                "the last values may be in periods that were not requested: query all "
                "periods"
            )
        return tuple(lines)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each value, with the names of the long table's
        columns.
        """
        lines = []
        for row in self:
            fields: dict[str, Any] = dict(row.fields)
            fields["scopes"] = row.grid.join_scopes(row.series)
            for period, value in row.values.items():
                cells = period.label, period.duration_months, value.number, value.text
                lines.append(fields | dict(zip(_VALUE_COLUMNS, cells, strict=True)))
        return lines

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas DataFrame of `to_dicts` (extra ``pandas``)."""
        make_frame = library("pandas", "pandas").DataFrame
        # With the names, since a frame without rows has them too.
        names = (*Row.columns, "scopes", *_VALUE_COLUMNS)
        frame: pandas.DataFrame = make_frame(self.to_dicts(), columns=names)
        return frame

    def show(
        self,
        unit: Unit | None = None,
        width: int | None = None,
        *,
        limit: int = 40,
    ) -> Shown:
        """Return the table that `str` and notebooks show, as `Panel.show` does.

        Args:
            unit: as for `Panel.show`.
            width: as for `Panel.show`.
            limit: how many values are shown at most.

        Raises:
            ArgumentError: as for `Panel.show`.
        """
        _check_width("width", width)
        rows = self.rows(unit)
        companies = self._grids if len(self._grids) > 1 else ()
        names = name_rows(rows, entities=companies)
        heads = [*names.heads, "period", "value"]
        cells = []
        for row in rows:
            for period, text in row.texts.items():
                cells.append([*names.name(row), period.label, text])
        notes = [*self.notes, *describe_rows(rows)]
        catalogues = [grid.catalogue for grid in self._grids]
        company_names = entity_names(catalogues)
        for grid in self._grids:
            publication = describe_contents(grid)[0]
            if companies:
                name = company_names[grid.catalogue.entity_id]
                publication = f"{name}: {publication}"
            notes.append(publication)
        if hidden_count := len(cells[limit:]):
            notes.insert(0, f"{counted(hidden_count, 'more value')} not shown")
        lines = [write_heading(self._grids)]
        if names.caption:
            lines.append(names.caption)
        tables = []
        if rows:
            tables.append(Table(heads, cells[:limit], len(heads) - 1))
        return Shown(lines, tables, notes, width or _WIDTH, clip=False)

    def __repr__(self) -> str:
        return str(self)
