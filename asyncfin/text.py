"""Tables of text for terminals."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap
from unicodedata import combining, east_asian_width

from asyncfin.errors import printable, shorten

# Cells without a value: there is none, or it was not requested.
GAP = "·"
NOT_REQUESTED = "?"
COLUMN_GAP = "  "
_ELLIPSIS = "…"
# How much of a text is measured: a label can have a megabyte.
_LONGEST = 1_000


def table_lines(
    heads: Sequence[str], rows: Iterable[Sequence[str]], width: int
) -> list[str]:
    """Lay out a table: head, rule, and rows. Long texts are wrapped."""
    texts = [list(map(cell_text, row)) for row in (heads, *rows)]
    widest = [max(map(cells, column)) for column in zip(*texts, strict=True)]
    gaps = len(COLUMN_GAP) * (len(heads) - 1)
    widths = shrink(widest, width - gaps)
    head, *body = [row_lines(map(fold, row, widths), widths) for row in texts]
    rule = "─" * (sum(widths) + gaps)
    return [*head, rule, *(line for row in body for line in row)]


def cell_text(text: str) -> str:
    """Make a text safe to print, and short enough to measure."""
    return printable(shorten(text, _LONGEST))


def row_lines(
    columns: Iterable[list[str]], widths: Sequence[int], figures: Sequence[str] = ()
) -> list[str]:
    """Lay out a row whose columns have one or more lines. The figures are on the
    first.
    """
    lines = []
    for number, parts in enumerate(zip_longest(*columns, fillvalue="")):
        row = [pad(part, width) for part, width in zip(parts, widths, strict=True)]
        if number == 0:
            row += figures
        lines.append(COLUMN_GAP.join(row).rstrip())
    return lines


def fold(text: str, width: int) -> list[str]:
    """Break a text into lines of at most a width."""
    if cells(text) <= width:
        return [text]
    # textwrap counts characters. Where a letter takes two cells, half as many fit.
    room = width if cells(text) == len(text) else max(1, width // 2)
    return wrap(text, room) or [""]


def cut(text: str, width: int) -> str:
    """Cut a text to a width. An ellipsis is at the end of one that was cut."""
    if cells(text) <= width:
        return text
    room, start = width - len(_ELLIPSIS), ""
    for letter in text:
        room -= cells(letter)
        if room < 0:
            break
        start += letter
    return start + _ELLIPSIS


def cells(text: str) -> int:
    """The width of a text on a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up to a width with blanks."""
    blank = " " * (width - cells(text))
    return blank + text if right else text + blank


def shrink(widths: Sequence[int], room: int) -> list[int]:
    """Make the widest columns narrower until all fit into the room."""
    widths = list(widths)
    # Each column has at least one cell, even where the terminal is absurdly narrow.
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    return widths
