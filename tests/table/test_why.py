"""Why a cell is empty, and what is said about a mistaken key."""

from collections.abc import Mapping
from typing import Any

import pytest

from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, Resolved
from asyncfin.table.panel import Panel
from tests.answers import EVER, panel_of
from tests.table.panels import with_fields

YEARS = [Period(year, 12, 12) for year in range(2018, 2025)]
QUARTERS = [Period(year, month, 3) for year in (2023, 2024) for month in (3, 6, 9, 12)]
LISTED = sorted([*YEARS, *QUARTERS])
NUMBERS = {
    "sales.annual": {Period(year, 12, 12): year for year in (2020, 2022, 2023)},
    "costs.annual": {Period(2021, 12, 12): 1},
    "orders.quarterly": {QUARTERS[0]: 1, QUARTERS[2]: 2},
    "empty.annual": {},
}


async def panel_with(numbers: Mapping[str, Any] = NUMBERS, asked: Resolved = EVER) -> Panel:
    within = {
        each: {
            period: number
            for period, number in found.items()
            if not isinstance(asked, Exact) or period in asked.periods
        }
        for each, found in numbers.items()
    }
    return await panel_of(within, LISTED, asked=asked)


@pytest.mark.parametrize(
    ("series_id", "period", "reason"),
    [
        ("sales.annual", "FY2022", None),
        ("sales.annual", "FY2010", "outside the catalogue's span: FY2018 to FY2024"),
        ("sales.annual", "FY2023-Q1", "values for other durations only: 12 months"),
        ("sales.annual", "FY2018", "before the first value of the series: FY2020"),
        ("sales.annual", "FY2024", "after the last value of the series: FY2023"),
        ("orders.quarterly", "FY2023-Q2", "no requested series has a value in FY2023-Q2"),
        ("empty.annual", "FY2021", "no value"),
        ("empty.annual", "FY2021-H1", "the catalogue does not have FY2021-H1"),
    ],
)
async def test_the_first_reason_that_applies(series_id: str, period: str, reason: str | None) -> None:
    """Of a panel over all periods, every empty cell has one of the reasons; a value has none."""
    panel = await panel_with()
    assert panel.why(series_id, period) == reason
    assert panel.why(series_id, Period.parse(period)) == reason


async def test_an_unlisted_series_is_that_first() -> None:
    """Whatever else applies, the service left the series out."""
    panel = await panel_with()
    panel = with_fields(panel, unlisted_ids=("empty.annual",))
    for period in ("FY2021", "FY1999"):
        reason = panel.why("empty.annual", period)
        assert reason is not None
        assert reason.startswith("unlisted")


async def test_mistaken_key_names_a_correct_one() -> None:
    """A period in place of a series, a year in place of a label, a name that the panel does not have."""
    panel = await panel_with()
    with pytest.raises(KeyError, match=r'a period is the second key, panel\[series_id\]\["FY2024"\]'):
        panel["FY2024"]
    for mistaken in ("fy2024", 2024):
        with pytest.raises(KeyError, match=r'panel\[series_id\]\["FY2024"\]'):
            panel[mistaken]  # type: ignore[index]
    with pytest.raises(KeyError, match=r"no series \['costs.annual'\]: the key is a series_id"):
        panel[["costs.annual"]]  # type: ignore[index]
    with pytest.raises(KeyError, match=r"no series 'NetIncome'; there are: costs, empty, "):
        panel.why("NetIncome", "FY2022")
    wrong: Any = 2023
    with pytest.raises(SelectionError, match='not 2023: it has FY2020 to FY2023; write "FY2023"'):
        panel["sales.annual"][wrong]
    with pytest.raises(SelectionError, match='write "FY2023"'):
        panel["sales.annual"]["FY23"]
