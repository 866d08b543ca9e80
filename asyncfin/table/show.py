"""Panels for people: a table of their texts on a terminal or in a notebook, and what it
leaves out.
"""

from collections.abc import Callable, Sequence
from textwrap import wrap

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import printable, shorten
from asyncfin.table import text
from asyncfin.table.excerpt import (
    MOST_PERIODS,
    MOST_SECTIONS,
    excerpt,
    excerpt_of_several,
)
from asyncfin.table.notebook import panels_html
from asyncfin.table.notes import facts, heading, title
from asyncfin.table.rows import check_unit
from asyncfin.table.why import Result
from asyncfin.words import Unit

# A text is an overview that fits a terminal.
_WIDTH = 100
# How much of a line is wrapped: a name of the service can have a megabyte.
_LONGEST = 10_000
_SERIES = 10
_check_width = checks.whole_number(40).optional()


@frozen(repr=False, eq=False)
class Shown:
    """A table for people: ``str`` and ``repr`` are its text, and a notebook shows it as
    HTML.

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
    check_form(unit, width)
    return Shown(
        lambda: _text([panel], facts(panel), unit, width),
        lambda: panels_html([panel], [title(panel), *facts(panel)], (), unit),
    )


def show_several(
    panels: Sequence[Result],
    notes: Callable[[], Sequence[str]],
    unit: Unit | None,
    width: int | None,
) -> Shown:
    """Return panels of several entities for people, in the same tables, with notes
    below.

    Raises:
        ArgumentError: as for `show`.
    """
    check_form(unit, width)
    return Shown(
        lambda: _text(panels, notes(), unit, width),
        lambda: panels_html(panels, [heading(panels)], notes(), unit),
    )


def check_form(unit: Unit | None, width: int | None) -> None:
    """Reject a unit or a width that no table has."""
    check_unit("unit", unit)
    _check_width("width", width)


def _text(
    panels: Sequence[Result],
    notes: Sequence[str],
    unit: Unit | None,
    width: int | None,
) -> str:
    width = _WIDTH if width is None else width
    if len(panels) > 1:
        shown = text.latest(
            excerpt_of_several(panels, unit=unit), width, empty=True, clip=True
        )
    else:
        # In three steps, since each decodes texts: few sections, few series, then as
        # many periods as fit.
        whole = excerpt(panels, unit=unit).first_sections(MOST_SECTIONS)
        # Widths follow from a few series: decoding the texts of all would take long for
        # a large panel.
        few = whole.latest([MOST_PERIODS] * len(whole.sections)).first(3 * _SERIES)
        shown = text.latest(few, width, clip=True).first(_SERIES)
    lines = [heading(panels)]
    if above := shown.names().heading:
        lines.append(printable(above))
    for table in text.tables(shown, width, clip=True):
        lines += ["", *table]
    lines += ["", *dict.fromkeys((*shown.notes(), *notes))]
    return "\n".join(wrapped for line in lines for wrapped in _wrapped(line, width))


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line of text as lines that fit; the lines of tables do, and their blanks
    count.
    """
    line = shorten(line, _LONGEST)
    if (taken := text.cells(line)) <= width:
        return [line]
    # textwrap counts characters: where some are two cells wide, half as many always
    # fit.
    room = width if taken == len(line) else width // 2
    return wrap(line, room, subsequent_indent="  ", break_on_hyphens=False)
