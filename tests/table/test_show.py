"""Tables for people: what is divided, how wide they are, and what a blank text is shown as."""

import asyncio
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import ArgumentError
from asyncfin.model.period import Period
from asyncfin.table.panel import Panel
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json, value

YEARS = [Period(year, 12, 12) for year in range(2019, 2025)]


async def panel_with(*texts: tuple[float, str], metric: str = "Sales") -> Panel:
    """Return a panel of one series with these numbers and texts, a year each."""
    catalogue = catalogue_of([f"{metric}.annual"], YEARS)
    page = page_json(YEARS, {f"{metric}.annual": {}})
    page["series"][0]["values"] = [
        value(number, period, text=text, number_format="General")
        for period, (number, text) in zip(YEARS, texts, strict=False)
    ] + [None] * (len(YEARS) - len(texts))
    stitched = Stitched(catalogue, catalogue.series, EVER)
    await stitched.add(encoded(page), home=frozenset([f"{metric}.annual"]), asked=EVER)
    return stitched.panel()


def cells(shown: object) -> list[str]:
    """Return the cells of the only row of a printed table."""
    lines = str(shown).splitlines()
    rule = next(at for at, line in enumerate(lines) if line.startswith("──"))
    return lines[rule + 1].removeprefix("Label of Sales").split()


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ([(1.76, "1.76"), (12.05, "12.05")], ["1.76", "12.05"]),  # earnings per share
        ([(5_000_000_000, "5,000,000,000"), (-987.7, "NM")], ["5,000.0", "NM"]),
        ([(350_000_000, "350,000,000"), (450_000_000, "450000000")], ["350.0", "450.0"]),
        ([(99_999, "99,999"), (-5, "-5")], ["99,999", "-5"]),  # less than a tenth of a million
        ([(100_000, "100,000"), (0, "0"), (-49_999, "(49,999)")], ["0.1", "0", "0.0"]),
        ([(250_000, "250.000"), (-350_000, "-350\u2019000")], ["0.3", "-0.4"]),  # half away from zero
        ([(5_000_000, "5.0 m"), (6_000_000, "6 000 000")], ["5.0", "m", "6.0"]),
        ([(5_000_000, "5,000,000"), (0.5, "0.5")], ["5,000,000", "0.5"]),  # one that is not whole
        ([(2**70, "1180591620717411303424")], ["1,180,591,620,717,411.3"]),
        ([(5_000_000, "5000000"), (6_000_000, " "), (0.5, "")], ["5.0", "6.0", "0.5"]),
        ([(5_000_000, ""), (6_000_000, " ")], ["5000000", "6000000"]),
    ],
)
async def test_millions(texts: list[tuple[float, str]], shown: list[str]) -> None:
    """A whole series is divided, or none of it; within one, a text that is more than digits stays."""
    panel = await panel_with(*texts)
    assert cells(panel.show(unit="millions")) == shown
    html = panel.show(unit="millions")._repr_html_()
    assert all(f">{text}<" in html for text in shown if text != "m" and "5.0 m" not in dict(texts).values())
    assert "whole numbers in millions" in str(panel.show("millions"))
    assert "whole numbers in millions" in html
    assert "whole numbers" not in str(panel)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-(10**14), 10**14), min_size=1, max_size=6), st.sampled_from([3, 6, 9]))
def test_a_divided_number_is_the_nearest_tenth(numbers: list[int], power: int) -> None:
    """Half is rounded away from zero, and nothing is a negative zero."""
    panel = asyncio.run(panel_with(*((each, f"{each:,}") for each in numbers)))
    unit: Any = {3: "thousands", 6: "millions", 9: "billions"}[power]
    expected = []
    for each in numbers:
        tenths = int(abs(Fraction(each, 10 ** (power - 1))) + Fraction(1, 2))
        text = f"{tenths // 10:,}.{tenths % 10}"
        expected.append(f"-{text}" if each < 0 and tenths else text)
        if not each:
            expected[-1] = "0"
    if 10 * max(map(abs, numbers)) < 10**power:
        expected = [f"{each:,}" for each in numbers]
    assert cells(panel.show(unit, width=400)) == expected


async def test_a_blank_text_is_shown_as_the_number() -> None:
    """A blank next to gaps reads as a gap; tables of data have the text."""
    panel = await panel_with((5, ""), (6.5, "  "))
    assert cells(panel) == ["5", "6.5"]
    assert ">6.5<" in panel._repr_html_()
    assert str(panel["Sales"]).endswith("in FY2020 6.5")
    assert ">6.5<" in panel["Sales"]._repr_html_()
    assert str(panel["Sales"]["FY2019"]) == "5"
    assert panel.to_arrow()["text"].to_pylist() == ["", "  "]


async def test_what_is_shown_is_text_and_html_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """str and repr are the text, which is as wide as requested."""
    panel = await panel_with(*((10**12 + at, f"{10**12 + at:,}") for at in range(6)))
    shown = panel.show()
    assert str(shown) == repr(shown) == str(panel)
    assert shown._repr_html_() == panel._repr_html_()
    assert max(map(len, str(panel).splitlines())) <= 100
    for width in (40, 60, 150):
        assert max(map(len, str(panel.show(width=width)).splitlines())) <= width
    assert len(cells(panel.show(width=150))) == 6
    assert len(cells(panel.show(width=40))) == 1
    assert capsys.readouterr().out == ""


async def test_a_unit_or_a_width_that_is_none_is_refused() -> None:
    """Before anything is decoded, with what to write."""
    panel = await panel_with((5, "5"))
    wrong: Any = "trillions"
    with pytest.raises(ArgumentError, match=r"unit must be .*'millions'.*, not 'trillions'"):
        panel.show(wrong)
    for width in (39, 40.5, True):
        with pytest.raises(ArgumentError, match="width must be"):
            panel.show(width=width)
