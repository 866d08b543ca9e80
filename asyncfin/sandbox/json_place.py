"""Strict reading of JSON: every refusal names the place, the value found, and what would be right."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

ARRAY = (list, tuple)  # a document given as a mapping may hold tuples

_PERIOD_KEYS = ("year", "end_month", "duration_months")
_SHOWN_LENGTH = 60
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


class WrongPlaceError(Exception):
    """A rule is broken at this JSON place."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem


def parsed(content: bytes) -> Any:
    """The JSON in the content; raises ValueError or RecursionError when it is none."""
    return json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_object)


def _refuse_constant(constant: str) -> None:
    """NaN and Infinity are no JSON, though the parser takes them."""
    raise ValueError(f"{constant} stands where a finite number should")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; the parser alone would keep the last of two equal keys in silence."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return mapping


def shown(value: Any) -> str:
    """The value as JSON, short enough for one line."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."


def obj(value: Any, place: str, known: Collection[str] | None = None) -> Mapping[str, Any]:
    """The object at this place; with `known`, one that has no other keys."""
    if not isinstance(value, Mapping):
        raise WrongPlaceError(place, f"{shown(value)} is no object")
    if known is not None:
        for key in value:
            if key not in known:
                hint = close(key, known, f"the keys here are {', '.join(known)}")
                raise WrongPlaceError(place, f"{shown(key)} is no known key; {hint}")
    return value


def array(mapping: Mapping[str, Any], key: str, place: str) -> Sequence[Any]:
    """The array under this key."""
    value = _required(mapping, key, place, "an array")
    if not isinstance(value, ARRAY):
        raise WrongPlaceError(f"{place}.{key}", f"{shown(value)} is no array")
    return value


def optional_array(mapping: Mapping[str, Any], key: str, place: str) -> Sequence[Any]:
    """The array under this key, empty where the key is absent."""
    return array(mapping, key, place) if key in mapping else ()


def objects(
    mapping: Mapping[str, Any], key: str, place: str, known: Collection[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of the array under this key, each with its place."""
    for position, value in enumerate(array(mapping, key, place)):
        at = f"{place}.{key}[{position}]"
        yield at, obj(value, at, known)


def text(mapping: Mapping[str, Any], key: str, place: str, default: str | None = None) -> str:
    """The string under this key, or the default where the key is absent and there is one."""
    if key not in mapping and default is not None:
        return default
    return string(_required(mapping, key, place, "a string"), f"{place}.{key}")


def strings(values: Iterable[Any], place: str) -> list[str]:
    """The array at this place, all strings."""
    return [string(value, f"{place}[{position}]") for position, value in enumerate(values)]


def string(value: Any, place: str) -> str:
    """Return the string at this place, if UTF-8 and the store can carry it."""
    if not isinstance(value, str):
        raise WrongPlaceError(place, f"{shown(value)} is no text; write a string")
    if _HALF_CHARACTER.search(value):
        raise WrongPlaceError(place, f"{value!a} holds half a character; write whole ones")
    if "\0" in value:  # SQLite would end it there
        raise WrongPlaceError(place, f"{value!a} holds a NUL; leave it out")
    return value


def period(value: Any, place: str, duration: int | None = None) -> tuple[int, int, int]:
    """[year, end_month, duration_months] with this duration, or with any from 1 on."""
    entries = value if isinstance(value, ARRAY) else ()
    if len(entries) == len(_PERIOD_KEYS) and all(type(number) is int for number in entries):
        year, end_month, months = entries
        right_duration = months >= 1 if duration is None else months == duration
        if right_duration and 1 <= year <= 9999 and 1 <= end_month <= 12:
            return year, end_month, months
    wanted = "a duration of 1 month or more" if duration is None else f"duration {duration}"
    raise WrongPlaceError(
        place,
        f"{shown(value)} is no period; write [year, end month, duration]: whole numbers,"
        f" the end month from 1 to 12, {wanted}",
    )


def period_object(period: tuple[int, int, int]) -> dict[str, int]:
    """The period object of spec 2.1."""
    return dict(zip(_PERIOD_KEYS, period, strict=True))


def end_of(value: Any, place: str) -> dict[str, int]:
    """The period object at this place, of duration 0."""
    fields = obj(value, place, _PERIOD_KEYS)
    return period_object(period([fields.get(key) for key in _PERIOD_KEYS], place, duration=0))


def distinct(
    entries: Iterable[tuple[str, Mapping[str, Any]]], key: str, seen: dict[str, str] | None = None
) -> None:
    """Refuse an id that an earlier entry has; `seen` carries the ids over several arrays."""
    places: dict[str, str] = {} if seen is None else seen
    for place, entry in entries:
        first = places.setdefault(entry[key], place)
        if first != place:
            raise WrongPlaceError(
                f"{place}.{key}", f"{shown(entry[key])} is taken by {first}; give each its own"
            )


def close(word: str, known: Collection[str], otherwise: str) -> str:
    """A hint at the known word that was probably meant."""
    matches = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {shown(matches[0])}?" if matches else otherwise


def _required(mapping: Mapping[str, Any], key: str, place: str, kind: str) -> Any:
    if key not in mapping:
        raise WrongPlaceError(place, f"{key!r} is missing; it is {kind}")
    return mapping[key]
