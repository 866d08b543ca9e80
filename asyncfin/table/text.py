"""Plain text: panels as tables of the values' texts that fit a width, and tables of
names.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from unicodedata import combining, east_asian_width

from asyncfin.errors import printable, shorten
from asyncfin.model.period import Period
from asyncfin.table.excerpt import MOST_PERIODS, Excerpt, Section, SeriesNames
from asyncfin.table.grid import Grid
from asyncfin.table.notes import sign
from asyncfin.table.rows import NOT_DIVIDED

_COLUMN_GAP = "  "
_CUT = "…"
# How much of a text is measured.
_LONGEST = 1_000


def tables(excerpt: Excerpt, width: int, *, clip: bool = False) -> Iterator[list[str]]:
    """Yield the lines of each table: of each section as many tables as it takes to fit
    all periods in.

    Args:
        clip: give names one line and a third of the width. False: long names are
            wrapped, within half of it.
    """
    for table in excerpt.tables():
        columns = _Columns(*table, width, clip)
        for start, end in columns.runs():
            yield columns.lines(start, end)


def latest(
    excerpt: Excerpt, width: int, *, empty: bool = False, clip: bool = False
) -> Excerpt:
    """Return the excerpt of the latest periods that fit into one table for each
    section, of 12 at most.
    """
    few = excerpt.latest([MOST_PERIODS] * len(excerpt.sections), empty=empty)
    fitting = [_Columns(*table, width, clip).latest() for table in few.tables()]
    return few.latest(fitting, empty=empty)


def columns(
    heads: Sequence[str], rows: Iterable[Sequence[str]], width: int
) -> list[str]:
    """Return the lines of a table of names: head, rule, and rows; long names are
    wrapped.
    """
    texts = [list(map(_shown, row)) for row in (heads, *rows)]
    widest = [max(map(cells, column)) for column in zip(*texts, strict=True)]
    widths = _shrunk(widest, width - len(_COLUMN_GAP) * (len(heads) - 1))
    head, *body = [_row(map(_folded, row, widths), widths) for row in texts]
    rule = "─" * (sum(widths) + len(_COLUMN_GAP) * (len(heads) - 1))
    return [*head, rule, *(line for row in body for line in row)]


class _Columns:
    """The texts of a section: columns that name the series, and a column for each
    period.
    """

    def __init__(
        self, section: Section, caption: str, names: SeriesNames, width: int, clip: bool
    ) -> None:
        self._caption, self._width, self._clip = caption, width, clip
        texts = [names.texts[row] for row in section.rows] + list(
            map(names.of_entity, section.without)
        )
        self._left = [
            list(map(_shown, column))
            for column in zip(names.heads, *texts, strict=True)
        ]
        # 1. The names get a share of the width, 2. the periods take what they need of
        #    the rest, and 3. the names get what is left over. Names can be shortened or
        #    wrapped; figures can't.
        widest = [max(map(cells, column)) for column in self._left]
        share = width // (3 if clip else 2)
        self._left_widths = _shrunk(widest, share)
        self._room = max(
            1, width - sum(self._left_widths) - len(_COLUMN_GAP) * len(self._left)
        )
        values: list[tuple[Grid, dict[Period, str]]] = [
            (row.grid, row.texts) for row in section.rows
        ]
        values += [(grid, {}) for grid in section.without]
        self._right = [
            # Only a single figure that is wider than the whole table is cut.
            [
                period.label,
                *(
                    _clipped(_shown(texts[period]), self._room)
                    if period in texts
                    else sign(grid, period)
                    for grid, texts in values
                ),
            ]
            for period in section.periods
        ]
        self._right_widths = [max(map(cells, column)) for column in self._right]
        used = sum(self._right_widths) + len(_COLUMN_GAP) * (len(self._right) - 1)
        if used < self._room:
            self._left_widths = _shrunk(widest, share + self._room - used)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield runs of periods, at least one each, that fit side by side."""
        start = used = 0
        for index, width in enumerate(self._right_widths):
            if index > start and used + width > self._room:
                yield start, index
                start, used = index, 0
            used += width + len(_COLUMN_GAP)
        yield start, len(self._right_widths)

    def latest(self) -> int:
        """Return how many of the latest periods fit side by side, at least one."""
        used = 0
        for count, width in enumerate(reversed(self._right_widths)):
            if count and used + width > self._room:
                return count
            used += width + len(_COLUMN_GAP)
        return len(self._right_widths)

    def lines(self, start: int, end: int) -> list[str]:
        """Return the table of some periods: its head, a rule, and the rows."""
        rows = []
        for at, names in enumerate(zip(*self._left, strict=True)):
            figures = [
                _padded(self._right[column][at], self._right_widths[column], right=True)
                for column in range(start, end)
            ]
            rows.append(self._row(names, figures))
        head, *body = rows
        rule = "─" * max(cells(line) for row in rows for line in row)
        caption = (
            [_clipped(_shown(self._caption), self._width)] if self._caption else []
        )
        return [*caption, *head, rule, *(line for row in body for line in row)]

    def _row(self, names: Sequence[str], figures: Sequence[str]) -> list[str]:
        """Return the lines of a row: figures are on the first one, and long names
        continue below.
        """
        fit = _clipped_name if self._clip else _folded
        fitted = map(fit, names, self._left_widths)
        return _row(fitted, self._left_widths, figures)


def _shown(text: str) -> str:
    """Return a text of the service as it is measured and wrapped: a label can have a
    megabyte.
    """
    return printable(shorten(text, _LONGEST))


def _row(
    columns: Iterable[list[str]], widths: Sequence[int], figures: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a row of columns with several lines each; figures are on the
    first one.
    """
    lines = []
    for number, parts in enumerate(zip_longest(*columns, fillvalue="")):
        left = [_padded(part, width) for part, width in zip(parts, widths, strict=True)]
        lines.append(
            _COLUMN_GAP.join([*left, *(figures if number == 0 else ())]).rstrip()
        )
    return lines


def _folded(text: str, width: int) -> list[str]:
    """Return a text in lines of at most a width."""
    if cells(text) <= width:
        return [text]
    # textwrap counts characters: where some are two cells wide, half as many always
    # fit.
    return wrap(text, width if cells(text) == len(text) else max(1, width // 2)) or [""]


def _clipped_name(name: str, width: int) -> list[str]:
    """Return a name in one line; in two where it says that its numbers are not
    divided.
    """
    label = name.removesuffix(NOT_DIVIDED)
    if label == name or cells(name) <= width:
        return [_clipped(name, width)]
    return _folded(
        _clipped(label, max(width, 2 * width - len(NOT_DIVIDED))) + NOT_DIVIDED, width
    )


def _clipped(text: str, width: int) -> str:
    """Return a text cut to a width, with an ellipsis at its end if it was cut."""
    if cells(text) <= width:
        return text
    room, start = width - len(_CUT), []
    for letter in text:
        room -= cells(letter)
        if room < 0:
            break
        start.append(letter)
    return "".join(start) + _CUT


def cells(text: str) -> int:
    """Return the width of a text in a terminal, in columns."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(sign) else 2 if east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def _padded(text: str, width: int, *, right: bool = False) -> str:
    blank = " " * (width - cells(text))
    return blank + text if right else text + blank


def _shrunk(widths: list[int], room: int) -> list[int]:
    """Return the widths with the widest made narrower until all fit into the room."""
    widths = list(widths)
    # Each column keeps at least one cell, even where the terminal is absurdly narrow.
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    return widths
