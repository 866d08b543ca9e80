"""The last values of each series, with their own periods."""

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from asyncfin import checks
from asyncfin.clock import utc_text
from asyncfin.errors import printable
from asyncfin.html import Table, document
from asyncfin.table import notes
from asyncfin.table.excerpt import names_of
from asyncfin.table.rows import Row, rows_of
from asyncfin.table.show import WIDTH, Parts, Shown, check_form
from asyncfin.table.why import Result
from asyncfin.text import cells, table_lines
from asyncfin.words import Unit, counted

_count = checks.whole_number(1)
# How many values a text or a notebook shows.
_MOST = 40


@frozen(eq=False, repr=False)
class Latest:
    """The last values of each series. Iterating yields a `Row` for each series that has
    one.

    ``str(latest)`` is a table with a line for each value, and the `notes`.
    """

    _panels: Sequence[Any]
    count: int

    def rows(self, unit: Unit | None = None) -> list[Row]:
        """Return the series that have a value, with their last ones; `unit` as for
        `Panel.rows`.
        """
        rows = rows_of((panel._grid for panel in self._panels), unit, last=self.count)
        return [row for row in rows if row.values]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know, a line each: series without a value, and what was
        not requested.
        """
        lines = []
        empty = sum(len(panel._grid.series) for panel in self._panels) - len(
            self.rows()
        )
        if empty:
            lines.append(f"{empty:,} series without a value left out")
        cut = [
            panel
            for panel in self._panels
            if {*panel.catalogue.periods}.difference(panel._grid.asked)
        ]
        if cut:
            lines.append(
                "not all periods were requested, so there may be later values: query "
                "all years,"
                " FiscalRange(), for the latest of each series"
            )
        return tuple(lines)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each value, with the names of the long table's
        columns.
        """
        return [
            {
                "entity_id": row.entity_id,
                "entity_name": row.grid.catalogue.name,
                "series_id": row.series.series_id,
                "metric_id": row.series.metric_id,
                "series_label": row.series.label,
                "scopes": row.grid.path_names(row.series),
                "reporting_group_id": row.series.reporting_group_id,
                "asked_version": row.grid.value_version,
                "published": utc_text(row.grid.catalogue.created_timestamp),
                "period_label": period.label,
                "number": value.number,
                "text": value.text,
                "description": row.series.description,
            }
            for row in self
            for period, value in row.values.items()
        ]

    def show(
        self, unit: Unit | None = None, width: int | None = None, *, most: int = _MOST
    ) -> Shown:
        """Return the table that `str` and notebooks show, as `Panel.show` does, with so
        many values.

        Raises:
            ArgumentError: as for `Panel.show`.
        """
        check_form(unit, width)
        columns = width or WIDTH
        return Shown(
            lambda: self._text(unit, columns, most),
            lambda: document(*self._shown(unit, most)),
            columns,
        )

    def _shown(
        self, unit: Unit | None, most: int
    ) -> tuple[list[str], list[Table], list[str]]:
        """Return what is above the table, the table if there is one, and what is below
        it.
        """
        rows, grids = self.rows(unit), [panel._grid for panel in self._panels]
        above, below = [notes.heading(self._panels)], [*self.notes]
        if not rows:
            return above, [], below
        names = names_of(
            rows, always=("entity",) if len(grids) > 1 else (), grids=grids
        )
        texts = names.with_suffixes().texts
        lines = [
            [*texts[row], period.label, shown]
            for row in rows
            for period, shown in row.texts.items()
        ]
        if len(lines) > most:
            below.insert(0, f"{counted(len(lines) - most, 'more value')} not shown")
        above += filter(None, [printable(names.heading)])
        return (
            above,
            [Table([*names.heads, "period", "value"], lines[:most], len(names.heads))],
            below,
        )

    def _text(self, unit: Unit | None, width: int, most: int) -> Parts:
        above, tables, below = self._shown(unit, most)
        lines = []
        for table in tables:
            widest = max(cells(row[-1]) for row in table.rows)
            rows = [[*names, shown.rjust(widest)] for *names, shown in table.rows]
            lines.append(table_lines(table.heads, rows, width))
        return Parts(above, lines, below)

    def __str__(self) -> str:
        return str(self.show())

    def __repr__(self) -> str:
        return (
            f"<Latest {self.count} of {counted(len(self.rows()), 'series', 'series')}>"
        )

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()


def latest(panels: Sequence[Result], n: int) -> Latest:
    """Return the last `n` values of each series of panels.

    Raises:
        ArgumentError: `n` is not a whole number from 1.
    """
    _count("n", n)
    return Latest(panels, n)
