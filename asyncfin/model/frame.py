"""The catalogue as a table. Arrow and the frame libraries are imported at first use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from asyncfin.model.select import Select
from asyncfin.optional import library, pa

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Those of `asyncfin catalogue --csv`.
COLUMNS = (
    *("series_id", "metric_id", "label", "scopes", "reporting_group_id", "basis", "cadence"),
    *("period_meaning", "number_format", "description"),
)


class Tabular:
    """The tables of a `Catalogue`: a row for each series, whose columns are texts."""

    def rows(self, select: Select | None = None) -> Iterator[tuple[str, ...]]:
        """Yield the row of each series that a Select means, with the columns of `to_arrow`."""
        raise NotImplementedError

    def to_arrow(self, select: Select | None = None) -> pyarrow.Table:
        """Return an Arrow table with a row for each series, in catalogue order. No request.

        The columns are texts: ``series_id``, ``metric_id``, ``label``, ``scopes`` (the path in its text
        form), ``reporting_group_id``, ``basis``, ``cadence``, ``period_meaning``, ``number_format`` and
        ``description``.

        Args:
            select: which series. None: all.

        Raises:
            SelectionError: as for `select`.
            ImportError: pyarrow is not installed.
        """
        columns = list(zip(*self.rows(select), strict=True)) or [()] * len(COLUMNS)
        schema = pa.schema([(name, pa.string()) for name in COLUMNS])
        table: pyarrow.Table = pa.Table.from_arrays(
            [pa.array(each, pa.string()) for each in columns], schema=schema
        )
        return table

    def to_pandas(self, select: Select | None = None) -> pandas.DataFrame:
        """Return the table of `to_arrow` as a DataFrame of pandas."""
        library("pandas", "pandas")
        frame: pandas.DataFrame = self.to_arrow(select).to_pandas()
        return frame

    def to_polars(self, select: Select | None = None) -> polars.DataFrame:
        """Return the table of `to_arrow` as a DataFrame of polars."""
        frame: polars.DataFrame = library("polars", "polars").from_arrow(self.to_arrow(select))
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow's C interface, which polars and DuckDB read."""
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: an array, or `pandas.DataFrame(catalogue)`, would be one column of objects."""
        raise TypeError("a Catalogue is not an array: write catalogue.to_pandas()")
