"""How results are written to standard output, as tables, JSON or CSV; and how things are said aside."""

import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO, cast

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asyncfin.errors import printable
from asyncfin.table.document import to_json
from asyncfin.table.excerpt import GAP

_NO_WRAP_WIDTH = 100_000
_BARS = "▁▂▃▄▅▆▇█"


class _Screen(Console):
    """A console on which texts, which may be the service's, do nothing but stand there."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(_lines(each) if isinstance(each, str) else each for each in objects), **options)


class _Table(Table):
    """A table whose cells are shown as they are."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(printable(each) if isinstance(each, str) else each for each in cells), **options)


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def screen(width: int | None = None) -> Console:
    """Return standard output for people: as wide as the terminal; files and pipes get whole lines.

    Args:
        width: the width in files and pipes, where it matters.
    """
    console = _Screen()
    if not console.is_terminal:
        console.width = width or _NO_WRAP_WIDTH
    return console


class _Lossy:
    """A stream that loses what it can't write: the terminal or the reader may have gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def progress_console() -> Console:
    """Return standard error for progress, on which no command depends."""
    return _Screen(file=cast(TextIO, _Lossy(sys.stderr)))


def print_error(line: str) -> None:
    """Write a line to standard error, if that can be done."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)  # noqa: T201


def open_devnull() -> TextIO:
    """Return what takes the place of a closed standard output or error."""
    return Path(os.devnull).open("w")


def bare_table(*left: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table with a line under its head and no other; columns are left and right aligned."""
    table = _Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def print_json(value: Any) -> None:
    """Print a value of the model, or plain data, as one JSON document."""
    print_text(to_json(value, indent=2))


def print_text(document: str) -> None:
    """Print a JSON document. Signs that do something to a terminal are escaped, as JSON allows anywhere."""
    escaped = re.sub(r"[^ -~]", _escaped, document)
    # In pieces: one large write to an unbuffered pipe is cut short in silence when the reader leaves.
    sys.stdout.writelines(f"{escaped}\n".splitlines(keepends=True))


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    return sign if sign == "\n" or sign.isprintable() else json.dumps(sign)[1:-1]


def print_csv(head: Sequence[str], rows: Iterable[Sequence[Any]], *, raw: bool) -> None:
    """Print lines of comma-separated values; None is an empty field, and zero is 0.

    Args:
        raw: leave texts as they are. False: a text that a spreadsheet would take for a formula begins
            with an apostrophe, and on a terminal signs that do something to it are escaped.
    """
    writer = csv.writer(sys.stdout, lineterminator="\n")
    text = _identity if raw else (_terminal_text if sys.stdout.isatty() else plain_text)
    for row in [head, *rows]:
        writer.writerow([text(each) if isinstance(each, str) else each for each in row])


def _identity(text: str) -> str:
    return text


def _terminal_text(text: str) -> str:
    return printable(plain_text(text))


def plain_text(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: with an apostrophe before it where one would.

    >>> plain_text("=1+1"), plain_text("-1.5"), plain_text("- none")
    ("'=1+1", '-1.5', "'- none")
    """
    if not re.match(r"\s*[=+\-@\t\r]", text) or re.fullmatch(r"[+-]?\d+(\.\d+)?", text, re.ASCII):
        return text
    return f"'{text}"


def spark(numbers: Sequence[float | None]) -> str:
    """Return a line of bars, one a number, from the least to the greatest; a gap where there is none.

    >>> spark([1, None, 2, 4.5])
    '▁·▃█'
    """
    known = [number for number in numbers if number is not None]
    low, high = min(known, default=0), max(known, default=0)
    step = (high - low) / (len(_BARS) - 1) or 1
    return "".join(GAP if number is None else _BARS[round((number - low) / step)] for number in numbers)
