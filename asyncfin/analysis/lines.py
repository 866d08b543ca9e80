"""Lines: the series of a publication that say the same, in whichever reporting groups
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
    """Series that say the same of one entity, in one publication and value version.

    Attributes:
        series: the series, in catalogue order.
        panels: the panels that each of them is in, by series id.
        numbers: the numbers of all, by period.
    """

    series: tuple[CatalogueSeries, ...]
    panels: Mapping[str, Sequence[Panel]]
    numbers: Mapping[Period, float]

    @cached_property
    def _texts(self) -> dict[Period, str]:
        return {
            period: value.text
            for series in self.series
            for panel in self.panels[series.series_id]
            for period, value in panel[series.series_id].observations()
        }

    def text(self, period: Period) -> str | None:
        """Return the published text of a number."""
        return self._texts.get(period)

    def why(self, period: Period) -> str:
        """Return why none of the series has a value at a period."""
        by_panel: dict[Panel, list[str]] = {}
        for series in self.series:
            for panel in self.panels[series.series_id]:
                by_panel.setdefault(panel, []).append(series.series_id)
        # A panel that did not ask for the period knows nothing of it.
        panel = next(
            (series for series in by_panel if series.covers(period)),
            next(iter(by_panel)),
        )
        return panel.why(by_panel[panel], period) or "no value"


def by_publication(panels: Iterable[Panel]) -> list[list[Panel]]:
    """Return panels by entity, in the given order, then by publication and value
    version.
    """
    entities: dict[str, dict[tuple[str, str], list[Panel]]] = {}
    for panel in panels:
        of_entity = entities.setdefault(panel.dataset.entity_id, {})
        publication = panel.dataset.dataset_id.lower()
        of_entity.setdefault((publication, panel.value_version), []).append(panel)
    return [group for of_entity in entities.values() for group in of_entity.values()]


def lines_of(panels: Sequence[Panel]) -> list[Line]:
    """Return the lines of panels of one publication and value version, in catalogue
    order.

    Series that say the same are one line, unless two of them have different numbers in
    one period: then each is a line by itself.
    """
    catalogue = panels[0].catalogue
    numbers: dict[str, dict[Period, float]] = {}
    having: dict[str, list[Panel]] = {}
    for panel in panels:
        for series_id, of_series in panel.numbers().items():
            numbers.setdefault(series_id, {}).update(of_series)
            having.setdefault(series_id, []).append(panel)
    place = catalogue.places.__getitem__
    alike: dict[object, list[CatalogueSeries]] = {}
    for series_id in sorted(numbers, key=place):
        series = catalogue[series_id]
        alike.setdefault(_meaning(series), []).append(series)
    lines = []
    for members in alike.values():
        joined = _join_numbers([numbers[series.series_id] for series in members])
        if joined is not None:
            lines.append(Line(tuple(members), having, joined))
        else:
            lines += [
                Line((series,), having, numbers[series.series_id]) for series in members
            ]
    return sorted(lines, key=lambda line: place(line.series[0].series_id))


def _join_numbers(
    numbers: Iterable[Mapping[Period, float]],
) -> dict[Period, float] | None:
    """Return the numbers of all by period, or None if two differ in a period."""
    joined: dict[Period, float] = {}
    for of_series in numbers:
        for period, number in of_series.items():
            if joined.setdefault(period, number) != number:
                return None
    return joined


def panels_of(panels: Any) -> tuple[Panel, ...]:
    """Return a panel, or an iterable of panels, as a tuple.

    Raises:
        ArgumentError: something else is among them.
    """
    # A panel is an iterable too, of Series.
    is_single = isinstance(panels, Panel) or not isinstance(panels, Iterable)
    checked = []
    for panel in (panels,) if is_single else panels:
        checks.instance_of(Panel)("each of panels", panel)
        checked.append(panel)
    return tuple(checked)


def table_metadata(panels: Iterable[Panel], **more: Any) -> dict[bytes, bytes]:
    """Return the metadata of a table that was made of panels (docs/schema.md)."""
    facts = {"panels": [panel.about for panel in panels], **more}
    return {b"asyncfin": json.dumps(facts).encode()}
