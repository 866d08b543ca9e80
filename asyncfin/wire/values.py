"""Query pages (spec 2.4), read in one of two ways, both equally strict.

Of a page of `query_pages` only the heads are read: each `values` array stays bytes and
is decoded on access. Of a page of a planned query heads and numbers are read in one
scan of its body, because every number is wanted. A page that this scan refuses is read
in the first way, which names the problem, and ignores problems in the values of foreign
series.
"""

import asyncio
import re
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, lru_cache, partial
from itertools import accumulate, chain, compress, filterfalse
from math import isfinite
from operator import attrgetter, eq
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from attrs import field, frozen

from asyncfin.errors import MalformedAnswerError, error_context
from asyncfin.model.catalogue import Dataset
from asyncfin.model.period import Period
from asyncfin.model.query import VALUE_VERSIONS
from asyncfin.model.series import PAGE_FIELDS, CatalogueSeries, Series, SeriesHead
from asyncfin.model.value import Value
from asyncfin.wire.codec import (
    JsonBytes,
    PageFields,
    decode,
    json_text,
    refuse_repeated,
)

T = TypeVar("T")
_ORIGINAL, _RESTATED = VALUE_VERSIONS

# Bodies and slices of bodies that are read in one call: the first takes about 8 ms, the
# second 0.5 ms. Up to the third, a body is scanned and its numbers are taken without a
# stop in between, in a millisecond.
_MAX_SCAN_BYTES = 4 * 1024 * 1024
_SLICE_BYTES = 128 * 1024
_INLINE_BYTES = 256 * 1024
# What pages repeat is decoded once. Pages where it is larger go the slower way, so the
# caches stay small.
_MAX_PERIODS_BYTES = 64 * 1024


class RawSeries(SeriesHead, frozen=True, gc=False):
    """A series of a page, its values still the bytes of the response."""

    values: msgspec.Raw


class _QueryResponse(PageFields):
    """The body of a query response (spec 2.4)."""

    periods: tuple[Period, ...]
    series: tuple[RawSeries, ...]


@frozen(
    slots=False, getstate_setstate=True
)  # slots and cached_property make help() fail on Python 3.13
class QueryPage(Dataset):
    """One page of a query (spec 4.3).

    Attributes:
        periods: what the values of this page's series are aligned with, in the
            service's order.
        next_cursor: None on the last page.
        raw_series: the series with their values undecoded.
        at: when the page was received, aware UTC.
        request_id: the service's id of its request; None if the response has none.
        attempts: how often the request was sent.
    """

    periods: tuple[Period, ...]
    raw_series: tuple[RawSeries, ...] = field(repr=False, hash=False)
    next_cursor: str | None = None
    at: datetime | None = None
    request_id: str | None = None
    attempts: int | None = None

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The page's series, in the service's order.

        The values of each are decoded when first looked at, and MalformedAnswerError is
        raised then if they break the spec.
        """
        return tuple(
            series_of(raw, self.periods, partial(self._values, index, raw))
            for index, raw in enumerate(self.raw_series)
        )

    def _values(self, index: int, raw: RawSeries) -> tuple[Value | None, ...]:
        with error_context("query", self.entity_id, self):
            return _decode_values(raw.values, len(self.periods), index, raw.series_id)


def series_of(
    head: Any,
    periods: tuple[Period, ...],
    decode: Callable[[], tuple[Value | None, ...]],
    version: str = "",
) -> Series:
    """Return the Series with the head of a raw or a catalogue series."""
    fields = dict(zip(PAGE_FIELDS, _page_fields(head), strict=True))
    if None in fields.values():  # a text that the page does not have
        fields = {
            name: _EMPTY.get(name) if value is None else value
            for name, value in fields.items()
        }
    return Series(**fields, periods=periods, decode=decode, version=version)


_page_decoder = msgspec.json.Decoder(_QueryResponse)
_series_id = attrgetter("series_id")
_page_fields = attrgetter(*PAGE_FIELDS)
_EMPTY = {
    each.name: each.default
    for each in msgspec.structs.fields(CatalogueSeries)
    if not each.required
}


def read_query_page(body: bytes, value_version: str | None = None) -> QueryPage:
    """Return the page of a query in a body, its values not yet decoded; a
    `value_version` of None is any.

    It is malformed also if it lists a period or a series twice, or has restated values
    although the original ones were requested.
    """
    response = decode(body, _page_decoder)
    refuse_repeated("periods", response.periods)
    refuse_repeated("series", list(map(_series_id, response.series)))
    page = QueryPage(
        *response.fields(), response.periods, response.series, response.cursor
    )
    if value_version == _ORIGINAL and _may_be_restated(body):
        _refuse_restated(page)
    return page


class _Label(msgspec.Struct, gc=False):
    """A value, of which only the label is read: as it is written, so that no other
    label hinders it.
    """

    value_version: msgspec.Raw = msgspec.Raw(b"null")

    def is_restated(self) -> bool:
        text = bytes(self.value_version)
        if b"\\" not in text:
            return text == f'"{_RESTATED}"'.encode()
        with suppress(MalformedAnswerError):
            return decode(text, _label_decoder) == _RESTATED
        return False


_labels_decoder = msgspec.json.Decoder(list[_Label | None])
_label_decoder = msgspec.json.Decoder(str)


def _may_be_restated(content: bytes) -> bool:
    """Return whether JSON contains the label, as it is or possibly with escapes."""
    # A single character first: it is found twenty times faster than four.
    return _RESTATED.encode() in content or (b"\\" in content and b"\\u00" in content)


def _refuse_restated(page: QueryPage) -> None:
    """Refuse restated values if the original ones were requested (spec 9.3).

    The reverse is valid: a value that was never restated may be labelled original.
    """
    for at, raw in enumerate(page.raw_series):
        labels: list[_Label | None] = []
        if _may_be_restated(bytes(raw.values)):
            # Values of another form are refused when they are decoded.
            with suppress(MalformedAnswerError):
                labels = decode(raw.values, _labels_decoder)
        for period, label in zip(page.periods, labels, strict=False):
            if label is not None and label.is_restated():
                raise MalformedAnswerError(
                    f"the value at {period} is {_RESTATED}, and {_ORIGINAL} was "
                    "requested"
                    f" @ {series_path(at, raw.series_id)}"
                )


class Numbers(NamedTuple):
    """The numbers of several series, one series after another."""

    # where the observations of each series begin; one more for the end
    starts: "array[int]"
    # the place of each observation in its `values` array, ascending within a series
    positions: "array[int]"
    numbers: "array[float]"


class PageRows(NamedTuple):
    """Some series of a page: their indices there, and their numbers."""

    indices: Sequence[int]
    numbers: Numbers


@frozen(eq=False)
class PlannedPage(Dataset):
    """One page of a planned query: the heads of all its series, and the numbers of the
    wanted ones.
    """

    periods: tuple[Period, ...]  # what values are aligned with, in the service's order
    heads: Sequence[SeriesHead]
    wanted: PageRows
    foreign: PageRows  # the others whose numbers are valid, if they are kept
    body: bytes  # the page as received; `arrays_of` finds the `values` arrays in it
    next_cursor: str | None = None
    at: datetime | None = None
    request_id: str | None = None
    attempts: int | None = None


async def read_planned_page(
    body: bytes,
    wanted: Container[str],
    value_version: str,
    *,
    keep_foreign: bool = False,
) -> PlannedPage:
    """Return the page of a planned query in a body. The loop is stopped for a few
    milliseconds at most.

    With `keep_foreign` the numbers of series that are not wanted are read too, if they
    are valid. The page is malformed as for `read_query_page`, and if an array of a
    wanted series is of another length, or one of its numbers is beyond a float.
    """
    body = json_text(body)
    # A scan can't be interrupted, so a larger body would stop the loop for longer.
    if len(body) <= _MAX_SCAN_BYTES:
        scanned = await _scanned(body, wanted, value_version, keep_foreign=keep_foreign)
        if scanned is not None:
            return scanned
    page = read_query_page(body, value_version)
    indices, others = _split(list(map(_series_id, page.raw_series)), wanted)
    slices = []
    for each in _sliced([(index, page.raw_series[index]) for index in indices]):
        await asyncio.sleep(0)
        slices.append(decode_numbers(each, len(page.periods)))
    foreign: dict[int, Numbers] = {}
    # One by one, so that an invalid series is the only one dropped.
    for index in others if keep_foreign else ():
        await asyncio.sleep(0)
        with suppress(MalformedAnswerError):
            foreign[index] = decode_numbers(
                [(index, page.raw_series[index])], len(page.periods)
            )
    return PlannedPage(
        page.entity_id,
        page.name,
        page.dataset_id,
        page.created_timestamp,
        page.periods,
        page.raw_series,
        PageRows(indices, _concatenated(slices)),
        PageRows([*foreign], _concatenated(foreign.values())),
        body,
        page.next_cursor,
    )


class _Number(msgspec.Struct, gc=False):
    """A value, of which only the number is read."""

    number: int | float


class _OriginalNumber(_Number, gc=False):
    """A value that is labelled as original, of which only the number is kept."""

    value_version: Literal["original"]


N = TypeVar("N", bound=_Number)


class _ScannedSeries(SeriesHead, Generic[N], frozen=True, gc=False):
    values: list[N | None]


class _ScannedResponse(PageFields, Generic[N], gc=False):
    periods: msgspec.Raw
    series: list[_ScannedSeries[N]]


_scan_original: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
    _ScannedResponse[_OriginalNumber]
)
_scan_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_ScannedResponse[_Number])


def _split(
    series_ids: Sequence[str], wanted: Container[str]
) -> tuple[list[int], list[int]]:
    """Return the indices of the wanted series, and of the others."""
    # In C: a loop of Python takes four times as long, a hundredth of a small page's
    # time.
    indices = list(
        compress(range(len(series_ids)), map(wanted.__contains__, series_ids))
    )
    return indices, sorted({*range(len(series_ids))} - {*indices}) if len(
        indices
    ) < len(series_ids) else []


async def _scanned(
    body: bytes, wanted: Container[str], value_version: str, *, keep_foreign: bool
) -> PlannedPage | None:
    """Return a page read in one scan; None if the scan refuses it: the slower way names
    the problem.

    That way accepts unknown words, and invalid values of foreign series.
    """
    with suppress(MalformedAnswerError):
        scan = _scan_original if value_version == _ORIGINAL else _scan_any
        found: _ScannedResponse[Any] = decode(body, scan)
        if len(body) > _INLINE_BYTES:
            await asyncio.sleep(0)
        periods = _periods(bytes(found.periods))
        series_ids = list(map(_series_id, found.series))
        refuse_repeated("series", series_ids)
        indices, others = _split(series_ids, wanted)
        others = others if keep_foreign else []
        numbers, foreign = (
            _numbers_of(
                [found.series[index].values for index in rows],
                len(periods),
                body,
                partial(_arrays_at, body, rows),
            )
            for rows in (indices, others)
        )
        # A number too large for a float, or an array of another length: the slower way
        # says which.
        if numbers is None or foreign is None:
            return None
        # The heads are kept while the page waits to be compressed; the objects need not
        # be.
        for each in found.series:
            each.values.clear()
        return PlannedPage(
            *found.fields(),
            periods,
            found.series,
            PageRows(indices, numbers),
            PageRows(others, foreign),
            body,
            found.cursor,
        )
    return None


_periods_decoder = msgspec.json.Decoder(tuple[Period, ...])


@lru_cache(maxsize=64)
def _periods(raw: bytes) -> tuple[Period, ...]:
    """Return the periods of a page, the same object for the same bytes: most pages
    repeat them.
    """
    if len(raw) > _MAX_PERIODS_BYTES:
        raise MalformedAnswerError(
            f"larger than {_MAX_PERIODS_BYTES} bytes @ $.periods"
        )
    periods = decode(raw, _periods_decoder)
    refuse_repeated("periods", periods)
    return periods


class _OnlyValues(msgspec.Struct, gc=False):
    values: msgspec.Raw


class _OnlySeries(msgspec.Struct, gc=False):
    series: list[_OnlyValues]


_arrays_decoder = msgspec.json.Decoder(_OnlySeries)


def arrays_of(body: bytes) -> list[msgspec.Raw]:
    """Return the `values` arrays of all series of a page that has been read before, as
    parts of its body.
    """
    return [each.values for each in decode(body, _arrays_decoder).series]


def _arrays_at(body: bytes, indices: Iterable[int]) -> Iterable[msgspec.Raw]:
    return map(arrays_of(body).__getitem__, indices)


class _ReadValues(msgspec.Struct, Generic[T], gc=False):
    values: list[T | None]


class _ReadSeries(msgspec.Struct, Generic[T], gc=False):
    series: list[_ReadValues[T]]


class ArraysDecoder(Generic[T]):
    """Reads `values` arrays, their entries as a kind of object or None: one, several,
    or those of a page.
    """

    def __init__(self, kind: type[T]) -> None:
        self.one = msgspec.json.Decoder(list[kind | None])  # type: ignore[valid-type]
        self.all = msgspec.json.Decoder(list[list[kind | None]])  # type: ignore[valid-type]
        self.page = msgspec.json.Decoder(_ReadSeries[kind])  # type: ignore[valid-type]


_observations = ArraysDecoder(_Number)
values_decoder: ArraysDecoder[Value] = ArraysDecoder(Value)


def decode_numbers(series: Sequence[tuple[int, RawSeries]], count: int) -> Numbers:
    """Return the numbers of some series of a page of `count` periods, each given with
    its index there.
    """
    # One call of the decoder for many series: a call for each takes longer than reading
    # them.
    text = b"[" + b",".join([raw.values for _, raw in series]) + b"]"
    single = ((raw.values, index, raw.series_id) for index, raw in series)
    arrays = decode_arrays(_observations, text, count, single)
    numbers = _numbers_of(
        arrays, count, text, lambda: (raw.values for _, raw in series)
    )
    if numbers is None:
        _refuse_unfit(
            (raw.values, series_path(index, raw.series_id)) for index, raw in series
        )
        numbers = _numbers_of(arrays, count)
    assert numbers is not None
    return numbers


def _numbers_of(
    arrays: Sequence[list[Any]],
    count: int,
    text: bytes = b"",
    single: Callable[[], Iterable[JsonBytes]] = tuple,
) -> Numbers | None:
    """Return the numbers of arrays; None where one has not `count` entries, or a number
    may not fit a float.

    `text` contains the arrays and `single` returns each, to distinguish 0 from what is
    too small for a float.
    """
    if not all(map(partial(eq, count), map(len, arrays))):
        return None
    present = [list(filter(None, each)) for each in arrays]
    found: list[int | float] = [entry.number for each in present for entry in each]
    try:
        numbers = array("d", found)
    except OverflowError:
        return None
    # What is too small is read as 0.0; the int 0 is exact, and frequent. Marks in
    # labels and other texts are frequent too, so the arrays that have a float zero are
    # searched if the text has a mark.
    if float in map(type, filterfalse(None, found)) and _is_marked_tiny(text):
        zeros = (
            any(type(entry.number) is float and not entry.number for entry in each)
            for each in present
        )
        if any(map(_is_marked_tiny, map(bytes, compress(single(), zeros)))):
            return None
    starts = accumulate(map(len, present), initial=0)
    # In C, as far as it goes: a loop of Python over millions of values takes longer
    # than decoding them.
    positions = compress([*range(count)] * len(arrays), chain.from_iterable(arrays))
    return Numbers(array("I", list(starts)), array("i", list(positions)), numbers)


def _sliced(
    series: Iterable[tuple[int, RawSeries]],
) -> Iterator[list[tuple[int, RawSeries]]]:
    """Yield the series in runs whose arrays have about 128 KiB together."""
    some: list[tuple[int, RawSeries]] = []
    size = 0
    for index, raw in series:
        some.append((index, raw))
        size += len(raw.values)
        if size >= _SLICE_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _concatenated(slices: Iterable[Numbers]) -> Numbers:
    whole = Numbers(array("I", [0]), array("i"), array("d"))
    for each in slices:
        before = whole.starts[-1]
        whole.starts.extend([before + start for start in each.starts[1:]])
        whole.positions.extend(each.positions)
        whole.numbers.extend(each.numbers)
    return whole


# After a digit, so that it is not the end of a word as in "share-based". One pattern
# that begins with "-" takes half as long as searches for "e-" and "E": 1.2 instead of
# 2.2 ms for a page of 2.2 MB, 0.1 instead of 0.27 ms for a real one of 200 kB.
_EXPONENT = re.compile(rb"-(?<=[0-9][eE]-)[0-9]")


def _is_marked_tiny(text: bytes) -> bool:
    """Return whether a text may contain a number below the least float.

    Such a number has a negative exponent, or that many zeros after its point.
    """
    return b"0" * 200 in text or _EXPONENT.search(text) is not None


class _NumberText(msgspec.Struct, gc=False):
    number: msgspec.Raw


_number_texts: Any = msgspec.json.Decoder(list[_NumberText | None])


def _refuse_unfit(arrays: Iterable[tuple[JsonBytes, str]]) -> None:
    """Refuse numbers that a float cannot represent, of `values` arrays with the paths
    of their series.
    """
    problems = [
        f"number is out of range @ {path}.values[{index}].number"
        for values, path in arrays
        for index, entry in enumerate(decode(values, _number_texts))
        if entry is not None and not _fits(entry.number)
    ]
    if problems:
        raise MalformedAnswerError(problems)


def _fits(number: msgspec.Raw) -> bool:
    """Return whether a float can represent a number: 0 only if its digits are all 0,
    and never infinity.
    """
    text = bytes(number).lower()
    digits, _, _ = text.partition(b"e")
    return isfinite(float(text)) and (float(text) != 0 or not digits.strip(b"-0."))


def decode_arrays(
    decoder: ArraysDecoder[T],
    text: JsonBytes,
    count: int,
    single: Iterable[tuple[JsonBytes, int, str]],
) -> list[list[T | None]]:
    """Return the `values` arrays of several series of a page, each with `count`
    entries.

    `text` has them as one JSON array, which is read in one call. Only if it violates
    the spec, they are read one by one: `single` has each array, the index of its series
    in the page and its id.
    """
    with suppress(MalformedAnswerError):
        arrays: list[list[T | None]] = decode(text, decoder.all)
        if all(map(partial(eq, count), map(len, arrays))):
            return arrays
    return [
        decode_entries(decoder.one, raw, count, index, series_id)
        for raw, index, series_id in single
    ]


def _decode_values(
    raw: JsonBytes, count: int, index: int, series_id: str
) -> tuple[Value | None, ...]:
    values = decode_entries(values_decoder.one, raw, count, index, series_id)
    if _numbers_of([values], count, bytes(raw), lambda: [raw]) is None:
        _refuse_unfit([(raw, series_path(index, series_id))])
    return tuple(values)


def decode_entries(
    decoder: "msgspec.json.Decoder[T]",
    raw: JsonBytes,
    count: int,
    index: int,
    series_id: str,
) -> T:
    """Return a series' `values` array of `count` entries as a decoder reads it; errors
    name its `index`.
    """
    path = f"{series_path(index, series_id)}.values"
    entries: Any = decode(raw, decoder, path)
    if len(entries) != count:
        raise MalformedAnswerError(
            f"expected an entry for each of the {count} periods, got {len(entries)} @ "
            f"{path}"
        )
    return entries  # type: ignore[no-any-return]


def series_path(index: int, series_id: str) -> str:
    """Return the JSON path of a series in its page, with its id."""
    return f"$.series[{index}] ({series_id})"
