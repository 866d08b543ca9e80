"""The wide tables: a row for each period, a column of numbers for each series, and
their names.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Any, TypeAlias

from asyncfin.errors import SelectionError, printable
from asyncfin.model.catalogue import publication_id
from asyncfin.model.period import Period
from asyncfin.model.series import COLUMN_OF, SERIES_FIELDS, cell_of
from asyncfin.optional import pa
from asyncfin.table.arrow import pandas_metadata, schema_metadata
from asyncfin.table.columns import PERIOD_FIELDS
from asyncfin.table.excerpt import joined, names_of
from asyncfin.table.grid import Grid
from asyncfin.table.rows import Row, rows_of
from asyncfin.words import counted, entity_names, listed, spanned

# The column of period labels, where labels are requested.
PERIOD = "period"
# What may be the index of a wide table, and no name of a series.
INDEX = (*PERIOD_FIELDS, PERIOD)
# A column of numbers: a series, or a panel without any.
Numbers: TypeAlias = Row | Grid


def columns_of(grids: Iterable[Grid]) -> list[Numbers]:
    """Return the columns of several panels, panel by panel; one without series is its
    own column.
    """
    found: list[Numbers] = []
    for grid in grids:
        found += rows_of([grid]) or [grid]
    return found


def labels_of(
    columns: Sequence[Numbers], *, entities: bool = False
) -> dict[Numbers, str]:
    """Return a name for each series: the texts that distinguish it, joined. No two are
    alike.

    Args:
        entities: begin each name with the entity's.
    """
    rows = [each for each in columns if isinstance(each, Row)]
    empty = [each for each in columns if isinstance(each, Grid)]
    always = ("entity",) if entities else ()
    texts = (
        names_of(
            rows, group_names=True, always=always, grids=empty, reserved=INDEX
        ).texts
        if rows
        else {}
    )
    of_empty = entity_names(
        each.catalogue for each in (*empty, *(row.grid for row in rows))
    )
    names = {
        each: joined(texts[each])
        if isinstance(each, Row)
        else of_empty[each.catalogue.entity_id]
        for each in columns
    }
    found: dict[Numbers, str] = {}
    taken = Counter(INDEX)
    # Arrow's C interface ends a name at NUL. Panels without series may be of one
    # entity.
    in_order: list[Numbers] = [*rows, *empty]
    for each in in_order:
        name = unique = names[each].replace("\0", r"\x00")
        while taken[unique]:
            taken[name] += 1
            unique = f"{name} ({taken[name] - 1})"
        taken[unique] += 1
        found[each] = unique
    return {each: found[each] for each in columns}


def ids_of(columns: Sequence[Numbers]) -> dict[Numbers, str]:
    """Return entity id and series id of each series; value version and publication
    where only they differ.
    """
    grids = [each.grid if isinstance(each, Row) else each for each in columns]
    texts = [
        [grid.catalogue.entity_id for grid in grids],
        [each.series.series_id if isinstance(each, Row) else "" for each in columns],
        [grid.value_version for grid in grids],
        [grid.catalogue.dataset_id for grid in grids],
    ]
    for count in (2, 3, 4):
        names = [joined(each) for each in zip(*texts[:count], strict=True)]
        if len(set(names)) == len(columns):
            break
    return dict(zip(columns, names, strict=True))


def wide_table(
    names: Mapping[Numbers, str],
    periods: Sequence[Period],
    wanted: Iterable[str] | None,
    about: list[dict[str, Any]],
    *,
    labels: bool,
) -> Any:
    """Return one row a period: its fields, or its label if `labels`, then the numbers
    of each series.

    Args:
        names: the names of the columns of numbers.
        periods: the rows, oldest first.
        wanted: columns of the index, series ids and names, in their order; None: all.

    Raises:
        SelectionError: a column is unknown, or a series has the name of a period's
            column.
    """
    # A frame with two columns of one name can be read by neither.
    if taken := [name for name in names.values() if name in INDEX]:
        raise SelectionError(
            f"series id {taken[0]!r} is a column of the wide layout: use layout='long'"
        )
    by_name = {name: column for column, name in names.items()}
    index = (PERIOD,) if labels else PERIOD_FIELDS
    chosen = [*index, *by_name] if wanted is None else _chosen(wanted, names)
    at = {period: place for place, period in enumerate(periods)}
    places = {
        grid: [at[period] for period in grid.periods]
        for grid in {column.grid for column in names if isinstance(column, Row)}
    }
    fields, arrays = [], []
    for name in chosen:
        metadata = None
        if name == PERIOD:
            array = pa.array([period.label for period in periods], pa.string())
        elif name in INDEX:
            array = pa.array([getattr(period, name) for period in periods], pa.int32())
        elif isinstance(column := by_name[name], Row):
            array = pa.array(
                _numbers(column, places[column.grid], len(at)), pa.float64()
            )
            metadata = _described(column)
        else:
            array = pa.nulls(len(at), pa.float64())
            metadata = {**_entity(column), "note": "no series of the question"}
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata=metadata))
    found = schema_metadata(about) | pandas_metadata(
        fields, [name for name in chosen if name in INDEX]
    )
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=found))


def _chosen(wanted: Iterable[str], names: Mapping[Numbers, str]) -> list[str]:
    """Return the names of the wanted columns; a series id means every series that has
    it.
    """
    by_id: dict[str, list[str]] = {}
    for column, name in names.items():
        if isinstance(column, Row):
            by_id.setdefault(column.series.series_id, []).append(name)
    known = {*INDEX, *names.values()}
    chosen: dict[str, None] = {}
    for each in wanted:
        found = [each] if each in INDEX else by_id.get(each) or [each]
        if not known.issuperset(found):
            raise SelectionError(
                f"columns must be {', '.join(INDEX)} or series of the table, not "
                f"{each!r}"
            )
        chosen |= dict.fromkeys(found)
    return list(chosen)


def _numbers(row: Row, places: Sequence[int], count: int) -> list[float | None]:
    """Return a series' numbers; `places` has the row of each period of its panel."""
    numbers: list[float | None] = [None] * count
    for index, number in zip(*row.grid.observations(row.series.series_id), strict=True):
        numbers[places[index]] = number
    return numbers


def _described(row: Row) -> dict[str, str]:
    """Return the metadata of a column: the series' fields, named as in the long table,
    and its entity.
    """
    cells = {COLUMN_OF[name]: cell_of(row.series, name) for name in SERIES_FIELDS}
    stated = {name: text for name, text in cells.items() if text is not None}
    return stated | _entity(row.grid)


def _entity(grid: Grid) -> dict[str, str]:
    return {"entity_id": grid.catalogue.entity_id, "entity_name": grid.catalogue.name}


def check_once(grids: Iterable[Grid], *, layout: str) -> None:
    """Refuse panels of which two have the same series, as its values would be in a
    table twice.

    Raises:
        SelectionError: they do. In the long layout, parts of a series at different
            periods are allowed.
    """
    versions: dict[tuple[str, str, str], list[Grid]] = {}
    for grid in grids:
        versions.setdefault(_version(grid), []).append(grid)
    # Within a version: to compare each panel with all others takes seconds for a
    # thousand.
    for one, other in chain.from_iterable(
        combinations(same, 2) for same in versions.values()
    ):
        if layout == "long" and set(one.periods).isdisjoint(other.periods):
            continue
        if twice := [
            each.series_id for each in one.series if each.series_id in other.by_id
        ]:
            named = listed([*map(repr, twice)], 1)
            raise SelectionError(
                f"the same series twice: {printable(one.catalogue.name)} has {named} "
                "in two of the panels"
            )


def _version(grid: Grid) -> tuple[str, str, str]:
    return (
        grid.catalogue.entity_id,
        publication_id(grid.catalogue.dataset_id),
        grid.value_version,
    )


def rows_together(grids: Sequence[Grid]) -> list[Period]:
    """Return the rows of the wide table of several panels, oldest first.

    Raises:
        SelectionError: one of them was not requested for a panel whose catalogue has
            it. A null would not mean that no value exists.
    """
    periods = sorted({period for grid in grids for period in grid.rows_of_wide})
    names = entity_names(grid.catalogue for grid in grids)
    for grid in grids:
        if missing := [period for period in periods if not grid.covers(period)]:
            name = printable(names[grid.catalogue.entity_id])
            raise SelectionError(
                f"{name}: {counted(len(missing), 'period')} ({spanned(missing)})"
                " not requested, which its catalogue has and another panel shows: "
                "resolve the periods over"
                " all catalogues first, exact = rule.resolve(catalogues), and request "
                "exact of each entity"
            )
    return periods
