"""What a later version of the service might add: fields and values that the description does not name."""

from __future__ import annotations

import json
from typing import Any

from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.request import encode

_EXTRA = {"x_extra": {"note": "not in the description", "list": [1, None, 2.5]}}
_EXTRA_MEMBER = b"," + encode(_EXTRA)[1:-1]
_OPEN_SETS = ("role", "basis", "cadence", "period_meaning")


def extra_member(dialect: Dialect) -> bytes:
    """The unknown field as it stands before the end of an object; nothing when the dialect has none."""
    return _EXTRA_MEMBER if dialect.extras else b""


def renamed(head: bytes, dialect: Dialect) -> bytes:
    """The open JSON of a query series, in the dialect's values."""
    if not dialect.extras:
        return head
    fields: dict[str, Any] = extended(json.loads(head + b"}"))
    del fields["x_extra"]
    return encode(fields)[:-1]


def extended(value: Any) -> Any:
    """The same value with an unknown field in every object, and unknown values in the open sets."""
    if isinstance(value, list):
        return [extended(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    grown = {name: extended(member) for name, member in value.items()}
    for name in _OPEN_SETS:
        if name in grown:
            grown[name] = f"x-{grown[name]}"
    return grown | _EXTRA
