"""What people read of a row of values: unit and divisor, percent, digits, name and
colour.

Print, notebook, `show`, plot, explorer, command line and assistants render what is
decided here. Numbers of data are never divided.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cached_property
from itertools import chain
from statistics import median_low
from typing import ClassVar, TypeAlias
from unicodedata import category

from attrs import define, field, frozen

from asyncfin import checks
from asyncfin.clock import utc_text
from asyncfin.model.period import Period
from asyncfin.model.series import (
    COLUMN_OF,
    SERIES_FIELDS,
    CatalogueSeries,
    cell_of,
)
from asyncfin.model.value import Value, shown_text
from asyncfin.table.grid import Grid
from asyncfin.text import GAP, NOT_REQUESTED
from asyncfin.words import Unit, number_text

POWERS: dict[Unit, int] = {"thousands": 3, "millions": 6, "billions": 9}
check_unit = checks.one_of(*POWERS, "auto").optional()
# What the name of a row ends with where a unit was requested, and the row has none.
NOT_DIVIDED = " (not divided)"
# Rows below this are not divided.
_LEAST = 1_000
# Digits of the smallest number of a divided row, and how many of them may be decimals.
_SIGNIFICANT = 3
_MOST_DECIMALS = 6
# Words of scale in texts, in the place of zeros.
_WORDS = "thousands?|k|millions?|mio|mln|mn|mm|m|billions?|bln|bn|b|trillions?|tn|t"
# Sign and currency, the digits with their separators, a word of scale, and what
# follows.
_TEXT = re.compile(
    r"(?P<before>\D*?)(?P<digits>\d(?:[\d.,'\u2019\s]*\d)?|[.,]\d+)"
    rf"(?:\s*(?P<word>{_WORDS})\b\.?)?(?P<after>\D*)",
    re.IGNORECASE,
)
# Signs and letters of currencies, next to which only symbols of currencies may be.
_SIGNS = re.compile(r"(?<![^\W\d_])[A-Z]{1,3}(?![^\W\d_])|[\s()+\u2212-]")
# What a text may be scaled by: a word, or the commas at the end of its format.
_SCALES = (0, 3, 6, 9, 12)
_SCALE_OF_WORD = {"th": 3, "k": 3, "m": 6, "b": 9, "t": 12}
_SCALING_COMMAS = re.compile(r"[0#?](,+)(?![0#?,.])")
# Exact for every number of a service: none has ten thousand digits.
_EXACT = Context(prec=10_000, rounding=ROUND_HALF_UP)

# The columns that describe a series in CSV, in their order.
ENTITY_COLUMNS = ("entity_id", "entity_name")
_FIRST = (
    "series_id",
    "metric_id",
    "label",
    "scopes",
    "reporting_group_id",
    "basis",
    "description",
    "number_format",
)
SERIES_COLUMNS = (*(COLUMN_OF[name] for name in _FIRST), "asked_version", "published")


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

    @classmethod
    def of_rows(
        cls, rows: Sequence[Collection[Value]], unit: Unit | None
    ) -> "list[Scale]":
        """Return the scale of each row of values: one unit, and as many decimals.

        Args:
            rows: the values of each row.
            unit: as for `Panel.rows`.
        """
        magnitudes = [_find_magnitudes(values) for values in rows] if unit else []
        if unit == "auto":
            unit = _choose_unit(magnitudes)
        if unit is None:
            return [cls()] * len(rows)
        smallest = min(chain.from_iterable(magnitudes), default=Decimal(1))
        decimals = _SIGNIFICANT - 1 + POWERS[unit] - smallest.adjusted()
        divided = cls(unit, min(_MOST_DECIMALS, max(0, decimals)))
        scales = []
        for values, row_magnitudes in zip(rows, magnitudes, strict=True):
            as_published = cls(suffix=NOT_DIVIDED if values else "")
            scales.append(divided if row_magnitudes else as_published)
        return scales

    def text(self, value: Value) -> str:
        """Return a value as a cell shows it."""
        return self._divide(value, self.decimals) or shown_text(value)

    def exact(self, value: Value) -> str:
        """Return a value with all digits of its number, in the unit of the cell."""
        if divided := self._divide(value, None):
            return divided
        if scaling(value.number_format) > 1:
            return f"{shown_text(value)} ({number_text(value.number)})"
        return shown_text(value)

    def number(self, value: Value) -> float:
        """Return the number as an axis has it."""
        return value.number / 10 ** POWERS[self.unit] if self.unit else value.number

    def _divide(self, value: Value, decimals: int | None) -> str:
        """Write a divided value; "" for one that stays as published."""
        text = value.text.strip()
        match = _TEXT.fullmatch(text)
        # A reported zero stays what it is, and so does a text without a number, such as
        # "NM".
        if self.unit is None or not value.number or (text and match is None):
            return ""
        before, after = "-" * (value.number < 0), ""
        if match:
            before, after = match.group("before", "after")
        divided = _EXACT.scaleb(abs(_read_decimal(value.number)), -POWERS[self.unit])
        if decimals is None:
            divided = _EXACT.normalize(divided)
        else:
            divided = _EXACT.quantize(divided, Decimal((0, (1,), -decimals)))
        return f"{before}{divided:,f}{after}"


def _choose_unit(rows: Iterable[Collection[Decimal]]) -> Unit | None:
    """Return the largest unit that the median of the rows' largest numbers reaches."""
    largest = [max(magnitudes) for magnitudes in rows if magnitudes]
    middle = median_low(largest) if largest else 0
    units = [unit for unit, power in POWERS.items() if 10**power <= middle]
    return units[-1] if units else None


def _find_magnitudes(values: Collection[Value]) -> list[Decimal]:
    """Return the magnitudes of a row of amounts, without zeros; none for other rows.

    Amounts have texts that are their numbers, with sign, currency and word of scale at
    most, and one of them is large. Texts without a digit, such as "NM", are no numbers.
    """
    magnitudes = []
    for value in values:
        text = value.text.strip()
        if text and not any(map(str.isdigit, text)):
            continue
        if text and not _is_amount(text, value):
            return []
        if value.number:
            magnitudes.append(abs(_read_decimal(value.number)))
    return magnitudes if max(magnitudes, default=0) >= _LEAST else []


def _is_amount(text: str, value: Value) -> bool:
    match = _TEXT.fullmatch(text)
    if match is None or "%" in value.number_format:
        return False
    around = match["before"] + match["after"]
    is_negative = any(sign in around for sign in "-\u2212(")
    if value.number and is_negative != (value.number < 0):
        return False
    if any(category(sign) != "Sc" for sign in _SIGNS.sub("", around)):
        return False
    scales: Collection[int] = _SCALES
    if word := (match["word"] or "").casefold():
        starts = [start for start in _SCALE_OF_WORD if word.startswith(start)]
        scales = [_SCALE_OF_WORD[starts[0]]]
    magnitude = abs(_read_decimal(value.number))
    return any(
        _is_stated(match["digits"], _EXACT.scaleb(magnitude, -scale))
        for scale in scales
    )


def scaling(number_format: str) -> int:
    """Return what a number format divides by before it is shown: 1,000 for each last
    comma.
    """
    match = _SCALING_COMMAS.search(number_format)
    return 1_000 ** len(match[1]) if match else 1


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
    columns: ClassVar[tuple[str, ...]] = (*ENTITY_COLUMNS, *SERIES_COLUMNS)

    @property
    def label(self) -> str:
        """The name of the series."""
        return self.series.label.strip() or self.series.metric_id

    @property
    def name(self) -> str:
        """The name of the series. It shows where a unit was requested and does not
        hold.
        """
        return self.label + self.scale.suffix

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
        values = zip(
            self.grid.periods, self.grid.values(self.series.series_id), strict=True
        )
        entries = [(period, value) for period, value in values if value is not None]
        return dict(entries[-self.last :])

    @cached_property
    def scale(self) -> Scale:
        """How the values are written."""
        return Scale.of_rows([self.values.values()], self.requested_unit)[0]

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
        if match is None or not match["after"].strip(" )").startswith("%"):
            return 0
        magnitude = abs(_read_decimal(largest.number))
        factors = [
            factor
            for factor in (1, 100)
            if _is_stated(match["digits"], magnitude * factor)
        ]
        # A text so round that it is either shows neither; of zero both are right.
        return factors[0] if len(factors) == 1 or (factors and not magnitude) else 0

    def cell(self, period: Period) -> str:
        """Return what a table shows at a period: the text, ``·`` for no value, or ``?``
        for a period that was not requested.
        """
        if (value := self.values.get(period)) is not None:
            return self.scale.text(value)
        return GAP if self.grid.covers(period) else NOT_REQUESTED

    @property
    def texts(self) -> dict[Period, str]:
        """The texts that tables show, by period."""
        return {period: self.scale.text(value) for period, value in self.values.items()}

    @property
    def numbers(self) -> dict[Period, float]:
        """The numbers in the unit, by period, with all their digits."""
        return {
            period: self.scale.number(value) for period, value in self.values.items()
        }

    @property
    def fields(self) -> dict[str, str | None]:
        """The entity, and the fields of the series, by the names of `columns`."""
        catalogue = self.grid.catalogue
        fields = {COLUMN_OF[name]: cell_of(self.series, name) for name in SERIES_FIELDS}
        fields |= {
            "entity_id": catalogue.entity_id,
            "entity_name": catalogue.name,
            "asked_version": self.grid.value_version,
            "published": utc_text(catalogue.created_timestamp),
        }
        return {column: fields[column] for column in self.columns}

    @staticmethod
    def colours(
        charts: "Sequence[Collection[tuple[Row, int]]]", entity_ids: Iterable[str]
    ) -> "dict[tuple[Row, int], int]":
        """Return the number of each line's colour: a company has one in all charts.

        Lines of a company that are in one chart are told apart by what they differ in:
        metric, scope path, basis, and so on, in all charts alike.

        Args:
            charts: the lines of each chart, also those without a value. A line is a row
                and the months of its periods, 0 without a value.
            entity_ids: the entities in the order in which they get colours.
        """
        lines = dict.fromkeys(line for chart in charts for line in chart)
        identities: dict[Line, tuple[object, ...]] = {
            line: (line[0].entity_id,) for line in lines
        }
        for distinction in _DISTINCTIONS:
            longer = {
                line: (*identity, distinction(*line))
                for line, identity in identities.items()
            }
            if any(
                _count(longer, chart) > _count(identities, chart) for chart in charts
            ):
                identities = longer
        order = list(entity_ids)
        sorted_identities = sorted(
            dict.fromkeys(identities.values()),
            key=lambda identity: order.index(str(identity[0])),
        )
        numbers = {
            identity: number for number, identity in enumerate(sorted_identities)
        }
        return {line: numbers[identity] for line, identity in identities.items()}


# A line of a chart: a series, and the months of its periods; 0 without a value.
Line: TypeAlias = tuple[Row, int]
_DISTINCTIONS: tuple[Callable[[Row, int], object], ...] = (
    lambda row, months: row.series.metric_id,
    lambda row, months: row.series.scopes,
    lambda row, months: row.series.basis,
    lambda row, months: row.grid.value_version,
    lambda row, months: months,
    lambda row, months: row.series.series_id,
    lambda row, months: row.grid.catalogue.dataset_id,
)


def _count(
    identities: Mapping[Line, tuple[object, ...]], chart: Collection[Line]
) -> int:
    return len({identities[line] for line in chart})


def rows_of(
    grids: Iterable[Grid], unit: Unit | None = None, *, last: int = 0
) -> list[Row]:
    """Return the series of panels, panel by panel.

    Raises:
        ArgumentError: `unit` is not one that tables have.
    """
    check_unit("unit", unit)
    rows = [Row(grid, series, unit, last) for grid in grids for series in grid.series]
    if unit == "auto":
        shared_unit = _choose_unit(
            _find_magnitudes(row.values.values()) for row in rows
        )
        for row in rows:
            row.requested_unit = shared_unit
    return rows


def _is_stated(digits: str, magnitude: Decimal) -> bool:
    """Return whether digits are a number, rounded as they are."""
    for number in _read_numbers(digits):
        exponent = int(number.as_tuple().exponent)
        if abs(magnitude - number) * 2 <= Decimal((0, (1,), exponent)):
            return True
    return False


def _read_numbers(digits: str) -> Iterator[Decimal]:
    """Yield the numbers that digits can mean: the last separator is decimal, or none
    is.
    """
    plain = re.sub(r"['\u2019\s]", "", digits)
    *_, last = re.split("[.,]", plain)
    whole = Decimal(re.sub("[.,]", "", plain))
    # No whole number is written with a zero before other digits.
    if last == plain or plain[0] != "0":
        yield whole
    if last != plain:
        yield _EXACT.scaleb(whole, -len(last))


def _read_decimal(number: float) -> Decimal:
    # The shortest digits of a float, as they were received.
    return Decimal(repr(number))
