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


def numbered(table: Any, names: Iterable[str]) -> Any:
    """Return a number for each row: equal numbers for rows with equal entries in these
    columns, from 0 on.
    """
    numbers = None
    for name in names:
        column = table.column(name)
        # Each chunk has a separate dictionary, and its indices mean nothing in another.
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        column = column.unify_dictionaries().combine_chunks()
        codes = column.indices.cast(pa.int64())
        if numbers is not None:
            codes = compute.add(
                compute.multiply(numbers, len(column.dictionary)), codes
            )
        # Numbered again after each column, so that the product never exceeds 64 bits.
        numbers = codes.dictionary_encode().indices.cast(pa.int64())
    return numbers


def example_rows(
    table: Any, numbers: Any, names: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return these columns of one row for each number, in the order of the numbers."""
    first: dict[int, int] = {}
    for row, number in enumerate(numbers.to_pylist()):
        first.setdefault(number, row)
    examples = table.select(list(names)).take(
        pa.array([first[number] for number in range(len(first))], pa.int64())
    )
    return [tuple(row.values()) for row in examples.to_pylist()]


def combined(numbers: Any, further_numbers: Any) -> Any:
    """Return a number for each row that is equal where both are."""
    count = (compute.max(further_numbers).as_py() or 0) + 1
    return compute.add(
        compute.multiply(numbers, pa.scalar(count, pa.int64())), further_numbers
    )


def plain(column: Any) -> Any:
    """Return a column without chunks and dictionary, which Arrow does not compare."""
    column = column.combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def stacked(tables: Sequence[Any], names: Sequence[str]) -> Any:
    """Return these columns of tables, one table after the other."""
    return pa.concat_tables(
        [table.select(list(names)).replace_schema_metadata(None) for table in tables]
    )
