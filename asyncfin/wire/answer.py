"""Query pages (spec 2.4): one scan for the head, and each series' values only when somebody looks.

The scan leaves the `values` arrays as the bytes they are. Numbers are read from them in one pass,
whole Value objects only on demand; both are as strict as the head.
"""

from array import array
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from itertools import compress
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import msgspec
from attrs import field, frozen

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import Dataset
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.series import Series
from asyncfin.model.value import Value
from asyncfin.wire.codec import DECODE_ERRORS, aware_timestamp, malformed

T = TypeVar("T")
Json: TypeAlias = bytes | memoryview | msgspec.Raw


class RawSeries(msgspec.Struct, gc=False, frozen=True):
    """A series of a page, its values still the bytes of the answer."""

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str
    basis: str
    scopes: tuple[ScopeRef, ...]
    number_format: str
    period_meaning: str
    values: msgspec.Raw


class _QueryAnswer(msgspec.Struct):
    """The body of a query answer (spec 2.4)."""

    entity_id: str
    name: str
    dataset_id: str
    created_timestamp: str
    periods: tuple[Period, ...]
    series: tuple[RawSeries, ...]
    next_cursor: str | None = None


@frozen
class QueryPage(Dataset):
    """One page of a query (spec 4.3).

    Attributes:
        periods: what the values of this page's series are aligned with, in the service's order.
        next_cursor: None on the last page.
        raw_series: the series with their values undecoded.
    """

    periods: tuple[Period, ...]
    raw_series: tuple[RawSeries, ...] = field(repr=False)
    next_cursor: str | None = None

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The page's series, in the service's order.

        The values of each are decoded when first looked at, and MalformedAnswerError is raised then
        if they break the spec.
        """
        return tuple(self._series(index, raw) for index, raw in enumerate(self.raw_series))

    def _series(self, index: int, raw: RawSeries) -> Series:
        at = place(index, raw.series_id)
        return series_of(raw, self.periods, partial(decode_values, raw.values, len(self.periods), at))


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


def place(index: int, series_id: str) -> str:
    """Return how the problems of a series name it: its JSON path in the page, and its id."""
    return f"$.series[{index}] ({series_id})"


_answer = msgspec.json.Decoder(_QueryAnswer)


def read_query_page(body: bytes) -> QueryPage:
    """Return the page of a query that a body holds, its values not yet decoded.

    Raises:
        MalformedAnswerError: the body is no query answer, or lists a period or a series twice.
    """
    try:
        answer = _answer.decode(body)
        created = aware_timestamp(answer.created_timestamp)
    except DECODE_ERRORS as error:
        failure = malformed(body, _DetailedAnswer, error)
    else:
        _refuse_repeated("periods", answer.periods)
        _refuse_repeated("series", [series.series_id for series in answer.series])
        return QueryPage(
            answer.entity_id,
            answer.name,
            answer.dataset_id,
            created,
            answer.periods,
            answer.series,
            answer.next_cursor,
        )
    raise failure


def _refuse_repeated(name: str, items: tuple[Period, ...] | list[str]) -> None:
    if len(set(items)) == len(items):
        return
    first: dict[Any, int] = {}
    raise MalformedAnswerError(
        f"{each} stands at $.{name}[{first[each]}] already @ $.{name}[{index}]"
        for index, each in enumerate(items)
        if first.setdefault(each, index) != index
    )


class _Observation(msgspec.Struct, gc=False):
    number: int | float


_observations = msgspec.json.Decoder(list[_Observation | None])
_values = msgspec.json.Decoder(tuple[Value | None, ...])
_number = attrgetter("number")


def decode_numbers(raw: Json, count: int, at: str) -> "tuple[array[int], array[float]]":
    """Return the positions of a series' observations in its `values`, ascending, and their numbers.

    Args:
        count: how many entries the array must have.
        at: how problems name the series, as by `place`.

    Raises:
        MalformedAnswerError: the array is of another length, or a number is none.
    """
    entries = _checked(_observations, raw, count, at)
    positions = array("I", compress(range(count), entries))
    try:
        return positions, array("d", map(_number, filter(None, entries)))
    except OverflowError:
        problems = _too_large(entries, at)
    raise MalformedAnswerError(problems)


def decode_values(raw: Json, count: int, at: str) -> tuple[Value | None, ...]:
    """Return a series' values, None where there is no observation. Arguments as for `decode_numbers`.

    Raises:
        MalformedAnswerError: the array is of another length, or an entry breaks the spec.
    """
    return _checked(_values, raw, count, at)


def _checked(decoder: msgspec.json.Decoder[T], raw: Json, count: int, at: str) -> T:
    try:
        entries: Any = decoder.decode(raw)
    except DECODE_ERRORS as error:
        failure = _explained(bytes(raw), at, error)
    else:
        if len(entries) == count:
            return entries  # type: ignore[no-any-return]
        failure = MalformedAnswerError(
            f"expected an entry for each of the {count} periods, got {len(entries)} @ {at}.values"
        )
    raise failure


def _explained(raw: bytes, at: str, error: Exception) -> MalformedAnswerError:
    """Return the error for a `values` array, each problem with its path from the page's root."""
    found = malformed(b'{"values":' + raw + b"}", _DetailedValues, error)
    return MalformedAnswerError(problem.replace("@ $.", f"@ {at}.") for problem in found.problems)


def _too_large(entries: Iterable[_Observation | None], at: str) -> list[str]:
    problems = []
    for index, entry in enumerate(entries):
        try:
            float(entry.number if entry else 0)
        except OverflowError:
            problems.append(f"number out of range @ {at}.values[{index}].number")
    return problems


@frozen
class _DetailedSeries:
    """A series of a page for the second, slower reading, which names every problem."""

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str
    basis: str
    scopes: tuple[ScopeRef, ...]
    number_format: str
    period_meaning: str
    values: Any


@frozen
class _DetailedAnswer(Dataset):
    periods: tuple[Period, ...]
    series: tuple[_DetailedSeries, ...]
    next_cursor: str | None = None


@frozen
class _DetailedValues:
    values: tuple[Value | None, ...]
