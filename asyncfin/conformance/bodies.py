"""The bodies of the spec as tables of their fields, and how a body differs from one.

A check reads plain JSON, as a decoder would reject, leave out or ignore what it has to
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeAlias, get_type_hints

import msgspec

from asyncfin import Period, ScopeRef
from asyncfin.conformance.report import Kind

Body: TypeAlias = dict[str, Any]
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


def _texts(*names: str) -> Body:
    return dict.fromkeys(names, str)


# Each field with its type, with a table of an object, or with a list of one of both;
# None in that list allows entries that are null.
IDENTITY = ("metric_id", "reporting_group_id", "scopes")
DESCRIPTIVE = ("label", "basis", "number_format", "period_meaning")
_PERIOD = get_type_hints(Period, include_extras=True)
_SCOPE = _texts("scope_id", "name", "description", "role") | {
    "aliases": [str],
    "active_start": _PERIOD,
    "active_end": _PERIOD,
}
_SCOPE_GROUP = _texts("scope_group_id", "name", "description") | {"scopes": [_SCOPE]}
_SERIES = _texts("series_id", "metric_id", "reporting_group_id", *DESCRIPTIVE) | {
    "scopes": [get_type_hints(ScopeRef)],
}
_GROUP = _texts("reporting_group_id", "name", "description", "basis", "cadence") | {
    "series": [_SERIES | _texts("description")],
}
_SOURCE = {"item_id": str, "row_index": int, "column_index": int}
_VALUE = _texts("text", "number_format", "fill_type", "value_version") | {
    "number": float,
    "report_period": _PERIOD,
    "sources": [_SOURCE],
}
DATASET = _texts("entity_id", "name", "created_timestamp") | {
    "dataset_id": Annotated[str, msgspec.Meta(min_length=1)],
}
_PAGE = DATASET | {"periods": [_PERIOD], "next_cursor": str}
CATALOGUE = _PAGE | {"scope_groups": [_SCOPE_GROUP], "groups": [_GROUP]}
QUERY = _PAGE | {"series": [_SERIES | {"values": [_VALUE, None]}]}

# What a response may leave out or have as null: without a finding, and with one.
_SILENT = {"active_start", "active_end", "next_cursor"}
_OPTIONAL = {
    *("name", "description", "role", "aliases", "cadence", *DESCRIPTIVE),
    *("text", "fill_type", "report_period", "sources", "row_index", "column_index"),
}


def compare(entry: Any, spec: Any, path: str = "$") -> Iterator[tuple[Kind, str, str]]:
    """Yield the kind, the path and the problem of what differs from the spec.

    Optional fields without a problem are yielded too, so that they can be counted.
    """
    if isinstance(spec, list):
        if not isinstance(entry, list):
            yield "break", path, "cannot be read: it is not an array"
            return
        for item in entry:
            if item is not None or None not in spec:
                yield from compare(item, spec[0], f"{path}[*]")
    elif not isinstance(spec, dict):
        try:
            msgspec.convert(entry, spec)
        except msgspec.ValidationError as error:  # it names types alone
            yield "break", path, f"cannot be read: {error}"
    elif not isinstance(entry, dict):
        yield "break", path, "cannot be read: it is not an object"
    else:
        for name in entry.keys() - spec.keys():
            # Any other name may be a label or an id.
            is_shown = _FIELD_NAME.fullmatch(name)
            place = f"{path}.{name}" if is_shown else "fields whose names are not shown"
            yield "extra", place, ""
        for name, inner in spec.items():
            yield from _compare_field(entry, name, inner, f"{path}.{name}")


def _compare_field(
    entry: Body, name: str, spec: Any, path: str
) -> Iterator[tuple[Kind, str, str]]:
    is_optional = name in _OPTIONAL
    problem = ""
    if name not in entry:
        problem = "is missing"
    elif entry[name] is None:
        problem = "is null"
    elif name == "next_cursor" and entry[name] == "":
        problem, is_optional = "is empty", True
    else:
        yield from compare(entry[name], spec, path)
    if is_optional:
        yield "differs", path, problem
    elif problem and name not in _SILENT:
        yield "break", path, f"cannot be read: it {problem}"


def list_series(page: Body) -> list[Body]:
    """The series of a page of a query, or of all groups of a page of a catalogue."""
    series = list(page.get("series", ()))
    for group in page.get("groups", ()):
        series += group["series"]
    return series


def differences(pages: Iterable[Body]) -> Iterator[str]:
    """Yield the path of each text that a page of a catalogue states otherwise than an
    earlier one.
    """
    texts: dict[object, Any] = {}
    for page in pages:
        things: list[tuple[str, object, Body]] = []
        for group in page["groups"]:
            things.append(("$.groups[*]", group["reporting_group_id"], group))
        for part in page["scope_groups"]:
            group_id = part["scope_group_id"]
            things.append(("$.scope_groups[*]", group_id, part))
            for scope in part["scopes"]:
                key = group_id, scope["scope_id"]
                things.append(("$.scope_groups[*].scopes[*]", key, scope))
        for place, thing_id, thing in things:
            for name in thing.keys() & (_OPTIONAL | _SILENT):
                text = thing[name]
                if text and texts.setdefault((place, thing_id, name), text) != text:
                    yield f"{place}.{name}"
