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


def _whole(least: int, most: int) -> checks.Check:
    return checks.whole_number(least, most).as_selection_error()


_year_end = checks.whole_number(1, 12)
_named_after = checks.one_of("end", "start")
_CHECKS = {
    "year": _whole(1, 9_999),
    "end_month": _whole(1, 12),
    "duration_months": _whole(0, MAX_DURATION),
}


def _as_label(name: str, args: checks.Arguments, kwargs: checks.Keywords) -> str:
    period = intended_period(args[0]) if len(args) == 1 and not kwargs else None
    return f'{name}.parse("{period.label}")' if period else ""


class _Checked(StructMeta):
    """Checks what is constructed in Python; wrong arguments are explained as by
    `checks.explained`.

    Not `__post_init__`: a decoder, which checks by Meta, would call that too, once for
    each value.
    """

    if not TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            try:
                made = super().__call__(*args, **kwargs)
            except TypeError:
                if (error := checks.misuse(self, args, kwargs, _as_label)) is None:
                    raise
            else:
                # One expression first: arguments are nearly always valid.
                year, end_month, duration = (
                    made.year,
                    made.end_month,
                    made.duration_months,
                )
                if not (
                    type(year) is type(end_month) is type(duration) is int
                    and 1 <= year <= 9_999
                    and 1 <= end_month <= 12
                    and 0 <= duration <= MAX_DURATION
                ):
                    for name, check in _CHECKS.items():
                        check(name, getattr(made, name))
                return made
            raise error


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
        # A year that begins in January ends in its own calendar year, whatever it is
        # named after.
        later = 1 if named_after == "start" and year_end < 12 else 0
        year, index = divmod(self.fiscal_end - 1 + (year_end - 12) + 12 * later, 12)
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
        if not isinstance(label, str) or (period := read_label(label)) is None:
            intended = intended_period(label)
            raise SelectionError(
                "period must be a label such as FY2024, FY2024-Q3, FY2024-H1, "
                f"FY2024-9M or FY2024-11-05M, not {checks.short_repr(label)}",
                instead=intended and intended.label,
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
    r"FY(?P<fiscal>\d{4})"
    r"|(?:FY)?(?P<year>\d{4})-(?:Q(?P<quarter>[1-4])|H(?P<half>[12])|(?P<nine>9M)|(?P<month>\d\d)-(?P<duration>\d{2,10})M)"
)


def read_label(text: str) -> Period | None:
    """Return the period of a label, also without its FY (2024-Q3, but not 2024); None
    for other texts.
    """
    period = _parsed(text)
    # Labels are used as keys, so FY2024-H2 must have no second one, FY2024-12-06M.
    return (
        period if period is not None and period.label in (text, f"FY{text}") else None
    )


def fiscal_month(period: Period) -> str:
    """Return the fiscal month in which a period ends: FY2024-09."""
    return f"FY{period.year:04d}-{period.end_month:02d}"


def _parsed(label: str) -> Period | None:
    """Return the period of a label or of a longer form of it (FY2024-12-12M); None for
    other texts.
    """
    found = re.fullmatch(_LABEL, label, re.ASCII)
    if found is None:
        return None
    if found["month"]:
        return Period(int(found["year"]), int(found["month"]), int(found["duration"]))
    year = int(found["fiscal"] or found["year"])
    return _part(year, found["quarter"], found["half"], 9 if found["nine"] else 12)


def _part(year: int, quarter: str | None, half: str | None, months: int) -> Period:
    """Return a quarter or a half of a year, or its first months."""
    if quarter:
        return Period(year, int(quarter) * 3, 3)
    return Period(year, int(half) * 6, 6) if half else Period(year, months, months)


# A smaller bare year is probably a count.
LEAST_BARE_YEAR = 1000
_SEPARATOR = r"[\s_./'\u2019-]*"
_YEAR = rf"(?P<fiscal>FY)?{_SEPARATOR}(?P<year>\d{{4}}|\d\d)(?P<after>{_SEPARATOR}FY)?"
_PART = r"(?:Q(?P<q>[1-4])|(?P<nq>[1-4])Q|H(?P<h>[12])|(?P<nh>[12])H|(?P<m>3|6|9|12)M)"
# Compiled where a mistake is explained, and not for every program.
_MISTAKEN = (_YEAR, f"{_YEAR}{_SEPARATOR}{_PART}", f"{_PART}{_SEPARATOR}{_YEAR}")


def intended_period(value: object) -> Period | None:
    """Return the period that a value probably means, e.g. for FY23, 1Q23, "2024" or
    2024; None for others.
    """
    match value:
        case Period():
            return value
        case int() if type(value) is int and LEAST_BARE_YEAR <= value <= 9_999:
            return Period(value, 12, 12)
        case str():
            try:
                return _parsed(value) or _read_mistaken(value.strip())
            except SelectionError:  # month 13, or year 0
                return None
    return None


def _read_mistaken(text: str) -> Period | None:
    flags = re.ASCII | re.IGNORECASE
    found = next(
        filter(None, (re.fullmatch(pattern, text, flags) for pattern in _MISTAKEN)),
        None,
    )
    if found is None:
        return None
    given = found.groupdict()
    year = int(given["year"])
    if len(given["year"]) == 2:
        # Two digits alone are probably a count.
        if not any(value for name, value in given.items() if name != "year"):
            return None
        year += 1900 if year >= 70 else 2000
    quarter, half = given.get("q") or given.get("nq"), given.get("h") or given.get("nh")
    return _part(year, quarter, half, int(given.get("m") or 12))


def period_hint(value: object) -> str:
    """Return ``; write "FY2023"`` for a value that probably means a period; "" for any
    other.
    """
    period = intended_period(value)
    return f'; write "{period.label}"' if period else ""
