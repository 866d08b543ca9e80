"""The values of a publication: from rows of numbers and table indexes to the value objects of spec 2.4."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from attrs import frozen

from asyncfin.sandbox.json_place import (
    ARRAY,
    WrongPlaceError,
    array,
    close,
    obj,
    optional_array,
    period,
    period_object,
    shown,
    strings,
)

WITHDRAWN: Final = "withdrawn"  # in place of a restated value: a restatement left none

_DEFAULT_FILL_TYPES = ("reported",)


def format_number(number: float, pattern: str) -> str:
    """Return the number as the display pattern shows it, or plain if the pattern is not understood."""
    return _formatter(pattern)(number)


@lru_cache
def _formatter(pattern: str) -> Callable[[float], str]:
    """Return what shows a number by this pattern: #,##0 or 0, then decimals, then a percent sign."""
    if pattern == ";;;":  # hidden, as in spreadsheets
        return lambda number: ""
    match = re.fullmatch(r"(#,##0|0)(?:\.(0+))?(%?)", pattern)
    if match is None:
        return str
    grouping = "," if match[1] == "#,##0" else ""
    fraction = f"z{grouping}.{len(match[2] or '')}{match[3] or 'f'}"  # z: no "-0"
    if match[2] or match[3]:
        return lambda number: format(float(number), fraction)
    whole = f"{grouping}d"
    return lambda number: format(number, whole if isinstance(number, int) else fraction)


@frozen
class Tables:
    """What the rows of one publication point into; `own_reports`: for values that name no report period."""

    periods: tuple[tuple[int, int, int], ...]
    own_reports: tuple[dict[str, int], ...]
    report_periods: tuple[dict[str, int], ...]
    items: tuple[str, ...]
    fill_types: tuple[str, ...]


def read_tables(publication: Mapping[str, Any], place: str) -> Tables:
    """The tables of the publication at this place."""
    periods = _periods(publication, place)
    reports = optional_array(publication, "report_periods", place)
    items = optional_array(publication, "items", place)
    fill_types = optional_array(publication, "fill_types", place) or _DEFAULT_FILL_TYPES
    return Tables(
        periods=periods,
        own_reports=tuple(period_object((year, month, 0)) for year, month, _ in periods),
        report_periods=tuple(
            period_object(period(report, f"{place}.report_periods[{n}]", duration=0))
            for n, report in enumerate(reports)
        ),
        items=tuple(strings(items, f"{place}.items")),
        fill_types=tuple(strings(fill_types, f"{place}.fill_types")),
    )


def _periods(publication: Mapping[str, Any], place: str) -> tuple[tuple[int, int, int], ...]:
    """The periods, each later than the one before it."""
    periods: list[tuple[int, int, int]] = []
    for position, value in enumerate(array(publication, "periods", place)):
        at = f"{place}.periods[{position}]"
        entry = period(value, at)
        if periods and entry <= periods[-1]:
            fault = "stands twice" if entry == periods[-1] else f"is before {shown(periods[-1])}"
            raise WrongPlaceError(
                at, f"{shown(entry)} {fault}; sort the periods by year, end month, duration"
            )
        periods.append(entry)
    return tuple(periods)


def read_values(
    publication: Mapping[str, Any], place: str, groups: Iterable[Mapping[str, Any]], tables: Tables
) -> dict[str, tuple[Any, ...]]:
    """The rows of every series, in the order of the catalogue; a series without an entry has none."""
    if "values" not in publication:
        raise WrongPlaceError(place, "'values' is missing; it is an object of rows by series_id")
    place = f"{place}.values"
    entries = obj(publication["values"], place)
    formats = {s["series_id"]: s["number_format"] for group in groups for s in group["series"]}
    for series_id in entries:
        if series_id not in formats:
            hint = close(series_id, formats, "write the series_id of a series in groups")
            raise WrongPlaceError(place, f"{shown(series_id)} is no series of the groups; {hint}")
    return {
        series_id: _rows(optional_array(entries, series_id, place), f"{place}.{series_id}", pattern, tables)
        for series_id, pattern in formats.items()
    }


def _rows(rows: Sequence[Any], place: str, pattern: str, tables: Tables) -> tuple[Any, ...]:
    """The rows of one series, ascending by period index."""
    read = []
    last = -1
    for position, row in enumerate(rows):
        try:
            last = _period_index(row, last, tables)
            original = None if row[1] is None else _value(row[1], last, pattern, tables)
            restated: Any = None
            if len(row) == 3:
                restated = WITHDRAWN if row[2] is None else _value(row[2], last, pattern, tables)
        except WrongPlaceError as wrong:
            raise WrongPlaceError(f"{place}[{position}]{wrong.place}", wrong.problem) from None
        read.append((last, original, restated))
    return tuple(read)


def _period_index(row: Any, last: int, tables: Tables) -> int:
    """The period index of a row that has a value or two."""
    if not isinstance(row, ARRAY) or len(row) not in (2, 3):
        raise WrongPlaceError(
            "",
            f"{shown(row)} is no row; write [period index, value] or [.., value, restated value]",
        )
    if all(value is None for value in row[1:]):
        raise WrongPlaceError("", f"{shown(row)} holds no value; leave the row out")
    index = _index(row[0], tables.periods, "[0]", "periods")
    if index <= last:
        raise WrongPlaceError(
            "[0]", f"{index} follows {last}; rows stand in the order of the periods, one for each"
        )
    return index


def _value(value: Any, index: int, pattern: str, tables: Tables) -> dict[str, Any]:
    """The value object (spec 2.4) of a bare number, or of [number, fill type, report period, sources]."""
    number, fill_type, report_period = value, tables.fill_types[0], tables.own_reports[index]
    sources: list[dict[str, Any]] = []
    if isinstance(value, ARRAY):
        if len(value) != 4:
            raise WrongPlaceError(
                "",
                f"{shown(value)} is no value; write a number or"
                " [number, fill type index, report period index, sources]",
            )
        number = value[0]
        fill_type = tables.fill_types[_index(value[1], tables.fill_types, "", "fill_types")]
        report = _index(value[2], tables.report_periods, "", "report_periods")
        report_period = tables.report_periods[report]
        sources = _sources(value[3], tables)
    if type(number) not in (int, float) or not abs(number) <= sys.float_info.max:
        raise WrongPlaceError("", f"{shown(number)} is no finite number")
    return {
        "number": number,
        "text": format_number(number, pattern),
        "number_format": pattern,
        "fill_type": fill_type,
        "report_period": report_period,
        "sources": sources,
    }


def _sources(value: Any, tables: Tables) -> list[dict[str, Any]]:
    """The sources of spec 2.4, from [item index, row index, column index] each."""
    if not isinstance(value, ARRAY):
        raise WrongPlaceError("", f"{shown(value)} is no array of sources")
    sources = []
    for source in value:
        if not isinstance(source, ARRAY) or len(source) != 3:
            raise WrongPlaceError("", f"{shown(source)} is no source; write [item, row, column]")
        item, row, column = source
        if type(row) is not int or type(column) is not int or row < 0 or column < 0:
            raise WrongPlaceError("", f"{shown(source)}: row and column are whole numbers from 0")
        item_id = tables.items[_index(item, tables.items, "", "items")]
        sources.append({"item_id": item_id, "row_index": row, "column_index": column})
    return sources


def _index(value: Any, table: Sequence[Any], place: str, name: str) -> int:
    """The index into a table."""
    if type(value) is int and 0 <= value < len(table):
        return value
    right = f"0 to {len(table) - 1}" if table else f"an index into {name}, which is empty or absent"
    raise WrongPlaceError(place, f"{shown(value)} is no index into {name}; write {right}")
