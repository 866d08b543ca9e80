"""Period selections (spec 4.3): which periods a query means, in the words of code and
of people.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NoReturn, Protocol, TypeAlias

from attrs import asdict, field, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.model.period import (
    LEAST_BARE_YEAR,
    Period,
    guess_period,
    read_label,
    write_fiscal_month,
    write_hint,
)
from asyncfin.words import counted, listed, spanned

# Month 1 of year 1, counted as in `Period.fiscal_end`: a long period can start before
# it.
_FIRST_MONTH = 13

Bound: TypeAlias = Period | str | tuple[int, int] | int


def _read_bound(name: str, value: Bound | None, month: int) -> Period | None:
    """Return a bound as a period, or a point in time; `month` completes a year."""
    match value:
        case None:
            return None
        case str() if period := read_label(value):
            return period
        case (year, end_month):
            return Period(year, end_month, 0)
        case int() if type(value) is int:
            if 0 < value < LEAST_BARE_YEAR:
                latest = f"Annual(last={value}) or Quarterly(last={value})"
                raise SelectionError(
                    f"{name} is the year {value}; for the latest {value} write {latest}"
                )
            return Period(value, month, 0)
    if not isinstance(value, Period):
        raise SelectionError(
            f"{name} must be a year, a fiscal month (year, month) or a period such as "
            "FY2024-Q3, not "
            f"{checks.short_repr(value)}{write_hint(value)}"
        )
    return value


def _read_start(value: Bound | None) -> Period | None:
    period = _read_bound("start", value, 1)
    if period is None:
        return None
    return Period.ending(max(period.fiscal_start, _FIRST_MONTH))


def _read_end(value: Bound | None) -> Period | None:
    period = _read_bound("end", value, 12)
    if period is None:
        return None
    return Period.ending(period.fiscal_end)


class Listing(Protocol):
    """What lists periods: a `Catalogue`."""

    @property
    def periods(self) -> tuple[Period, ...]: ...


def _read_periods(value: Iterable[Period | str]) -> tuple[Period, ...]:
    # A label is a str, which is iterable too.
    if isinstance(value, str) or not isinstance(value, Iterable):
        value = [value]
    periods: dict[Period, None] = {}
    for period in value:
        if isinstance(period, str):
            period = Period.parse(period)
        if not isinstance(period, Period):
            raise SelectionError(
                "periods must be Periods or their labels, not "
                f"{checks.short_repr(period)}{write_hint(period)}"
            )
        # The spec does not define a repeated period, so it is rejected.
        if period in periods:
            raise SelectionError(f"periods must be distinct: {period} is named twice")
        periods[period] = None
    if not periods:
        raise SelectionError("periods must name at least one period")
    return tuple(periods)


class _Listed:
    """Periods that catalogues list."""

    __slots__ = ()

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        """Return the selected ones of a catalogue's periods."""
        raise NotImplementedError

    def resolve(self, catalogues: Listing | Iterable[Listing]) -> Exact:
        """Return the selected periods of one or more catalogues as `Exact`, oldest
        first. No request.

        Resolve once to compare entities: left as a rule, ``last=2`` selects different
        years for entities whose latest years differ. An `Exact` stays as it is.

        Args:
            catalogues: a Catalogue, or a collection; the periods of all of them
                together count.

        Raises:
            SelectionError: none of the catalogues has such a period.
        """
        listings: Any = catalogues
        # A Catalogue is iterable too, over its series.
        if hasattr(catalogues, "periods"):
            listings = [catalogues]
        try:
            parts = [listing.periods for listing in listings]
        except (AttributeError, TypeError):
            parts = []
        if not parts:
            raise SelectionError(
                "catalogues must be a Catalogue or a collection of them, not "
                f"{checks.short_repr(catalogues)}; write await "
                "client.catalogue(entity_id)"
            )
        union = set[Period]().union(*parts)
        periods = self.among(union)
        if not periods:
            has = f"periods: no catalogue has any of these: {self}; there are"
            raise nothing_selected(has, union, self)
        return Exact(periods)


@frozen(repr=False)
class Exact(_Listed):
    """Exactly these periods (spec 4.3, mode ``exact``): Periods or their labels.

    A panel has all of them, without values where the catalogue does not list the
    period. If the catalogue lists none of them, planning raises SelectionError.

    Raises:
        SelectionError: no period is named, or one is named twice.

    >>> Exact(["FY2023", "FY2024"]).periods[0].year
    2023
    """

    moves: ClassVar[bool] = False

    periods: tuple[Period, ...] = field(converter=_read_periods)

    def __repr__(self) -> str:
        labels = list(map(str, self.periods))
        if len(labels) == 1:
            return f"Exact({labels[0]!r})"
        return f"Exact({labels})"

    def __str__(self) -> str:
        return f"exactly {listed(list(map(str, self.periods)))}"

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        """Return these periods, or none if the catalogue lists none of them."""
        if set(self.periods).isdisjoint(periods):
            return ()
        return self.periods


@frozen(repr=False)
class _Bounded(_Listed):
    """Periods between two ends."""

    start: Period | None = field(default=None, converter=_read_start)
    end: Period | None = field(default=None, converter=_read_end)

    def __attrs_post_init__(self) -> None:
        start, end = self.start, self.end
        if start is not None and end is not None and end < start:
            first, last = write_fiscal_month(start), write_fiscal_month(end)
            raise SelectionError(
                f"end must not be before the start: {last} is before {first}"
            )

    def admits(self, period: Period) -> bool:
        """Return whether a period is of the kind that is selected, whatever its end."""
        return True

    def __repr__(self) -> str:
        arguments = []
        for name, value in asdict(self, recurse=False).items():
            if isinstance(value, Period):
                arguments.append(f"{name}={(value.year, value.end_month)}")
            elif value is not None:
                arguments.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _write_ends(self) -> str:
        """Return the ends as a clause for people; "" without any."""
        first = last = ""
        if self.start is not None:
            first = write_fiscal_month(self.start)
        if self.end is not None:
            last = write_fiscal_month(self.end)
        if first and last:
            return f" that end from {first} to {last}"
        if first:
            return f" that end in {first} or later"
        if last:
            return f" that end in {last} or earlier"
        return ""

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        """Return those of the periods that are selected, oldest first."""
        selected_periods = []
        for period in sorted(periods):
            if self.start is not None and period.fiscal_end < self.start.fiscal_end:
                continue
            if self.end is not None and period.fiscal_end > self.end.fiscal_end:
                continue
            if self.admits(period):
                selected_periods.append(period)
        return tuple(selected_periods)


@frozen(repr=False)
class FiscalRange(_Bounded):
    """All periods whose fiscal end lies between two ends, both included (spec 4.3, mode
    ``fiscal_range``).

    Every duration counts: quarters, half years and years side by side.

    Args:
        start: a Period or its label, meaning its first month (``"FY2024"`` is month 1
            of 2024); a pair ``(year, end_month)``, meaning that fiscal end; or a year,
            meaning its first month. None: the first fiscal end of the catalogue.
        end: likewise; a Period or a year means its last month, so ``"FY2024"`` to
            ``"FY2024"`` is the whole year. None: the last fiscal end of the catalogue.

    Raises:
        SelectionError: the end is before the start, or one is neither a period nor a
            year; a bare year below 1000 is rejected.
    """

    moves: ClassVar[bool] = False

    def __str__(self) -> str:
        ends = self._write_ends()
        if not ends:
            return "all periods"
        return f"the periods{ends}"


@frozen(repr=False)
class Trailing:
    """The last months up to the latest period with a value in a selected series (spec
    4.3, ``trailing``).

    A period is in the window if anchor - months < its fiscal end <= anchor, whatever
    its duration; the anchor is that latest period, in the requested value version.

    Args:
        months: the length of the window, 1 to 120,000.

    Raises:
        SelectionError: `months` is not a whole number in that range.
    """

    moves: ClassVar[bool] = True

    months: int = field(
        validator=checks.whole_number(1, 120_000).as_selection_error().field
    )

    def __repr__(self) -> str:
        return f"Trailing({self.months})"

    def __str__(self) -> str:
        return f"the last {counted(self.months, 'month')}"

    def contains(self, period: Period, anchor: Period) -> bool:
        """Return whether a period is in the window that ends at the anchor, whatever
        its duration.
        """
        return anchor.fiscal_end - self.months < period.fiscal_end <= anchor.fiscal_end

    def resolve(self, catalogues: Listing | Iterable[Listing]) -> NoReturn:
        """Raise SelectionError: the window ends at an entity's latest value, which no
        catalogue contains.
        """
        raise SelectionError(
            f"{self!r} ends at the latest value of one entity and cannot be resolved "
            "over catalogues; write Quarterly(last=...), Annual(last=...) or "
            "FiscalRange(start, end)"
        )


_check_last = checks.whole_number(1, 9_999).optional().as_selection_error()


# The rules are no attrs classes of their own: each would take part of an import's time.
@frozen(repr=False)
class Rule(_Bounded):
    """Periods of one length, found in the catalogue at every planning: the base of the
    rules.

    A new publication can have other periods, so a restart finds them again.

    Args:
        start: as for `FiscalRange`, included.
        end: as for `FiscalRange`, included.
        last: how many of the latest ones to select. None: all.
    """

    # Not a type of the spec: the client turns it into `Exact` (spec 4.3 advises that
    # for annual values).

    # The length of the periods; the month in which they must end, None: any; what they
    # are called, and the rule's name in the words of commands, forms and assistants.
    months: ClassVar[int]
    end_month: ClassVar[int | None] = None
    kind: ClassVar[str]
    name: ClassVar[str]

    last: int | None = field(default=None, validator=_check_last.field)

    @property
    def moves(self) -> bool:
        """Whether a new period replaces an old one: with `last`."""
        return self.last is not None

    def admits(self, period: Period) -> bool:
        if self.end_month is not None and period.end_month != self.end_month:
            return False
        return period.duration_months == self.months

    def among(self, periods: Iterable[Period]) -> tuple[Period, ...]:
        selected_periods = super().among(periods)
        if self.last is None:
            return selected_periods
        return selected_periods[-self.last :]

    def __str__(self) -> str:
        if self.last is None:
            return f"all {self.kind}s{self._write_ends()}"
        return f"the last {counted(self.last, self.kind)}{self._write_ends()}"


class Annual(Rule):
    """The catalogue's fiscal years: periods of 12 months that end in fiscal month 12.

    Args:
        start: as for `FiscalRange`, included.
        end: as for `FiscalRange`, included.
        last: how many of the latest ones to select. None: all.
    """

    __slots__ = ()
    months = 12
    end_month = 12
    kind = "fiscal year"
    name = "annual"


class Quarterly(Rule):
    """The catalogue's periods of 3 months, whatever their end month. Arguments as for
    `Annual`.
    """

    __slots__ = ()
    months = 3
    kind = "fiscal quarter"
    name = "quarterly"


class HalfYearly(Rule):
    """The catalogue's periods of 6 months, whatever their end month. Arguments as for
    `Annual`.
    """

    __slots__ = ()
    months = 6
    kind = "fiscal half-year"
    name = "half-yearly"


# The rules by their names.
RULES: Mapping[str, type[Rule]] = {
    rule.name: rule for rule in (Annual, Quarterly, HalfYearly)
}

Resolved: TypeAlias = Exact | FiscalRange | Trailing
PeriodSelection: TypeAlias = Resolved | Rule


def check_period_selection(selection: object) -> None:
    """Reject anything but a selection; `instead` is what labels, words and classes
    probably mean.
    """
    if isinstance(selection, PeriodSelection):
        return
    guess = _read_selection(selection)
    # Only the words of the class list go if there is something to write.
    kinds = "a period selection"
    if guess is None:
        kinds = "Exact, FiscalRange, Trailing, Annual, Quarterly or HalfYearly"
    text = checks.short_repr(selection)
    if isinstance(selection, type) and guess is not None:
        text = "a class"
    raise SelectionError(f"periods must be {kinds}, not {text}", instead=guess)


# What people call the periods of a rule, in the singular.
_WORDS = {
    **dict.fromkeys(("y", "yr", "year", "annual", "yearly"), Annual),
    **dict.fromkeys(("q", "qtr", "quarter", "quarterly"), Quarterly),
    **dict.fromkeys(("h", "half", "half year", "half yearly", "semester"), HalfYearly),
}
_IN_WORDS = (
    r"(?:the )?(?:(?P<latest>last|latest|past|previous)|all)?(?: ?(?P<count>\d{1,4}))? "
    r"?(?P<word>[a-z ]*?)s?"
)


def _read_selection(value: object) -> PeriodSelection | None:
    """Return the selection that a value probably means, or None.

    Values are labels or periods without a selection, words such as "last 4 quarters" or
    "5y", or the class in place of an object.
    """
    kinds: tuple[type[Rule | FiscalRange], ...] = (*RULES.values(), FiscalRange)
    for kind in kinds:
        if value is kind:
            return kind()
    entries = value if isinstance(value, (list, tuple, set)) else [value]
    periods: dict[Period, None] = {}
    for entry in entries:
        period = guess_period(entry)
        if period is None:
            return _read_words(value) if isinstance(value, str) else None
        periods[period] = None
    if not periods:
        return None
    if isinstance(value, set):
        return Exact(sorted(periods))
    return Exact(periods)


def _read_words(text: str) -> PeriodSelection | None:
    words = text.lower().replace("-", " ").replace("fiscal", " ").split()
    match = re.fullmatch(_IN_WORDS, " ".join(words), re.ASCII)
    if match is None:
        return None
    word, count = match["word"], None
    if match["count"]:
        count = int(match["count"])
        if count == 0:
            return None
        if word in ("m", "month"):
            return Trailing(count)
    # A letter alone can mean anything.
    elif len(word) == 1:
        return None
    elif match["latest"]:
        count = 1
    rule: type[Rule] | None = _WORDS.get(word)
    if rule is None:
        return None
    return rule(last=count)


def resolve(selection: PeriodSelection, periods: Iterable[Period]) -> Resolved | None:
    """Resolve a selection over the periods of a catalogue, or return None if none of
    them is selected.

    A rule becomes `Exact`; the open ends of a range become the first and last fiscal
    ends of the catalogue.
    """
    check_period_selection(selection)
    match selection:
        case Exact() | Rule():
            exact_periods = selection.among(periods)
            if not exact_periods:
                return None
            return Exact(exact_periods)
        case FiscalRange(start=start, end=end):
            # The spec requires both ends of a range (spec 4.3), so open ones are filled
            # in.
            listing = sorted(periods)
            if not listing:
                return None
            first = Period.ending(listing[0].fiscal_end)
            last = Period.ending(listing[-1].fiscal_end)
            start, end = start or first, end or last
            # A range outside the catalogue's periods would cost a request and contain
            # nothing.
            if start > last or end < first:
                return None
            return FiscalRange(start, end)
    return selection


def is_open(selection: PeriodSelection) -> bool:
    """Return whether a selection names no period and no end: of a catalogue without
    periods it is none.
    """
    if isinstance(selection, _Bounded):
        return selection.start is None and selection.end is None
    return isinstance(selection, Trailing)


def nothing_selected(
    has: str, periods: Iterable[Period], selection: object
) -> SelectionError:
    """Return the error about a selection that selects none of the periods.

    Args:
        has: the beginning of the sentence, whose end lists the periods.
    """
    listing = sorted(periods)
    if not listing:
        return SelectionError(f"{has} no periods")
    clause = ""
    if isinstance(selection, Rule) and not any(map(selection.admits, listing)):
        clause = f"; none of them has {selection.months} months"
        if selection.end_month:
            clause += f" and ends in month {selection.end_month}"
    return SelectionError(
        f"{has} {counted(len(listing), 'period')}, {spanned(listing)}{clause}"
    )
