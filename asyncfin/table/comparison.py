"""Panels next to each other, of several entities or versions: for the command line, the explorer and MCP.

A cell without a value is `sign(panel, period)`: a dot, or a question mark where the period was not requested
and the catalogue has it. `notes(panels, periods)` explains the question marks.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from asyncfin.model.period import Period
from asyncfin.table import notes as of_grids
from asyncfin.table.excerpt import Excerpt, excerpt
from asyncfin.table.panel import Panel
from asyncfin.table.why import why as reason

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def excerpt_of(panels: Iterable[Panel], *, empty: bool = False) -> Excerpt:
    """Return what `asyncfin.table.text` prints of panels.

    Args:
        empty: show series and periods without any value too.
    """
    return excerpt([panel._grid for panel in panels], empty=empty)


def periods_of(panels: Iterable[Panel]) -> tuple[Period, ...]:
    """Return the periods and gaps of panels, oldest first, without gaps of more than 40 in a row."""
    return tuple(sorted({period for panel in panels for period in panel._grid.rows_of_wide}))


def sign(panel: Panel, period: Period) -> str:
    """Return the sign of a cell without a value: `notes.GAP`, or `notes.NOT_REQUESTED`."""
    return of_grids.sign(panel._grid, period)


def why(panel: Panel, series_ids: Iterable[str], period: Period) -> str | None:
    """Return what `Panel.why` would for one series with the values of several, which have one scope path."""
    return reason(panel._grid, panel.unlisted, [panel._grid.by_id[each] for each in series_ids], period)


def notes(panels: Sequence[Panel], periods: Sequence[Period]) -> list[str]:
    """Return lines that name the periods that were not requested, and the entities that have none of them."""
    return list(of_grids.notes([panel._grid for panel in panels], periods))


def entity_names(panels: Iterable[Panel]) -> dict[str, str]:
    """Return the names of entities by id, with the id where two have one name, or one has none."""
    return of_grids.entity_names(panel._grid for panel in panels)


def plot(panels: Iterable[Panel], ax: "Axes | None" = None) -> "Axes":
    """Draw panels on the same axes, as `Panel.plot` does for one.

    Raises:
        TooManyLinesError: there are more lines than can be distinguished.
        SelectionError: as for `Panel.plot`.
    """
    from asyncfin.table.plot import plot

    return plot([panel._grid for panel in panels], ax)
