"""CSV files (RFC 4180) whose cells no spreadsheet takes for formulas."""

import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# Spreadsheets may take the signs of full width (U+FF1D and others) for the usual ones.
_LINES = re.compile(
    r"\A *\r|(?:^|(?<=[\r\n]))[^\S\r\n]*[=+\-@\t\uff1d\uff0b\uff0d\uff20][^\r\n]*"
)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?%?", re.ASCII)


def csv_cell(text: str) -> str:
    """Put an apostrophe before what a spreadsheet would take for a formula.

    Every line of the text counts, as a program may split it there.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("+3.2%"), csv_cell("- none")
    ("'=1+1", '-1.5', '+3.2%', "'- none")
    """
    # Numbers with a sign stay numbers: a spreadsheet reads those as they are meant.
    if _NUMBER.fullmatch(text):
        return text
    return _LINES.sub(r"'\g<0>", text)


def csv_text(rows: Iterable[Sequence[Any]], *, raw: bool = False) -> str:
    """Write rows as CSV: None is an empty cell, and 3.0 is written as 3.

    Args:
        rows: the cells of each line, the head first.
        raw: write texts as they are, without `csv_cell`.
    """
    import csv  # slow to import, rarely needed

    lines = io.StringIO()
    # Lines end with "\r\n" on every system.
    writer = csv.writer(lines)
    for row in rows:
        writer.writerow([_write_cell(cell, raw) for cell in row])
    return lines.getvalue()


def _write_cell(cell: Any, raw: bool) -> Any:
    if isinstance(cell, str):
        return cell if raw else csv_cell(cell)
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)  # has no exponent
    return cell
