"""What a setting may be. The error names the setting, what it must be, and what was given."""

from __future__ import annotations

from math import isfinite
from typing import Any

from attrs import Attribute

from asyncfin.errors import SelectionError


def check_count(name: str, value: object) -> None:
    """Refuse what is no whole number above 0.

    Raises:
        SelectionError
    """
    if type(value) is not int or value < 1:
        raise SelectionError(f"{name} must be a whole number above 0, not {value!r}")


def count(_: Any, attribute: Attribute[int], value: int) -> None:
    """Validate an attrs field: a whole number above 0."""
    check_count(attribute.name, value)


def seconds(_: Any, attribute: Attribute[float], value: float) -> None:
    """Validate an attrs field: a finite number, at least 0."""
    if not _is_finite(value) or value < 0:
        raise SelectionError(
            f"{attribute.name} must be a finite number of seconds, at least 0, not {value!r}"
        )


def positive_seconds(_: Any, attribute: Attribute[float], value: float) -> None:
    """Validate an attrs field: a finite number above 0."""
    if not _is_finite(value) or value <= 0:
        raise SelectionError(f"{attribute.name} must be a finite number of seconds above 0, not {value!r}")


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
