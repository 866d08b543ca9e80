"""Standard output and standard error: tables, JSON, CSV, progress, and whole files."""

import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, TextIO, cast

from rich.console import Console

from asyncfin.checks import expand_user
from asyncfin.clock import utc_text
from asyncfin.csv import csv_text
from asyncfin.errors import printable
from asyncfin.text import table_lines

# Wider than any line, since rich cuts tables at the width of its console.
_NO_WRAP_WIDTH = 100_000


class _Screen(Console):
    """A console that escapes control characters: texts may be the service's."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    # rich would end the process with exit code 1; `run` has another exit code for it.
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    def print(self, *objects: Any, **options: Any) -> None:
        texts = []
        for item in objects:
            text = item
            if isinstance(item, str):
                # Line by line: the ends of lines are control characters too, and stay.
                text = "\n".join(map(printable, item.split("\n")))
            texts.append(text)
        super().print(*texts, **options)


def screen() -> Console:
    """Return standard output for people, as wide as the terminal."""
    console = _Screen()
    # rich would wrap at 80 columns in pipes, where lines are read by programs.
    if not console.is_terminal:
        console.width = _NO_WRAP_WIDTH
    return console


def print_line(text: str, style: str | None = None) -> None:
    """Print a line, or more, for people."""
    screen().print(text, style=style)


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


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    """Print a table that is no wider than the screen, with its first line in bold."""
    print_lines(table_lines(heads, rows, screen().width))


def print_lines(lines: Sequence[str]) -> None:
    """Print the lines of a table that is already printable."""
    console = screen()
    console.print(lines[0], style="bold")
    # Not through rich, which looks at every character for where to wrap. Line by line,
    # as in `print_text`.
    console.file.writelines(f"{line}\n" for line in lines[1:])


def print_json(value: Any) -> None:
    """Print a value of the model, or plain data, as one JSON document."""
    import msgspec  # not for help

    content = msgspec.json.encode(value, enc_hook=dict)
    print_text(msgspec.json.format(content, indent=2).decode())


def print_text(document: str) -> None:
    """Print a JSON document, with control characters escaped, which does not change its
    meaning.
    """

    def escape(match: re.Match[str]) -> str:
        return match[0] if match[0].isprintable() else json.dumps(match[0])[1:-1]

    text = re.sub(r"[^ -~\n]", escape, document)
    # Line by line: one large write to an unbuffered pipe is truncated silently when the
    # reader leaves.
    sys.stdout.writelines(f"{text}\n".splitlines(keepends=True))


def print_csv(text: str) -> None:
    """Print lines of comma-separated values, without control characters on a
    terminal.
    """
    # RFC 4180: "\r\n" at the end of each line, on every system.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(newline="")
    if sys.stdout.isatty():
        text = "\r\n".join(map(printable, text.split("\r\n")))
    sys.stdout.writelines(text.splitlines(keepends=True))


def print_rows(
    rows: Sequence[dict[str, Any]], *, as_json: bool, heads: Iterable[str] = ()
) -> None:
    """Print rows as a JSON list, or as CSV, which has no columns of lists.

    Args:
        heads: the columns of CSV. Empty: those of the first row.
    """
    if as_json:
        print_json(rows)
        return
    heads = list(heads)
    if rows and not heads:
        for name, cell in rows[0].items():
            if not isinstance(cell, (list, tuple)):
                heads.append(name)
    lines = [heads]
    for row in rows:
        cells = map(row.__getitem__, heads)
        lines.append(list(map(_write_time, cells)))
    print_csv(csv_text(lines))


def _write_time(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return utc_text(cell)
    return cell


def replace_file(file: Path, content: bytes) -> None:
    """Write a file, or replace it as a whole: a reader sees the old one or the new
    one.
    """
    from asyncfin.local import write_whole  # not for help

    # A symbolic link stays; resolve() has no OSError for a loop.
    target = Path(os.path.realpath(expand_user(str(file))))
    part = target.with_name(f".{target.name}.{os.urandom(8).hex()}")

    def fill(stream: IO[bytes]) -> None:
        stream.write(content)
        with suppress(FileNotFoundError):
            part.chmod(stat.S_IMODE(target.stat().st_mode))

    write_whole(target, part, fill)
