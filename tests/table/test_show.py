"""Tables for people: what is divided, how wide they are, and what a blank text is shown as."""

from typing import Any

import pytest

from asyncfin import Annual, Client, Select
from asyncfin.errors import ArgumentError
from asyncfin.model.period import Period
from asyncfin.sandbox import Sandbox
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


async def test_blank_text_shows_the_number() -> None:
    """A blank next to gaps reads as a gap; tables of data have the text."""
    panel = await panel_with((5, ""), (6.5, "  "))
    assert cells(panel) == ["5", "6.5"]
    assert ">6.5<" in panel._repr_html_()
    assert str(panel["Sales"]).endswith("in FY2020 6.5")
    assert " original values" in panel["Sales"]._repr_html_()
    assert ">6.5<" in panel["Sales"]._repr_html_()
    assert str(panel["Sales"]["FY2019"]) == "5"
    assert panel.to_arrow()["text"].to_pylist() == ["", "  "]


async def test_show_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
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


async def test_unknown_unit_or_width_is_rejected() -> None:
    """Before anything is decoded, with what to write."""
    panel = await panel_with((5, "5"))
    wrong: Any = "trillions"
    for show in (panel.show, panel.rows):
        with pytest.raises(ArgumentError, match=r"unit must be .*'millions'.*, not 'trillions'"):
            show(wrong)
    for width in (39, 40.5, True):
        with pytest.raises(ArgumentError, match="width must be"):
            panel.show(width=width)


async def test_shared_part_stands_above_the_table() -> None:
    """Sales of a product alone would be taken for those of the company, whose name goes without saying."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        services = Select(metric_ids="Revenue", scope_combinations="product=Services", cadence="annual")
        part = await client.query(sandbox.entities[0], services, Annual(last=2))
        company = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
        whole = await client.query(sandbox.entities[0], company, Annual(last=2))
    assert "Services" in str(part).splitlines()
    assert ">Services<" in part._repr_html_()
    assert not [line for line in str(whole).splitlines() if "company" in line]
