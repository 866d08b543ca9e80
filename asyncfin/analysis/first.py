"""One metric of several tags: of each cell the value of the first metric that has
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from asyncfin import Panel, checks, concat
from asyncfin.analysis.lines import by_publication, panels_of, table_metadata
from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.optional import pa
from asyncfin.words import listed

if TYPE_CHECKING:
    import pyarrow


class _Value(NamedTuple):
    """A value of a cell: the places of its metric in the list and of its series in the
    catalogue.

    `row` is its row in the joined long tables.
    """

    place: int
    listed_at: int
    number: float
    row: int


def first_of(
    panels: Panel | Iterable[Panel], metric_ids: str | Iterable[str]
) -> pyarrow.Table:
    """Return of each cell the value of the first metric in a list that has one (extra
    ``arrow``).

    A cell is an entity, publication, value version, reporting group, scope path and
    period. So entities that use different tags for one figure, or one that has changed
    its tag, are in one column. Groups and paths are never mixed.

    Sends no request.

    Args:
        panels: a panel, or several.
        metric_ids: the metrics, the preferred one first; a str is one id.

    Returns:
        The long table (docs/schema.md), in which `metric_id` says which metric a row is
        of, and the column
        `conflict`: null, or the ids of the listed metrics that have a different number
            in the cell, in the
        order of the list, joined by a comma and a blank; the row's own metric is among
        them if another
        series of it has a different number. Cells without a value have no row.

        Panels as given, group and path in catalogue order, oldest first. The entry
        `without` of the metadata
        (the JSON under ``asyncfin``) has the ids of the entities without a row.

    Raises:
        ArgumentError: something else than a Panel is among the panels, or than a str
            among the ids.
        SelectionError: there is no id, or no panel has one of the metrics.
        MalformedAnswerError: a value breaks the spec.
        ImportError: pyarrow is not installed.

    >>> asyncfin.first_of(panels, ["Revenues", "SalesRevenueNet"]).to_pandas()  # doctest: +SKIP
    """
    panels = panels_of(panels)
    places = {
        metric_id: place
        for place, metric_id in enumerate(
            checks.texts("metric_ids", metric_ids, "metric id")
        )
    }
    wanted = [
        panel.where(lambda series: series.metric_id in places) for panel in panels
    ]
    if not any(len(panel) for panel in wanted):
        raise SelectionError(f"no panel has the metric {listed([*map(repr, places)])}")
    tables = [panel.to_arrow().replace_schema_metadata(None) for panel in wanted]
    starts = dict(zip(wanted, accumulate(map(len, tables), initial=0), strict=False))
    chosen = [
        _chosen(values, list(places))
        for group in by_publication(wanted)
        for values in _cells(group, places, starts)
    ]
    having = {panel.dataset.entity_id for panel in wanted if panel.value_count}
    without = dict.fromkeys(
        each.dataset.entity_id
        for each in panels
        if each.dataset.entity_id not in having
    )
    table = pa.concat_tables([concat([]).replace_schema_metadata(None), *tables])
    found = table.unify_dictionaries().take(
        pa.array([row for row, _ in chosen], pa.int64())
    )
    found = found.append_column(
        "conflict", pa.array([text for _, text in chosen], pa.string())
    )
    metadata = table_metadata(panels, without=list(without))
    result: pyarrow.Table = found.replace_schema_metadata(metadata)
    return result


def _cells(
    panels: Iterable[Panel], places: Mapping[str, int], starts: Mapping[Panel, int]
) -> Iterator[list[_Value]]:
    """Yield the values of each cell of one publication: by group and path, oldest
    first.
    """
    found: dict[tuple[str, ScopePath], dict[Period, list[_Value]]] = {}
    first: dict[tuple[str, ScopePath], int] = {}  # the place in the catalogue
    for panel in panels:
        row = starts[panel]
        for series_id, numbers in panel.numbers().items():
            series, listed_at = (
                panel.catalogue[series_id],
                panel.catalogue.places[series_id],
            )
            key = series.reporting_group_id, series.scopes
            cells = found.setdefault(key, {})
            first[key] = min(first.get(key, len(panel.catalogue)), listed_at)
            for period, number in numbers.items():
                cells.setdefault(period, []).append(
                    _Value(places[series.metric_id], listed_at, number, row)
                )
                row += 1
    for key in sorted(found, key=first.__getitem__):
        yield from (found[key][period] for period in sorted(found[key]))


def _chosen(
    values: Sequence[_Value], metric_ids: Sequence[str]
) -> tuple[int, str | None]:
    """Return the row of a cell, and which metrics have another number."""
    # By the catalogue, and not by row: panels of one publication are given in any
    # order.
    first = min(values, key=lambda value: (value.place, value.listed_at))
    others = sorted({value.place for value in values if value.number != first.number})
    return first.row, ", ".join(metric_ids[place] for place in others) or None
