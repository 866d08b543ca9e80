"""Panels for people: a table of their texts on a terminal or in a notebook, and what it leaves out."""

from collections.abc import Callable
from functools import partial
from textwrap import wrap

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import printable
from asyncfin.table import text
from asyncfin.table.excerpt import excerpt
from asyncfin.table.notebook import panel_html
from asyncfin.table.notes import facts, title
from asyncfin.table.unit import Unit, check_unit, heading
from asyncfin.table.why import Result

# A text is an overview that fits a terminal.
_WIDTH = 100
_SECTIONS = 4
_SERIES = 10
_check_width = checks.whole_number(40).optional()


@frozen(repr=False, eq=False)
class Shown:
    """A table for people: ``str`` and ``repr`` are its text, and a notebook shows it as HTML.

    Neither is made, and no value decoded, before it is looked at.
    """

    _text: Callable[[], str] = field(repr=False)
    _html: Callable[[], str] = field(repr=False)

    def __str__(self) -> str:
        return self._text()

    def __repr__(self) -> str:
        return self._text()

    def _repr_html_(self) -> str:
        return self._html()


def show(panel: Result, unit: Unit | None = None, width: int | None = None) -> Shown:
    """Return a panel for people.

    Raises:
        ArgumentError: `unit` or `width` is none that can be shown.
    """
    check_unit("unit", unit)
    _check_width("width", width)
    return Shown(
        partial(_panel_text, panel, unit, _WIDTH if width is None else width),
        lambda: panel_html(panel._grid, [title(panel), *facts(panel)], unit),
    )


def _panel_text(panel: Result, unit: Unit | None, width: int) -> str:
    # In three steps, since each decodes texts: few sections, few series, then as many periods as fit.
    whole = excerpt([panel._grid]).first_sections(_SECTIONS)
    # Widths follow from a few series: decoding the texts of all would take long for a large panel.
    few = whole.latest([text.MOST_PERIODS] * len(whole.sections)).first(3 * _SERIES)
    shown = text.latest(few, width, unit, clip=True).first(_SERIES)
    lines = [title(panel)]
    if above := heading(shown.names(), unit):
        lines.append(printable(above))
    for table in text.tables(shown, width, unit, clip=True):
        lines += ["", *table]
    lines += ["", *shown.notes(), *facts(panel)]
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line, width))


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line of text as lines that fit; the lines of tables do, and their blanks count."""
    if len(line) <= width:
        return [line]
    return wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
