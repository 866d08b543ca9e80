"""Fiscal periods (spec 2.1), and the ways to ask for them (spec 4.3)."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, TypeAlias

from attrs import field, frozen
from msgspec import Meta, Struct

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.model.words import counted

# The service sets no bound; this is what a column of 32 bits holds.
MAX_DURATION = 2**31 - 1


def _whole(least: int, most: int) -> checks.Check:
    return checks.whole_number(least, most).as_selection_error()


_CHECKS = {"year": _whole(1, 9_999), "end_month": _whole(1, 12), "duration_months": _whole(0, MAX_DURATION)}


# A Struct and not an attrs class: msgspec decodes it in C, once for each value of an answer.
class Period(Struct, frozen=True, order=True, gc=False):
    """A span of fiscal months (spec 2.1), ordered by year, end month and duration.

    Args:
        year: the fiscal year, 1 to 9999.
        end_month: the fiscal month in which the period ends, 1 to 12. It is no calendar month.
        duration_months: its length in months; 0 for a point in time, such as the end of a range.

    Raises:
        SelectionError: a field is not a whole number in its range.

    >>> Period(2024, 9, 3).label
    '2024-Q3'
    >>> Period.parse("FY2024")
    Period(2024, 12, 12)
    """

    year: Annotated[int, Meta(ge=1, le=9_999)]
    end_month: Annotated[int, Meta(ge=1, le=12)]
    duration_months: Annotated[int, Meta(ge=0, le=MAX_DURATION)]

    def __post_init__(self) -> None:
        year, end_month, duration = self.year, self.end_month, self.duration_months
        # Decoding has checked by Meta and still comes here, once for each value: so first in one expression.
        if not (
            type(year) is type(end_month) is type(duration) is int
            and 1 <= year <= 9_999
            and 1 <= end_month <= 12
            and 0 <= duration <= MAX_DURATION
        ):
            for name, check in _CHECKS.items():
                check(name, getattr(self, name))

    @property
    def fiscal_end(self) -> int:
        """The last month as a number, so that months can be counted: ``year * 12 + end_month``."""
        return self.year * 12 + self.end_month

    @property
    def label(self) -> str:
        """The one text form: FY2024, 2024-Q3, 2024-H1, 2024-9M, and for all others 2024-11-05M."""
        year = f"{self.year:04d}"
        # A label stands for one period and a period has one label: three months that end in month 4 are no
        # quarter.
        match self.duration_months, self.end_month:
            case 12, 12:
                return f"FY{year}"
            case 3, 3 | 6 | 9 | 12:
                return f"{year}-Q{self.end_month // 3}"
            case 6, 6 | 12:
                return f"{year}-H{self.end_month // 6}"
            case 9, 9:
                return f"{year}-9M"
        return f"{year}-{self.end_month:02d}-{self.duration_months:02d}M"

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"Period({self.year}, {self.end_month}, {self.duration_months})"

    @classmethod
    def parse(cls, label: str) -> "Period":
        """Return the period of a label.

        Raises:
            SelectionError: the text is no period's label.
        """
        period = _parsed(label) if isinstance(label, str) else None
        # One text for each period: labels are used as keys, and 2024-H2 must not stand beside 2024-12-06M.
        if period is None or period.label != label:
            raise SelectionError(
                "period must be a label such as FY2024, 2024-Q3, 2024-H1, 2024-9M or 2024-11-05M,"
                f" not {label!r}" + (f"; this one is written {period.label}" if period else _year_hint(label))
            )
        return period


# \d{2,10}: at least two digits, as `label` writes them, and no more than 32 bits can have.
_LABEL = (
    r"FY(?P<fiscal>\d{4})"
    r"|(?P<year>\d{4})-(?:Q(?P<quarter>[1-4])|H(?P<half>[12])|(?P<nine>9M)|(?P<month>\d\d)-(?P<duration>\d{2,10})M)"
)


def _parsed(label: str) -> Period | None:
    """Return the period that a text describes, in the one form or another; None for other texts."""
    found = re.fullmatch(_LABEL, label, re.ASCII)
    if found is None:
        return None
    if found["fiscal"]:
        return Period(int(found["fiscal"]), 12, 12)
    year = int(found["year"])
    if found["quarter"]:
        return Period(year, int(found["quarter"]) * 3, 3)
    if found["half"]:
        return Period(year, int(found["half"]) * 6, 6)
    if found["nine"]:
        return Period(year, 9, 9)
    return Period(year, int(found["month"]), int(found["duration"]))


Bound: TypeAlias = Period | str | tuple[int, int] | int

# A smaller bare year is taken for a count that stands in the wrong place.
_LEAST_BARE_YEAR = 1000


def _bound(name: str, value: Bound | None, month: int) -> Period | None:
    """Return one end of a range as a point in time; `month` completes a bare year."""
    match value:
        case None:
            return None
        case Period():
            return Period(value.year, value.end_month, 0)
        # Only the one text form, as in `Period.parse`.
        case str() if (period := _parsed(value)) and period.label == value:
            return Period(period.year, period.end_month, 0)
        case (year, end_month):
            return Period(year, end_month, 0)
        case int() if type(value) is int:
            if 0 < value < _LEAST_BARE_YEAR:
                raise SelectionError(f"{name} is the year {value}; for the latest {value} write last={value}")
            return Period(value, month, 0)
    raise SelectionError(
        f"{name} must be a Period or its label (FY2024, 2024-Q3), a pair (year, end_month) of fiscal months"
        f" or a year, not {checks.short_repr(value)}"
    )


def _start(value: Bound | None) -> Period | None:
    return _bound("start", value, 1)


def _end(value: Bound | None) -> Period | None:
    return _bound("end", value, 12)


def _check_order(start: Period | None, end: Period | None) -> None:
    if start is not None and end is not None and end < start:
        raise SelectionError(
            f"end must not be before start: {end.year}-{end.end_month:02d} is before"
            f" {start.year}-{start.end_month:02d}"
        )


def _year_hint(value: object) -> str:
    """Return how a bare year is written as a label; "" for anything else."""
    year = re.fullmatch(r"[1-9]\d{3}", str(value), re.ASCII) if isinstance(value, (int, str)) else None
    return f'; write "FY{value}"' if year else ""


def _distinct_periods(value: Iterable[Period | str]) -> tuple[Period, ...]:
    if not isinstance(value, (Period, str, Iterable)):
        raise SelectionError(f"periods must be Periods or their labels, not {value!r}{_year_hint(value)}")
    # A label is a str, which is iterable too: taken for a collection it would be one of letters.
    given = (value,) if isinstance(value, (Period, str)) else tuple(value)
    periods = tuple(Period.parse(each) if isinstance(each, str) else each for each in given)
    for period in periods:
        if not isinstance(period, Period):
            raise SelectionError(
                f"periods must hold Periods or their labels, not {period!r}{_year_hint(period)}"
            )
    if not periods:
        raise SelectionError("periods must name at least one period")
    # The spec does not say what repeating a period means, so it is refused.
    if len(set(periods)) < len(periods):
        twice = next(period for period in periods if periods.count(period) > 1)
        raise SelectionError(f"periods must be distinct: {twice} is named twice")
    return periods


@frozen
class Exact:
    """Exactly these periods (spec 4.3, mode ``exact``): Periods or their labels.

    A panel has all of them, without values where the catalogue does not have the period. To ask for none
    that the catalogue has is a SelectionError when the question is planned.

    Raises:
        SelectionError: no period is named, or one is named twice.

    >>> Exact(["FY2023", "FY2024"]).periods[0].year
    2023
    """

    periods: tuple[Period, ...] = field(converter=_distinct_periods)


@frozen
class FiscalRange:
    """All periods whose fiscal end lies between two ends, both included (spec 4.3, mode ``fiscal_range``).

    Every duration counts: quarters, half years and years side by side.

    Args:
        start: a Period or its label, of which the fiscal end counts (``"FY2024"`` means from month 12
            of 2024 on); a pair ``(year, end_month)``; or a year, meaning its first month. None: the
            first fiscal end of the catalogue.
        end: likewise, a year meaning its last month. None: the last fiscal end of the catalogue.

    Raises:
        SelectionError: the end is before the start, or one is neither a period nor a year; a bare year
            below 1000 is refused.
    """

    start: Period | None = field(default=None, converter=_start)
    end: Period | None = field(default=None, converter=_end)

    def __attrs_post_init__(self) -> None:
        _check_order(self.start, self.end)


@frozen
class Trailing:
    """The last months up to the latest period with a value in a selected series (spec 4.3, ``trailing``).

    Args:
        months: the length of the window, 1 to 120,000.

    Raises:
        SelectionError: `months` is not a whole number in that range.
    """

    months: int = field(validator=_whole(1, 120_000).field)

    def reaches(self, period: Period, anchor: Period) -> bool:
        """Return whether a period is in the window that ends at the anchor, whatever its duration.

        The spec names no bounds. Our reading: its fiscal end is one of the `months` months that end
        with the anchor's.
        """
        return anchor.fiscal_end - self.months < period.fiscal_end <= anchor.fiscal_end


@frozen
class _Rule:
    """Periods of one kind, found in the catalogue at every planning."""

    # Not a type of the spec: the client turns it into `Exact` (spec 4.3 advises that for annual values).

    start: Period | None = field(default=None, converter=_start)
    end: Period | None = field(default=None, converter=_end)
    last: int | None = field(default=None, validator=_whole(1, 9_999).optional().field)

    def __attrs_post_init__(self) -> None:
        _check_order(self.start, self.end)

    def admits(self, period: Period) -> bool:
        """Return whether a period is of this kind, wherever it lies."""
        raise NotImplementedError

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        """Return those of the periods that the rule means, oldest first."""
        meant = sorted(
            period
            for period in periods
            if self.admits(period)
            and (self.start is None or self.start.fiscal_end <= period.fiscal_end)
            and (self.end is None or period.fiscal_end <= self.end.fiscal_end)
        )
        return tuple(meant[-self.last :] if self.last else meant)


class Annual(_Rule):
    """The catalogue's fiscal years: periods of 12 months that end in fiscal month 12.

    Args:
        start: as for `FiscalRange`, included.
        end: as for `FiscalRange`, included.
        last: how many of the latest ones to keep. None: all.
    """

    __slots__ = ()

    def admits(self, period: Period) -> bool:
        return period.duration_months == 12 and period.end_month == 12


class Quarterly(_Rule):
    """The catalogue's periods of 3 months. Arguments as for `Annual`."""

    __slots__ = ()

    def admits(self, period: Period) -> bool:
        return period.duration_months == 3


Resolved: TypeAlias = Exact | FiscalRange | Trailing
PeriodSelection: TypeAlias = Resolved | Annual | Quarterly


def check_period_selection(selection: object) -> None:
    """Refuse anything but one of the five. For a period or its label, the error names the one that takes it.

    Raises:
        SelectionError
    """
    if isinstance(selection, (Exact, FiscalRange, Trailing, Annual, Quarterly)):
        return
    raise SelectionError(
        "periods must be Exact, FiscalRange, Trailing, Annual or Quarterly,"
        f" not {checks.short_repr(selection)}{_exact_hint(selection)}"
    )


def _exact_hint(selection: object) -> str:
    """Return how periods or their labels, or years, are asked for; "" for anything else."""
    given = selection if isinstance(selection, (list, tuple, set, frozenset)) else (selection,)
    labels = [label for each in given if (label := _label_of(each))]
    if not labels or len(labels) < len(given):
        return ""
    return f"; write Exact({labels if len(labels) > 1 else labels[0]!r})"


def _label_of(value: object) -> str | None:
    if isinstance(value, Period) or (isinstance(value, str) and _parsed(value)):
        return str(value)
    return f"FY{value}" if type(value) is int and _LEAST_BARE_YEAR <= value <= 9_999 else None


def resolve(selection: PeriodSelection, periods: Iterable[Period]) -> Resolved | None:
    """Return what to ask for, given the periods of a catalogue; None where it holds none of them.

    A rule becomes `Exact` over the periods it means; the open ends of a range become the first and
    last fiscal ends of the catalogue.
    """
    check_period_selection(selection)
    match selection:
        case Annual() | Quarterly():
            meant = selection.among(periods)
            return Exact(meant) if meant else None
        case FiscalRange(start=start, end=end):
            # The spec requires both ends of a range (spec 4.3), so open ones are filled in.
            known = sorted(period.fiscal_end for period in periods)
            if not known:
                return None
            # From a count of months back to year and month: month 12 must not become month 0.
            first, last = (Period((end - 1) // 12, (end - 1) % 12 + 1, 0) for end in (known[0], known[-1]))
            start, end = start or first, end or last
            # A range beside the catalogue's periods would be answered with nothing, at the cost of a request.
            return FiscalRange(start, end) if start <= last and first <= end else None
    return selection


def describe(selection: Any) -> str:
    """Return a period selection as a short line for people."""
    match selection:
        case Exact(periods=periods):
            return f"exactly {', '.join(period.label for period in periods)}"
        case Trailing(months=months):
            return f"the last {counted(months, 'month')}"
        case FiscalRange(start=None, end=None):
            return "all periods"
        case FiscalRange(start=start, end=end):
            return f"the periods{_that_end(start, end)}"
        case _Rule(start=start, end=end, last=last):
            kind = "fiscal year" if isinstance(selection, Annual) else "fiscal quarter"
            which = f"the last {counted(last, kind)}" if last else f"all {kind}s"
            return f"{which}{_that_end(start, end)}"
    return repr(selection)


def _that_end(start: Period | None, end: Period | None) -> str:
    """Return the fiscal ends between which periods lie as a clause; "" without any."""
    first, last = (point and f"{point.year}-{point.end_month:02d}" for point in (start, end))
    if first and last:
        return f" that end from {first} to {last}"
    return f" that end in {first} or later" if first else f" that end in {last} or earlier" if last else ""
