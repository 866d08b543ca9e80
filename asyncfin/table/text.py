"""Plain text: panels as tables of the values' texts that fit a width."""

from collections.abc import Iterator, Sequence

from asyncfin.model.period import Period
from asyncfin.table.excerpt import MOST_PERIODS, Excerpt, Section, SeriesNames
from asyncfin.table.grid import Grid
from asyncfin.table.notes import sign
from asyncfin.table.rows import NOT_DIVIDED
from asyncfin.text import (
    COLUMN_GAP,
    cell_text,
    cells,
    cut,
    fold,
    pad,
    row_lines,
    shrink,
)


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
            list(map(cell_text, column))
            for column in zip(names.heads, *texts, strict=True)
        ]
        # 1. The names get a share of the width, 2. the periods take what they need of
        #    the rest, and 3. the names get what is left over. Names can be shortened or
        #    wrapped; figures can't.
        widest = [max(map(cells, column)) for column in self._left]
        share = width // (3 if clip else 2)
        self._left_widths = shrink(widest, share)
        self._room = max(
            1, width - sum(self._left_widths) - len(COLUMN_GAP) * len(self._left)
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
                    cut(cell_text(texts[period]), self._room)
                    if period in texts
                    else sign(grid, period)
                    for grid, texts in values
                ),
            ]
            for period in section.periods
        ]
        self._right_widths = [max(map(cells, column)) for column in self._right]
        used = sum(self._right_widths) + len(COLUMN_GAP) * (len(self._right) - 1)
        if used < self._room:
            self._left_widths = shrink(widest, share + self._room - used)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield runs of periods, at least one each, that fit side by side."""
        start = used = 0
        for index, width in enumerate(self._right_widths):
            if index > start and used + width > self._room:
                yield start, index
                start, used = index, 0
            used += width + len(COLUMN_GAP)
        yield start, len(self._right_widths)

    def latest(self) -> int:
        """Return how many of the latest periods fit side by side, at least one."""
        used = 0
        for count, width in enumerate(reversed(self._right_widths)):
            if count and used + width > self._room:
                return count
            used += width + len(COLUMN_GAP)
        return len(self._right_widths)

    def lines(self, start: int, end: int) -> list[str]:
        """Return the table of some periods: its head, a rule, and the rows."""
        rows = []
        for at, names in enumerate(zip(*self._left, strict=True)):
            figures = [
                pad(self._right[column][at], self._right_widths[column], right=True)
                for column in range(start, end)
            ]
            rows.append(self._row(names, figures))
        head, *body = rows
        rule = "─" * max(cells(line) for row in rows for line in row)
        caption = [cut(cell_text(self._caption), self._width)] if self._caption else []
        return [*caption, *head, rule, *(line for row in body for line in row)]

    def _row(self, names: Sequence[str], figures: Sequence[str]) -> list[str]:
        """Return the lines of a row: figures are on the first one, and long names
        continue below.
        """
        fit = _clipped_name if self._clip else fold
        fitted = map(fit, names, self._left_widths)
        return row_lines(fitted, self._left_widths, figures)


def _clipped_name(name: str, width: int) -> list[str]:
    """Return a name in one line; in two where it says that its numbers are not
    divided.
    """
    label = name.removesuffix(NOT_DIVIDED)
    if label == name or cells(name) <= width:
        return [cut(name, width)]
    return fold(
        cut(label, max(width, 2 * width - len(NOT_DIVIDED))) + NOT_DIVIDED, width
    )
