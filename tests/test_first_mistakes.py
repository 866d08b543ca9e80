"""Mistakes of a first day in Python: one error that says what to write, and no request is spent."""

from datetime import date
from typing import Any

import pytest

from asyncfin import Annual, Client, Panel, Select, SelectionError, changes, known_by
from asyncfin.sandbox import Sandbox
from tests.handmade import ENTITY_ID, dataset


async def test_multiple_entities_are_a_comparison() -> None:
    async with Client("https://service.example", "token") as client:
        with pytest.raises(SelectionError, match=r"write client\.compare\(\[\.\.\.\], \.\.\.\)$"):
            await client.query([ENTITY_ID, ENTITY_ID], Select(), Annual())  # type: ignore[arg-type]


@pytest.fixture
async def versions() -> tuple[Panel, Panel]:
    """The original and the restated values of one publication."""
    async with (
        Sandbox(dataset({("EPS", "all"): {"FY2023": 1.0, "FY2024": 2.0}})) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        original = await client.query(ENTITY_ID, Select(), Annual())
        restated = await client.query(ENTITY_ID, Select(), Annual(), value_version="latest_restated")
    return original, restated


async def test_two_versions_are_not_two_publications(versions: tuple[Panel, Panel]) -> None:
    with pytest.raises(SelectionError) as caught:
        changes(*versions)
    assert 'known_by(original, restated, "FY2024")' in str(caught.value)


@pytest.mark.parametrize("day", ["2023-06-30", date(2023, 6, 30)], ids=str)
async def test_date_is_not_fiscal_period(versions: tuple[Panel, Panel], day: Any) -> None:
    with pytest.raises(SelectionError) as caught:
        known_by(*versions, day)
    assert "a fiscal period such as FY2023" in str(caught.value)
    assert str(caught.value).endswith('; for a date keep a feed: as_of(folder, "2023-06-30")')


async def test_period_is_second_key_of_panel(versions: tuple[Panel, Panel]) -> None:
    with pytest.raises(KeyError, match=r"write panel\['EPS'\]\['FY2024'\]"):
        versions[0]["EPS", "FY2024"]  # type: ignore[index]
