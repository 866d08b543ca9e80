"""Lines: the series of a publication that say the same, in whichever reporting groups
they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

from attrs import frozen

from asyncfin import Panel, checks
from asyncfin.model.catalogue import publication_id
from asyncfin.model.period import Period
from asyncfin.model.series import SERIES_FIELDS, CatalogueSeries

PERIOD_FIELDS = Period.__struct_fields__
# What a series is, apart from its own id and the group that it is reported in.
_meaning = attrgetter(
    *(name for name in SERIES_FIELDS if name not in ("series_id", "reporting_group_id"))
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
        for each in self.series:
            for panel in self.panels[each.series_id]:
                by_panel.setdefault(panel, []).append(each.series_id)
        # A panel that did not ask for the period knows nothing of it.
        panel = next(
            (each for each in by_panel if each.covers(period)), next(iter(by_panel))
        )
        return panel.why(by_panel[panel], period) or "no value"


def by_publication(panels: Iterable[Panel]) -> list[list[Panel]]:
    """Return panels by entity, in the given order, then by publication and value
    version.
    """
    entities: dict[str, dict[tuple[str, str], list[Panel]]] = {}
    for panel in panels:
        of_entity = entities.setdefault(panel.dataset.entity_id, {})
        publication = publication_id(panel.dataset.dataset_id)
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
        for series_id, found in panel.numbers().items():
            numbers.setdefault(series_id, {}).update(found)
            having.setdefault(series_id, []).append(panel)
    place = catalogue.places.__getitem__
    series = [catalogue[series_id] for series_id in sorted(numbers, key=place)]
    lines = [
        Line(
            several,
            having,
            {
                period: n
                for each in several
                for period, n in numbers[each.series_id].items()
            },
        )
        for several in joined(series, numbers)
    ]
    return sorted(lines, key=lambda line: place(line.series[0].series_id))


def joined(
    series: Iterable[CatalogueSeries], numbers: Mapping[str, Mapping[Period, float]]
) -> Iterator[tuple[CatalogueSeries, ...]]:
    """Yield the series of each line, given the numbers of each series by its id."""
    same: dict[object, list[CatalogueSeries]] = {}
    for each in series:
        same.setdefault(_meaning(each), []).append(each)
    for several in same.values():
        found: dict[Period, float] = {}
        items = (item for each in several for item in numbers[each.series_id].items())
        if all(found.setdefault(period, number) == number for period, number in items):
            yield tuple(several)
        else:
            yield from ((each,) for each in several)


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
