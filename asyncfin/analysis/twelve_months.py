"""The last twelve months: a year, four quarters, or a year with what was reported since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from asyncfin import checks
from asyncfin.analysis.lines import Line, by_publication, lines_of
from asyncfin.errors import SelectionError
from asyncfin.model.frame import arrow_type
from asyncfin.model.period import Period, period_ending
from asyncfin.model.scope import format_path
from asyncfin.model.words import listed, number_text
from asyncfin.optional import pa
from asyncfin.table.arrow import schema_metadata
from asyncfin.table.notes import about
from asyncfin.table.panel import Panel, panels_of

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = {
    **dict.fromkeys(("entity_id", "entity_name", "dataset_id", "asked_version", "metric_id"), "word"),
    "scope_path": "word",
    "scope_names": "words",
    **dict.fromkeys(("series_label", "description", "basis", "series_number_format"), "word"),
    **dict.fromkeys(("year", "end_month", "duration_months"), "int32"),
    "period_label": "word",
    "number": "float64",
    "how": "word",
    "operands": "words",
    "series_ids": "words",
    "reason": "string",
}
# What the service calls the periods of values that add up, as far as is known: the spec fixes no words.
OVER_PERIOD = ("over_period",)
# How far the sum of its parts may be from a period, as a share of the larger of both.
_TOLERANCE = Decimal("0.02")
# Up to this fiscal end, two years before would be fiscal year 0.
_EARLIEST = 3 * 12


# A period as its fiscal end and its months: of thousands of lines there are millions to look up.
_At: TypeAlias = tuple[int, int]


class _Sum(NamedTuple):
    """The twelve months to a fiscal end: how they were added up, or why they were not."""

    how: str | None = None
    number: float | None = None
    operands: Sequence[_At] = ()
    reason: str | None = None


def last_twelve_months(
    panels: Panel | Iterable[Panel], *, period_meanings: str | Iterable[str] = OVER_PERIOD
) -> pyarrow.Table:
    """Return the twelve months to each fiscal end, added up of published values (extra ``arrow``).

    Series of an entity that differ in their reporting group alone are one line, unless two of them have
    different numbers in a period; so a year of an annual group and nine months of a quarterly one meet. Of
    each line there is a row for each fiscal end at which its panels have a period or gap of 3 or 12 months,
    or of as many months as its end month, from the line's first value on. `how` is the first that applies:

    - ``"year"``: a value of 12 months with that end.
    - ``"quarters"``: the four quarters to that end.
    - ``"year to date"``: the fiscal year before, and the year so far, less the year so far a year earlier.

    Only what adds up is added: not a number format with a percent sign, and not where the twelve months or
    the year before have a period that differs by more than 2 % from its parts, such as earnings per share
    across a split. Then only ``"year"`` applies. Numbers are added in decimal.

    Sends no request.

    Args:
        panels: a panel, or several; panels of one entity and publication are taken together.
        period_meanings: the words of lines that can be added up, as the service calls them.

    Returns:
        The columns `entity_id`, `entity_name`, `dataset_id`, `asked_version`, `metric_id`, `scope_path`,
        `scope_names`, `series_label`, `description`, `basis`, `series_number_format`, `year`, `end_month`,
        `duration_months` (12) and `period_label` as in the long table (docs/schema.md), and

        - `number`, null where the twelve months are unknown;
        - `how`, null without a number;
        - `operands`: the labels of the periods, in the order of the arithmetic; empty without a number;
        - `series_ids`: the series of the line;
        - `reason`: why there is no number; null with one.

        Rows are ordered by entity, as given, then by line, in catalogue order, oldest first. The entry
        `left_out` of the metadata (the JSON under ``asyncfin``) is the number of series with another period
        meaning.

    Raises:
        ArgumentError: something else than a Panel is among the panels.
        SelectionError: no series has one of these period meanings; the message names those that they have.
        ImportError: pyarrow is not installed.

    >>> asyncfin.last_twelve_months(panel).to_pandas().tail(1)  # doctest: +SKIP
    """
    panels = panels_of(panels)
    wanted = checks.texts("period_meanings", period_meanings, "word")
    rows: list[tuple[Any, ...]] = []
    left_out: dict[str, int] = {}
    taken = 0
    for group in by_publication(panels):
        ends = _ends(group)
        for line in lines_of(group):
            if (meaning := line.series[0].period_meaning) not in wanted:
                left_out[meaning] = left_out.get(meaning, 0) + len(line.series)
                continue
            taken += 1
            rows += _rows(line, group[0], ends)
    if left_out and not taken:
        raise SelectionError(
            f"no series has the period meaning {' or '.join(map(repr, wanted))}, of values that add up;"
            f" they have {listed([*map(repr, left_out)])}"
        )
    metadata = schema_metadata([about(panel) for panel in panels], left_out=sum(left_out.values()))
    columns = list(zip(*rows, strict=True)) or [()] * len(_COLUMNS)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in _COLUMNS.items()], metadata)
    arrays = [pa.array(each, kind) for each, kind in zip(columns, schema.types, strict=True)]
    table: pyarrow.Table = pa.Table.from_arrays(arrays, schema=schema)
    return table


def _ends(panels: Iterable[Panel]) -> list[int]:
    """Return the fiscal ends at which there can be a row, oldest first."""
    periods = {period for panel in panels for period in (*panel.periods, *panel.gaps)}
    return sorted({each.fiscal_end for each in periods if each.duration_months in (3, 12, each.end_month)})


def _rows(line: Line, panel: Panel, ends: Iterable[int]) -> Iterator[tuple[Any, ...]]:
    first, catalogue = line.series[0], panel.catalogue
    head = (
        *(catalogue.entity_id, catalogue.name, catalogue.dataset_id, panel.value_version),
        *(first.metric_id, format_path(first.scopes), catalogue.scope_names(first.scopes)),
        *(first.label, first.description, first.basis, first.number_format),
    )
    series_ids = [each.series_id for each in line.series]
    sums = _Sums(line)
    begins = min((end for end, _ in sums.numbers), default=None)
    for end in ends:
        if begins is not None and end >= begins:
            found, period = sums.to(end), _period((end, 12))
            operands = [_period(each).label for each in found.operands]
            yield (
                *head,
                *(period.year, period.end_month, period.duration_months, period.label),
                *(found.number, found.how, operands, series_ids, found.reason),
            )


class _Sums:
    """The sums of twelve months of one line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.numbers = {
            (period.fiscal_end, period.duration_months): number for period, number in line.numbers.items()
        }
        self._differing = list(_differing(self.numbers))
        self._whys: dict[_At, str] = {}

    def to(self, end: int) -> _Sum:
        """Return the twelve months to a fiscal end."""
        numbers, series = self.numbers, self._line.series[0]
        if (end, 12) in numbers:
            return _Sum("year", numbers[end, 12], [(end, 12)])
        if "%" in series.number_format:
            return _Sum(reason=f"{series.number_format} is the format of a share, which does not add up")
        for begin, last, text in self._differing:
            if end - 24 <= begin and last <= end:
                return _Sum(reason=text)
        if end <= _EARLIEST:
            return _Sum(reason=f"{_period((end, 12))} has no value, and no year is before it")
        ways: dict[str, list[_At]] = {"quarters": [(end - before, 3) for before in (9, 6, 3, 0)]}
        if months := end % 12:
            ways["year to date"] = [(end - months, 12), (end, months), (end - 12, months)]
        missing = {how: [each for each in ways[how] if each not in numbers] for how in ways}
        how = min(ways, key=lambda each: len(missing[each]))
        if missing[how]:
            return _Sum(reason=self._why(missing[how][0]))
        signs = (1, 1, -1) if how == "year to date" else (1, 1, 1, 1)
        added = sum(sign * _decimal(numbers[each]) for sign, each in zip(signs, ways[how], strict=True))
        return _Sum(how, float(added), ways[how])

    def _why(self, at: _At) -> str:
        if at not in self._whys:
            period = _period(at)
            self._whys[at] = f"{period} has no value: {self._line.why(period)}"
        return self._whys[at]


def _differing(numbers: Mapping[_At, float]) -> Iterator[tuple[int, int, str]]:
    """Yield periods that are not the sum of their parts: the month before, the last month, and a text."""
    for end, months in sorted(numbers):
        if months not in (6, 9, 12) or (end - months) % 12:
            continue
        # H1 is Q1 and Q2, 9M is H1 and Q3, and the year is 9M and Q4.
        parts = [(end - 3, months - 3), (end, 3)]
        if not all(part in numbers for part in parts):
            continue
        stated = _decimal(numbers[end, months])
        added = sum((_decimal(numbers[part]) for part in parts), Decimal())
        if abs(stated - added) > _TOLERANCE * max(abs(stated), abs(added)):
            labels = " and ".join(_period(part).label for part in parts)
            named = "its quarters" if months == 6 else labels
            texts = number_text(float(stated)), number_text(float(added))
            yield end - months, end, f"{_period((end, months))} is {texts[0]}, {named} add up to {texts[1]}"


# The same few periods are in the rows of all lines.
@lru_cache
def _period(at: _At) -> Period:
    return period_ending(*at)


def _decimal(number: float) -> Decimal:
    return Decimal(repr(number))
