"""The long and the wide Arrow table, built column by column. pyarrow is imported at
first use.
"""

import json
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate, chain, repeat
from operator import sub
from typing import Any

from asyncfin.errors import ArgumentError
from asyncfin.model.frame import arrow_type, by_id
from asyncfin.model.series import CatalogueSeries
from asyncfin.optional import compute, pa
from asyncfin.table import wide
from asyncfin.table.block import pick_series
from asyncfin.table.columns import (
    Column,
    Layout,
    OfPeriod,
    OfSeries,
    OfValue,
    check_layout,
    choose_columns,
    column_names,
    decoder,
)
from asyncfin.table.grid import Grid, describe_panel

# Observations decoded at a time: the fields of more would not fit into the processor's
# cache.
_ROWS = 4_000


def make_table(
    grids: Sequence[Grid],
    layout: Layout,
    columns: Iterable[str] | None,
    *,
    labels: bool | None,
    entities: bool,
    failed: Mapping[str, str] | None = None,
) -> Any:
    """Return the table of panels as `Panel.to_arrow` does.

    Args:
        labels: None: as `entities`.
        entities: the names of columns and series contain the entity's.
        failed: why entities could not be read, for the metadata.
    """
    check_layout("layout", layout)
    names = column_names(columns)
    if labels and layout == "long":
        raise ArgumentError("labels=True needs layout='wide'")
    if entities:
        wide.check_once(grids, layout=layout)
    facts: dict[str, Any] = {"panels": [describe_panel(grid) for grid in grids]}
    if failed is not None:
        facts["failed"] = failed
    metadata = {b"asyncfin": json.dumps(facts).encode()}
    if layout == "wide":
        labels = entities if labels is None else labels
        return wide.wide_table(grids, names, metadata, labels=labels, entities=entities)
    chosen_columns = choose_columns(names)
    tables = [_make_long_table(grid, chosen_columns) for grid in grids]
    tables = tables or [_make_schema(chosen_columns).empty_table()]
    whole = pa.concat_tables(tables).unify_dictionaries()
    return whole.replace_schema_metadata(metadata)


def _make_schema(columns: Iterable[Column]) -> Any:
    return pa.schema([(column.name, arrow_type(column.type)) for column in columns])


def _make_long_table(grid: Grid, columns: Sequence[Column]) -> Any:
    """Return one row an observation: series in catalogue order, each oldest first."""
    rows = _Observations(grid)
    # Two kinds of columns: those that are known without decoding a value, and the
    # fields of values, which are decoded together, each value once.
    of_values = [column for column in columns if isinstance(column.origin, OfValue)]
    with grid.error_context():
        arrays = rows.decoded(of_values)
    for column in columns:
        if column not in of_values:
            arrays[column.name] = rows.column(column)
    # Ordering the rows took as much memory as the table, which the pool would keep.
    pa.default_memory_pool().release_unused()
    schema = _make_schema(columns)
    return pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)


class _Observations:
    """The observations of a grid, as the series, the period and the number of each.

    They are read block by block; `_order` has the index of each row in what was read.
    """

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        # Blocks come page by page, so the series are not in order yet: Arrow sorts
        # their indices below, instead of Python walking through one series after the
        # other.
        index = {series.series_id: place for place, series in enumerate(grid.series)}
        series, numbers, periods = array("i"), array("d"), []
        for whole, rows in grid.rows():
            block = pick_series(whole, rows)
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

    def column(self, column: Column) -> Any:
        """Return a column that needs no decoding."""
        match column.origin:
            case OfSeries(read=read, by=None):
                # Series are there where a row is.
                words = pa.array(read(self._grid, self._grid.series[:1]), pa.string())
                return pa.DictionaryArray.from_arrays(self._zeros, words)
            case OfSeries(read=read, by=by) if by is not None:
                examples, rows = self._find_examples(by)
                return _build_array(read(self._grid, examples), column.type).take(rows)
            case OfPeriod(read=read):
                entries = [read(period) for period in self._grid.periods]
                return _build_array(entries, column.type).take(self._periods)
        return self._numbers

    @cached_property
    def _zeros(self) -> Any:
        return _wrap_array(array("i", bytes(4 * len(self._series))), "int32")

    def _find_examples(
        self, by: Callable[[CatalogueSeries], Hashable]
    ) -> tuple[Sequence[CatalogueSeries], Any]:
        """Return one series for each value of `by`, and for each row the index of its
        example.
        """
        # Thousands of series share a few groups and paths, whose texts are long: each
        # is made once, and the rows take it by index.
        if by is by_id:
            return self._grid.series, self._series
        if by not in self._by_key:
            series, places = self._grid.series, dict[Hashable, int]()
            indices = array(
                "i", [places.setdefault(by(head), len(places)) for head in series]
            )
            # Reversed: the first series of each key stays.
            examples = dict(zip(reversed(indices), reversed(series), strict=True))
            rows = _wrap_array(indices, "int32").take(self._series)
            self._by_key[by] = [examples[index] for index in range(len(places))], rows
        return self._by_key[by]

    def decoded(self, columns: list[Column]) -> dict[str, Any]:
        """Return the columns that are read from the values' fields.

        Raises:
            MalformedAnswerError: one of the fields breaks the spec.
        """
        chunks: dict[str, list[Any]] = {column.name: [] for column in columns}
        for values in self.decoded_chunks(columns):
            for column in columns:
                assert isinstance(column.origin, OfValue)
                chunks[column.name].append(
                    _build_array(column.origin.read(values), column.type)
                )
        columns_in_order = {}
        # The sources, which are the largest, are joined first, while there is little
        # else. Popped, so that the chunks of a column are released as soon as they are
        # joined.
        for column in reversed(columns):
            chunked = pa.chunked_array(chunks.pop(column.name), arrow_type(column.type))
            entries = chunked.unify_dictionaries().combine_chunks().take(self._order)
            # The words of a dictionary are in the order of reading. Encoding them again
            # puts them in the order of the rows, so that equal panels are equal tables,
            # whatever the order of their pages.
            if column.type == "word":
                entries = entries.dictionary_decode().dictionary_encode()
            columns_in_order[column.name] = entries
        return columns_in_order

    def decoded_chunks(self, columns: list[Column]) -> Iterator[list[Any]]:
        """Yield the decoded observations, in the order of reading, `_ROWS` or a few
        more at a time.
        """
        kinds = {
            column.origin.field: column.origin.kind
            for column in columns
            if isinstance(column.origin, OfValue)
        }
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
    match type_name:
        case "int32" | "int64":
            with suppress(TypeError):  # None: what the service did not state
                # It shares the memory; Arrow would copy a list entry by entry.
                return _wrap_array(
                    array("i" if type_name == "int32" else "q", entries), type_name
                )
        case "sources":
            return _build_sources(entries)
        case "scopes":
            groups, scopes = (
                zip(*chain.from_iterable(entries), strict=True)
                if any(entries)
                else ((), ())
            )
            return _build_lists(
                type_name,
                entries,
                [pa.array(groups, pa.string()), pa.array(scopes, pa.string())],
            )
    return pa.array(entries, arrow_type(type_name))


def _build_sources(entries: list[Any]) -> Any:
    """Return the column of sources."""
    sources = list(chain.from_iterable(entries))
    items = pa.array([source.item_id for source in sources], pa.string())
    rows = _build_array([source.row_index for source in sources], "int64")
    columns = _build_array([source.column_index for source in sources], "int64")
    return _build_lists("sources", entries, [items, rows, columns])


def _build_lists(type_name: str, entries: list[Any], children: list[Any]) -> Any:
    """Return a column of lists of structs, built from their fields: many times faster
    than from objects.
    """
    structs = pa.StructArray.from_arrays(
        children, fields=list(arrow_type(type_name).value_type)
    )
    offsets = array("i", accumulate(map(len, entries), initial=0))
    return pa.ListArray.from_arrays(_wrap_array(offsets, "int32"), structs)
