"""The service's rules as one function: `answer` takes a request and returns status,
headers and body.

It reads the store. The response contains its cost, which the server counts.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping
from email.utils import format_datetime
from urllib.parse import unquote

from attrs import frozen
from msgspec.json import encode

from asyncfin.sandbox.accounts import (
    DATASETS_READ,
    USAGE_READ,
    Account,
    Meter,
    report_limits,
    report_usage,
)
from asyncfin.sandbox.catalogue import write_catalogue_page
from asyncfin.sandbox.dialect import Dialect, add_extras
from asyncfin.sandbox.errors import RejectionError, invalid
from asyncfin.sandbox.openapi import make_openapi
from asyncfin.sandbox.query import query_page, read_query
from asyncfin.sandbox.reader import query_parameters
from asyncfin.sandbox.request import JSON_TYPE, Reply, Request
from asyncfin.sandbox.store import Store

# operation: (method, permission or None)
OPERATIONS = {
    "dataset": ("GET", DATASETS_READ),
    "catalogue": ("GET", DATASETS_READ),
    "query": ("POST", DATASETS_READ),
    "usage": ("GET", USAGE_READ),
    "limits": ("GET", None),
    "openapi": ("GET", None),
}
_PLAIN_PATHS = {
    ("v1", "usage"): "usage",
    ("v1", "limits"): "limits",
    ("openapi.json",): "openapi",
}
_ENTITY_PATHS = {
    ("dataset",): "dataset",
    ("dataset", "catalogue"): "catalogue",
    ("dataset", "query"): "query",
}


@frozen
class Service:
    """What the rules look at."""

    store: Store
    meter: Meter
    dialect: Dialect
    base_url: str


@frozen
class Call:
    """An operation asked for; entity_id is "" where there is none."""

    operation: str
    entity_id: str = ""


def find_call(path: str) -> Call | None:
    """Return the operation of a path, whatever the method; None for an unknown path."""
    # An entity id may hold an encoded slash, so each segment is decoded by itself.
    _, *parts = map(unquote, path.split("/"))
    if operation := _PLAIN_PATHS.get(tuple(parts)):
        return Call(operation)
    operation = _ENTITY_PATHS.get(tuple(parts[3:]))
    if parts[:2] != ["v1", "entities"] or operation is None:
        return None
    return Call(operation, parts[2])


def answer(request: Request, service: Service) -> Reply:
    """Return the service's response to a request."""
    call, account, charge = find_call(request.path), None, None
    operation = call.operation if call else None
    # The order of the checks is what a caller can rely on: 404 (path), 405, 413, 401,
    # 403, 429, then those of the operation. From 429 on a request counts, whatever
    # comes of it.
    try:
        call = check_call(call, request)
        if call.operation == "openapi":
            return build_reply(
                request,
                service,
                200,
                encode(make_openapi(service.base_url)),
                {},
                operation,
            )
        account = authorise(call, request, service)
        if OPERATIONS[call.operation][1] == DATASETS_READ:  # a data request (spec 8)
            service.meter.check(account)
            charge = account, call.operation
        status, headers, body = 200, {}, _build_body(call, request, account, service)
    except RejectionError as rejection:
        status, headers, body = (
            rejection.status,
            rejection.headers,
            rejection.body(request.request_id),
        )
    return build_reply(
        request, service, status, body, headers, operation, account, charge
    )


def report_failure(request: Request, service: Service, problem: str) -> Reply:
    """Return the response to a request at which the sandbox could not do what a fault
    asks for.
    """
    call = find_call(request.path)
    body = RejectionError(500, "sandbox_error", problem).body(request.request_id)
    return build_reply(
        request, service, 500, body, {}, call.operation if call else None
    )


def check_call(call: Call | None, request: Request) -> Call:
    if call is None:
        raise RejectionError(404, "not_found", "There is nothing at this path.")
    method = OPERATIONS[call.operation][0]
    if request.method != method:
        raise RejectionError(
            405,
            "method_not_allowed",
            f"This path accepts {method}.",
            headers={"Allow": method},
        )
    if request.body is None:
        raise RejectionError(413, "request_too_large", "The body is larger than 1 MiB.")
    return call


def authorise(call: Call, request: Request, service: Service) -> Account:
    """Return the account of a request (spec 5.1 to 5.4)."""
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    # Schemes are compared without case (RFC 9110, section 11.1).
    token = service.store.token(text.strip()) if scheme.lower() == "bearer" else None
    account = service.store.account(token.account) if token else None
    # One response for all three, so that it does not reveal which tokens exist.
    if token is None or account is None or token.audience != "rest":
        raise RejectionError(
            401,
            "unauthorized",
            "The access token is missing, invalid or not issued for the REST API.",
            headers={"WWW-Authenticate": "Bearer"},
        )
    permission = OPERATIONS[call.operation][1]
    if permission is not None and not token.has_permission(
        permission, service.base_url
    ):
        raise RejectionError(
            403, "forbidden", f"The token does not have the permission {permission}."
        )
    if not account.access:
        raise RejectionError(403, "forbidden", "The account does not have access.")
    return account


def _build_body(
    call: Call, request: Request, account: Account, service: Service
) -> bytes:
    store, dialect = service.store, service.dialect
    if call.operation == "usage":
        return encode(report_usage(request.query, account, service.meter))
    if call.operation != "catalogue" and (
        parameters := query_parameters(request.query)
    ):
        raise invalid(
            [(name, "is unknown here; there are no parameters") for name in parameters]
        )
    if call.operation == "limits":
        return encode(report_limits(account))
    # Not published and not visible to the account are one answer (spec 4.1, 7).
    current = store.current(call.entity_id)
    if current is None or (
        account.entities is not None and call.entity_id not in account.entities
    ):
        raise RejectionError(
            404, "not_found", "No published dataset here is available to the account."
        )
    if call.operation == "catalogue":
        return write_catalogue_page(request.query, current, store, dialect)
    if call.operation == "query":
        return query_page(read_query(request), current, store, dialect)
    return store.read_metadata_head(call.entity_id, dialect.metadata_lag) + b"}"


def build_reply(
    request: Request,
    service: Service,
    status: int,
    body: bytes,
    headers: Mapping[str, str],
    operation: str | None,
    account: Account | None = None,
    charge: tuple[Account, str] | None = None,
) -> Reply:
    all_headers = {
        "Content-Type": JSON_TYPE,
        "Date": format_datetime(service.meter.now(), usegmt=True),
        **headers,
    }
    if service.dialect.extras and operation != "openapi":
        body = add_extras(body)
    if service.dialect.gzip and accepts_gzip(
        request.headers.get("accept-encoding", "")
    ):
        all_headers["Content-Encoding"] = "gzip"
        # The fastest level, since benchmarks run against it; no time stamp, so that
        # equal bodies stay equal.
        body = gzip.compress(body, compresslevel=1, mtime=0)
    return Reply(status, body, all_headers, operation, account, charge)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client accepts gzip; a weight of 0 rejects it (RFC 9110, section
    12.5.3).
    """
    weights = {}
    for coding in accept_encoding.lower().split(","):
        name, _, parameter = coding.partition(";")
        weights[name.strip()] = parameter.strip()
    # The "x-" form is the same coding (RFC 9110, section 8.4.1.3), and "*" means every
    # other coding.
    weight = weights.get("gzip", weights.get("x-gzip", weights.get("*", "q=0")))
    return re.fullmatch(r"q\s*=\s*0(\.0*)?", weight) is None
