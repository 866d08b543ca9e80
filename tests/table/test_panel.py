"""The Panel: what it shows, how it is cut, and what looking at its values costs."""

import pickle
from operator import attrgetter

import pytest

from asyncfin.errors import MalformedAnswerError, SelectionError
from asyncfin.model.period import Period
from asyncfin.model.selection import Annual, Exact, FiscalRange, Quarterly, Trailing
from asyncfin.table.panel import Panel
from tests.answers import Stitched, catalogue_of, encoded, page_json, panel_of
from tests.table.panels import with_fields

FY23, FY24 = Period.parse("FY2023"), Period.parse("FY2024")
Q1, Q2 = Period.parse("FY2024-Q1"), Period.parse("FY2024-Q2")
PERIODS = (FY24, Q2, FY23, Q1)
NUMBERS = {
    "sales.annual": {FY23: 100, FY24: 0},
    "sales.quarterly": {Q1: 1.5, Q2: 2.5},
    "costs.annual": {FY24: -7},
    "empty.annual": {},
}


@pytest.fixture
async def panel() -> Panel:
    return await panel_of(NUMBERS, PERIODS)


def test_series_are_in_catalogue_order(panel: Panel) -> None:
    """Groups follow one another as in the catalogue, whatever the order of the page."""
    ids = ["sales.annual", "costs.annual", "empty.annual", "sales.quarterly"]
    assert [series.series_id for series in panel] == ids
    assert [series.series_id for series in panel.series] == ids
    assert panel.series_ids == tuple(ids)
    assert len(panel) == 4


def test_series_by_its_id(panel: Panel) -> None:
    """`in` and [] go by series id, or by the id of a metric that one series alone has."""
    assert "costs.annual" in panel
    assert panel["costs.annual"].metric_id == "costs"
    assert "costs" in panel
    assert panel["costs"].series_id == "costs.annual"
    assert panel.why("costs", "FY2024") == panel.why("costs.annual", "FY2024")
    assert "sales" not in panel
    assert "nothing" not in panel
    assert 5 not in panel
    with pytest.raises(KeyError, match=r"write panel\['costs'\]\['FY2024'\]"):
        panel["costs", "FY2024"]  # type: ignore[index]
    with pytest.raises(KeyError, match=r"no series 'sales'; of that metric: sales\.annual \("):
        panel["sales"]
    with pytest.raises(KeyError, match=r"no series 'cost\.annual' \(close: costs\.annual"):
        panel["cost.annual"]


async def test_range_has_periods_with_values() -> None:
    """A page may list periods in which nothing is observed."""
    panel = await panel_of({"sales.annual": {FY24: 1}}, PERIODS)
    assert panel.periods == (FY24,)


async def test_exact_has_all_its_periods() -> None:
    """Also those that no page lists."""
    panel = await panel_of({"sales.annual": {FY24: 1}}, [FY24], asked=Exact([FY24, Q1]))
    assert panel.periods == (Q1, FY24)


def test_one_is_the_only_series(panel: Panel) -> None:
    """With several, the error names them."""
    only = panel.where(lambda series: series.label == "Label of costs")
    assert only.one().series_id == "costs.annual"
    with pytest.raises(SelectionError, match=r"4: sales\.annual \(Label of sales, Whole company, annual\)"):
        panel.one()
    with pytest.raises(SelectionError, match=r"has 0$"):
        panel.where(lambda series: False).one()


def test_where_selects_series_by_predicate(panel: Panel) -> None:
    """The predicate can look at values too; periods stay."""
    cut = panel.where(lambda series: any(value.number < 0 for _, value in series.observations()))
    assert cut.series_ids == ("costs.annual",)
    assert cut.periods == panel.periods
    assert cut["costs.annual"] == panel["costs.annual"]


def test_where_cuts_the_unlisted_ids(panel: Panel) -> None:
    """Of two series that the service left out, a panel without one of them names the other only."""
    whole = with_fields(panel, unlisted_ids=("costs.annual", "empty.annual"))
    cut = whole.where(lambda series: series.series_id != "empty.annual")
    assert cut.unlisted == ("costs.annual",)
    assert whole.where(lambda series: series.metric_id == "sales").unlisted == ()
    assert whole.during("FY2024").unlisted == whole.unlisted


@pytest.mark.parametrize(
    ("cut", "left"),
    [
        (FY24, (FY24,)),
        ("FY2024-Q2", (Q2,)),
        ([FY24, "FY2024-Q1"], (Q1, FY24)),
        (Exact([FY23]), (FY23,)),
        (FiscalRange((2024, 1), (2024, 6)), (Q1, Q2)),
        (FiscalRange(start=(2024, 4)), (Q2, FY24)),
        (FiscalRange(1900, 1901), ()),
        (Annual(), (FY23, FY24)),
        (Annual(last=1), (FY24,)),
        (Quarterly(), (Q1, Q2)),
    ],
    ids=repr,
)
def test_during_keeps_the_periods_meant(panel: Panel, cut: object, left: tuple[Period, ...]) -> None:
    """A cut panel has fewer periods, and its values are those of the whole one."""
    shorter = panel.during(cut)  # type: ignore[arg-type]
    assert shorter.periods == left
    for series in panel:
        whole = dict(zip(series.periods, series.values, strict=True))
        assert shorter[series.series_id].values == tuple(whole[period] for period in left)
    expected = sum(period in left for numbers in NUMBERS.values() for period in numbers)
    assert shorter.value_count == expected


def test_during_rejects_absent_periods(panel: Panel) -> None:
    """The error names it and what there is."""
    with pytest.raises(SelectionError, match="no period FY2022; it has 4 periods, FY2023 to FY2024"):
        panel.during("FY2022")


@pytest.mark.parametrize("wrong", [Trailing(12), 3, None, FY24.year])
def test_during_rejects_other_selections(panel: Panel, wrong: object) -> None:
    """A window belongs to a question: it has its own anchor."""
    with pytest.raises(SelectionError):
        panel.during(wrong)  # type: ignore[arg-type]


async def test_trailing_panel_names_its_anchors() -> None:
    """Its window ends at the latest value, and the series that has it is named."""
    panel = await panel_of(NUMBERS, PERIODS, asked=Trailing(24))
    assert panel.anchor == FY24
    assert panel.anchored_by == ("sales.annual", "costs.annual")
    assert "the window ends at FY2024, set by Label of sales, Label of costs" in str(panel)
    assert "the window ends at FY2024" in panel._repr_html_()


def test_panel_does_not_cache_series(panel: Panel) -> None:
    """Values are decoded once as long as their Series is held; the next look makes new ones."""
    held = panel["sales.annual"]
    assert held.values is held.values
    assert panel["sales.annual"].values is not held.values
    assert panel["sales.annual"].values == held.values


def test_a_panel_can_be_pickled(panel: Panel) -> None:
    """The unpickled panel has the same series, values and periods."""
    again = pickle.loads(pickle.dumps(panel.during(Annual())))
    assert again.periods == (FY23, FY24)
    assert list(again) == list(panel.during(Annual()))
    assert [series.values for series in again] == [series.values for series in panel.during(Annual())]
    assert again.catalogue == panel.catalogue


async def test_broken_values_are_reported() -> None:
    """The numbers are sound, so the panel is made; the text breaks the spec."""
    document = page_json([FY24], {"a.annual": {FY24: 1}, "b.annual": {FY24: 2}})
    document["series"][1]["values"][0]["text"] = 5
    catalogue = catalogue_of(["a.annual", "b.annual"])
    stitch = Stitched(catalogue, catalogue.series, Exact([FY24]))
    home = frozenset({"a.annual", "b.annual"})
    await stitch.add(encoded(document), home=home, asked=Exact([FY24]))
    panel = stitch.panel()
    assert [value.number for value in panel["a.annual"].values if value] == [1]
    where = r"\$\.series\[1\] \(b\.annual\)\.values\[0\]\.text"
    with pytest.raises(MalformedAnswerError, match=where):
        attrgetter("values")(panel["b.annual"])
    with pytest.raises(MalformedAnswerError, match=where):
        panel.check()
    with pytest.raises(MalformedAnswerError, match=where):
        panel.show()
    panel.where(lambda series: series.series_id == "a.annual").check()
