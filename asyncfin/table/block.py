"""How an answer's series are kept: numbers ready to use, all else packed.

A block holds some series of one page. Positions and numbers stand for the observations only, 12
bytes each however sparse the series are; presence is validity, so a reported zero and a gap stay
apart. The bytes of the `values` arrays are kept compressed, 35 bytes a value, because objects for
all of them would be ten times as large and make the garbage collector stop the loop.
"""

import sys
from array import array
from collections.abc import Iterable, Iterator
from functools import lru_cache
from operator import attrgetter, lt
from typing import Any

from attrs import field, frozen

from asyncfin.model.period import Period
from asyncfin.model.value import Value
from asyncfin.wire.answer import RawSeries, decode_numbers, decode_values, place

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Packing and reading so many bytes takes about half a millisecond.
_BLOCK_BYTES = 128 * 1024
_FAST = 1
# Blocks whose bytes stay unpacked while a panel is looked at: at most 8 MiB, single large series apart.
_UNPACKED_BLOCKS = 64

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
        text_starts: where the `values` array of each begins in the unpacked text; one more for the end.
        packed: the `values` arrays one after another, compressed.
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
        """Return the `values` arrays as they came, one after another."""
        return zstd.decompress(self.packed)


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
    starts, text_starts = array("I", [0]), array("I", [0])
    positions, numbers = array("I"), array("d")
    texts = []
    for index, raw in series:
        at, found = decode_numbers(raw.values, len(axis.periods), place(index, raw.series_id))
        if axis.rank is not None:
            at, found = _ranked(axis.rank, at, found)
        positions += at
        numbers += found
        texts.append(raw.values)
        starts.append(len(positions))
        text_starts.append(text_starts[-1] + len(raw.values))
    return Block(
        axis,
        tuple(raw.series_id for _, raw in series),
        array("I", (index for index, _ in series)),
        starts,
        positions,
        numbers,
        text_starts,
        zstd.compress(b"".join(texts), _FAST),
    )


def _ranked(
    rank: tuple[int, ...], positions: "array[int]", numbers: "array[float]"
) -> "tuple[array[int], array[float]]":
    """Return a series' observations oldest first."""
    pairs = sorted(zip((rank[position] for position in positions), numbers, strict=True))
    return array("I", (at for at, _ in pairs)), array("d", (number for _, number in pairs))


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
        return memoryview(self._unpacked(block))[start:end]


@frozen
class Stored:
    """One series in the store."""

    _store: Store = field(repr=False)
    block: Block
    row: int

    @property
    def axis(self) -> Axis:
        return self.block.axis

    @property
    def place(self) -> str:
        """How problems name the series."""
        return place(self.block.places[self.row], self.block.series_ids[self.row])

    def observations(self) -> "tuple[array[int], array[float]]":
        """Return the indices of the observed periods on the axis, ascending, and the numbers."""
        start, end = self.block.starts[self.row : self.row + 2]
        return self.block.positions[start:end], self.block.numbers[start:end]

    def text(self) -> memoryview:
        """Return the bytes of the `values` array."""
        return self._store.text(self.block, self.row)

    def values(self) -> tuple[Value | None, ...]:
        """Return the values by the axis.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        values = decode_values(self.text(), len(self.axis.periods), self.place)
        return values if self.axis.rank is None else in_order(self.axis.rank, values)


def in_order(rank: tuple[int, ...], entries: Iterable[Any]) -> tuple[Any, ...]:
    """Return the entries of a `values` array, oldest first."""
    ordered: list[Any] = [None] * len(rank)
    for index, entry in zip(rank, entries, strict=True):
        ordered[index] = entry
    return tuple(ordered)
