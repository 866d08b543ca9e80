"""How an answer's series are kept: numbers ready to use, all else packed.

A block holds some series of one page. Positions and numbers stand for the observations only, 12
bytes each however sparse the series are; presence is validity, so a reported zero and a gap stay
apart. The bytes of the `values` arrays are kept compressed, 35 bytes a value, because objects for
all of them would be ten times as large and make the garbage collector stop the loop.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
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

# Packing and reading so many bytes takes about half a millisecond.
_BLOCK_BYTES = 128 * 1024
_FAST = 1
# Blocks whose bytes stay unpacked while a panel is looked at: at most 8 MiB, single large series apart.
_UNPACKED_BLOCKS = 64

T = TypeVar("T")
_order = attrgetter("year", "end_month", "duration_months")


@frozen(eq=False)
class Axis:
    """The periods of one page, oldest first.

    `rank` gives the index in `periods` for each place in the page's own order; None where the page
    lists them oldest first itself.
    """

    periods: tuple[Period, ...]
    rank: tuple[int, ...] | None

    @classmethod
    def of(cls, periods: tuple[Period, ...]) -> "Axis":
        """Return the axis for periods in whatever order."""
        keys = list(map(_order, periods))
        if all(map(lt, keys, keys[1:])):
            return cls(periods, None)
        places = sorted(range(len(keys)), key=keys.__getitem__)
        rank = {place: index for index, place in enumerate(places)}
        return cls(
            tuple(periods[place] for place in places),
            tuple(rank[place] for place in range(len(keys))),
        )

    def ordered(self, entries: list[T]) -> list[T]:
        """Return entries in the page's own order by the axis."""
        if self.rank is None:
            return entries
        return [entry for _, entry in sorted(zip(self.rank, entries, strict=True), key=itemgetter(0))]


@frozen(eq=False)
class Block:
    """Series of one page.

    Attributes:
        axis: the page's periods.
        series_ids: which series these are.
        places: the place of each in the page, to name it in errors.
        starts: where the observations of each begin; one more for the end.
        positions: of each observation, the index of its period; ascending within a series.
        numbers: of each observation, its number.
        text_starts: where the `values` array of each begins in the unpacked text, a character after the
            end of the one before; one more for the end.
        packed: the `values` arrays as one JSON array, compressed.
    """

    axis: Axis
    series_ids: tuple[str, ...]
    places: "array[int]"
    starts: "array[int]"
    positions: "array[int]"
    numbers: "array[float]"
    text_starts: "array[int]"
    packed: bytes

    def unpacked(self) -> bytes:
        """Return the `values` arrays as they came, as one JSON array."""
        return zstd.decompress(self.packed)

    def entries(self, rows: Sequence[int], decoder: ArraysDecoder[T]) -> Iterable[list[T | None]]:
        """Return the entries of some series' `values` arrays, by the axis.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        unpacked = memoryview(self.unpacked())

        def text(row: int) -> memoryview:
            return unpacked[self.text_starts[row] : self.text_starts[row + 1] - 1]

        every = len(rows) == len(self.series_ids)
        joined = unpacked if every else b"[%b]" % b",".join(map(text, rows))
        single = ((text(row), self.places[row], self.series_ids[row]) for row in rows)
        return map(self.axis.ordered, decode_arrays(decoder, joined, len(self.axis.periods), single))


def pack(axis: Axis, series: Iterable[tuple[int, RawSeries]]) -> Iterator[Block]:
    """Yield blocks of one page's series, each given with its place there; one takes about half a millisecond.

    Raises:
        MalformedAnswerError: the values of a series are too few or too many, or a number is none.
    """
    some: list[tuple[int, RawSeries]] = []
    size = 0
    for index, raw in series:
        some.append((index, raw))
        size += len(raw.values)
        if size >= _BLOCK_BYTES:
            yield _packed(axis, some)
            some, size = [], 0
    if some:
        yield _packed(axis, some)


def _packed(axis: Axis, series: list[tuple[int, RawSeries]]) -> Block:
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
    """Return the same numbers, the observations of each series oldest first."""
    positions, numbers = array("i"), array("d")
    for start, end in pairwise(found.starts):
        at = [rank[position] for position in found.positions[start:end]]
        order = sorted(range(len(at)), key=at.__getitem__)
        positions.extend(at[place] for place in order)
        numbers.extend(found.numbers[start + place] for place in order)
    return Numbers(found.starts, positions, numbers, found.text)


class Store:
    """Blocks, and where each series is in them. Shared by all panels cut from one answer."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.blocks = tuple(blocks)
        self._rows = {
            series_id: (block, row) for block in self.blocks for row, series_id in enumerate(block.series_ids)
        }
        self._unpacked = lru_cache(_UNPACKED_BLOCKS)(Block.unpacked)

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.blocks,)

    def find(self, series_id: str) -> "Stored | None":
        """Return a series as it is stored; None where it never came."""
        found = self._rows.get(series_id)
        return None if found is None else Stored(self, *found)

    def text(self, block: Block, row: int) -> memoryview:
        """Return the bytes of a series' `values` array."""
        start, end = block.text_starts[row : row + 2]
        return memoryview(self._unpacked(block))[start : end - 1]


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
            values_decoder, text, len(self.axis.periods), block.places[row], block.series_ids[row]
        )
        return tuple(self.axis.ordered(entries))
