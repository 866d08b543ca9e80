"""Arguments of a wrong kind, refused by name before anything is sent."""

from typing import Any

from asyncfin.errors import SelectionError


def check_kind(name: str, value: Any, kind: type) -> None:
    """Refuse what is no `kind`.

    Raises:
        SelectionError: it is of another class.
    """
    if not isinstance(value, kind):
        raise SelectionError(f"{name} must be a {kind.__name__}, not {value!r}")
