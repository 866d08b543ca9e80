"""JSON documents in the service's terms: its field names, UTC as Z, null for a gap."""

from typing import Any

import msgspec

from asyncfin import checks
from asyncfin.errors import MalformedAnswerError
from asyncfin.model.series import PAGE_FIELDS
from asyncfin.table.grid import Grid, describe_dataset
from asyncfin.wire.values import values_decoder

_check_indent = checks.whole_number(1).optional()


def write_panel(grid: Grid, requests: int) -> str:
    """Write the document of `Panel.to_json`.

    Raises:
        MalformedAnswerError: a value breaks the spec.
    """
    try:
        values = _encode_values(grid)
    except MalformedAnswerError as error:
        grid.complete(error)
        raise
    nothing = encode([None] * len(grid.periods))
    # Texts, and joined once: a large panel has 50 MB, which each copy, and decoding as
    # a whole, reads from memory again, 30 ms a time.
    series = []
    for head in grid.series:
        fields = {name: getattr(head, name) for name in PAGE_FIELDS}
        head_text = encode(fields)[:-1]
        array = values.get(head.series_id, nothing)
        series.append(f'{head_text},"values":{array}}}')
    series_text = ",".join(series)
    first_fields = {
        **describe_dataset(grid.catalogue),
        "value_version": grid.value_version,
        "periods": grid.periods,
    }
    last_fields = {
        "unlisted": grid.unlisted_ids,
        "anchor": grid.anchor,
        "requests": requests,
    }
    start = encode(first_fields)[:-1]
    end = encode(last_fields)[1:]
    return f'{start},"series":[{series_text}],{end}'


def _encode_values(grid: Grid) -> dict[str, str]:
    """Return the `values` array of each stored series, by its id."""
    # A page at a time: reading each series by itself takes half as long again.
    arrays = {}
    for block, rows in grid.rows():
        entries = grid.store.read_entries(block, rows, values_decoder)
        for row, values in zip(rows, entries, strict=True):
            aligned_values = grid.align(block.axis, values)
            arrays[block.series_ids[row]] = encode(aligned_values)
    return arrays


def encode(value: Any) -> str:
    """Write a value as JSON in one line."""
    return msgspec.json.encode(value, enc_hook=dict).decode()


def write_indented(text: str, indent: int | None) -> str:
    """Return a document with nested lines indented by a number of blanks. None: as it
    is, one line.

    Raises:
        ArgumentError: `indent` is not a whole number from 1.
    """
    _check_indent("indent", indent)
    if indent is None:
        return text
    return msgspec.json.format(text, indent=indent)
