"""JSON documents in the service's terms: its field names, UTC as Z, null for a gap."""

import json
from array import array
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any

import msgspec
from attrs import fields

from asyncfin.clock import utc_text
from asyncfin.model.series import PAGE_FIELDS
from asyncfin.model.value import Value
from asyncfin.table.grid import Grid
from asyncfin.wire.values import ArraysDecoder

# Within these bounds json and msgspec write a float alike; others have an exponent in
# one of them.
_LEAST, _MOST = 1e-3, 1e15

_values = ArraysDecoder(Value)


def to_json(value: Any, indent: int | None = None) -> str:
    """Return values of the model, or plain data with such values in it, as JSON.

    Whole numbers stay exact, however large: JSON has no bounds.

    Args:
        indent: None: one line without blanks.
    """
    separators = (",", ":") if indent is None else None
    return json.dumps(
        value,
        default=_plain,
        ensure_ascii=False,
        allow_nan=False,
        indent=indent,
        separators=separators,
    )


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return utc_text(value)
        case date():
            return value.isoformat()
        case Mapping():
            return dict(value)
        case msgspec.Struct():
            return msgspec.structs.asdict(value)
    return {each.name: getattr(value, each.name) for each in fields(type(value))}


def panel_json(
    grid: Grid, before: Mapping[str, Any], after: Mapping[str, Any], indent: int | None
) -> str:
    """Return a document with the series of a panel between other fields, as `to_json`
    writes it.

    Raises:
        MalformedAnswerError: a value breaks the spec.
    """
    with grid.error_context():
        values = _encoded_values(grid)
    nothing = to_json([None] * len(grid.periods))
    # Texts, and joined once: a large panel has 50 MB, which each copy, and decoding as
    # a whole, reads from memory again, 30 ms a time.
    pieces: list[str] = []
    for each in grid.series:
        head = msgspec.json.encode(
            {name: getattr(each, name) for name in PAGE_FIELDS}
        ).decode()
        pieces += (
            ",",
            head[:-1],
            ',"values":',
            values.get(each.series_id, nothing),
            "}",
        )
    return indented(
        "".join(
            (
                "{",
                *(f"{_field(name, value)}," for name, value in before.items()),
                '"series":[',
                *pieces[1:],
                "]",
                *(f",{_field(name, value)}" for name, value in after.items()),
                "}",
            )
        ),
        indent,
    )


def indented(text: str, indent: int | None) -> str:
    """Return a document with nested lines indented by a number of blanks; None: as it
    is, one line.
    """
    if indent is None:
        return text
    if indent <= 0:  # to msgspec these mean a single line
        return to_json(json.loads(text), indent)
    return msgspec.json.format(text, indent=indent)


def _field(name: str, value: Any) -> str:
    encode = to_json if isinstance(value, datetime) else _encoded
    return f'"{name}":{encode(value)}'


def _encoded_values(grid: Grid) -> dict[str, str]:
    """Return the `values` array of each stored series, by its id."""
    # A page at a time: reading each series by itself takes half as long again.
    encoded = {}
    store = grid.store
    for block, rows in grid.rows():
        entries = grid.aligned(block.axis, store.entries(block, rows, _values))
        for row, values in zip(rows, entries, strict=True):
            encode = _encoded if _is_usual(block.observations(row)[1]) else to_json
            encoded[block.series_ids[row]] = encode(values)
    return encoded


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _is_usual(numbers: "array[float]") -> bool:
    """Return whether all numbers are written alike by json and msgspec."""
    sizes = list(filter(None, map(abs, numbers)))
    return not sizes or (min(sizes) >= _LEAST and max(sizes) < _MOST)
