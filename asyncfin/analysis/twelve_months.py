"""The last twelve months: a year, four quarters, or a year with what was reported
since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import asdict

from asyncfin import Panel, Period, Select, checks, concat
from asyncfin.analysis.lines import (
    PERIOD_FIELDS,
    Line,
    check_panels,
    make_lines,
    make_metadata,
    split_by_publication,
)
from asyncfin.errors import SelectionError
from asyncfin.optional import pa
from asyncfin.words import listed, number_text

if TYPE_CHECKING:
    import pyarrow

# What the service calls the periods of values that add up: the spec fixes no words.
OVER_PERIOD = ("over_period",)
# How far the sum of its parts may be from a period, as a share of the larger of both.
_TOLERANCE = Decimal("0.02")
_UNPROVEN = "nothing published shows that its parts add up"
# Up to this fiscal end, two years before would be fiscal year 0.
_EARLIEST = 3 * 12


# A period as its fiscal end and its months: of thousands of lines there are millions to
# look up.
_Key: TypeAlias = tuple[int, int]

_LONG_COLUMNS = (
    *("entity_id", "entity_name", "dataset_id", "asked_version", "metric_id"),
    *("scope_path", "scope_names", "series_label", "description", "basis"),
    *("series_number_format", *PERIOD_FIELDS, "period_label", "number", "text"),
)


def last_twelve_months(
    panels: Panel | Iterable[Panel],
    *,
    period_meanings: str | Iterable[str] = OVER_PERIOD,
    unproven: bool = False,
) -> pyarrow.Table:
    """Add up the twelve months to each fiscal end of published values (extra
    ``arrow``).

    Series of an entity that differ in their reporting group alone are one line, unless
    two of them have different numbers in a period; so a year of an annual group and
    nine months of a quarterly one meet. Of each line there is a row for each fiscal end
    at which its panels have a period or gap of 3 or 12 months, or of as many months as
    its end month, from the line's first value on. `how` is the first that applies:

    - ``"year"``: a value of 12 months with that end.
    - ``"quarters"``: the four quarters to that end.
    - ``"year to date"``: the fiscal year before, and the year so far, less the year so
      far a year earlier.

    Only what adds up is added. Published periods of the line must show it: more of them
    are the sum of their published parts, within 2 %, than differ from them. Averages,
    prices, ratios and earnings per share do not add up, and often nothing shows whether
    a line does. Nothing is added across a period that differs from its parts, of which
    a year below its own first months is one, nor to a negative number in a line without
    one, nor in a number format with a percent sign. Numbers are added in decimal.

    Sends no request.

    Args:
        panels: a panel, or a collection; panels of one entity and publication are taken
            together.
        period_meanings: the words of lines that can be added up, as the service calls
            them.
        unproven: add up lines of which nothing published shows that they add up, too.

    Returns:
        The columns `entity_id`, `entity_name`, `dataset_id`, `asked_version`,
        `metric_id`, `scope_path`,
        `scope_names`, `series_label`, `description`, `basis`, `series_number_format`,
        `year`, `end_month`,
        `duration_months` (12) and `period_label` as in the long table (docs/schema.md),
        and

        - `number`, null where the twelve months are unknown;
        - `text` as published, where the twelve months are a fiscal year; else null;
        - `how`, null without a number;
        - `operands`: the labels of the periods, in the order of the arithmetic; empty
          without a number;
        - `series_ids`: the series of the line;
        - `reason`: why there is no number; null with one.

        Rows are ordered by entity, in the order of the panels, then by line, in
        catalogue order, oldest first. The metadata (the JSON under ``asyncfin``) has
        `left_out`, the number of series with another period meaning.

    Raises:
        ArgumentError: something else than a Panel is among the panels.
        SelectionError: no series has one of these period meanings; the message names
            those that they have.
        ImportError: pyarrow is not installed.

    >>> asyncfin.last_twelve_months(panel).to_pandas().tail(1)  # doctest: +SKIP
    """
    panels = check_panels(panels)
    words = checks.texts("period_meanings", period_meanings, "word")
    rows: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    has_lines = False
    for group in split_by_publication(panels):
        ends = _list_ends(group)
        lines = make_lines(group)
        ids = [line.series[0].series_id for line in lines]
        select = Select(series_ids=ids or None)
        catalogue_rows = group[0].catalogue.rows(select)
        cells_by_id = {row["series_id"]: row for row in catalogue_rows}
        for line in lines:
            meaning = line.series[0].period_meaning
            if meaning not in words:
                left_out[meaning] += len(line.series)
                continue
            has_lines = True
            cells = cells_by_id[line.series[0].series_id]
            cells["asked_version"] = group[0].value_version
            rows += _make_rows(line, cells, ends, unproven)
    if left_out and not has_lines:
        raise SelectionError(
            f"no series has the period meaning {' or '.join(map(repr, words))}, of "
            f"values that add up; they have {listed([*map(repr, left_out)])}"
        )
    metadata = make_metadata(panels, left_out=left_out.total())
    table: pyarrow.Table = pa.Table.from_pylist(rows, _make_schema(metadata))
    return table


def _list_ends(panels: Iterable[Panel]) -> list[int]:
    """The fiscal ends at which panels have a year, a quarter, or a year so far."""
    ends = set()
    for panel in panels:
        for period in panel.periods_with_gaps:
            if period.duration_months in (3, 12, period.end_month):
                ends.add(period.fiscal_end)
    return sorted(ends)


def _make_schema(metadata: Mapping[bytes, bytes]) -> Any:
    long = concat([]).schema
    text = long.field("metric_id")
    texts = long.field("scope_names")
    fields = list(map(long.field, _LONG_COLUMNS))
    fields.append(text.with_name("how"))
    fields.append(texts.with_name("operands"))
    fields.append(texts.with_name("series_ids"))
    fields.append(pa.field("reason", pa.string()))
    return pa.schema(fields, metadata)


def _make_rows(
    line: Line, cells: Mapping[str, Any], ends: Iterable[int], unproven: bool
) -> list[dict[str, Any]]:
    sums = _Sums(line, unproven)
    if not sums.numbers:
        return []
    common = {
        **cells,
        "operands": [],
        "series_ids": [member.series_id for member in line.series],
    }
    first_end, _ = min(sums.numbers)
    rows = []
    for end in ends:
        if end >= first_end:
            period = _make_period((end, 12))
            row = common | asdict(period) | sums.add_up(end)
            row["period_label"] = period.label
            rows.append(row)
    return rows


class _Sums:
    """The sums of twelve months of one line."""

    def __init__(self, line: Line, unproven: bool) -> None:
        self._line = line
        self._is_negative = False
        self.numbers: dict[_Key, Decimal] = {}
        for period, number in line.numbers.items():
            key = period.fiscal_end, period.duration_months
            self.numbers[key] = Decimal(repr(number))
            if number < 0:
                self._is_negative = True
        # The published periods that are not the sum of their parts, with a text.
        self._contradictions: dict[_Key, str] = {}
        proofs = 0
        for end, months in sorted(self.numbers):
            begins_year = (end - months) % 12 == 0
            if months not in (6, 9, 12) or not begins_year:
                continue
            text = self._find_contradiction(end, months)
            if text:
                self._contradictions[end, months] = text
            proofs += text == ""
        self._is_proven = unproven or proofs > len(self._contradictions)

    def _find_contradiction(self, end: int, months: int) -> str | None:
        """Describe why a published period cannot be the sum of its parts.

        The text is empty if it is their sum, and None if nothing shows either.
        """
        number = self.numbers[end, months]
        text = None
        for parts in _list_parts(end, months):
            if self._find_missing(parts):
                continue
            numbers = list(map(self.numbers.__getitem__, parts))
            if not any(numbers):
                continue
            total = sum(numbers, Decimal())
            if _is_close(number, total):
                return ""
            if text is None:
                labels = " and ".join(map(_write_label, parts))
                text = f"{labels} add up to {_write(total)}"
        if text is None and months == 12 and not self._is_negative:
            for first in (3, 6, 9):
                key = end - 12 + first, first
                start = self.numbers.get(key, Decimal())
                if start > number and not _is_close(number, start):
                    text = f"its first {first} months are {_write(start)}"
        if text is None:
            return None
        return f"{_write_label((end, months))} is {_write(number)}, {text}"

    def add_up(self, end: int) -> dict[str, Any]:
        """Add up the twelve months to a fiscal end.

        Returns:
            The fields of its row: the number and how it was made, or the reason why
            there is none.
        """
        period = _make_period((end, 12))
        if (end, 12) in self.numbers:
            return {
                "number": self._line.numbers[period],
                "text": self._line.texts.get(period),
                "how": "year",
                "operands": [period.label],
            }
        if "%" in self._line.series[0].number_format:
            return {"reason": "percentages do not add up"}
        if end <= _EARLIEST:
            return {"reason": f"{period} has no value, and no year is before it"}
        how = "quarters"
        begin = end - 12
        operands = [(last, 3) for last in range(end - 9, end + 1, 3)]
        missing = self._find_missing(operands)
        months = end % 12
        if months and missing:
            to_date = [(end - months, 12), (end, months), (end - 12, months)]
            missing_to_date = self._find_missing(to_date)
            if len(missing_to_date) < len(missing):
                how = "year to date"
                begin = end - 12 - months
                operands = to_date
                missing = missing_to_date
        if missing:
            label = _write_label(missing[0])
            return {"reason": f"{label} has no value in these panels"}
        for (last, length), text in self._contradictions.items():
            if begin <= last - length and last <= end:
                return {"reason": text}
        numbers = list(map(self.numbers.__getitem__, operands))
        # Zeros are the sum of zeros, whatever they are of.
        if not self._is_proven and any(numbers):
            return {"reason": _UNPROVEN}
        total = sum(numbers, Decimal())
        if how == "year to date":
            total -= 2 * numbers[-1]
        if total < 0 and not self._is_negative:
            reason = f"the sum is {_write(total)}, and no published value is below 0"
            return {"reason": reason}
        labels = list(map(_write_label, operands))
        return {"number": float(total), "how": how, "operands": labels}

    def _find_missing(self, operands: Iterable[_Key]) -> list[_Key]:
        return [operand for operand in operands if operand not in self.numbers]


def _list_parts(end: int, months: int) -> list[tuple[_Key, ...]]:
    """List the ways in which a period from the start of a fiscal year has parts."""
    first_end = end - months + 3
    quarters = [(last, 3) for last in range(first_end, end + 1, 3)]
    last_quarter = end, 3
    start = end - 3, months - 3
    ways = [(start, last_quarter), tuple(quarters)]
    if months == 12:
        halves = (end - 6, 6), (end, 6)
        ways.append(halves)
    return ways


def _is_close(number: Decimal, total: Decimal) -> bool:
    difference = abs(number - total)
    return difference <= _TOLERANCE * max(abs(number), abs(total))


def _write(number: Decimal) -> str:
    return number_text(float(number))


def _write_label(key: _Key) -> str:
    return _make_period(key).label


# The same few periods are in the rows of all lines.
@lru_cache
def _make_period(key: _Key) -> Period:
    return Period.ending(*key)
