"""The quick look."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.table.panel import Panel
from tests.answers import panel_of
from tests.table.panels import renamed, together, with_texts
from tests.table.test_show import panel_with

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.figure")

FY23, FY24, FY25 = map(Period.parse, ("FY2023", "FY2024", "FY2025"))
Q1, Q2 = Period.parse("FY2024-Q1"), Period.parse("FY2024-Q2")
NUMBERS = {
    "sales.annual": {FY23: 2_500_000_000, FY24: 0},
    "sales.quarterly": {Q1: 1.5, Q2: -2.5, FY24: 3},
    "empty.annual": {},
}


@pytest.fixture(autouse=True)
def pyplot() -> Iterator[object]:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")  # what tests of other files have drawn in this process
    yield pyplot
    pyplot.close("all")


def drawn(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    """Return the coordinates of each line by its label."""
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def ticks(axes: Any) -> list[str]:
    return [tick.get_text() for tick in axes.get_xticklabels()]


async def test_series_has_a_line_per_duration() -> None:
    """Lines go through the numbers at their fiscal ends; a series without values has none."""
    axes = (await panel_of(NUMBERS, [FY23, FY24, Q1, Q2])).plot()
    assert drawn(axes) == {
        "Group annual, 12 months": ([FY23.fiscal_end, FY24.fiscal_end], [2.5e9, 0.0]),
        "Group quarterly, 3 months": ([Q1.fiscal_end, Q2.fiscal_end], [1.5, -2.5]),
        "Group quarterly, 12 months": ([FY24.fiscal_end], [3.0]),
    }
    assert axes.get_title(loc="left") == "Example Company, Label of sales, Whole company, as first reported"


async def test_a_company_has_one_colour(pyplot: Any) -> None:
    """On all axes, also where one before it has no value; the legend names that one."""
    first, second, third = [await amounts_and_rates(name) for name in ("First", "Second", "Third")]
    second = second.where(lambda series: series.metric_id == "rate")
    amounts, rates = together([first, second, third]).plot().figure.axes
    colours = [{line.get_label(): line.get_color() for line in each.lines} for each in (amounts, rates)]
    assert colours == [{"First": "C0", "Third": "C2"}, {"First": "C0", "Second": "C1", "Third": "C2"}]


async def test_second_line_has_own_colour() -> None:
    """Its second line has its second colour on all axes; the next company's follow."""
    numbers = {f"{metric}.annual": {FY23: 1, FY24: 2} for metric in ("sales", "costs", "rate", "share")}
    panel = with_texts(await panel_of(numbers, [FY23, FY24]), "number_format", {"rate": "0%", "share": "0%"})
    panels = [renamed(panel, name, f"O-{name}") for name in ("First", "Second")]
    for axes in together(panels).plot().figure.axes:
        assert [line.get_color() for line in axes.lines] == ["C0", "C1", "C2", "C3"]


async def test_legend_names_series_without_value() -> None:
    """A line that is missing would be taken for one that was not requested."""
    axes = (await panel_of(NUMBERS, [FY23, FY24, Q1, Q2])).plot()
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts[-1] == "no value: Label of empty"


async def test_a_drawn_line_has_values() -> None:
    """Other groups of it may be empty; a company without any line is named once."""
    numbers = {"sales.annual": {FY23: 1, FY24: 2}, "sales.quarterly": {}}
    panel = await panel_of(numbers, [FY23, FY24, Q1])
    assert panel.plot().get_legend() is None
    empty = await panel_of({"sales.annual": {}, "sales.quarterly": {}, "rate.annual": {}}, [FY23, FY24, Q1])
    panels = [renamed(panel, "First", "O-1"), renamed(panel, "Second", "O-2"), renamed(empty, "Third", "O-3")]
    texts = [text.get_text() for text in together(panels).plot().get_legend().get_texts()]
    assert texts == ["First", "Second", "no value: Third"]


async def test_empty_series_differs_from_drawn_ones() -> None:
    """By its metric here: its label is that of the drawn one."""
    panel = await panel_of({"sales.annual": {FY24: 2}, "empty.annual": {}}, [FY23, FY24])
    labels = {"sales": "Sales", "empty": "Sales"}
    texts = [text.get_text() for text in with_texts(panel, "label", labels).plot().get_legend().get_texts()]
    assert texts == ["Sales", "no value: Sales, empty"]


async def test_a_long_legend_fits_its_axes() -> None:
    """Its entries are wrapped: six long names in one line would leave no room for the axes."""
    names = {f"m{number}.annual": {} for number in range(8)}
    panel = await panel_of(
        {**NUMBERS, **names}, [FY23, FY24, Q1, Q2], label="Product sales of a long name " * 3
    )
    axes = panel.plot()
    axes.figure.canvas.draw()
    width, legend = axes.get_window_extent().width, axes.get_legend().get_window_extent()
    assert 0 < legend.width < width * 1.05


async def test_nothing_to_draw_is_an_error(pyplot: Any) -> None:
    """An empty picture would look like an answer; no figure is left open."""
    with pytest.raises(SelectionError, match="there is nothing to draw: no series of Example Company has"):
        (await panel_of({"a.annual": {}}, [FY23])).plot()
    assert not pyplot.get_fignums()


async def test_panels_share_axes() -> None:
    """What holds for all lines is in the title; the names of the entities are in the legend."""
    one = await panel_of({"sales.annual": {FY23: 1, FY24: 2}}, [FY23, FY24])
    axes = one.plot()
    assert axes.get_title(loc="left") == "Example Company, Label of sales, Whole company, as first reported"
    other = renamed(await panel_of({"sales.annual": {FY24: 3, FY25: 4}}, [FY24, FY25]), "Other", "O-Other")
    assert other.plot(axes) is axes
    assert axes.get_title(loc="left") == "Label of sales, Whole company, as first reported"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["Example Company", "Other"]
    assert ticks(axes) == ["FY2023", "FY2024", "FY2025"]
    axes.lines[0].remove()
    third = renamed(await panel_of({"sales.annual": {FY23: 5}}, [FY23]), "Third", "O-Third")
    assert list(drawn(third.plot(axes))) == ["Other", "Third"]


async def test_axes_that_are_none_are_refused() -> None:
    """A figure, as an example, is easily mistaken for its axes."""
    panel = await panel_of({"a.annual": {FY24: 1}}, [FY24])
    with pytest.raises(SelectionError, match="ax must be an Axes, not "):
        panel.plot(matplotlib.figure.Figure())


async def test_lines_on_axes_are_counted() -> None:
    """Ten are the most, of all panels together; the axes keep their lines."""
    axes = (await panel_of({f"m{at}.annual": {FY24: at} for at in range(6)}, [FY24])).plot()
    with pytest.raises(SelectionError, match=r"at most 10 lines, .* not 12"):
        (await panel_of({f"n{at}.annual": {FY24: at} for at in range(6)}, [FY24])).plot(axes)
    assert len(axes.lines) == 6


async def test_a_gap_breaks_the_line() -> None:
    """No line leads over a year without a value, even where no series has one in it."""
    years = [Period(year, 12, 12) for year in range(2020, 2026)]
    panel = await panel_of({"a.annual": {years[0]: 1, years[1]: 2, years[4]: 5}}, years)
    ((ends, numbers),) = drawn(panel.plot()).values()
    assert [end for end, number in zip(ends, numbers, strict=True) if number == number] == [
        years[at].fiscal_end for at in (0, 1, 4)
    ]
    assert [number == number for number in numbers] == [True, True, False, True]


async def test_ticks_are_at_year_ends() -> None:
    """Quarters over many years are labelled by their last one, mixed durations by the year."""
    quarters = [Period(year, month, 3) for year in range(2019, 2025) for month in (3, 6, 9, 12)]
    quarterly = await panel_of({"a.annual": dict.fromkeys(quarters, 1)}, quarters)
    assert ticks(quarterly.plot()) == [f"FY{year}-Q4" for year in range(2019, 2025)]
    both = [*quarters, *(Period(year, 12, 12) for year in range(2019, 2025))]
    mixed = await panel_of({"a.annual": dict.fromkeys(both, 1)}, both)
    assert ticks(mixed.plot()) == [f"FY{year}" for year in range(2019, 2025)]


@pytest.mark.parametrize("label", ["$\\frac{1}$", "$x$ and $y$", "_private", "US$", "\x1b[31mred"])
async def test_a_label_is_drawn_as_text(label: str, tmp_path: Path) -> None:
    """Dollar signs begin no formula, an underscore hides no line, and controls are escaped."""
    panel = await panel_of({"a.annual": {FY24: 1}, "b.annual": {FY24: 2}}, [FY24])
    axes = with_texts(panel, "label", {metric: label + metric for metric in "ab"}).plot()
    axes.figure.savefig(tmp_path / "picture.svg", format="svg")
    assert len(axes.get_legend().get_texts()) == 2
    axes.legend()  # a legend of the user's own takes the same labels
    axes.figure.savefig(tmp_path / "picture.png")


async def amounts_and_rates(name: str = "Example Company") -> Panel:
    """Return billions in one format, and a ratio in another."""
    numbers = {"sales.annual": {FY23: 2e9, FY24: 3e9}, "rate.annual": {FY23: 0.2, FY24: 0.3}}
    panel = await panel_of(numbers, [FY23, FY24])
    return renamed(with_texts(panel, "number_format", {"rate": "0.0%"}), name, f"O-{name}")


async def test_number_formats_have_own_scales(pyplot: Any) -> None:
    """A ratio next to billions has separate axes below them, with the same ticks and a separate title."""
    axes = (await amounts_and_rates()).plot()
    first, second = axes.figure.axes
    assert first is axes
    assert [list(line.get_ydata()) for line in first.lines] == [[2e9, 3e9]]
    assert [list(line.get_ydata()) for line in second.lines] == [[0.2, 0.3]]
    assert second.get_ylim()[1] < 1
    assert [each.get_title(loc="left") for each in (first, second)] == [
        f"Example Company, Label of {metric}, Whole company, as first reported"
        for metric in ("sales", "rate")
    ]
    assert ticks(first) == ticks(second) == ["FY2023", "FY2024"]
    assert len(pyplot.get_fignums()) == 1


async def test_axes_take_one_number_format(pyplot: Any) -> None:
    """The axes keep what they had."""
    _, axes = pyplot.subplots()
    panel = await amounts_and_rates()
    with pytest.raises(SelectionError, match="ax takes series of a single number format"):
        panel.plot(axes)
    assert not axes.lines
    panel.where(lambda series: series.number_format == "#,##0").plot(axes)
    assert len(axes.lines) == 1


async def test_axis_shows_the_descriptions() -> None:
    """They state the units."""
    dollars = await panel_of({"sales.annual": {FY23: 1, FY24: 2}}, [FY23, FY24])
    axes = dollars.plot()
    assert axes.get_ylabel() == "About sales.annual. Unit: USD."
    other = "In $ or _yen_. Unit: JPY."
    with_texts(renamed(dollars, "Other", "O-Other"), "description", {"sales": other}).plot(axes)
    units = "About sales.annual. Unit: USD.\nIn \\$ or _yen_. Unit: JPY."
    assert axes.get_ylabel() == units


@pytest.mark.parametrize(
    ("number", "text", "tick"),
    [
        (11.9, "11.9%", "11.9%"),
        (0.119, "11.9%", "11.9%"),
        (-0.119, "(11.9)%", "-11.9%"),
        (0.119, "0.119", "0.119"),
        (0.001, "0%", "0.001"),
        (387_500_000_000, "387.5 bn", "387.5 B"),
    ],
)
async def test_ticks_are_the_numbers_of_texts(number: float, text: str, tick: str) -> None:
    """A percentage is multiplied only where its text shows it; no digit of a tick is cut."""
    axes = (await panel_with((number, text))).plot()
    assert axes.yaxis.get_major_formatter()(number, 0) == tick


async def test_percentage_scales_have_own_axes() -> None:
    """0.119 and 11.9 are both 11.9 %: on one axis, one of them would be wrong."""
    share = renamed(await panel_with((0.119, "11.9%")), "Share", "O-Share")
    percent = renamed(await panel_with((11.9, "11.9%")), "Percent", "O-Percent")
    axes = together([share, percent]).plot()
    assert [[*each.lines[0].get_ydata()] for each in axes.figure.axes] == [[0.119], [11.9]]


@pytest.mark.parametrize(
    ("numbers", "form"),
    [
        ((15_118_000_000, 15_121_000_000), "#,##0"),
        ((0.25001, 0.25002), "0.0%"),
        ((-3.00001, -3), "0"),
    ],
)
async def test_the_labels_of_ticks_are_distinct(numbers: tuple[float, float], form: str) -> None:
    """With as many digits as that takes, and no more."""
    panel = await panel_of({"sales.annual": dict(zip((FY23, FY24), numbers, strict=True))}, [FY23, FY24])
    axes = with_texts(panel, "number_format", {"sales": form}).plot()
    axes.figure.canvas.draw()
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert len(labels) > 2
    assert len(set(labels)) == len(labels)
