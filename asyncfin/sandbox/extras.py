"""What a later version of the service might send: fields and values that the description does not name."""

from __future__ import annotations

import json
from typing import Any

from asyncfin.sandbox.request import encode

_EXTRA = {"x_extra": {"note": "not in the description", "list": [1, None, 2.5]}}
_OPEN_SETS = ("role", "basis", "cadence", "period_meaning", "fill_type")


def extended(body: bytes) -> bytes:
    """The same JSON with an unknown field in every object, and unknown values in the open sets."""
    return encode(_extended(json.loads(body)))


def _extended(value: Any) -> Any:
    if isinstance(value, list):
        return [_extended(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    grown = {name: _extended(member) for name, member in value.items()}
    for name in _OPEN_SETS:
        if name in grown:
            grown[name] = f"x-{grown[name]}"
    return grown | _EXTRA
