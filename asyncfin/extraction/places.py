"""The place that a path or URL names."""

from __future__ import annotations

import os
import re

from asyncfin import checks, concat
from asyncfin.errors import ArgumentError
from asyncfin.extraction.folder import folder_at
from asyncfin.extraction.place import Place, url
from asyncfin.extraction.prefix import SCHEMES, prefix_at


def place_of(to: str | os.PathLike[str]) -> Place:
    """Return the place that a path or URL names; it looks at the disk, so it blocks.

    Raises:
        ArgumentError: it names none, or one whose files readers would misread.
    """
    if not isinstance(to, (str, os.PathLike)) or not os.fspath(to):
        raise ArgumentError(
            "to must be the path of a folder, or an address such as "
            "s3://bucket/prefix, not"
            f" {checks.short_repr(to)}"
        )
    if (
        isinstance(to, str)
        and (scheme := to.partition("://")[0].lower()) in SCHEMES
        and "://" in to
    ):
        place: Place = prefix_at(scheme, to)
    else:
        place = folder_at(to)
    _check_segments(place)
    return place


def _check_segments(place: Place) -> None:
    for segment in url(place, place.name).split("/"):
        if re.fullmatch(r"_.+\.(journal|changes)", segment):
            raise ArgumentError(
                f"to: {place} is in {segment}, which belongs to another extraction; "
                "give another"
            )
        column, equals, _ = segment.partition("=")
        if equals and column in _columns():
            raise ArgumentError(
                f"to: {place} has {segment} in it, and readers would take that for the "
                f"column {column!r} of"
                f" the files: give another name, such as {segment.replace('=', '-')}"
            )


def _columns() -> list[str]:
    names: list[str] = concat([]).column_names
    return names
