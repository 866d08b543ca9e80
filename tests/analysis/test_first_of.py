"""One metric of several tags, against plain code over the values of panels."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from asyncfin import (
    ArgumentError,
    Panel,
    Period,
    ScopeRef,
    SelectionError,
    first_of,
)
from tests import examples
from tests.answers import panel_of

YEARS = [Period(year, 12, 12) for year in range(2020, 2024)]


def oracle(panels: Sequence[Panel], metric_ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return entity, version, group, path, period, metric, series, number and conflict of each cell."""
    rows = []
    for panel in panels:
        cells: dict[Any, dict[Period, list[Any]]] = {}
        for series in panel:
            if series.metric_id in metric_ids:
                of_cell = cells.setdefault((series.reporting_group_id, series.scopes), {})
                for period, value in series.observations():
                    of_cell.setdefault(period, []).append((series, float(value.number)))
        for (group, _), periods in cells.items():
            for period in sorted(periods):
                found = periods[period]
                metric = next(each for each in metric_ids if any(s.metric_id == each for s, _ in found))
                series, number = next(pair for pair in found if pair[0].metric_id == metric)
                different = {s.metric_id for s, other in found if other != number}
                rows.append(
                    (
                        *(panel.dataset.entity_id, panel.value_version, group, series.scopes, period.label),
                        *(metric, series.series_id, number),
                        ", ".join(each for each in metric_ids if each in different) or None,
                    )
                )
    return rows


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    names = [
        *("entity_id", "asked_version", "reporting_group_id", "scopes", "period_label", "metric_id"),
        *("series_id", "number", "conflict"),
    ]
    rows = table.to_pylist()
    for row in rows:
        row["scopes"] = tuple(ScopeRef(**each) for each in row["scopes"])
    return [tuple(row[name] for name in names) for row in rows]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([f"m{metric}.{group}" for metric in range(3) for group in ("a", "b")]),
        st.dictionaries(st.sampled_from(YEARS), st.sampled_from([0, 1, 2]), max_size=4),
        min_size=1,
    ),
    st.lists(st.sampled_from(["m0", "m1", "m2", "m3"]), min_size=1, max_size=4),
)
def test_cell_has_first_metric_with_value(
    numbers: dict[str, dict[Period, float]], metric_ids: list[str]
) -> None:
    """A metric that is named twice counts once; groups are never mixed."""
    panel = asyncio.run(panel_of(numbers, YEARS))
    wanted = list(dict.fromkeys(metric_ids))
    if not any(series.metric_id in wanted for series in panel):
        with pytest.raises(SelectionError, match="no panel has the metric"):
            first_of(panel, metric_ids)
        return
    table = first_of(panel, metric_ids)
    assert rows_of(table) == oracle([panel], wanted)
    assert table.schema.names == [*panel.to_arrow().schema.names, "conflict"]
    assert table.schema.types[:-1] == panel.to_arrow().schema.types


async def test_second_series_can_be_a_conflict() -> None:
    """Of two series the first in the catalogue counts, in whichever order panels are given."""
    panel = await panel_of({"a.g": {YEARS[0]: 1}, "b.g": {YEARS[0]: 2}}, YEARS)
    series = tuple(msgspec.structs.replace(each, metric_id="m") for each in panel._grid.series)
    groups = (evolve(panel.catalogue.groups[0], series=series),)
    catalogue = evolve(panel.catalogue, groups=groups)
    panel = evolve(panel, grid=evolve(panel._grid, series=series, catalogue=catalogue))
    one, other = (panel.where(lambda series, i=i: series.series_id == i) for i in ("a.g", "b.g"))
    for panels in (panel, [one, other], [other, one]):
        assert [(row[-3], row[-2], row[-1]) for row in rows_of(first_of(panels, "m"))] == [("a.g", 1.0, "m")]


async def test_panels_share_cells() -> None:
    """A question for each tag is as good as one for both; entities without a row are named."""
    both = await panel_of({"a.g": {YEARS[0]: 1}, "b.g": {YEARS[0]: 2, YEARS[1]: 3}}, YEARS)
    one, other = (both.where(lambda series, m=m: series.metric_id == m) for m in "ab")
    catalogue = evolve(both.catalogue, entity_id="O-" + "f" * 32)
    foreign = evolve(one, grid=evolve(one._grid, catalogue=catalogue)).during([YEARS[1]])
    capitals = evolve(both.catalogue, dataset_id=both.catalogue.dataset_id.upper())  # of the same publication
    other = evolve(other, grid=evolve(other._grid, catalogue=capitals))
    table = first_of([other, foreign, one], ["a", "b"])
    assert [row[5:] for row in rows_of(table)] == [("a", "a.g", 1.0, "b"), ("b", "b.g", 3.0, None)]
    about = json.loads(table.schema.metadata[b"asyncfin"])
    assert about["without"] == ["O-" + "f" * 32]
    assert len(about["panels"]) == 3


async def test_wrong_metrics_are_rejected() -> None:
    """With the name of the argument."""
    panel = await panel_of({"a.g": {YEARS[0]: 1}}, YEARS)
    with pytest.raises(SelectionError, match="metric_ids must name at least one metric id"):
        first_of(panel, [])
    with pytest.raises(SelectionError, match="no panel has the metric 'b', 'c'"):
        first_of(panel, ["b", "c"])
    for wrong in (5, [5], [["a"]]):
        with pytest.raises(ArgumentError, match="metric_ids"):
            first_of(panel, wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="each of panels must be a Panel"):
        first_of([5], "a")  # type: ignore[list-item]
