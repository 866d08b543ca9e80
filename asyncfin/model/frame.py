"""The catalogue as a table. Arrow and the frame libraries are imported at first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from asyncfin.model.scope import format_path
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
        field: the field of a series that its entry depends on.
        read: the entry for a Catalogue and such a field. None: the field itself.
        type: the name of its Arrow type, as in docs/schema.md.
    """

    name: str
    field: str
    read: Callable[[Any, Any], Any] | None = None
    type: str = "word"

    def list_entries(
        self, catalogue: Any, series: Iterable[CatalogueSeries]
    ) -> list[Any]:
        """Return the entry for each series of a Catalogue."""
        keys = list(map(attrgetter(self.field), series))
        if self.read is None:
            return keys
        # Thousands of series share a few groups and paths.
        entries = {key: self.read(catalogue, key) for key in set(keys)}
        return list(map(entries.__getitem__, keys))


def _read_field(name: str) -> SeriesColumn:
    return SeriesColumn(COLUMN_OF[name], name)


_GROUP = "reporting_group_id"
_PATH = "scopes"
COLUMNS = (
    SeriesColumn("entity_id", _GROUP, lambda catalogue, _: catalogue.entity_id),
    SeriesColumn("entity_name", _GROUP, lambda catalogue, _: catalogue.name),
    SeriesColumn("dataset_id", _GROUP, lambda catalogue, _: catalogue.dataset_id),
    _read_field("series_id"),
    _read_field("metric_id"),
    _read_field("reporting_group_id"),
    SeriesColumn(
        "reporting_group_name",
        _GROUP,
        lambda catalogue, id_: catalogue.by_group[id_].name,
    ),
    SeriesColumn(
        "scopes",
        _PATH,
        # A tuple: the rows of series on one path share it.
        lambda _, path: tuple((ref.scope_group_id, ref.scope_id) for ref in path),
        "scopes",
    ),
    SeriesColumn("scope_path", _PATH, lambda _, path: format_path(path)),
    SeriesColumn(
        "scope_names",
        _PATH,
        lambda catalogue, path: catalogue.scope_names(path),
        "words",
    ),
    _read_field("label"),
    _read_field("description"),
    _read_field("basis"),
    SeriesColumn(
        "cadence", _GROUP, lambda catalogue, id_: catalogue.by_group[id_].cadence
    ),
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
        names = [column.name for column in COLUMNS]
        columns = [column.list_entries(self, series) for column in COLUMNS]
        for cells in zip(*columns, strict=True):
            yield dict(zip(names, cells, strict=True))

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
