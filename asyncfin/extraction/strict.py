"""Reads what an extraction has written: wrong types are an error, never coerced."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar, get_args

from cattrs import Converter
from cattrs.errors import BaseValidationError

T = TypeVar("T")

_converter = Converter(detailed_validation=False)


def _exactly(value: Any, kind: type[T]) -> T:
    # cattrs would make "None" of None, 1 of 1.9 and 1.0 of True.
    if type(value) is not kind:
        raise TypeError(f"{value!r:.100} is not a {kind.__name__}")
    return value


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    # cattrs would make an empty tuple of "" and of {}. All items of a tuple are of one type.
    item, *others = get_args(kind)
    if others != [...] and len(value) != 1 + len(others):
        raise ValueError(f"{value!r:.100} does not have {1 + len(others)} items")
    return tuple(_converter.structure(each, item) for each in _exactly(value, list))


def _missing(value: Any, _: Any) -> Mapping[str, tuple[str, ...]]:
    return {
        _exactly(field, str): _tuple(names, tuple[str, ...]) for field, names in _exactly(value, dict).items()
    }


def _moment(value: Any, _: Any) -> datetime:
    moment = datetime.fromisoformat(_exactly(value, str))
    if moment.tzinfo is None:
        raise ValueError(f"{value!r:.100} has no offset from UTC")
    return moment


for _kind in (str, int, float, bool):
    _converter.register_structure_hook(_kind, _exactly)
_converter.register_structure_hook(datetime, _moment)
_converter.register_structure_hook_func(lambda kind: getattr(kind, "__origin__", None) is tuple, _tuple)
_converter.register_structure_hook_func(lambda kind: kind == Mapping[str, tuple[str, ...]], _missing)


def structure(value: Any, kind: type[T]) -> T:
    """Return plain data as an object of an attrs class; ValueError: the data do not fit."""
    try:
        # Unknown keys pass: a file of a later version may contain more.
        return _converter.structure(_exactly(value, dict), kind)
    except (BaseValidationError, TypeError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"not a {kind.__name__.lstrip('_')}: {type(error).__name__}: {error}") from None
