"""The cursor: where the next page starts, and for which entity, publication and selection; sealed.

It is stateless and in plain base64 with padding, so it must be percent-encoded in a URL like any opaque text.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from attrs import frozen

from asyncfin.sandbox.request import RefusedError

_KEY = b"asyncfin sandbox cursor"
_SEAL = 12


@frozen
class Position:
    """offset: series before the page; page: its number, from 0."""

    offset: int = 0
    page: int = 0


def fingerprint(text: str) -> str:
    """A short digest that stands for a selection."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _sealed(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_SEAL, key=_KEY).digest() + payload


def seal(position: Position, selection: str, dataset_id: str) -> str:
    """The `next_cursor` that leads to a position."""
    payload = f"{position.offset}|{position.page}|{selection}|{dataset_id}".encode()
    return base64.b64encode(_sealed(payload)).decode()


def unseal(text: str | None, selection: str, dataset_id: str) -> Position:
    """The position a cursor leads to; None leads to the start.

    Raises RefusedError: 400 for a cursor that is none or was made for another entity or selection, 409 for
    one of an older publication.
    """
    if text is None:
        return Position()
    try:
        sealed = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        sealed = b""
    payload = sealed[_SEAL:]
    if not payload or _sealed(payload) != sealed:
        raise _invalid("is not a next_cursor of this service")
    offset, page, made_for, publication = payload.decode().split("|")
    if made_for != selection:
        raise _invalid(
            "is of another entity or selection: repeat the request that gave it, with this cursor added"
        )
    if publication != dataset_id:
        raise dataset_changed(dataset_id)
    return Position(int(offset), int(page))


def dataset_changed(dataset_id: str) -> RefusedError:
    """spec 4.2 rule 3, 4.3 rule 6."""
    return RefusedError(409, "dataset_changed", f"The current publication is {dataset_id}.")


def _invalid(message: str) -> RefusedError:
    return RefusedError(400, "validation_failed", f"cursor {message}.", issues=(("cursor", message),))
