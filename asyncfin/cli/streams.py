"""Standard output and standard error, whatever the locale, and when one is closed or
its reader has gone.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from asyncfin.errors import printable


def use_utf8() -> None:
    """Write UTF-8 into files and pipes, whatever the locale; a terminal shows "?" for
    what it cannot encode.

    What is written to a closed standard output or error is discarded.
    """
    sys.stdout, sys.stderr = sys.stdout or open_devnull(), sys.stderr or open_devnull()
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if stream.isatty():
            # A terminal's encoding is its own affair: UTF-8 would be unreadable on one
            # that has another.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        else:  # an error may quote bytes of an argument that are not text
            stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]


def discard_output() -> None:
    """Redirect standard output to the null device, so that the interpreter's last flush
    does not fail.
    """
    # By descriptor: the buffer of sys.stdout is written at exit, into whatever the
    # descriptor then is.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_devnull() -> TextIO:
    """Return a replacement for a closed standard output or error."""
    return Path(os.devnull).open("w")


def print_error(line: str) -> None:
    """Write a line to standard error, if it is open."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)  # noqa: T201
