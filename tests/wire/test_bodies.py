"""Bodies: compression, and the cap on their size."""

import asyncio
import gzip
import tracemalloc
import zlib
from typing import Self

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import MalformedAnswerError, RequestTimeoutError, TruncatedAnswerError
from asyncfin.wire import inflate
from asyncfin.wire.retry import Timeouts
from tests import examples
from tests.services.raw import answer
from tests.wire.transporting import PLAIN, READ, attempted, chunked, failure_of, wired


@pytest.mark.parametrize(
    "raw",
    [
        answer(body=PLAIN),
        chunked(PLAIN),
        answer(body=gzip.compress(PLAIN), content_encoding="gzip"),
        answer(body=gzip.compress(PLAIN), content_encoding=" GZip"),
        answer(body=PLAIN, content_encoding="identity"),
    ],
    ids=["plain", "chunked", "gzip", "gzip-named-oddly", "identity"],
)
async def test_a_body_arrives_inflated_and_whole(raw: bytes) -> None:
    """A body arrives inflated and whole, however it was coded and framed."""
    async with wired(raw) as transport:
        assert (await attempted(transport, READ)).body == PLAIN


@pytest.mark.parametrize(
    "raw",
    [
        answer(body=PLAIN),
        chunked(PLAIN),
        answer(body=gzip.compress(PLAIN), content_encoding="gzip"),
    ],
    ids=["length", "chunked", "gzip bomb"],
)
async def test_large_body_is_rejected(raw: bytes) -> None:
    """A body is too large before inflating or after it; the message names the bound."""
    async with wired(raw, max_body_bytes=len(PLAIN) - 100_000) as transport:
        error = await failure_of(transport)
    assert isinstance(error, MalformedAnswerError)
    assert str(len(PLAIN) - 100_000) in str(error)


async def test_bomb_is_not_inflated() -> None:
    """64 MB of zeros in 64 KB are refused with little more in memory than the largest size allowed."""
    packer = zlib.compressobj(wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    raw = answer(body=bomb, content_encoding="gzip")
    async with wired(raw, max_body_bytes=2 << 20) as transport:
        tracemalloc.start()
        try:
            assert isinstance(await failure_of(transport), MalformedAnswerError)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


async def test_gzip_of_several_members() -> None:
    """They are one body (RFC 1952, section 2.2); what follows and is no member cuts it."""
    members = gzip.compress(PLAIN[:5]) + gzip.compress(b"") + gzip.compress(PLAIN[5:])
    assert await inflate.inflate(members, "gzip", len(PLAIN)) == PLAIN
    with pytest.raises(TruncatedAnswerError):
        await inflate.inflate(members + b"more", "gzip", len(PLAIN))


class Endless:
    """A compressed stream that never ends, and gives nothing."""

    error = zlib.error
    eof = False
    unused_data, unconsumed_tail = b"", b"x"

    def decompressobj(self, wbits: int) -> Self:
        return self

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return b""


async def test_inflating_ends_with_total_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When inflating runs into the total timeout its thread ends too, and does not keep the process alive."""
    monkeypatch.setattr(inflate, "_zlib", Endless())
    timeouts = Timeouts(total=0.3)
    async with wired(answer(body=b"x", content_encoding="gzip"), timeouts=timeouts) as transport:
        assert isinstance(await failure_of(transport), RequestTimeoutError)
    await asyncio.get_running_loop().shutdown_default_executor()


@given(st.binary(max_size=200) | st.integers(0, 2_000_000).map(bytes))
@settings(max_examples=examples(50))
def test_gzip_inflates_to_its_source(whole: bytes) -> None:
    """Bodies of any size inflate to what was compressed; cut by a byte they are broken."""
    body = gzip.compress(whole)
    assert asyncio.run(inflate.inflate(body, "gzip", len(whole))) == whole
    with pytest.raises(TruncatedAnswerError):
        asyncio.run(inflate.inflate(body[:-1], "gzip", len(whole)))
