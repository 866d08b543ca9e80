"""The OpenAPI 3.1 document of the service: spec 2, 4, 5, 7 and 8, and our bodies where spec shows none."""

from __future__ import annotations

from typing import Any

from asyncfin.sandbox.dataset_rules import MAX_PATH_ENTRIES
from asyncfin.sandbox.selection import (
    DEFAULT_LIMIT,
    MAX_DURATION,
    MAX_EXACT,
    MAX_GROUPS,
    MAX_LIMIT,
    MAX_METRICS,
    MAX_MONTHS,
    MAX_PATHS,
    MAX_YEAR,
    VALUE_VERSIONS,
)

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_INTEGER: Schema = {"type": "integer"}
_UUID: Schema = {
    "type": "string",
    "format": "uuid",
    "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
}
_LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT}
_DATE: Schema = {"type": "string", "format": "date"}
_CURSOR: Schema = {"type": ["string", "null"]}
_METADATA: Schema = {
    "entity_id": {"type": "string", "pattern": "^O-.{32}$"},
    "name": _TEXT,
    "dataset_id": _UUID,
    "created_timestamp": {"type": "string", "format": "date-time"},
}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema, **bounds: Any) -> Schema:
    return {"type": "array", "items": items, **bounds}


def _object(properties: Schema, *, optional: tuple[str, ...] = (), closed: bool = False) -> Schema:
    """An object whose members are required but for the optional ones; closed: it takes no others."""
    required = [name for name in properties if name not in optional]
    schema: Schema = {"type": "object", "properties": properties, "required": required}
    return {**schema, "additionalProperties": False} if closed else schema


def _texts(*names: str) -> Schema:
    return dict.fromkeys(names, _TEXT)


def _period(longest: int) -> Schema:
    """A period of a request (spec 2.1, 4.3)."""
    bounds = {"year": (1, MAX_YEAR), "end_month": (1, 12), "duration_months": (0, longest)}
    members = {
        name: {"type": "integer", "minimum": low, "maximum": high} for name, (low, high) in bounds.items()
    }
    return _object(members, closed=True)


def _mode(name: str, **fields: Schema) -> Schema:
    return _object({"mode": {"const": name}, **fields}, closed=True)


def _dataset_schemas() -> Schema:
    """Spec 2.1 to 2.3."""
    return {
        "Period": _object({"year": _INTEGER, "end_month": _INTEGER, "duration_months": _INTEGER}),
        "Dataset": _object(_METADATA),
        "ScopeRef": _object(_texts("scope_group_id", "scope_id")),
        "Scope": _object(
            {
                **_texts("scope_id", "name", "description", "role"),
                "aliases": _list(_TEXT),
                "active_start": _ref("Period"),
                "active_end": _ref("Period"),
            },
            optional=("active_start", "active_end"),
        ),
        "ScopeGroup": _object(
            {**_texts("scope_group_id", "name", "description"), "scopes": _list(_ref("Scope"))}
        ),
        "CatalogueSeries": _object(
            {
                **_texts("series_id", "reporting_group_id", "metric_id", "label", "description", "basis"),
                "scopes": _list(_ref("ScopeRef")),
                **_texts("number_format", "period_meaning"),
            }
        ),
        "ReportingGroup": _object(
            {
                **_texts("reporting_group_id", "name", "description", "basis", "cadence"),
                "series": _list(_ref("CatalogueSeries")),
            }
        ),
        "Catalogue": _object(
            {
                **_METADATA,
                "periods": _list(_ref("Period")),
                "scope_groups": _list(_ref("ScopeGroup")),
                "groups": _list(_ref("ReportingGroup")),
                "next_cursor": _CURSOR,
            },
            optional=("next_cursor",),
        ),
    }


def _query_schemas() -> Schema:
    """Spec 2.4 and 4.3."""
    return {
        "Source": _object({"item_id": _TEXT, "row_index": _INTEGER, "column_index": _INTEGER}),
        "Value": _object(
            {
                "number": {"type": "number"},
                **_texts("text", "number_format", "fill_type"),
                "value_version": {"enum": list(VALUE_VERSIONS)},
                "report_period": _ref("Period"),
                "sources": _list(_ref("Source")),
            }
        ),
        "QuerySeries": _object(
            {
                **_texts("series_id", "reporting_group_id", "metric_id", "label", "basis"),
                "scopes": _list(_ref("ScopeRef")),
                **_texts("number_format", "period_meaning"),
                "values": _list({"oneOf": [{"type": "null"}, _ref("Value")]}),
            }
        ),
        "QueryResult": _object(
            {
                **_METADATA,
                "periods": _list(_ref("Period")),
                "series": _list(_ref("QuerySeries")),
                "next_cursor": _CURSOR,
            },
            optional=("next_cursor",),
        ),
        "Query": _object(_query_fields(), optional=tuple(_query_fields())[3:], closed=True),
    }


def _query_fields() -> Schema:
    path = _list(_object(_texts("scope_group_id", "scope_id"), closed=True), maxItems=MAX_PATH_ENTRIES)
    end = _period(0)
    months = {"type": "integer", "minimum": 1, "maximum": MAX_MONTHS}
    exact = _list(_period(MAX_DURATION), minItems=1, maxItems=MAX_EXACT)
    return {
        "metric_ids": _list(_TEXT, minItems=1, maxItems=MAX_METRICS, uniqueItems=True),
        "scope_combinations": _list(path, minItems=1, maxItems=MAX_PATHS),
        "periods": {
            "oneOf": [
                _mode("exact", exact=exact),
                _mode("fiscal_range", **{"from": end, "to": end}),
                _mode("trailing", months=months),
            ]
        },
        "reporting_group_ids": _list(_TEXT, maxItems=MAX_GROUPS),
        "expected_dataset_id": _UUID,
        "value_version": {"enum": list(VALUE_VERSIONS), "default": VALUE_VERSIONS[0]},
        "limit": _LIMIT,
        "cursor": _TEXT,
    }


def _account_schemas() -> Schema:
    """Spec 4.4, 4.5 and 7; the first two are not shown there."""
    day = _object(
        {
            "date": _DATE,
            "data_requests": _INTEGER,
            "operations": {"type": "object", "additionalProperties": _INTEGER},
        }
    )
    spending = _object({"granted": _INTEGER, "used": _INTEGER, "remaining": _INTEGER})
    runs = _object({"limit": _INTEGER, "used": _INTEGER, "remaining": _INTEGER, "period": _TEXT})
    issue = _object(_texts("field", "message"))
    error = _object({**_texts("code", "message", "request_id"), "issues": _list(issue)}, optional=("issues",))
    return {
        "Usage": _object({"start_date": _DATE, "end_date": _DATE, "days": _list(day)}),
        "Limits": _object({"account": _TEXT, "credits": spending, "research_runs": runs}),
        "Error": _object({"error": error}),
    }


def _json(schema: str) -> Schema:
    return {"application/json": {"schema": _ref(schema)}}


def _operation(name: str, summary: str, answer: str, *statuses: int, **more: Any) -> Schema:
    """An operation that answers 200 with a schema, or an error with one of these statuses."""
    responses: Schema = {"200": {"description": summary, "content": _json(answer)}}
    for status in (400, 401, 403, *statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    for status in (500, 503, 504):
        responses[str(status)] = {"$ref": "#/components/responses/failure"}
    return {"operationId": name, "summary": summary, "responses": responses, **more}


def _query_parameter(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _paths() -> Schema:
    """Spec 4."""
    entity = {
        "name": "entity_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }
    catalogue = {"expected_dataset_id": _UUID, "limit": _LIMIT, "cursor": _TEXT}
    dates = {"start_date": _DATE, "end_date": _DATE}
    body = {"required": True, "content": _json("Query")}
    return {
        "/v1/entities/{entity_id}/dataset": {
            "parameters": [entity],
            "get": _operation("dataset", "The current dataset", "Dataset", 404, 429),
        },
        "/v1/entities/{entity_id}/dataset/catalogue": {
            "parameters": [entity],
            "get": _operation(
                "catalogue",
                "A page of the catalogue",
                "Catalogue",
                *(404, 409, 429),
                parameters=[_query_parameter(*item) for item in catalogue.items()],
            ),
        },
        "/v1/entities/{entity_id}/dataset/query": {
            "parameters": [entity],
            "post": _operation("query", "A page of values", "QueryResult", 404, 409, 429, requestBody=body),
        },
        "/v1/usage": {
            "get": _operation(
                "usage",
                "Data requests by day",
                "Usage",
                parameters=[_query_parameter(*item) for item in dates.items()],
            )
        },
        "/v1/limits": {"get": _operation("limits", "Credits and research runs", "Limits")},
    }


def _responses() -> Schema:
    """Spec 7."""
    described = {
        "400": "validation_failed: invalid or missing fields, ids or filters",
        "401": "The access token is missing, invalid or not issued for the REST API",
        "403": "The token lacks a permission, or the account lacks access",
        "404": "Missing, or unavailable to the account",
        "409": "dataset_changed: the publication expected is no longer the current one",
        "429": "A request limit is reached",
        "failure": "Server-side failure; a read may be retried",
    }
    responses: Schema = {
        name: {"description": text, "content": _json("Error")} for name, text in described.items()
    }
    responses["429"]["headers"] = {
        "Retry-After": {"description": "Seconds to wait", "required": True, "schema": _INTEGER}
    }
    return responses


def openapi_document(base_url: str) -> Schema:
    """The document of the service at this address."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Financial dataset service",
            "version": "1",
            "description": "Catalogue, query and usage of published company datasets.",
        },
        "servers": [{"url": base_url}],
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "schemas": {**_dataset_schemas(), **_query_schemas(), **_account_schemas()},
            "responses": _responses(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
