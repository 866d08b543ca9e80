"""Reading the fields of a request strictly: wrong ones are noted with their places and refused together."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import parse_qsl

from attrs import define, field

from asyncfin.sandbox.request import RefusedError

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)


@define
class Issues:
    """The wrong fields of one request, in the order of their finding."""

    found: list[tuple[str, str]] = field(factory=list)

    def add(self, place: str, message: str) -> None:
        """Note that the field at this place is wrong."""
        self.found.append((place, message))

    def refuse(self) -> None:
        """Raises RefusedError 400 `validation_failed` naming every field noted, if there is one."""
        if self.found:
            text = "; ".join(f"{place} {message}" for place, message in self.found[:5])
            raise RefusedError(400, "validation_failed", f"{text}.", issues=tuple(self.found))

    def unknown(self, given: Collection[str], known: Collection[str], prefix: str = "") -> None:
        """Note the names that this request does not have."""
        for name in given:
            if name not in known:
                self.add(prefix + name, "is not a field here: there are " + (", ".join(known) or "none"))

    def integer(self, value: Any, place: str, low: int, high: int) -> int | None:
        """The value if it is an integer within bounds, both included; JSON does not tell 1.0 from 1."""
        whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if whole and low <= value <= high:
            return int(value)
        self.add(place, f"is {shown(value)}, not an integer from {low} to {high}")
        return None

    def text(self, value: Any, place: str) -> str | None:
        """The value if it is a string of Unicode text."""
        if isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value):
            return value
        self.add(place, f"is {shown(value)}, not a string")
        return None

    def uuid(self, value: Any, place: str) -> str | None:
        """The value in lower case if it is a UUID."""
        if isinstance(value, str) and _UUID.fullmatch(value):
            return value.lower()
        self.add(place, f"is {shown(value)}, not a UUID")
        return None

    def choice(self, value: Any, place: str, choices: Collection[str]) -> str | None:
        """The value if it is one of the choices."""
        if isinstance(value, str) and value in choices:
            return value
        self.add(place, f"is {shown(value)}, not one of {', '.join(choices)}")
        return None

    def array(
        self, value: Any, place: str, low: int, high: int, read: Callable[[Any, str], Any]
    ) -> tuple[Any, ...]:
        """The entries, each read by `read(entry, place)`, if it is an array with so many."""
        if not isinstance(value, list):
            self.add(place, f"is {shown(value)}, not an array")
        elif not low <= len(value) <= high:
            self.add(place, f"has {len(value)} entries, not {low} to {high}")
        else:
            return tuple(read(entry, f"{place}[{at}]") for at, entry in enumerate(value))
        return ()

    def object(self, value: Any, place: str, names: Collection[str]) -> dict[str, Any] | None:
        """The value if it is an object with exactly these members."""
        if not isinstance(value, dict):
            self.add(place, f"is {shown(value)}, not an object")
            return None
        self.unknown(value, names, f"{place}.")
        missing = [name for name in names if name not in value]
        for name in missing:
            self.add(f"{place}.{name}", "is missing")
        return None if missing else value


def query_parameters(query: str, names: Collection[str], issues: Issues) -> dict[str, str]:
    """The parameters of a query string; unknown and repeated ones are noted."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
    except ValueError:
        issues.add("query string", "is not percent-encoded UTF-8")
        return {}
    parameters = dict(pairs)
    issues.unknown(parameters, names)
    for name in parameters:
        if sum(name == other for other, _ in pairs) > 1:
            issues.add(name, "stands more than once")
    return parameters


def whole_number(text: str) -> Any:
    """The integer that a parameter spells; the text itself when it spells none."""
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text


def shown(value: Any) -> str:
    """A value in a message, cut short."""
    try:
        text = repr(value)
    except RecursionError:  # on 3.11 the parser gets a little deeper than repr, further up the stack
        text = "nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."
