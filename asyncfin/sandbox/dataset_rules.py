"""The rules of the dataset format: what is required, what is defaulted, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asyncfin.sandbox.dataset_values import read_tables, read_values
from asyncfin.sandbox.json_place import (
    WrongPlaceError,
    array,
    distinct,
    end_of,
    obj,
    objects,
    optional_array,
    shown,
    strings,
    text,
)

FORMATS = ("asyncfin-dataset/1", "findata-dataset/1")

DATASET_ID_FORM = "32 lower-case hex digits as 8-4-4-4-12"
MAX_PATH_ENTRIES = 20  # spec 8: entries in one scope path

_ENTITY_ID_LENGTH = 34  # spec 2.2: "O-" and 32 characters

# Keys that say where the figures come from are passed over: one of ours, the others of findata-dataset/1.
_DOCUMENT = (
    *("format", "entity_id", "name", "publications", "provenance"),
    *("cik", "fiscal_year_end_month", "filings", "build_notes"),
)
_PUBLICATION = (
    *("dataset_id", "created_timestamp", "periods", "scope_groups", "groups", "values"),
    *("report_periods", "items", "fill_types", "provenance"),
    *("as_of", "filings", "counts"),
)
_SCOPE_GROUP = ("scope_group_id", "name", "description", "scopes")
_SCOPE = (
    *("scope_id", "name", "description", "role", "aliases"),
    *("active_start", "active_end"),
)
_GROUP = ("reporting_group_id", "name", "description", "basis", "cadence", "series")
_SERIES = (
    *("series_id", "reporting_group_id", "metric_id", "label", "description", "basis"),
    *("scopes", "number_format", "period_meaning"),
)
_REFERENCE = ("scope_group_id", "scope_id")

_References = set[tuple[str, str]]


def read_document(document: Any) -> tuple[str, str, list[dict[str, Any]]]:
    """The entity_id, the name, and the fields of every publication, in wire shapes."""
    document = obj(document, "$")
    if document.get("format") not in FORMATS:
        found = shown(document.get("format"))
        raise WrongPlaceError("$.format", f"{found} is no known format; write {shown(FORMATS[0])}")
    obj(document, "$", _DOCUMENT)
    entity_id = text(document, "entity_id", "$")
    if not entity_id.startswith("O-") or len(entity_id) != _ENTITY_ID_LENGTH:
        raise WrongPlaceError(
            "$.entity_id", f"{shown(entity_id)} is no entity id; write O- and 32 characters"
        )
    name = text(document, "name", "$")
    publications = [
        _publication(entry, place) for place, entry in objects(document, "publications", "$", _PUBLICATION)
    ]
    if not publications:
        raise WrongPlaceError("$.publications", "is empty; a dataset has at least one publication")
    _refuse_disorder(publications)
    return entity_id, name, publications


def _publication(entry: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The fields of one publication."""
    tables = read_tables(entry, place)
    scope_groups = _scope_groups(entry, place)
    references = {
        (group["scope_group_id"], scope["scope_id"]) for group in scope_groups for scope in group["scopes"]
    }
    groups = _groups(entry, place, references)
    return {
        "dataset_id": _dataset_id(entry, place),
        "created_timestamp": _timestamp(entry, place),
        "periods": tables.periods,
        "scope_groups": scope_groups,
        "groups": groups,
        "values": read_values(entry, place, groups, tables),
    }


def _refuse_disorder(publications: list[dict[str, Any]]) -> None:
    """Refuse a dataset id that occurs twice, and a publication older than the one before it."""
    places = [f"$.publications[{position}]" for position in range(len(publications))]
    distinct(zip(places, publications, strict=True), "dataset_id")
    stamps = [publication["created_timestamp"] for publication in publications]
    for place, before, stamp in zip(places[1:], stamps, stamps[1:], strict=False):
        if datetime.fromisoformat(stamp) < datetime.fromisoformat(before):
            raise WrongPlaceError(
                f"{place}.created_timestamp",
                f"{stamp!r} is before {before!r}; publications stand oldest first",
            )


def is_dataset_id(dataset_id: str) -> bool:
    """Whether it is a UUID in the form that a pin is compared with."""
    try:
        return str(UUID(dataset_id)) == dataset_id
    except ValueError:
        return False


def _dataset_id(entry: Mapping[str, Any], place: str) -> str:
    dataset_id = text(entry, "dataset_id", place)
    if is_dataset_id(dataset_id):
        return dataset_id
    raise WrongPlaceError(f"{place}.dataset_id", f"{shown(dataset_id)} is no UUID; write {DATASET_ID_FORM}")


def _timestamp(entry: Mapping[str, Any], place: str) -> str:
    timestamp = text(entry, "created_timestamp", place)
    try:
        if datetime.fromisoformat(timestamp).utcoffset() == timedelta(0):
            return timestamp
    except ValueError:
        pass
    raise WrongPlaceError(
        f"{place}.created_timestamp",
        f"{shown(timestamp)} is no UTC time; write ISO 8601 such as 2025-02-01T06:00:00Z",
    )


def _scope_groups(entry: Mapping[str, Any], place: str) -> tuple[dict[str, Any], ...]:
    """The scope groups of spec 2.3; names left out are the ids."""
    groups: dict[str, dict[str, Any]] = {}
    for at, group in objects(entry, "scope_groups", place, _SCOPE_GROUP):
        group_id = text(group, "scope_group_id", at)
        name = text(group, "name", at, group_id)
        scopes = {s: _scope(scope, s, group_id) for s, scope in objects(group, "scopes", at, _SCOPE)}
        distinct(scopes.items(), "scope_id")
        groups[at] = {
            "scope_group_id": group_id,
            "name": name,
            "description": text(group, "description", at, name),
            "scopes": list(scopes.values()),
        }
    distinct(groups.items(), "scope_group_id")
    return tuple(groups.values())


def _scope(scope: Mapping[str, Any], place: str, scope_group_id: str) -> dict[str, Any]:
    """A scope of spec 2.3; its activity bounds stay away where they are left out."""
    scope_id = text(scope, "scope_id", place)
    name = text(scope, "name", place, scope_id)
    fields: dict[str, Any] = {
        "scope_id": scope_id,
        "name": name,
        "description": text(scope, "description", place, name),
        "role": text(scope, "role", place, scope_group_id),
        "aliases": strings(optional_array(scope, "aliases", place), f"{place}.aliases"),
    }
    for key in ("active_start", "active_end"):
        if key in scope:
            fields[key] = end_of(scope[key], f"{place}.{key}")
    return fields


def _groups(entry: Mapping[str, Any], place: str, references: _References) -> tuple[dict[str, Any], ...]:
    """The reporting groups of spec 2.3 with their series."""
    groups: dict[str, dict[str, Any]] = {}
    series_places: dict[str, str] = {}
    for at, group in objects(entry, "groups", place, _GROUP):
        group_id = text(group, "reporting_group_id", at)
        name = text(group, "name", at, group_id)
        fields: dict[str, Any] = {
            "reporting_group_id": group_id,
            "name": name,
            "description": text(group, "description", at, name),
            "basis": text(group, "basis", at),
            "cadence": text(group, "cadence", at),
        }
        series = {
            s: _series(entry, s, fields, references) for s, entry in objects(group, "series", at, _SERIES)
        }
        distinct(series.items(), "series_id", series_places)
        groups[at] = fields | {"series": list(series.values())}
    distinct(groups.items(), "reporting_group_id")
    return tuple(groups.values())


def _series(
    series: Mapping[str, Any], place: str, group: Mapping[str, Any], references: _References
) -> dict[str, Any]:
    """A catalogue series of spec 2.3; what it leaves out comes from its ids and its group."""
    own_group = group["reporting_group_id"]
    group_id = text(series, "reporting_group_id", place, own_group)
    if group_id != own_group:
        raise WrongPlaceError(
            f"{place}.reporting_group_id",
            f"{shown(group_id)} is not the group it stands in; write {shown(own_group)} or leave it out",
        )
    metric_id = text(series, "metric_id", place)
    label = text(series, "label", place, metric_id)
    return {
        "series_id": text(series, "series_id", place),
        "reporting_group_id": group_id,
        "metric_id": metric_id,
        "label": label,
        "description": text(series, "description", place, label),
        "basis": text(series, "basis", place, group["basis"]),
        "scopes": _path(series, place, references),
        "number_format": text(series, "number_format", place, "#,##0"),
        "period_meaning": text(series, "period_meaning", place, "over_period"),
    }


def _path(series: Mapping[str, Any], place: str, references: _References) -> list[dict[str, str]]:
    """The scope path: up to twenty references to scopes that exist."""
    length = len(array(series, "scopes", place))
    if length > MAX_PATH_ENTRIES:
        raise WrongPlaceError(
            f"{place}.scopes", f"has {length} references; a scope path has at most {MAX_PATH_ENTRIES}"
        )
    path = []
    for at, entry in objects(series, "scopes", place, _REFERENCE):
        reference = {key: text(entry, key, at) for key in _REFERENCE}
        if tuple(reference.values()) not in references:
            raise WrongPlaceError(at, f"{shown(reference)} is no scope of scope_groups; add it there")
        path.append(reference)
    return path
