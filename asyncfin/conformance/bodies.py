"""Response bodies as a check reads them: strict in what numbers depend on, lenient in
all else.

The classes are those of the spec. What they do not name, or what a body does not state,
is found in plain JSON, so that a body which cannot be decoded is described as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_type_hints

from msgspec import Meta, Struct
from msgspec.structs import fields

from asyncfin import Period, ScopeRef


class Head(Struct, kw_only=True):
    """The metadata of a publication (spec 2.2)."""

    entity_id: str
    name: str | None = None
    dataset_id: Annotated[str, Meta(min_length=1)]
    created_timestamp: str


class Scope(Struct):
    """A company scope (spec 2.3)."""

    scope_id: str
    name: str | None = None
    description: str | None = None
    role: str | None = None
    aliases: tuple[str, ...] | None = None
    active_start: Period | None = None
    active_end: Period | None = None


class ScopeGroup(Struct, kw_only=True):
    """A group of company scopes (spec 2.3)."""

    scope_group_id: str
    name: str | None = None
    description: str | None = None
    scopes: tuple[Scope, ...]


class Series(Struct, kw_only=True):
    """What catalogue and query state of a series (spec 2.3, 2.4)."""

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str | None = None
    basis: str | None = None
    scopes: tuple[ScopeRef, ...]
    number_format: str | None = None
    period_meaning: str | None = None


class CatalogueSeries(Series, kw_only=True):
    """A series of a catalogue (spec 2.3)."""

    description: str | None = None


class Group(Struct, kw_only=True):
    """A reporting group (spec 2.3)."""

    reporting_group_id: str
    name: str | None = None
    description: str | None = None
    basis: str | None = None
    cadence: str | None = None
    series: tuple[CatalogueSeries, ...]


class CataloguePage(Head, kw_only=True):
    """A page of a catalogue (spec 2.3)."""

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[Group, ...]
    next_cursor: str | None = None

    def list_series(self) -> list[CatalogueSeries]:
        """The series of all groups."""
        series: list[CatalogueSeries] = []
        for group in self.groups:
            series += group.series
        return series


class Source(Struct):
    """Where a value comes from (spec 2.4)."""

    item_id: str
    row_index: int | None = None
    column_index: int | None = None


class Value(Struct, kw_only=True):
    """A value (spec 2.4)."""

    number: int | float
    text: str | None = None
    number_format: str | None = None
    fill_type: str | None = None
    value_version: str
    report_period: Period | None = None
    sources: tuple[Source, ...] | None = None


class QuerySeries(Series, kw_only=True):
    """A series of a query (spec 2.4)."""

    values: tuple[Value | None, ...]


class QueryPage(Head, kw_only=True):
    """A page of a query (spec 2.4)."""

    periods: tuple[Period, ...]
    series: tuple[QuerySeries, ...]
    next_cursor: str | None = None


IDENTITY = ("metric_id", "reporting_group_id", "scopes")
DESCRIPTIVE = ("label", "basis", "number_format", "period_meaning")


def _list_fields(kind: Any) -> Any:
    """The fields of a class with theirs, as dicts; None for a type without a class."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        return {name: _list_fields(hints[name]) for name in kind.__struct_fields__}
    return next(filter(None, map(_list_fields, get_args(kind))), None)


DATASET: Mapping[str, Any] = _list_fields(Head)
CATALOGUE: Mapping[str, Any] = _list_fields(CataloguePage)
QUERY: Mapping[str, Any] = _list_fields(QueryPage)
# What a response may leave out, with a finding unless a scope is always active.
_OPTIONAL = {
    member.name
    for kind in (Head, Scope, Group, CatalogueSeries, Source, Value)
    for member in fields(kind)
    if member.default is None
}


def field_states(
    body: Any, members: Mapping[str, Any], path: str = "$"
) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the name and the state of the fields that may differ from the
    spec.

    The state is ``"unknown"`` for a name that the spec does not have. That of an
    optional field is ``"missing"``, ``"null"``, ``"empty"``, or nothing if it is fine.
    """
    if isinstance(body, list):
        for entry in body:
            yield from field_states(entry, members, f"{path}[*]")
    if not isinstance(body, dict):
        return
    for name in body.keys() - members.keys():
        yield path, name, "unknown"
    for name, inner in members.items():
        if name in _OPTIONAL and not name.startswith("active_"):
            state = ""
            if name not in body:
                state = "missing"
            elif body[name] is None:
                state = "null"
            yield path, name, state
        elif name == "next_cursor" and body.get(name) == "":
            yield path, name, "empty"
        if inner is not None:
            yield from field_states(body.get(name), inner, f"{path}.{name}")


def differences(pages: Iterable[CataloguePage]) -> Iterator[str]:
    """Yield the path of each text that a page of a catalogue states otherwise than an
    earlier one.
    """
    texts: dict[tuple[str, str, str], Any] = {}
    for page in pages:
        things: list[tuple[str, str, Struct]] = []
        for group in page.groups:
            group_id = group.reporting_group_id
            things.append(("$.groups[*]", group_id, group))
        for part in page.scope_groups:
            group_id = part.scope_group_id
            things.append(("$.scope_groups[*]", group_id, part))
            for scope in part.scopes:
                path = str(ScopeRef(group_id, scope.scope_id))
                things.append(("$.scope_groups[*].scopes[*]", path, scope))
        for place, thing_id, thing in things:
            for name in _OPTIONAL.intersection(thing.__struct_fields__):
                text = getattr(thing, name)
                if text and texts.setdefault((place, thing_id, name), text) != text:
                    yield f"{place}.{name}"
