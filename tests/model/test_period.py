"""Periods: order, labels, bounds, rules, and the window of a trailing selection."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given, strategies as st

from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period, write_hint
from asyncfin.model.selection import (
    Annual,
    Exact,
    FiscalRange,
    Quarterly,
    Trailing,
    check_period_selection,
    resolve,
)

periods = st.builds(Period, st.integers(1, 9999), st.integers(1, 12), st.integers(0, 400))
recent = st.builds(Period, st.integers(2019, 2024), st.integers(1, 12), st.sampled_from([0, 3, 6, 9, 12]))
catalogues = st.lists(recent, unique=True, max_size=40)


@pytest.mark.parametrize(
    ("period", "label"),
    [
        (Period(2024, 12, 12), "FY2024"),
        (Period(2024, 12, 3), "FY2024-Q4"),
        (Period(2024, 6, 6), "FY2024-H1"),
        (Period(2024, 12, 6), "FY2024-H2"),
        (Period(2024, 9, 9), "FY2024-9M"),
        (Period(2024, 11, 5), "FY2024-11-05M"),
        (Period(2024, 12, 9), "FY2024-12-09M"),
        (Period(2024, 4, 3), "FY2024-04-03M"),
        (Period(2024, 12, 120), "FY2024-12-120M"),
        (Period(7, 12, 12), "FY0007"),
    ],
)
def test_period_has_label_people_use(period: Period, label: str) -> None:
    """Years, quarters, halves and nine months are named so; all others have the plain form."""
    assert period.label == str(period) == label
    assert Period.parse(label) == period


@given(periods)
def test_label_is_read_without_fy(period: Period) -> None:
    """Wherever a label is read; a year alone may be a count, a year or a period, so it is not a label."""
    short = period.label.removeprefix("FY")
    if "-" not in short:
        with pytest.raises(SelectionError, match=f'; write "{period.label}"$'):
            Period.parse(short)
        return
    assert Period.parse(short) == period
    assert Period.parse(short).label == period.label
    assert Exact(short) == Exact([period.label])
    assert FiscalRange(short, short) == FiscalRange(period, period)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024",
        "fy2024",
        "FY24",
        "FY2024\n",
        "2024-Q5",
        "2024-H3",
        "FY0000",
        "FY2024-13-03M",
        "2024-1-3M",
        "٢٠٢٤-Q1",
        2024,
    ],
)
def test_other_texts_are_no_labels(text: object) -> None:
    """The error shows the text, or the part of it that is out of range."""
    with pytest.raises(SelectionError, match=r"period|year|end_month"):
        Period.parse(text)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["year", "end_month", "duration_months"])
@pytest.mark.parametrize("value", [-1, 2**31, True, 1.0, "1", None])
def test_fields_are_whole_numbers_in_range(field: str, value: object) -> None:
    """Nothing is coerced, and the error names the field and the value."""
    with pytest.raises(SelectionError, match=rf"^{field} must be .*, not {re.escape(repr(value))}$"):
        Period(**{"year": 2024, "end_month": 12, "duration_months": 12, field: value})


@pytest.mark.parametrize(
    ("given_periods", "expected"),
    [
        ([], "at least one"),
        (["FY2024", Period(2024, 12, 12)], "FY2024 is named twice"),
        ([(2024, 12, 12)], r"not \(2024, 12, 12\)"),
        ([None], "not None"),
        (2024, 'not 2024; write "FY2024"$'),
        (7, "not 7$"),
    ],
)
def test_exact_needs_distinct_periods(given_periods: object, expected: str) -> None:
    """The error names what is wrong."""
    with pytest.raises(SelectionError, match=expected):
        Exact(given_periods)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("label", "first"),
    [("FY2023", (2023, 1)), ("FY2023-Q2", (2023, 4)), ("FY2023-9M", (2023, 1)), ("FY2023-02-06M", (2022, 9))],
)
def test_period_as_start_means_first_month(label: str, first: tuple[int, int]) -> None:
    """FY2024 to FY2024 is the whole year; a period of any length can cross a year's end."""
    for given_bound in (label, Period.parse(label)):
        end = (Period.parse(label).year, Period.parse(label).end_month)
        assert FiscalRange(given_bound, given_bound) == FiscalRange(first, end)
        assert Quarterly(given_bound, given_bound) == Quarterly(first, end)


@given(st.sets(recent), periods, st.sampled_from([FiscalRange, Annual, Quarterly]))
def test_start_is_the_first_month(
    known: set[Period], start: Period, rule: type[FiscalRange | Annual | Quarterly]
) -> None:
    """Counted month by month from the period's end, also where it begins before the first year."""
    month, year = start.end_month, start.year
    for _ in range(start.duration_months - 1):
        month, year = (month - 1, year) if month > 1 else (12, year - 1)
    meant = {p for p in known if rule().admits(p) and (p.year, p.end_month) >= (year, month)}
    assert set(rule(start).among(known)) == meant


@pytest.mark.parametrize("rule", [FiscalRange, Annual, Quarterly])
@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((2024, 2023), "FY2023-12 is before FY2024-01"),
        ((Period(2024, 6, 0), (2024, 5)), "FY2024-05 is before FY2024-06"),
        (("2024", None), "start must be .*, not '2024'"),
        ((True, None), "start must be .*, not True"),
        (("FY23", None), "start must be .*, not 'FY23'"),
        # FiscalRange has no `last`.
        ((5, None), r"^start is the year 5; for the latest 5 write Annual\(last=5\) or Quarterly\(last=5\)$"),
        (((2024, 13), None), "end_month must be .*, not 13"),
    ],
)
def test_wrong_bound_is_refused_by_name(rule: type, bounds: tuple, expected: str) -> None:
    """A range and the rules share their bounds' checks."""
    with pytest.raises(SelectionError, match=expected):
        rule(*bounds)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "12", "TTM", float("nan")])
def test_counts_are_positive_whole_numbers(value: object) -> None:
    """Trailing months and `last` are rejected otherwise, by name."""
    with pytest.raises(SelectionError, match=r"^months must be a whole number from 1 to 120000, not "):
        Trailing(value)  # type: ignore[arg-type]
    with pytest.raises(SelectionError, match=r"^last must be a whole number from 1 to 9999 or None, not "):
        Annual(last=value)  # type: ignore[arg-type]


@given(catalogues, st.none() | st.integers(2018, 2025), st.none() | st.integers(1, 5))
def test_annual_means_fiscal_years_of_catalogue(
    known: list[Period], start: int | None, last: int | None
) -> None:
    """Those of twelve months ending in month 12, from the start on, the latest ones, oldest first."""
    years = sorted(
        p for p in known if (p.duration_months, p.end_month) == (12, 12) and p.year >= (start or 0)
    )
    meant = tuple(years[-last:] if last else years)
    assert resolve(Annual(start, last=last), known) == (Exact(meant) if meant else None)


@given(catalogues)
def test_an_open_range_spans_the_catalogue(known: list[Period]) -> None:
    """Both ends become the first and last fiscal ends there are; an empty catalogue has none."""
    resolved = resolve(FiscalRange(), known)
    if not known:
        assert resolved is None
    else:
        ends = sorted((p.year, p.end_month) for p in known)
        assert resolved == FiscalRange(ends[0], ends[-1])


@pytest.mark.parametrize(
    "beyond", [FiscalRange(start=2030), FiscalRange(end=2000), FiscalRange(2030, 2031), Exact("FY2030")]
)
def test_periods_beyond_the_catalogue_mean_nothing(beyond: FiscalRange | Exact) -> None:
    """An open end is not turned into an end before the start, and a period that is not listed is not sent."""
    assert resolve(beyond, [Period(2024, 12, 12)]) is None


@given(recent, recent, st.integers(1, 40))
def test_trailing_window_ends_at_anchor(period: Period, anchor: Period, months: int) -> None:
    """A period counts if its fiscal end is one of the last months, counted one by one, of any duration."""
    year, month, window = anchor.year, anchor.end_month, set()
    for _ in range(months):
        window.add((year, month))
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    assert Trailing(months).contains(period, anchor) == ((period.year, period.end_month) in window)


def catalogue(*labels: str) -> Catalogue:
    """Return a catalogue of these periods, without series."""
    known = tuple(sorted(map(Period.parse, labels)))
    created = datetime(2024, 1, 1, tzinfo=UTC)
    return Catalogue("O-" + "a" * 32, "Example", "d", created, known, (), ())


def test_rule_is_resolved_over_several_catalogues() -> None:
    """The latest two years are those of all companies together, oldest first."""
    apple = catalogue("FY2023", "FY2024", "FY2024-Q4", "FY2025")
    nvidia = catalogue("FY2024", "FY2025", "FY2026", "FY2026-Q1")
    assert Annual(last=2).resolve([apple, nvidia]) == Exact(["FY2025", "FY2026"])
    assert Annual(last=2).resolve(apple) == Exact(["FY2024", "FY2025"])
    assert Annual("FY2024", "FY2025").resolve(iter([apple, nvidia])) == Exact(["FY2024", "FY2025"])
    assert Quarterly().resolve([nvidia, apple]) == Exact(["FY2024-Q4", "FY2026-Q1"])
    assert FiscalRange("FY2024", 2025).resolve([apple, nvidia]) == Exact(["FY2024-Q4", "FY2024", "FY2025"])
    assert FiscalRange().resolve([apple, nvidia]).periods == tuple(sorted({*apple.periods, *nvidia.periods}))
    assert Exact(["FY2026", "FY1990"]).resolve([apple, nvidia]) == Exact(["FY2026", "FY1990"])
    with pytest.raises(SelectionError, match=r"^Trailing\(6\) ends at .*write Quarterly\(last="):
        Trailing(6).resolve([apple, nvidia])
    for wrong in ([], ["O-" + "a" * 32], None):
        with pytest.raises(SelectionError, match=r"^catalogues must be .*; write await client\.catalogue"):
            Annual().resolve(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mistaken", "label"),
    [
        ("FY23", "FY2023"),
        ("2023 FY", "FY2023"),
        ("FY'99", "FY1999"),
        ("2024", "FY2024"),
        (2024, "FY2024"),
        ("2023-q1", "FY2023-Q1"),
        ("1Q23", "FY2023-Q1"),
        ("FY23 Q4", "FY2023-Q4"),
        ("Q4 FY2023", "FY2023-Q4"),
        ("2H23", "FY2023-H2"),
        ("2024-6M", "FY2024-H1"),
        ("FY2024-12-12M", "FY2024"),
        ("2024-12-06M", "FY2024-H2"),
        ("FY2024-04-0003M", "FY2024-04-03M"),
        (Period(2024, 12, 12), "FY2024"),
    ],
)
def test_label_of_mistaken_period_is_proposed(mistaken: object, label: str) -> None:
    """The same help wherever a period is given."""
    assert write_hint(mistaken) == f'; write "{label}"'
    if not isinstance(mistaken, Period):
        for refused in (lambda: Exact([mistaken]), lambda: Period.parse(mistaken)):  # type: ignore[list-item,arg-type]
            with pytest.raises(SelectionError, match=f"; write ['\"]{label}['\"]$"):
                refused()
        with pytest.raises(SelectionError, match=rf"; write Exact\('{label}'\)$"):
            check_period_selection(mistaken)
    if isinstance(mistaken, str):
        with pytest.raises(SelectionError, match=f'; write "{label}"$'):
            FiscalRange(mistaken)


@pytest.mark.parametrize("value", ["", "23", 23, "2023-03", "2024-Q5", "FY2024-13-03M", "annual", True, None])
def test_ambiguous_texts_have_no_label(value: object) -> None:
    """A count, a month, a quarter that does not exist: a guess would mislead."""
    assert write_hint(value) == ""


@example(Period(2024, 12, 12), 12, "start")
@given(periods, st.integers(1, 12), st.sampled_from(["end", "start"]))
def test_end_date_counts_months(period: Period, year_end: int, named_after: str) -> None:
    """Against a calendar of months: fiscal month 12 of a year is its last, in the stated calendar month."""
    year, month = period.year, year_end
    if named_after == "start" and year_end != 12:
        year += 1
    for _ in range(12 - period.end_month):
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    if not 1 <= year <= 9999:
        with pytest.raises(ArgumentError, match="dates are of the years 1 to 9999"):
            period.end_date(year_end, named_after)  # type: ignore[arg-type]
        return
    end = period.end_date(year_end, named_after)  # type: ignore[arg-type]
    assert (end.year, end.month) == (year, month)
    assert end == date.max or (end + timedelta(days=1)).day == 1


@pytest.mark.parametrize("calendar", [(0,), (13,), (True,), ("1",), (1, "begin"), (1, None)])
def test_wrong_calendar_is_rejected(calendar: tuple) -> None:
    with pytest.raises(ArgumentError, match=r"^(year_end|named_after) must be"):
        Period.parse("FY2024").end_date(*calendar)
