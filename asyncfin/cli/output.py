"""Tables, JSON and CSV on standard output; progress on standard error."""

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import msgspec
from rich.console import Console

from asyncfin.checks import expand_user
from asyncfin.clock import utc_text
from asyncfin.csv import csv_text
from asyncfin.errors import printable
from asyncfin.local import write_whole
from asyncfin.text import GAP

if TYPE_CHECKING:
    import pyarrow

# Wider than any line, since rich cuts tables at the width of its console.
_NO_WRAP_WIDTH = 100_000
_BARS = "▁▂▃▄▅▆▇█"


class _Screen(Console):
    """A console that escapes control characters: texts may be the service's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    # rich would end the process with exit code 1; `run` has another exit code for it.
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        # Line by line: the ends of lines are control characters too, and stay.
        shown = (
            "\n".join(map(printable, each.split("\n")))
            if isinstance(each, str)
            else each
            for each in objects
        )
        super().print(*shown, **options)


def screen(width: int | None = None) -> Console:
    """Return standard output for people, as wide as the terminal.

    Args:
        width: the width in files and pipes. None: lines are not wrapped there.
    """
    console = _Screen()
    # rich would wrap at 80 columns in pipes, where lines are read by programs.
    if not console.is_terminal:
        console.width = width or _NO_WRAP_WIDTH
    return console


class _Lossy:
    """A stream that drops what cannot be written: the terminal or the reader may be
    gone.
    """

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
    """Return standard error for progress; a command continues if writing there
    fails.
    """
    return _Screen(file=cast(TextIO, _Lossy(sys.stderr)))


def print_table(console: Console, lines: Sequence[str]) -> None:
    """Print a table that is already printable and no wider than the screen, with its
    first line in bold.
    """
    console.print(lines[0], style="bold")
    # Not through rich, which looks at every character for where to wrap. Line by line,
    # as in `print_text`.
    console.file.writelines(f"{line}\n" for line in lines[1:])


def print_json(value: Any) -> None:
    """Print a value of the model, or plain data, as one JSON document."""
    print_text(json_text(value))


def json_text(value: Any) -> str:
    """Write a value of the model, or plain data, as JSON."""
    encoded = msgspec.json.encode(value, enc_hook=dict)
    return msgspec.json.format(encoded, indent=2).decode()


def print_text(document: str) -> None:
    """Print a JSON document, with control characters escaped, which does not change its
    meaning.
    """

    def escaped(found: re.Match[str]) -> str:
        sign = found[0]
        return sign if sign == "\n" or sign.isprintable() else json.dumps(sign)[1:-1]

    text = re.sub(r"[^ -~]", escaped, document)
    # Line by line: one large write to an unbuffered pipe is truncated silently when the
    # reader leaves.
    sys.stdout.writelines(f"{text}\n".splitlines(keepends=True))


def print_csv(head: Sequence[str], rows: Iterable[Sequence[Any]], *, raw: bool) -> None:
    """Print lines of comma-separated values; None is an empty field, and zero is 0.

    Args:
        raw: write texts as they are. False: put an apostrophe before texts that a
            spreadsheet would take for formulas, and escape control characters on a
            terminal.
    """
    print_csv_text(csv_text([head, *rows], raw=raw), raw=raw)


def print_csv_text(text: str, *, raw: bool) -> None:
    """Print lines of comma-separated values.

    Args:
        raw: False: escape control characters on a terminal.
    """
    # RFC 4180: "\r\n" at the end of each line, on every system.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(newline="")
    if sys.stdout.isatty() and not raw:
        text = "\r\n".join(map(printable, text.split("\r\n")))
    sys.stdout.writelines(text.splitlines(keepends=True))


def print_rows(table: "pyarrow.Table", *, as_json: bool, raw: bool) -> None:
    """Print the rows of a table as a JSON list, or as CSV (`print_csv`), which has no
    columns of lists.
    """
    if as_json:
        print_json(table.to_pylist())
        return
    names = [
        each.name for each in table.schema if not str(each.type).startswith("list")
    ]
    rows = table.select(names).to_pylist()
    print_csv(names, [[_plain(each) for each in row.values()] for row in rows], raw=raw)


def _plain(value: Any) -> Any:
    return utc_text(value) if isinstance(value, datetime) else value


def spark(numbers: Sequence[float | None]) -> str:
    """Return a bar for each number, scaled from the least to the greatest; a dot for
    None.

    >>> spark([1, None, 2, 4.5])
    '▁·▃█'
    """
    known = [number for number in numbers if number is not None]
    low, high = min(known, default=0), max(known, default=0)
    # Equal numbers have no scale; any step will do, since the difference is 0.
    step = (high - low) / (len(_BARS) - 1) or 1
    return "".join(
        GAP if number is None else _BARS[round((number - low) / step)]
        for number in numbers
    )


def replace_file(file: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file, or replace it as a whole: a reader sees the old one or the new
    one.
    """
    # A symbolic link stays; resolve() has no OSError for a loop.
    target = Path(os.path.realpath(expand_user(str(file))))
    part = target.with_name(f".{target.name}.{token_hex(8)}")

    def fill(stream: IO[bytes]) -> None:
        write(stream)
        with suppress(FileNotFoundError):
            shutil.copymode(target, part)

    write_whole(target, part, fill)
