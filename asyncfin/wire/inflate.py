"""Gzip: bodies are decompressed in bounded steps, up to a limit.

aiohttp (3.14) bounds its steps too, but returns the beginning of a truncated gzip
stream without an error, and does not notice a cut checksum. Here such a body is a
TruncatedAnswerError.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import islice
from typing import Any

from asyncfin.errors import MalformedAnswerError, TruncatedAnswerError

ACCEPTED = "gzip"
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


def too_large_error(limit: int) -> MalformedAnswerError:
    return MalformedAnswerError(f"the body is larger than {limit} bytes")


async def inflate(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` without its content coding; at most `limit` bytes of it are in
    memory.

    A large body is decompressed in a thread, which ends when the caller is cancelled.

    Raises:
        MalformedAnswerError: it has another coding, or is larger.
        TruncatedAnswerError: it is damaged or incomplete.
    """
    name = coding.strip().lower()
    if name in ("", "identity"):
        return body
    problem = ""
    if name not in ("gzip", "x-gzip"):
        problem = f"the body is in a content coding other than {ACCEPTED}"
    elif body.lstrip()[:1] in (b"{", b"["):
        problem = f"the body is JSON, and not {name}, as its Content-Encoding says"
    if problem:
        raise MalformedAnswerError(problem)
    steps = _inflate(body, limit)
    pieces = list(islice(steps, _INLINE_STEPS))
    if len(pieces) < _INLINE_STEPS:
        return b"".join(pieces)
    is_cancelled = False

    def inflate_in_thread() -> bytes:
        for piece in steps:
            pieces.append(piece)
            if is_cancelled:
                break
        return b"".join(pieces)

    try:
        return await asyncio.to_thread(inflate_in_thread)
    finally:
        is_cancelled = True


def _inflate(body: bytes, limit: int) -> Iterator[bytes]:
    """Yield the decompressed body in pieces, one a step; a piece may be empty."""
    stream: zlib._Decompress = _zlib.decompressobj(wbits=31)
    position, remaining = 0, limit
    while not stream.eof or stream.unused_data or position < len(body):
        if stream.eof:  # a body may have several members (RFC 1952, section 2.2)
            position -= len(stream.unused_data)
            stream = _zlib.decompressobj(wbits=31)
        data = stream.unconsumed_tail
        if not data:
            data = body[position : position + _STEP]
            position += len(data)
            if not data:
                raise TruncatedAnswerError(INCOMPLETE)
        piece = None
        with suppress(_zlib.error):
            piece = stream.decompress(data, _STEP)
        if piece is None:
            raise TruncatedAnswerError(INCOMPLETE)
        # Counted in each step: a few kilobytes can decompress to gigabytes.
        remaining -= len(piece)
        if remaining < 0:
            raise too_large_error(limit)
        yield piece
