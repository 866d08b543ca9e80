"""Catalogues and blocks <-> bytes: msgpack of their declared fields, arrays as the bytes they are.

Reading it runs no code, as a pickle could. What is read from a store is verified first: see `checksum`.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from inspect import get_annotations
from itertools import chain
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin
from zlib import crc32

import msgspec
from attrs import fields, has

from asyncfin.cache.checksum import verified
from asyncfin.cache.record import EntityRecord, Pointer
from asyncfin.clock import EPOCH
from asyncfin.model.catalogue import Catalogue, ReportingGroup, ScopeGroup
from asyncfin.model.period import Period
from asyncfin.table.block import LEVEL, Axis, Block, PageText
from asyncfin.wire.zstd import zstd

_CATALOGUE = tuple[
    str,
    str,
    str,
    datetime,
    tuple[Period, ...],
    tuple[ScopeGroup, ...],
    tuple[ReportingGroup, ...],
]
_catalogue_decoder = msgspec.msgpack.Decoder(_CATALOGUE)
_FIELDS = [field.name for field in fields(Catalogue)]


def form_of(*kinds: type) -> dict[str, list[tuple[str, str]]]:
    """Return the names and types of the fields of stored types, and of the stored types in them.

    It is the same on every version of Python, whose processes may share a store.
    """
    form: dict[str, list[tuple[str, str]]] = {}

    def add(kind: type) -> None:
        if kind.__name__ not in form:
            form[kind.__name__] = []
            stored = getattr(kind, "__struct_fields__", None) or [f.name for f in fields(kind) if f.init]
            annotations = {
                name: hint for each in kind.__mro__[::-1] for name, hint in get_annotations(each).items()
            }
            form[kind.__name__] += [(name, text(annotations[name], kind.__module__)) for name in stored]

    def text(hint: Any, module: str) -> str:
        if isinstance(hint, str):  # names of types, and what combines them
            return re.sub(r"\w+", lambda name: of_name(name[0], module), hint.replace('"', ""))
        if get_origin(hint) in (Union, UnionType):
            return " | ".join(text(each, module) for each in get_args(hint))
        if arguments := get_args(hint):
            return f"{get_origin(hint).__name__}[{', '.join(text(each, module) for each in arguments)}]"
        if has(hint) or hasattr(hint, "__struct_fields__"):
            add(hint)
        return {NoneType: "None", ...: "..."}.get(hint) or str(hint.__name__)

    def of_name(name: str, module: str) -> str:
        found = getattr(sys.modules[module], name, None)
        return text(found, module) if isinstance(found, type) or get_args(found) else name

    for kind in kinds:
        add(kind)
    return form


# Part of the names under which bytes are kept, so that bytes of another form are never read: the number of
# the form, the machine's byte order, which is that of the arrays, and the fields of all that is stored.
FORMAT = f"6{sys.byteorder[0]}{crc32(repr(form_of(Catalogue, Block)).encode()):08x}"


def encode_catalogue(catalogue: Catalogue) -> bytes:
    """Return a catalogue as bytes, without its indexes."""
    body = msgspec.msgpack.encode([getattr(catalogue, name) for name in _FIELDS])
    # Names of fields and words repeat, so that a twentieth is left: a megabyte takes longer to store, and
    # to read, than to compress.
    return zstd.compress(body, LEVEL)


def decode_catalogue(body: bytes) -> Catalogue:
    """Return the catalogue that bytes hold."""
    return Catalogue(*_catalogue_decoder.decode(zstd.decompress(body)))


def encode_blocks(blocks: Iterable[Block]) -> bytes:
    """Return compressed blocks as bytes, which contain shared periods and texts once."""
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
        for block in blocks
    ]
    # One array of numbers: a list of objects would take several times as long to read.
    flat = [
        (array("q", chain.from_iterable(map(msgspec.structs.astuple, axis.periods))), axis.rank)
        for axis in axes
    ]
    pages = [text.pieces for text in texts]
    return _encoder.encode([flat, pages, rows])


def decode_blocks(body: bytes) -> tuple[Block, ...]:
    """Return the blocks that bytes hold."""
    flat, pages, rows = _decoder.decode(body)
    texts = [PageText(tuple(pieces), compressed=True) for pieces in pages]
    axes = [
        Axis(tuple(map(Period, every[::3], every[1::3], every[2::3])), rank and tuple(rank))
        for every, rank in flat
    ]
    return tuple(
        Block(axes[axis], tuple(series_ids), page_indices, starts, positions, numbers, texts[text])
        for axis, series_ids, page_indices, starts, positions, numbers, text in rows
    )


_RECORD = tuple[str | None, int | None, int | None, int | None, int | None, bool]
_record_decoder = msgspec.msgpack.Decoder(_RECORD)
_MICROSECOND = timedelta(microseconds=1)
# How exactly two clocks can be compared over a network.
CLOCK_STEP = timedelta(seconds=0.1)


def encode_record(record: EntityRecord, ahead: timedelta = timedelta()) -> bytes:
    """Return a record as bytes; `ahead`: how far the store's clock is ahead of this process's."""

    def stored(moment: datetime | None, ahead: timedelta = ahead) -> int | None:
        return None if moment is None else (moment + ahead - EPOCH) // _MICROSECOND

    dataset_id = record.pointer.dataset_id if record.pointer else None
    confirmed = record.pointer.confirmed if record.pointer else None
    moments = (stored(confirmed), stored(record.replaced), stored(record.refused))
    as_given = stored(confirmed, timedelta())
    return msgspec.msgpack.encode((dataset_id, *moments, as_given, False))


def decode_record(body: bytes, ahead: timedelta = timedelta()) -> EntityRecord:
    """Return the record that bytes contain; `ahead` as for `encode_record`."""

    def read(moment: int | None) -> datetime | None:
        return None if moment is None else EPOCH + moment * _MICROSECOND - ahead

    dataset_id, confirmed, replaced, refused, as_given, _ = _record_decoder.decode(body)
    if dataset_id is None or confirmed is None or as_given is None:
        pointer = None
    else:
        moment, given = EPOCH + confirmed * _MICROSECOND - ahead, EPOCH + as_given * _MICROSECOND
        pointer = Pointer(dataset_id, given if abs(given - moment) <= CLOCK_STEP else moment)
    return EntityRecord(pointer, read(replaced), read(refused))


def verified_record(row: object, *key: str | bytes, ahead: timedelta = timedelta()) -> EntityRecord | None:
    """Return the record of a row; None if it is corrupt."""
    if (content := verified(row, *key)) is not None:
        with suppress(msgspec.DecodeError, OverflowError):
            return decode_record(content, ahead)
    return None


def _extended(value: Any) -> msgspec.msgpack.Ext:
    if isinstance(value, array):
        return msgspec.msgpack.Ext(ord(value.typecode), value.tobytes())
    raise TypeError(f"a block holds a {type(value).__name__}, which can't be stored")


def _restored(code: int, data: memoryview) -> Any:
    restored = array(chr(code))
    restored.frombytes(data)
    return restored


_encoder = msgspec.msgpack.Encoder(enc_hook=_extended)
_decoder = msgspec.msgpack.Decoder(ext_hook=_restored)
