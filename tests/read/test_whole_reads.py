"""Whole reads: what a client keeps of publications, and when a stream can give its pieces."""

import asyncio
from itertools import pairwise

import pytest

from asyncfin import (
    Client,
    DatasetChangedError,
    FiscalRange,
    Select,
    Trailing,
    ValidationFailedError,
)
from asyncfin.model.selection import Annual
from asyncfin.sandbox import Latency, Sandbox, Status
from asyncfin.sandbox.dataset import DatasetFile
from tests.generate import generate
from tests.handmade import ENTITY_ID, FIRST, SECOND, dataset
from tests.services.altering import capped

pytestmark = pytest.mark.virtual

SMALL = {("Sales", "all"): {"FY2023": 1, "FY2024": 2}}
OLD, NEW = (dataset(SMALL, dataset_id=each) for each in (FIRST, SECOND))


async def test_the_waits_between_restarts_grow() -> None:
    """Metadata that lag behind what refuses the old publication are given some time."""
    refused = Status(status=409, code="dataset_changed", operation="query")
    async with Sandbox(OLD, faults=[refused]) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        loop = asyncio.get_running_loop()
        begun: list[float] = []
        with (
            client.observed(lambda event: begun.append(loop.time())),
            pytest.raises(DatasetChangedError),
        ):
            await client.query(ENTITY_ID, Select(), Annual())
        assert [served.operation for served in sandbox.log].count("query") == 4
    waits = [later - earlier for earlier, later in pairwise(begun) if later - earlier > 0.01]
    assert len(waits) == 3
    assert all(later > 2 * earlier for earlier, later in pairwise(waits))
    assert sum(waits) < 10


REFUSED = Status(status=400, code="validation_failed", operation="query", nth=1)


async def test_400_of_replaced_publication_restarts() -> None:
    """A service may check ids before the pin: one metadata request shows that the publication has changed."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await client.query(ENTITY_ID, Select(), Annual())
        sandbox.publish(NEW)
        sandbox.inject(REFUSED)
        spent = len(sandbox.log)
        panel = await client.query(ENTITY_ID, Select(), Annual())
        operations = [served.operation for served in list(sandbox.log)[spent:]]
    assert panel.dataset.dataset_id == SECOND
    assert operations == ["query", "dataset", "catalogue", "query"]
    assert panel.requests == len(operations)


async def test_400_of_current_publication_is_raised() -> None:
    """After one request for the metadata."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await client.query(ENTITY_ID, Select(), Annual(last=1))
        sandbox.inject(REFUSED)
        spent = len(sandbox.log)
        with pytest.raises(ValidationFailedError):
            await client.query(ENTITY_ID, Select(), Annual(last=1))
        await client.query(ENTITY_ID, Select(), FiscalRange())
        operations = [served.operation for served in list(sandbox.log)[spent:]]
    assert operations == ["query", "dataset", "query"]


async def test_400_of_catalogue_page_is_confirmed() -> None:
    """A cursor can be refused before the pin: readers that share the catalogue all start over."""
    first, second = (
        dataset({(f"M{at}", "all"): {"FY2024": at} for at in range(150)}, dataset_id=each)
        for each in (FIRST, SECOND)
    )
    refused = Status(status=400, code="validation_failed", operation="catalogue", nth=2)
    slow = Latency(operation="catalogue", seconds=1)
    async with (
        Sandbox(first, faults=[refused, slow]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        reads = [
            asyncio.ensure_future(client.query(ENTITY_ID, Select(metric_ids=f"M{at}"), Annual()))
            for at in range(3)
        ]
        await asyncio.sleep(1.5)
        sandbox.publish(second)
        panels = await asyncio.gather(*reads)
    assert {panel.dataset.dataset_id for panel in panels} == {SECOND}


async def test_last_fiscal_end_fixes_the_window() -> None:
    """The catalogue's last period is a year; a quarter that ends with it anchors the window just as well."""
    wide = dataset(
        {
            **{(f"A{at}", "x"): {"FY2024-Q4": at} for at in range(50)},
            **{(f"B{at}", "y"): {"FY2023-Q4": at} for at in range(50)},
        },
        periods=("FY2024",),
    )
    slow = Latency(operation="query", nth=2, seconds=100)
    async with (
        Sandbox(wide, faults=[slow]) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=1) as client,
    ):
        plan = await client.plan(ENTITY_ID, Select(), Trailing(12))
        assert len(plan.batches) == 2
        assert str(plan.catalogue.periods[-1]) == "FY2024"
        async with client.stream(ENTITY_ID, Select(), Trailing(12)) as pieces:
            first = await asyncio.wait_for(anext(pieces), 50)
            assert str(first.anchor) == "FY2024-Q4"
            assert [len(piece) async for piece in pieces] == [50]


async def test_stream_yields_pieces_of_pages() -> None:
    """A chain of three pages gives its first piece before the second page is there."""
    chain = dataset({("Sales", "x"): {"FY2024": 1}})
    series = chain["publications"][0]["groups"][0]["series"]
    series[:] = [{**series[0], "series_id": f"s{at}"} for at in range(250)]
    chain["publications"][0]["values"] = {f"s{at}": [[0, at]] for at in range(250)}
    slow = Latency(operation="query", nth=[2, 3], seconds=100)
    async with (
        Sandbox(chain, faults=[slow]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
        client.stream(ENTITY_ID, Select(), FiscalRange()) as pieces,
    ):
        first = await asyncio.wait_for(anext(pieces), 50)
        assert len(first) == 100
        assert [len(piece) async for piece in pieces] == [100, 50]


async def test_restart_bypasses_caches_between() -> None:
    """An edge may keep them for minutes, and would name the old publication each time."""
    both = generate(7, series=20, publications=2)
    old, new = (DatasetFile(both.entity_id, both.name, (each,)) for each in both.publications)
    async with (
        Sandbox(old) as sandbox,
        capped(sandbox, exact=99) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        await client.query(both.entity_id, Select(), FiscalRange())
        sandbox.publish(new)
        panel = await client.query(both.entity_id, Select(), FiscalRange())
    assert panel.dataset.dataset_id == both.publications[1].dataset_id
    assert [got.cache_control for got in received if got.operation == "dataset"] == ["no-cache"]
