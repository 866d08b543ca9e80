"""Bodies as they came off the wire, inflated: which codings are taken, and how much work one may cause.

A small body may inflate to a very large one, or consist of very many compressed streams that hold nothing.
So inflating goes in steps of bounded size and is linear in the body; what it costs is known only as it
goes, and so is whether it is better done in a thread.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Protocol

from asyncfin.wire.zstd import zstd

ACCEPTED = "gzip, zstd"
# Bytes that a step takes and gives at most. A thread can be stopped between two steps, so it ends at once.
_STEP = 32 * 1024
# The first steps are done inline, about a millisecond: starting a thread would take longer.
_INLINE_STEPS = 8
# Both codings allow several streams in a row, and a few have a use. Each costs as much as a step, however
# little it holds.
MAX_STREAMS = 1000


class UnreadableError(Exception):
    """A body that cannot be inflated."""


class UnknownCodingError(UnreadableError):
    """A coding that was not asked for."""


class OversizedError(UnreadableError):
    """The body is larger than allowed."""


class TooManyStreamsError(UnreadableError):
    """The body consists of more than `MAX_STREAMS` compressed streams."""


class BrokenStreamError(UnreadableError):
    """The compressed stream is damaged, or ends early."""


class _Stream(Protocol):
    """One compressed stream; it keeps the input that it has not used yet."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """zlib's stream as a `_Stream`, which zstd's is by itself."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

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


_CODINGS: dict[str, Callable[[], _Stream]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "zstd": zstd.ZstdDecompressor,
}


async def inflated(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` without its content coding; at most `limit` bytes of it are ever held.

    What takes longer than a moment is done in a thread, which ends with the caller's wait for it.

    Raises:
        UnreadableError: a subclass says why it can't be inflated.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in _CODINGS:
        raise UnknownCodingError
    # The first steps run here: for most bodies they are all, and a thread costs more than they do.
    steps = _inflate(body, _CODINGS[name], limit)
    pieces = list(islice(steps, _INLINE_STEPS))
    if len(pieces) < _INLINE_STEPS:
        return b"".join(pieces)
    left = False

    # A step is short, so the thread ends soon after its caller has left: a thread can't be cancelled.
    def in_thread() -> bytes:
        for piece in steps:
            pieces.append(piece)
            if left:
                break
        return b"".join(pieces)

    try:
        return await asyncio.to_thread(in_thread)
    finally:
        left = True


def _inflate(body: bytes, opened: Callable[[], _Stream], limit: int) -> Iterator[bytes]:
    """Yield the inflated body in pieces, one a step; a piece may be empty."""
    position = 0
    for _ in range(MAX_STREAMS):
        stream = opened()
        while not stream.eof:
            data = body[position : position + _STEP] if stream.needs_input else b""
            if stream.needs_input and not data:
                raise BrokenStreamError
            position += len(data)
            try:
                piece = stream.decompress(data, _STEP)
            except (zlib.error, zstd.ZstdError):
                raise BrokenStreamError from None
            # Counted while it inflates: a few kilobytes can stand for gigabytes.
            limit -= len(piece)
            if limit < 0:
                raise OversizedError
            yield piece
        # A body may be several streams, one after the other (RFC 1952, section 2.2).
        position -= len(stream.unused_data)
        if position == len(body):
            return
    raise TooManyStreamsError
