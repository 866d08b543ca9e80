"""The wide tables: a row for each period, a column of numbers for each series, and
their names.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, filterfalse
from operator import attrgetter
from typing import Any

from asyncfin.errors import SelectionError, printable
from asyncfin.model.catalogue import publication_id
from asyncfin.model.period import Period
from asyncfin.optional import pa
from asyncfin.table.columns import PERIOD_FIELDS
from asyncfin.table.grid import Grid
from asyncfin.table.naming import id_rows, join_texts, name_rows
from asyncfin.table.rows import Row, rows_of
from asyncfin.words import counted, entity_names, spanned

# The column of period labels, where labels are requested.
PERIOD = "period"
# What may be the index of a wide table, and no name of a series.
INDEX = (*PERIOD_FIELDS, PERIOD)


def wide_table(
    grids: Sequence[Grid],
    columns: Iterable[str] | None,
    metadata: Mapping[bytes, bytes],
    *,
    labels: bool,
    entities: bool,
) -> Any:
    """Return one row a period: its fields, or its label if `labels`, then the numbers
    of each series.

    Args:
        columns: columns of the index, series ids and names, in their order. None: all.
        metadata: of the schema.

    Raises:
        SelectionError: a column is unknown, or two would have the same name.
    """
    rows = rows_of(grids)
    names = id_rows(rows, entities=entities).joined
    if labels:
        companies = grids if entities else ()
        names = name_rows(rows, group_names=True, entities=companies).joined
        for row, name in names.items():
            if name in INDEX:
                names[row] = join_texts((name, row.series.series_id))
    by_name = dict(zip(names.values(), names, strict=True))
    # A frame with two columns of one name can be read by neither.
    ((name, count),) = Counter([*INDEX, *names.values()]).most_common(1)
    if count > 1:
        raise SelectionError(
            f"two columns would have the name {name!r}: use layout='long'"
        )
    periods = _find_periods(grids)
    if columns is not None:
        column_names = _choose_columns(columns, names)
    elif labels:
        column_names = [PERIOD, *by_name]
    else:
        column_names = [*PERIOD_FIELDS, *by_name]
    fields, arrays = [], []
    for name in column_names:
        if name in by_name:
            row = by_name[name]
            numbers = row.grid.numbers(row.series.series_id)
            array = pa.array(list(map(numbers.get, periods)), pa.float64())
            fields.append(pa.field(name, array.type, metadata=row.cells))
        else:
            array = _read_index(name, periods)
            fields.append(pa.field(name, array.type))
        arrays.append(array)
    index_metadata = {b"pandas": _set_index(column_names)}
    schema = pa.schema(fields, metadata={**metadata, **index_metadata})
    return pa.Table.from_arrays(arrays, schema=schema)


def _read_index(name: str, periods: Sequence[Period]) -> Any:
    """Return a column of the index."""
    if name == PERIOD:
        return pa.array(map(str, periods), pa.string())
    return pa.array(map(attrgetter(name), periods), pa.int32())


def _find_periods(grids: Sequence[Grid]) -> list[Period]:
    """Return the rows of the wide table of panels, oldest first.

    Raises:
        SelectionError: one of them was not requested for a panel whose catalogue has
            it. A null would not mean that no value exists.
    """
    periods = sorted(set().union(*map(attrgetter("rows_of_wide"), grids)))
    if len(grids) == 1:
        return periods
    names = entity_names(map(attrgetter("catalogue"), grids))
    for grid in grids:
        missing = list(filterfalse(grid.covers, periods))
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


def _choose_columns(columns: Iterable[str], names: Mapping[Row, str]) -> list[str]:
    """Return the names of the requested columns; a series id means every series that
    has it.
    """
    names_of: dict[str, list[str]] = {}
    for row, name in names.items():
        names_of.setdefault(row.series.series_id, []).append(name)
    for name in (*INDEX, *names.values()):
        names_of[name] = [name]
    column_names: dict[str, None] = {}
    for name in columns:
        if name not in names_of:
            raise SelectionError(
                f"columns must be {', '.join(INDEX)} or series of the table, not "
                f"{name!r}"
            )
        column_names |= dict.fromkeys(names_of[name])
    return list(column_names)


def _set_index(names: Sequence[str]) -> bytes:
    """Return the metadata that make columns the index of a DataFrame."""
    index = list(filter(INDEX.__contains__, names))
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


def check_once(grids: Iterable[Grid], *, layout: str) -> None:
    """Reject panels of which two have the same series, as its values would be in a
    table twice.

    Raises:
        SelectionError: they do. In the long layout, parts of a series at different
            periods are allowed.
    """
    versions: dict[tuple[str, str, str], list[Grid]] = {}
    for grid in grids:
        catalogue = grid.catalogue
        publication = publication_id(catalogue.dataset_id)
        key = (catalogue.entity_id, publication, grid.value_version)
        versions.setdefault(key, []).append(grid)
    # Within a version: to compare each panel with all others takes seconds for a
    # thousand.
    for same_version in versions.values():
        for grid, later_grid in combinations(same_version, 2):
            is_apart = set(grid.periods).isdisjoint(later_grid.periods)
            twice = sorted(grid.by_id.keys() & later_grid.by_id.keys())
            if twice and not (is_apart and layout == "long"):
                raise SelectionError(
                    f"the same series twice: {printable(grid.catalogue.name)} has "
                    f"{twice[0]!r} in two of the panels"
                )
