"""Catalogues and blocks <-> bytes: msgpack of their declared fields, arrays as the
bytes they are.

Reading it runs no code, as a pickle could. What is read from a store is verified first:
see `verify`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import chain
from typing import Any

from attrs import asdict
from msgspec import msgpack, structs

from asyncfin.cache.entries import EntityRecord
from asyncfin.clock import EPOCH
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.table.block import LEVEL, Axis, Block, PageText, compress_blocks, zstd

# Part of the names under which bytes are stored, so that bytes of another form are
# never read: the number of the form, and the byte order of the arrays. Raise the number
# when a stored field changes.
FORMAT = f"10{sys.byteorder[0]}"
_CHECKSUM_BYTES = 16


def seal(body: bytes, key: str) -> bytes:
    """Return the row of a body: the body, and a checksum over it and its key."""
    digest = blake2b(body, digest_size=_CHECKSUM_BYTES)
    digest.update(key.encode())
    return body + digest.digest()


def verify(row: bytes, key: str) -> bytes:
    """Return the body of a row, or raise ValueError if the row is damaged or another
    key's.
    """
    body = row[:-_CHECKSUM_BYTES]
    if row != seal(body, key):
        raise ValueError("a damaged row")
    return body


_catalogue_decoder = msgpack.Decoder(Catalogue)


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """Return a catalogue as bytes, without its indexes."""
    body = msgpack.encode(asdict(catalogue, recurse=False))
    # Names of fields and words repeat, so that a twentieth is left: a megabyte takes
    # longer to store, and to read, than to compress.
    return zstd.compress(body, LEVEL)


def decode_catalogue(body: bytes) -> Catalogue:
    """Return the catalogue that bytes hold."""
    return _catalogue_decoder.decode(zstd.decompress(body))


def encode_blocks(blocks: Iterable[Block]) -> bytes:
    """Return blocks as bytes, compressed, which contain shared periods and texts
    once.
    """
    axes: dict[Axis, int] = {}
    texts: dict[PageText, int] = {}
    rows = [
        (
            axes.setdefault(block.axis, len(axes)),
            block.series_ids,
            block.page_indices,
            block.starts,
            block.positions,
            block.numbers,
            texts.setdefault(block.text, len(texts)),
        )
        for block in compress_blocks(blocks)
    ]
    # One array of numbers: a list of objects would take several times as long to read.
    flat = []
    for axis in axes:
        periods = chain.from_iterable(map(structs.astuple, axis.periods))
        flat.append((array("q", periods), axis.rank))
    pages = [text.pieces for text in texts]
    return _encoder.encode([flat, pages, rows])


def decode_blocks(body: bytes) -> tuple[Block, ...]:
    """Return the blocks that bytes hold."""
    flat, pages, rows = _decoder.decode(body)
    texts = [PageText(tuple(pieces), is_compressed=True) for pieces in pages]
    axes = []
    for numbers, rank in flat:
        periods = map(Period, numbers[::3], numbers[1::3], numbers[2::3])
        axes.append(Axis(tuple(periods), rank and tuple(rank)))
    blocks = []
    for axis, series_ids, page_indices, starts, positions, numbers, text in rows:
        block = Block(
            axes[axis],
            tuple(series_ids),
            page_indices,
            starts,
            positions,
            numbers,
            texts[text],
        )
        blocks.append(block)
    return tuple(blocks)


_record_decoder = msgpack.Decoder(EntityRecord)
_MOMENT_BYTES = 20


def encode_record(record: EntityRecord) -> bytes:
    """Return a record as bytes, which begin with its moment."""
    return b"%020d" % microseconds(record.sent_at) + msgpack.encode(record)


def decode_record(body: bytes) -> EntityRecord:
    """Return the record that bytes hold."""
    return _record_decoder.decode(body[_MOMENT_BYTES:])


def microseconds(moment: datetime) -> int:
    """Return a moment in microseconds of Unix time."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def row_moment(row: bytes) -> int:
    """Return the moment with which a row begins, or 0 if it begins with something
    else.
    """
    digits = row[:_MOMENT_BYTES]
    return int(digits) if digits.isdigit() else 0


def _encode_array(value: Any) -> msgpack.Ext:
    if isinstance(value, array):
        return msgpack.Ext(ord(value.typecode), value.tobytes())
    raise TypeError(f"a block holds a {type(value).__name__}, which can't be stored")


def _decode_array(code: int, data: memoryview) -> Any:
    numbers = array(chr(code))
    numbers.frombytes(data)
    return numbers


_encoder = msgpack.Encoder(enc_hook=_encode_array)
_decoder = msgpack.Decoder(ext_hook=_decode_array)
