"""The catalogue as a table. Arrow and the frame libraries are imported at first use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from attrs import frozen

from asyncfin.model.scope import ScopePath
from asyncfin.model.select import Select
from asyncfin.model.series import COLUMN_OF, SERIES_FIELDS, CatalogueSeries, cell_of
from asyncfin.optional import library, pa

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


@frozen
class SeriesColumn:
    """A column of what a catalogue says of its series, in its table and in those of panels.

    Attributes:
        type: the name of its Arrow type, as in docs/schema.md.
        read: what it is, of a Catalogue and one of its series.
        by: the key of a series: series with an equal one have the same entry.
    """

    name: str
    type: str
    read: Callable[[Any, CatalogueSeries], Any]
    by: Callable[[CatalogueSeries], Hashable]


_by_id = attrgetter("series_id")
_by_group = attrgetter("reporting_group_id")
_by_path = attrgetter("scopes")


def _same(name: str, attribute: str) -> SeriesColumn:
    return SeriesColumn(name, "word", lambda catalogue, _: getattr(catalogue, attribute), lambda _: None)


def _field(name: str) -> SeriesColumn:
    by = _by_path if name == "scopes" else _by_id
    return SeriesColumn(COLUMN_OF[name], "word", lambda _, series: cell_of(series, name), by)


def _group(name: str, attribute: str) -> SeriesColumn:
    def read(catalogue: Any, series: CatalogueSeries) -> Any:
        return getattr(catalogue.by_group[series.reporting_group_id], attribute)

    return SeriesColumn(name, "word", read, _by_group)


def _path(name: str, kind: str, read: Callable[[Any, ScopePath], Any]) -> SeriesColumn:
    return SeriesColumn(name, kind, lambda catalogue, series: read(catalogue, series.scopes), _by_path)


_FIRST = (
    _same("entity_id", "entity_id"),
    _same("entity_name", "name"),
    _same("dataset_id", "dataset_id"),
    _field("series_id"),
    _field("metric_id"),
    _field("reporting_group_id"),
    _group("reporting_group_name", "name"),
    _path("scopes", "scopes", lambda _, path: [(ref.scope_group_id, ref.scope_id) for ref in path]),
    _field("scopes"),
    _path("scope_names", "words", lambda catalogue, path: catalogue.scope_names(path)),
    _field("label"),
    _field("description"),
    _field("basis"),
    _group("cadence", "cadence"),
    _field("period_meaning"),
    _field("number_format"),
)
_NAMED = {column.name for column in _FIRST}
COLUMNS = (*_FIRST, *(_field(name) for name in SERIES_FIELDS if COLUMN_OF[name] not in _NAMED))
# The types of cells that have several entries, which a line of CSV does not have.
LISTS = ("words", "scopes", "sources")


@cache
def arrow_type(name: str) -> Any:
    """Return the Arrow type of a name in docs/schema.md."""
    match name:
        case "word":
            return pa.dictionary(pa.int32(), pa.string())
        case "words":
            return pa.list_(pa.string())
        case "scopes":
            return pa.list_(pa.struct([("scope_group_id", pa.string()), ("scope_id", pa.string())]))
        case "sources":
            indices = [("row_index", pa.int64()), ("column_index", pa.int64())]
            return pa.list_(pa.struct([("item_id", pa.string()), *indices]))
    return getattr(pa, name)()


class Tabular:
    """The tables of a `Catalogue`: a row for each series."""

    def rows(self, select: Select | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the row of each series that a Select means, with the columns of `to_arrow`."""
        raise NotImplementedError

    def to_arrow(self, select: Select | None = None) -> pyarrow.Table:
        """Return an Arrow table with a row for each series, in catalogue order. No request.

        The columns are those of series in the long table of a panel (docs/schema.md), with their names,
        types and order: ``entity_id`` to ``period_meaning``, then ``series_number_format``.

        Args:
            select: which series. None: all.

        Raises:
            SelectionError: as for `select`.
            ImportError: pyarrow is not installed.
        """
        entries = list(zip(*self.rows(select), strict=True)) or [()] * len(COLUMNS)
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in COLUMNS])
        table: pyarrow.Table = pa.Table.from_arrays(
            [pa.array(each, kind) for each, kind in zip(entries, schema.types, strict=True)], schema=schema
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
