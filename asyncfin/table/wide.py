"""The wide tables: a row for each period, a column of numbers for each series, and their names."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from asyncfin.errors import SelectionError, printable
from asyncfin.model.catalogue import publication_id
from asyncfin.model.period import Period
from asyncfin.model.series import COLUMN_OF, SERIES_FIELDS, cell_of
from asyncfin.model.words import counted, listed, spanned
from asyncfin.optional import pa
from asyncfin.table.arrow import schema_metadata
from asyncfin.table.columns import PERIOD_FIELDS
from asyncfin.table.excerpt import names_of
from asyncfin.table.grid import Grid, Row
from asyncfin.table.notes import entity_names

# The column of period labels, where labels are requested.
PERIOD = "period"
_RESERVED = frozenset([*PERIOD_FIELDS, PERIOD])


def labels_of(rows: Sequence[Row], *, companies: bool = False) -> dict[Row, str]:
    """Return a name for each series: the texts that distinguish it, joined. No two are alike.

    Args:
        companies: begin each name with the company's.
    """
    names = names_of(rows, group_names=True, always=("entity",) if companies else ())
    # Arrow's C interface ends a name at NUL.
    found = {row: ", ".join(filter(None, texts)).replace("\0", r"\x00") for row, texts in names.texts.items()}
    # "Revenue, net" of Europe is joined like "Revenue" of "net, Europe".
    if len(set(found.values())) < len(found) or not _RESERVED.isdisjoint(found.values()):
        found = {row: f"{name}, {row.series.series_id}" for row, name in found.items()}
    taken: Counter[str] = Counter()
    for row, name in found.items():
        while taken[found[row]]:
            taken[name] += 1
            found[row] = f"{name} ({taken[name]})"
        taken[found[row]] += 1
    return found


def ids_of(rows: Sequence[Row]) -> dict[Row, str]:
    """Return entity id and series id of each series; value version and publication where only they differ."""
    columns = [
        [row.grid.catalogue.entity_id for row in rows],
        [row.series.series_id for row in rows],
        [row.grid.value_version for row in rows],
        [row.grid.catalogue.dataset_id for row in rows],
    ]
    for count in (2, 3, 4):
        names = [", ".join(texts) for texts in zip(*columns[:count], strict=True)]
        if len(set(names)) == len(rows):
            break
    return dict(zip(rows, names, strict=True))


def wide_table(
    names: Mapping[Row, str],
    periods: Sequence[Period],
    wanted: Iterable[str] | None,
    about: list[dict[str, Any]],
    *,
    labels: bool,
) -> Any:
    """Return one row a period: its fields, its label if `labels`, then the numbers of each series.

    Args:
        names: the names of the series' columns.
        periods: the rows, oldest first.
        wanted: the names of the wanted columns, in their order; None: all.

    Raises:
        SelectionError: a column is unknown, or a series has the name of a period's column.
    """
    leading = [*PERIOD_FIELDS, *([PERIOD] if labels else ())]
    # A frame with two columns of one name can be read by neither.
    if taken := [name for name in names.values() if name in leading]:
        raise SelectionError(f"series id {taken[0]!r} is a column of the wide layout: use layout='long'")
    by_name = {name: row for row, name in names.items()}
    chosen = [*leading, *by_name] if wanted is None else list(dict.fromkeys(wanted))
    if unknown := [name for name in chosen if name not in by_name and name not in leading]:
        raise SelectionError(
            f"columns must be {', '.join(leading)} or series of the table, not {unknown[0]!r}"
        )
    at = {period: index for index, period in enumerate(periods)}
    places = {grid: [at[period] for period in grid.periods] for grid in {row.grid for row in names}}
    fields, arrays = [], []
    for name in chosen:
        if name == PERIOD:
            arrays.append(pa.array([period.label for period in periods], pa.string()))
        elif name in leading:
            arrays.append(pa.array([getattr(period, name) for period in periods], pa.int32()))
        else:
            row = by_name[name]
            arrays.append(pa.array(_numbers(row, places[row.grid], len(at)), pa.float64()))
        metadata = _described(by_name[name]) if name in by_name else None
        fields.append(pa.field(name, arrays[-1].type, metadata=metadata))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=schema_metadata(about)))


def _numbers(row: Row, places: Sequence[int], count: int) -> list[float | None]:
    """Return a series' numbers; `places` has the row of each period of its panel."""
    numbers: list[float | None] = [None] * count
    for index, number in zip(*row.grid.observations(row.series.series_id), strict=True):
        numbers[places[index]] = number
    return numbers


def _described(row: Row) -> dict[str, str]:
    """Return the metadata of a column: the series' fields, named as in the long table, and its entity."""
    catalogue = row.grid.catalogue
    cells = {COLUMN_OF[name]: cell_of(row.series, name) for name in SERIES_FIELDS}
    stated = {name: text for name, text in cells.items() if text is not None}
    return {**stated, "entity_id": catalogue.entity_id, "entity_name": catalogue.name}


def check_once(grids: Iterable[Grid], *, layout: str) -> None:
    """Refuse panels of which two have the same series, as its values would be in a table twice.

    Raises:
        SelectionError: they do. In the long layout, parts of a series at different periods are allowed.
    """
    for one, other in combinations(grids, 2):
        if _version(one) != _version(other) or (
            layout == "long" and set(one.periods).isdisjoint(other.periods)
        ):
            continue
        if twice := [each.series_id for each in one.series if each.series_id in other.by_id]:
            named = listed([*map(repr, twice)], 1)
            raise SelectionError(
                f"the same series twice: {printable(one.catalogue.name)} has {named} in two of the panels"
            )


def _version(grid: Grid) -> tuple[str, str, str]:
    return grid.catalogue.entity_id, publication_id(grid.catalogue.dataset_id), grid.value_version


def rows_together(grids: Sequence[Grid]) -> list[Period]:
    """Return the rows of the wide table of several panels, oldest first.

    Raises:
        SelectionError: one of them was not requested for a panel whose catalogue has it. A null would not
            mean that no value exists.
    """
    periods = sorted({period for grid in grids for period in grid.rows_of_wide})
    names = entity_names(grids)
    for grid in grids:
        if missing := [period for period in periods if not grid.covers(period)]:
            name = printable(names[grid.catalogue.entity_id])
            raise SelectionError(
                f"{name}: {counted(len(missing), 'period')} ({spanned(missing)})"
                " not requested, which its catalogue has and another panel shows: resolve the periods over"
                " all catalogues first, exact = rule.resolve(catalogues), and request exact of each entity"
            )
    return periods
