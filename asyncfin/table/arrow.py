"""The long and the wide Arrow table, built column by column. pyarrow is imported at
first use.
"""

import json
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, chain, count, repeat
from operator import sub
from typing import Any

from asyncfin import checks
from asyncfin.errors import ArgumentError
from asyncfin.model.frame import SeriesColumn, arrow_type, by_id
from asyncfin.model.series import CatalogueSeries
from asyncfin.optional import compute, pa
from asyncfin.table import wide
from asyncfin.table.block import pick_series
from asyncfin.table.columns import (
    Column,
    Layout,
    PeriodColumn,
    ValueColumn,
    check_layout,
    choose_columns,
    decoder,
)
from asyncfin.table.grid import Grid, describe_panel

# Observations decoded at a time: the fields of more would not fit into the processor's
# cache.
_ROWS = 4_000
# The codes of arrays whose memory Arrow can share.
_CODES = {"int32": "i", "int64": "q"}


def make_table(
    grids: Sequence[Grid],
    layout: Layout,
    columns: Iterable[str] | None,
    *,
    labels: bool | None,
    entities: bool,
    errors: Mapping[str, str] | None = None,
) -> Any:
    """Return the table of panels as `Panel.to_arrow` does.

    Args:
        labels: None: as `entities`.
        entities: the names of columns and series contain the entity's.
        errors: why entities could not be read, for the metadata.
    """
    check_layout("layout", layout)
    names = None
    if columns is not None:
        names = checks.texts("columns", columns, "name")
    if labels and layout == "long":
        raise ArgumentError("labels=True needs layout='wide'")
    if entities:
        wide.check_once(grids, layout=layout)
    facts: dict[str, Any] = {"panels": list(map(describe_panel, grids))}
    if errors is not None:
        facts["failed"] = errors
    metadata = {b"asyncfin": json.dumps(facts).encode()}
    if layout == "wide":
        if labels is None:
            labels = entities
        return wide.wide_table(grids, names, metadata, labels=labels, entities=entities)
    chosen_columns = choose_columns(names)
    tables = [_make_long_table(grid, chosen_columns) for grid in grids]
    tables = tables or [_make_schema(chosen_columns).empty_table()]
    table = pa.concat_tables(tables).unify_dictionaries()
    return table.replace_schema_metadata(metadata)


def _make_schema(columns: Iterable[Column]) -> Any:
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def _make_long_table(grid: Grid, columns: Sequence[Column]) -> Any:
    """Return one row an observation: series in catalogue order, each oldest first."""
    rows = _Observations(grid)
    # The fields of values are decoded together, each value once.
    value_columns = [column for column in columns if isinstance(column, ValueColumn)]
    with grid.error_context():
        arrays = rows.decode_columns(value_columns)
    for column in columns:
        if not isinstance(column, ValueColumn):
            arrays[column.name] = rows.read_column(column)
    # Ordering the rows took as much memory as the table, which the pool would keep.
    pa.default_memory_pool().release_unused()
    schema = _make_schema(columns)
    columns_in_order = list(map(arrays.__getitem__, schema.names))
    return pa.Table.from_arrays(columns_in_order, schema=schema)


class _Observations:
    """The observations of a grid, as the series, the period and the number of each.

    They are read block by block; `_order` has the index of each row in what was read.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        # Blocks come page by page, so the series are not in order yet: Arrow sorts
        # their indices below, instead of Python walking through one series after the
        # other.
        index = dict(zip(grid.by_id, count()))
        series, numbers, periods = array("i"), array("d"), []
        for page_block, rows in grid.rows():
            block = pick_series(page_block, rows)
            # All series of the block at once: an entry, or a series, at a time takes
            # several times as long.
            counts = map(sub, block.starts[1:], block.starts)
            places = map(index.__getitem__, block.series_ids)
            series.extend(chain.from_iterable(map(repeat, places, counts)))
            numbers += block.numbers
            indices = _wrap_array(array("i", grid.indices(block.axis)), "int32")
            periods.append(indices.take(_wrap_array(block.positions, "int32")))
        chunks = pa.chunked_array(periods, arrow_type("int32"))
        joined_periods = chunks.combine_chunks()
        self._order = _order(_wrap_array(series, "int32"), joined_periods)
        self._series = _wrap_array(series, "int32").take(self._order)
        self._periods = joined_periods.take(self._order)
        self._numbers = _wrap_array(numbers, "float64").take(self._order)
        self._by_key: dict[Any, tuple[Sequence[CatalogueSeries], Any]] = {}

    def read_column(self, column: SeriesColumn | PeriodColumn) -> Any:
        """Return a column that needs no decoding."""
        if isinstance(column, SeriesColumn):
            examples, rows = self._find_examples(column.key)
            catalogue = self._grid.catalogue
            entries = [column.read(catalogue, series) for series in examples]
            return _build_array(entries, column.type).take(rows)
        if column.read is None:
            return self._numbers
        entries = [column.read(self._grid, period) for period in self._grid.periods]
        return _build_array(entries, column.type).take(self._periods)

    def _find_examples(
        self, key: Callable[[CatalogueSeries], Hashable] | None
    ) -> tuple[Sequence[CatalogueSeries], Any]:
        """Return one series for each value of a key, and for each row the index of its
        example.
        """
        # Thousands of series share a few groups and paths, whose texts are long: each
        # is made once, and the rows take it by index.
        if key is by_id:
            return self._grid.series, self._series
        if key not in self._by_key:
            places: dict[Hashable, int] = {}
            indices, examples = array("i"), []
            for series in self._grid.series:
                entry = key and key(series)
                if entry not in places:
                    places[entry] = len(places)
                    examples.append(series)
                indices.append(places[entry])
            rows = _wrap_array(indices, "int32").take(self._series)
            self._by_key[key] = examples, rows
        return self._by_key[key]

    def decode_columns(self, columns: Sequence[ValueColumn]) -> dict[str, Any]:
        """Return the columns that are read from the values' fields.

        Raises:
            MalformedAnswerError: one of the fields breaks the spec.
        """
        chunks: dict[str, list[Any]] = {}
        for values in self._decode_chunks(columns):
            for column in columns:
                chunk = _build_array(column.read(values), column.type)
                chunks.setdefault(column.name, []).append(chunk)
        columns_in_order = {}
        # The sources, which are the largest, are joined first, while there is little
        # else. Popped, so that the chunks of a column are released as soon as they are
        # joined.
        for column in reversed(columns):
            parts = pa.chunked_array(
                chunks.pop(column.name, []), arrow_type(column.type)
            )
            entries = parts.unify_dictionaries().combine_chunks().take(self._order)
            # The words of a dictionary are in the order of reading. Encoding them again
            # puts them in the order of the rows, so that equal panels are equal tables,
            # whatever the order of their pages.
            if column.type == "word":
                entries = entries.dictionary_decode().dictionary_encode()
            columns_in_order[column.name] = entries
        return columns_in_order

    def _decode_chunks(self, columns: Sequence[ValueColumn]) -> Iterator[list[Any]]:
        """Yield the decoded observations, in the order of reading, `_ROWS` or a few
        more at a time.
        """
        kinds = {column.field: column.kind for column in columns}
        chunk: list[Any] = []
        # Without such a column nothing is decompressed.
        for block, rows in self._grid.rows() if columns else ():
            entries = self._grid.store.entries(
                block, rows, decoder(tuple(kinds.items()))
            )
            chunk.extend(filter(None, chain.from_iterable(entries)))
            if len(chunk) >= _ROWS:
                yield chunk
                chunk = []
        if chunk:
            yield chunk


def _order(series: Any, periods: Any) -> Any:
    """Return the indices of the rows in order of series, without those of periods
    outside the grid.
    """
    # The sort is stable: within a series the rows stay oldest first.
    order = compute.sort_indices(series)
    return order.filter(compute.greater_equal(periods, 0).take(order))


def _wrap_array(values: "array[Any]", type_name: str) -> Any:
    """Return an Arrow array that shares an array's memory."""
    return pa.Array.from_buffers(
        arrow_type(type_name), len(values), [None, pa.py_buffer(values)]
    )


def _build_array(entries: list[Any], type_name: str) -> Any:
    """Return the Arrow array of entries."""
    if type_name == "sources":
        return _build_sources(entries)
    if type_name in _CODES:
        with suppress(TypeError):  # None: what the service did not state
            # It shares the memory; Arrow would copy a list entry by entry.
            return _wrap_array(array(_CODES[type_name], entries), type_name)
    return pa.array(entries, arrow_type(type_name))


def _build_sources(entries: list[Any]) -> Any:
    """Return a column of lists of sources, built from their fields: many times faster
    than from objects.
    """
    type_ = arrow_type("sources")
    sources = list(chain.from_iterable(entries))
    items = [source.item_id for source in sources]
    rows = [source.row_index for source in sources]
    places = [source.column_index for source in sources]
    children = [
        pa.array(items, pa.string()),
        _build_array(rows, "int64"),
        _build_array(places, "int64"),
    ]
    structs = pa.StructArray.from_arrays(children, fields=list(type_.value_type))
    offsets = array("i", accumulate(map(len, entries), initial=0))
    return pa.ListArray.from_arrays(_wrap_array(offsets, "int32"), structs)
