"""The cursor: where the next page starts, and for which entity, publication and
selection; content.

It is stateless and in plain base64 with padding, so it must be percent-encoded in a URL
like any opaque text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from attrs import frozen
from msgspec import UnsetType

from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.errors import RejectionError, dataset_changed, invalid

# Not a secret: the seal only detects mistyped or invented cursors.
_KEY = b"asyncfin sandbox cursor"
_SEAL = 12


@frozen
class Position:
    """offset: series before the page; page: its number, from 0."""

    offset: int = 0
    page: int = 0


def hash_selection(content: bytes) -> str:
    """Return a short digest of a selection."""
    return hashlib.blake2b(content, digest_size=12).hexdigest()


def _seal(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_SEAL, key=_KEY).digest() + payload


def seal(position: Position, selection: str, dataset_id: str) -> str:
    """Return the `next_cursor` that leads to a position."""
    # Nothing is stored for it: a cursor works again after a restart, and any
    # number of times.
    payload = f"{position.offset}|{position.page}|{selection}|{dataset_id}".encode()
    return base64.b64encode(_seal(payload)).decode()


def find_start(
    cursor: str | UnsetType,
    selection: str,
    expected_dataset_id: str | UnsetType,
    dataset_id: str,
    dialect: Dialect,
) -> Position:
    """Return where the page of a request starts, once its pin and its cursor are found
    to be right.

    Raises:
        RejectionError: 409 for an old pin, or a cursor of an older publication; 400
            for a cursor that is not one, or was made for another entity or selection.
            With `dialect.cursor_before_pin` an older publication is 400 too.
    """
    # First, where the dialect wants it so; checked again below it is found right.
    if (
        dialect.cursor_before_pin
        and cursor
        and read_cursor(cursor, selection)[1] != dataset_id
    ):
        raise _reject("is of an older publication")
    # A UUID is the same in upper and lower case.
    if expected_dataset_id and expected_dataset_id.lower() != dataset_id.lower():
        raise dataset_changed(dataset_id)
    if isinstance(cursor, UnsetType):
        return Position()
    position, publication = read_cursor(cursor, selection)
    if publication != dataset_id:
        raise dataset_changed(dataset_id)
    return position


def read_cursor(text: str, selection: str) -> tuple[Position, str]:
    """Return the position that a cursor leads to, and the publication it was made
    for.
    """
    try:
        # Without `validate` characters outside the alphabet are skipped, and a damaged
        # cursor would pass.
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    payload = content[_SEAL:]
    if not payload or _seal(payload) != content:
        raise _reject("is not a next_cursor of this service")
    offset, page, made_for, publication = payload.decode().split("|")
    if made_for != selection:
        raise _reject(
            "is of another entity or selection: repeat the request that gave it, with "
            "this cursor added"
        )
    return Position(int(offset), int(page)), publication


def _reject(message: str) -> RejectionError:
    return invalid([("cursor", message)])
