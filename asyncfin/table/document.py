"""JSON documents in the service's own terms: its field names, UTC as Z, null for a gap."""

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import msgspec
from attrs import fields


def to_json(value: Any, indent: int | None = None) -> str:
    """Return values of the model, or plain data with such values in it, as JSON.

    Whole numbers stay exact, however large: JSON knows no bounds.
    """
    return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False, indent=indent)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            # As the service writes its own timestamps (spec 2.2).
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Mapping():
            return dict(value)
        case msgspec.Struct():
            return msgspec.structs.asdict(value)
    return {each.name: getattr(value, each.name) for each in fields(type(value))}
