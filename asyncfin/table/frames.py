"""The frame libraries. pandas and polars are built from Arrow, so that all of them have one schema.

The columns are imported inside the functions: most programs ask for no table.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.table.grid import Grid
from asyncfin.table.optional import library

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    import pyarrow

Layout: TypeAlias = Literal["long", "wide"]
Names: TypeAlias = Iterable[str] | None


_check_layout = checks.one_of("long", "wide")


def column_names(names: Names) -> tuple[str, ...] | None:
    """Return the names of columns; a str is one name."""
    return (names,) if isinstance(names, str) else None if names is None else tuple(names)


def to_arrow(grid: Grid, layout: Layout, names: Names, about: dict[str, Any]) -> "pyarrow.Table":
    """Return the table of a layout. `about` goes into its metadata."""
    from asyncfin.table.arrow import long_table, wide_table

    _check_layout("layout", layout)
    make = long_table if layout == "long" else wide_table
    return make(grid, column_names(names), about)


def to_pandas(
    grid: Grid, layout: Layout, names: Names, about: dict[str, Any], labels: bool
) -> "pandas.DataFrame":
    """Return a DataFrame of pandas; the wide one is indexed by period."""
    from asyncfin.table.columns import PERIOD_FIELDS
    from asyncfin.table.excerpt import names_of, rows_of

    if labels and layout != "wide":
        raise SelectionError("labels name the rows and columns of the wide layout: write layout='wide'")
    pd = library("pandas", "pandas")
    frame: pandas.DataFrame = to_arrow(grid, layout, names, about).to_pandas()
    if layout == "long":
        return frame
    index = [name for name in PERIOD_FIELDS if name in frame.columns]
    if not labels:
        return frame.set_index(index) if index else frame
    # Period labels do not sort as periods do (2024-H1 before 2024-Q1), so the rows keep their order.
    frame.index = pd.Index([period.label for period in grid.rows_of_wide], name="period")
    texts_of = names_of(rows_of([grid]), group_names=True).texts
    by_id = {row.series.series_id: ", ".join(texts) for row, texts in texts_of.items()}
    return frame.drop(columns=index).rename(columns=by_id)


def to_polars(grid: Grid, layout: Layout, names: Names, about: dict[str, Any]) -> "polars.DataFrame":
    """Return a DataFrame of polars."""
    frame: polars.DataFrame = library("polars", "polars").from_arrow(to_arrow(grid, layout, names, about))
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
