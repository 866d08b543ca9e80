"""Panels for people: a table of their texts on a terminal or in a notebook, and what it
leaves out.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from textwrap import wrap
from typing import NamedTuple

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import printable, shorten
from asyncfin.table import text
from asyncfin.table.excerpt import (
    MOST_PERIODS,
    MOST_SECTIONS,
    Excerpt,
    excerpt,
    excerpt_of_several,
)
from asyncfin.table.notebook import panels_html
from asyncfin.table.notes import heading
from asyncfin.table.rows import check_unit
from asyncfin.table.why import Result
from asyncfin.text import cells
from asyncfin.words import Unit

# A text is an overview that fits a terminal.
WIDTH = 100
# How much of a line is wrapped: a name of the service can have a megabyte.
_LONGEST = 10_000
_SERIES = 10
_check_width = checks.whole_number(40).optional()


class Parts(NamedTuple):
    """The parts of a table for people, as lines of text."""

    heading: list[str]
    tables: list[list[str]]
    notes: list[str]


@frozen(repr=False, eq=False, slots=False)
class Shown:
    """A table for people: ``str`` and ``repr`` are its text, and a notebook shows it as
    HTML.

    Neither is made, and no value decoded, before it is looked at.
    """

    _build: Callable[[], Parts] = field(repr=False)
    _html: Callable[[], str] = field(repr=False)
    _width: int

    @cached_property
    def _parts(self) -> Parts:
        return self._build()

    @property
    def heading(self) -> str:
        """The lines above the tables: of what they are, and what all rows share."""
        return "\n".join(self._parts.heading)

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables, each a text that fits the width."""
        return tuple("\n".join(lines) for lines in self._parts.tables)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the tables leave out, and what a reader must know, a line each."""
        return tuple(dict.fromkeys(self._parts.notes))

    def __str__(self) -> str:
        lines = list(self._parts.heading)
        for table in self._parts.tables:
            lines += ["", *table]
        lines += ["", *self.notes]
        return "\n".join(part for line in lines for part in _wrap(line, self._width))

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return self._html()


def check_form(unit: Unit | None, width: int | None) -> None:
    """Reject a unit or a width that no table has."""
    check_unit("unit", unit)
    _check_width("width", width)


def show(
    panels: Sequence[Result],
    notes: Callable[[], Sequence[str]],
    unit: Unit | None,
    width: int | None,
    *,
    all_series: bool,
    all_periods: bool,
    empty: bool,
) -> Shown:
    """Show panels as `Panel.show` does; `notes` returns the lines below."""
    check_form(unit, width)
    columns = WIDTH if width is None else width

    def build() -> Parts:
        clip = not all_series
        if len(panels) > 1:
            part = excerpt_of_several(
                panels, empty=empty, unit=unit, latest=not all_periods
            )
        else:
            part = excerpt(panels, empty=empty, unit=unit)
        if not all_series and len(panels) == 1:
            # Widths follow from a few series: decoding the texts of all would take
            # long.
            part = part.first_sections(MOST_SECTIONS)
            part = part.latest([MOST_PERIODS] * len(part.sections), empty=empty)
            part = part.first(3 * _SERIES)
        if not all_periods:
            part = text.latest(part, columns, empty=empty or len(panels) > 1, clip=clip)
        if not all_series and len(panels) == 1:
            part = part.first(_SERIES)
        return _parts(part, panels, notes(), columns, clip)

    return Shown(build, lambda: panels_html(panels, notes(), unit), columns)


def _parts(
    part: Excerpt,
    panels: Sequence[Result],
    notes: Sequence[str],
    width: int,
    clip: bool,
) -> Parts:
    above = [heading(panels), part.names().heading]
    tables = list(text.tables(part, width, clip=clip))
    return Parts(
        [printable(line) for line in above if line], tables, [*part.notes(), *notes]
    )


def _wrap(line: str, width: int) -> list[str]:
    """Wrap a line, unless it fits: the lines of tables do, and their blanks count."""
    line = shorten(line, _LONGEST)
    if (taken := cells(line)) <= width:
        return [line]
    # textwrap counts characters: where some are two cells wide, half as many always
    # fit.
    room = width if taken == len(line) else width // 2
    return wrap(line, room, subsequent_indent="  ", break_on_hyphens=False)
