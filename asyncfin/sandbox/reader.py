"""Strict reading of JSON: every rejection names the place, the value found there, and
what is wrong with it.

Structs (`schema`, `dataset_file`) describe what a file or a request may contain, and
msgspec checks it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from asyncfin.sandbox.errors import invalid

T = TypeVar("T")

# msgspec reports its findings only as a text: what is wrong, and where below `$`. The
# former may contain names and values of the request, and so what looks like a place.
_MESSAGE = re.compile(
    r"(?P<problem>.*?)(?: - at (?:`key` in )?`\$(?P<path>[\w.\[\]]*)`)?", re.DOTALL
)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class WrongPlaceError(Exception):
    """A rule is broken at this place of a JSON text."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem


def parse_json(content: bytes, *, whole_numbers: bool = False) -> Any:
    """Parse JSON in UTF-8, as RFC 8259 has it; with `whole_numbers` 12.0 is 12, for
    JSON has one kind.
    """
    # json.loads would take UTF-16 and UTF-32 as well; a byte order mark may be ignored
    # (section 8.1).
    text = content.decode("utf-8-sig")

    def reject(constant: str) -> None:
        raise ValueError(f"{constant} is not a finite number")

    def parse_number(text: str) -> float:
        number = float(text)
        if number.is_integer():
            return int(number)
        return number

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # The parser alone would take the last of two equal keys in silence.
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice, _ = counts.most_common(1)[0]
            raise ValueError(f"the key {twice!r} occurs twice in one object")
        return mapping

    return json.loads(
        text,
        parse_constant=reject,
        object_pairs_hook=distinct,
        parse_float=parse_number
        if whole_numbers
        else None,  # without one the parser is many times faster
    )


def read(value: Any, kind: type[T], place: str) -> T:
    """Return the value as this kind: a Struct, or a list of Structs, and so on."""
    try:
        # Strict by default: no text becomes a number, and no 1 a True.
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        match = _MESSAGE.fullmatch(str(error))
    assert match is not None
    problem, path = match["problem"], match["path"] or ""
    if field := re.fullmatch(
        r"Object (missing required|contains unknown) field `(.*)`", problem, re.DOTALL
    ):
        missing = field[1] == "missing required"
        raise WrongPlaceError(
            f"{place}{path}.{field[2]}",
            "is missing" if missing else "is unknown here",
        )
    part: Any = value
    try:
        for name, index in _STEP.findall(path):
            part = part[name or int(index)]
    except (LookupError, TypeError):  # the path is the end of an unknown field's name
        problem, path, part = match[0], "", value
    raise WrongPlaceError(
        f"{place}{path}", f"is {show(part)}: {problem[0].lower()}{problem[1:]}"
    )


def read_fields(data: Mapping[str, Any], kind: type[T]) -> T:
    """Return a request's fields as a Struct; 400 has an issue for each wrong field."""
    fields = _list_fields(kind)  # type: ignore[arg-type]
    names = [field.encode_name for field in fields]
    issues = []
    for name in data:
        if name not in names:
            issues.append((name, f"is unknown here; {suggest(name, names)}"))
    values = {}
    try:
        msgspec.json.encode(data)
        check = False
    except (UnicodeEncodeError, RecursionError):
        check = True
    for field in fields:
        name = field.encode_name
        if name in data:
            try:
                if check:
                    reject_half_characters(data[name], name)
                values[field.name] = read(data[name], field.type, name)
            except WrongPlaceError as wrong:
                issues.append((wrong.place, wrong.problem))
            except RecursionError:
                issues.append((name, "is nested too deeply"))
        elif field.required:
            issues.append((name, "is missing"))
    if issues:
        raise invalid(issues)
    return kind(**values)


@cache
def _list_fields(kind: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)  # evaluates the annotations each time


def reject_half_characters(value: Any, place: str) -> None:
    """Reject texts with half of a surrogate pair: JSON can spell it, and no response
    could contain it.
    """
    if isinstance(value, str) and any("\ud800" <= char <= "\udfff" for char in value):
        raise WrongPlaceError(place, "holds half of a surrogate pair")
    if isinstance(value, dict):
        for key, member in value.items():
            reject_half_characters(key, f"{place}.{key}")
            reject_half_characters(member, f"{place}.{key}")
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            reject_half_characters(entry, f"{place}[{index}]")


def query_parameters(query: str) -> dict[str, str]:
    """Return the parameters of a query string, each of which occurs once."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        raise invalid([("query string", "is not percent-encoded UTF-8")]) from None
    counts = Counter(name for name, _ in pairs)
    issues = []
    for name, count in counts.items():
        if count > 1:
            issues.append((name, "occurs more than once"))
    if issues:
        raise invalid(issues)
    return dict(pairs)


def show(value: Any) -> str:
    """Return a value as JSON, cut to what fits a line."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:  # on 3.11 the parser gets a little deeper than the encoder
        text = "nested too deeply"
    text = text.encode(
        errors="backslashreplace"
    ).decode()  # half of a surrogate pair cannot be printed
    if len(text) <= 60:
        return text
    return f"{text[:57]}..."


def suggest(word: str, words: Collection[str]) -> str:
    """Return a hint at the word that was probably meant, or at all of them."""
    matches = difflib.get_close_matches(word, words, n=1)
    if matches:
        return f"did you mean {show(matches[0])}?"
    return f"choose of {', '.join(words) or 'none'}"
