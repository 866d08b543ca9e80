"""Query pages (spec 2.4): one scan for the head, and each series' values only when somebody looks.

The scan leaves the `values` arrays as the bytes they are. Numbers are read from them in one pass,
whole Value objects only on demand; both are as strict as the head.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import accumulate, chain, compress, repeat
from math import isfinite
from operator import attrgetter, eq
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from attrs import field, frozen

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import Dataset
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.series import Series
from asyncfin.model.value import Value
from asyncfin.wire.codec import (
    JsonBytes,
    Metadata,
    decode,
    error_context,
    refuse_repeated,
    utc_timestamp,
)

T = TypeVar("T")


class RawSeries(msgspec.Struct, gc=False, frozen=True):
    """A series of a page, its values still the bytes of the response."""

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str
    basis: str
    scopes: tuple[ScopeRef, ...]
    number_format: str
    period_meaning: str
    values: msgspec.Raw


class _QueryResponse(Metadata):
    """The body of a query response (spec 2.4)."""

    periods: tuple[Period, ...]
    series: tuple[RawSeries, ...]
    next_cursor: str | None = None


@frozen(slots=False)  # slots and cached_property make help() fail on Python 3.13
class QueryPage(Dataset):
    """One page of a query (spec 4.3).

    Attributes:
        periods: what the values of this page's series are aligned with, in the service's order.
        next_cursor: None on the last page.
        raw_series: the series with their values undecoded.
        at: when the page came, aware UTC.
        request_id: the service's id of its request, where it gave one.
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

        The values of each are decoded when first looked at, and MalformedAnswerError is raised then
        if they break the spec.
        """
        return tuple(self._series(index, raw) for index, raw in enumerate(self.raw_series))

    def _series(self, index: int, raw: RawSeries) -> Series:
        return series_of(raw, self.periods, partial(self._values, index, raw))

    def _values(self, index: int, raw: RawSeries) -> tuple[Value | None, ...]:
        with error_context("query", self.entity_id, self):
            return _decode_values(raw.values, len(self.periods), index, raw.series_id)


def series_of(
    head: Any, periods: tuple[Period, ...], decode: Callable[[], tuple[Value | None, ...]]
) -> Series:
    """Return the Series with the head of a raw or a catalogue series."""
    return Series(
        head.series_id,
        head.reporting_group_id,
        head.metric_id,
        head.label,
        head.basis,
        head.scopes,
        head.number_format,
        head.period_meaning,
        periods,
        decode,
    )


_page_decoder = msgspec.json.Decoder(_QueryResponse)


def read_query_page(body: bytes) -> QueryPage:
    """Return the page of a query that a body holds, its values not yet decoded.

    Raises:
        MalformedAnswerError: the body is no query response, or lists a period or a series twice.
    """
    response = decode(body, _page_decoder)
    refuse_repeated("periods", response.periods)
    refuse_repeated("series", list(map(_series_id, response.series)))
    return QueryPage(
        response.entity_id,
        response.name,
        response.dataset_id,
        utc_timestamp(response.created_timestamp),
        response.periods,
        response.series,
        response.next_cursor,
    )


class _Observation(msgspec.Struct, gc=False):
    number: int | float


class ArraysDecoder(Generic[T]):
    """Reads `values` arrays, their entries as a kind of object or None."""

    def __init__(self, kind: type[T]) -> None:
        self.one = msgspec.json.Decoder(list[kind | None])  # type: ignore[valid-type]
        self.all = msgspec.json.Decoder(list[list[kind | None]])  # type: ignore[valid-type]


_observations = ArraysDecoder(_Observation)
values_decoder = msgspec.json.Decoder(list[Value | None])
_number = attrgetter("number")
_series_id = attrgetter("series_id")


class Numbers(NamedTuple):
    """The numbers of several series, one series after another.

    Attributes:
        starts: where the observations of each series begin; one more for the end.
        positions: the place of each observation in its `values` array, ascending within a series.
        numbers: the number of each observation.
        text: the `values` arrays as they came, as one JSON array.
    """

    starts: "array[int]"
    positions: "array[int]"
    numbers: "array[float]"
    text: bytes


def decode_numbers(series: Sequence[tuple[int, RawSeries]], count: int) -> Numbers:
    """Return the numbers of a page's series, each given with its place there.

    Args:
        count: how many periods the page has.

    Raises:
        MalformedAnswerError: a `values` array is of another length, or a number is none.
    """
    text = b"[" + b",".join([raw.values for _, raw in series]) + b"]"
    single = ((raw.values, at, raw.series_id) for at, raw in series)
    arrays = decode_arrays(_observations, text, count, single)
    entries = list(chain.from_iterable(arrays))
    numbers = list(map(_number, filter(None, entries)))
    if not _all_fit(numbers, text):
        _refuse_unfit((raw.values, series_path(at, raw.series_id)) for at, raw in series)
    starts = accumulate([count - each.count(None) for each in arrays], initial=0)
    positions = compress(chain.from_iterable(repeat(range(count), len(arrays))), entries)
    return Numbers(array("I", list(starts)), array("i", list(positions)), array("d", numbers), text)


# No text without one of these stands for less than the least float: what has fewer zeros behind its
# point needs an exponent below zero. (Looking for three texts is many times faster than a pattern.)
_MAYBE_TINY = (b"e-", b"E-", b"0" * 200)


def _all_fit(numbers: Sequence[int | float], text: bytes) -> bool:
    """Return False where a number may be too large for a float, or so small that it was read as zero."""
    try:
        array("d", numbers)
    except OverflowError:
        return False
    return not any(each in text for each in _MAYBE_TINY) or 0 not in numbers


class _NumberText(msgspec.Struct, gc=False):
    number: msgspec.Raw


_number_texts = msgspec.json.Decoder(list[_NumberText | None])


def _refuse_unfit(arrays: Iterable[tuple[JsonBytes, str]]) -> None:
    """Refuse numbers that no float can stand for, of `values` arrays with the paths of their series.

    Raises:
        MalformedAnswerError: there are some; each with its path.
    """
    problems = []
    for values, path in arrays:
        entries = decode(values, _number_texts)
        unfit = (at for at, entry in enumerate(entries) if entry is not None and not _fits(entry.number))
        problems += [f"number is out of range @ {path}.values[{at}].number" for at in unfit]
    if problems:
        raise MalformedAnswerError(problems)


def _fits(number: msgspec.Raw) -> bool:
    """Return whether a float can stand for a number: 0 where its digits are all 0, and never infinity."""
    text = bytes(number).lower()
    digits, _, _ = text.partition(b"e")
    return isfinite(float(text)) and (float(text) != 0 or not digits.strip(b"-0."))


def decode_arrays(
    decoder: ArraysDecoder[T], text: JsonBytes, count: int, single: Iterable[tuple[JsonBytes, int, str]]
) -> list[list[T | None]]:
    """Return the `values` arrays of several series of a page.

    Args:
        text: the arrays as one JSON array, which is read in one call.
        count: how many entries each must have.
        single: each array, the place of its series in the page and its id: read one by one only to name the
            series whose array breaks the spec.

    Raises:
        MalformedAnswerError: an array is of another length, or an entry breaks the spec.
    """
    with suppress(MalformedAnswerError):
        arrays: list[list[T | None]] = decode(text, decoder.all)
        if all(map(partial(eq, count), map(len, arrays))):
            return arrays
    return [decode_entries(decoder.one, raw, count, at, series_id) for raw, at, series_id in single]


def _decode_values(raw: JsonBytes, count: int, index: int, series_id: str) -> tuple[Value | None, ...]:
    values: list[Value | None] = decode_entries(values_decoder, raw, count, index, series_id)
    if not _all_fit(list(map(_number, filter(None, values))), bytes(raw)):
        _refuse_unfit([(raw, series_path(index, series_id))])
    return tuple(values)


def decode_entries(
    decoder: msgspec.json.Decoder[T], raw: JsonBytes, count: int, index: int, series_id: str
) -> T:
    """Return a series' `values` array as a decoder reads it.

    Args:
        count: how many entries the array must have.
        index: the series' place in its page, to name it in errors.

    Raises:
        MalformedAnswerError: the array is of another length, or an entry breaks the spec.
    """
    path = f"{series_path(index, series_id)}.values"
    entries: Any = decode(raw, decoder, path)
    if len(entries) != count:
        raise MalformedAnswerError(
            f"expected an entry for each of the {count} periods, got {len(entries)} @ {path}"
        )
    return entries  # type: ignore[no-any-return]


def series_path(index: int, series_id: str) -> str:
    """Return the JSON path of a series in its page, with its id."""
    return f"$.series[{index}] ({series_id})"
