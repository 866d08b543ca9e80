"""The place that a path or URL names."""

from __future__ import annotations

import os
import re
from pathlib import Path

from asyncfin import checks, concat
from asyncfin.checks import expand_user, without_password
from asyncfin.errors import ArgumentError
from asyncfin.extraction.place import Folder, Place
from asyncfin.extraction.prefix import Prefix


def place_of(address: str | os.PathLike[str]) -> Place:
    """Return the place that a path or URL names; it looks at the disk, so it blocks.

    Raises:
        ArgumentError: it names none, or one whose files readers would misread.
    """
    if not isinstance(address, (str, os.PathLike)) or not os.fspath(address):
        raise ArgumentError(
            "to must be the path of a folder, or an address such as "
            f"s3://bucket/prefix, not {checks.short_repr(address)}"
        )
    if isinstance(address, str) and re.match("(s3|gs|az)://", address, re.IGNORECASE):
        place: Place = _parse_prefix(address)
    else:
        place = _parse_folder(os.fspath(address))
    for segment in str(place).split("/"):
        column, equals, _ = segment.partition("=")
        if equals and column in concat([]).column_names:
            raise ArgumentError(
                f"to: {place} has {segment} in it, and readers would take that for the "
                f"column {column!r} of the files: give another name, such as "
                f"{segment.replace('=', '-')}"
            )
    return place


def check_exists(place: Place) -> None:
    """Raise ArgumentError for a folder that does not exist. It blocks."""
    if isinstance(place, Folder) and not os.path.isdir(str(place)):
        raise ArgumentError(f"there is no folder {place}")


def _parse_folder(address: str) -> Folder:
    # Path("s3://bucket") is the path s3:/bucket, and must not pass for a folder. C:/ is
    # one.
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/|(?i:s3|gs|az):", address):
        raise ArgumentError(
            f"to: {scheme[0]}... is not an address that files can be written to; give "
            "s3://bucket/prefix, the same with gs or az, or the path of a folder"
        )
    data = Path(os.path.realpath(expand_user(address)))
    if os.path.lexists(data) and not data.is_dir():
        raise ArgumentError(f"to: {data} is not a folder; give a folder or a new path")
    # A rename within one file system is atomic; between two it is a copy.
    if os.path.ismount(data):
        raise ArgumentError(
            f"to: {data} is a mount point, and unfinished files are written next to "
            f"the folder: give a folder within it, such as {data / 'extraction'}"
        )
    return Folder(str(data.parent), data.name)


def _parse_prefix(address: str) -> Prefix:
    # No bucket's name contains other characters. What precedes the "/" of
    # s3://key:sec/ret@bucket does.
    parts = re.fullmatch(r"(\w+)://([\w.-]*)(/[^?#]*)?", address, re.ASCII)
    if parts is None:
        # Not shown: it may hold a secret.
        raise ArgumentError(
            "to: the address of a bucket must not hold a user, a password, ? or #: "
            "credentials come from the environment (AWS_ACCESS_KEY_ID and the like)"
        )
    scheme, bucket, path = parts.groups("")
    segments = path.strip("/").split("/")
    if not bucket or not all(segments) or {".", ".."} & set(segments):
        raise ArgumentError(
            f"to: {without_password(address)!r} is not a prefix of a bucket; give "
            f"{scheme.lower()}://bucket/prefix: the lock is next to the prefix"
        )
    return Prefix(f"{scheme.lower()}://{bucket}", "/".join(segments))
