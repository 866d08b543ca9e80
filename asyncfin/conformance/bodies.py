"""Response bodies as a check reads them: strict in what numbers depend on, lenient in
all else.

The classes are those of the spec. What they do not name, or what a body does not state,
is found in plain JSON, so that a body which cannot be decoded is described as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Annotated, Any, get_args, get_type_hints

from attrs import define, field
from msgspec import Meta, Struct

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


def _fields_of(kind: Any) -> Any:
    """Return the fields of a class with theirs, as dicts, or None if the type has no
    class.
    """
    if isinstance(kind, type) and issubclass(kind, Struct):
        hints = get_type_hints(kind)
        return {name: _fields_of(hints[name]) for name in kind.__struct_fields__}
    return next(filter(None, map(_fields_of, get_args(kind))), None)


DATASET: Mapping[str, Any] = _fields_of(Head)
CATALOGUE: Mapping[str, Any] = _fields_of(CataloguePage)
QUERY: Mapping[str, Any] = _fields_of(QueryPage)
# What a response may leave out, with a finding.
_OPTIONAL = (
    *(
        "name",
        "description",
        "role",
        "label",
        "basis",
        "cadence",
        "number_format",
        "period_meaning",
    ),
    *(
        "text",
        "fill_type",
        "aliases",
        "sources",
        "report_period",
        "row_index",
        "column_index",
    ),
)
# What pages of a catalogue repeat.
_REPEATED = (
    "name",
    "description",
    "role",
    "aliases",
    "basis",
    "cadence",
    "active_start",
    "active_end",
)
# The fields whose words are an open set (spec 2.3, 2.4).
OPEN_SETS = (
    "role",
    "basis",
    "cadence",
    "period_meaning",
    "number_format",
    "fill_type",
    "value_version",
)
_NAMES = ("name", "label", "aliases")
_IDS = ("series_id", "metric_id", "scope_id")
_HARMLESS = re.compile(r"[A-Za-z0-9_ .#%,-]{1,40}")
# A format such as 0.0 is not a figure.
_FIGURE = re.compile(r"[ .#%,0-]*[1-9][0-9 .#%,-]*")
_MAX_WORDS = 20


def unknown_fields(
    value: Any, known: Mapping[str, Any], path: str = "$"
) -> Iterator[tuple[str, str]]:
    """Yield the path of each object that has a field which the spec does not name, and
    that name.
    """
    if isinstance(value, list):
        for each in value:
            yield from unknown_fields(each, known, f"{path}[*]")
    elif isinstance(value, dict):
        for name, member in value.items():
            if name not in known:
                yield path, name
            elif known[name] is not None:
                yield from unknown_fields(member, known[name], f"{path}.{name}")


def absences(
    value: Any, fields: Mapping[str, Any], path: str = "$"
) -> Iterator[tuple[str, str]]:
    """Yield the path of each optional field of a body, and what is wrong: missing,
    null, empty, or "".
    """
    if isinstance(value, list):
        for entry in value:
            yield from absences(entry, fields, f"{path}[*]")
    elif isinstance(value, dict):
        for name, inner in fields.items():
            if name in _OPTIONAL:
                is_null = name in value and value[name] is None
                yield (
                    f"{path}.{name}",
                    "null" if is_null else "" if name in value else "missing",
                )
            if inner is not None:
                yield from absences(value.get(name), inner, f"{path}.{name}")
        if value.get("next_cursor") == "":
            yield f"{path}.next_cursor", "empty"


def differences(pages: Iterable[CataloguePage]) -> Iterator[str]:
    """Yield the path of each text that a page of a catalogue states otherwise than an
    earlier one.
    """
    texts: dict[tuple[Any, ...], Any] = {}
    for page in pages:
        things: list[tuple[str, str, Any]] = [
            ("$.groups[*]", group.reporting_group_id, group) for group in page.groups
        ]
        for part in page.scope_groups:
            things.append(("$.scope_groups[*]", part.scope_group_id, part))
            for scope in part.scopes:
                path = str(ScopeRef(part.scope_group_id, scope.scope_id))
                things.append(("$.scope_groups[*].scopes[*]", path, scope))
        for place, thing_id, thing in things:
            for name in _REPEATED:
                text = getattr(thing, name, None)
                if text and texts.setdefault((place, thing_id, name), text) != text:
                    yield f"{place}.{name}"


@define
class Words:
    """The words of the open sets, and which of them may be printed.

    Attributes:
        names: the names and labels of the bodies: no word that occurs in one, or has
            one in it, is printed.
        ids: the ids of series, metrics and scopes: no word that has one in it is
            printed.
    """

    names: set[str] = field(factory=set)
    ids: set[str] = field(factory=set)
    _words: dict[str, Counter[str]] = field(factory=dict)

    def add(self, value: Any) -> None:
        """Collect the words, names and labels of a body."""
        if isinstance(value, list):
            for each in value:
                self.add(each)
        elif isinstance(value, dict):
            for name, member in value.items():
                if name in OPEN_SETS and isinstance(member, str):
                    self._words.setdefault(name, Counter())[member] += 1
                elif name in _NAMES:
                    texts = member if isinstance(member, list) else [member]
                    self.names.update(each for each in texts if isinstance(each, str))
                elif name in _IDS and isinstance(member, str):
                    self.ids.add(member)
                self.add(member)

    def printable(self, word: str) -> bool:
        """Return whether a word can be part of a report, once all bodies have been
        added.
        """
        if not _HARMLESS.fullmatch(word) or _FIGURE.fullmatch(word):
            return False
        edges = sorted(
            {0, len(word), *(each.start() for each in re.finditer(r"\b", word))}
        )
        parts = {word[start:end] for start, end in combinations(edges, 2)}
        return (
            parts.isdisjoint(self.names)
            and parts.isdisjoint(self.ids)
            and not any(word in each for each in self.names)
        )

    def lines(self) -> Iterator[tuple[str, int]]:
        """Yield, for each set, its line in a report and how many words it has."""
        for name, words in self._words.items():
            shown = sorted(filter(self.printable, words))[:_MAX_WORDS]
            rest = len(words) - len(shown)
            texts = [*map(repr, shown), *([f"{rest:,} not shown"] if rest else [])]
            yield f"{name}: {', '.join(texts)}", len(words)
