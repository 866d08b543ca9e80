"""Lines: the series of a publication with one meaning, in whichever reporting groups
they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

from attrs import frozen

from asyncfin import CatalogueSeries, Panel, Period, checks

PERIOD_FIELDS = Period.__struct_fields__
# What a series is, apart from its id and the group that it is reported in.
_read_meaning = attrgetter(
    "metric_id",
    "label",
    "description",
    "basis",
    "scopes",
    "number_format",
    "period_meaning",
)


# Not slotted, for the cached property.
@frozen(eq=False, slots=False)
class Line:
    """Series with one meaning of one entity, in one publication and value version.

    Attributes:
        series: the series, in catalogue order.
        panels: the panels that each of them is in, by series id.
        numbers: the numbers of all, by period.
    """

    series: tuple[CatalogueSeries, ...]
    panels: Mapping[str, Sequence[Panel]]
    numbers: Mapping[Period, float]

    @cached_property
    def texts(self) -> dict[Period, str]:
        """The published texts of the numbers."""
        texts = {}
        for series in self.series:
            for panel in self.panels[series.series_id]:
                for period, value in panel[series.series_id].observations():
                    texts[period] = value.text
        return texts


def split_by_publication(panels: Iterable[Panel]) -> list[list[Panel]]:
    """Group panels by entity, in the order of the panels, then by publication and value
    version.
    """
    entities: dict[str, dict[object, list[Panel]]] = {}
    for panel in panels:
        dataset = panel.dataset
        groups = entities.setdefault(dataset.entity_id, {})
        key = dataset.dataset_id.lower(), panel.value_version
        groups.setdefault(key, []).append(panel)
    result: list[list[Panel]] = []
    for groups in entities.values():
        result += groups.values()
    return result


def make_lines(panels: Sequence[Panel]) -> list[Line]:
    """The lines of panels of one publication and value version, in catalogue order.

    Series with one meaning are one line, unless two of them are of one reporting group,
    or have different numbers in one period: then each is a line by itself.
    """
    catalogue = panels[0].catalogue
    numbers: dict[str, dict[Period, float]] = {}
    panels_by_id: dict[str, list[Panel]] = {}
    for panel in panels:
        for series_id, of_series in panel.numbers().items():
            numbers.setdefault(series_id, {}).update(of_series)
            panels_by_id.setdefault(series_id, []).append(panel)
    place = catalogue.places.__getitem__
    members_by_meaning: dict[object, list[CatalogueSeries]] = {}
    for series_id in sorted(numbers, key=place):
        series = catalogue[series_id]
        meaning = _read_meaning(series)
        members_by_meaning.setdefault(meaning, []).append(series)
    lines = []
    for members in members_by_meaning.values():
        numbers_by_period = _join_numbers(members, numbers)
        if numbers_by_period is not None:
            lines.append(Line(tuple(members), panels_by_id, numbers_by_period))
            continue
        for series in members:
            numbers_by_period = numbers[series.series_id]
            lines.append(Line((series,), panels_by_id, numbers_by_period))

    def read_place(line: Line) -> int:
        return place(line.series[0].series_id)

    return sorted(lines, key=read_place)


def _join_numbers(
    members: Sequence[CatalogueSeries], numbers: Mapping[str, Mapping[Period, float]]
) -> dict[Period, float] | None:
    """The numbers of all members by period, or None if two differ in a period or are
    of one reporting group.
    """
    groups = {series.reporting_group_id for series in members}
    if len(groups) < len(members):
        return None
    numbers_by_period: dict[Period, float] = {}
    for series in members:
        for period, number in numbers[series.series_id].items():
            if numbers_by_period.setdefault(period, number) != number:
                return None
    return numbers_by_period


def check_panels(panels: Any) -> tuple[Panel, ...]:
    """Make a tuple of a panel, or of an iterable of panels.

    Raises:
        ArgumentError: something else is among them.
    """
    # A panel is an iterable too, of Series.
    if isinstance(panels, Panel) or not isinstance(panels, Iterable):
        panels = [panels]
    all_panels = tuple(panels)
    for panel in all_panels:
        checks.instance_of(Panel)("each of panels", panel)
    return all_panels


def make_metadata(panels: Iterable[Panel], **facts: Any) -> dict[bytes, bytes]:
    """The metadata of a table that was made of panels (docs/schema.md)."""
    facts["panels"] = list(map(attrgetter("about"), panels))
    text = json.dumps(facts)
    return {b"asyncfin": text.encode()}
