"""Reads what an extraction has written: wrong types are an error, never coerced."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def structure(value: Any, kind: type[T]) -> T:
    """Return plain data as an object of an attrs class; ValueError: the data do not fit."""
    try:
        # Unknown keys pass: a file of a later version may contain more.
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a {kind.__name__.lstrip('_')}: {error}") from None
