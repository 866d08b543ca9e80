"""What an error proposes in place of periods that select nothing, or that are not a selection."""

import pickle
import re
from collections.abc import Callable

import pytest

from asyncfin import (
    Annual,
    Catalogue,
    Exact,
    FiscalRange,
    HalfYearly,
    Period,
    Quarterly,
    SelectionError,
    Trailing,
)
from asyncfin.model.selection import check_period_selection
from asyncfin.typing import PeriodSelection
from tests.model.test_period import catalogue

POINTS = ("FY2023-12-00M", "FY2024-12-00M")
SEPTEMBERS = ("FY2023-09-12M", "FY2024-09-12M", "FY2024-Q3")


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("FY2024", Exact("FY2024")),
        (Period(2024, 3, 3), Exact("FY2024-Q1")),
        (["FY2023", "FY2024-Q1", "FY2023"], Exact(["FY2023", "FY2024-Q1"])),
        ({"FY2024", "FY2023"}, Exact(["FY2023", "FY2024"])),
        (Annual, Annual()),
        (HalfYearly, HalfYearly()),
        (FiscalRange, FiscalRange()),
        ("last 4 quarters", Quarterly(last=4)),
        ("the last 5 fiscal years", Annual(last=5)),
        ("last 5 years", Annual(last=5)),
        ("5y", Annual(last=5)),
        ("8Q", Quarterly(last=8)),
        ("latest half-year", HalfYearly(last=1)),
        ("4 half years", HalfYearly(last=4)),
        ("all quarters", Quarterly()),
        ("ANNUAL", Annual()),
        ("half-yearly", HalfYearly()),
        ("last 12 months", Trailing(12)),
        ("0 years", None),
        ("last 5", None),
        ("q", None),
        ("last 5 weeks", None),
        ("ttm", None),
        (5, None),
        ([], None),
        (None, None),
        (Trailing, None),
    ],
)
def test_meant_selection_is_proposed(given: object, instead: PeriodSelection | None) -> None:
    """The text is the problem and the Python of the proposal."""
    with pytest.raises(SelectionError) as caught:
        check_period_selection(given)
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.instead == instead
    if instead is None:
        assert str(error) == error.problem
    else:
        check_period_selection(instead)
        assert str(error) == f"{error.problem}; write {instead!r}"
        assert not any(each.__name__ in error.problem for each in (Annual, Quarterly, FiscalRange, Exact))


@pytest.mark.parametrize(
    ("labels", "rule", "clause"),
    [
        (POINTS, Quarterly(2020, last=2), "; none of them has 3 months"),
        (POINTS, FiscalRange(2030), ""),
        (SEPTEMBERS, Annual(last=2), "; none of them has 12 months and ends in month 12"),
        (SEPTEMBERS, HalfYearly(), "; none of them has 6 months"),
        (("FY2024",), Annual(2030), ""),
        (("FY2021", "FY2022-12-13M"), Exact("FY2022"), ""),
    ],
)
@pytest.mark.parametrize(
    "resolve",
    [lambda catalogue, rule: catalogue.resolve(rule), lambda catalogue, rule: rule.resolve([catalogue])],
)
def test_empty_rule_shows_other_periods(
    labels: tuple[str, ...],
    rule: Annual,
    clause: str,
    resolve: Callable[[Catalogue, Annual], object],
) -> None:
    """And why the rule selects none of them."""
    with pytest.raises(SelectionError) as caught:
        resolve(catalogue(*labels), rule)
    assert re.search(rf"(FY\d{{4}}|M|Q3){re.escape(clause)}$", caught.value.problem)


def test_missing_periods_are_named() -> None:
    """The sentence has the periods as they were written."""
    with pytest.raises(SelectionError, match="has none of these: FY2040; it has 1 period"):
        catalogue("FY2024").resolve(Exact("FY2040"))


@pytest.mark.parametrize(
    ("selection", "text"),
    [
        (Annual(2020, last=3), "Annual(start=(2020, 1), last=3)"),
        (FiscalRange(end="FY2024-Q2"), "FiscalRange(end=(2024, 6))"),
        (Quarterly(), "Quarterly()"),
        (Exact("FY2024"), "Exact('FY2024')"),
        (Exact(["FY2023", "FY2024"]), "Exact(['FY2023', 'FY2024'])"),
        (Trailing(12), "Trailing(12)"),
    ],
)
def test_repr_can_be_pasted(selection: PeriodSelection, text: str) -> None:
    assert repr(selection) == text
    assert eval(text) == selection
