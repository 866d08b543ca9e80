"""What a setting may be. The error names the setting, what it must be, and what was given."""

from __future__ import annotations

from math import isfinite
from typing import Any

from attrs import Attribute

from asyncfin.errors import SelectionError
from asyncfin.model.query import LANES


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


def check_lane(lane: str) -> None:
    """Refuse what is no lane.

    Raises:
        SelectionError: it is neither ``interactive`` nor ``bulk``.
    """
    if lane not in LANES:
        raise SelectionError(f"lane must be {' or '.join(map(repr, LANES))}, not {lane!r}")


def checked_rate(rate: float | None) -> float | None:
    """Return a rate as it came: a finite number above 0, or None. Otherwise a SelectionError."""
    if rate is None or (type(rate) in (int, float) and isfinite(rate) and rate > 0):
        return rate
    raise SelectionError(f"rate={rate!r}: must be a finite number above 0, or None to learn it")


def checked_size(name: str, size: float) -> float:
    """Return a size as it came: a finite number of at least 1. Otherwise a SelectionError."""
    if type(size) in (int, float) and isfinite(size) and size >= 1:
        return size
    raise SelectionError(f"{name}={size!r}: must be a finite number of at least 1")


def _is_finite(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)
