"""The frame libraries. pandas and polars are built from Arrow, so that all of them have
one schema.

The columns are imported inside the functions: most programs make no table.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from asyncfin import checks
from asyncfin.errors import ArgumentError, printable, shorten_middle
from asyncfin.model.frame import pandas_frame
from asyncfin.optional import library
from asyncfin.table.grid import Grid
from asyncfin.table.notes import LONGEST_DESCRIPTION
from asyncfin.table.rows import Row, rows_of

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    import pyarrow

Layout: TypeAlias = Literal["long", "wide"]
ColumnNames: TypeAlias = Iterable[str] | None


_check_layout = checks.one_of("long", "wide")


def column_names(names: ColumnNames) -> tuple[str, ...] | None:
    """Return the names of columns; a str is one name."""
    if names is None or isinstance(names, str):
        return None if names is None else (names,)
    checks.several("columns", names, "names")
    given = tuple(names)
    for each in given:  # others may not be hashable
        checks.instance_of(str)("each of columns", each)
    return given


def _check(layout: Layout, complete: bool) -> None:
    _check_layout("layout", layout)
    if complete and layout == "wide":
        raise ArgumentError(
            "complete is for the long layout: the wide layout has all rows"
        )


def to_arrow(
    grid: Grid,
    layout: Layout,
    names: ColumnNames,
    about: dict[str, Any],
    *,
    labels: bool = False,
    complete: bool = False,
) -> "pyarrow.Table":
    """Return the table of a layout. `about` goes into its metadata."""
    from asyncfin.table import wide
    from asyncfin.table.arrow import long_table
    from asyncfin.table.columns import chosen

    _check(layout, complete)
    wanted, rows = column_names(names), rows_of([grid])
    if layout == "wide":
        by_row: dict[wide.Numbers, str] = {row: row.series.series_id for row in rows}
        if labels:
            by_row = wide.labels_of(rows)
        return wide.wide_table(
            by_row, grid.rows_of_wide, wanted, [about], labels=labels
        )
    by_id = _by_id([grid], wide.labels_of(rows))[grid] if labels else None
    return long_table(grid, chosen(wanted, by_id), about, complete=complete)


def _by_id(
    grids: Iterable[Grid], names: Mapping[Row | Grid, str]
) -> dict[Grid, dict[str, str]]:
    """Return the names of the series of each panel, by id."""
    found: dict[Grid, dict[str, str]] = {grid: {} for grid in grids}
    for row, name in names.items():
        if isinstance(row, Row):
            found[row.grid][row.series.series_id] = name
    return found


def concat(
    grids: Sequence[Grid],
    layout: Layout,
    names: ColumnNames,
    abouts: list[dict[str, Any]],
    *,
    labels: bool,
    complete: bool,
) -> "pyarrow.Table":
    """Return the tables of several panels as one."""
    from asyncfin.table import wide
    from asyncfin.table.arrow import empty_table, joined, long_table
    from asyncfin.table.columns import chosen

    _check(layout, complete)
    wanted = column_names(names)
    wide.check_once(grids, layout=layout)
    if layout == "wide":
        columns = wide.columns_of(grids)
        by_column = (
            wide.labels_of(columns, entities=True) if labels else wide.ids_of(columns)
        )
        return wide.wide_table(
            by_column, wide.rows_together(grids), wanted, abouts, labels=labels
        )
    by_id = (
        _by_id(grids, wide.labels_of(rows_of(grids), entities=True)) if labels else {}
    )
    tables = [
        long_table(grid, chosen(wanted, by_id.get(grid)), about, complete=complete)
        for grid, about in zip(grids, abouts, strict=True)
    ]
    return (
        joined(tables)
        if tables
        else empty_table(chosen(wanted, {} if labels else None))
    )


def to_pandas(
    grid: Grid,
    layout: Layout,
    names: ColumnNames,
    about: dict[str, Any],
    *,
    labels: bool,
    complete: bool,
) -> "pandas.DataFrame":
    """Return a DataFrame of pandas; the wide one is indexed by period, or by its
    label.
    """
    library("pandas", "pandas")
    wanted = with_index(names, layout, labels=labels)
    table = to_arrow(grid, layout, wanted, about, labels=labels, complete=complete)
    frame: pandas.DataFrame = pandas_frame(table)
    # One short text, which pandas copies whenever it makes another frame of this one.
    frame.attrs = {"asyncfin": _attribute(grid)}
    return frame


def with_index(
    names: ColumnNames, layout: Layout, *, labels: bool
) -> tuple[str, ...] | None:
    """Return the names of columns, with that of the period labels, which index the wide
    DataFrame.
    """
    from asyncfin.table.wide import PERIOD

    wanted = column_names(names)
    return (
        (PERIOD, *wanted)
        if labels and layout == "wide" and wanted is not None
        else wanted
    )


def _attribute(grid: Grid) -> str:
    """Return the entity, the version and, where it is one, the description of the
    series.
    """
    described = list(
        dict.fromkeys(series.description.strip() for series in grid.series)
    )
    unit = (
        shorten_middle(described[0], LONGEST_DESCRIPTION)
        if len(described) == 1
        else f"{len(described):,} descriptions"
    )
    return printable(f"{grid.catalogue.name}, {grid.value_version} values: {unit}")


def to_polars(
    grid: Grid,
    layout: Layout,
    names: ColumnNames,
    about: dict[str, Any],
    *,
    labels: bool,
    complete: bool,
) -> "polars.DataFrame":
    """Return a DataFrame of polars."""
    library("polars", "polars")
    return polars_frame(
        to_arrow(grid, layout, names, about, labels=labels, complete=complete)
    )


def polars_frame(table: "pyarrow.Table") -> "polars.DataFrame":
    """Return a table as a DataFrame of polars; ArgumentError: a column is named by an
    id with NUL.
    """
    # Its names go through C, where they end at NUL.
    if harmful := [name for name in table.column_names if "\0" in name]:
        raise ArgumentError(
            f"series id {harmful[0]!r} contains NUL, which a column of polars cannot: "
            "use layout='long'"
            " or labels=True"
        )
    frame: polars.DataFrame = library("polars", "polars").from_arrow(table)
    return frame


def to_numpy(grid: Grid) -> "numpy.typing.NDArray[numpy.float64]":
    """Return the numbers, series x periods, NaN for gaps."""
    library(
        "numpy", "pandas"
    )  # says which extra is missing; the import below is for the type checker
    import numpy

    numbers = numpy.full((len(grid.series), len(grid.periods)), numpy.nan)
    for row, series in zip(numbers, grid.series, strict=True):
        periods, found = grid.observations(series.series_id)
        row[periods] = found
    return numbers
