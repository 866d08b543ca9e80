"""Panels for people: tables of their texts on a terminal or in a notebook, and what
they leave out.

A year and its quarters are different quantities, so a table holds periods of one
duration. A series with values of two durations is in two tables.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import compress
from textwrap import wrap

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import printable, shorten
from asyncfin.html import Table, document
from asyncfin.model.period import Period
from asyncfin.table.grid import Grid
from asyncfin.table.naming import SeriesNames, join_texts, name_rows
from asyncfin.table.notes import describe_rows, heading, table_notes
from asyncfin.table.rows import Row, check_unit, empty_cell, rows_of
from asyncfin.text import GAP, cell_width, count_fitting, figure_tables
from asyncfin.words import Unit, counted, entity_names

# A text is an overview that fits a terminal.
WIDTH = 100
# How much of a line is wrapped: a name of the service can have a megabyte.
_LONGEST = 10_000
# Of one panel: the series of a text and of a notebook, and the periods of a notebook,
# where tables scroll.
_TEXT_SERIES = 10
_HTML_SERIES = 12
_HTML_PERIODS = 40
# Of two or more panels, and the periods of a text.
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

    Neither is made, and no value decoded, before it is looked at.
    """

    _build: Callable[[bool], "Parts"] = field(repr=False)
    _width: int = WIDTH

    @cached_property
    def _parts(self) -> "Parts":
        return self._build(False)

    @property
    def heading(self) -> str:
        """The lines above the tables: of what they are, and what all rows share."""
        return "\n".join(map(printable, self._parts.heading))

    @cached_property
    def tables(self) -> tuple[str, ...]:
        """The tables, each a text that fits the width."""
        parts = self._parts
        return tuple(
            "\n".join([*filter(None, [printable(table.caption)]), *lines])
            for table in parts.tables
            for lines in figure_tables(
                table.heads,
                table.rows,
                table.names,
                self._width,
                clip=parts.clip,
            )
        )

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
        parts = self._build(True)
        return document(parts.heading, parts.tables, dict.fromkeys(parts.notes))


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

    def build(is_html: bool) -> Parts:
        most_series, most_periods = _TEXT_SERIES, _PERIODS
        if is_html:
            most_series, most_periods = _HTML_SERIES, _HTML_PERIODS
        if len(grids) > 1:
            most_series, most_periods = _SERIES_OF_MANY, _PERIODS
        part = _Part(
            grids,
            unit,
            None if all_series and len(grids) == 1 else most_series,
            None if all_periods else most_periods,
            empty,
        )
        if not is_html and not all_periods:
            part.fit(columns, clip=not all_series)
        above, below = [heading(grids)], [*part.notes(), *notes()]
        if is_html and len(grids) == 1:
            above, below = [*above, *notes()], list(part.notes())
        if part.names is None:
            return Parts(above, [], below)
        above += filter(None, [part.names.heading])
        tables = list(part.tables(GAP if not is_html else ""))
        return Parts(above, tables, below, clip=not all_series)

    return Shown(build, columns)


class _Part:
    """The series and the periods that are shown, by duration, and what is left out."""

    def __init__(
        self,
        grids: Sequence[Grid],
        unit: Unit | None,
        most_series: int | None,
        most_periods: int | None,
        empty: bool,
    ) -> None:
        self._grids = grids
        self._all_rows = rows_of(grids, unit)
        periods: dict[int, list[Period]] = {}
        self._all_periods = sorted(
            {period for grid in grids for period in grid.periods}
        )
        for period in self._all_periods:
            periods.setdefault(period.duration_months, []).append(period)
        # The rows and the periods of each table.
        self._sections: list[tuple[list[Row], list[Period]]] = []
        self._cut_rows: set[Row] = set()
        for duration in sorted(periods, key=_rank)[:_SECTIONS]:
            latest = periods[duration][-(most_periods or 0) :]
            rows = self._find_rows(latest, empty)
            shown = rows if most_series is None else _choose_rows(rows, most_series)
            self._cut_rows.update(rows)
            if shown:
                self._sections.append((shown, latest))
        self._rows = list(
            dict.fromkeys(row for rows, _ in self._sections for row in rows)
        )
        self._cut_rows.difference_update(self._rows)
        self.names: SeriesNames | None = None
        if self._rows:
            self.names = name_rows(self._rows, entities=len(grids) > 1, grids=grids)

    def fit(self, width: int, *, clip: bool) -> None:
        """Leave only the latest periods of each table, as many as fit a width."""
        sections = []
        for (rows, periods), table in zip(
            self._sections, self.tables(GAP), strict=True
        ):
            count = count_fitting(
                table.heads, table.rows, table.names, width, clip=clip
            )
            sections.append((rows, periods[-count:]))
        self._sections = sections

    def _find_rows(self, periods: Sequence[Period], empty: bool) -> list[Row]:
        """Return the rows with a value at one of some periods; if `empty`, then the
        others too.
        """
        ids_of = {grid: grid.find_observed(periods) for grid in self._grids}
        rows: list[Row] = []
        others: list[Row] = []
        for row in self._all_rows:
            has_value = row.series.series_id in ids_of[row.grid]
            (rows if has_value else others).append(row)
        if not empty:
            return rows
        return [*rows, *others] if len(self._grids) > 1 else self._all_rows

    def tables(self, gap: str) -> Iterator[Table]:
        """Yield a table for each duration; `gap` is what a cell without a value
        shows.
        """
        if self.names is None:
            return
        entities = entity_names(grid.catalogue for grid in self._grids)
        empty = [grid for grid in self._grids if not grid.series]
        for rows, periods in self._sections:
            caption = []
            shared = {}
            if len(self._sections) > 1:
                caption.append(
                    f"periods of {counted(periods[0].duration_months, 'month')}"
                )
                # The rows of companies without series have no other name.
                shared = {} if empty else self.names.share(rows)
            heads = [head for head in self.names.heads if head not in shared]
            lines = [
                [*self.names.name(row, heads), *map(row.cell, periods)] for row in rows
            ]
            for grid in empty:
                name = entities[grid.catalogue.entity_id]
                texts = [name if head == "entity" else "" for head in heads]
                signs = [empty_cell(grid, period) for period in periods]
                lines.append([*texts, *signs])
            yield Table(
                [*heads, *(period.label for period in periods)],
                [[gap if cell == GAP else cell for cell in line] for line in lines],
                len(heads),
                join_texts([*caption, *shared.values()]),
            )

    def notes(self) -> Iterator[str]:
        """Yield a line for each kind of thing that is not shown, and the descriptions
        of the series.
        """
        periods = {period for _, periods in self._sections for period in periods}
        is_cut = 0 < len(periods) < len(self._all_periods)
        if is_cut:
            yield (
                f"the latest {len(periods)} of {len(self._all_periods)} periods are "
                "shown"
            )
        cut = len(self._cut_rows)
        if empty := len(self._all_rows) - cut - len(self._rows):
            where = " in these periods" if is_cut else ""
            yield f"{empty:,} series without a value{where} left out"
        if cut:
            entities = {row.entity_id for row in self._cut_rows}
            entities -= {row.entity_id for row in self._rows}
            companies = counted(len(entities), "more company", "more companies")
            among = f", among them all of {companies}" if entities else ""
            yield f"{cut:,} more series not shown{among}"
        yield from table_notes(self._grids, sorted(periods))
        if self.names is not None:
            distinctive = [head != "series" for head in self.names.heads]
            yield from describe_rows(
                {
                    row: join_texts(compress(texts, distinctive))
                    for row, texts in self.names.texts.items()
                }
            )


def _choose_rows(rows: Sequence[Row], most: int) -> list[Row]:
    """Return the first rows in their order, at least one of each entity as far as
    possible.
    """
    firsts = {row.entity_id: row for row in reversed(rows)}
    chosen = set(list(dict.fromkeys([*reversed(firsts.values()), *rows]))[:most])
    return [row for row in rows if row in chosen]


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
