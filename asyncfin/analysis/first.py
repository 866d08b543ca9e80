"""One metric of several tags: of each cell the value of the first metric that has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin import Panel, Period, checks, concat
from asyncfin.analysis.lines import by_publication, panels_of, table_metadata
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
    panels = panels_of(panels)
    metrics = checks.texts("metric_ids", metric_ids, "metric id")
    parts = [
        panel.where(lambda series: series.metric_id in metrics) for panel in panels
    ]
    if not any(map(len, parts)):
        raise SelectionError(f"no panel has the metric {listed([*map(repr, metrics)])}")
    tables = [panel.to_arrow().replace_schema_metadata(None) for panel in parts]
    starts = dict(zip(parts, accumulate(map(len, tables), initial=0), strict=False))
    rows: list[int] = []
    conflicts: list[str | None] = []
    for group in by_publication(parts):
        for values in _list_cells(group, metrics, starts):
            _, number, row = min(values)
            differing = {value[0][0] for value in values if value[1] != number}
            names = [metrics[index] for index in sorted(differing)]
            rows.append(row)
            conflicts.append(", ".join(names) or None)
    absent = {panel.dataset.entity_id: None for panel in panels}
    for panel in parts:
        if panel.value_count:
            absent.pop(panel.dataset.entity_id, None)
    table = pa.concat_tables([concat([]).replace_schema_metadata(None), *tables])
    table = table.unify_dictionaries().take(pa.array(rows, pa.int64()))
    table = table.append_column("conflict", pa.array(conflicts, pa.string()))
    metadata = table_metadata(panels, without=list(absent))
    result: pyarrow.Table = table.replace_schema_metadata(metadata)
    return result


# The places of its metric in the list and of its series in the catalogue, the number,
# and its row in the joined tables. By the catalogue, and not by row: panels of one
# publication are given in any order.
_Value: TypeAlias = tuple[tuple[int, int], float, int]


def _list_cells(
    panels: Iterable[Panel], metrics: Sequence[str], starts: Mapping[Panel, int]
) -> Iterator[list[_Value]]:
    """Yield the values of each cell of one publication: by group and path, oldest
    first.
    """
    cells: dict[Any, dict[Period, list[_Value]]] = {}
    first: dict[Any, int] = {}  # the place in the catalogue
    for panel in panels:
        row = starts[panel]
        for series_id, numbers in panel.numbers().items():
            series = panel.catalogue[series_id]
            listed_at = panel.catalogue.places[series_id]
            key = series.reporting_group_id, series.scopes
            first[key] = min(first.get(key, listed_at), listed_at)
            place = metrics.index(series.metric_id), listed_at
            by_period = cells.setdefault(key, {})
            for period, number in numbers.items():
                by_period.setdefault(period, []).append((place, number, row))
                row += 1
    for key in sorted(cells, key=first.__getitem__):
        yield from (cells[key][period] for period in sorted(cells[key]))
