"""The long and the wide Arrow table, built column by column. pyarrow is imported at
first use.
"""

import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, chain, combinations, count, repeat
from operator import attrgetter, sub
from typing import Any, NamedTuple

from asyncfin import checks
from asyncfin.errors import (
    ArgumentError,
    MalformedAnswerError,
    SelectionError,
    printable,
)
from asyncfin.model.catalogue import publication_id
from asyncfin.model.frame import SeriesColumn, make_arrow_type
from asyncfin.model.period import Period
from asyncfin.optional import compute, pa
from asyncfin.table.block import pick_series
from asyncfin.table.columns import (
    COLUMNS,
    PERIOD_FIELDS,
    Column,
    Layout,
    PeriodColumn,
    ValueColumn,
    check_layout,
    choose_columns,
    make_decoder,
)
from asyncfin.table.grid import Grid, describe_panel, group_pairs
from asyncfin.table.naming import join_texts, name_by_ids, name_rows
from asyncfin.table.rows import Row, rows_of
from asyncfin.words import counted, entity_names, spanned

# Observations decoded at a time: the fields of more would not fit into the processor's
# cache.
_ROWS = 4_000
# The codes of arrays whose memory Arrow can share.
_CODES = {"int32": "i", "int64": "q"}
# The column of period labels, where labels are requested.
_PERIOD = "period"
# What may be the index of a wide table, and no name of a series.
_INDEX = (*PERIOD_FIELDS, _PERIOD)


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
    if labels and layout == "long":
        raise ArgumentError("labels=True needs layout='wide'")
    names = None
    if columns is not None:
        names = checks.texts("columns", columns, "name")
    if entities:
        _check_once(grids, layout=layout)
    if layout == "wide":
        has_labels = entities if labels is None else labels
        table = _make_wide_table(grids, names, labels=has_labels, entities=entities)
    else:
        chosen_columns = choose_columns(names or COLUMNS, COLUMNS)
        tables = [_make_long_table(grid, chosen_columns) for grid in grids]
        tables = tables or [_make_schema(chosen_columns).empty_table()]
        table = pa.concat_tables(tables).unify_dictionaries()
    facts: dict[str, Any] = {"panels": list(map(describe_panel, grids))}
    if errors is not None:
        facts["failed"] = errors
    metadata = {b"asyncfin": json.dumps(facts).encode()}
    if layout == "wide":
        metadata[b"pandas"] = _set_index(table.column_names)
    return table.replace_schema_metadata(metadata)


def _make_wide_table(
    grids: Sequence[Grid],
    columns: Iterable[str] | None,
    *,
    labels: bool,
    entities: bool,
) -> Any:
    """Return one row a period: its fields, or its label if `labels`, then the numbers
    of each series.

    Args:
        columns: columns of the index, series ids and names, in their order. None: all.

    Raises:
        SelectionError: a column is unknown, or two would have the same name.
    """
    names = _name_columns(grids, labels=labels, entities=entities)
    periods = _find_periods(grids)
    by_name = dict(zip(names.values(), names, strict=True))
    if columns is None:
        index_names = [_PERIOD] if labels else PERIOD_FIELDS
        column_names = [*index_names, *by_name]
    else:
        names_of = {name: [name] for name in (*_INDEX, *by_name)}
        # A series id that is no name means every series that has it.
        ids = group_pairs((row.series.series_id, name) for row, name in names.items())
        for series_id, same_id in ids.items():
            names_of.setdefault(series_id, same_id)
        chosen_names = chain.from_iterable(choose_columns(columns, names_of))
        column_names = list(dict.fromkeys(chosen_names))
    fields, arrays = [], []
    for name in column_names:
        cells = None
        if name == _PERIOD:
            array = pa.array(map(str, periods), pa.string())
        elif name in PERIOD_FIELDS:
            array = pa.array(map(attrgetter(name), periods), pa.int32())
        else:
            row = by_name[name]
            cells = row.cells
            numbers = row.grid.numbers(row.series.series_id)
            array = pa.array(list(map(numbers.get, periods)), pa.float64())
        fields.append(pa.field(name, array.type, metadata=cells))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _name_columns(
    grids: Sequence[Grid], *, labels: bool, entities: bool
) -> dict[Row, str]:
    """Return the column of each series.

    Raises:
        SelectionError: two would have the same name, so that no frame could have both.
    """
    rows = rows_of(grids)
    if labels:
        companies = grids if entities else ()
        names = name_rows(rows, group_names=True, entities=companies).joined
        for row, name in names.items():
            if name in _INDEX:
                names[row] = join_texts((name, row.series.series_id))
    else:
        names = name_by_ids(rows, entities=entities).joined
    counts = Counter([*_INDEX, *names.values()])
    ((name, count),) = counts.most_common(1)
    if count > 1:
        raise SelectionError(
            f"two columns would have the name {name!r}: use layout='long'"
        )
    return names


def _find_periods(grids: Sequence[Grid]) -> list[Period]:
    """Return the rows of the wide table of panels, oldest first.

    Raises:
        SelectionError: one of them was not requested for a panel whose catalogue has
            it. A null would not mean that no value exists.
    """
    periods = sorted(set().union(*map(attrgetter("rows_of_wide"), grids)))
    names = entity_names(map(attrgetter("catalogue"), grids))
    for grid in grids:
        missing = sorted(grid.omitted_periods.intersection(periods))
        if missing:
            name = printable(names[grid.catalogue.entity_id])
            raise SelectionError(
                f"{name}: {counted(len(missing), 'period')} ({spanned(missing)}) not "
                "requested, which its catalogue has and another panel shows: resolve a "
                "rule such as Quarterly(last=8) over all catalogues, exact = "
                "rule.resolve(catalogues), and request exact of each entity, or use "
                "layout='long'"
            )
    return periods


def _set_index(names: Sequence[str]) -> bytes:
    """Return the metadata that make columns the index of a DataFrame."""
    index = list(filter(_INDEX.__contains__, names))
    columns = []
    for name in index:
        columns.append(
            {
                "name": name,
                "field_name": name,
                "metadata": None,
                "pandas_type": "object",
                "numpy_type": "object",
            }
        )
    return json.dumps({"index_columns": index, "columns": columns}).encode()


def _check_once(grids: Iterable[Grid], *, layout: str) -> None:
    """Reject panels of which two have the same series, as its values would be in a
    table twice.

    Raises:
        SelectionError: they do. In the long layout, parts of a series at different
            periods are allowed.
    """
    pairs = []
    for grid in grids:
        catalogue = grid.catalogue
        publication = publication_id(catalogue.dataset_id)
        pairs.append(((catalogue.entity_id, publication, grid.value_version), grid))
    for same_version in group_pairs(pairs).values():
        # Only those that share a series: to compare each panel with all others takes
        # seconds for a thousand.
        grids_by_id: dict[str, list[Grid]] = {}
        for grid in same_version:
            for series_id in grid.by_id:
                grids_by_id.setdefault(series_id, []).append(grid)
        for sharing in dict.fromkeys(map(tuple, grids_by_id.values())):
            for grid, later_grid in combinations(sharing, 2):
                is_apart = set(grid.periods).isdisjoint(later_grid.periods)
                if is_apart and layout == "long":
                    continue
                twice = min(grid.by_id.keys() & later_grid.by_id.keys())
                raise SelectionError(
                    f"the same series twice: {printable(grid.catalogue.name)} has "
                    f"{twice!r} in two of the panels"
                )


def _make_schema(columns: Iterable[Column]) -> Any:
    fields = []
    for column in columns:
        fields.append((column.name, make_arrow_type(column.type)))
    return pa.schema(fields)


def _make_long_table(grid: Grid, columns: Sequence[Column]) -> Any:
    """Return one row an observation: series in catalogue order, each oldest first."""
    rows = _find_rows(grid)
    # The fields of values are decoded together, each value once.
    value_columns = [column for column in columns if isinstance(column, ValueColumn)]
    try:
        arrays = _decode_columns(grid, value_columns, rows.order)
    except MalformedAnswerError as error:
        grid.complete(error)
        raise
    for column in columns:
        if isinstance(column, SeriesColumn):
            entries = column.list_entries(grid.catalogue, grid.series)
            array = _build_array(entries, column.type)
            arrays[column.name] = array.take(rows.series)
        elif isinstance(column, PeriodColumn) and column.read:
            array = _build_array(column.read(grid), column.type)
            arrays[column.name] = array.take(rows.periods)
        elif isinstance(column, PeriodColumn):
            arrays[column.name] = rows.numbers
    # Ordering the rows took as much memory as the table, which the pool would keep.
    pa.default_memory_pool().release_unused()
    schema = _make_schema(columns)
    columns_in_order = list(map(arrays.__getitem__, schema.names))
    return pa.Table.from_arrays(columns_in_order, schema=schema)


class _Rows(NamedTuple):
    """The rows of the long table, as arrays: the index of each in the order of reading,
    its series and its period in the grid, and its number.
    """

    order: Any
    series: Any
    periods: Any
    numbers: Any


def _find_rows(grid: Grid) -> _Rows:
    # Blocks come page by page, so the series are not in order yet: Arrow sorts their
    # indices below, instead of Python walking through one series after the other.
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
    chunks = pa.chunked_array(periods, make_arrow_type("int32"))
    joined_periods = chunks.combine_chunks()
    all_series = _wrap_array(series, "int32")
    # The sort is stable: within a series the rows stay oldest first. Those of periods
    # outside the grid are left out.
    order = compute.sort_indices(all_series)
    is_inside = compute.greater_equal(joined_periods, 0)
    order = order.filter(is_inside.take(order))
    return _Rows(
        order,
        all_series.take(order),
        joined_periods.take(order),
        _wrap_array(numbers, "float64").take(order),
    )


def _decode_columns(
    grid: Grid, columns: Sequence[ValueColumn], order: Any
) -> dict[str, Any]:
    """Return the columns that are read from the values' fields.

    Raises:
        MalformedAnswerError: one of the fields breaks the spec.
    """
    chunks: dict[str, list[Any]] = {column.name: [] for column in columns}
    for values in _decode_chunks(grid, columns):
        for column in columns:
            array = _build_array(column.read(values), column.type)
            chunks[column.name].append(array)
    arrays = {}
    # The sources, which are the largest, are joined first, while there is little else.
    # Popped, so that the chunks of a column are released as soon as they are joined.
    for column in reversed(columns):
        type_ = make_arrow_type(column.type)
        parts = pa.chunked_array(chunks.pop(column.name), type_)
        entries = parts.unify_dictionaries().combine_chunks().take(order)
        # The words of a dictionary are in the order of reading. Encoding them again
        # puts them in the order of the rows, so that equal panels are equal tables,
        # whatever the order of their pages.
        if column.type == "word":
            entries = entries.dictionary_decode().dictionary_encode()
        arrays[column.name] = entries
    return arrays


def _decode_chunks(grid: Grid, columns: Sequence[ValueColumn]) -> Iterator[list[Any]]:
    """Yield the decoded observations, in the order of reading, `_ROWS` or a few more at
    a time.
    """
    kinds = {column.field: column.kind for column in columns}
    chunk: list[Any] = []
    if not columns:  # nothing is decompressed
        return
    observation_decoder = make_decoder(tuple(kinds.items()))
    for block, rows in grid.rows():
        entries = grid.store.read_entries(block, rows, observation_decoder)
        chunk.extend(filter(None, chain.from_iterable(entries)))
        if len(chunk) >= _ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _wrap_array(values: "array[Any]", type_name: str) -> Any:
    """Return an Arrow array that shares an array's memory."""
    return pa.Array.from_buffers(
        make_arrow_type(type_name), len(values), [None, pa.py_buffer(values)]
    )


def _build_array(entries: list[Any], type_name: str) -> Any:
    """Return the Arrow array of entries."""
    if type_name == "sources":
        return _build_sources(entries)
    if type_name in _CODES:
        with suppress(TypeError):  # None: what the service did not state
            # It shares the memory; Arrow would copy a list entry by entry.
            return _wrap_array(array(_CODES[type_name], entries), type_name)
    return pa.array(entries, make_arrow_type(type_name))


def _build_sources(entries: list[Any]) -> Any:
    """Return a column of lists of sources, built from their fields: many times faster
    than from objects.
    """
    type_ = make_arrow_type("sources")
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
