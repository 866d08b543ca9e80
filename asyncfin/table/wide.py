"""The wide tables: a row for each period, a column of numbers for each series, and
their names.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from typing import Any, TypeAlias

from asyncfin.errors import SelectionError, printable
from asyncfin.model.catalogue import publication_id
from asyncfin.model.period import Period
from asyncfin.model.series import COLUMN_OF, SERIES_FIELDS, cell_of
from asyncfin.optional import pa
from asyncfin.table.columns import PERIOD_FIELDS
from asyncfin.table.grid import Grid
from asyncfin.table.naming import join_texts, name_rows
from asyncfin.table.rows import Row, rows_of
from asyncfin.words import counted, entity_names, listed, spanned

# The column of period labels, where labels are requested.
PERIOD = "period"
# What may be the index of a wide table, and no name of a series.
INDEX = (*PERIOD_FIELDS, PERIOD)
# A column of numbers: a series, or a panel without any.
Numbers: TypeAlias = Row | Grid


def label_rows(
    rows: Sequence[Row], empty: Sequence[Grid], entities: bool
) -> dict[Row, str]:
    """Name each series by the texts that distinguish it, joined. No two are alike.

    Args:
        empty: panels without series, whose entities are distinguished too.
        entities: begin each name with the entity's.
    """
    if not rows:
        return {}
    names = name_rows(
        rows, group_names=True, entities=entities, grids=empty, reserved=INDEX
    )
    texts = {row: join_texts(names.texts[row]) for row in rows}
    return _make_unique(texts)


def _make_unique(names: Mapping[Any, str]) -> dict[Any, str]:
    counts = Counter(INDEX)
    unique = {}
    for column, name in names.items():
        # Arrow's C interface ends a name at NUL.
        name = text = name.replace("\0", r"\x00")
        while counts[text]:
            counts[name] += 1
            text = f"{name} ({counts[name] - 1})"
        counts[text] += 1
        unique[column] = text
    return unique


def _name_columns(
    grids: Sequence[Grid], *, labels: bool, entities: bool
) -> dict[Numbers, str]:
    """Name the columns of numbers, panel by panel. One of a comparison without series
    is its own column.
    """
    rows = rows_of(grids)
    if not entities and not labels:
        return {row: row.series.series_id for row in rows}
    empty = [grid for grid in grids if entities and not grid.series]
    names: dict[Any, str] = {}
    if labels:
        entity_of = entity_names(grid.catalogue for grid in grids)
        names |= label_rows(rows, empty, entities)
        names |= {grid: entity_of[grid.catalogue.entity_id] for grid in empty}
        names = _make_unique(names)
    else:
        names |= _join_ids([*rows, *empty])
    # In the order of the panels.
    order = {grid: place for place, grid in enumerate(grids)}
    return dict(sorted(names.items(), key=lambda item: order[_get_grid(item[0])]))


def _get_grid(column: Numbers) -> Grid:
    return column.grid if isinstance(column, Row) else column


def _join_ids(columns: Sequence[Numbers]) -> dict[Numbers, str]:
    """Join entity id and series id of each column; value version and publication where
    only they differ.
    """
    grids = list(map(_get_grid, columns))
    texts = [
        [grid.catalogue.entity_id for grid in grids],
        [row.series.series_id if isinstance(row, Row) else "" for row in columns],
        [grid.value_version for grid in grids],
        [grid.catalogue.dataset_id for grid in grids],
    ]
    for count in (2, 3, 4):
        names = [join_texts(parts) for parts in zip(*texts[:count], strict=True)]
        if len(set(names)) == len(columns):
            break
    return dict(zip(columns, names, strict=True))


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
        SelectionError: a column is unknown, or a series has the name of a period's
            column.
    """
    names = _name_columns(grids, labels=labels, entities=entities)
    # A frame with two columns of one name can be read by neither.
    for name in names.values():
        if name in INDEX:
            raise SelectionError(
                f"series id {name!r} is a column of the wide layout: use layout='long'"
            )
    periods = _find_rows(grids)
    index = {
        PERIOD: pa.array([period.label for period in periods], pa.string()),
        **{
            field: pa.array([getattr(period, field) for period in periods], pa.int32())
            for field in PERIOD_FIELDS
        },
    }
    by_name = {name: column for column, name in names.items()}
    chosen = [*((PERIOD,) if labels else PERIOD_FIELDS), *by_name]
    if columns is not None:
        chosen = _choose_columns(columns, names)
    fields, arrays = [], []
    for name in chosen:
        described = None
        if name in index:
            numbers = index[name]
        else:
            column = by_name[name]
            numbers = pa.array(_read_numbers(column, periods), pa.float64())
            described = _describe_column(column)
        arrays.append(numbers)
        fields.append(pa.field(name, numbers.type, metadata=described))
    pandas = _make_pandas_metadata(fields)
    schema = pa.schema(fields, metadata={**metadata, b"pandas": pandas})
    return pa.Table.from_arrays(arrays, schema=schema)


def _find_rows(grids: Sequence[Grid]) -> list[Period]:
    """Return the rows of the wide table of panels, oldest first.

    Raises:
        SelectionError: one of them was not requested for a panel whose catalogue has
            it. A null would not mean that no value exists.
    """
    periods = sorted({period for grid in grids for period in grid.rows_of_wide})
    names = entity_names(grid.catalogue for grid in grids)
    for grid in grids if len(grids) > 1 else ():
        if missing := [period for period in periods if not grid.covers(period)]:
            name = printable(names[grid.catalogue.entity_id])
            raise SelectionError(
                f"{name}: {counted(len(missing), 'period')} ({spanned(missing)}) not "
                "requested, which its catalogue has and another panel shows: resolve "
                "the periods over all catalogues first, exact = "
                "rule.resolve(catalogues), and request exact of each entity"
            )
    return periods


def _choose_columns(wanted: Iterable[str], names: Mapping[Numbers, str]) -> list[str]:
    """Return the names of the wanted columns; a series id means every series that has
    it.
    """
    names_of: dict[str, list[str]] = {
        name: [name] for name in (*INDEX, *names.values())
    }
    by_id: dict[str, list[str]] = {}
    for column, name in names.items():
        if isinstance(column, Row):
            by_id.setdefault(column.series.series_id, []).append(name)
    names_of |= {series_id: by_id[series_id] for series_id in by_id.keys() - {*INDEX}}
    chosen: dict[str, None] = {}
    for name in wanted:
        if name not in names_of:
            raise SelectionError(
                f"columns must be {', '.join(INDEX)} or series of the table, not "
                f"{name!r}"
            )
        chosen |= dict.fromkeys(names_of[name])
    return list(chosen)


def _read_numbers(column: Numbers, periods: Sequence[Period]) -> list[float | None]:
    """Return the numbers of a series at periods."""
    numbers: list[float | None] = [None] * len(periods)
    if isinstance(column, Row):
        places = {period: place for place, period in enumerate(periods)}
        grid = column.grid
        indices, observed = grid.observations(column.series.series_id)
        for index, number in zip(indices, observed, strict=True):
            numbers[places[grid.periods[index]]] = number
    return numbers


def _describe_column(column: Numbers) -> dict[str, str]:
    """Return the metadata of a column: the fields of the series and its entity."""
    if isinstance(column, Row):
        fields = {
            COLUMN_OF[name]: cell_of(column.series, name) for name in SERIES_FIELDS
        }
        texts = {name: text for name, text in fields.items() if text is not None}
    else:
        texts = {"note": "no series of the question"}
    catalogue = _get_grid(column).catalogue
    return {**texts, "entity_id": catalogue.entity_id, "entity_name": catalogue.name}


def _make_pandas_metadata(fields: Sequence[Any]) -> bytes:
    """Return the metadata that make columns the index of a DataFrame, as pyarrow writes
    them.
    """
    try:
        pandas = version("pandas")
    except PackageNotFoundError:
        pandas = None
    text = "object" if pandas is not None and int(pandas.split(".")[0]) < 3 else "str"
    kinds = {
        "int32": ("int32", "int32"),
        "double": ("float64", "float64"),
        "string": ("unicode", text),
    }

    def describe(
        name: str | None, kind: str, metadata: dict[str, str] | None = None
    ) -> dict[str, Any]:
        pandas_type, numpy_type = kinds[kind]
        types = {"pandas_type": pandas_type, "numpy_type": numpy_type}
        return {"name": name, "field_name": name, **types, "metadata": metadata}

    facts = {
        "index_columns": [field.name for field in fields if field.name in INDEX],
        "column_indexes": [describe(None, "string", {"encoding": "UTF-8"})],
        "columns": [describe(field.name, str(field.type)) for field in fields],
        "attributes": {},
        "creator": {"library": "pyarrow", "version": version("pyarrow")},
        "pandas_version": pandas,
    }
    return json.dumps(facts).encode()


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
    for alike in versions.values():
        for grid, other in combinations(alike, 2):
            if layout == "long" and set(grid.periods).isdisjoint(other.periods):
                continue
            if twice := grid.by_id.keys() & other.by_id.keys():
                names = listed([repr(id_) for id_ in grid.by_id if id_ in twice], 1)
                raise SelectionError(
                    f"the same series twice: {printable(grid.catalogue.name)} has "
                    f"{names} in two of the panels"
                )
