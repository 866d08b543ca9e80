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
# What a series is, apart from its own id and the group that it is reported in.
_meaning = attrgetter(
    *(
        name
        for name in CatalogueSeries.__struct_fields__
        if name not in ("series_id", "reporting_group_id")
    )
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
        return {
            period: value.text
            for series in self.series
            for panel in self.panels[series.series_id]
            for period, value in panel[series.series_id].observations()
        }

    def why(self, period: Period) -> str:
        """Return why none of the series has a value at a period."""
        ids_by_panel: dict[Panel, list[str]] = {}
        for series in self.series:
            for panel in self.panels[series.series_id]:
                ids_by_panel.setdefault(panel, []).append(series.series_id)
        # A panel whose query did not include the period cannot show why.
        panels = sorted(ids_by_panel, key=lambda panel: not panel.covers(period))
        return panels[0].why(ids_by_panel[panels[0]], period) or "no value"


def by_publication(panels: Iterable[Panel]) -> list[list[Panel]]:
    """Return panels by entity, in the given order, then by publication and value
    version.
    """
    places: dict[str, int] = {}
    groups: dict[tuple[int, str, str], list[Panel]] = {}
    for panel in panels:
        dataset = panel.dataset
        place = places.setdefault(dataset.entity_id, len(places))
        key = place, dataset.dataset_id.lower(), panel.value_version
        groups.setdefault(key, []).append(panel)
    return [groups[key] for key in sorted(groups, key=lambda key: key[0])]


def lines_of(panels: Sequence[Panel]) -> list[Line]:
    """Return the lines of panels of one publication and value version, in catalogue
    order.

    Series with one meaning are one line, unless two of them have different numbers in
    one period: then each is a line by itself.
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
        members_by_meaning.setdefault(_meaning(series), []).append(series)
    lines = []
    for members in members_by_meaning.values():
        common = _join_numbers([numbers[series.series_id] for series in members])
        if common is not None:
            lines.append(Line(tuple(members), panels_by_id, common))
        else:
            lines += [
                Line((series,), panels_by_id, numbers[series.series_id])
                for series in members
            ]
    return sorted(lines, key=lambda line: place(line.series[0].series_id))


def _join_numbers(
    numbers: Iterable[Mapping[Period, float]],
) -> dict[Period, float] | None:
    """Return the numbers of all by period, or None if two differ in a period."""
    numbers_by_period: dict[Period, float] = {}
    for of_series in numbers:
        for period, number in of_series.items():
            if numbers_by_period.setdefault(period, number) != number:
                return None
    return numbers_by_period


def panels_of(panels: Any) -> tuple[Panel, ...]:
    """Return a panel, or an iterable of panels, as a tuple.

    Raises:
        ArgumentError: something else is among them.
    """
    # A panel is an iterable too, of Series.
    is_single = isinstance(panels, Panel) or not isinstance(panels, Iterable)
    checked_panels = []
    for panel in (panels,) if is_single else panels:
        checks.instance_of(Panel)("each of panels", panel)
        checked_panels.append(panel)
    return tuple(checked_panels)


def table_metadata(panels: Iterable[Panel], **facts: Any) -> dict[bytes, bytes]:
    """Return the metadata of a table that was made of panels (docs/schema.md)."""
    facts["panels"] = [panel.about for panel in panels]
    return {b"asyncfin": json.dumps(facts).encode()}
