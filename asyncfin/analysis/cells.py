"""The cells of long tables as numbers, so that rows of different tables are compared
without Python objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncfin.optional import compute, pa

# One metric on one scope path in one reporting group, in one of the requested versions.
TRIPLE = ("metric_id", "reporting_group_id", "scope_path")
SERIES = ("entity_id", "asked_version", "series_id", *TRIPLE)


def number_rows(table: Any, names: Iterable[str], numbers: Any = None) -> Any:
    """A number for each row: equal numbers for rows with equal entries in these
    columns, and with equal `numbers`, from 0 on.
    """
    for name in names:
        column = table.column(name)
        # Each chunk has a separate dictionary, and its indices mean nothing in another.
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries()
        column = column.combine_chunks()
        codes = column.indices.cast(pa.int64())
        if numbers is not None:
            pairs = compute.multiply(numbers, len(column.dictionary))
            codes = compute.add(pairs, codes)
        # Numbered again after each column, so that the product never exceeds 64 bits.
        indices = codes.dictionary_encode().indices
        numbers = indices.cast(pa.int64())
    return numbers


def read_examples(
    table: Any, numbers: Any, names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """These columns of the first row of each number, in the order of the numbers."""
    distinct_numbers = compute.unique(numbers)
    first_rows = compute.index_in(distinct_numbers, value_set=numbers)
    examples = table.select(list(names))
    examples = examples.take(first_rows)
    columns = examples.to_pydict().values()
    return list(zip(*columns, strict=True))


def decode_plain(column: Any) -> Any:
    """A column without chunks and dictionary, which Arrow does not compare."""
    column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    return column
