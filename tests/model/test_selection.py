"""What an error proposes in place of periods that select nothing, or that are not a selection."""

import pickle
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
SEPTEMBERS = ("FY2021-09-12M", "FY2022-09-12M", "FY2023-09-12M", "FY2024-09-12M", "FY2024-Q3")


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


def test_ttm_is_not_a_window() -> None:
    """A window is proposed only where a window is written."""
    with pytest.raises(SelectionError) as caught:
        Trailing("TTM")  # type: ignore[arg-type]
    assert caught.value.instead == Trailing(12)
    assert caught.value.problem.endswith(
        "a window lists periods and adds nothing up (`last_twelve_months`, --ttm, does)"
    )


@pytest.mark.parametrize(
    ("labels", "rule", "instead"),
    [
        (POINTS, Annual(), FiscalRange()),
        (POINTS, Quarterly(2020, last=2), FiscalRange()),
        (POINTS, FiscalRange(2030), None),
        (SEPTEMBERS, Annual(last=2), Exact(["FY2023-09-12M", "FY2024-09-12M"])),
        (SEPTEMBERS, Annual(), Exact(["FY2022-09-12M", "FY2023-09-12M", "FY2024-09-12M"])),
        (SEPTEMBERS, Annual(2021, 2022), Exact(["FY2021-09-12M", "FY2022-09-12M"])),
        (SEPTEMBERS, Annual(2030), None),
        (SEPTEMBERS, HalfYearly(), None),
        (("FY2024",), Annual(2030), None),
        (("FY2024",), Exact("FY2030"), None),
        (("FY2021", "FY2022-12-13M"), Exact("FY2022"), Exact("FY2022-12-13M")),
        (
            ("FY2021-12-14M", "FY2022-12-11M"),
            Exact(["FY2022", "FY2021"]),
            Exact(["FY2021-12-14M", "FY2022-12-11M"]),
        ),
        (("FY2022-12-10M", "FY2022-12-15M", "FY2022-11-13M"), Exact("FY2022"), None),
        (("FY2022-12-13M",), Exact("FY2022-Q4"), None),
    ],
)
@pytest.mark.parametrize(
    "resolved", [lambda known, rule: known.resolve(rule), lambda known, rule: rule.resolve([known])]
)
def test_empty_rule_proposes_other_periods(
    labels: tuple[str, ...],
    rule: Annual,
    instead: PeriodSelection | None,
    resolved: Callable[[Catalogue, Annual], object],
) -> None:
    """The proposal is accepted where the rule was refused, and the problem names no class."""
    known = catalogue(*labels)
    with pytest.raises(SelectionError) as caught:
        resolved(known, rule)
    assert caught.value.instead == instead
    assert not any(each in caught.value.problem for each in ("Annual", "Exact", "FiscalRange"))
    if instead is not None:
        assert repr(known.resolve(instead))
