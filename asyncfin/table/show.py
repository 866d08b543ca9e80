"""Panels for people: tables of their texts on a terminal or in a notebook, and what
they leave out.

A year and its quarters are different quantities, so a table holds periods of one
duration. A series with values of two durations is in two tables.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from textwrap import wrap

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import printable, shorten
from asyncfin.html import Table, document
from asyncfin.model.period import Period
from asyncfin.table.grid import Grid
from asyncfin.table.naming import SeriesNames, join_texts, name_rows
from asyncfin.table.notes import describe_rows, heading
from asyncfin.table.rows import Row, check_unit, rows_of
from asyncfin.text import NOT_REQUESTED, cell_width, count_fitting, figure_tables
from asyncfin.words import Unit, counted

# A text is an overview that fits a terminal.
WIDTH = 100
# How much of a line is wrapped: a name of the service can have a megabyte.
_LONGEST = 10_000
# The series of one panel, and of two or more; the periods, and the tables.
_SERIES = 10
_SERIES_OF_MANY = 40
_PERIODS = 12
_SECTIONS = 4
# Half years and nine months are sums of quarters: they come after these.
_DURATIONS = (12, 3, 6, 9)
_check_width = checks.whole_number(40).optional()


@frozen(repr=False, eq=False, slots=False)
class Shown:
    """A table for people: ``str`` and ``repr`` are its text, and a notebook shows it as
    HTML.

    It is not made, and no value decoded, before it is looked at.
    """

    _build: Callable[[], "Parts"] = field(repr=False)
    _width: int = WIDTH

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
            caption = printable(table.caption) + "\n" if table.caption else ""
            tables = figure_tables(
                table.heads, table.rows, table.names, self._width, clip=self._parts.clip
            )
            texts += [caption + "\n".join(lines) for lines in tables]
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
        return "\n".join(part for line in lines for part in _wrap(line, self._width))

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


def check_form(unit: Unit | None, width: int | None) -> None:
    """Reject a unit or a width that no table has."""
    check_unit("unit", unit)
    _check_width("width", width)


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
    check_form(unit, width)
    columns = WIDTH if width is None else width
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
        unrequested_notes = []
        if any(NOT_REQUESTED in row for table in tables for row in table.rows):
            unrequested_notes.append(
                f"{NOT_REQUESTED} was not requested, so there may be a value"
            )
        notes_below = [
            *_note_hidden(
                rows,
                candidates,
                table_rows,
                periods=len(table_periods),
                all_periods=sum(map(len, groups)),
            ),
            *unrequested_notes,
            *describe_rows(table_rows),
            *notes(),
        ]
        return Parts(lines, tables, notes_below, clip=not all_series)

    return Shown(build, columns)


def _group_periods(grids: Sequence[Grid]) -> list[list[Period]]:
    """Return the periods of panels by duration, years first, each oldest first."""
    by_duration: dict[int, list[Period]] = {}
    for period in sorted({period for grid in grids for period in grid.periods}):
        by_duration.setdefault(period.duration_months, []).append(period)
    return [by_duration[duration] for duration in sorted(by_duration, key=_rank)]


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
    return [*dict.fromkeys([*observed_rows, *rows])] if len(grids) > 1 else list(rows)


def _make_table(
    names: SeriesNames, periods: Sequence[Period], caption: str = ""
) -> Table:
    return Table(
        [*names.heads, *(period.label for period in periods)],
        [[*names.name(row), *map(row.cell, periods)] for row in names.texts],
        len(names.heads),
        caption,
    )


def _note_hidden(
    rows: Collection[Row],
    candidates: Collection[Row],
    shown_rows: Collection[Row],
    *,
    periods: int,
    all_periods: int,
) -> Iterator[str]:
    """Yield a line for each kind of thing that is not shown.

    Args:
        candidates: the rows that have a value, or would be shown without one.
        periods: how many are shown of all.
    """
    where = ""
    if 0 < periods < all_periods:
        yield f"the latest {periods} of {all_periods} periods are shown"
        where = " in these periods"
    if empty := len(rows) - len(candidates):
        yield f"{empty:,} series without a value{where} left out"
    if hidden_rows := set(candidates).difference(shown_rows):
        entities = {row.entity_id for row in hidden_rows}
        entities -= {row.entity_id for row in shown_rows}
        companies = counted(len(entities), "more company", "more companies")
        among = f", among them all of {companies}" if entities else ""
        yield f"{len(hidden_rows):,} more series not shown{among}"


def _choose_rows(rows: Sequence[Row], limit: int) -> list[Row]:
    """Return the first rows in their order, at least one of each entity as far as
    possible.
    """
    firsts = {row.entity_id: row for row in reversed(rows)}
    chosen_rows = set(list(dict.fromkeys([*reversed(firsts.values()), *rows]))[:limit])
    return [row for row in rows if row in chosen_rows]


def _rank(duration: int) -> tuple[int, int]:
    """Return the key that sorts years before quarters, then half years, nine months,
    and all others.
    """
    is_usual = duration in _DURATIONS
    return _DURATIONS.index(duration) if is_usual else len(_DURATIONS), duration


def _wrap(line: str, width: int) -> Iterable[str]:
    """Wrap a line, unless it fits: the lines of tables do, and their blanks count."""
    line = shorten(line, _LONGEST)
    if (cells := cell_width(line)) <= width:
        return [line]
    # textwrap counts characters: where some are two cells wide, half as many always
    # fit.
    room = width if cells == len(line) else width // 2
    return wrap(line, room, subsequent_indent="  ", break_on_hyphens=False)
