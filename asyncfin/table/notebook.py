"""A panel in a notebook: its first series at their latest periods, as HTML."""

from collections.abc import Sequence
from operator import attrgetter

from asyncfin.html import Table, document
from asyncfin.table.excerpt import (
    MOST_SECTIONS,
    Section,
    SeriesNames,
    excerpt,
    excerpt_of_several,
)
from asyncfin.table.notes import heading
from asyncfin.table.why import Result
from asyncfin.text import GAP, NOT_REQUESTED
from asyncfin.words import Unit

# Tables scroll, and ten years of quarters are still readable.
_PERIODS = 40
_SERIES = 12


def panels_html(
    panels: Sequence[Result], notes: Sequence[str], unit: Unit | None
) -> str:
    """Return lines, a table for each duration of the periods of panels, what these
    leave out, and notes.
    """
    if len(panels) > 1:
        shown = excerpt_of_several(panels, unit=unit)
    else:
        whole = excerpt(panels, unit=unit).first_sections(MOST_SECTIONS)
        shown = whole.latest([_PERIODS] * len(whole.sections)).first(_SERIES)
    above = shown.names().heading
    lines = [heading(panels)]
    if len(panels) == 1:
        lines, notes = [*lines, *notes], ()
    return document(
        [*lines, *([above] if above else [])],
        [_table(*table) for table in shown.tables()],
        dict.fromkeys((*shown.notes(), *notes)),
    )


def _table(section: Section, caption: str, names: SeriesNames) -> Table:
    rows = []
    for row in section.rows:
        texts = row.texts
        # A gap is blank, as markup needs no sign to keep columns apart.
        cells = (
            texts.get(period, "" if row.grid.covers(period) else NOT_REQUESTED)
            for period in section.periods
        )
        rows.append([*names.texts[row], *cells])
    for grid in section.without:
        cells = (
            GAP if grid.covers(period) else NOT_REQUESTED for period in section.periods
        )
        rows.append([*names.of_entity(grid), *cells])
    heads = [*names.heads, *map(attrgetter("label"), section.periods)]
    return Table(heads, rows, len(names.heads), caption)
