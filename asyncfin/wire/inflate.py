"""Content codings: bodies are decompressed in bounded steps, up to a limit.

aiohttp (3.14) bounds its steps too, but returns the beginning of a truncated gzip or
zstd stream without an error, and does not notice a cut checksum. Here such a body is a
TruncatedAnswerError.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any

from asyncfin.errors import MalformedAnswerError, TruncatedAnswerError
from asyncfin.wire.zstd import zstd

ACCEPTED = "gzip, zstd"
INCOMPLETE = "the response ended before it was complete"
# isal, which the extra `speed` installs, decompresses a page of 2 MB in 1.3 ms, and
# zlib in 3.2 ms. Both verify checksum and length.
_zlib: Any
try:
    _zlib = import_module("isal.isal_zlib")
except ImportError:
    _zlib = zlib
# The most bytes that a step reads and returns. A thread is stopped between two steps.
_STEP = 32 * 1024
# The first steps run inline, about a millisecond: starting a thread takes longer.
_INLINE_STEPS = 8
# Both codings allow several streams in a row. Each costs as much as a step, even if it
# is empty.
MAX_STREAMS = 1000


class UnreadableError(Exception):
    """A body that cannot be decompressed; `error` is what to raise for it."""

    def __init__(self, error: MalformedAnswerError | TruncatedAnswerError) -> None:
        super().__init__()
        self.error = error


def oversized(limit: int) -> UnreadableError:
    return UnreadableError(
        MalformedAnswerError(f"the body is larger than {limit} bytes")
    )


class _Gzip:
    """zlib's stream with the face of zstd's: it keeps its unused input."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress = _zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


_CODINGS: dict[str, type[_Gzip] | type[zstd.ZstdDecompressor]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "zstd": zstd.ZstdDecompressor,
}


async def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` without its content coding; at most `limit` bytes of it are in
    memory.

    A large body is decompressed in a thread, which ends when the caller is cancelled.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _CODINGS:
        raise UnreadableError(
            MalformedAnswerError(
                f"the body is in a content coding other than {ACCEPTED}"
            )
        )
    if body.lstrip()[:1] in (b"{", b"["):
        raise UnreadableError(
            MalformedAnswerError(
                f"the body is JSON, and not {name}, as its Content-Encoding says"
            )
        )
    steps = _inflate(body, _CODINGS[name], limit)
    pieces = list(islice(steps, _INLINE_STEPS))
    if len(pieces) < _INLINE_STEPS:
        return b"".join(pieces)
    is_left = False

    def in_thread() -> bytes:
        for piece in steps:
            pieces.append(piece)
            if is_left:
                break
        return b"".join(pieces)

    try:
        return await asyncio.to_thread(in_thread)
    finally:
        is_left = True


def _inflate(
    body: bytes, make_stream: type[_Gzip] | type[zstd.ZstdDecompressor], limit: int
) -> Iterator[bytes]:
    """Yield the decompressed body in pieces, one a step; a piece may be empty."""
    position, remaining = 0, limit
    for _ in range(MAX_STREAMS):
        stream = make_stream()
        while not stream.eof:
            data = body[position : position + _STEP] if stream.needs_input else b""
            if stream.needs_input and not data:
                raise UnreadableError(TruncatedAnswerError(INCOMPLETE))
            position += len(data)
            try:
                piece = stream.decompress(data, _STEP)
            except (_zlib.error, zstd.ZstdError):
                raise UnreadableError(TruncatedAnswerError(INCOMPLETE)) from None
            # Counted in each step: a few kilobytes can decompress to gigabytes.
            remaining -= len(piece)
            if remaining < 0:
                raise oversized(limit)
            yield piece
        # A body may be several streams, one after the other (RFC 1952, section 2.2).
        position -= len(stream.unused_data)
        if position == len(body):
            return
    raise UnreadableError(
        MalformedAnswerError(
            f"the body is in more than {MAX_STREAMS} compressed streams"
        )
    )
