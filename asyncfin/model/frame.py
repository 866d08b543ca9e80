"""The catalogue as a table. Arrow and the frame libraries are imported at first use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from asyncfin.model.select import Select
from asyncfin.model.series import COLUMN_OF, CatalogueSeries
from asyncfin.optional import library, pa

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class SeriesColumn(NamedTuple):
    """A column about the series of a catalogue, in its table and in those of panels.

    Attributes:
        read: its entry for a series of a Catalogue.
        key: what series with the same entry have in common. None: all have the same.
        type: the name of its Arrow type, as in docs/schema.md.
    """

    name: str
    read: Callable[[Any, CatalogueSeries], Any]
    key: Callable[[CatalogueSeries], Hashable] | None
    type: str = "word"


by_id = attrgetter("series_id")
_by_group = attrgetter("reporting_group_id")
_by_path = attrgetter("scopes")


def _read_field(name: str) -> SeriesColumn:
    read = attrgetter(name)
    return SeriesColumn(COLUMN_OF[name], lambda _, series: read(series), by_id)


def _read_group(name: str, field: str) -> SeriesColumn:
    read = attrgetter(field)
    return SeriesColumn(
        name,
        lambda catalogue, series: read(catalogue.by_group[series.reporting_group_id]),
        _by_group,
    )


COLUMNS = (
    SeriesColumn("entity_id", lambda catalogue, _: catalogue.entity_id, None),
    SeriesColumn("entity_name", lambda catalogue, _: catalogue.name, None),
    SeriesColumn("dataset_id", lambda catalogue, _: catalogue.dataset_id, None),
    _read_field("series_id"),
    _read_field("metric_id"),
    _read_field("reporting_group_id"),
    _read_group("reporting_group_name", "name"),
    SeriesColumn(
        "scopes",
        lambda _, series: [(ref.scope_group_id, ref.scope_id) for ref in series.scopes],
        _by_path,
        "scopes",
    ),
    SeriesColumn("scope_path", lambda _, series: series.scope_path, _by_path),
    SeriesColumn(
        "scope_names",
        lambda catalogue, series: catalogue.scope_names(series.scopes),
        _by_path,
        "words",
    ),
    _read_field("label"),
    _read_field("description"),
    _read_field("basis"),
    _read_group("cadence", "cadence"),
    _read_field("period_meaning"),
    _read_field("number_format"),
)


@cache
def make_arrow_type(name: str) -> Any:
    """Return the Arrow type of a name in docs/schema.md."""
    match name:
        case "word":
            return pa.dictionary(pa.int32(), pa.string())
        case "words":
            return pa.list_(pa.string())
        case "scopes":
            group_id = "scope_group_id", pa.string()
            scope_id = "scope_id", pa.string()
            return pa.list_(pa.struct([group_id, scope_id]))
        case "sources":
            item_id = "item_id", pa.string()
            row_index = "row_index", pa.int64()
            column_index = "column_index", pa.int64()
            return pa.list_(pa.struct([item_id, row_index, column_index]))
    return getattr(pa, name)()


class Tabular:
    """The tables of a `Catalogue`: a row for each series."""

    def rows(self: Any, select: Select | None = None) -> Iterator[dict[str, Any]]:
        """Yield a row for each series that a Select means: the cells of `to_arrow` by
        column.
        """
        series = self.series
        if select is not None:
            series = self.select(select)
        for member in series:
            yield {column.name: column.read(self, member) for column in COLUMNS}

    def to_arrow(self, select: Select | None = None) -> pyarrow.Table:
        """Return an Arrow table with a row for each series, in catalogue order. No
        request.

        The columns are those of series in the long table of a panel (docs/schema.md),
        with their names, types and order: ``entity_id`` to ``period_meaning``, then
        ``series_number_format``.

        Args:
            select: which series. None: all.

        Raises:
            SelectionError: as for `select`.
            ImportError: pyarrow is not installed.
        """
        fields = [(column.name, make_arrow_type(column.type)) for column in COLUMNS]
        rows = list(self.rows(select))
        table: pyarrow.Table = pa.Table.from_pylist(rows, pa.schema(fields))
        return table

    def to_pandas(self, select: Select | None = None) -> pandas.DataFrame:
        """Return the table of `to_arrow` as a DataFrame of pandas."""
        return make_pandas_frame(self.to_arrow(select))

    def to_polars(self, select: Select | None = None) -> polars.DataFrame:
        """Return the table of `to_arrow` as a DataFrame of polars."""
        table = self.to_arrow(select)
        frame: polars.DataFrame = library("polars", "polars").from_arrow(table)
        return frame

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a stream of Arrow's C interface, which polars and DuckDB
        read.
        """
        stream: object = self.to_arrow().__arrow_c_stream__(requested_schema)
        return stream

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: an array, or `pandas.DataFrame(catalogue)`, would be one
        column of objects.
        """
        raise TypeError("a Catalogue is not an array: write catalogue.to_pandas()")


def make_pandas_frame(table: pyarrow.Table) -> pandas.DataFrame:
    """Return a table of Arrow as a DataFrame with plain strings.

    Of dictionaries pandas makes categories, and its groups are then of all of them:
    older versions invent zeros for those that a group does not have.
    """
    library("pandas", "pandas")
    schema = table.schema
    for index, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            plain_field = field.with_type(field.type.value_type)
            schema = schema.set(index, plain_field)
    plain_table = table.cast(schema)
    frame: pandas.DataFrame = plain_table.to_pandas()
    return frame
