"""Fiscal periods (spec 2.1) and period selections (spec 4.3)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Protocol, TypeAlias, cast

from attrs import Converter, evolve, field, frozen
from msgspec import Meta, Struct, StructMeta

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.model.words import counted, listed, spanned

# The service sets no bound; this is what a column of 32 bits holds.
MAX_DURATION = 2**31 - 1


def _whole(least: int, most: int) -> checks.Check:
    return checks.whole_number(least, most).as_selection_error()


_CHECKS = {"year": _whole(1, 9_999), "end_month": _whole(1, 12), "duration_months": _whole(0, MAX_DURATION)}


def _as_label(name: str, args: checks.Arguments, kwargs: checks.Keywords) -> str:
    period = intended_period(args[0]) if len(args) == 1 and not kwargs else None
    return f'{name}.parse("{period.label}")' if period else ""


class _Checked(StructMeta):
    """Checks what is constructed in Python; wrong arguments are explained as by `checks.explained`.

    Not `__post_init__`: a decoder, which checks by Meta, would call that too, once for each value.
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
                year, end_month, duration = made.year, made.end_month, made.duration_months
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


# A Struct and not an attrs class: msgspec decodes it in C, once for each value of a response.
class Period(Struct, metaclass=_Checked, frozen=True, order=True, gc=False):
    """A range of fiscal months (spec 2.1), ordered by year, end month and duration.

    Args:
        year: the fiscal year, 1 to 9999.
        end_month: the fiscal month in which the period ends, 1 to 12; not a calendar month.
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

    @property
    def fiscal_start(self) -> int:
        """The first month, counted as `fiscal_end` is; a period of duration 0 starts where it ends."""
        return self.fiscal_end - max(self.duration_months - 1, 0)

    @property
    def fiscal_end(self) -> int:
        """The last month as a number, so that months can be counted: ``year * 12 + end_month``."""
        return self.year * 12 + self.end_month

    @property
    def label(self) -> str:
        """The only text form: FY2024, 2024-Q3, 2024-H1, 2024-9M; for all others 2024-11-05M."""
        year = f"{self.year:04d}"
        # Every period has one label: three months that end in month 4 are not a quarter.
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
    def parse(cls, label: str) -> Period:
        """Return the period of a label.

        Raises:
            SelectionError: the text is not the label of a period.
        """
        period = _parsed(label) if isinstance(label, str) else None
        # Labels are used as keys, so 2024-H2 must have no second one, 2024-12-06M.
        if period is None or period.label != label:
            raise SelectionError(
                "period must be a label such as FY2024, 2024-Q3, 2024-H1, 2024-9M or 2024-11-05M,"
                f" not {checks.short_repr(label)}{period_hint(label)}"
            )
        return period


# \d{2,10}: at least two digits, as `label` writes them, and no more than 32 bits can have.
_LABEL = (
    r"FY(?P<fiscal>\d{4})"
    r"|(?P<year>\d{4})-(?:Q(?P<quarter>[1-4])|H(?P<half>[12])|(?P<nine>9M)|(?P<month>\d\d)-(?P<duration>\d{2,10})M)"
)


def _parsed(label: str) -> Period | None:
    """Return the period of a label or of a longer form of it (2024-12-12M); None for other texts."""
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


# How many years, and how many of the given labels, an error proposes at most.
_FEW_YEARS = 3
_MOST_LABELS = 20
# A smaller bare year is probably a count.
_LEAST_BARE_YEAR = 1000
_SEPARATOR = r"[\s_./'\u2019-]*"
_YEAR = rf"(?P<fiscal>FY)?{_SEPARATOR}(?P<year>\d{{4}}|\d\d)(?P<after>{_SEPARATOR}FY)?"
_PART = r"(?:Q(?P<q>[1-4])|(?P<nq>[1-4])Q|H(?P<h>[12])|(?P<nh>[12])H|(?P<m>3|6|9|12)M)"
_MISTAKEN = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (_YEAR, f"{_YEAR}{_SEPARATOR}{_PART}", f"{_PART}{_SEPARATOR}{_YEAR}")
)


def intended_period(value: object) -> Period | None:
    """Return the period that a value probably means, e.g. for FY23, 1Q23, "2024" or 2024; None for others."""
    match value:
        case Period():
            return value
        case int() if type(value) is int and _LEAST_BARE_YEAR <= value <= 9_999:
            return Period(value, 12, 12)
        case str():
            try:
                return _parsed(value) or _read_mistaken(value.strip())
            except SelectionError:  # month 13, or year 0
                return None
    return None


def _read_mistaken(text: str) -> Period | None:
    found = next(filter(None, (pattern.fullmatch(text) for pattern in _MISTAKEN)), None)
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
    """Return ``; write "FY2023"`` for a value that probably means a period; "" for any other."""
    period = intended_period(value)
    return f'; write "{period.label}"' if period else ""


Bound: TypeAlias = Period | str | tuple[int, int] | int


def _bound(name: str, value: Bound | None, *, start: bool, whole_years: bool = False) -> Period | None:
    """Return one end of a range as a point in time: of a period, its first month or its last."""
    match value:
        case None:
            return None
        case str() if (period := _parsed(value)) and period.label == value:
            value = period
        case (year, end_month):
            return Period(year, end_month, 0)
        case int() if type(value) is int:
            if 0 < value < _LEAST_BARE_YEAR:
                latest = f"Annual(last={value}) or Quarterly(last={value})"
                raise SelectionError(f"{name} is the year {value}; for the latest {value} write {latest}")
            return Period(value, 1 if start else 12, 0)
    if not isinstance(value, Period):
        raise SelectionError(
            f"{name} must be a Period or its label (FY2024, 2024-Q3), a pair (year, end_month) of fiscal"
            f" months or a year, not {checks.short_repr(value)}{period_hint(value)}"
        )
    # Fiscal years end in month 12, so the month of the start makes no difference. The period's end month is
    # kept: it is what the written questions of existing extractions contain.
    if not start or (whole_years and value.duration_months <= value.end_month):
        return Period(value.year, value.end_month, 0)
    return _point(value.fiscal_start)


def _point(month: int) -> Period:
    """Return the point in time of a month counted as in `Period.fiscal_end`; not before month 1 of year 1."""
    year, index = divmod(max(month, 13) - 1, 12)
    return Period(year, index + 1, 0)


def _start(value: Bound | None, self_: Any) -> Period | None:
    return _bound("start", value, start=True, whole_years=isinstance(self_, Annual))


# Annotated, since pyright takes a Converter for one of Periods only.
_as_start: Callable[[Bound | None], Period | None] = cast(Any, Converter(_start, takes_self=True))


def _end(value: Bound | None) -> Period | None:
    return _bound("end", value, start=False)


class Listing(Protocol):
    """What lists periods: a `Catalogue`."""

    @property
    def periods(self) -> tuple[Period, ...]: ...


def _distinct_periods(value: Iterable[Period | str]) -> tuple[Period, ...]:
    if not isinstance(value, (Period, str, Iterable)):
        raise SelectionError(
            f"periods must be Periods or their labels, not {checks.short_repr(value)}{period_hint(value)}"
        )
    # A label is a str, which is iterable too.
    given = (value,) if isinstance(value, (Period, str)) else tuple(value)
    periods = tuple(Period.parse(each) if isinstance(each, str) else each for each in given)
    for period in periods:
        if not isinstance(period, Period):
            raise SelectionError(
                "periods must contain Periods or their labels,"
                f" not {checks.short_repr(period)}{period_hint(period)}"
            )
    if not periods:
        raise SelectionError("periods must name at least one period")
    # The spec does not say what repeating a period means, so it is refused.
    if len(set(periods)) < len(periods):
        twice = next(period for period in periods if periods.count(period) > 1)
        raise SelectionError(f"periods must be distinct: {twice} is named twice")
    return periods


def _shortened(labels: Sequence[object]) -> str:
    """Return a list of labels as Python, its end left out where it is long."""
    end = ", ..." if len(labels) > _MOST_LABELS else ""
    return f"[{', '.join(map(repr, labels[:_MOST_LABELS]))}{end}]"


def _one_collection(name: str, args: checks.Arguments, kwargs: checks.Keywords) -> str:
    if kwargs or not args:
        return f'{name}(["FY2023", "FY2024"])'
    labels = [period.label if (period := intended_period(each)) else each for each in args]
    return f"{name}({_shortened(labels)})"


@checks.explained(_one_collection)
@frozen
class Exact:
    """Exactly these periods (spec 4.3, mode ``exact``): Periods or their labels.

    A panel has all of them, without values where the catalogue does not list the period. If the catalogue
    lists none of them, planning raises SelectionError.

    Raises:
        SelectionError: no period is named, or one is named twice.

    >>> Exact(["FY2023", "FY2024"]).periods[0].year
    2023
    """

    periods: tuple[Period, ...] = field(converter=_distinct_periods)

    def resolve(self, catalogues: Listing | Iterable[Listing]) -> Exact:
        """Return these periods, so that every selection but `Trailing` can be resolved. No request.

        Raises:
            SelectionError: none of the catalogues lists any of them.
        """
        if not set(self.periods).intersection(union := _union(catalogues)):
            raise _unresolved(self, union)
        return self


def _count(kwargs: checks.Keywords) -> object:
    """Return the only keyword argument if it is a number; None otherwise."""
    (value,) = kwargs.values() if len(kwargs) == 1 else (None,)
    return value if type(value) is int else None


def _latest(name: str, args: checks.Arguments, kwargs: checks.Keywords) -> str:
    return f"{name}(last={count})" if (count := _count(kwargs)) and not args else ""


def _start_and_end(name: str, args: checks.Arguments, kwargs: checks.Keywords) -> str:
    return f"{name}(2023, 2024), or Annual(last=...) or Quarterly(last=...) for the latest"


@checks.explained(_start_and_end)
@frozen
class _Bounded:
    """Periods between two ends."""

    start: Period | None = field(default=None, converter=_as_start)  # type: ignore[misc]
    end: Period | None = field(default=None, converter=_end)

    def __attrs_post_init__(self) -> None:
        start, end = self.start, self.end
        if start is not None and end is not None and end < start:
            raise SelectionError(
                f"end must not be before start: {end.year}-{end.end_month:02d} is before"
                f" {start.year}-{start.end_month:02d}"
            )

    def admits(self, period: Period) -> bool:
        """Return whether a period is of the kind that is selected, whatever its end."""
        raise NotImplementedError

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        """Return those of the periods that are selected, oldest first."""
        return tuple(
            sorted(
                period
                for period in periods
                if self.admits(period)
                and (self.start is None or self.start.fiscal_end <= period.fiscal_end)
                and (self.end is None or period.fiscal_end <= self.end.fiscal_end)
            )
        )

    def resolve(self, catalogues: Listing | Iterable[Listing]) -> Exact:
        """Return the selected periods of one or several catalogues as `Exact`, oldest first. No request.

        Resolve once to compare companies: left as a rule, ``last=2`` selects different years for companies
        whose latest years differ.

        Args:
            catalogues: a Catalogue or several; the periods of all of them together count.

        Raises:
            SelectionError: none of the catalogues has such a period.
        """
        if not (periods := self.among(union := _union(catalogues))):
            raise _unresolved(self, union)
        return Exact(periods)


def _union(catalogues: Listing | Iterable[Listing]) -> set[Period]:
    # A Catalogue is iterable too, over its series.
    several = (catalogues,) if hasattr(catalogues, "periods") else catalogues
    given = tuple(several) if isinstance(several, Iterable) and not isinstance(several, str) else ()
    if not given or not all(hasattr(each, "periods") for each in given):
        raise SelectionError(
            f"catalogues must be a Catalogue or several, not {checks.short_repr(catalogues)};"
            " write await client.catalogue(entity_id)"
        )
    return {period for each in given for period in each.periods}


def _unresolved(selection: object, union: Iterable[Period]) -> SelectionError:
    return SelectionError(
        f"periods: no catalogue has any of {describe(selection)}; there are {existing(union, selection)}"
    )


class FiscalRange(_Bounded):
    """All periods whose fiscal end lies between two ends, both included (spec 4.3, mode ``fiscal_range``).

    Every duration counts: quarters, half years and years side by side.

    Args:
        start: a Period or its label, meaning its first month (``"FY2024"`` is month 1 of 2024); a pair
            ``(year, end_month)``, meaning that fiscal end; or a year, meaning its first month. None: the
            first fiscal end of the catalogue.
        end: likewise; a Period or a year means its last month, so ``"FY2024"`` to ``"FY2024"`` is the
            whole year. None: the last fiscal end of the catalogue.

    Raises:
        SelectionError: the end is before the start, or one is neither a period nor a year; a bare year
            below 1000 is refused.
    """

    __slots__ = ()

    def admits(self, period: Period) -> bool:
        return True


_IN_MONTHS = {
    **dict.fromkeys(("y", "yr", "year", "years"), 12),
    **dict.fromkeys(("q", "quarter", "quarters"), 3),
    **dict.fromkeys(("m", "month", "months"), 1),
}


def intended_count(value: object, *, months: bool = False) -> int | None:
    """Return the whole number that a value probably means, e.g. for "5", 5.0 or "5y"; None for others.

    With `months`, years and quarters are converted: "1Y" is 12, and so is "TTM".
    """
    if isinstance(value, float) and value.is_integer():
        return int(value)
    text = value.strip().lower() if isinstance(value, str) else ""
    if months and text in ("ttm", "ltm"):
        return 12
    found = re.fullmatch(r"(\d{1,6})\s*([a-z]*)\.?", text, re.ASCII)
    return found and int(found[1]) * (_IN_MONTHS.get(found[2], 1) if months else 1)


def _months(name: str, args: checks.Arguments, kwargs: checks.Keywords) -> str:
    (unit,) = kwargs if len(kwargs) == 1 else ("",)
    count = _count(kwargs)
    in_months = _IN_MONTHS.get(unit)
    return f"{name}({count * in_months if isinstance(count, int) and in_months else 12})"


_window = _whole(1, 120_000)


def _trailing_hint(value: object) -> str:
    count = intended_count(value, months=True)
    return f"; write Trailing({count})" if _window.holds(count) else ""


@checks.explained(_months)
@frozen
class Trailing:
    """The last months up to the latest period with a value in a selected series (spec 4.3, ``trailing``).

    A period is in the window if anchor - months < its fiscal end <= anchor, whatever its duration; the
    anchor is that latest period, in the requested value version.

    Args:
        months: the length of the window, 1 to 120,000.

    Raises:
        SelectionError: `months` is not a whole number in that range.
    """

    months: int = field(validator=evolve(_window, hint=_trailing_hint).field)

    def contains(self, period: Period, anchor: Period) -> bool:
        """Return whether a period is in the window that ends at the anchor, whatever its duration."""
        return anchor.fiscal_end - self.months < period.fiscal_end <= anchor.fiscal_end

    def resolve(self, catalogues: Listing | Iterable[Listing]) -> NoReturn:
        """Raise SelectionError: the window ends at a company's latest value, which no catalogue contains."""
        raise SelectionError(
            f"Trailing({self.months}) ends at the latest value of one company and cannot be resolved over"
            " catalogues; write Quarterly(last=...), Annual(last=...) or FiscalRange(start, end)"
        )


_how_many = _whole(1, 9_999)


def _last_hint(value: object) -> str:
    count = intended_count(value)
    return f"; write last={count}" if _how_many.holds(count) else ""


@checks.explained(_latest)
@frozen
class _Rule(_Bounded):
    """Periods of one kind, found in the catalogue at every planning."""

    # Not a type of the spec: the client turns it into `Exact` (spec 4.3 advises that for annual values).

    last: int | None = field(default=None, validator=evolve(_how_many.optional(), hint=_last_hint).field)

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        meant = super().among(periods)
        return meant[-self.last :] if self.last else meant


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
    """Refuse anything but one of the five; for periods and labels, the error says how to select them."""
    if not isinstance(selection, (Exact, FiscalRange, Trailing, Annual, Quarterly)):
        raise SelectionError(
            "periods must be Exact, FiscalRange, Trailing, Annual or Quarterly,"
            f" not {checks.short_repr(selection)}{_exact_hint(selection)}"
        )


def _exact_hint(selection: object) -> str:
    """Return how to select periods that are given without `Exact`, or by a class; "" for anything else."""
    if isinstance(selection, type) and selection in (Annual, Quarterly, FiscalRange):
        return f"; write {selection.__name__}()"
    given = selection if isinstance(selection, (list, tuple, set, frozenset)) else (selection,)
    labels = [period.label for each in given if (period := intended_period(each))]
    if not labels or len(labels) < len(given):
        return ""
    return f"; write Exact({_shortened(labels) if len(labels) > 1 else repr(labels[0])})"


def resolve(selection: PeriodSelection, periods: Iterable[Period]) -> Resolved | None:
    """Return what to request, given the periods of a catalogue; None where none of them is selected.

    A rule becomes `Exact`; the open ends of a range become the first and last fiscal ends of the catalogue.
    """
    check_period_selection(selection)
    match selection:
        case Exact():
            return None if set(selection.periods).isdisjoint(periods) else selection
        case Annual() | Quarterly():
            meant = selection.among(periods)
            return Exact(meant) if meant else None
        case FiscalRange(start=start, end=end):
            # The spec requires both ends of a range (spec 4.3), so open ones are filled in.
            known = sorted(period.fiscal_end for period in periods)
            if not known:
                return None
            first, last = _point(known[0]), _point(known[-1])
            start, end = start or first, end or last
            # A range outside the catalogue's periods would cost a request and contain nothing.
            return FiscalRange(start, end) if start <= last and first <= end else None
    return selection


def existing(periods: Iterable[Period], selection: object) -> str:
    """Return which periods there are, for the error about a selection that selects none of them."""
    known = sorted(periods)
    if not known:
        return "no periods"
    return f"{counted(len(known), 'period')}, {spanned(known)}{_other_kind(selection, known)}"


def _other_kind(selection: object, known: Sequence[Period]) -> str:
    """Return a clause about the kind that a rule selects; "" if there are periods of that kind."""
    if not isinstance(selection, _Rule) or any(map(selection.admits, known)):
        return ""
    if not any(period.duration_months for period in known):
        return "; all of them have duration 0 (points in time): write FiscalRange() to select them"
    if isinstance(selection, Quarterly):
        return "; none of them has 3 months"
    years = [period for period in known if period.duration_months == 12]
    if not years:
        return "; none of them has 12 months"
    months = " and ".join(str(month) for month in sorted({period.end_month for period in years}))
    latest = years[-selection.last :] if selection.last else years[-_FEW_YEARS:]
    return (
        f"; its periods of 12 months end in fiscal month {months}, from {spanned(years)}, and Annual selects"
        f" those that end in month 12: write Exact({[period.label for period in latest]})"
    )


def describe(selection: Any) -> str:
    """Return a period selection as a short line for people."""
    match selection:
        case Exact(periods=periods):
            return f"exactly {listed([period.label for period in periods])}"
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
