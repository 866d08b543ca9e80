"""Storage of the series of a result: numbers ready to use, everything else as bytes.

A block holds the wanted series of one page. Only observations are stored, 12 bytes each
for position and number, however sparse the series are. Presence is validity, so a
reported zero differs from a gap. All else stays in the text of the page, compressed
where a panel is large, to 35 bytes a value: objects for all of it would be ten times as
large.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import (
    Container,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import suppress
from functools import lru_cache
from itertools import chain, count, pairwise
from operator import attrgetter
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.series import Value
from asyncfin.wire.codec import decode
from asyncfin.wire.values import (
    ArraysDecoder,
    Numbers,
    PlannedPage,
    arrays_of,
    decode_arrays,
    values_decoder,
)

# Of the standard library, or before Python 3.14 the package that it was made of.
if sys.version_info >= (3, 14):
    from compression import zstd as zstd
else:
    from backports import zstd as zstd

# Texts are compressed in pieces, so that reading one series does not decompress all; a
# piece takes 0.1 ms.
PIECE_BYTES = 128 * 1024
LEVEL = 1
# Pieces that stay decompressed while a panel is read: 8 MiB.
_CACHED_PIECES = 64
# A page of few values is decoded as a whole at the first access to one, since finding
# its array alone takes nearly as long. A real page has 300 values, which take 80 kB.
_FEW_VALUES = 1_000
_CACHED_PAGES = 64
# How much of an array is searched for before all of it is compared; it is nearly always
# found at once.
_PREFIX_BYTES = 32

T = TypeVar("T")


@frozen(eq=False)
class Axis:
    """The periods of one page, oldest first.

    `rank` is the index in `periods` of each period in the page's own order. None: the
    page lists them oldest first itself.
    """

    periods: tuple[Period, ...]
    rank: tuple[int, ...] | None

    @classmethod
    def of(cls, periods: tuple[Period, ...]) -> "Axis":
        """Return the axis of periods in any order."""
        oldest_first = tuple(sorted(periods))
        if oldest_first == periods:
            return cls(periods, None)
        return cls(oldest_first, find_indices(periods, oldest_first))

    def sort_entries(self, entries: list[T]) -> list[T]:
        """Return entries given in the page's own order, oldest period first."""
        if self.rank is None:
            return entries
        sorted_entries = list(entries)
        for index, entry in zip(self.rank, entries, strict=True):
            sorted_entries[index] = entry
        return sorted_entries


def find_indices(
    periods: Iterable[Period], axis_periods: Iterable[Period]
) -> tuple[int, ...]:
    """Return the index of each period among those of an axis; -1 if it has none."""
    indices = dict(zip(axis_periods, count()))
    return tuple([indices.get(period, -1) for period in periods])


@define(eq=False)
class PageText:
    """The JSON of a page as received, from which `values` arrays are decoded when
    accessed.

    Attributes:
        pieces: the text in one piece, or in several compressed ones.
        is_compressed: whether they are compressed.
    """

    pieces: tuple[bytes, ...]
    is_compressed: bool
    _spans: "array[int] | None" = field(default=None, init=False, repr=False)

    def frames(self, compressor: zstd.ZstdCompressor) -> Iterator[bytes]:
        """Yield the pieces of an uncompressed text, each compressed as a frame that can
        be read alone.
        """
        body = memoryview(self.pieces[0])  # so that no piece is copied
        for start in range(0, len(body), PIECE_BYTES):
            piece = body[start : start + PIECE_BYTES]
            yield compressor.compress(piece, zstd.ZstdCompressor.FLUSH_FRAME)

    def read_piece(self, index: int) -> bytes:
        """Return a piece of the text."""
        piece = self.pieces[index]
        if self.is_compressed:
            return zstd.decompress(piece)
        return piece

    def read_whole(self) -> bytes:
        """Return all of the text."""
        return b"".join(map(self.read_piece, range(len(self.pieces))))


def _find_spans(body: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each `values` array of a page begins and ends."""
    end = 0
    for text in map(bytes, arrays_of(body)):
        # Whatever else holds the same bytes is as good: what is read there is the same.
        # msgspec gives each array as a copy, without its place.
        start = body.index(text[:_PREFIX_BYTES], end)
        while body[start : start + len(text)] != text:
            start = body.index(text[:_PREFIX_BYTES], start + 1)
        end = start + len(text)
        yield start, end


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
        text: the page, which blocks of the same page share.
    """

    axis: Axis
    series_ids: tuple[str, ...]
    page_indices: "array[int]"
    starts: "array[int]"
    positions: "array[int]"
    numbers: "array[float]"
    text: PageText

    def observations(self, row: int) -> "tuple[array[int], array[float]]":
        """Return where on the axis a series has values, ascending, and the numbers."""
        start, end = self.starts[row : row + 2]
        return self.positions[start:end], self.numbers[start:end]

    def populated(self) -> set[Period]:
        """Return the periods in which a series of the block has a value."""
        return set(map(self.axis.periods.__getitem__, set(self.positions)))


def block_of(axis: Axis, page: PlannedPage, text: PageText) -> Block:
    """Return the block of the wanted series of a page."""
    indices, numbers = page.wanted
    if axis.rank is not None:
        numbers = _order_numbers(axis.rank, numbers)
    series_ids = [page.heads[index].series_id for index in indices]
    return Block(
        axis,
        tuple(series_ids),
        array("I", indices),
        numbers.starts,
        numbers.positions,
        numbers.numbers,
        text,
    )


def drop_series(block: Block, series_ids: Container[str]) -> Block | None:
    """Return a block without some of its series; None if no other is left."""
    rows = [row for row, id_ in enumerate(block.series_ids) if id_ not in series_ids]
    if not rows:
        return None
    return pick_series(block, rows)


def pick_series(block: Block, rows: Sequence[int]) -> Block:
    """Return a block of some of the series of a block, by their rows, ascending."""
    if len(rows) == len(block.series_ids):
        return block
    series_ids, indices = [], array("I")
    starts = array("I", [0])
    positions, numbers = array("i"), array("d")
    for row in rows:
        series_ids.append(block.series_ids[row])
        indices.append(block.page_indices[row])
        row_positions, row_numbers = block.observations(row)
        positions += row_positions
        numbers += row_numbers
        starts.append(len(positions))
    ids = tuple(series_ids)
    return Block(block.axis, ids, indices, starts, positions, numbers, block.text)


def compress_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Return blocks with compressed texts: 1 ms a megabyte, during which other threads
    can run.
    """
    # One for all: making it takes a sixth of the time of a page.
    compressor = zstd.ZstdCompressor(LEVEL)
    texts: dict[PageText, PageText] = {}  # blocks share them
    compressed_blocks = []
    for block in blocks:
        text = block.text
        if not text.is_compressed:
            if text not in texts:
                pieces = tuple(text.frames(compressor))
                texts[text] = PageText(pieces, is_compressed=True)
            block = evolve(block, text=texts[text])
        compressed_blocks.append(block)
    return tuple(compressed_blocks)


def nbytes(blocks: Iterable[Block]) -> int:
    """Return about how much memory blocks take. A text that blocks share counts
    once.
    """
    size = 0
    pieces: dict[int, int] = {}
    for block in blocks:
        series_count = len(block.series_ids)
        size += 1_000 + 100 * (series_count + len(block.axis.periods))
        size += 8 * series_count + 12 * len(block.positions)
        for piece in block.text.pieces:
            pieces[id(piece)] = len(piece)
    return size + sum(pieces.values())


def _order_numbers(rank: tuple[int, ...], numbers: Numbers) -> Numbers:
    """Return the numbers with the observations of each series oldest first."""
    ordered_positions, ordered_numbers = array("i"), array("d")
    for start, end in pairwise(numbers.starts):
        ranks = [rank[position] for position in numbers.positions[start:end]]
        for position, number in sorted(
            zip(ranks, numbers.numbers[start:end], strict=True)
        ):
            ordered_positions.append(position)
            ordered_numbers.append(number)
    return Numbers(numbers.starts, ordered_positions, ordered_numbers)


class Store:
    """The blocks of a result and the index of their series. All panels cut from one
    result share it.
    """

    def __init__(self, blocks: Iterable[Block]) -> None:
        self.blocks = tuple(blocks)
        # Rows are counted over all blocks: a pair of block and row for each series
        # would take the garbage collector's time.
        self._firsts = [0]
        self._rows: dict[str, int] = {}
        for block in self.blocks:
            self._rows.update(zip(block.series_ids, count(self._firsts[-1])))
            self._firsts.append(len(self._rows))
        self.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.blocks,)

    def release(self) -> None:
        """Drop what is cached of decoded pages."""
        self._piece = lru_cache(_CACHED_PIECES)(PageText.read_piece)
        self._decode_page = lru_cache(_CACHED_PAGES)(_decode_page)

    def find(self, series_id: str) -> tuple[Block, int] | None:
        """Return the block and the row of a series; None if the service never sent
        it.
        """
        row = self._rows.get(series_id)
        if row is None:
            return None
        number = bisect_right(self._firsts, row) - 1
        return self.blocks[number], row - self._firsts[number]

    def rows(self, series_ids: Iterable[str]) -> Iterator[tuple[Block, list[int]]]:
        """Yield each block that holds some of these series, with their rows,
        ascending.
        """
        # By the index: a few series of a panel that was cut from thousands are found
        # without a look at all.
        rows = sorted(self._rows[id_] for id_ in series_ids if id_ in self._rows)
        for block, (first, end) in zip(
            self.blocks, pairwise(self._firsts), strict=True
        ):
            if in_block := rows[bisect_left(rows, first) : bisect_left(rows, end)]:
                yield block, [row - first for row in in_block]

    def read_entries(
        self,
        block: Block,
        rows: Sequence[int],
        decoder: ArraysDecoder[T],
    ) -> Iterable[list[T | None]]:
        """Return the entries of some series' `values` arrays, by the block's axis.

        Raises:
            MalformedAnswerError: one violates the spec.
        """
        count = len(block.axis.periods)
        indices = list(map(block.page_indices.__getitem__, rows))
        if 2 * len(indices) > block.page_indices[-1]:
            # Where most of a page is wanted, all of it is read in one scan, unless that
            # finds a problem.
            with suppress(MalformedAnswerError):
                page = decode(block.text.read_whole(), decoder.page).series
                entries = [page[index].values for index in indices]
                if set(map(len, entries)) == {count}:
                    return map(block.axis.sort_entries, entries)
        arrays = [self._read_array(block.text, index) for index in indices]
        array_text = b"[%b]" % b",".join(arrays)
        ids = map(block.series_ids.__getitem__, rows)
        single = zip(arrays, indices, ids, strict=True)
        value_lists = decode_arrays(decoder, array_text, count, single)
        return map(block.axis.sort_entries, value_lists)

    def values(self, block: Block, row: int) -> list[Value | None]:
        """Return the entries of a series' `values` array, by the block's axis.

        Raises:
            MalformedAnswerError: one violates the spec.
        """
        # A page of few values is decoded as a whole, if most of its series are wanted.
        is_mostly_wanted = 2 * len(block.page_indices) > block.page_indices[-1]
        if len(block.positions) <= _FEW_VALUES and is_mostly_wanted:
            index = block.page_indices[row]
            page = self._decode_page(block.text)
            if page and len(page[index]) == len(block.axis.periods):
                return block.axis.sort_entries(page[index])
        (values,) = self.read_entries(block, [row], values_decoder)
        return values

    def _read_array(self, text: PageText, index: int) -> memoryview:
        """Return the bytes of the `values` array of a series of a page."""
        if text._spans is None:
            # Pieces can be read alone once it is known where the arrays are, which is
            # found out only here because few texts of most panels are ever read.
            body = self._read_pieces(text, range(len(text.pieces)))
            text._spans = array("Q", chain.from_iterable(_find_spans(body)))
        start, end = text._spans[2 * index : 2 * index + 2]
        # No copy where the text is in one piece.
        if not text.is_compressed:
            return memoryview(text.pieces[0])[start:end]
        indices = range(start // PIECE_BYTES, (end - 1) // PIECE_BYTES + 1)
        offset = indices[0] * PIECE_BYTES
        pieces = memoryview(self._read_pieces(text, indices))
        return pieces[start - offset : end - offset]

    def _read_pieces(self, text: PageText, indices: Iterable[int]) -> bytes:
        return b"".join([self._piece(text, index) for index in indices])


def _decode_page(text: PageText) -> list[list[Value | None]]:
    """Return the entries of all series of a page; none if one of them is broken, which
    that series reports itself.
    """
    with suppress(MalformedAnswerError):
        page = decode(text.read_whole(), values_decoder.page).series
        return list(map(attrgetter("values"), page))
    return []
