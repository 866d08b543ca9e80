"""Bytes <-> model, strictly: nothing is coerced, unknown fields and unknown words pass.

Catalogue pages are large and go by msgspec straight into the model's classes; all else is small and
goes by one cattrs converter. After a failure the same bytes are read once more by a converter that
collects every problem with its JSON path.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

import cattrs
import msgspec
from attrs import has

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import CataloguePage, Dataset, ReportingGroup, ScopeGroup
from asyncfin.model.period import Exact, FiscalRange, Period, Resolved, Trailing
from asyncfin.model.query import Query

T = TypeVar("T")


def _strict(kind: type) -> Any:
    """Return a hook that takes exactly this type: True is no int, 1 no str."""

    def structure(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {_json_name(value)}")
        return value

    return structure


def _number(value: Any, _: Any) -> int | float:
    if type(value) not in (int, float):
        raise TypeError(f"expected a number, got {_json_name(value)}")
    return value  # type: ignore[no-any-return]


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _strict_tuple(converter: cattrs.Converter) -> Any:
    """Return a hook that takes an array and nothing else that can be iterated."""

    def structure(value: Any, kind: Any) -> Any:
        if type(value) is not list:
            raise TypeError(f"expected an array, got {_json_name(value)}")
        several: Any = list[get_args(kind)[0]]  # type: ignore[misc]
        return tuple(converter.structure(value, several))

    return structure


def _strict_class(converter: cattrs.Converter) -> Any:
    """Return a factory of hooks that take an object and nothing else that has keys."""

    def factory(kind: Any) -> Any:
        from_dict = converter.gen_structure_attrs_fromdict(kind)

        def structure(value: Any, _: Any) -> Any:
            if type(value) is not dict:
                raise TypeError(f"expected an object, got {_json_name(value)}")
            return from_dict(value, kind)

        return structure

    return factory


def _json_name(value: Any) -> str:
    return "null" if value is None else repr(value)[:80]


def _timestamp(value: Any, _: Any) -> datetime:
    return aware_timestamp(_strict(str)(value, str))


def aware_timestamp(text: str) -> datetime:
    """Return the moment that an ISO 8601 text names, in UTC.

    Raises:
        ValueError: it is none, or names no time zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"expected an ISO 8601 timestamp with its time zone, got {text!r}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"expected a timestamp from year 1 to 9999 in UTC, got {text!r}") from None


@cache
def _converter(*, detailed_validation: bool) -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=detailed_validation)
    for kind in (str, int):
        converter.register_structure_hook(kind, _strict(kind))
    converter.register_structure_hook(int | float, _number)
    converter.register_structure_hook(datetime, _timestamp)
    converter.register_structure_hook_func(_is_tuple, _strict_tuple(converter))
    converter.register_structure_hook_factory(has, _strict_class(converter))
    return converter


DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)
"""What msgspec and the model's own checks raise on bytes that break the spec."""


@contextmanager
def error_context(
    operation: str,
    entity_id: str | None,
    at: datetime | None = None,
    request_id: str | None = None,
    attempts: int | None = None,
) -> Iterator[None]:
    """Complete a `MalformedAnswerError` raised within by what is known of the response being read."""
    try:
        yield
    except MalformedAnswerError as error:
        error.operation, error.entity_id = operation, entity_id
        error.at, error.request_id, error.attempts = at, request_id, attempts
        raise


def parse(body: bytes) -> Any:
    """Return the JSON value of a body.

    Raises:
        MalformedAnswerError: it is no JSON.
    """
    try:
        return msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        failure = MalformedAnswerError(f"the body is no JSON: {error}")
    raise failure


def malformed(body: bytes, kind: Any, fallback: Exception) -> MalformedAnswerError:
    """Return the error for a body that is no `kind`, with every problem and its JSON path."""
    try:
        structure(parse(body), kind)
    except MalformedAnswerError as error:
        return error
    return MalformedAnswerError(str(fallback))


def structure(value: Any, kind: type[T]) -> T:
    """Return a JSON object as a `kind`, an attrs class.

    Raises:
        MalformedAnswerError: it does not fit; every problem with its JSON path.
    """
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"expected an object, got {_json_name(value)} @ $")
    with suppress(Exception):  # what does not fit fails in many ways; the second reading names them
        return _converter(detailed_validation=False).structure(value, kind)
    return _structure_or_explain(value, kind)


def _structure_or_explain(value: Any, kind: type[T]) -> T:
    try:
        return _converter(detailed_validation=True).structure(value, kind)
    except Exception as error:  # noqa: BLE001
        found = cattrs.transform_error(error, format_exception=_explain)
    raise MalformedAnswerError(found)


def _explain(error: BaseException, _: Any) -> str:
    if isinstance(error, KeyError):
        return "a required field is missing"
    return str(error)


def decode_dataset(body: bytes) -> Dataset:
    """Return the metadata in a body (spec 2.2).

    Raises:
        MalformedAnswerError: the body breaks the spec.
    """
    return structure(parse(body), Dataset)


class _CatalogueResponse(msgspec.Struct):
    """The body of a catalogue response (spec 2.3)."""

    entity_id: str
    name: str
    dataset_id: str
    created_timestamp: str
    periods: tuple[Period, ...]
    scope_groups: msgspec.Raw
    groups: tuple[ReportingGroup, ...]
    next_cursor: str | None = None


_catalogue_decoder = msgspec.json.Decoder(_CatalogueResponse)


@lru_cache(maxsize=8)
def _scope_groups(raw: bytes) -> tuple[ScopeGroup, ...]:
    """Return scope groups, the same object for the same bytes: the pages of a catalogue repeat them."""
    return msgspec.json.decode(raw, type=tuple[ScopeGroup, ...])


def decode_catalogue_page(body: bytes) -> CataloguePage:
    """Return the catalogue page in a body (spec 2.3).

    Raises:
        MalformedAnswerError: the body breaks the spec.
    """
    try:
        response = _catalogue_decoder.decode(body)
        refuse_repeated("periods", response.periods)
        return CataloguePage(
            response.entity_id,
            response.name,
            response.dataset_id,
            aware_timestamp(response.created_timestamp),
            response.periods,
            _scope_groups(bytes(response.scope_groups)),
            response.groups,
            response.next_cursor,
        )
    except DECODE_ERRORS as error:
        failure = malformed(body, CataloguePage, error)
    raise failure


def refuse_repeated(name: str, items: Sequence[Hashable]) -> None:
    """Refuse an array that lists something twice.

    Raises:
        MalformedAnswerError: it does; one problem each, with both places.
    """
    if len(set(items)) == len(items):
        return
    first: dict[Hashable, int] = {}
    raise MalformedAnswerError(
        f"{each} stands at $.{name}[{first[each]}] already @ $.{name}[{index}]"
        for index, each in enumerate(items)
        if first.setdefault(each, index) != index
    )


def decode_mapping(body: bytes) -> dict[str, Any]:
    """Return a JSON object as it came.

    Raises:
        MalformedAnswerError: the body is no JSON object.
    """
    value = parse(body)
    if not isinstance(value, dict):
        raise MalformedAnswerError(f"expected an object, got {_json_name(value)} @ $")
    return value


class ErrorObject(NamedTuple):
    """The error object of a response (spec 7); None where a field is missing or no text."""

    code: str | None = None
    message: str | None = None
    request_id: str | None = None


def decode_error(body: bytes) -> ErrorObject:
    """Return what of the error object can be read: an error is an error whatever its body."""
    try:
        error = parse(body)["error"]
        found = {name: error.get(name) for name in ("code", "message", "request_id")}
    except (MalformedAnswerError, KeyError, TypeError, AttributeError, IndexError):
        return ErrorObject()
    return ErrorObject(**{name: text for name, text in found.items() if isinstance(text, str)})


def encode_query(query: Query, *, page_size: int, cursor: str | None) -> bytes:
    """Return the body of a query request (spec 4.3); fields that are None are left out."""
    body = {
        "metric_ids": query.metric_ids,
        "scope_combinations": query.scope_combinations,
        "periods": _encode_periods(query.periods),
        "reporting_group_ids": query.reporting_group_ids,
        "expected_dataset_id": query.expected_dataset_id,
        "value_version": query.value_version,
        "limit": page_size,
        "cursor": cursor,
    }
    return msgspec.json.encode({name: value for name, value in body.items() if value is not None})


def _encode_periods(periods: Resolved) -> dict[str, Any]:
    match periods:
        case Exact(periods=exact):
            return {"mode": "exact", "exact": exact}
        case FiscalRange(start=start, end=end):
            return {"mode": "fiscal_range", "from": start, "to": end}
        case Trailing(months=months):
            return {"mode": "trailing", "months": months}
