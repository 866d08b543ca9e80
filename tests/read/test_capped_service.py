"""A service that rejects many exact periods: the spec does not show how many a query may have (4.3)."""

from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    FiscalRange,
    Quarterly,
    Select,
    ServiceError,
    Trailing,
    ValidationFailedError,
)
from asyncfin.events import RequestStarted
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Sandbox, Status
from asyncfin.sandbox.dataset import DatasetFile
from asyncfin.table.panel import Panel
from tests.generate import generate
from tests.services.altering import Got, capped

pytestmark = pytest.mark.virtual

LARGE = generate(17, series=600, publications=1, periods=60)
ENTITY_ID = LARGE.entity_id


def cells(panel: Panel) -> dict[tuple[str, str], Any]:
    """Return all values with all their fields, by series and period."""
    return {
        (series.series_id, str(period)): value for series in panel for period, value in series.observations()
    }


def modes(received: list[Got]) -> list[str]:
    """Return the form of periods of each query, and its status."""
    queries = [got for got in received if got.operation == "query"]
    return [f"{got.sent['periods']['mode']} {got.status}" for got in queries]


def count(received: list[Got], operation: str) -> int:
    return sum(got.operation == operation for got in received)


@pytest.mark.parametrize("periods", [Annual(), Quarterly(), FiscalRange(), Trailing(24)], ids=str)
async def test_result_equals_that_without_cap(periods: PeriodSelection) -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, exact=3) as (base_url, _),
        Client(base_url, sandbox.token) as client,
    ):
        right = await plain.query(ENTITY_ID, Select(), periods)
        panel = await client.query(ENTITY_ID, Select(), periods)
    assert cells(panel) == cells(right)
    assert panel.periods == right.periods


@pytest.mark.parametrize("pinned", [False, True])
async def test_one_range_is_tried(pinned: bool) -> None:
    """One metadata request and one range a read, for which the batches in flight wait."""
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, exact=3) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=2) as client,
    ):
        source = await client.catalogue(ENTITY_ID) if pinned else ENTITY_ID
        for _ in range(2):  # nothing is remembered of the first read
            received.clear()
            plan = await client.plan(source, Select(), Annual())
            before = count(received, "dataset")
            panel = await client.run(plan)
            assert len(plan.batches) >= 6
            # Two were in flight; the range is sent alone, and all further batches as ranges.
            ranges = ["fiscal_range 200"] * len(plan.batches)
            assert modes(received) == ["exact 400"] * 2 + ranges
            assert count(received, "dataset") == before + 1
            assert panel.requests == len(plan.batches) + 3


async def test_batches_wait_for_trial() -> None:
    """With all batches in flight at once, the second range is sent after the first page of the first."""
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, exact=3, slow_range=1.0) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=8) as client,
    ):
        await client.query(ENTITY_ID, Select(), Annual())
    first, *others = sorted(got.began for got in received if got.months)
    assert others
    assert min(others) >= first + 1.0


async def test_publication_replaced_after_the_trial() -> None:
    """A later 400 is checked again: the metadata at the trial show nothing of it."""
    both = generate(17, series=600, publications=2, periods=60)
    old, new = (DatasetFile(both.entity_id, both.name, (version,)) for version in both.publications)
    async with (
        Sandbox(old) as sandbox,
        capped(sandbox, exact=3) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):

        def replace(event: object) -> None:
            if isinstance(event, RequestStarted) and modes(received) == ["exact 400", "fiscal_range 200"]:
                sandbox.publish(new)
                sandbox.inject(Status(status=400, code="validation_failed", operation="query", nth=1))

        with client.observed(replace):
            panel = await client.query(both.entity_id, Select(), Annual())
    assert panel.dataset.dataset_id == new.publications[0].dataset_id
    assert len(panel) == 600


async def test_rejected_range_raises_first_error() -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, ids=0) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):
        with pytest.raises(ValidationFailedError) as caught:
            await client.query(ENTITY_ID, Select(), Annual())
    assert modes(received) == ["exact 400", "fiscal_range 400"]
    assert not caught.value.message.startswith("0 periods")
    assert "narrow the query" in caught.value.__notes__[0]


@pytest.mark.parametrize("periods", [Annual(), FiscalRange()], ids=str)
async def test_too_large_query_is_raised(periods: PeriodSelection) -> None:
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, size=100) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):
        with pytest.raises(ServiceError) as caught:
            await client.query(ENTITY_ID, Select(), periods)
    assert caught.value.status == 413
    assert "narrow the query" in caught.value.__notes__[0]
    assert [count(received, operation) for operation in ("dataset", "query")] == [0, 1]
