"""Panels for people: tables of their texts on a terminal or in a notebook, and what
they leave out, and the last values of each series.

A year and its quarters are different quantities, so a table holds periods of one
duration. A series with values of two durations is in two tables.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from operator import attrgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import printable, shorten
from asyncfin.html import Table, document
from asyncfin.model.period import Period
from asyncfin.optional import library
from asyncfin.table.grid import Grid
from asyncfin.table.naming import SeriesNames, join_texts, name_rows
from asyncfin.table.notes import describe_contents, describe_rows, heading
from asyncfin.table.rows import Row, check_unit, rows_of
from asyncfin.text import NOT_REQUESTED, cell_width, count_fitting, figure_tables
from asyncfin.words import Unit, counted, either

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


@frozen(repr=False, eq=False, slots=False)
class Shown:
    """A table for people: ``str`` and ``repr`` are its text, and a notebook shows it as
    HTML.

    It is not made, and no value decoded, before it is looked at.
    """

    _build: Callable[[], "Parts"] = field(repr=False)
    _width: int = _WIDTH

    @cached_property
    def _parts(self) -> "Parts":
        return self._build()

    @property
    def heading(self) -> str:
        """The lines above the tables: of what they are, and what all rows share."""
        return "\n".join(map(printable, self._parts.heading))

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables, each a text that fits the width."""
        texts: list[str] = []
        for table in self._parts.tables:
            caption = ""
            if table.caption:
                caption = printable(table.caption) + "\n"
            tables = figure_tables(
                table.heads, table.rows, table.names, self._width, clip=self._parts.clip
            )
            for lines in tables:
                texts.append(caption + "\n".join(lines))
        return tuple(texts)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the tables leave out, and what a reader must know, a line each."""
        return tuple(dict.fromkeys(self._parts.notes))

    def __str__(self) -> str:
        lines = self.heading.split("\n")
        for table in self.tables:
            lines += ["", *table.split("\n")]
        lines += ["", *self.notes]
        parts: list[str] = []
        for line in lines:
            parts += _wrap(line, self._width)
        return "\n".join(parts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return document(self._parts.heading, self._parts.tables, self.notes)


@frozen
class Parts:
    """What is shown; `clip` as for `figure_tables`."""

    heading: Sequence[str]
    tables: Sequence[Table]
    notes: Sequence[str]
    clip: bool = False


def show(
    grids: Sequence[Grid],
    notes: Callable[[], Sequence[str]],
    unit: Unit | None,
    width: int | None,
    *,
    all_series: bool,
    all_periods: bool,
    empty: bool,
) -> Shown:
    """Show panels as `Panel.show` does; `notes` returns the lines about them."""
    check_unit("unit", unit)
    _check_width("width", width)
    columns = width or _WIDTH
    most_rows: int | None = _SERIES if len(grids) == 1 else _SERIES_OF_MANY
    if all_series and len(grids) == 1:
        most_rows = None

    def build() -> Parts:
        rows = rows_of(grids, unit)
        lines = [heading(grids)]
        tables = []
        candidates: set[Row] = set()
        table_rows: dict[Row, None] = {}
        table_periods: set[Period] = set()
        groups = _group_periods(grids)
        companies = grids if len(grids) > 1 else ()
        for periods in groups[:_SECTIONS]:
            if not all_periods:
                periods = periods[-_PERIODS:]
            section = _find_rows(grids, rows, periods, empty)
            candidates.update(section)
            if most_rows is not None:
                section = _choose_rows(section, most_rows)
            if not section:
                continue
            names = name_rows(section, entities=companies)
            if not all_periods:
                table = _make_table(names, periods)
                count = count_fitting(
                    table.heads, table.rows, table.names, columns, clip=not all_series
                )
                periods = periods[-count:]
            caption = names.caption
            if len(groups) > 1:
                duration = counted(periods[0].duration_months, "month")
                caption = join_texts([f"periods of {duration}", caption])
            elif caption:
                lines.append(caption)
                caption = ""
            tables.append(_make_table(names, periods, caption))
            table_rows |= dict.fromkeys(section)
            table_periods.update(periods)
        notes_below = _note_hidden(
            rows,
            candidates,
            table_rows,
            periods=len(table_periods),
            all_periods=sum(map(len, groups)),
        )
        table_lines = chain.from_iterable(table.rows for table in tables)
        if NOT_REQUESTED in chain.from_iterable(table_lines):
            notes_below.append(
                f"{NOT_REQUESTED} was not requested, so there may be a value"
            )
        notes_below += [*describe_rows(table_rows), *notes()]
        return Parts(lines, tables, notes_below, clip=not all_series)

    return Shown(build, columns)


def _group_periods(grids: Sequence[Grid]) -> list[list[Period]]:
    """Return the periods of panels by duration, oldest first: years, quarters, half
    years, nine months, then all others.
    """
    by_duration: dict[int, list[Period]] = {}
    for duration in _DURATIONS:
        by_duration[duration] = []
    periods = set().union(*map(attrgetter("periods"), grids))
    for period in sorted(periods, key=attrgetter("duration_months", "fiscal_end")):
        by_duration.setdefault(period.duration_months, []).append(period)
    return list(filter(None, by_duration.values()))


def _find_rows(
    grids: Sequence[Grid], rows: Sequence[Row], periods: Sequence[Period], empty: bool
) -> list[Row]:
    """Return the rows with a value at one of some periods; if `empty`, then the others
    too.
    """
    ids_of = {grid: grid.find_observed(periods) for grid in grids}
    observed_rows = [row for row in rows if row.series.series_id in ids_of[row.grid]]
    if not empty:
        return observed_rows
    if len(grids) == 1:
        return list(rows)
    return list(dict.fromkeys([*observed_rows, *rows]))


def _make_table(
    names: SeriesNames, periods: Sequence[Period], caption: str = ""
) -> Table:
    rows = []
    for row in names.texts:
        rows.append([*names.name(row), *map(row.cell, periods)])
    heads = [*names.heads, *map(str, periods)]
    return Table(heads, rows, len(names.heads), caption)


def _note_hidden(
    rows: Collection[Row],
    candidates: Collection[Row],
    shown_rows: Collection[Row],
    *,
    periods: int,
    all_periods: int,
) -> list[str]:
    """Return a line for each kind of thing that is not shown.

    Args:
        candidates: the rows that have a value, or would be shown without one.
        periods: how many are shown of all.
    """
    lines, where = [], ""
    if 0 < periods < all_periods:
        latest = "latest"
        verb = "is"
        if periods > 1:
            latest = f"latest {periods}"
            verb = "are"
        lines.append(f"the {latest} of {all_periods} periods {verb} shown")
        where = " in these periods"
    if empty := len(rows) - len(candidates):
        lines.append(f"{empty:,} series without a value{where} left out")
    if hidden_rows := set(candidates).difference(shown_rows):
        line = f"{len(hidden_rows):,} more series not shown"
        shown_entities = set(map(attrgetter("entity_id"), shown_rows))
        entities = set(map(attrgetter("entity_id"), hidden_rows)) - shown_entities
        if entities:
            companies = counted(len(entities), "more company", "more companies")
            line += f", among them all of {companies}"
        lines.append(line)
    return lines


def _choose_rows(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return the first rows in their order, at least one of each entity as far as
    possible.
    """
    firsts: dict[str, Row] = {}
    for row in rows:
        firsts.setdefault(row.entity_id, row)
    chosen_rows = list(dict.fromkeys([*firsts.values(), *rows]))[:limit]
    return sorted(chosen_rows, key=rows.index)


def _wrap(line: str, width: int) -> Iterable[str]:
    """Wrap a line, unless it fits: the lines of tables do, and their blanks count."""
    line = shorten(line, _LONGEST)
    if (cells := cell_width(line)) <= width:
        return [line]
    # textwrap counts characters: where some are two cells wide, half as many always
    # fit.
    room = width
    if cells != len(line):
        room = width // 2
    return wrap(line, room, subsequent_indent="  ", break_on_hyphens=False)


@frozen(eq=False, repr=False)
class Latest:
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
        for row in rows_of(self._grids, last=self.count):
            empty += not row.values
            durations.update(map(attrgetter("duration_months"), row.values))
            last_omitted = row.grid.last_omitted
            if last_omitted is None:
                continue
            if len(row.values) < self.count or min(row.values) < last_omitted:
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
            fields["scopes"] = row.grid.path_names(row.series)
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
        self, unit: Unit | None = None, width: int | None = None, *, limit: int = 40
    ) -> Shown:
        """Return the table that `str` and notebooks show, as `Panel.show` does.

        Args:
            unit: as for `Panel.show`.
            width: as for `Panel.show`.
            limit: how many values are shown at most.

        Raises:
            ArgumentError: as for `Panel.show`.
        """
        check_unit("unit", unit)
        _check_width("width", width)
        return Shown(lambda: self._make_parts(unit, limit), width or _WIDTH)

    def _make_parts(self, unit: Unit | None, limit: int) -> Parts:
        rows = self.rows(unit)
        companies = self._grids if len(self._grids) > 1 else ()
        names = name_rows(rows, entities=companies)
        heads = [*names.heads, "period", "value"]
        lines = []
        for row in rows:
            for period, text in row.texts.items():
                lines.append([*names.name(row), period.label, text])
        notes_below = [*self.notes, *describe_rows(rows)]
        if len(self._grids) == 1:
            notes_below.append(describe_contents(self._grids[0])[0])
        if hidden_count := len(lines[limit:]):
            notes_below.insert(0, f"{counted(hidden_count, 'more value')} not shown")
        caption_lines = [heading(self._grids)]
        if names.caption:
            caption_lines.append(names.caption)
        table = Table(heads, lines[:limit], len(heads) - 1)
        return Parts(caption_lines, [table] if rows else [], notes_below)

    def __str__(self) -> str:
        return str(self.show())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()
