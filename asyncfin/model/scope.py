"""Scope references, and ordered scope paths with their text form (spec 2.3)."""

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from msgspec import Struct

from asyncfin.checks import short_repr
from asyncfin.errors import SelectionError


class ScopeRef(Struct, frozen=True, order=True, gc=False):
    """One step of a scope path: a scope, and the scope group it belongs to (spec 2.3).

    Args:
        scope_group_id: the id of the scope group.
        scope_id: the id of the scope within it.
    """

    scope_group_id: str
    scope_id: str

    def __str__(self) -> str:
        return f"{_escape(self.scope_group_id)}={_escape(self.scope_id)}"


ScopePath: TypeAlias = tuple[ScopeRef, ...]
"""The complete, ordered `scopes` array of a series."""
AnyRef: TypeAlias = ScopeRef | tuple[str, str]
AnyPath: TypeAlias = str | AnyRef | Iterable[AnyRef]
"""What is accepted as a path: its text form, its references or pairs of str, or a
single one of them.
"""
AnyPaths: TypeAlias = AnyPath | Iterable[AnyPath]

# Only the characters of the text form itself, and the one that escapes: other ids stay
# readable.
_ESCAPES = {"%": "%25", "=": "%3D", "|": "%7C"}  # first the one that escapes
_ESCAPED = "(?i)%(?:25|3D|7C)"


def _escape(text: str) -> str:
    for character, escape in _ESCAPES.items():  # a pattern takes five times as long
        text = text.replace(character, escape)
    return text


def _unescape(text: str, path: str) -> str:
    # A stray "%" is rejected, so that each path has one text form and each text one
    # path.
    if "%" in re.sub(_ESCAPED, "", text):
        raise SelectionError(
            f"scope path {short_repr(path)}: a % in an id is written %25, an = %3D "
            "and a | %7C"
        )
    return re.sub(_ESCAPED, lambda match: chr(int(match[0][1:], 16)), text)


def format_path(path: Iterable[ScopeRef | tuple[str, str]]) -> str:
    """Return the text form of a scope path: ``group=scope|group=scope``, with %25, %3D,
    %7C for % = | in ids.

    Raises:
        SelectionError: it contains something other than `ScopeRef` and pairs of str.

    >>> format_path((ScopeRef("segment", "R&D"), ScopeRef("region", "a=b")))
    'segment=R&D|region=a%3Db'
    """
    return "|".join(map(str, as_path(path)))


def parse_path(text: str) -> ScopePath:
    """Return the scope path of a text form.

    Raises:
        SelectionError: the text is not the text form of a path.

    >>> parse_path("segment=R&D|region=a%3Db")[1].scope_id
    'a=b'
    """
    if not isinstance(text, str):
        raise SelectionError(
            f"scope path must be a text such as product=iPhone, not {short_repr(text)}"
        )
    references: list[ScopeRef] = []
    if not text:
        return ()
    for part in text.split("|"):
        group, equals, scope = part.partition("=")
        if not equals or "=" in scope:
            raise SelectionError(
                f"scope path {short_repr(text)} must be written "
                "group=scope|group=scope, such as product=iPhone, and "
                f"{short_repr(part)} is not"
            )
        references.append(ScopeRef(_unescape(group, text), _unescape(scope, text)))
    return tuple(references)


def _is_ref(value: object) -> bool:
    """Return whether a value is a reference of str ids, or a pair of str."""
    if isinstance(value, ScopeRef):
        return isinstance(value.scope_group_id, str) and isinstance(value.scope_id, str)
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return False
    return isinstance(value[0], str) and isinstance(value[1], str)


def as_path(value: object) -> ScopePath:
    """Return a scope path from references, pairs of str, or the text form."""
    if isinstance(value, str):
        return parse_path(value)
    if not isinstance(value, Iterable):
        raise SelectionError(
            f"scope path must be a sequence of ScopeRef, not {short_repr(value)}"
        )
    path = []
    for reference in value:
        if not _is_ref(reference):
            raise SelectionError(
                "scope path must be of ScopeRef or pairs (scope_group_id, scope_id), "
                f"not {short_repr(reference)}"
            )
        if not isinstance(reference, ScopeRef):
            reference = ScopeRef(*reference)
        path.append(reference)
    return tuple(path)


def as_paths(value: AnyPaths) -> tuple[ScopePath, ...]:
    """Return scope paths from a collection of them, or a single one, in any form that
    `as_path` accepts.
    """
    if isinstance(value, str):
        return (parse_path(value),)
    if isinstance(value, ScopeRef):
        return (as_path((value,)),)
    if not isinstance(value, Iterable):
        raise SelectionError(
            f"scope_combinations must be scope paths, not {short_repr(value)}"
        )
    items: tuple[Any, ...] = tuple(value)
    # Several references are one path: a collection of paths contains tuples of them.
    if items and all(map(_is_ref, items)):
        return (as_path(items),)
    # Two texts are the ids of one reference, or the text forms of two paths, which
    # contain "=".
    if _is_ref(items) and "=" not in "".join(items):
        return (as_path((items,)),)
    return tuple(map(as_path, items))
