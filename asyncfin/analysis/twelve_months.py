"""The last twelve months: a year, four quarters, or a year with what was reported
since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from asyncfin import Panel, checks
from asyncfin.analysis.lines import (
    Line,
    by_publication,
    lines_of,
    panels_of,
    table_metadata,
)
from asyncfin.errors import SelectionError
from asyncfin.model.frame import arrow_type
from asyncfin.model.period import Period
from asyncfin.model.scope import format_path
from asyncfin.optional import pa
from asyncfin.words import counted, listed, number_text

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = {
    **dict.fromkeys(
        ("entity_id", "entity_name", "dataset_id", "asked_version", "metric_id"), "word"
    ),
    "scope_path": "word",
    "scope_names": "words",
    **dict.fromkeys(
        ("series_label", "description", "basis", "series_number_format"), "word"
    ),
    **dict.fromkeys(("year", "end_month", "duration_months"), "int32"),
    "period_label": "word",
    "number": "float64",
    "text": "string",
    "how": "word",
    "operands": "words",
    "series_ids": "words",
    "reason": "string",
}
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


class _Contradiction(NamedTuple):
    """A published period that is not the sum of its parts: the month before, the last,
    and a text.
    """

    begin: int
    end: int
    text: str


class _Sum(NamedTuple):
    """The twelve months to a fiscal end: how they were added up, or why they were
    not.
    """

    how: str | None = None
    number: float | None = None
    operands: Sequence[_At] = ()
    reason: str | None = None


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
    wanted = checks.texts("period_meanings", period_meanings, "word")
    rows: list[tuple[Any, ...]] = []
    left_out: dict[str, int] = {}
    taken = unproven_lines = 0
    for group in by_publication(panels):
        ends = _ends(group)
        for line in lines_of(group):
            if (meaning := line.series[0].period_meaning) not in wanted:
                left_out[meaning] = left_out.get(meaning, 0) + len(line.series)
                continue
            taken += 1
            of_line = list(_rows(line, group[0], ends, unproven=unproven))
            unproven_lines += any(row[-1] == _UNPROVEN for row in of_line)
            rows += of_line
    if left_out and not taken:
        raise SelectionError(
            f"no series has the period meaning {' or '.join(map(repr, wanted))}, of "
            "values that add up;"
            f" they have {listed([*map(repr, left_out)])}"
        )
    notes = []
    if unproven_lines:
        lines = counted(unproven_lines, "line is", "lines are")
        notes.append(f"{lines} not added up: {_UNPROVEN}; unproven=True adds anyway")
    metadata = table_metadata(panels, left_out=sum(left_out.values()), notes=notes)
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
    schema = pa.schema(
        [(name, arrow_type(kind)) for name, kind in _COLUMNS.items()], metadata
    )
    arrays = [
        pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)
    ]
    table: pyarrow.Table = pa.Table.from_arrays(arrays, schema=schema)
    return table


def _ends(panels: Iterable[Panel]) -> list[int]:
    """Return the fiscal ends at which there can be a row, oldest first."""
    periods = {period for panel in panels for period in (*panel.periods, *panel.gaps)}
    return sorted(
        {
            each.fiscal_end
            for each in periods
            if each.duration_months in (3, 12, each.end_month)
        }
    )


def _rows(
    line: Line, panel: Panel, ends: Iterable[int], *, unproven: bool
) -> Iterator[tuple[Any, ...]]:
    first, catalogue = line.series[0], panel.catalogue
    head = (
        *(
            catalogue.entity_id,
            catalogue.name,
            catalogue.dataset_id,
            panel.value_version,
        ),
        *(
            first.metric_id,
            format_path(first.scopes),
            catalogue.scope_names(first.scopes),
        ),
        *(first.label, first.description, first.basis, first.number_format),
    )
    series_ids = [each.series_id for each in line.series]
    sums = _Sums(line, unproven=unproven)
    begins = min((end for end, _ in sums.numbers), default=None)
    for end in ends:
        if begins is not None and end >= begins:
            found, period = sums.to(end), _period((end, 12))
            operands = [_period(each).label for each in found.operands]
            yield (
                *head,
                *(period.year, period.end_month, period.duration_months, period.label),
                *(found.number, line.text(period) if found.how == "year" else None),
                *(found.how, operands, series_ids, found.reason),
            )


class _Sums:
    """The sums of twelve months of one line."""

    def __init__(self, line: Line, *, unproven: bool) -> None:
        self._line = line
        self.numbers = {
            (period.fiscal_end, period.duration_months): number
            for period, number in line.numbers.items()
        }
        self._is_negative = any(number < 0 for number in self.numbers.values())
        self._contradictions: list[_Contradiction] = []
        proofs = 0
        for (end, months), stated in sorted(self.numbers.items()):
            if months in (6, 9, 12) and not (end - months) % 12:
                adds_up, contradiction = self._compare(end, months, stated)
                proofs += adds_up
                if contradiction:
                    self._contradictions.append(contradiction)
        self._is_proven = unproven or proofs > len(self._contradictions)
        self._whys: dict[_At, str] = {}

    def _compare(
        self, end: int, months: int, stated: float
    ) -> tuple[bool, _Contradiction | None]:
        """Return whether a published period is the sum of its parts, and whether it
        cannot be.
        """
        begin, text = end - months, ""
        adds_up = False
        for parts in _parts(end, months):
            if not all(part in self.numbers for part in parts) or not any(
                map(self.numbers.get, parts)
            ):
                continue
            added = sum((_decimal(self.numbers[part]) for part in parts), Decimal())
            if _are_alike(_decimal(stated), added):
                adds_up = True
            elif not text:
                labels = " and ".join(_period(part).label for part in parts)
                text = f"{labels} add up to {number_text(float(added))}"
        if not adds_up and not text and months == 12 and not self._is_negative:
            for first in (3, 6, 9):
                so_far = self.numbers.get((begin + first, first), 0.0)
                if so_far > stated and not _are_alike(
                    _decimal(stated), _decimal(so_far)
                ):
                    text = f"its first {first} months are {number_text(so_far)}"
        if adds_up or not text:
            return adds_up, None
        name = f"{_period((end, months))} is {number_text(stated)}"
        return False, _Contradiction(begin, end, f"{name}, {text}")

    def to(self, end: int) -> _Sum:
        """Return the twelve months to a fiscal end."""
        numbers, series = self.numbers, self._line.series[0]
        if (end, 12) in numbers:
            return _Sum("year", numbers[end, 12], [(end, 12)])
        if "%" in series.number_format:
            return _Sum(
                reason=f"{series.number_format} is the format of a share, which does "
                "not add up"
            )
        if end <= _EARLIEST:
            return _Sum(
                reason=f"{_period((end, 12))} has no value, and no year is before it"
            )
        ways: dict[str, list[_At]] = {
            "quarters": [(end - before, 3) for before in (9, 6, 3, 0)]
        }
        if months := end % 12:
            ways["year to date"] = [
                (end - months, 12),
                (end, months),
                (end - 12, months),
            ]
        missing = {how: [at for at in ways[how] if at not in numbers] for how in ways}
        how = min(ways, key=lambda way: len(missing[way]))
        if missing[how]:
            return _Sum(reason=self._why(missing[how][0]))
        operands = ways[how]
        begin = min(last - duration for last, duration in operands)
        for contradiction in self._contradictions:
            if begin <= contradiction.begin and contradiction.end <= end:
                return _Sum(reason=contradiction.text)
        # Zeros are the sum of zeros, whatever they are of.
        if not self._is_proven and any(numbers[operand] for operand in operands):
            return _Sum(reason=_UNPROVEN)
        signs = (1, 1, -1) if how == "year to date" else (1, 1, 1, 1)
        added = sum(
            sign * _decimal(numbers[at])
            for sign, at in zip(signs, operands, strict=True)
        )
        if added < 0 and not self._is_negative:
            return _Sum(
                reason=f"the sum is {number_text(float(added))}, and no published "
                "value is below 0"
            )
        return _Sum(how, float(added), operands)

    def _why(self, at: _At) -> str:
        if at not in self._whys:
            period = _period(at)
            self._whys[at] = f"{period} has no value: {self._line.why(period)}"
        return self._whys[at]


def _parts(end: int, months: int) -> list[tuple[_At, ...]]:
    """Return the ways in which a period from the start of a fiscal year has parts."""
    ways: list[tuple[_At, ...]] = [
        ((end - 3, months - 3), (end, 3)),  # as 9M and Q4
        tuple((end - before, 3) for before in range(months - 3, -1, -3)),
    ]
    if months == 12:
        ways.append(((end - 6, 6), (end, 6)))
    return list(dict.fromkeys(ways))


def _are_alike(stated: Decimal, added: Decimal) -> bool:
    return abs(stated - added) <= _TOLERANCE * max(abs(stated), abs(added))


# The same few periods are in the rows of all lines.
@lru_cache
def _period(at: _At) -> Period:
    return Period.ending(*at)


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))
