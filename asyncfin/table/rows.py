"""What people read of a row of values: unit and divisor, percent, digits, name and
colour.

Print, notebook, `show`, plot, explorer, command line and assistants render what is
decided here. Numbers of data are never divided.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import ClassVar

from attrs import define, field, frozen

from asyncfin import checks
from asyncfin.clock import utc_text
from asyncfin.model.period import Period
from asyncfin.model.series import (
    COLUMN_OF,
    SERIES_FIELDS,
    CatalogueSeries,
    Value,
    read_cell,
    write_value,
)
from asyncfin.table.grid import Grid
from asyncfin.text import GAP, NOT_REQUESTED
from asyncfin.words import Unit, number_text

POWERS: dict[Unit, int] = {
    "thousands": 3,
    "millions": 6,
    "billions": 9,
}
check_unit = checks.one_of(*POWERS, "auto").optional()
# What the name of a row ends with where a unit was requested, and the row has none.
NOT_DIVIDED = " (not divided)"
# Rows below this are not divided.
_LEAST = 1_000
# Digits of the smallest number of a divided row, and how many of them may be decimals.
_SIGNIFICANT = 3
_MOST_DECIMALS = 6
_WORDS = (
    "thousands?|tsd|k|millions?|mio|mln|mn|mm|m|billions?|mrd|bln|bn|b|trillions?|tn|t"
)
# Sign, symbols and letters of a currency, or percent. A word of scale is no currency:
# a text such as "M\u20ac 1,236" cannot be divided.
_CODE = rf"(?<![A-Za-z])(?!(?i:{_WORDS})\b)[A-Z]{{1,3}}(?![A-Za-z])"
_AROUND = rf"(?:[\s()+\u2212%$\u00a2-\u00a5\u20a0-\u20cf-]|{_CODE})*"
# A number with its separators, what stands around it, and a word of scale.
_TEXT = re.compile(
    rf"(?P<before>{_AROUND})(?P<digits>\d(?:[\d.,'\u2019\s]*\d)?|[.,]\d+)"
    rf"(?i:\s*(?:{_WORDS})\b\.?)?(?P<after>{_AROUND})"
)
# The powers of ten that a text may be scaled by, with a word or by its format.
_SCALES = (0, 3, 6, 9, 12)
_SCALING_COMMAS = re.compile(r"[0#?](,+)(?![0#?,.])")
# Exact for every number of a service: none has ten thousand digits.
_EXACT = Context(prec=10_000, rounding=ROUND_HALF_UP)

# The first columns of CSV.
ENTITY_COLUMNS = ("entity_id", "entity_name")


@frozen
class Scale:
    """How the values of a row are written.

    Attributes:
        unit: what the numbers are divided by. None: they are as published.
        decimals: of a divided number.
        suffix: what the row's name ends with.
    """

    unit: Unit | None = None
    decimals: int = 0
    suffix: str = ""

    def text(self, value: Value) -> str:
        """Return a value as a cell shows it."""
        return self._divide(value, self.decimals) or write_value(value)

    def exact(self, value: Value) -> str:
        """Return a value with all digits of its number, in the unit of the cell."""
        if text := self._divide(value, None):
            return text
        if read_divisor(value.number_format) > 1:
            return f"{write_value(value)} ({number_text(value.number)})"
        return write_value(value)

    def number(self, value: Value) -> float:
        """Return the number as an axis has it."""
        if self.unit is None:
            return value.number
        divisor: int = 10 ** POWERS[self.unit]
        return value.number / divisor

    def _divide(self, value: Value, decimals: int | None) -> str:
        """Write a divided value, or "" for one that stays as published."""
        text = value.text.strip()
        match = _TEXT.fullmatch(text)
        # A reported zero stays what it is, and so does a text such as "NM".
        if self.unit is None or not value.number or (text and match is None):
            return ""
        number = _EXACT.scaleb(_read_magnitude(value), -POWERS[self.unit])
        if decimals is None:
            digits = f"{_EXACT.normalize(number):,f}"
        else:
            step = Decimal((0, (1,), -decimals))
            number = _EXACT.quantize(number, step)
            digits = f"{number:,f}"
            if not number:
                digits = f"<{step:f}"
        if match is not None:
            return match["before"] + digits + match["after"]
        return "-" * (value.number < 0) + digits


def _choose_unit(rows: "Iterable[Row]") -> Unit | None:
    """Return the largest unit that the median of the rows' largest numbers reaches."""
    magnitudes = map(attrgetter("_magnitudes"), rows)
    largest = sorted(map(max, filter(None, magnitudes)))
    unit: Unit | None = None
    for name, power in POWERS.items():
        if largest and largest[(len(largest) - 1) // 2] >= 10**power:
            unit = name
    return unit


def _is_amount(text: str, value: Value) -> bool:
    """Return whether a text is the number of its value, with its sign."""
    match = _TEXT.fullmatch(text)
    if match is None or "%" in text + value.number_format:
        return False
    is_negative = not set(text).isdisjoint("-\u2212(")
    if value.number and is_negative != (value.number < 0):
        return False
    return any(_is_stated(match["digits"], value, -scale) for scale in _SCALES)


def read_divisor(number_format: str) -> int:
    """Return the divisor of a number format: 1,000 for each comma at its end."""
    match = _SCALING_COMMAS.search(number_format)
    if match is None:
        return 1
    return int(1_000 ** len(match[1]))


# Not slotted, for the cached properties.
@define(eq=False, slots=False)
class Row:
    """A series of one of the panels, and how people read its values.

    Attributes:
        series: the series, as the catalogue lists it.
        requested_unit: what the numbers are divided by, if they are amounts.
        last: how many of its values are wanted, the last ones. 0: all.
    """

    grid: Grid = field(repr=False)
    series: CatalogueSeries
    requested_unit: Unit | None = None
    last: int = 0
    # The columns that describe a series in CSV, in their order.
    columns: ClassVar[tuple[str, ...]] = (
        *ENTITY_COLUMNS,
        "series_id",
        "metric_id",
        "series_label",
        "scope_path",
        "reporting_group_id",
        "basis",
        "description",
        "series_number_format",
        "asked_version",
        "published",
    )

    @property
    def label(self) -> str:
        """The name of the series."""
        return self.series.label.strip() or self.series.metric_id

    @property
    def entity_id(self) -> str:
        """The entity."""
        return self.grid.catalogue.entity_id

    @cached_property
    def values(self) -> dict[Period, Value]:
        """The values by period, oldest first.

        Raises:
            MalformedAnswerError: one breaks the spec.
        """
        values = self.grid.values(self.series.series_id)
        pairs = zip(self.grid.periods, values, strict=True)
        entries = [(period, value) for period, value in pairs if value is not None]
        return dict(entries[-self.last :])

    @cached_property
    def _magnitudes(self) -> list[Decimal]:
        """The magnitudes of a row of amounts, without zeros; none for other rows.

        Amounts have texts that are their numbers, with sign, currency and word of scale
        at most, and one of them is large. Texts without a digit, such as "NM", are no
        numbers.
        """
        magnitudes = []
        for value in self.values.values():
            text = value.text.strip()
            if text and not any(map(str.isdigit, text)):
                continue
            if text and not _is_amount(text, value):
                return []
            if value.number:
                magnitudes.append(_read_magnitude(value))
        if max(magnitudes, default=0) >= _LEAST:
            return magnitudes
        return []

    @cached_property
    def scale(self) -> Scale:
        """How the values are written."""
        unit = self.requested_unit
        if unit is None or not self.values:
            return Scale()
        if not self._magnitudes:
            return Scale(suffix=NOT_DIVIDED)
        decimals = _SIGNIFICANT - 1 + POWERS[unit] - min(self._magnitudes).adjusted()
        return Scale(unit, min(_MOST_DECIMALS, max(0, decimals)))

    @property
    def unit(self) -> Unit | None:
        """What the numbers are divided by. None: they are as published."""
        return self.scale.unit

    @cached_property
    def percent(self) -> int:
        """What the published numbers are multiplied by to be percent: 1 or 100; 0: they
        are not.

        The text of the largest value shows whether 0.12 or 12 is written as 12 %.
        """
        values = self.values.values()
        largest = max(values, key=lambda value: abs(value.number), default=None)
        if largest is None:
            return 0
        match = _TEXT.fullmatch(largest.text.strip())
        if match is None or "%" not in match["after"]:
            return 0
        powers = []
        for power in (0, 2):
            if _is_stated(match["digits"], largest, power):
                powers.append(power)
        # A text so round that it is either shows neither; of zero both are right.
        if not powers or (len(powers) > 1 and largest.number):
            return 0
        return int(10 ** powers[0])

    def cell(self, period: Period) -> str:
        """Return the text of a period's cell: ``·`` for no value, ``?`` for a period
        that was not requested.
        """
        if (value := self.values.get(period)) is not None:
            return self.scale.text(value)
        return NOT_REQUESTED if period in self.grid.omitted_periods else GAP

    @property
    def texts(self) -> dict[Period, str]:
        """The texts that tables show, by period."""
        texts = map(self.scale.text, self.values.values())
        return dict(zip(self.values, texts, strict=True))

    @property
    def fields(self) -> dict[str, str | None]:
        """The entity, and the fields of the series, by the names of `columns`."""
        fields = {
            **self.cells,
            "asked_version": self.grid.value_version,
            "published": utc_text(self.grid.catalogue.created_timestamp),
        }
        return {column: fields[column] for column in self.columns}

    @property
    def cells(self) -> dict[str, str | None]:
        """The entity, and all fields of the series, by column."""
        cells = {
            COLUMN_OF[name]: read_cell(self.series, name) for name in SERIES_FIELDS
        }
        cells["entity_id"] = self.entity_id
        cells["entity_name"] = self.grid.catalogue.name
        return cells

    @staticmethod
    def colours(
        charts: Iterable[Sequence[str]], entity_ids: Iterable[str]
    ) -> list[list[int]]:
        """Return the numbers of the colours of each chart's lines: a company has one in
        all charts.

        The second line of a company in a chart has its second colour, and so on.

        Args:
            charts: the entity of each line, of each chart.
            entity_ids: the entities in the order in which they get colours.
        """
        order = list(dict.fromkeys(entity_ids))
        places_of_charts = []
        for chart in charts:
            counts: Counter[str] = Counter()
            places = []
            for entity_id in chart:
                places.append((order.index(entity_id), counts[entity_id]))
                counts[entity_id] += 1
            places_of_charts.append(places)
        all_places = sorted(set(chain.from_iterable(places_of_charts)))
        return [list(map(all_places.index, places)) for places in places_of_charts]


def rows_of(
    grids: Iterable[Grid], unit: Unit | None = None, *, last: int = 0
) -> list[Row]:
    """Return the series of panels, panel by panel.

    Raises:
        ArgumentError: `unit` is not one that tables have.
    """
    check_unit("unit", unit)
    rows: list[Row] = []
    for grid in grids:
        for series in grid.series:
            rows.append(Row(grid, series, unit, last))
    if unit == "auto":
        shared_unit = _choose_unit(rows)
        for row in rows:
            row.requested_unit = shared_unit
    return rows


def _is_stated(digits: str, value: Value, power: int) -> bool:
    """Return whether digits are a number times a power of ten, rounded as they are.

    The last separator is decimal. If three digits follow, it may be one of thousands.
    """
    compact_text = re.sub(r"['\u2019\s]", "", digits)
    *_, decimals = re.split("[.,]", compact_text)
    number = Decimal(re.sub(r"\D", "", digits))
    counts = {0}
    if "." in digits or "," in digits:
        counts = {len(decimals)}
    if len(decimals) == 3:
        counts.add(0)
    magnitude = _EXACT.scaleb(_read_magnitude(value), power)
    for count in counts:
        difference = magnitude - _EXACT.scaleb(number, -count)
        last_digit = Decimal((0, (1,), -count))
        if abs(difference) * 2 <= last_digit:
            return True
    return False


def _read_magnitude(value: Value) -> Decimal:
    # The shortest digits of a float, as they were received.
    return Decimal(repr(abs(value.number)))
