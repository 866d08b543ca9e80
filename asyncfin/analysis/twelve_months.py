"""The last twelve months: a year, four quarters, or a year with what was reported
since.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from asyncfin import Panel, Period, checks
from asyncfin.analysis.lines import (
    PERIOD_FIELDS,
    Line,
    by_publication,
    lines_of,
    panels_of,
    table_metadata,
)
from asyncfin.errors import SelectionError
from asyncfin.optional import pa
from asyncfin.words import counted, listed, number_text

if TYPE_CHECKING:
    import pyarrow

# What the service calls the periods of values that add up, as far as is known: the spec
# fixes no words.
OVER_PERIOD = ("over_period",)
# How far the sum of its parts may be from a period, as a share of the larger of both.
_TOLERANCE = Decimal("0.02")
_UNPROVEN = "nothing published shows that its parts add up"
# Up to this fiscal end, two years before would be fiscal year 0.
_EARLIEST = 3 * 12


# A period as its fiscal end and its months: of thousands of lines there are millions to
# look up.
_At: TypeAlias = tuple[int, int]


def last_twelve_months(
    panels: Panel | Iterable[Panel],
    *,
    period_meanings: str | Iterable[str] = OVER_PERIOD,
    unproven: bool = False,
) -> pyarrow.Table:
    """Return the twelve months to each fiscal end, added up of published values (extra
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
        panels: a panel, or several; panels of one entity and publication are taken
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

        Rows are ordered by entity, as given, then by line, in catalogue order, oldest
        first. The metadata
        (the JSON under ``asyncfin``) has `left_out`, the number of series with another
        period meaning, and
        `notes`, of which one counts the lines that were not added up for want of a
        proof.

    Raises:
        ArgumentError: something else than a Panel is among the panels.
        SelectionError: no series has one of these period meanings; the message names
            those that they have.
        ImportError: pyarrow is not installed.

    >>> asyncfin.last_twelve_months(panel).to_pandas().tail(1)  # doctest: +SKIP
    """
    panels = panels_of(panels)
    words = checks.texts("period_meanings", period_meanings, "word")
    rows: list[dict[str, Any]] = []
    left_out: dict[str, int] = {}
    unproven_lines = 0
    has_lines = False
    for group in by_publication(panels):
        ends = _find_ends(group)
        for line in lines_of(group):
            if (meaning := line.series[0].period_meaning) not in words:
                left_out[meaning] = left_out.get(meaning, 0) + len(line.series)
                continue
            has_lines = True
            of_line = _make_rows(line, group[0], ends, unproven=unproven)
            unproven_lines += any(row.get("reason") == _UNPROVEN for row in of_line)
            rows += of_line
    if left_out and not has_lines:
        raise SelectionError(
            f"no series has the period meaning {' or '.join(map(repr, words))}, of "
            f"values that add up; they have {listed([*map(repr, left_out)])}"
        )
    notes = []
    if unproven_lines:
        lines = counted(unproven_lines, "line is", "lines are")
        notes.append(f"{lines} not added up: {_UNPROVEN}; unproven=True adds anyway")
    left_out_count = sum(left_out.values())
    metadata = table_metadata(panels, left_out=left_out_count, notes=notes)
    table: pyarrow.Table = pa.Table.from_pylist(rows, _make_schema(metadata))
    return table


def _make_schema(metadata: dict[bytes, bytes]) -> Any:
    word = pa.dictionary(pa.int32(), pa.string())
    words = pa.list_(pa.string())
    types = {
        **dict.fromkeys(
            ("entity_id", "entity_name", "dataset_id", "asked_version"), word
        ),
        **dict.fromkeys(("metric_id", "scope_path"), word),
        "scope_names": words,
        **dict.fromkeys(("series_label", "description", "basis"), word),
        "series_number_format": word,
        **dict.fromkeys(PERIOD_FIELDS, pa.int32()),
        "period_label": word,
        "number": pa.float64(),
        "text": pa.string(),
        "how": word,
        "operands": words,
        "series_ids": words,
        "reason": pa.string(),
    }
    return pa.schema(list(types.items()), metadata)


def _find_ends(panels: Iterable[Panel]) -> list[int]:
    """Return the fiscal ends at which there can be a row, oldest first."""
    periods = {period for panel in panels for period in (*panel.periods, *panel.gaps)}
    return sorted(
        {
            period.fiscal_end
            for period in periods
            if period.duration_months in (3, 12, period.end_month)
        }
    )


def _make_rows(
    line: Line, panel: Panel, ends: Iterable[int], *, unproven: bool
) -> list[dict[str, Any]]:
    series, catalogue = line.series[0], panel.catalogue
    sums = _Sums(line, unproven=unproven)
    first = min((end for end, _ in sums.numbers), default=None)
    rows = []
    for end in ends:
        if first is None or end < first:
            continue
        period = _period((end, 12))
        rows.append(
            {
                "entity_id": catalogue.entity_id,
                "entity_name": catalogue.name,
                "dataset_id": catalogue.dataset_id,
                "asked_version": panel.value_version,
                "metric_id": series.metric_id,
                "scope_path": series.scope_path,
                "scope_names": catalogue.scope_names(series.scopes),
                "series_label": series.label,
                "description": series.description,
                "basis": series.basis,
                "series_number_format": series.number_format,
                "year": period.year,
                "end_month": period.end_month,
                "duration_months": 12,
                "period_label": period.label,
                "operands": [],
                "series_ids": [member.series_id for member in line.series],
                **sums.add_up(end),
            }
        )
    return rows


class _Sums:
    """The sums of twelve months of one line."""

    def __init__(self, line: Line, *, unproven: bool) -> None:
        self._line = line
        self.numbers = {
            (period.fiscal_end, period.duration_months): number
            for period, number in line.numbers.items()
        }
        self._is_negative = any(number < 0 for number in self.numbers.values())
        # The published periods that are not the sum of their parts: the month before,
        # the last, and a text.
        self._contradictions: list[tuple[int, int, str]] = []
        proofs = 0
        for (end, months), stated in sorted(self.numbers.items()):
            if months in (6, 9, 12) and not (end - months) % 12:
                adds_up, text = self._compare(end, months, stated)
                proofs += adds_up
                if text:
                    self._contradictions.append((end - months, end, text))
        self._is_proven = unproven or proofs > len(self._contradictions)
        self._whys: dict[_At, str] = {}

    def _compare(self, end: int, months: int, stated: float) -> tuple[bool, str]:
        """Return whether a published period is the sum of its parts, and why it cannot
        be.
        """
        text = ""
        for parts in _list_parts(end, months):
            numbers = [self.numbers.get(part) for part in parts]
            if None in numbers or not any(numbers):
                continue
            added = sum(map(_decimal, numbers), Decimal())
            if _are_alike(stated, added):
                return True, ""
            labels = " and ".join(_period(part).label for part in parts)
            text = text or f"{labels} add up to {number_text(float(added))}"
        if not text and months == 12 and not self._is_negative:
            for first in (3, 6, 9):
                so_far = self.numbers.get((end - months + first, first), 0.0)
                if so_far > stated and not _are_alike(stated, _decimal(so_far)):
                    text = f"its first {first} months are {number_text(so_far)}"
        name = f"{_period((end, months))} is {number_text(stated)}"
        return False, f"{name}, {text}" if text else ""

    def add_up(self, end: int) -> dict[str, Any]:
        """Return what a row has of the twelve months to a fiscal end: the number and
        how it was made, or the reason why there is none.
        """
        year = end, 12
        if year in self.numbers:
            period = _period(year)
            return {
                "number": self.numbers[year],
                "text": self._line.text(period),
                "how": "year",
                "operands": [period.label],
            }
        number_format = self._line.series[0].number_format
        if "%" in number_format:
            reason = f"{number_format} is the format of a share, which does not add up"
            return {"reason": reason}
        if end <= _EARLIEST:
            reason = f"{_period(year)} has no value, and no year is before it"
            return {"reason": reason}
        operands: list[_At] = [(end - before, 3) for before in (9, 6, 3, 0)]
        missing = self._find_missing(operands)
        how = "quarters"
        if missing and (months := end % 12):
            to_date = [(end - months, 12), (end, months), (end - 12, months)]
            missing_to_date = self._find_missing(to_date)
            if len(missing_to_date) < len(missing):
                how, operands, missing = "year to date", to_date, missing_to_date
        if missing:
            return {"reason": self._why(missing[0])}
        begin = min(last - duration for last, duration in operands)
        for first, last, text in self._contradictions:
            if begin <= first and last <= end:
                return {"reason": text}
        # Zeros are the sum of zeros, whatever they are of.
        numbers = [self.numbers[operand] for operand in operands]
        if not self._is_proven and any(numbers):
            return {"reason": _UNPROVEN}
        *terms, last_term = map(_decimal, numbers)
        added = float(sum(terms) + (-last_term if how == "year to date" else last_term))
        if added < 0 and not self._is_negative:
            negative = f"the sum is {number_text(added)}"
            return {"reason": f"{negative}, and no published value is below 0"}
        labels = [_period(operand).label for operand in operands]
        return {"number": added, "how": how, "operands": labels}

    def _find_missing(self, operands: Iterable[_At]) -> list[_At]:
        return [operand for operand in operands if operand not in self.numbers]

    def _why(self, key: _At) -> str:
        if key not in self._whys:
            period = _period(key)
            self._whys[key] = f"{period} has no value: {self._line.why(period)}"
        return self._whys[key]


def _list_parts(end: int, months: int) -> list[tuple[_At, ...]]:
    """Return the ways in which a period from the start of a fiscal year has parts."""
    ways: list[tuple[_At, ...]] = [
        ((end - 3, months - 3), (end, 3)),  # as 9M and Q4
        tuple((end - before, 3) for before in range(months - 3, -1, -3)),
    ]
    if months == 12:
        ways.append(((end - 6, 6), (end, 6)))
    return ways


def _are_alike(stated: float, added: Decimal) -> bool:
    number = _decimal(stated)
    return abs(number - added) <= _TOLERANCE * max(abs(number), abs(added))


# The same few periods are in the rows of all lines.
@lru_cache
def _period(key: _At) -> Period:
    return Period.ending(*key)


def _decimal(number: Any) -> Decimal:
    return Decimal(repr(number))
