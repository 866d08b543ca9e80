"""Panels with other names and texts than those of `panel_of`."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from attrs import evolve

from asyncfin.table.comparison import Comparison
from asyncfin.table.panel import Panel


def with_fields(panel: Panel, **fields: Any) -> Panel:
    """Return the panel with other fields of its grid."""
    return evolve(panel, grid=evolve(panel._grid, **fields))


def with_texts(panel: Panel, field: str, texts: Mapping[str, str]) -> Panel:
    """Return the panel with other texts in a field of some of its series, by metric id."""
    series = tuple(
        msgspec.structs.replace(member, **{field: texts.get(member.metric_id, getattr(member, field))})
        for member in panel._grid.series
    )
    return with_fields(panel, series=series)


def renamed(panel: Panel, name: str, entity_id: str = "") -> Panel:
    """Return the panel of a company of another name, and of another id if there is one."""
    entity_id = entity_id or panel.catalogue.entity_id
    return with_fields(panel, catalogue=evolve(panel.catalogue, name=name, entity_id=entity_id))


def together(panels: Sequence[Panel]) -> Comparison:
    """Return the comparison of panels."""
    by_place = {str(place): panel for place, panel in enumerate(panels)}
    return Comparison(by_place, {}, {}, {}, panels[0].select, "original", 1)
