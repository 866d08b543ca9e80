"""Counts, spans and durations as people write them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from asyncfin.errors import printable, shorten

# What amounts are divided by in tables for people; "auto": by what suits all of them.
Unit: TypeAlias = Literal["thousands", "millions", "billions", "auto"]

# What the value versions are called.
VERSION_WORDS: Mapping[str, str] = MappingProxyType(
    {"original": "as first reported", "latest_restated": "as last restated"}
)
# A name of the service can have a megabyte.
_LONGEST_NAME = 200
_CENTURY = 100 * 365.25 * 86_400


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things: ``1 request``, ``2,000 requests``; `plural` if it is
    not just an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size_text(size: int) -> str:
    """Return a number of bytes: ``312 bytes``, ``37.3 kB`` or ``2.2 MB``."""
    if size < 1_000:
        return counted(size, "byte")
    return f"{size / 1e3:,.1f} kB" if size < 1e6 else f"{size / 1e6:,.1f} MB"


def number_text(number: float) -> str:
    """Return a number without its format: ``391,035,000,000`` or ``1.76``."""
    if isinstance(number, int):  # exact, also beyond a float
        return f"{number:,}"
    return f"{number:,.0f}" if number.is_integer() else f"{number:,}"


def listed(names: Sequence[str], limit: int = 20, *, between: str = ", ") -> str:
    """Return names as a list: at most so many of them ``and 59,980 more``."""
    text = between.join(names[:limit])
    if len(names) <= limit:
        return text
    space = " " if between == ", " else between
    return f"{text}{space}and {len(names) - limit:,} more"


class _Entity(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def entity_id(self) -> str: ...


def named_entity(entity: _Entity) -> str:
    """Return the name and the id of an entity, safe to print; a long name ends in an
    ellipsis.
    """
    return printable(f"{shorten(entity.name, _LONGEST_NAME)} ({entity.entity_id})")


def entity_names(entities: Iterable[_Entity]) -> dict[str, str]:
    """Return names of entities by id. The id is added where two have one name, or one
    has none.
    """
    names = {entity.entity_id: entity.name for entity in entities}
    counts = Counter(names.values())
    return {
        entity_id: name
        if name and counts[name] == 1
        else f"{name} ({entity_id})".lstrip()
        for entity_id, name in names.items()
    }


def either(names: Sequence[str], word: str = "or") -> str:
    """Return names as a choice: ``a, b or c``; or with another word in place of
    "or".
    """
    return f" {word} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def spanned(entries: Sequence[object]) -> str:
    """Return the first and the last as a span; the only one as itself; nothing for
    none.
    """
    return " to ".join(map(str, dict.fromkeys([*entries[:1], *entries[-1:]])))


def lasting(seconds: float) -> str:
    """Return a duration: ``350 ms``, ``12 s``, ``2 min 5 s`` or ``1 h 10 min``; no more
    than a century.
    """
    if seconds > _CENTURY:  # infinity is a number of seconds too
        return "more than 100 years"
    # Below what rounds to 1,000 ms.
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours:
        return f"{hours:,} h {minute} min"
    return f"{minute} min {second} s" if minute else f"{second} s"
