"""Options and arguments that commands share, and their checks."""

import csv
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TextIO

from cyclopts import Group, Parameter

from asyncfin.checks import expand_user
from asyncfin.cli.exits import UsageError
from asyncfin.optional import library

Several = tuple[str, ...]
AsJson = Annotated[bool, Parameter(name="--json", help="Print JSON instead.")]
STDIN = Path("-")

entity_group = Group("Which entities", sort_key=0)


def is_folder(path: str) -> bool:
    """Return whether a folder exists; ~ is the user's."""
    return os.path.isdir(expand_user(path))


@contextmanager
def opened(path: Path, what: str, advice: str) -> Iterator[TextIO]:
    """Open a text file or standard input, which errors call `what`. Reading blocks."""
    try:
        # Not sys.stdin, which decodes by the locale, and is None if standard input is
        # closed.
        source = 0 if path == STDIN else expand_user(str(path))
        with open(source, encoding="utf-8-sig", closefd=source != 0) as file:
            yield file
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
    except csv.Error:
        reason = "it is not a CSV file"
    else:
        return
    raise UsageError(f"{what} can't be read ({reason}): {advice}")


def require(name: str, extra: str, what: str) -> None:
    """Refuse, before a request is spent, what needs a module that is not installed."""
    try:
        library(name, extra)
    except ImportError as error:
        missing = str(error)
    else:
        return
    raise UsageError(f"{what} needs more: {missing}")


def require_place(place: str, what: str, named: str) -> None:
    """Refuse a place of an extraction if a library is not installed that reads or
    writes there.

    Args:
        what: what needs the library of Parquet files.
        named: what needs that of object stores.
    """
    from asyncfin.extraction.folder import Folder
    from asyncfin.extraction.places import place_of

    require("pyarrow.parquet", "arrow", what)
    if not isinstance(place_of(place), Folder):
        require("obstore", "store", named)


def choose_one(options: Mapping[str, bool]) -> str | None:
    """Return the only option that is given, if any; refuse several."""
    given = [name for name, flag in options.items() if flag]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: choose one")
    return given[0] if given else None


def refuse_bytes(option: str, given: Several | str | None) -> None:
    """Refuse arguments that are not UTF-8: Python decodes them to text that cannot be
    encoded.
    """
    for text in (given,) if isinstance(given, str) else given or ():
        if any(0xD800 <= ord(sign) <= 0xDFFF for sign in text):
            raise UsageError(f"{option} must be text in UTF-8, not {text!r}")
