"""The protocol without I/O: requests, and what responses mean (spec 4, 5, 7).

Requests carry no token; the transport adds it. A response of status 2xx becomes a model
value or a `MalformedAnswerError`; every other becomes a `ServiceError`, chosen by its
code, then by its status, never by its text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from asyncfin import errors
from asyncfin.checks import check_entity_id, short_repr
from asyncfin.model.catalogue import Dataset
from asyncfin.model.query import Query
from asyncfin.model.selection import Exact, FiscalRange, Trailing
from asyncfin.wire import codec
from asyncfin.wire.codec import not_from_service

# The longest range of one request (spec 4.4, 8).
MAX_USAGE_DAYS = 92


class Request(msgspec.Struct, frozen=True):
    """One HTTP request."""

    operation: str
    method: str
    target: str  # path and parameters, percent-encoded, after the base URL
    body: bytes | None = None
    entity_id: str | None = None
    counts: bool = True  # whether it counts against the account's allowance (spec 8)
    # Sent in addition to those of every request.
    headers: tuple[tuple[str, str], ...] = ()
    has_cursor: bool = False


class Response(msgspec.Struct, frozen=True):
    """One HTTP response: header names in lower case, the body decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # empty if it could not be read, after 408, 429 and 5xx
    sent_at: datetime  # when the attempt was sent that it responds to, aware UTC
    at: datetime  # when it was received
    attempts: int = 1  # how often the request was sent

    def __repr__(self) -> str:
        # Headers and body can contain the token, until they are redacted.
        return f"Response({self.status})"

    @property
    def request_id(self) -> str | None:
        """The service's id of the request, where a header names it; the spec promises
        it for errors only.
        """
        return self.headers.get("x-request-id")


@lru_cache(1024)
def _make_dataset_path(entity_id: str) -> str:
    check_entity_id(entity_id)
    # Quoted as a whole: an id may contain a slash or a "?", which would lead to another
    # path.
    return f"/v1/entities/{quote(entity_id, safe='')}/dataset"


def dataset_request(entity_id: str, *, fresh: bool = False) -> Request:
    """Return the request for an entity's current dataset (spec 4.1); `fresh`: no cache
    may answer it.
    """
    headers = (("Cache-Control", "no-cache"),) if fresh else ()
    return Request(
        "dataset",
        "GET",
        _make_dataset_path(entity_id),
        entity_id=entity_id,
        headers=headers,
    )


def catalogue_request(
    entity_id: str,
    *,
    expected_dataset_id: str | None,
    page_size: int,
    cursor: str | None,
) -> Request:
    """Return the request for one page of a catalogue (spec 4.2)."""
    params = {"limit": str(page_size)}
    if expected_dataset_id is not None:
        params["expected_dataset_id"] = expected_dataset_id
    if cursor is not None:
        params["cursor"] = cursor
    path = f"{_make_dataset_path(entity_id)}/catalogue"
    return Request(
        "catalogue",
        "GET",
        f"{path}?{urlencode(params, quote_via=quote)}",
        entity_id=entity_id,
        has_cursor=cursor is not None,
    )


def query_request(
    entity_id: str, query: Query, *, page_size: int, cursor: str | None
) -> Request:
    """Return the request for one page of a query (spec 4.3); its body is without the
    fields that are None.
    """
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
        "value_version": query.value_version,
        "limit": page_size,
    }
    if query.reporting_group_ids is not None:
        body["reporting_group_ids"] = query.reporting_group_ids
    if query.expected_dataset_id is not None:
        body["expected_dataset_id"] = query.expected_dataset_id
    if cursor is not None:
        body["cursor"] = cursor
    return Request(
        "query",
        "POST",
        f"{_make_dataset_path(entity_id)}/query",
        body=codec.encode(body),
        entity_id=entity_id,
        has_cursor=cursor is not None,
    )


def usage_request(start_date: date, end_date: date) -> Request:
    """Return the request for the usage of at most 92 days (spec 4.4)."""
    days = f"start_date={start_date.isoformat()}&end_date={end_date.isoformat()}"
    return Request("usage", "GET", f"/v1/usage?{days}", counts=False)


def limits_request() -> Request:
    """Return the request for the account's limits (spec 4.5)."""
    return Request("limits", "GET", "/v1/limits", counts=False)


# Printable ASCII without a fragment, which would not be sent.
_PATH = re.compile(r"/[!\"$-~]*")
_UNCOUNTED = ("/v1/usage", "/v1/limits")


def raw_request(
    method: str, path: str, params: Mapping[str, str] | None, body: bytes | None
) -> Request:
    """Return a request for any path of the service."""
    # It is appended to the base URL, whose host must not become another.
    if not re.fullmatch(_PATH, path):
        raise errors.ArgumentError(
            "path must begin with a slash and be percent-encoded, not be "
            f"{short_repr(path)}"
        )
    target = path
    if params:
        mark = "&" if "?" in path else "?"
        target += f"{mark}{urlencode(params, quote_via=quote)}"
    counts = path.partition("?")[0] not in _UNCOUNTED
    return Request("request", method, target, body, counts=counts)


def usage_windows(start_date: date, end_date: date) -> Iterator[tuple[date, date]]:
    """Cut a range of days into windows of at most 92 days that cover it exactly once,
    in order (spec 8).
    """
    end = end_date.toordinal()
    # By number: the last day of the calendar has no day after it.
    for first in range(start_date.toordinal(), end + 1, MAX_USAGE_DAYS):
        last = min(first + MAX_USAGE_DAYS - 1, end)
        yield date.fromordinal(first), date.fromordinal(last)


_json_decoder = msgspec.json.Decoder(msgspec.Raw)
_LENGTHS = frozenset(("content-length", "transfer-encoding"))


def error_of(
    request: Request, response: Response
) -> errors.ServiceError | errors.TransportError | errors.MalformedAnswerError | None:
    """Return the error for a response, or None for a whole 2xx in JSON, which may
    still be malformed.
    """
    if not 200 <= response.status < 300:
        return failure(request, response)
    if problem := codec.not_json(response.body):
        return errors.MalformedAnswerError(problem, is_json=False)
    # Without a stated length (RFC 9112, 6.3) only the JSON shows that it was cut.
    if not _LENGTHS.isdisjoint(response.headers):
        return None
    try:
        codec.decode(response.body, _json_decoder)
    except errors.MalformedAnswerError as error:
        if "truncated" in str(error):
            return errors.TruncatedAnswerError("the response ended within its JSON")
        return error.with_traceback(None)
    return None


def read_dataset(request: Request, response: Response) -> Dataset:
    """Return the metadata in a response (spec 2.2), which must be of the requested
    entity.
    """
    try:
        dataset = codec.decode_dataset(response.body)
        check_entity(dataset, request.entity_id)
    except errors.MalformedAnswerError as error:
        errors.complete_error(error, request.operation, request.entity_id, response)
        raise
    return dataset


def read_json(request: Request, response: Response) -> Any:
    """Return a body whose structure the spec does not show, unchanged (spec 4.4,
    4.5).
    """
    try:
        return codec.decode_json(response.body)
    except errors.MalformedAnswerError as error:
        errors.complete_error(error, request.operation, request.entity_id, response)
        raise


def check_entity(head: Dataset, entity_id: str | None) -> None:
    """Reject a response about another entity."""
    if entity_id is not None and head.entity_id != entity_id:
        # For an id written in another way, say, which the service accepts.
        raise errors.MalformedAnswerError(
            f"expected {entity_id!r}, got {head.entity_id!r} @ $.entity_id;"
            f" request {head.entity_id!r}, the id that the service uses"
        )


_BY_CODE: Mapping[str, type[errors.ServiceError]] = {
    "validation_failed": errors.ValidationFailedError,
    "dataset_changed": errors.DatasetChangedError,
}
_BY_STATUS: Mapping[int, type[errors.ServiceError]] = {
    400: errors.ValidationFailedError,
    401: errors.AuthenticationError,
    403: errors.PermissionDeniedError,
    404: errors.NotFoundError,
    429: errors.RateLimitedError,
}


def failure(request: Request, response: Response) -> errors.ServiceError:
    """Return the error for a response whose status is not 2xx (spec 7)."""
    status = response.status
    details = codec.decode_error(response.body)
    has_error_object = bool(details)
    message = details.pop("message", None)
    if not has_error_object:
        message = "redirects are not followed"
        if status >= 400:
            problem = "the response has no error object"
            message = not_from_service(problem, response.body)
    code = details.pop("code", None)
    facts: dict[str, Any] = {
        "status": status,
        "code": code,
        "message": message or "",
        "has_error_object": has_error_object,
        "request_id": details.pop("request_id", None) or response.request_id,
        "details": details,
        "operation": request.operation,
        "entity_id": request.entity_id,
        "at": response.at,
    }
    # The code first: one status can have several codes (spec 7).
    kind = _BY_CODE.get(code or "") or _BY_STATUS.get(status)
    if kind is errors.RateLimitedError:
        return errors.RateLimitedError(retry_after=retry_after(response), **facts)
    if kind is None:
        kind = errors.ServerFailureError if status >= 500 else errors.ServiceError
    rejection = kind(**facts)
    rejection.sent_at = response.sent_at
    return rejection


# Seconds. Allowances reset at midnight UTC (spec 8), so a longer wait cannot be meant.
_LONGEST_WAIT = 24 * 3600 + 5 * 60


def retry_after(response: Response) -> float | None:
    """Return the seconds to wait that a response states (spec 7, 8), or None without a
    valid time.

    It is at most 24 hours and 5 minutes. An HTTP date is measured against the
    response's own Date, so that a wrong local clock does no harm.
    """
    lines = response.headers.get("retry-after", "").splitlines()
    waits = [_parse_seconds(line.strip(), response) for line in lines]
    # Of several the longest counts.
    longest = max((wait for wait in waits if wait is not None), default=None)
    return None if longest is None else min(longest, _LONGEST_WAIT)


def _parse_seconds(text: str, response: Response) -> float | None:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text, re.ASCII):
        return float(text)
    # Without a Date header, the time at which the response was received.
    then, now = (
        _parse_http_date(text),
        _parse_http_date(response.headers.get("date", "")) or response.at,
    )
    return max(0.0, (then - now).total_seconds()) if then else None


def _parse_http_date(text: str) -> datetime | None:
    """Return the moment of an HTTP date, which is UTC also in the old form that does
    not say so.
    """
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
