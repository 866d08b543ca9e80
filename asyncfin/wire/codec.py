"""Bytes <-> model: nothing is coerced, unknown fields and unknown words pass."""

from collections.abc import Hashable, Mapping, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import msgspec

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import CataloguePage, Dataset, ReportingGroup, ScopeGroup
from asyncfin.model.deviation import Counts, deviations_of
from asyncfin.model.period import Period
from asyncfin.model.query import Query
from asyncfin.model.selection import Exact, FiscalRange, Trailing
from asyncfin.wire.strict import JsonBytes, decode, json_text
from asyncfin.wire.tolerance import STRICT, Tolerance, TolerantDecoder


def is_truncated(body: bytes) -> bool:
    """Return whether the JSON in a body is valid as far as it goes, and incomplete."""
    try:
        msgspec.json.decode(json_text(body), type=msgspec.Raw)
    except msgspec.DecodeError as error:
        # msgspec has no class for it.
        return str(error) == "Input data was truncated"
    except (ValueError, RecursionError):
        return False
    return False


_any = msgspec.json.Decoder()


def decode_json(body: JsonBytes) -> Any:
    """Return a JSON value unchanged (spec 4.4, 4.5)."""
    return decode(body, _any)


@lru_cache(1024)  # each response about a publication repeats it
def utc_timestamp(text: str) -> datetime:
    """Return the moment of an ISO 8601 text, in UTC; a text without an offset is in UTC (spec 2.2)."""
    try:
        moment = datetime.fromisoformat(text.upper())  # RFC 3339 allows t and z; a day is its midnight
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        problem = f"expected an ISO 8601 timestamp, got {text!r}"
    except OverflowError:
        problem = f"expected a timestamp from year 1 to 9999 in UTC, got {text!r}"
    raise MalformedAnswerError(f"{problem} @ $.created_timestamp")


class DatasetFields(msgspec.Struct):
    """The fields of every response about a dataset (spec 2.2)."""

    entity_id: str
    name: str
    dataset_id: Annotated[str, msgspec.Meta(min_length=1)]  # an empty one would pin nothing
    created_timestamp: str

    def fields(self) -> tuple[str, str, str, datetime]:
        """Return the fields of a `Dataset`."""
        return self.entity_id, self.name, self.dataset_id, utc_timestamp(self.created_timestamp)


_metadata_decoder: TolerantDecoder[DatasetFields] = TolerantDecoder(DatasetFields)


def decode_dataset(body: bytes, tolerance: Tolerance = STRICT) -> Dataset:
    """Return the metadata in a body (spec 2.2)."""
    if (found := _metadata_decoder.valid(body)) is not None:  # nearly always, and it is small
        return Dataset(*found.fields())
    counts = tolerance.counts()
    dataset = Dataset(*_metadata_decoder.decode(body, counts=counts).fields())
    tolerance.report(deviations_of(counts))
    return dataset


class _CatalogueResponse(DatasetFields):
    """The body of a catalogue response (spec 2.3)."""

    periods: tuple[Period, ...]
    scope_groups: msgspec.Raw
    groups: tuple[ReportingGroup, ...]
    next_cursor: str | None = None


_catalogue_decoder: TolerantDecoder[_CatalogueResponse] = TolerantDecoder(_CatalogueResponse)
_scope_groups_decoder: TolerantDecoder[tuple[ScopeGroup, ...]] = TolerantDecoder(tuple[ScopeGroup, ...])


@lru_cache(maxsize=8)
def _scope_groups(raw: bytes) -> tuple[ScopeGroup, ...]:
    """Return scope groups, the same object for the same bytes: the pages of a catalogue repeat them."""
    return _scope_groups_decoder.decode(raw, "$.scope_groups")


async def read_catalogue_page(body: bytes, tolerance: Tolerance = STRICT) -> CataloguePage:
    """Return the catalogue page in a body (spec 2.3)."""
    counts = tolerance.counts()
    response = await _catalogue_decoder.decode_in_slices(body, counts)
    refuse_repeated("periods", response.periods)
    raw = bytes(response.scope_groups)
    scope_groups = None
    with suppress(MalformedAnswerError):
        scope_groups = _scope_groups(raw)
    if scope_groups is None:  # decoded again, with repairs
        scope_groups = await _scope_groups_decoder.decode_in_slices(raw, counts, "$.scope_groups")
    page = CataloguePage(
        *response.fields(),
        response.periods,
        scope_groups,
        response.groups,
        next_cursor(response.next_cursor, counts),
        deviations_of(counts),
    )
    tolerance.report(page.deviations)
    return page


# Bytes. The spec has no bound for it; each further request of the chain repeats it.
_MAX_CURSOR = 1024 * 1024


def next_cursor(cursor: str | None, counts: Counts | None) -> str | None:
    """Return the cursor of a response; None on the last page. An empty one deviates, and ends the pages."""
    if cursor != "":
        if cursor is not None and len(cursor.encode()) > _MAX_CURSOR:
            raise MalformedAnswerError(f"the cursor has more than {_MAX_CURSOR:,} bytes @ $.next_cursor")
        return cursor
    if counts is None:
        raise MalformedAnswerError("expected a cursor or none, got an empty text @ $.next_cursor")
    counts["$.next_cursor", "empty"] += 1
    return None


def refuse_repeated(name: str, items: Sequence[Hashable]) -> None:
    """Refuse an array with equal entries: a problem for each, which names both places."""
    if len(set(items)) == len(items):
        return
    first: dict[Hashable, int] = {}
    raise MalformedAnswerError(
        f"{each} is also at $.{name}[{first[each]}] @ $.{name}[{index}]"
        for index, each in enumerate(items)
        if first.setdefault(each, index) != index
    )


class ErrorObject(NamedTuple):
    """The error object of a response (spec 7); a text is None if it is missing or not a string."""

    code: str | None = None
    message: str | None = None
    request_id: str | None = None
    details: Mapping[str, Any] = MappingProxyType({})  # the other fields, unchanged


_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def names_in(body: bytes) -> Set[str] | None:
    """Return the names of the fields of a JSON object; none if it is something else; None if it is broken."""
    with suppress(MalformedAnswerError):
        return decode(body, _object).keys()
    return None if json_text(body).lstrip().startswith(b"{") else frozenset()


def decode_error(body: bytes) -> ErrorObject | None:
    """Return the error object of a body; None if it has none with at least one of the spec's texts."""
    try:
        found = decode_json(body)
    except MalformedAnswerError:
        return None
    error = found.get("error") if isinstance(found, dict) else None
    if not isinstance(error, dict):
        return None
    found = [error.pop(name, None) for name in ("code", "message", "request_id")]
    code, message, request_id = (each if isinstance(each, str) else None for each in found)
    if code is message is request_id is None:
        return None
    return ErrorObject(code, message, request_id, error)


def encode_query(query: Query, *, page_size: int, cursor: str | None) -> bytes:
    """Return the body of a query request (spec 4.3); without the fields that are None."""
    periods: dict[str, Any]
    match query.periods:
        case Exact(periods=exact):
            periods = {"mode": "exact", "exact": exact}
        case FiscalRange(start=start, end=end):
            periods = {"mode": "fiscal_range", "from": start, "to": end}
        case Trailing(months=months):
            periods = {"mode": "trailing", "months": months}
    body = {
        "metric_ids": query.metric_ids,
        "scope_combinations": query.scope_combinations,
        "periods": periods,
        "reporting_group_ids": query.reporting_group_ids,
        "expected_dataset_id": query.expected_dataset_id,
        "value_version": query.value_version,
        "limit": page_size,
        "cursor": cursor,
    }
    return msgspec.json.encode({name: value for name, value in body.items() if value is not None})
