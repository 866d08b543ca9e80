"""One metric of several tags: of each cell the value of the first metric that has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin import Panel, Period, checks, concat
from asyncfin.analysis.lines import check_panels, make_metadata, split_by_publication
from asyncfin.errors import SelectionError
from asyncfin.optional import pa
from asyncfin.words import listed

if TYPE_CHECKING:
    import pyarrow


def first_of(
    panels: Panel | Iterable[Panel], metric_ids: str | Iterable[str]
) -> pyarrow.Table:
    """Take the value of each cell from the first metric in a list that has one (extra
    ``arrow``).

    A cell is an entity, publication, value version, reporting group, scope path and
    period. So entities that use different tags for one figure, or one that has changed
    its tag, are in one column. Groups and paths are never mixed.

    Sends no request.

    Args:
        panels: a panel, or a collection.
        metric_ids: the metrics, the preferred one first; a str is one id.

    Returns:
        The long table (docs/schema.md). `metric_id` is the metric of a row. The column
        `conflict` is null, or has the ids of the listed metrics with a different number
        in the cell, in the order of the list, joined by a comma and a blank. The metric
        of the row is among them if another series of it has a different number. Cells
        without a value have no row.

        Rows are in the order of the panels, their groups and paths in catalogue order,
        oldest first. The entry `without` of the metadata (the JSON under ``asyncfin``)
        has the ids of the entities without a row.

    Raises:
        ArgumentError: something else than a Panel is among the panels, or than a str
            among the ids.
        SelectionError: there is no id, or no panel has one of the metrics.
        MalformedAnswerError: a value breaks the spec.
        ImportError: pyarrow is not installed.

    >>> asyncfin.first_of(panels, ["Revenues", "Sales"]).to_pandas()  # doctest: +SKIP
    """
    panels = check_panels(panels)
    metrics = checks.texts("metric_ids", metric_ids, "metric id")

    def has_metric(series: Any) -> bool:
        return series.metric_id in metrics

    parts = [panel.where(has_metric) for panel in panels]
    if not any(map(len, parts)):
        names = listed(list(map(repr, metrics)))
        raise SelectionError(f"no panel has the metric {names}")
    tables = [concat([])]
    starts: dict[Panel, int] = {}  # the row of the first value
    row_count = 0
    for part in parts:
        part_table = part.to_arrow()
        tables.append(part_table)
        starts[part] = row_count
        row_count += len(part_table)
    rows: list[int] = []
    conflicts: list[str | None] = []
    for group in split_by_publication(parts):
        for values in _list_cells(group, metrics, starts):
            _, _, number, row = min(values)
            conflict_ids: dict[str, None] = {}
            for index, _, value_number, _ in sorted(values):
                if value_number != number:
                    conflict_ids[metrics[index]] = None
            rows.append(row)
            conflicts.append(", ".join(conflict_ids) or None)
    table = pa.concat_tables(tables)
    table = table.unify_dictionaries()
    table = table.take(pa.array(rows, pa.int64()))
    conflict_column = pa.array(conflicts, pa.string())
    table = table.append_column("conflict", conflict_column)
    absent_ids = dict.fromkeys(panel.dataset.entity_id for panel in panels)
    entity_ids = table.column("entity_id").unique()
    for entity_id in entity_ids.to_pylist():
        del absent_ids[entity_id]
    metadata = make_metadata(panels, without=list(absent_ids))
    result: pyarrow.Table = table.replace_schema_metadata(metadata)
    return result


# The places of its metric in the list and of its series in the catalogue, the number,
# and its row in the joined tables. By the catalogue, and not by row: panels of one
# publication are in any order.
_Value: TypeAlias = tuple[int, int, float, int]


def _list_cells(
    panels: Iterable[Panel], metrics: Sequence[str], starts: Mapping[Panel, int]
) -> Iterator[list[_Value]]:
    """Yield the values of each cell of one publication: by group and path, in catalogue
    order, oldest first.
    """
    entries = []
    for panel in panels:
        row = starts[panel]
        for series_id, numbers in panel.numbers().items():
            place = panel.catalogue.places[series_id]
            series = panel.catalogue[series_id]
            entries.append((place, row, series, numbers))
            row += len(numbers)
    entries.sort(key=itemgetter(0))
    cells: dict[object, dict[Period, list[_Value]]] = {}
    for place, start, series, numbers in entries:
        index = metrics.index(series.metric_id)
        key = series.reporting_group_id, series.scopes
        by_period = cells.setdefault(key, {})
        for row, period in enumerate(numbers, start):
            value = index, place, numbers[period], row
            by_period.setdefault(period, []).append(value)
    for by_period in cells.values():
        for period in sorted(by_period):
            yield by_period[period]
