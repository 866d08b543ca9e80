"""The frame libraries. pandas and polars are built from Arrow, so that all of them have one schema.

The columns are imported inside the functions: most programs make no table.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from asyncfin import checks
from asyncfin.errors import ArgumentError, printable
from asyncfin.optional import library
from asyncfin.table.grid import Grid, rows_of
from asyncfin.table.notes import shortened

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
    return tuple(names)


def to_arrow(
    grid: Grid, layout: Layout, names: ColumnNames, about: dict[str, Any], labels: bool = False
) -> "pyarrow.Table":
    """Return the table of a layout. `about` goes into its metadata."""
    from asyncfin.table import wide
    from asyncfin.table.arrow import long_table
    from asyncfin.table.columns import chosen

    _check_layout("layout", layout)
    wanted = column_names(names)
    if layout == "long" and not labels:
        return long_table(grid, chosen(wanted), about)
    rows = rows_of([grid])
    names_by_row = wide.labels_of(rows) if labels else {row: row.series.series_id for row in rows}
    by_id = {row.series.series_id: name for row, name in names_by_row.items()}
    if layout == "long":
        return long_table(grid, chosen(wanted, by_id), about)
    if wanted is not None:
        wanted = tuple(by_id.get(name, name) for name in wanted)
    return wide.wide_table(names_by_row, grid.rows_of_wide, wanted, [about], labels=labels)


def concat(
    grids: Sequence[Grid], layout: Layout, names: ColumnNames, abouts: list[dict[str, Any]], labels: bool
) -> "pyarrow.Table":
    """Return the tables of several panels as one."""
    from asyncfin.table import wide
    from asyncfin.table.arrow import empty_table, joined, long_table
    from asyncfin.table.columns import chosen

    _check_layout("layout", layout)
    wanted = column_names(names)
    wide.check_once(grids, layout=layout)
    if layout == "wide":
        rows = rows_of(grids)
        by_row = wide.labels_of(rows, companies=True) if labels else wide.ids_of(rows)
        return wide.wide_table(by_row, wide.rows_together(grids), wanted, abouts, labels=labels)
    by_id: dict[Grid, dict[str, str]] = {grid: {} for grid in grids}
    if labels:
        for row, name in wide.labels_of(rows_of(grids), companies=True).items():
            by_id[row.grid][row.series.series_id] = name
    tables = [
        long_table(grid, chosen(wanted, by_id[grid] if labels else None), about)
        for grid, about in zip(grids, abouts, strict=True)
    ]
    return joined(tables) if tables else empty_table(chosen(wanted, {} if labels else None))


def to_pandas(
    grid: Grid, layout: Layout, names: ColumnNames, about: dict[str, Any], labels: bool
) -> "pandas.DataFrame":
    """Return a DataFrame of pandas; the wide one is indexed by period, or by its label."""
    from asyncfin.table.columns import PERIOD_FIELDS
    from asyncfin.table.wide import PERIOD

    library("pandas", "pandas")
    wanted = column_names(names)
    if labels and layout == "wide" and wanted is not None:
        wanted = (*(name for name in wanted if name not in PERIOD_FIELDS), PERIOD)
    frame: pandas.DataFrame = to_arrow(grid, layout, wanted, about, labels).to_pandas()
    if layout == "wide":
        index = [name for name in PERIOD_FIELDS if name in frame.columns]
        # Period labels do not sort as periods do (2024-H1 before 2024-Q1), so the rows keep their order.
        frame = frame.drop(columns=index).set_index(PERIOD) if labels else frame
        frame = frame.set_index(index) if index and not labels else frame
    # One short text, which pandas copies whenever it makes another frame of this one.
    frame.attrs = {"asyncfin": _attribute(grid)}
    return frame


def _attribute(grid: Grid) -> str:
    """Return the entity, the version and, where it is one, the description of the series."""
    described = list(dict.fromkeys(series.description.strip() for series in grid.series))
    unit = shortened(described[0]) if len(described) == 1 else f"{len(described):,} descriptions"
    return printable(f"{grid.catalogue.name}, {grid.value_version} values: {unit}")


def to_polars(
    grid: Grid, layout: Layout, names: ColumnNames, about: dict[str, Any], labels: bool
) -> "polars.DataFrame":
    """Return a DataFrame of polars."""
    from_arrow = library("polars", "polars").from_arrow
    table = to_arrow(grid, layout, names, about, labels)
    # Its names go through C, where they end at NUL.
    if harmful := [name for name in table.column_names if "\0" in name]:
        raise ArgumentError(
            f"series id {harmful[0]!r} contains NUL, which a column of polars cannot: use layout='long'"
            " or labels=True"
        )
    frame: polars.DataFrame = from_arrow(table)
    return frame


def to_numpy(grid: Grid) -> "numpy.typing.NDArray[numpy.float64]":
    """Return the numbers, series x periods, NaN for gaps."""
    library("numpy", "pandas")  # says which extra is missing; the import below is for the type checker
    import numpy

    numbers = numpy.full((len(grid.series), len(grid.periods)), numpy.nan)
    for row, series in zip(numbers, grid.series, strict=True):
        periods, found = grid.observations(series.series_id)
        row[periods] = found
    return numbers
