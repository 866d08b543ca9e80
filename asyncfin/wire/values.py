"""Query pages (spec 2.4).

Of a page of `query_pages` only the heads are read: each `values` array stays bytes and
is decoded on access. Of a page of a planned query heads and numbers are read in one
scan of its body, because every number is wanted.
"""

import asyncio
from array import array
from collections.abc import Callable, Container, Iterable, Sequence, Sized
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import compress
from operator import attrgetter, eq
from sys import float_info
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from attrs import field, frozen

from asyncfin.errors import MalformedAnswerError, complete_error
from asyncfin.model.catalogue import Dataset
from asyncfin.model.period import Period
from asyncfin.model.query import VALUE_VERSIONS
from asyncfin.model.series import (
    PAGE_FIELDS,
    CatalogueSeries,
    Series,
    SeriesHead,
    Value,
)
from asyncfin.wire.codec import (
    JsonBytes,
    PageFields,
    decode,
    decode_repeated,
    read_head,
    reject_repeated,
)
from asyncfin.wire.protocol import Response

T = TypeVar("T")
_ORIGINAL, _RESTATED = VALUE_VERSIONS

# Up to so many bytes, a body is scanned and its numbers are taken without a stop in
# between, in a millisecond.
_INLINE_BYTES = 256 * 1024


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
            series_of(raw, self.periods, partial(self._decode_values, index, raw))
            for index, raw in enumerate(self.raw_series)
        )

    def _decode_values(self, index: int, raw: RawSeries) -> tuple[Value | None, ...]:
        decoder, count = values_decoder.one, len(self.periods)
        try:
            values: list[Value | None] = decode_entries(
                decoder, raw.values, count, index, raw.series_id
            )
        except MalformedAnswerError as error:
            complete_error(error, "query", self.entity_id, self)
            raise
        return tuple(values)


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
get_series_id = attrgetter("series_id")
_page_fields = attrgetter(*PAGE_FIELDS)
_EMPTY = {
    field.name: field.default
    for field in msgspec.structs.fields(CatalogueSeries)
    if not field.required
}


def read_query_page(body: bytes, value_version: str | None = None) -> QueryPage:
    """Return the page of a query in a body, its values not yet decoded; a
    `value_version` of None is any.

    It is malformed also if it lists a period or a series twice, or has restated values
    although the original ones were requested.
    """
    response = decode(body, _page_decoder)
    reject_repeated("periods", response.periods)
    reject_repeated("series", list(map(get_series_id, response.series)))
    page = QueryPage(
        *read_head(response),
        response.periods,
        response.series,
        response.next_cursor or None,
    )
    if value_version == _ORIGINAL and _RESTATED.encode() in body:
        _reject_restated(page)
    return page


class _Label(msgspec.Struct, gc=False):
    """A value, of which only the label is read, whatever else is malformed."""

    value_version: Any = None


_labels_decoder = msgspec.json.Decoder(list[_Label | None])


def _reject_restated(page: QueryPage) -> None:
    """Reject restated values if the original ones were requested (spec 9.3).

    The reverse is valid: a value that was never restated may be labelled original.
    """
    periods = page.periods
    for index, series in enumerate(page.raw_series):
        labels: list[_Label | None] = decode_entries(
            _labels_decoder, series.values, len(periods), index, series.series_id
        )
        for period, label in zip(periods, labels, strict=True):
            if label is not None and label.value_version == _RESTATED:
                raise MalformedAnswerError(
                    f"the value at {period} is {_RESTATED}, and {_ORIGINAL} was "
                    f"requested @ {series_path(index, series.series_id)}"
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
    body: bytes  # the page as received; `arrays_of` finds the `values` arrays in it
    next_cursor: str | None = None
    response: Response | None = None  # which contained it


async def read_planned_page(
    body: bytes, wanted_ids: Container[str], value_version: str
) -> PlannedPage:
    """Return the page of a planned query in a body, after one scan of it.

    The page is malformed as for `read_query_page`, and if an array is of another
    length, or a number is beyond a float.
    """
    response: _ScannedResponse[Any]
    try:
        scan = _scan_original if value_version == _ORIGINAL else _scan_any
        response = decode(body, scan)
    except MalformedAnswerError:
        if value_version != _ORIGINAL:
            raise
        # A label may be an unknown word, but not that of restated values.
        _reject_restated(read_query_page(body))
        response = decode(body, _scan_any)
    if len(body) > _INLINE_BYTES:
        await asyncio.sleep(0)
    raw_periods = bytes(response.periods)
    periods = decode_repeated(raw_periods, _periods_decoder, "$.periods")
    reject_repeated("periods", periods)
    reject_repeated("series", list(map(get_series_id, response.series)))
    indices = []
    for row, series in enumerate(response.series):
        if len(series.values) != len(periods):
            raise _make_length_error(series.values, len(periods), row, series.series_id)
        if series.series_id in wanted_ids:
            indices.append(row)
    numbers = _read_numbers(response.series, indices, len(periods))
    # The heads are kept while the page waits to be compressed; the objects need not be.
    for series in response.series:
        series.values.clear()
    return PlannedPage(
        *read_head(response),
        periods,
        response.series,
        PageRows(indices, numbers),
        body,
        response.next_cursor or None,
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


_periods_decoder = msgspec.json.Decoder(tuple[Period, ...])


class _SeriesValues(msgspec.Struct, Generic[T], gc=False):
    values: T


class _PageValues(msgspec.Struct, Generic[T], gc=False):
    """A page, of which only the `values` arrays are read."""

    series: list[_SeriesValues[T]]


_arrays_decoder = msgspec.json.Decoder(_PageValues[msgspec.Raw])


def arrays_of(body: bytes) -> list[msgspec.Raw]:
    """Return the `values` arrays of all series of a page that has been read before, as
    parts of its body.
    """
    return [series.values for series in decode(body, _arrays_decoder).series]


class ArraysDecoder(Generic[T]):
    """Reads `values` arrays, their entries as a kind of object or None: one, several,
    or those of a page.
    """

    def __init__(self, kind: type[T]) -> None:
        self.one = msgspec.json.Decoder(list[kind | None])  # type: ignore[valid-type]
        self.all = msgspec.json.Decoder(list[list[kind | None]])  # type: ignore[valid-type]
        self.page = msgspec.json.Decoder(_PageValues[list[kind | None]])  # type: ignore[valid-type]


values_decoder: ArraysDecoder[Value] = ArraysDecoder(Value)


def _read_numbers(
    series: "Sequence[_ScannedSeries[Any]]", rows: Sequence[int], count: int
) -> Numbers:
    """Return the numbers of some series of a page of `count` periods."""
    entries: list[_Number] = []
    starts, positions = [0], list[int]()
    # Of each series in C: a loop of Python over millions of values takes longer than
    # decoding them.
    for row in rows:
        values = series[row].values
        entries += filter(None, values)
        positions += compress(range(count), values)
        starts.append(len(entries))
    try:
        numbers = array("d", [entry.number for entry in entries])
    except OverflowError:
        raise _make_range_error(series, rows) from None
    return Numbers(array("I", starts), array("i", positions), numbers)


def _make_range_error(
    series: Sequence[Any], rows: Iterable[int]
) -> MalformedAnswerError:
    """Return the error for integers that a float cannot represent."""
    return MalformedAnswerError(
        "number is out of range @ "
        f"{series_path(row, series[row].series_id)}.values[{index}].number"
        for row in rows
        for index, value in enumerate(series[row].values)
        if value is not None and abs(value.number) > float_info.max
    )


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
        raise _make_length_error(entries, count, index, series_id)
    return entries  # type: ignore[no-any-return]


def _make_length_error(
    entries: Sized, count: int, index: int, series_id: str
) -> MalformedAnswerError:
    """Return the error for a `values` array that has not an entry for each period."""
    return MalformedAnswerError(
        f"expected an entry for each of the {count} periods, got {len(entries)} @ "
        f"{series_path(index, series_id)}.values"
    )


def series_path(index: int, series_id: str) -> str:
    """Return the JSON path of a series in its page, with its id."""
    return f"$.series[{index}] ({series_id})"
