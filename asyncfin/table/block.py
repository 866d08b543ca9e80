"""Storage of the series of an answer: numbers ready to use, everything else compressed.

A block holds some of the series of one page. Only observations are stored, 12 bytes each for position
and number, however sparse the series are. Presence is validity, so a reported zero differs from a gap.
The bytes of the `values` arrays are kept compressed, 35 bytes a value: objects for all of them would be
ten times as large, and walking them would make the garbage collector stop the loop.
"""

import sys
from array import array
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter, lt
from typing import Any, TypeVar

from attrs import field, frozen

from asyncfin.model.period import Period
from asyncfin.model.value import Value
from asyncfin.wire.values import (
    ArraysDecoder,
    Numbers,
    RawSeries,
    decode_arrays,
    decode_entries,
    decode_numbers,
    values_decoder,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Compressing or decompressing this much takes about half a millisecond, the loop's longest pause.
_BLOCK_BYTES = 128 * 1024
_FAST = 1
# Decompressed blocks kept while a panel is read: at most 8 MiB, apart from single large series.
_DECOMPRESSED_BLOCKS = 64

T = TypeVar("T")
_order = attrgetter("year", "end_month", "duration_months")


@frozen(eq=False)
class Axis:
    """The periods of one page, oldest first.

    `rank` is the index in `periods` of each period in the page's own order. None: the page lists them
    oldest first itself.
    """

    periods: tuple[Period, ...]
    rank: tuple[int, ...] | None

    @classmethod
    def of(cls, periods: tuple[Period, ...]) -> "Axis":
        """Return the axis of periods in any order."""
        keys = list(map(_order, periods))
        # Most services list periods in order: then nothing has to be sorted, for none of the series.
        if all(map(lt, keys, keys[1:])):
            return cls(periods, None)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rank = {at: index for index, at in enumerate(order)}
        return cls(tuple(periods[at] for at in order), tuple(rank[at] for at in range(len(keys))))

    def ordered(self, entries: list[T]) -> list[T]:
        """Return entries given in the page's own order, oldest period first."""
        if self.rank is None:
            return entries
        return [entry for _, entry in sorted(zip(self.rank, entries, strict=True), key=itemgetter(0))]


@frozen(eq=False)
class Block:
    """Series of one page.

    Attributes:
        axis: the page's periods.
        series_ids: the series of the block.
        page_indices: the index of each series in the page, which errors name.
        starts: where the observations of each series begin, and the end of the last.
        positions: the index of each observation's period; ascending within a series.
        numbers: the number of each observation.
        text_starts: where the `values` array of each series begins in the decompressed text, one
            character after the end of the previous one, and the end of the last.
        compressed: the `values` arrays as one JSON array, compressed.
    """

    axis: Axis
    series_ids: tuple[str, ...]
    page_indices: "array[int]"
    starts: "array[int]"
    positions: "array[int]"
    numbers: "array[float]"
    text_starts: "array[int]"
    compressed: bytes

    @property
    def nbytes(self) -> int:
        """About how much memory the block takes."""
        arrays = (self.page_indices, self.starts, self.positions, self.numbers, self.text_starts)
        stored = sum(len(each) * each.itemsize for each in arrays) + len(self.compressed)
        return 1_000 + stored + 100 * (len(self.series_ids) + len(self.axis.periods))

    def decompressed(self) -> bytes:
        """Return the `values` arrays as they came, as one JSON array."""
        return zstd.decompress(self.compressed)

    def entries(self, rows: Sequence[int], decoder: ArraysDecoder[T]) -> Iterable[list[T | None]]:
        """Return the entries of some series' `values` arrays, by the axis.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        whole = memoryview(self.decompressed())

        def text(row: int) -> memoryview:
            return whole[self.text_starts[row] : self.text_starts[row + 1] - 1]

        # All arrays are decoded in one call, instead of a call for each. Only where that
        # fails are they decoded one by one (`single`), to name the series and its place in the page.
        every = len(rows) == len(self.series_ids)
        joined = whole if every else b"[%b]" % b",".join(map(text, rows))
        single = ((text(row), self.page_indices[row], self.series_ids[row]) for row in rows)
        return map(self.axis.ordered, decode_arrays(decoder, joined, len(self.axis.periods), single))


def blocks_of(axis: Axis, series: Iterable[tuple[int, RawSeries]]) -> Iterator[Block]:
    """Yield the blocks of some series of a page, given with their indices there; about 0.5 ms a block.

    Raises:
        MalformedAnswerError: the values of a series are too few or too many, or one is not a number.
    """
    # The caller yields to the event loop between two blocks, so a block is a slice of its time.
    some: list[tuple[int, RawSeries]] = []
    size = 0
    for index, raw in series:
        some.append((index, raw))
        size += len(raw.values)
        if size >= _BLOCK_BYTES:
            yield _block(axis, some)
            some, size = [], 0
    if some:
        yield _block(axis, some)


def without(block: Block, series_ids: Container[str]) -> Block | None:
    """Return a block without some of its series; None if no other is left."""
    rows = [row for row, each in enumerate(block.series_ids) if each not in series_ids]
    if not rows:
        return None
    text = block.decompressed()
    positions, numbers = array(block.positions.typecode), array("d")
    starts, text_starts = array(block.starts.typecode, [0]), array("I", [1])
    texts = []
    for row in rows:
        start, end = block.starts[row : row + 2]
        positions += block.positions[start:end]
        numbers += block.numbers[start:end]
        starts.append(len(positions))
        texts.append(text[block.text_starts[row] : block.text_starts[row + 1] - 1])
        text_starts.append(text_starts[-1] + len(texts[-1]) + 1)
    return Block(
        block.axis,
        tuple(block.series_ids[row] for row in rows),
        array("I", (block.page_indices[row] for row in rows)),
        starts,
        positions,
        numbers,
        text_starts,
        zstd.compress(b"[%b]" % b",".join(texts), _FAST),
    )


def _block(axis: Axis, series: list[tuple[int, RawSeries]]) -> Block:
    found = decode_numbers(series, len(axis.periods))
    if axis.rank is not None:
        found = _ranked(axis.rank, found)
    sizes = [len(raw.values) + 1 for _, raw in series]
    return Block(
        axis,
        tuple([raw.series_id for _, raw in series]),
        array("I", [index for index, _ in series]),
        found.starts,
        found.positions,
        found.numbers,
        array("I", list(accumulate(sizes, initial=1))),
        zstd.compress(found.text, _FAST),
    )


def _ranked(rank: tuple[int, ...], found: Numbers) -> Numbers:
    """Return the numbers with the observations of each series oldest first."""
    positions, numbers = array("i"), array("d")
    for start, end in pairwise(found.starts):
        at = [rank[position] for position in found.positions[start:end]]
        order = sorted(range(len(at)), key=at.__getitem__)
        positions.extend(at[index] for index in order)
        numbers.extend(found.numbers[start + index] for index in order)
    return Numbers(found.starts, positions, numbers, found.text)


class Store:
    """The blocks of an answer and the index of their series. All panels cut from one answer share it."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.blocks = tuple(blocks)
        self._rows = {
            series_id: (block, row) for block in self.blocks for row, series_id in enumerate(block.series_ids)
        }
        # Looking at one series after the other would decompress a block as often as it holds series.
        self._decompressed = lru_cache(_DECOMPRESSED_BLOCKS)(Block.decompressed)

    def __reduce__(self) -> tuple[Any, ...]:
        # The cache of decompressed texts can't be pickled, and the index follows from the blocks.
        return Store, (self.blocks,)

    def find(self, series_id: str) -> "Stored | None":
        """Return a stored series; None if the service never sent it."""
        found = self._rows.get(series_id)
        return None if found is None else Stored(self, *found)

    def text(self, block: Block, row: int) -> memoryview:
        """Return the bytes of a series' `values` array."""
        start, end = block.text_starts[row : row + 2]
        return memoryview(self._decompressed(block))[start : end - 1]


@frozen
class Stored:
    """One series in the store."""

    _store: Store = field(repr=False)
    block: Block
    row: int

    @property
    def axis(self) -> Axis:
        return self.block.axis

    def observations(self) -> "tuple[array[int], array[float]]":
        """Return the indices of the observed periods on the axis, ascending, and the numbers."""
        start, end = self.block.starts[self.row : self.row + 2]
        return self.block.positions[start:end], self.block.numbers[start:end]

    def values(self) -> tuple[Value | None, ...]:
        """Return the values, by the axis.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        block, row = self.block, self.row
        text = self._store.text(block, row)
        entries: list[Value | None] = decode_entries(
            values_decoder, text, len(self.axis.periods), block.page_indices[row], block.series_ids[row]
        )
        return tuple(self.axis.ordered(entries))
