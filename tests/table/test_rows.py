"""Rows that people read: what is divided and by what, and that all faces show the same."""

import asyncio
from fractions import Fraction
from html import unescape
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.model.period import Period
from tests.answers import panel_of
from tests.table.test_show import panel_with

POWERS: dict[Any, int] = {"thousands": 3, "millions": 6, "billions": 9}


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ([(47_000_000, "47,000,000"), (2_700_000_000, "2,700,000,000")], ["0.0470", "2.7000"]),
        ([(391_035_000_000, "391,035,000,000"), (65_200_000_000, "65,200,000,000")], ["391.0", "65.2"]),
        ([(5_000_000_000, "$5,000,000,000"), (-7_000_000_000, "($7,000,000,000)")], ["$5.00", "($7.00)"]),
        ([(5_000_000_000, "US$ 5.0 billion"), (6_000_000_000, "6 bn EUR")], ["US$ 5.00", "6.00 EUR"]),
        ([(-5_000_000_000, "\u22125.000.000.000"), (6e9, "6 000 000 000")], ["\u22125.00", "6.00"]),
        ([(5_000_000_000, "5,000"), (7_499_999_999, "7,500")], ["5.00", "7.50"]),  # of a format #,##0,,
        ([(5_000_000_000, "5000000000"), (-987.7, "NM"), (0, "0")], ["5.00", "NM", "0"]),
        ([(5_000_000_000, ""), (-6_500_000_000, " ")], ["5.00", "-6.50"]),
        ([(5_000_000_000.5, "5,000,000,000.5"), (100, "100")], ["5.000000", "<0.000001"]),
        ([(5_000_000_000, "$5,000,000,000"), (-104.8, "($104.8)")], ["$5.000000", "($<0.000001)"]),
        ([(10**18 + 10**9, "1,000,000,001,000,000,000")], ["1,000,000,001"]),
    ],
)
async def test_amounts_are_divided(texts: list[tuple[float, str]], shown: list[str]) -> None:
    """Three digits of the smallest; sign and currency stay, a word of scale goes."""
    panel = await panel_with(*texts)
    (row,) = panel.rows(unit="billions")
    assert [*row.texts.values()] == shown
    assert (row.unit, row.scale.suffix) == ("billions", "")
    numbers = [*map(row.scale.number, row.values.values())]
    assert numbers == [number / 10**9 for number, _ in texts]
    for text in (str(panel.show("billions", width=200)), unescape(panel.show("billions")._repr_html_())):
        assert "in billions" in text
        assert all(cell in text for cell in shown)
        assert "(not divided)" not in text


@pytest.mark.parametrize(
    "texts",
    [
        [(1.76, "1.76"), (999, "999")],
        [(5_000_000, "5,000,000%"), (6_000_000, "6,000,000%")],
        [(5_000, "5,000x"), (6_000, "6,000x")],
        [(5_000_000, "see note 4"), (6_000_000, "6,000,000")],
        [(5_000_000, "7,000,000")],  # another number
        [(-5_000_000, "5,000,000")],  # without its sign
        # A scale before the digits, or after the currency.
        [(5e12, "M\u20ac 5,000,000")],
        [(5e12, "US$K 5,000,000,000")],
        [(-5e12, "(MM$5,000,000)")],
        [(5e12, "B 5,000")],
        [(5e12, "MRD EUR 5,000")],
        [(5e12, "5,000,000 USD M")],
        [(5e12, "5,000,000 $M")],
    ],
)
async def test_other_rows_stay(texts: list[tuple[float, str]]) -> None:
    """The name of the row says so, and no heading names a unit."""
    panel = await panel_with(*texts)
    (row,) = panel.rows(unit="millions")
    assert [*row.texts.values()] == [text for _, text in texts]
    assert [*map(row.scale.number, row.values.values())] == [number for number, _ in texts]
    assert (row.unit, row.scale.suffix) == (None, " (not divided)")
    for text in (str(panel.show("millions")), panel.show("millions")._repr_html_()):
        assert "Label of Sales (not divided)" in text
        assert "in millions" not in text
        assert all(cell in text for _, cell in texts)
    assert "not divided" not in str(panel)


async def test_not_divided_follows_the_series() -> None:
    """Not the group in the last column of names."""
    numbers = {"sales.annual": {Period(2024, 12, 12): 5_000_000}, "eps.quarterly": {Period(2024, 12, 12): 2}}
    panel = await panel_of(numbers, [Period(2024, 12, 12)])
    assert "Label of eps (not divided)  quarterly" in str(panel.show("millions"))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=6), st.sampled_from([*POWERS]))
def test_a_divided_number_is_rounded_once(numbers: list[int], unit: Any) -> None:
    """Half away from zero, to three digits of the smallest and six decimals at most."""
    panel = asyncio.run(panel_with(*((number, f"{number:,}") for number in numbers)))
    (row,) = panel.rows(unit=unit)
    magnitudes = [abs(number) for number in numbers if number]
    if max(magnitudes, default=0) < 1_000:
        assert [*row.texts.values()] == [f"{number:,}" for number in numbers]
        return
    least = Fraction(min(magnitudes), 10 ** POWERS[unit])
    decimals = next(count for count in range(7) if count == 6 or least * 10**count >= 100)
    for number, text in zip(numbers, row.texts.values(), strict=True):
        units = int(Fraction(abs(number), 10 ** POWERS[unit]) * 10**decimals + Fraction(1, 2))
        digits = f"{units:0{decimals + 1}}"
        whole, part = digits[: len(digits) - decimals], digits[len(digits) - decimals :]
        expected = f"{'-' * (number < 0)}{int(whole):,}" + f".{part}" * bool(part)
        if number and not units:
            expected = f"{'-' * (number < 0)}<0.000001"
        assert text == (expected if number else "0")


async def test_auto_unit_follows_the_median() -> None:
    """The largest that half of the rows of amounts reach; none where they reach none."""
    for largest, unit in ((999_999, "thousands"), (10**6, "millions"), (10**12, "billions"), (999, None)):
        panel = await panel_with((largest, f"{largest:,}"), (-2, "-2"))
        (row,) = panel.rows(unit="auto")
        assert row.unit == unit
        assert row.scale.suffix == ""
