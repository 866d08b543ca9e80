"""The last values of each series, with their own periods."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from asyncfin import checks
from asyncfin.html import Table
from asyncfin.optional import library
from asyncfin.table.grid import Grid
from asyncfin.table.naming import name_rows
from asyncfin.table.notes import describe_contents, describe_rows, heading
from asyncfin.table.rows import Row, rows_of
from asyncfin.table.show import WIDTH, Parts, Shown, check_form
from asyncfin.words import Unit, counted, either

if TYPE_CHECKING:
    import pandas

_count = checks.whole_number(1)
# How many values a text or a notebook shows.
_MOST = 40


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
        different durations, and what was not requested.
        """
        rows = self.rows()
        lines = []
        if empty := sum(len(grid.series) for grid in self._grids) - len(rows):
            lines.append(f"{empty:,} series without a value left out")
        durations = {period.duration_months for row in rows for period in row.values}
        if len(durations) > 1:
            months = either([*map(str, sorted(durations))], "and")
            lines.append(f"periods of {months} months do not compare")
        if any(grid.listed.difference(grid.query_periods) for grid in self._grids):
            lines.append(
                "not all periods were requested, so there may be later values: query "
                "all periods for the latest of each series"
            )
        return tuple(lines)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dictionary for each value, with the names of the long table's
        columns.
        """
        return [
            {
                **row.fields,
                "scopes": row.grid.path_names(row.series),
                "period_label": period.label,
                "duration_months": period.duration_months,
                "number": value.number,
                "text": value.text,
            }
            for row in self
            for period, value in row.values.items()
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a pandas DataFrame of `to_dicts` (extra ``pandas``)."""
        frame: pandas.DataFrame = library("pandas", "pandas").DataFrame(self.to_dicts())
        return frame

    def show(
        self, unit: Unit | None = None, width: int | None = None, *, most: int = _MOST
    ) -> Shown:
        """Return the table that `str` and notebooks show, as `Panel.show` does, with so
        many values.

        Raises:
            ArgumentError: as for `Panel.show`.
        """
        check_form(unit, width)
        return Shown(lambda: self._make_parts(unit, most), width or WIDTH)

    def _make_parts(self, unit: Unit | None, most: int) -> Parts:
        rows = self.rows(unit)
        names = name_rows(rows, entities=self._grids if len(self._grids) > 1 else ())
        heads = [*names.heads, "period", "value"]
        lines = [
            [*names.name(row), period.label, row.cell(period)]
            for row in rows
            for period in row.values
        ]
        notes_below = [*self.notes, *describe_rows(rows)]
        if len(self._grids) == 1:
            notes_below.append(describe_contents(self._grids[0])[0])
        if len(lines) > most:
            notes_below.insert(
                0, f"{counted(len(lines) - most, 'more value')} not shown"
            )
        return Parts(
            list(filter(None, [heading(self._grids), names.caption])),
            [Table(heads, lines[:most], len(heads) - 1)] if rows else [],
            notes_below,
        )

    def __str__(self) -> str:
        return str(self.show())

    def __repr__(self) -> str:
        rows = counted(len(self.rows()), "series", "series")
        return f"<Latest {self.count} of {rows}>"

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()


def latest(grids: Sequence[Grid], n: int) -> Latest:
    """Return the last `n` values of each series of panels.

    Raises:
        ArgumentError: `n` is not a whole number from 1.
    """
    _count("n", n)
    return Latest(grids, n)
