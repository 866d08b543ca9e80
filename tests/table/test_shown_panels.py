"""How panels show themselves: as text, in notebooks, as JSON, as arrays and labelled frames."""

from typing import Any, cast

import pytest
from attrs import evolve

from asyncfin.client import Client
from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.selection import Annual, Exact
from asyncfin.sandbox import Sandbox
from asyncfin.table.panel import Panel, concat
from asyncfin.text import cell_width, table_lines
from tests import handmade
from tests.answers import panel_of
from tests.table.panels import with_fields, with_texts

FY23, FY24 = Period.parse("FY2023"), Period.parse("FY2024")
Q1, Q2 = Period.parse("FY2024-Q1"), Period.parse("FY2024-Q2")
H1 = Period.parse("FY2024-H1")
NUMBERS = {
    "sales.annual": {FY23: 1234, FY24: 0},
    "costs.annual": {FY24: -7},
    "empty.annual": {},
    "sales.quarterly": {Q1: 1.5, Q2: 2.5, H1: 4.0},
}


@pytest.fixture
async def panel() -> Panel:
    return await panel_of(NUMBERS, (FY24, Q2, FY23, Q1, H1))


def relabelled(panel: Panel, **labels: str) -> Panel:
    """Return the panel with other labels for some of its metrics."""
    return with_texts(panel, "label", labels)


def test_text_has_a_table_per_duration(panel: Panel) -> None:
    """Years, then quarters, then half years, each with the series that have a value there."""
    company = "Example Company (O-0123456789abcdef0123456789abcdef)"
    assert repr(panel) == f"<Panel of {company}: 4 series by 5 periods>"
    assert str(panel).split("\n\n") == [
        f"{company}, original values",
        "periods of 12 months\n"
        "series          FY2023  FY2024\n"
        "──────────────────────────────\n"
        "Label of sales   1,234       0\n"
        "Label of costs       ·      -7",
        "periods of 3 months\n"
        "series          FY2024-Q1  FY2024-Q2\n"
        "────────────────────────────────────\n"
        "Label of sales        1.5        2.5",
        "periods of 6 months\n"
        "series          FY2024-H1\n"
        "─────────────────────────\nLabel of sales        4.0",
        "1 series without a value left out\n"
        "Label of sales, different descriptions: Group annual: About sales.annual. Unit: USD.; Group\n"
        "  quarterly: About sales.quarterly. Unit: USD.\n"
        "Label of costs: About costs.annual. Unit: USD.\n"
        "publication 6d1f1f0e-3d0c-4f4c-9a7e-0d5e7d0b1c2d of 2026-02-03 04:05 UTC\n"
        "4 series by 5 periods, FY2023 to FY2024: 6 values",
    ]


async def test_text_fits_a_hundred_columns() -> None:
    """Of many long names and large figures it shows the first series at their latest periods."""
    years = [Period(year, 12, 12) for year in range(1990, 2025)]
    numbers = {f"m{at}.annual": dict.fromkeys(years, 10**14 + at) for at in range(30)}
    panel = await panel_of(numbers, years)
    panel = relabelled(panel, **{f"m{at}": f"{'A long name of a metric, ' * 5}{at}" for at in range(30)})
    panel = with_fields(panel, unlisted_ids=tuple(numbers)[:3])
    text = str(panel)
    assert max(map(len, text.splitlines())) <= 100
    assert "FY2024" in text
    assert "FY2015" not in text
    assert "\nthe latest 3 of 35 periods are shown\n20 more series not shown\n" in text
    assert "3 series were left out by the service: A long name of a metric, " in text.replace("\n  ", " ")
    assert "\nthe latest of 35 periods is shown\n" in str(panel.show(width=50))


async def test_text_fits_with_wide_characters() -> None:
    """A sign that takes two columns counts twice; only a figure wider than the table is cut."""
    panel = relabelled(
        await panel_of({"a.annual": {FY24: 10**90}, "b.annual": {FY24: 1}}, [FY24]), a="売上高" * 40
    )
    head, rule, *rows = str(panel).split("\n\n")[1].splitlines()
    assert max(len(rule), len(head)) <= 100
    assert "…" in rows[0]
    assert max(map(cell_width, str(panel).splitlines())) <= 100


def test_an_empty_panel_says_why(panel: Panel) -> None:
    """No series, or series without a value in these periods: of which cadence, and what there is."""
    assert "no values, because no series is selected" in str(panel.where(lambda series: False))
    quarterly = panel.where(lambda series: series.reporting_group_id == "quarterly").during("FY2023")
    assert quarterly.notes[-1] == (
        "no values, because no series has one in 1 period, FY2023; the cadence of their reporting groups is"
        " quarterly, and the catalogue has 5 periods, FY2023 to FY2024: choose other series or periods"
    )
    assert "\nno values, because no series has one in 1 period, FY2023; " in str(quarterly)
    assert max(map(len, str(quarterly).splitlines())) <= 100


@pytest.mark.parametrize("harm", ["\x1b[31m", "\x9b31m", "\u202e", "\x00", "\n", "\r"])
def test_texts_are_escaped_for_terminals(panel: Panel, harm: str) -> None:
    """ESC, C1, marks of direction, NUL and line ends are escaped in str, repr and HTML."""
    catalogue = evolve(panel.catalogue, name=f"Evil{harm}Company")
    unlisted = with_fields(panel, unlisted_ids=("empty.annual",))
    evil = relabelled(unlisted, sales=f"Sales{harm}", costs=f"Costs{harm}", empty=f"empty{harm}")
    evil = with_fields(evil, catalogue=catalogue)
    for text in (str(evil), repr(evil), evil._repr_html_()):
        assert harm == "\n" or harm not in text
        assert "Evil\\" in text
    assert len(str(evil).splitlines()) == len(str(unlisted).splitlines())


async def test_notebook_has_the_same_tables() -> None:
    """Annual series are not shown at quarters, and what is not shown is counted below."""
    years = [Period(year, 12, 12) for year in range(2000, 2025)]
    quarters = [Period(year, month, 3) for year in range(2000, 2025) for month in (3, 6, 9, 12)]
    numbers = {f"m{at}.annual": dict.fromkeys(years, at) for at in range(20)}
    panel = await panel_of(numbers | {"q.quarterly": dict.fromkeys(quarters, 5)}, [*years, *quarters])
    annual, quarterly = panel._repr_html_().split('<div style="overflow-x: auto"><table>')[1:]
    quarterly, notes = quarterly.split("</table>")
    assert ">periods of 12 months<" in annual
    assert "FY2024" in annual
    assert "-Q" not in annual
    assert "FY2024-Q4" in quarterly
    for note in ("the latest 19 of 125 periods are shown", "10 more series not shown"):
        assert note in notes
        assert note in str(panel).splitlines()


def test_drop_empty_leaves_values(panel: Panel) -> None:
    """Nothing else changes, and dropping again changes nothing."""
    annual = panel.during([FY23, FY24, Q1]).where(lambda series: series.reporting_group_id == "annual")
    dropped = annual.drop_empty()
    assert dropped.series_ids == ("sales.annual", "costs.annual")
    assert dropped.periods == (FY23, FY24)
    assert dropped["costs.annual"] == annual.during(Annual())["costs.annual"]
    assert dropped.drop_empty().series_ids == dropped.series_ids
    nothing = panel.where(lambda series: series.metric_id == "empty").drop_empty()
    assert (len(nothing), nothing.periods) == (0, ())


def test_concat_accepts_panels_only(panel: Panel) -> None:
    """A panel is iterable, so its series would be taken for panels."""
    pytest.importorskip("pyarrow")
    assert concat(panel).equals(concat([panel]))
    wrong: Any = [panel, panel["sales.annual"]]
    with pytest.raises(SelectionError, match="each of panels must be a Panel, not Series"):
        concat(wrong)
    with pytest.raises(SelectionError, match="each of panels must be a Panel, not 5"):
        concat(cast("Any", 5))
    with pytest.raises(ArgumentError, match="layout must be 'long' or 'wide', not <Panel"):
        concat(panel, cast("Any", panel))


@pytest.mark.parametrize("wrong", ["costs", None])
def test_predicate_must_be_callable(panel: Panel, wrong: Any) -> None:
    """An async function would be true of every series."""

    async def always(series: Any) -> bool:
        return True

    for predicate in (always, wrong):
        with pytest.raises(ArgumentError, match="predicate must be a function that is not async"):
            panel.where(predicate)


def test_long_names_are_wrapped() -> None:
    """Every line fits, wide characters count twice, controls are escaped, and no text is lost."""
    rows = [("short", "a name of several words"), ("日本語の長い名前です", "one\x1b[31mred"), ("x" * 30, "")]
    for width in (100, 30, 20):
        head, rule, *lines = table = table_lines(("id", "name"), rows, width)
        assert max(map(cell_width, table)) <= width
        assert (head.split(), set(rule)) == (["id", "name"], {"─"})
        for word in ("short", "several", "words"):
            assert word in "\n".join(lines)
        assert "".join(lines).count("x") == 31  # one of them in \x1b
    assert len(table_lines(("id", "name"), rows, 100)) == 5


@pytest.mark.parametrize("text", ["of this and that ", "x", "日本", "\x1b[31m", "<&>", "e\u0301"])
async def test_huge_name_is_cut_in_displays(text: str) -> None:
    """Of a panel, a catalogue, a plan and a comparison, as text, HTML and repr, and in a picture."""
    name, ids = "Acme " + text * (1_000_000 // len(text)), ["O-" + digit * 32 for digit in "12"]
    numbers = {(metric, "all"): {"FY2023": 1.0, "FY2024": 2.0} for metric in ("Revenue", "Cost")}
    datasets = [handmade.dataset(numbers, entity_id=each) | {"name": f"{name}{each}"} for each in ids]
    async with Sandbox(*datasets) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        plan = await client.plan(ids[0], Select(), Annual())
        panel = await client.run(plan)
        companies = await client.compare(ids, Select(), Exact(["FY2023", "FY2024"]))
        failing = await client.compare([*ids, "O-" + "3" * 32], Select("Cost"), Annual(last=3))
    for each in (panel, panel.show(unit="millions"), panel.catalogue, plan, companies, failing):
        for shown in (str(each), repr(each), each._repr_html_()):
            assert "Acme " in shown or shown.startswith("<Comparison of 2 entities")
            assert len(shown) < 50_000
    assert max(map(cell_width, str(companies).splitlines())) <= 100
    pytest.importorskip("matplotlib").use("Agg")
    axes = companies.plot()
    texts = [axes.get_title(loc="left"), *(each.get_text() for each in axes.get_legend().get_texts())]
    assert len("".join(texts)) < 20_000


async def test_huge_label_is_cut_before_measuring(panel: Panel) -> None:
    """Wrapping it took twelve seconds; a text, and a notebook's table, show the start of it."""
    long = "Sales " + "of this and that " * 60_000
    every = relabelled(panel, **dict.fromkeys(("sales", "costs", "empty"), long))
    one = relabelled(panel, sales=long)
    for each in (every, one, every.drop_empty(), one.drop_empty()):
        for text in (str(each), each._repr_html_(), str(each.show(unit="millions"))):
            assert "Sales of this" in text
            assert len(text) < 30_000
    with pytest.raises(SelectionError) as caught:
        every.one()
    assert len(str(caught.value)) < 2_000
    assert max(map(len, table_lines(["name"], [[long]], 40))) <= 40
    assert len("".join(table_lines(["name"], [[long]], 40))) < 2_000
