"""How results are written to standard output, as tables, JSON or CSV; and how things are said aside."""

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec
from attrs import fields
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

GAP = "·"
_NO_WRAP_WIDTH = 100_000
_BARS = "▁▂▃▄▅▆▇█"


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(width: int | None = None) -> Console:
    """Return standard output for people: as wide as the terminal; files and pipes get whole lines.

    Args:
        width: the width in files and pipes, where it matters.
    """
    console = _Screen(markup=False, highlight=False, emoji=False)
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


def aside() -> Console:
    """Return standard error for progress, on which no command depends."""
    return Console(file=cast(TextIO, _Lossy(sys.stderr)), markup=False, highlight=False)


def say(line: str) -> None:
    """Write a line to standard error, if that can be done."""
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def nowhere() -> TextIO:
    """Return what takes the place of a closed standard output or error."""
    return Path(os.devnull).open("w")


def bare_table(*left: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table with a line under its head and no other; columns are left and right aligned."""
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def print_json(value: Any) -> None:
    """Print a value of the model, or plain data, as one JSON document."""
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=2)
    # In pieces: one large write to an unbuffered pipe is cut short in silence when the reader leaves.
    sys.stdout.writelines(f"{text}\n".splitlines(keepends=True))


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as something it has: fields as the service names them, UTC as Z."""
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Mapping():
            return dict(value)
        case msgspec.Struct():
            return msgspec.structs.asdict(value)
    return {field.name: getattr(value, field.name) for field in fields(type(value))}


def print_csv(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print lines of comma-separated values; None is an empty field, and zero is 0."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)


def spark(numbers: Sequence[float | None]) -> str:
    """Return a line of bars, one a number, from the least to the greatest; a gap where there is none.

    >>> spark([1, None, 2, 4.5])
    '▁·▃█'
    """
    known = [number for number in numbers if number is not None]
    low, high = min(known, default=0), max(known, default=0)
    step = (high - low) / (len(_BARS) - 1) or 1
    return "".join(GAP if number is None else _BARS[round((number - low) / step)] for number in numbers)
