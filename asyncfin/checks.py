"""Checks of arguments: a condition, and the error if it does not hold.

A check is called with the argument's name and value, and returns the value. Its `field`
validates a field of an attrs class:

    positive_int("max_in_flight", max_in_flight)
    attempts: int = field(default=5, validator=positive_int.field)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from inspect import iscoroutinefunction
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from asyncfin.errors import ArgumentError, SelectionError, shorten

if TYPE_CHECKING:
    from attrs import Attribute

V = TypeVar("V")

# Control characters, and half a surrogate pair.
_NOT_IN_ENTITY_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
MAX_ENTITY_ID = 512


class Check:
    """A condition on an argument, and its words: "{name} must be {phrase}, not
    {value!r}{hint}".
    """

    def __init__(
        self,
        phrase: str,
        holds: Callable[[Any], bool],
        # SelectionError for a part of a query.
        error: type[SelectionError] = ArgumentError,
        hint: Callable[[Any], str] = lambda _: "",
    ) -> None:
        self.phrase, self.holds, self.error, self.hint = phrase, holds, error, hint

    def __call__(self, name: str, value: V) -> V:
        """Return the value, or raise the error that names the argument, what it must
        be, and the value.
        """
        # The message is built only here: a condition that holds costs a call.
        if not self.holds(value):
            raise self.error(
                f"{name} must be {self.phrase}, not "
                f"{short_repr(value)}{self.hint(value)}"
            )
        return value

    def field(self, _: object, attribute: Attribute[Any], value: object) -> None:
        """Validate a field of an attrs class."""
        self(attribute.name, value)

    def optional(self, meaning: str = "") -> Check:
        """Return the check that accepts None too; `meaning` shows what None means."""
        end = f", or None {meaning}" if meaning else " or None"
        return Check(
            self.phrase + end,
            lambda value: value is None or self.holds(value),
            self.error,
            self.hint,
        )

    def as_selection_error(self) -> Check:
        """Return the check that raises SelectionError: the argument is a part of a
        query.
        """
        return Check(self.phrase, self.holds, SelectionError, self.hint)


def instance_of(*kinds: type) -> Check:
    """Return the check for an instance of one of these classes."""
    names = " or ".join(kind.__name__ for kind in kinds)
    article = "an" if names[:1].lower() in "aeiou" else "a"
    # A class has the names of a protocol, but is not an instance of it.
    return Check(
        f"{article} {names}",
        lambda value: isinstance(value, kinds) and not isinstance(value, type),
    )


def one_of(*words: str) -> Check:
    """Return the check for one of these words."""
    return Check(
        " or ".join(map(repr, words)),
        lambda value: isinstance(value, str) and value in words,
    )


def above(bound: float, unit: str = "") -> Check:
    """Return the check for a finite number greater than a bound; `unit` is what it
    counts.
    """
    return Check(
        f"a finite number{unit and f' of {unit}'} above {bound:g}",
        lambda value: is_finite(value) and value > bound,
    )


def at_least(minimum: float, unit: str = "") -> Check:
    """Return the check for a finite number that is not less than a minimum."""
    return Check(
        f"a finite number{unit and f' of {unit}'}, at least {minimum:g}",
        lambda value: is_finite(value) and value >= minimum,
    )


def is_finite(value: object) -> bool:
    """Return whether it is an int or a float (True is neither) between the
    infinities.
    """
    # A bool is an int to Python, and `rate=True` is a mistake.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -inf < value < inf


def whole_number(minimum: int, maximum: int | None = None) -> Check:
    """Return the check for a whole number in a range, both ends included. True, 1.0 and
    "1" are rejected.
    """
    has_end = maximum is not None
    span = f" from {minimum} to {maximum}" if has_end else f", at least {minimum}"
    end = inf if maximum is None else maximum
    return Check(
        f"a whole number{span}",
        lambda value: type(value) is int and minimum <= value <= end,
    )


def text(phrase: str = "a text that is not empty") -> Check:
    """Return the check for a str that is not empty; `phrase` shows what it contains."""
    return Check(phrase, lambda value: isinstance(value, str) and value != "")


def several(name: str, values: object, nouns: str, *kinds: type) -> None:
    """Reject what can't be iterated, and a text, whose characters would be taken for
    the values.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, (Iterable, *kinds)):
        write = ""
        if isinstance(values, str):
            parts = [part.strip() for part in values.split(",") if part.strip()]
            write = f"; write {short_repr(parts)}"
        raise ArgumentError(
            f"{name} must be an iterable of {nouns}, such as a list, not "
            f"{short_repr(values)}{write}"
        )


def texts(name: str, values: str | Iterable[str], noun: str) -> tuple[str, ...]:
    """Return one or multiple texts, each once; `noun` is what a text is.

    Raises:
        ArgumentError: it is not a text, and not an iterable of texts.
        SelectionError: there is none.
    """
    if isinstance(values, str):
        return (values,)
    several(name, values, f"{noun}s")
    entries = tuple(values)
    for entry in entries:  # first of all, since others may not be hashable
        instance_of(str)(f"each of {name}", entry)
    if not entries:
        raise SelectionError(f"{name} must name at least one {noun}")
    return tuple(dict.fromkeys(entries))


def short_repr(value: object) -> str:
    """Return the text of a value for an error."""
    return shorten(repr(value), 200)


def check_entity_id(entity_id: str) -> None:
    """Raise SelectionError for what cannot be an entity id. Any other text is sent,
    whatever its form.
    """
    if (
        not isinstance(entity_id, str)
        or not 1 <= len(entity_id) <= MAX_ENTITY_ID
        or entity_id in (".", "..")
        or _NOT_IN_ENTITY_ID.search(entity_id)
    ):
        is_collection = isinstance(entity_id, (list, tuple, set, frozenset))
        compare = "; for several entities, write client.compare([...], ...)"
        raise SelectionError(
            "entity_id must be an id such as 'O-' followed by 32 characters, of at "
            f"most {MAX_ENTITY_ID} characters and without control characters, not "
            f"{short_repr(entity_id)}{compare if is_collection else ''}"
        )


def expand_user(path: str) -> str:
    """Return a path with the home folder in place of ``~``; the ``~`` of an unknown
    user stays.

    Every path of this machine that a user writes passes through here.
    """
    return os.path.expanduser(path)


def local_path(name: str, kind: str, path: object, advice: str) -> str:
    """Return the path of a file or folder of this machine as text, with ``~`` expanded.

    ArgumentError: it is something else.

    The text of a URL is not shown, since it can contain a password; `advice` names what
    accepts one.
    """
    head = f"{name} must be the path of a {kind} on this machine, not"
    place = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(place, str) or not place or "\0" in place:
        raise ArgumentError(f"{head} {short_repr(path)}")
    if ":/" in place[2:]:  # after the drive of a path such as C:/x
        raise ArgumentError(f"{head} a URL; {advice}")
    return expand_user(place)


def without_password(place: str) -> str:
    """Return a path as it is, and a URL without all that can contain a password: user,
    query and fragment.

    The user ends at the last "@", or "%40", since a password that is not escaped can
    contain "@" and "/". If a "?" or "#" precedes that "@", only the scheme is returned.
    """
    if (url := re.match("(.*?:/+)(.*)", place, re.DOTALL)) is None:
        return place
    scheme, remainder = url.groups()
    *user, remainder = re.split("@|%40", remainder)
    return (
        scheme
        if re.search("[?#]", "".join(user))
        else scheme + re.split("[?#]", remainder)[0]
    )


def is_async(value: object) -> bool:
    """Return whether it is an async function, or an object that can be called like
    one.
    """
    # An object counts as async if its class defines `async def __call__`.
    return callable(value) and any(
        map(iscoroutinefunction, (value, type(value).__call__))
    )


positive_int = whole_number(1)
seconds = at_least(0, "seconds")
seconds_or_none = seconds.optional()
positive_seconds = above(0, "seconds")
flag = instance_of(bool)
plain_callable = Check(
    "a function that is not async, or the like",
    lambda value: callable(value) and not is_async(value),
)
