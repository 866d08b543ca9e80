"""Arguments of a wrong kind, refused by name before anything is sent."""

from inspect import iscoroutinefunction
from typing import Any

from asyncfin.errors import SelectionError


def check_kind(name: str, value: Any, kind: type) -> None:
    """Refuse what is no `kind`.

    Raises:
        SelectionError: it is of another class.
    """
    if not isinstance(value, kind):
        raise SelectionError(f"{name} must be a {kind.__name__}, not {value!r}")


def check_plain_callable(name: str, value: Any) -> None:
    """Refuse what cannot be called, or whose call would have to be awaited.

    Raises:
        SelectionError: it is so.
    """
    if not callable(value) or is_async(value):
        raise SelectionError(f"{name} must be a function that is not async, or the like, not {value!r}")


def is_async(value: Any) -> bool:
    """Return whether it is an async function, or an object that can be called like one."""
    return callable(value) and any(map(iscoroutinefunction, (value, type(value).__call__)))
