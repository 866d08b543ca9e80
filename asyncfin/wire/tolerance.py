"""Strict decoding, and if that fails, repairs: of texts, aliases, sources and a few others, not of numbers.

A type's lenient twin is made from the type itself. In it the fields of `REPAIRS` may be null or missing; all
else is as strict as before. What it decodes is turned into the type, and each repair is counted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cache, cached_property, reduce
from operator import or_
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Generic, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec
from msgspec import UNSET, UnsetType

from asyncfin.errors import MalformedAnswerError
from asyncfin.events import Deviated, Event
from asyncfin.model.deviation import Counts, Deviation
from asyncfin.wire.strict import JsonBytes, decode, json_text

T = TypeVar("T")

# What takes the place of null, or of a missing field; the names mean the same in all objects of the spec.
REPAIRS: Mapping[str, Any] = MappingProxyType(
    dict.fromkeys(
        (
            *("name", "description", "role", "label", "basis", "cadence"),
            *("number_format", "period_meaning", "text", "fill_type"),
        ),
        "",
    )
    | {"aliases": (), "sources": ()}
    | dict.fromkeys(("report_period", "row_index", "column_index"))
)
# The name of the field at the end of a problem's path.
_FIELD = re.compile(r"\.(\w+)$")
# Objects that are repaired without a stop in between: about a millisecond.
_OBJECTS_AT_ONCE = 100


def _ignore(_: Event) -> None:
    """Announce nothing."""


@attrs.frozen
class Tolerance:
    """How a client reads responses that violate the spec in fields of which nothing is computed."""

    strict: bool = False  # whether each deviation is an error
    announce: Callable[[Event], object] = _ignore  # called with a `Deviated` event for each
    operation: str = ""
    entity_id: str | None = None

    def of(self, operation: str, entity_id: str | None) -> Tolerance:
        """Return the tolerance for the response to a request."""
        return Tolerance(self.strict, self.announce, operation, entity_id)

    def counts(self) -> Counts | None:
        """Return where a decoder counts repairs; None: it must not repair."""
        return None if self.strict else Counts()

    def report(self, deviations: Iterable[Deviation]) -> None:
        """Announce deviations."""
        for each in deviations:
            self.announce(Deviated(self.operation, self.entity_id, each.path, each.problem, each.count))

    def __reduce__(self) -> tuple[Any, ...]:
        # A client's observers are not pickled with its results.
        return Tolerance, (self.strict,)


STRICT = Tolerance(strict=True)


class TolerantDecoder(Generic[T]):
    """Decodes JSON as a type: strictly, and if that fails, with repairs."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._strict: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    @cached_property
    def _lenient(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(lenient(self._kind))

    def valid(self, body: bytes) -> T | None:
        """Return what a body contains; None: it is not valid, and `decode` finds out why."""
        try:
            return self._strict.decode(json_text(body))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def decode(self, body: JsonBytes, at: str = "$", counts: Counts | None = None, path: str = "$") -> T:
        """Return what JSON contains, or raise MalformedAnswerError.

        `at` is the JSON path of that JSON in its response, `path` the same without indexes. Repairs are
        counted in `counts`; if it is None, nothing is repaired.
        """
        steps = self._steps(body, at, counts, path)
        try:
            while True:
                next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def decode_in_slices(self, body: JsonBytes, counts: Counts | None, at: str = "$") -> T:
        """Return what `decode` returns, without stopping the loop for longer than strict decoding does."""
        steps = self._steps(body, at, counts, at)
        try:
            while True:
                next(steps)
                await asyncio.sleep(0)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _steps(
        self, body: JsonBytes, at: str, counts: Counts | None, path: str
    ) -> Generator[None, None, Any]:
        try:
            return decode(body, self._strict, at)
        except MalformedAnswerError as error:
            if counts is None or not _is_repairable(error):
                raise
        yield
        found = decode(body, self._lenient, at)
        yield
        return (yield from _repaired(found, path, counts))


def _is_repairable(error: MalformedAnswerError) -> bool:
    """Return whether a strict decoder's problem is in a field that may be repaired."""
    field = _FIELD.search(error.problems[0])
    return field is not None and field[1] in REPAIRS


@attrs.frozen
class _Twin:
    """What turns an object of a lenient type into one of the strict type."""

    strict: Callable[..., Any]  # makes the object
    repaired: tuple[str, ...]  # the fields that may be missing or null
    inner: tuple[str, ...]  # the fields that contain objects of lenient types


_twins: dict[type, _Twin] = {}


@cache
def lenient(kind: Any) -> Any:
    """Return the lenient twin of a type; the type itself where nothing in it may be repaired."""
    origin = get_origin(kind)
    if origin in (Annotated, Literal):
        return kind
    plain = origin or kind
    if isinstance(plain, type) and (attrs.has(plain) or issubclass(plain, msgspec.Struct)):
        return _lenient_class(kind, plain)
    arguments = get_args(kind)
    twins = tuple(map(lenient, arguments))
    if twins == arguments:
        return kind
    return reduce(or_, twins) if origin in (Union, UnionType) else origin[twins]


def _lenient_class(kind: Any, plain: type) -> Any:
    fields: list[Any] = []
    repaired, inner = [], []
    for name, hint, default in _fields(kind, plain):
        twin = lenient(hint)
        if twin != hint:
            inner.append(name)
        if name in REPAIRS:
            repaired.append(name)
            fields.append((name, twin | None | UnsetType, UNSET))
        else:
            fields.append((name, twin, *default))
    if not repaired and not inner:
        return kind
    made = msgspec.defstruct(f"Lenient{plain.__name__}", fields, kw_only=True, gc=False)
    _twins[made] = _Twin(plain, tuple(repaired), tuple(inner))
    return made


def _fields(kind: Any, plain: type) -> Iterable[tuple[str, Any, tuple[Any, ...]]]:
    """Yield the name, the type and, if it has one, the default of each field."""
    if issubclass(plain, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield field.name, field.type, () if field.required else (field.default,)
    else:
        hints = get_type_hints(plain, include_extras=True)
        for each in attrs.fields(plain):  # type: ignore[arg-type]
            yield each.name, hints[each.name], () if each.default is attrs.NOTHING else (each.default,)


def _repaired(found: Any, path: str, counts: Counts) -> Generator[None, None, Any]:
    """Return what a lenient type has decoded as the strict type, count the repairs, and yield in between."""
    if isinstance(found, list | tuple):
        entries = []
        for index, each in enumerate(found):
            if index % _OBJECTS_AT_ONCE == _OBJECTS_AT_ONCE - 1:
                yield
            entries.append((yield from _repaired(each, f"{path}[*]", counts)))
        return type(found)(entries)
    if (twin := _twins.get(type(found))) is None:
        return found
    values = {name: getattr(found, name) for name in found.__struct_fields__}
    for name in twin.repaired:
        if values[name] is None or values[name] is UNSET:
            counts[f"{path}.{name}", "null" if values[name] is None else "missing"] += 1
            values[name] = REPAIRS[name]
    for name in twin.inner:
        if values[name]:
            values[name] = yield from _repaired(values[name], f"{path}.{name}", counts)
    return twin.strict(**values)
