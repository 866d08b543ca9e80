"""Tables of text for terminals."""

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Any
from unicodedata import combining, east_asian_width

from asyncfin.errors import printable, shorten, shorten_middle
from asyncfin.html import Table

# Cells without a value: there is none, or it was not requested.
GAP = "·"
NOT_REQUESTED = "?"
_COLUMN_GAP = "  "
# How much of a text is measured: a label can have a megabyte.
_LONGEST = 1_000


def table_lines(
    heads: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    """Lay out a table: head, rule, and rows. Long texts are wrapped."""
    columns = _columns(heads, rows)
    widths = _shrink([_widest(column) for column in columns], width)
    return _lines(columns, widths, [], fold)


def figure_tables(
    table: Table, width: int, *, clip: bool = False
) -> Iterator[list[str]]:
    """Lay out names and figures, in as many tables as it takes to fit a width.

    Args:
        clip: names have two lines at most, and a third of the width. False: long names
            are wrapped within half of it.
    """
    name_columns, widths, figures, room = _layout(table, width, clip)
    for run in _runs(figures, room):
        yield _lines(name_columns, widths, run, _fold_or_clip if clip else fold)


def count_fitting(table: Table, width: int, *, clip: bool = False) -> int:
    """Count the last figures that fit into one table, at least one; arguments as for
    `figure_tables`.
    """
    _, _, figures, room = _layout(table, width, clip)
    return len(_runs(figures[::-1], room)[0])


def _layout(
    table: Table, width: int, clip: bool
) -> tuple[list[list[str]], list[int], list[list[str]], int]:
    """Return the columns of names and their widths, those of figures, and the room for
    these.
    """
    columns = _columns(table.heads, table.rows)
    name_columns, figures = columns[: table.names], columns[table.names :]
    # 1. The names get a share of the width, 2. the figures take what they need of the
    #    rest, and 3. the names get what is left over. Names can be cut; figures can't.
    widest = [_widest(column) for column in name_columns]
    share = width // (3 if clip else 2) + len(_COLUMN_GAP) * (table.names - 1)
    widths = _shrink(widest, share)
    room = max(1, width - sum(widths) - len(_COLUMN_GAP) * table.names)
    # Only a figure that is wider than the whole table is cut.
    figures = [[_clip(text, room) for text in column] for column in figures]
    used = sum(map(_widest, figures)) + len(_COLUMN_GAP) * (len(figures) - 1)
    if used < room:
        widths = _shrink(widest, share + room - used)
    return name_columns, widths, figures, room


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the texts of each column, safe to print and short enough to measure."""
    return [
        [printable(shorten(text, _LONGEST)) for text in column]
        for column in zip(heads, *rows, strict=True)
    ]


def _runs(columns: Sequence[list[str]], room: int) -> list[list[list[str]]]:
    """Divide columns into runs, of at least one each, that fit side by side."""
    runs: list[list[list[str]]] = [[]]
    used = 0
    for column in columns:
        if runs[-1] and used + _widest(column) > room:
            runs.append([])
            used = 0
        runs[-1].append(column)
        used += _widest(column) + len(_COLUMN_GAP)
    return runs


def _lines(
    names: Sequence[list[str]],
    widths: Sequence[int],
    figures: Sequence[list[str]],
    fit: Callable[[str, int], list[str]],
) -> list[str]:
    """Lay out names, which may take more than one line, and figures on their first."""
    figure_columns = []
    for column in figures:
        width = _widest(column)
        figure_columns.append([pad(text, width, right=True) for text in column])
    lines: list[str] = []
    for place, row in enumerate(zip(*names, strict=True)):
        parts = map(fit, row, widths)
        for number, part in enumerate(zip_longest(*parts, fillvalue="")):
            cells = [pad(text, width) for text, width in zip(part, widths, strict=True)]
            if number == 0:
                cells += [column[place] for column in figure_columns]
            lines.append(_COLUMN_GAP.join(cells).rstrip())
        if place == 0:
            heads = len(lines)
    rule = "─" * max(map(cell_width, lines))
    return [*lines[:heads], rule, *lines[heads:]]


def fold(text: str, width: int, **options: Any) -> list[str]:
    """Break a text into lines of at most a width, with options of `textwrap.wrap`."""
    if cell_width(text) <= width:
        return [text]
    return wrap(text, _count_fitting_letters(text, width), **options) or [""]


def _clip(text: str, width: int) -> str:
    """Cut the middle of a text that is wider than a width."""
    if cell_width(text) <= width:
        return text
    return shorten_middle(text, _count_fitting_letters(text, width))


def _count_fitting_letters(text: str, width: int) -> int:
    """Return how many letters of a text fit into a width; of wide ones half as many."""
    if cell_width(text) == len(text):
        return width
    return max(1, width // 2)


def _fold_or_clip(text: str, width: int) -> list[str]:
    """Break a text into two lines. One that needs more is cut to a line."""
    lines = fold(text, width)
    return lines if len(lines) <= 2 else [_clip(text, width)]


def cell_width(text: str) -> int:
    """The width of a text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def _widest(column: Sequence[str]) -> int:
    return max(map(cell_width, column))


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up to a width with blanks."""
    blank = " " * (width - cell_width(text))
    return blank + text if right else text + blank


def _shrink(widths: list[int], width: int) -> list[int]:
    """Make the widest columns narrower until all fit into a width with their gaps."""
    widths = list(widths)
    room = width - len(_COLUMN_GAP) * (len(widths) - 1)
    # Each column has at least one cell, even where the terminal is absurdly narrow.
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    return widths
