"""The OpenAPI 3.1 document of the service: the paths of spec 4, with the shapes of
`schema`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from asyncfin.sandbox import schema

_KINDS = (
    schema.Dataset,
    schema.Catalogue,
    schema.QueryResult,
    schema.Usage,
    schema.Limits,
    schema.Error,
    schema.Query,
    schema.CatalogueParameters,
    schema.UsageParameters,
)
_RESPONSES = {
    "400": "validation_failed: invalid or missing fields, ids or filters",
    "401": "The access token is missing, invalid or not issued for the REST API",
    "403": "The token does not have a permission, or the account does not have access",
    "404": "Missing, or unavailable to the account",
    "409": "dataset_changed: the publication expected is no longer the current one",
    "429": "A request limit is reached",
    "failure": "Server-side failure; a read may be retried",
}


def make_openapi(base_url: str) -> dict[str, Any]:
    """Return the document of the service at this address."""
    _, schemas = msgspec.json.schema_components(
        _KINDS, ref_template="#/components/schemas/{name}"
    )
    # A query string is not JSON: the members of these two are listed in the paths, one
    # by one.
    parameters = {
        kind: [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in schemas.pop(kind)["properties"].items()
        ]
        for kind in ("CatalogueParameters", "UsageParameters")
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Financial dataset service",
            "version": "1",
            "description": "Catalogue, query and usage of published company datasets.",
        },
        # Where it really listens: tools send their requests there.
        "servers": [{"url": base_url}],
        "security": [{"token": []}],
        "paths": _describe_paths(parameters),
        "components": {
            "schemas": schemas,
            "responses": _describe_responses(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_paths(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the paths of spec 4."""
    entity = {
        "name": "entity_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }
    dataset = _describe_operation("dataset", "The current dataset", "Dataset", 404, 429)
    catalogue = _describe_operation(
        "catalogue", "A page of the catalogue", "Catalogue", 404, 409, 429
    )
    query = _describe_operation(
        "query", "A page of values", "QueryResult", 404, 409, 429
    )
    usage = _describe_operation("usage", "Data requests by day", "Usage")
    return {
        "/v1/entities/{entity_id}/dataset": {"parameters": [entity], "get": dataset},
        "/v1/entities/{entity_id}/dataset/catalogue": {
            "parameters": [entity],
            "get": catalogue | {"parameters": parameters["CatalogueParameters"]},
        },
        "/v1/entities/{entity_id}/dataset/query": {
            "parameters": [entity],
            "post": query
            | {"requestBody": {"required": True, "content": _describe_json("Query")}},
        },
        "/v1/usage": {"get": usage | {"parameters": parameters["UsageParameters"]}},
        "/v1/limits": {
            "get": _describe_operation("limits", "Credits and research runs", "Limits")
        },
    }


def _describe_operation(
    name: str, summary: str, kind: str, *statuses: int
) -> dict[str, Any]:
    """Return an operation that answers 200 with a shape, or an error with one of these
    statuses.
    """
    responses: dict[str, Any] = {
        "200": {"description": summary, "content": _describe_json(kind)}
    }
    # Every operation can fail in these ways (spec 7); 404, 409 and 429 only where the
    # caller decides.
    for status in (400, 401, 403, *statuses):
        responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
    for status in (500, 503, 504):
        responses[str(status)] = {"$ref": "#/components/responses/failure"}
    return {"operationId": name, "summary": summary, "responses": responses}


def _describe_responses() -> dict[str, Any]:
    """Return the errors of spec 7."""
    responses: dict[str, Any] = {
        name: {"description": text, "content": _describe_json("Error")}
        for name, text in _RESPONSES.items()
    }
    responses["429"]["headers"] = {
        "Retry-After": {
            "description": "Seconds to wait",
            "required": True,
            "schema": {"type": "integer"},
        }
    }
    return responses


def _describe_json(kind: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{kind}"}}}
