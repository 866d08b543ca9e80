"""Several panels in one table: what was not requested, what descriptions say, which paths contain others."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from attrs import evolve

from asyncfin import Select, SelectionError, concat
from asyncfin.model.period import Period
from asyncfin.model.scope import parse_path
from asyncfin.model.selection import Exact
from asyncfin.table.panel import Panel
from tests.answers import panel_of
from tests.table.panels import renamed, together, with_fields, with_texts

YEARS = [Period(year, 12, 12) for year in range(2020, 2026)]
FY = {period.year: period for period in YEARS}


async def company(
    name: str,
    numbers: Mapping[int, Any],
    asked: Iterable[int],
    *,
    listed: Iterable[Period] = YEARS,
    **descriptions: str,
) -> Panel:
    """Return a company's panel of one metric, with numbers by year."""
    found = {"Revenue.annual": {FY[year]: number for year, number in numbers.items()}}
    panel = await panel_of(
        found, list(found["Revenue.annual"]), asked=Exact([FY[each] for each in asked]), listed=listed
    )
    return with_texts(renamed(panel, name, "O-" + name[:1].lower() * 32), "description", descriptions)


def printed(panels: list[Panel]) -> str:
    shown = together(panels).show(all_series=True)
    return "\n".join([*shown.tables, *shown.notes])


def descriptions(panels: list[Panel]) -> list[str]:
    return [line for line in printed(panels).splitlines() if line.startswith("Label of ") and ": " in line]


async def test_ids_distinguish_companies_of_one_name() -> None:
    """In rows and in all that is said below them, also if only one of them has a row."""
    dollars = renamed(await company("A", {2024: 5}, (2023, 2024), Revenue="US dollars"), "Same")
    yen = renamed(await company("B", {2023: 7}, (2023,), Revenue="Yen"), "Same")
    first, second = f"Same (O-{'a' * 32})", f"Same (O-{'b' * 32})"
    table = printed([dollars, yen])
    assert [line.split("  ")[0] for line in table.splitlines()[2:4]] == [first, second]
    assert f"different descriptions: {first}: US dollars; {second}: Yen" in table
    with pytest.raises(SelectionError, match=rf"^{re.escape(second)}: 1 period \(FY2024\) not requested"):
        concat([dollars, yen], layout="wide")
    empty = renamed(await company("B", {}, (2024,), listed=YEARS[:1]), "Same")
    table = printed([dollars, empty])
    assert first in table.splitlines()[2]
    assert f"{second} has no value in these periods" in table
    assert f"\n(O-{'b' * 32}) has no value in" in printed([dollars, renamed(empty, "")])


async def test_unrequested_differs_from_no_value() -> None:
    """Each company has the last two years that it reports: the other's year is not empty but unknown."""
    apple = await company("Apple", {2024: 5, 2025: 6}, (2024, 2025))
    nvidia = await company("NVIDIA", {2023: 7}, (2022, 2023))
    table = printed([apple, nvidia])
    assert table.splitlines()[:4] == [
        "entity  FY2022  FY2023  FY2024  FY2025",
        "──────────────────────────────────────",
        "Apple        ?       ?       5       6",
        "NVIDIA       ·       7       ?       ?",
    ]
    assert "\n? was not requested, so there may be a value\n" in table
    assert [nvidia.covers(FY[each]) for each in (2022, 2024)] == [True, False]
    lines = together([apple, nvidia]).to_csv().splitlines()
    assert [line.split(",")[-4:] for line in lines] == [
        ["FY2022", "FY2023", "FY2024", "FY2025"],
        ["?", "?", "5", "6"],
        ["", "7", "?", "?"],
    ]


async def test_absent_periods_share_a_line() -> None:
    """Companies that lack the same year are named together, once."""
    panels = [await company("NVIDIA", {2024: 5, 2025: 6}, (2024, 2025))]
    panels += [
        await company(name, {2024: 1}, (2024, 2025), listed=YEARS[:-1]) for name in ("Apple", "Boeing")
    ]
    table = printed(panels)
    assert table.count("Apple, Boeing: no data for FY2025") == 1
    assert table.count("FY2025") == 2
    missing = {panels[1].catalogue.entity_id: {"periods": ("FY2025",)}}
    notes = evolve(together(panels), missing=missing).notes
    assert "Apple has no FY2025" in notes
    assert not any("latest()" in note for note in notes)


async def test_empty_company_names_latest() -> None:
    """A company without a value in the periods has others: the note says how to get the last ones."""
    panels = [await company("NVIDIA", {2025: 6}, (2025,)), await company("Apple", {}, (2025,))]
    notes = together(panels).notes
    assert "Apple has no value in these periods" in notes
    assert "Apple: for the last values of each series, query all periods and call latest()" in notes


async def test_company_without_series_has_no_latest() -> None:
    """No other periods help a company that has neither the metric nor the period."""
    panels = [await company("NVIDIA", {2025: 6}, (2025,)), await company("Apple", {}, (2025,))]
    panels[1] = panels[1].where(lambda _: False)
    missing = {panels[1].catalogue.entity_id: {"metric_ids": ("Revenue",), "periods": ("FY2025",)}}
    notes = evolve(together(panels), missing=missing).notes
    assert {"Apple has no metric 'Revenue'", "Apple has no FY2025"} <= set(notes)
    assert not any("latest()" in note for note in notes)


@pytest.mark.parametrize(
    ("missing", "lines"),
    [
        ({"metric_ids": ("Cost",), "periods": ("FY2025",)}, ["metric 'Cost'", "FY2025"]),
        ({"label": ("Sales",), "periods": ("FY2025",)}, ["label 'Sales'", "FY2025"]),
        ({"where": ("is_large",)}, ["series that meets 'is_large'", "value in these periods"]),
    ],
)
async def test_empty_company_names_all_it_lacks(missing: Any, lines: list[str]) -> None:
    """Also one metric of two: with other periods, that one would be missing all the same."""
    select = Select(["Revenue", "Cost"], label="Sales", where=bool)
    panels = [await company("NVIDIA", {2025: 6}, (2025,)), await company("Apple", {}, (2025,))]
    by_id = {panels[1].catalogue.entity_id: missing}
    comparison = evolve(together(panels), select=select, missing=by_id)
    assert list(comparison.lacking()) == [f"Apple has no {line}" for line in lines]
    by_id = {panels[0].catalogue.entity_id: {"metric_ids": ("Cost",)}}
    # Companies report under other tags: one of them is enough.
    assert not any("Cost" in line for line in evolve(comparison, missing=by_id).notes)
    by_id = {panels[0].catalogue.entity_id: {"series": ("Cost",)}}
    two_series = await part_of_years({2025: 6})
    picked = evolve(comparison, select=Select.of(two_series), missing=by_id)
    assert "NVIDIA has no series 'Cost'" in picked.notes


async def test_note_on_latest_is_one_line() -> None:
    """It names its companies."""
    note = "for the last values of each series, query all periods and call latest()"
    nvidia = renamed(await part_of_years({2025: 6}), "NVIDIA", "O-" + "n" * 32)
    empty = await company("Apple", {}, (2025,))
    full = await company("Boeing", {2025: 6}, (2025,))
    for panels, line in (
        ([nvidia, empty, full], f"NVIDIA, Apple: {note}"),
        ([nvidia, empty], f"NVIDIA, Apple: {note}"),
    ):
        lines = [line for line in together(panels).notes if "latest()" in line]
        assert lines == [line]


async def test_printed_rows_have_values() -> None:
    """As on the command line; `empty` shows the others too."""
    numbers = {"Revenue.annual": {FY[2025]: 5}, "Revenue.quarterly": {}}
    panel = await panel_of(numbers, [FY[2025]])
    comparison = together([panel, renamed(panel, "Boeing", "O-" + "b" * 32)])
    assert comparison.show().tables == comparison.show(all_series=True).tables
    assert "\u00b7" not in str(comparison)
    assert "2 series without a value left out" in str(comparison)
    assert str(comparison.show(empty=True)).count("\u00b7") == 2


async def part_of_years(numbers: Mapping[int, Any]) -> Panel:
    """Return the panel of two metrics, of which a later query leaves one empty."""
    series = {"Revenue.annual": {FY[year]: number for year, number in numbers.items()}, "Debt.annual": {}}
    return await panel_of(series, list(series["Revenue.annual"]), asked=Exact([FY[2025]]), listed=YEARS)


async def test_absent_period_needs_no_request() -> None:
    """A period that a company does not list has no value there, whoever asked for it."""
    apple = await company("Apple", {2024: 5, 2025: 6}, (2024, 2025))
    young = await company("Young", {2025: 1}, (2025,), listed=YEARS[-1:])
    table = printed([apple, young])
    assert "?" not in table
    assert "Young        ·       1" in table


async def test_descriptions_are_below_the_table() -> None:
    """They state the units: one line for a metric, and one that names who differs."""
    dollars = await company("Apple", {2024: 5}, (2024,), Revenue="Net sales. Unit: USD.")
    more = await company("Boeing", {2024: 6}, (2024,), Revenue="Net sales. Unit: USD.")
    yen = await company("Toyota", {2024: 950}, (2024,), Revenue="Net sales. Unit: JPY.")
    assert descriptions([dollars, more]) == ["Label of Revenue: Net sales. Unit: USD."]
    different = (
        "Label of Revenue, different descriptions: Apple, Boeing: Net sales. Unit: USD.;"
        " Toyota: Net sales. Unit: JPY."
    )
    assert descriptions([dollars, more, yen]) == [different]
    assert "Label of Revenue: Net sales. Unit: USD." in str(dollars)
    assert "Label of Revenue: Net sales. Unit: JPY." in yen._repr_html_()


async def test_a_long_description_keeps_its_end() -> None:
    """Units are at the end; the rest is cut in the middle, and hostile characters are escaped."""
    long = await company("Apple", {2024: 5}, (2024,), Revenue=f"Sales\x1b[31m {'of goods ' * 100}Unit: USD.")
    (line,) = descriptions([long])
    assert line.startswith("Label of Revenue: Sales\\x1b[31m of goods")
    assert line.endswith("of goods Unit: USD.")
    assert len(line) < 200


async def test_metrics_share_a_description() -> None:
    """Ten metrics in dollars take one line, and a description that only repeats the name none."""
    numbers = {f"{name}.annual": {FY[2024]: 1} for name in ("a", "b", "c")}
    panel = await panel_of(numbers, [FY[2024]])
    panel = with_texts(panel, "description", {"a": "Unit: USD.", "b": "Label of b", "c": "Unit: USD."})
    assert descriptions([panel]) == ["Label of a, Label of c: Unit: USD."]
    assert "Label of b: " not in str(panel)


@pytest.mark.parametrize(
    ("paths", "line"),
    [
        (
            ["segment=Google Services", *(f"segment=Google Services|product=p{at}" for at in range(5))],
            "1 scope path contains others; adding them up counts twice (segment=Google Services contains 5)",
        ),
        (
            ["", "segment=a", "segment=b", "segment=a|product=p", "product=p|region=r|segment=a"],
            "3 scope paths contain others; adding them up counts twice (the empty path contains 4)",
        ),
        (["segment=a|product=p", "product=p|segment=a"], "2 scope paths contain others; adding them up"),
        (["segment=a", "segment=b", "product=a|region=b"], None),
    ],
)
async def test_paths_that_contain_others_are_named(paths: list[str], line: str | None) -> None:
    """A path contains another if all of its scopes are in the other: their sum counts some twice."""
    numbers = {f"m{at}.annual": {FY[2024]: 1} for at in range(len(paths))}
    panel = await panel_of(numbers, [FY[2024]])
    series = tuple(
        msgspec.structs.replace(each, scopes=parse_path(path) if path else ())
        for each, path in zip(panel.catalogue.series, paths, strict=True)
    )
    panel = with_fields(panel, series=series)
    shown = (str(panel).replace("\n  ", " "), panel._repr_html_())
    for each in shown:
        assert (line in each) if line else ("adding them up" not in each)
