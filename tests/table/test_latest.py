"""The last values of each series."""

import pytest

from asyncfin import Annual, Client, FiscalRange, Select
from asyncfin.errors import ArgumentError
from asyncfin.model.period import Period
from asyncfin.sandbox import Sandbox
from asyncfin.typing import PeriodSelection
from tests import handmade
from tests.answers import panel_of

YEARS = [Period(year, 12, 12) for year in range(2020, 2026)]
NUMBERS = {
    "ended.annual": {YEARS[0]: 1, YEARS[1]: 2},
    "current.annual": {YEARS[4]: 3, YEARS[5]: 4},
    "empty.annual": {},
}


async def test_each_series_has_its_own_period() -> None:
    """Where one odd series reaches the last year, the others have not vanished."""
    latest = (await panel_of(NUMBERS, YEARS)).latest()
    assert {row.series.series_id: row.texts for row in latest} == {
        "ended.annual": {YEARS[1]: "2"},
        "current.annual": {YEARS[5]: "4"},
    }
    lines = str(latest).splitlines()
    assert any(line.split() == ["Label", "of", "ended", "FY2021", "2"] for line in lines)
    assert "1 series without a value left out" in lines
    assert [row["number"] for row in latest.to_dicts()] == [2, 4]
    two = (await panel_of(NUMBERS, YEARS)).latest(2)
    assert [list(row.texts.values()) for row in two] == [["1", "2"], ["3", "4"]]
    assert "FY2021" in latest._repr_html_()


async def test_frame_has_columns_without_rows() -> None:
    """A frame of no values has the same ones."""
    pytest.importorskip("pandas")
    latest = (await panel_of(NUMBERS, YEARS)).latest()
    empty = (await panel_of({"empty.annual": {}}, YEARS)).latest()
    assert list(empty.to_pandas().columns) == list(latest.to_pandas().columns) == list(latest.to_dicts()[0])


async def test_a_wrong_count_is_rejected() -> None:
    """None, or less than one."""
    panel = await panel_of(NUMBERS, YEARS)
    with pytest.raises(ArgumentError, match="n must be a whole number, at least 1"):
        panel.latest(0)


async def test_notes_name_what_to_query() -> None:
    """A rule with `last` leaves series empty, and its panel has no later values than it asked for."""
    numbers = {("Odd", "all"): {"FY2025": 1.0}, ("Revenue", "all"): {"FY2023": 5.0, "FY2024": 6.0}}
    async with (
        Sandbox(handmade.dataset(numbers)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        last = await client.query(sandbox.entities[0], Select(), Annual(last=1))
        every = await client.query(sandbox.entities[0], Select(), FiscalRange())
        select = Select(metric_ids="Revenue")
        without_values = await client.query(sandbox.entities[0], select, Annual(last=1))
    note = "for the last values of each series, query all periods and call latest()"
    assert any(line.startswith(note) for line in last.notes)
    assert without_values.value_count == 0
    assert any(line.startswith(note) for line in without_values.notes)
    assert not any(line.startswith(note) for line in every.notes)
    assert "query all periods" in last.latest().notes[-1]
    assert every.latest().notes == ()
    assert [row.texts for row in every.latest()] == [
        {Period.parse("FY2025"): "1"},
        {Period.parse("FY2024"): "6"},
    ]


async def test_note_needs_omitted_periods() -> None:
    """It is shown where a period that was not requested can have a last value."""
    numbers = {("Revenue", "all"): {"FY2022": 4.0, "FY2023": 5.0, "FY2024": 6.0, "FY2025-Q1": 1.0}}
    async with (
        Sandbox(handmade.dataset(numbers)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):

        async def has_note(periods: PeriodSelection, n: int = 1) -> bool:
            panel = await client.query(sandbox.entities[0], Select(), periods)
            return any("query all periods" in note for note in panel.latest(n).notes)

        assert not await has_note(Annual(), 5)
        assert not await has_note(Annual(last=1))
        assert await has_note(Annual(last=1), 2)
        assert not await has_note(Annual(start=2023))
        assert await has_note(Annual(end=2023))
