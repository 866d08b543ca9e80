"""What response bodies contain besides what is decoded: unknown fields, and words of open sets.

It reads plain JSON values, so that a body which decoding refuses is described as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, get_args, get_type_hints

import attrs
from attrs import define, field
from msgspec import Struct

from asyncfin.model.catalogue import CataloguePage, Dataset
from asyncfin.model.series import PAGE_FIELDS, CatalogueSeries
from asyncfin.model.value import Value


def _fields_of(kind: Any) -> Any:
    """Return the fields of a class of the model with theirs, as dicts; None: the type has no class."""
    if isinstance(kind, type) and (attrs.has(kind) or issubclass(kind, Struct)):
        hints = get_type_hints(kind)
        return {name: _fields_of(hints[name]) for name in hints if name != "deviations"}
    return next(filter(None, map(_fields_of, get_args(kind))), None)


DATASET: Mapping[str, Any] = _fields_of(Dataset)
CATALOGUE: Mapping[str, Any] = _fields_of(CataloguePage)
_SERIES = _fields_of(CatalogueSeries)
QUERY: Mapping[str, Any] = {
    **DATASET,
    "next_cursor": None,
    "periods": CATALOGUE["periods"],
    "series": {name: _SERIES[name] for name in PAGE_FIELDS} | {"values": _fields_of(Value)},
}

# The fields whose words are an open set (spec 2.3, 2.4).
OPEN_SETS = ("role", "basis", "cadence", "period_meaning", "number_format", "fill_type", "value_version")
_NAMES = ("name", "label", "aliases")
_IDS = ("series_id", "metric_id", "scope_id")
_HARMLESS = re.compile(r"[A-Za-z0-9_ .#%,-]{1,40}")
# A format such as 0.0 is not a figure.
_FIGURE = re.compile(r"[ .#%,0-]*[1-9][0-9 .#%,-]*")
_MAX_WORDS = 20


def unknown_fields(value: Any, known: Mapping[str, Any], path: str = "$") -> Iterator[tuple[str, str]]:
    """Yield the path of each object that has a field which the spec does not name, and that name."""
    if isinstance(value, list):
        for each in value:
            yield from unknown_fields(each, known, f"{path}[*]")
    elif isinstance(value, dict):
        for name, member in value.items():
            if name not in known:
                yield path, name
            elif known[name] is not None:
                yield from unknown_fields(member, known[name], f"{path}.{name}")


def objects_at(value: Any, path: str) -> int:
    """Return how many objects of a body have the last field of a path, such as ``$.series[*].label``."""
    found = [value]
    for step in path.split(".")[1:-1]:
        name, *arrays = step.split("[*]")
        found = [each[name] for each in found if isinstance(each, dict) and name in each]
        for _ in arrays:
            found = [entry for each in found if isinstance(each, list) for entry in each]
    return sum(isinstance(each, dict) for each in found)


@define
class Words:
    """The words of the open sets, and which of them may be printed.

    Attributes:
        names: the names and labels of the bodies: no word that occurs in one, or has one in it, is printed.
        ids: the ids of series, metrics and scopes: no word that has one in it is printed.
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
        """Return whether a word can be part of a report, once all bodies have been added."""
        if not _HARMLESS.fullmatch(word) or _FIGURE.fullmatch(word):
            return False
        edges = sorted({0, len(word), *(each.start() for each in re.finditer(r"\b", word))})
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
