"""The quick look."""

from collections.abc import Iterator

import pytest

from asyncfin.errors import SelectionError
from asyncfin.model.period import Annual, Exact, Period
from tests.answers import panel_of

matplotlib = pytest.importorskip("matplotlib")

FY23, FY24 = Period.parse("FY2023"), Period.parse("FY2024")
Q1, Q2 = Period.parse("2024-Q1"), Period.parse("2024-Q2")
NUMBERS = {
    "sales.annual": {FY23: 2_500_000_000, FY24: 0},
    "sales.quarterly": {Q1: 1.5, Q2: -2.5, FY24: 3},
    "empty.annual": {},
}


@pytest.fixture(autouse=True)
def pyplot() -> Iterator[object]:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


async def test_each_series_has_a_line_for_each_duration() -> None:
    """Lines go through the numbers at their fiscal ends; a series without values has none."""
    axes = (await panel_of(NUMBERS, [FY23, FY24, Q1, Q2])).plot()
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}
    assert lines == {
        "Label of sales, annual, 12 months": ([FY23.fiscal_end, FY24.fiscal_end], [2.5e9, 0.0]),
        "Label of sales, quarterly, 3 months": ([Q1.fiscal_end, Q2.fiscal_end], [1.5, -2.5]),
        "Label of sales, quarterly, 12 months": ([FY24.fiscal_end], [3.0]),
    }


async def test_what_all_lines_share_is_in_the_title() -> None:
    """And periods of one duration go by their labels."""
    panel = await panel_of({"sales.annual": NUMBERS["sales.annual"]}, [FY23, FY24])
    axes = panel.during(Annual()).plot()
    assert axes.get_title(loc="left") == "Example Company, Label of sales, Whole company, annual"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["FY2023", "FY2024"]
    assert axes.yaxis.get_major_formatter()(2.5e9, 0) == "2.5 B"


async def test_a_duration_without_a_line_sets_nothing_apart() -> None:
    """Lines that are all of years are not called so because a quarter was asked for."""
    periods, asked = [FY23, FY24, Q1], Exact([FY23, FY24, Q1])
    panel = await panel_of({"sales.annual": NUMBERS["sales.annual"]}, periods, asked=asked)
    assert len(panel.periods) == 3
    assert [line.get_label() for line in panel.plot().lines] == ["Label of sales"]


async def test_it_draws_on_the_axes_it_is_given(pyplot: object) -> None:
    """A panel can be a part of a larger picture."""
    figure, axes = pyplot.subplots()  # type: ignore[attr-defined]
    assert (await panel_of(NUMBERS, [FY23, FY24, Q1, Q2])).plot(axes) is axes
    figure.savefig("/dev/null", format="png")


async def test_an_empty_panel_is_an_empty_picture() -> None:
    """No line, no legend, no error."""
    assert not (await panel_of({"a.annual": {}}, [FY23])).plot().lines


async def test_too_many_lines_are_refused() -> None:
    """The error says how to cut the panel."""
    panel = await panel_of({f"m{at}.annual": {FY24: at} for at in range(11)}, [FY24])
    with pytest.raises(SelectionError, match=r"at most 10 lines, .* not 11: .*where"):
        panel.plot()
