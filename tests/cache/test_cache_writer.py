"""How pages get into a cache: a few megabytes at once, and none is lost with its query."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve

from asyncfin import Client, FiscalRange, MemoryCache, Retry, Select, ServerFailureError
from asyncfin.read.query import CacheWriter
from asyncfin.sandbox import Latency, Sandbox, Status
from asyncfin.table.block import PageText
from tests.cache.stored import blocks
from tests.generate import generate

DATASET = generate(7, series=900, publications=1)
ENTITY = DATASET.entity_id
virtual = pytest.mark.virtual


class Store:
    """Records what was put; a put takes a while."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.ids: list[list[str]] = []

    async def put(self, put: Iterable[Any]) -> None:
        await asyncio.sleep(self.seconds)
        self.ids.append([series_id for block in put for series_id in block.series_ids])


@virtual
async def test_pages_are_put_in_megabytes() -> None:
    """The last ones at the end; nothing is put twice."""
    store = Store()
    (large,) = blocks(0)
    large = evolve(large, text=PageText((bytes(5_000_000),), is_compressed=False))
    async with CacheWriter(store.put) as writer:
        for page in (blocks(1), [large], blocks(2), blocks(3)):
            await writer.add(page)
    assert store.ids == [["S-1", "S-0"], ["S-2", "S-3"]]


@virtual
async def test_cancelled_read_puts_its_pages_once() -> None:
    """A put goes on in its thread whoever is cancelled, so it is not cancelled, and not done again."""
    store = Store(seconds=5)

    async def read() -> None:
        async with CacheWriter(store.put) as writer:
            await writer.add(blocks(1))
            await asyncio.sleep(60)

    reading = asyncio.ensure_future(read())
    for seconds in (2, 0.5, 0.5):
        await asyncio.sleep(seconds)
        reading.cancel()
    assert not reading.done()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert store.ids == [["S-1"]]


@pytest.mark.parametrize("end", ["fails", "is cancelled", "is left"])
@virtual
async def test_pages_of_failed_query_are_cached(end: str) -> None:
    """Asked again, it costs only what has not come."""
    failing = Status(status=500, operation="query", nth=3)
    late = Latency(operation="query", nth=3, seconds=60)
    options: Any = {"max_age": 600, "max_in_flight": 1, "retry": Retry(attempts=1)}
    async with (
        Sandbox(DATASET) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), **options) as client,
    ):
        pages = (await client.plan(ENTITY, Select(), FiscalRange())).requests
        assert pages > 3
        sandbox.inject(failing if end == "fails" else late)
        if end == "is left":
            async with client.stream(ENTITY, Select(), FiscalRange()) as pieces:
                assert len([await anext(pieces) for _ in range(2)]) == 2
        else:
            asking = asyncio.ensure_future(client.query(ENTITY, Select(), FiscalRange()))
            await asyncio.sleep(30)
            asking.cancel()
            with pytest.raises((ServerFailureError, asyncio.CancelledError)):
                await asking
        sandbox.clear_faults()
        assert (await client.query(ENTITY, Select(), FiscalRange())).requests == pages - 2
