"""Fiscal periods (spec 2.1): their labels, and what a mistaken label probably means."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import MAXYEAR, MINYEAR, date
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, StructMeta

from asyncfin import checks
from asyncfin.errors import ArgumentError, SelectionError

# The service sets no bound; this is what a column of 32 bits holds.
MAX_DURATION = 2**31 - 1


_year_end = checks.whole_number(1, 12)
_named_after = checks.one_of("end", "start")
_RANGES = {
    "year": (1, 9_999),
    "end_month": (1, 12),
    "duration_months": (0, MAX_DURATION),
}


class _Checked(StructMeta):
    """Checks what is constructed in Python.

    Not `__post_init__`: a decoder, which checks by Meta, would call that too, once for
    each value.
    """

    if not TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            period = super().__call__(*args, **kwargs)
            year, month, months = period.year, period.end_month, period.duration_months
            # One expression first: arguments are nearly always valid.
            if not (
                type(year) is type(month) is type(months) is int
                and 1 <= year <= 9_999
                and 1 <= month <= 12
                and 0 <= months <= MAX_DURATION
            ):
                for name, (first, last) in _RANGES.items():
                    check = checks.whole_number(first, last).as_selection_error()
                    check(name, getattr(period, name))
            return period


# A Struct and not an attrs class: msgspec decodes it in C, once for each value of a
# response.
class Period(Struct, metaclass=_Checked, frozen=True, order=True, gc=False):
    """A range of fiscal months (spec 2.1), ordered by year, end month and duration.

    Args:
        year: the fiscal year, 1 to 9999.
        end_month: the fiscal month in which the period ends, 1 to 12; not a calendar
            month.
        duration_months: its length in months; 0 for a point in time, such as the end of
            a range.

    Raises:
        SelectionError: a field is not a whole number in its range.

    >>> Period(2024, 9, 3).label
    'FY2024-Q3'
    >>> Period.parse("FY2024")
    Period(2024, 12, 12)
    """

    year: Annotated[int, Meta(ge=1, le=9_999)]
    end_month: Annotated[int, Meta(ge=1, le=12)]
    duration_months: Annotated[int, Meta(ge=0, le=MAX_DURATION)]

    @property
    def fiscal_start(self) -> int:
        """The first month, counted as `fiscal_end` is; a period of duration 0 starts
        where it ends.
        """
        return self.fiscal_end - max(self.duration_months - 1, 0)

    @property
    def fiscal_end(self) -> int:
        """The last month as a number, so that months can be counted: ``year * 12 +
        end_month``.
        """
        return self.year * 12 + self.end_month

    @property
    def label(self) -> str:
        """The only text form: FY2024, FY2024-Q3, FY2024-H1, FY2024-9M; for all others
        FY2024-11-05M.
        """
        # Not 2024-Q3: pandas, spreadsheets and people take that for a calendar quarter.
        year = f"FY{self.year:04d}"
        # Every period has one label: three months that end in month 4 are not a
        # quarter.
        match self.duration_months, self.end_month:
            case 12, 12:
                return year
            case 3, 3 | 6 | 9 | 12:
                return f"{year}-Q{self.end_month // 3}"
            case 6, 6 | 12:
                return f"{year}-H{self.end_month // 6}"
            case 9, 9:
                return f"{year}-9M"
        return f"{year}-{self.end_month:02d}-{self.duration_months:02d}M"

    def end_date(
        self, year_end: int, named_after: Literal["end", "start"] = "end"
    ) -> date:
        """Return the last day of the period's last calendar month, from the calendar
        that you state.

        The service states no calendar: look the fiscal year of an entity up in its
        reports. Fiscal years of 52 or 53 weeks end some days earlier or later than this
        day.

        Args:
            year_end: the calendar month in which the fiscal year ends, 1 to 12.
            named_after: ``"end"``: fiscal year Y is the one that ends in calendar year
                Y; ``"start"``: the one that begins in it.

        Raises:
            ArgumentError: an argument is not as described, or the day is not in the
                years 1 to 9999.

        >>> Period.parse("FY2027-Q1").end_date(1)
        datetime.date(2026, 4, 30)
        >>> Period.parse("FY2024").end_date(1, "start")
        datetime.date(2025, 1, 31)
        """
        _year_end("year_end", year_end)
        _named_after("named_after", named_after)
        month = self.fiscal_end - 1 + (year_end - 12)
        # A year that begins in January ends in its own calendar year, whatever it is
        # named after.
        if named_after == "start" and year_end < 12:
            month += 12
        year, index = divmod(month, 12)
        if not MINYEAR <= year <= MAXYEAR:
            raise ArgumentError(
                f"{self} ends in year {year}, and dates are of the years {MINYEAR} to "
                f"{MAXYEAR}"
            )
        return date(year, index + 1, monthrange(year, index + 1)[1])

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"Period({self.year}, {self.end_month}, {self.duration_months})"

    @classmethod
    def parse(cls, label: str) -> Period:
        """Return the period of a label, which may be without FY if more than the year
        follows.

        Raises:
            SelectionError: the text is not the label of a period. Its `instead` is the
                label that was probably meant.
        """
        period = None
        if isinstance(label, str):
            period = read_label(label)
        if period is None:
            guess = guess_period(label)
            raise SelectionError(
                "period must be a label such as FY2024, FY2024-Q3, FY2024-H1, "
                f"FY2024-9M or FY2024-11-05M, not {checks.short_repr(label)}",
                instead=guess and guess.label,
            )
        return period

    @classmethod
    def ending(cls, fiscal_end: int, months: int = 0) -> Period:
        """Return the period of a length that ends in a month, counted as
        `fiscal_end`.
        """
        # Month 12 must not become month 0 of the next year.
        year, index = divmod(fiscal_end - 1, 12)
        return cls(year, index + 1, months)


# \d{2,10}: at least two digits, as `label` writes them, and no more than 32 bits can
# have.
_LABEL = (
    r"FY(?P<fiscal_year>\d{4})"
    r"|(?:FY)?(?P<year>\d{4})-(?:(?P<part>Q[1-4]|H[12]|9M)"
    r"|(?P<month>\d\d)-(?P<duration>\d{2,10})M)"
)


def read_label(text: str) -> Period | None:
    """Return the period of a label, also without its FY (2024-Q3, but not 2024), or
    None.
    """
    period = _read_long_label(text)
    # Labels are used as keys, so FY2024-H2 must have no second one, FY2024-12-06M.
    if period is None or period.label not in (text, f"FY{text}"):
        return None
    return period


def write_fiscal_month(period: Period) -> str:
    """Return the fiscal month in which a period ends: FY2024-09."""
    return f"FY{period.year:04d}-{period.end_month:02d}"


def _read_long_label(text: str) -> Period | None:
    """Return the period of a label or of a longer form of it (FY2024-12-12M), or
    None.
    """
    match = re.fullmatch(_LABEL, text, re.ASCII)
    if match is None:
        return None
    year = int(match["fiscal_year"] or match["year"])
    if match["month"]:
        return Period(year, int(match["month"]), int(match["duration"]))
    return _make_part(year, match["part"])


def _make_part(year: int, part: str | None) -> Period:
    """Return a part of a year: Q3 or 3Q, H1 or 1H, 9M, or the year."""
    if not part:
        return Period(year, 12, 12)
    number = int(part.strip("QHM"))
    if "M" in part:
        return Period(year, number, number)
    if "Q" in part:
        return Period(year, number * 3, 3)
    return Period(year, number * 6, 6)


# A smaller bare year is probably a count.
LEAST_BARE_YEAR = 1000
_YEAR = r"(?P<year>\d{4}|\d\d)"
_MONTHS = r"(?:3|6|9|12)M"
# Without separators and FY, in capitals.
_MISTAKEN = (
    rf"{_YEAR}(?P<part>Q[1-4]|H[12]|{_MONTHS})?"
    rf"|(?P<first_part>Q[1-4]|[1-4]Q|H[12]|[12]H|{_MONTHS})(?P<last_year>\d{{4}}|\d\d)"
)


def guess_period(value: object) -> Period | None:
    """Return the period that a value probably means, e.g. for FY23, 1Q23, "2024" or
    2024, or None.
    """
    if isinstance(value, Period):
        return value
    if type(value) is int and LEAST_BARE_YEAR <= value <= 9_999:
        return Period(value, 12, 12)
    if not isinstance(value, str):
        return None
    try:
        return _read_long_label(value) or _read_mistaken(value)
    except SelectionError:  # month 13, or year 0
        return None


def _read_mistaken(text: str) -> Period | None:
    plain = re.sub(r"[\s_./'\u2019-]+", "", text.upper())
    match = re.fullmatch(_MISTAKEN, plain.replace("FY", "", 1), re.ASCII)
    if match is None:
        return None
    part = match["part"] or match["first_part"]
    digits = match["year"] or match["last_year"]
    year = int(digits)
    if len(digits) == 2:
        # Two digits alone are probably a count.
        if not part and "FY" not in plain:
            return None
        year += 2000
        if year >= 2070:
            year -= 100
    return _make_part(year, part)


def write_hint(value: object) -> str:
    """Return ``; write "FY2023"`` for a value that probably means a period, or ""."""
    period = guess_period(value)
    if period is None:
        return ""
    return f'; write "{period.label}"'
