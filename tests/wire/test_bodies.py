"""Bodies: compression, and the cap on their size."""

import asyncio
import gzip
import sys
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import MalformedAnswerError, RequestTimeoutError, TruncatedAnswerError
from asyncfin.wire import inflate
from asyncfin.wire.retry import Timeouts
from tests import examples
from tests.services.raw import answer
from tests.wire.transporting import PLAIN, READ, attempted, chunked, failure_of, wired

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@pytest.mark.parametrize(
    "raw",
    [
        answer(body=PLAIN),
        chunked(PLAIN),
        answer(body=gzip.compress(PLAIN), content_encoding="gzip"),
        answer(body=gzip.compress(PLAIN), content_encoding=" GZip"),
        answer(body=gzip.compress(PLAIN[:9]) + gzip.compress(PLAIN[9:]), content_encoding="x-gzip"),
        answer(body=zstd.compress(PLAIN), content_encoding="zstd"),
        answer(body=zstd.compress(PLAIN[:9]) + zstd.compress(PLAIN[9:]), content_encoding="zstd"),
        answer(body=PLAIN, content_encoding="identity"),
    ],
    ids=["plain", "chunked", "gzip", "gzip-named-oddly", "two-gzips", "zstd", "two-zstds", "identity"],
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
        answer(body=zstd.compress(PLAIN), content_encoding="zstd"),
        answer(body=gzip.compress(b"x" * 600) * 400, content_encoding="gzip"),
    ],
    ids=["length", "chunked", "gzip bomb", "zstd bomb", "many small gzips"],
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


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
async def test_many_compressed_streams_are_rejected(pack: Any) -> None:
    """Each stream costs work, however little it holds; a thousand of them are taken."""
    coding = pack.__module__.split(".")[0].replace("backports", "zstd").replace("compression", "zstd")
    many = pack(b"") * 999
    async with wired(answer(body=many + pack(b"1"), content_encoding=coding)) as transport:
        assert (await attempted(transport, READ)).body == b"1"
    async with wired(answer(body=many * 100, content_encoding=coding)) as transport:
        error = await failure_of(transport)
    assert isinstance(error, MalformedAnswerError)
    assert "1000 compressed streams" in str(error)


class Endless:
    """A compressed stream that never ends, and gives nothing."""

    eof = needs_input = False
    unused_data = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return b""


async def test_inflating_ends_with_total_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When inflating runs into the total timeout its thread ends too, and does not keep the process alive."""
    monkeypatch.setitem(inflate._CODINGS, "gzip", Endless)
    timeouts = Timeouts(total=0.3)
    async with wired(answer(body=b"x", content_encoding="gzip"), timeouts=timeouts) as transport:
        assert isinstance(await failure_of(transport), RequestTimeoutError)
    await asyncio.get_running_loop().shutdown_default_executor()


@given(
    st.lists(st.binary(max_size=200) | st.integers(0, 200_000).map(bytes), min_size=1, max_size=20),
    st.sampled_from(["gzip", "zstd"]),
)
@settings(max_examples=examples(50))
def test_compressed_streams_inflate_to_their_source(parts: list[bytes], coding: str) -> None:
    """Streams of any sizes, empty ones too, inflate to what was compressed; cut by a byte they are broken."""
    pack = {"gzip": gzip.compress, "zstd": zstd.compress}[coding]
    body = b"".join(map(pack, parts))
    whole = b"".join(parts)
    assert asyncio.run(inflate.inflated(body, coding, len(whole))) == whole
    with pytest.raises(inflate.UnreadableError) as caught:
        asyncio.run(inflate.inflated(body[:-1], coding, len(whole)))
    assert type(caught.value.error) is TruncatedAnswerError
