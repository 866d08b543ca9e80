"""A service that refuses many exact periods: the spec does not show how many a query may have (4.3)."""

from typing import Any

import pytest

from asyncfin import Annual, Client, FiscalRange, Quarterly, Select, Trailing, ValidationFailedError
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Sandbox
from asyncfin.table.panel import Panel
from tests.generate import generate
from tests.services.altering import Got, capped

pytestmark = pytest.mark.virtual

LARGE = generate(17, series=600, publications=1, periods=60)
ENTITY_ID = LARGE.entity_id


def cells(panel: Panel) -> dict[tuple[str, str], Any]:
    """Return all values with all their fields, by series and period."""
    return {(each.series_id, str(period)): value for each in panel for period, value in each.observations()}


def refused(received: list[Got]) -> list[Got]:
    return [got for got in received if got.status in (400, 413)]


@pytest.mark.parametrize("status", [400, 413])
@pytest.mark.parametrize("periods", [Annual(), Quarterly(), FiscalRange(), Trailing(24)], ids=str)
async def test_a_result_equals_that_without_the_cap_and_the_second_question_is_not_refused(
    periods: PeriodSelection, status: int
) -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, exact=3, exact_status=status) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        right = await plain.query(ENTITY_ID, Select(), periods)
        panel = await client.query(ENTITY_ID, Select(), periods)
        first = [*received]
        received.clear()
        again = await client.query(ENTITY_ID, Select(), periods)
    assert cells(panel) == cells(again) == cells(right)
    assert panel.periods == again.periods == right.periods
    assert not refused(received)
    checks = [got for got in first if got.operation == "dataset"]
    assert len(checks) == any(got.status == 400 for got in first), "one request for the metadata"


async def test_a_stream_has_each_series_once() -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, exact=3) as (base_url, _),
        Client(base_url, sandbox.token) as client,
        client.stream(ENTITY_ID, Select(), Annual()) as pieces,
    ):
        ids = [each.series_id async for piece in pieces for each in piece]
    assert len(ids) == len(set(ids)) == 600


@pytest.mark.parametrize("periods", [Annual(), FiscalRange()], ids=str)
async def test_a_refusal_that_is_not_about_exact_periods_is_raised(periods: PeriodSelection) -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, ids=0) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        with pytest.raises(ValidationFailedError):
            await client.query(ENTITY_ID, Select(), periods)
    assert len(refused(received)) <= 2 * client.max_in_flight


async def test_a_batch_that_is_refused_as_a_range_too_teaches_nothing() -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, ids=0) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):
        for _ in range(2):
            with pytest.raises(ValidationFailedError):
                await client.query(ENTITY_ID, Select(), Annual())
        modes = [got.sent["periods"]["mode"] for got in received if got.operation == "query"]
    assert modes == ["exact", "fiscal_range"] * 2
