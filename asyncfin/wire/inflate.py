"""Bodies as they came off the wire, inflated: which codings are taken, and how large a body may grow."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_OPEN: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "x-gzip": lambda: zlib.decompressobj(wbits=31),
    "zstd": zstd.ZstdDecompressor,
}

ACCEPTED = "gzip, zstd"


class UnreadableError(Exception):
    """A body that cannot be inflated."""


class UnknownCodingError(UnreadableError):
    """A coding that was not asked for."""


class OversizedError(UnreadableError):
    """The body is larger than allowed."""


class BrokenStreamError(UnreadableError):
    """The compressed stream is damaged, or ends early."""


def is_plain(coding: str) -> bool:
    """Return whether a body in this coding is as it is."""
    return _name(coding) in ("", "identity")


def _name(coding: str) -> str:
    return coding.strip().lower()


def inflate(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` without its content coding; never holds more than `limit` bytes of it.

    Raises:
        UnknownCodingError, OversizedError, BrokenStreamError
    """
    if is_plain(coding):
        return body
    if (name := _name(coding)) not in _OPEN:
        raise UnknownCodingError
    try:
        return _joined(body, _OPEN[name], limit)
    except (zlib.error, zstd.ZstdError):
        raise BrokenStreamError from None


def _joined(body: bytes, opened: Callable[[], Any], limit: int) -> bytes:
    """Inflate one stream after the other: both codings allow several."""
    pieces = []
    while body:
        stream = opened()
        pieces.append(stream.decompress(body, limit + 1))
        limit -= len(pieces[-1])
        if limit < 0:
            raise OversizedError
        if not stream.eof:
            raise BrokenStreamError
        body = stream.unused_data
    return b"".join(pieces)
