"""Bytes <-> model: nothing is coerced, unknown fields and unknown words pass.

Texts, aliases and sources may be missing or null, and are empty then; nothing else that
a field needs may.
"""

import re
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import CataloguePage, Dataset, ReportingGroup, ScopeGroup
from asyncfin.model.period import Period

T = TypeVar("T")
JsonBytes: TypeAlias = bytes | memoryview | msgspec.Raw
# How much an error shows of a response that does not come from the service.
_SHOWN_CHARACTERS = 80
# The fields that may be null where a class of the model has a text or an array. The
# classes have defaults for missing ones; a `| None` there would need a __post_init__,
# which takes a fifth of the time of a value.
_EMPTY = dict.fromkeys(
    (
        *("name", "description", "role", "label", "basis", "cadence"),
        *("number_format", "period_meaning", "text", "fill_type"),
    ),
    b'""',
) | {"aliases": b"[]", "sources": b"[]"}
# In a text such a name would have escaped quotes.
_NULL = re.compile(rf'("({"|".join(_EMPTY)})"\s*:\s*)null'.encode())


def decode(
    body: JsonBytes, decoder: "msgspec.json.Decoder[T]", base_path: str = "$"
) -> T:
    """Return the value that a decoder reads from JSON, or raise MalformedAnswerError
    with the first problem.

    Texts that are null are empty. `base_path` is the JSON path of that JSON in its
    response, to name the place of the problem.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # UnicodeDecodeError is a ValueError. Arrays nested without end are a
        # RecursionError.
        message, _, path = str(error).partition(" - at `$")
    # From here on, so that the error has no context: its text could contain what the
    # service echoed.
    path = path.removesuffix("`")  # it begins where this JSON does
    if message.endswith("got `null`") and path.rpartition(".")[2] in _EMPTY:
        filled_body = _NULL.sub(
            lambda null: null[1] + _EMPTY[null[2].decode()], bytes(body)
        )
        if filled_body != body:
            return decode(filled_body, decoder, base_path)
    if isinstance(body, bytes) and (problem := not_json(body)):
        raise MalformedAnswerError(f"{problem} @ {base_path}")
    path = base_path + path
    if missing := re.fullmatch("Object missing required field `(.*)`", message):
        raise MalformedAnswerError(f"a required field is missing @ {path}.{missing[1]}")
    raise MalformedAnswerError(f"{message.replace('`', '')} @ {path}")


def not_json(body: bytes) -> str:
    """Return the problem of a body that is empty or a page of a proxy, and "" for any
    other.

    What begins as an object or an array is JSON, or a response of the service that is
    malformed.
    """
    content = body.lstrip()
    if not content:
        return "the body is empty"
    if content[:1] in (b"{", b"["):
        return ""
    try:
        msgspec.json.decode(content)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return not_from_service("the body is not JSON", body)
    return ""


def not_from_service(problem: str, body: bytes) -> str:
    """Return the message for a response that does not come from the service, with the
    start of its body.
    """
    start = body.lstrip()[: 4 * _SHOWN_CHARACTERS].decode(errors="replace")
    start = start.strip()[:_SHOWN_CHARACTERS]
    excerpt = f": {start!r}" if start else ""
    return (
        f"{problem} and probably comes from something in front of the service{excerpt}"
    )


@lru_cache(maxsize=32)
def decode_repeated(
    raw: bytes, decoder: "msgspec.json.Decoder[tuple[T, ...]]", base_path: str
) -> tuple[T, ...]:
    """Return an array that most pages repeat, the same object for the same bytes."""
    return decode(raw, decoder, base_path)


_any = msgspec.json.Decoder()


def decode_json(body: JsonBytes) -> Any:
    """Return a JSON value unchanged (spec 4.4, 4.5)."""
    return decode(body, _any)


@lru_cache(1024)  # each response about a publication repeats it
def utc_timestamp(text: str) -> datetime:
    """Return the moment of an ISO 8601 text, in UTC; a text without an offset is in UTC
    (spec 2.2).
    """
    try:
        moment = datetime.fromisoformat(text.upper())  # RFC 3339 allows t and z
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        pass
    raise MalformedAnswerError(
        f"expected an ISO 8601 timestamp from year 1 to 9999, got {text!r} @ "
        "$.created_timestamp"
    )


class DatasetFields(msgspec.Struct, kw_only=True):
    """The fields of every response about a dataset (spec 2.2)."""

    entity_id: str
    name: str | None = None
    # An empty one would pin nothing.
    dataset_id: Annotated[str, msgspec.Meta(min_length=1)]
    created_timestamp: str


# Characters. The spec has no bound for it; each further request of a chain repeats it.
_MAX_CURSOR = 64 * 1024


class PageFields(DatasetFields, kw_only=True):
    """The fields of every page."""

    next_cursor: Annotated[str, msgspec.Meta(max_length=_MAX_CURSOR)] | None = None


_metadata_decoder = msgspec.json.Decoder(DatasetFields)


def read_head(response: DatasetFields) -> tuple[str, str, str, datetime]:
    """Return the fields of a `Dataset`."""
    return (
        response.entity_id,
        response.name or "",
        response.dataset_id,
        utc_timestamp(response.created_timestamp),
    )


def decode_dataset(body: bytes) -> Dataset:
    """Return the metadata in a body (spec 2.2)."""
    return Dataset(*read_head(decode(body, _metadata_decoder)))


class _CatalogueResponse(PageFields):
    """The body of a catalogue response (spec 2.3)."""

    periods: tuple[Period, ...]
    scope_groups: msgspec.Raw
    groups: tuple[ReportingGroup, ...]


_catalogue_decoder = msgspec.json.Decoder(_CatalogueResponse)
_scope_groups_decoder = msgspec.json.Decoder(tuple[ScopeGroup, ...])


def read_catalogue_page(body: bytes) -> CataloguePage:
    """Return the catalogue page in a body (spec 2.3)."""
    response = decode(body, _catalogue_decoder)
    reject_repeated("periods", response.periods)
    scope_groups = bytes(response.scope_groups)
    return CataloguePage(
        *read_head(response),
        response.periods,
        decode_repeated(scope_groups, _scope_groups_decoder, "$.scope_groups"),
        response.groups,
        response.next_cursor or None,
    )


def reject_repeated(name: str, items: Sequence[Hashable]) -> None:
    """Reject an array with equal entries; the problem names both places."""
    if len(set(items)) == len(items):
        return
    places: dict[Hashable, int] = {}
    for index, item in enumerate(items):
        first = places.setdefault(item, index)
        if first != index:
            raise MalformedAnswerError(
                f"{item} is also at $.{name}[{first}] @ $.{name}[{index}]"
            )


class _ErrorResponse(msgspec.Struct):
    error: dict[str, Any]


_error_decoder = msgspec.json.Decoder(_ErrorResponse)


def decode_error(body: bytes) -> dict[str, Any]:
    """Return the error object of a body (spec 7), or an empty one if it has none of the
    spec's texts. A text that is not a string is None.
    """
    try:
        error = decode(body, _error_decoder).error
    except MalformedAnswerError:
        return {}
    has_text = False
    for name in ("code", "message", "request_id"):
        if isinstance(error.get(name), str):
            has_text = True
        else:
            error[name] = None
    return error if has_text else {}


encode = msgspec.json.encode
