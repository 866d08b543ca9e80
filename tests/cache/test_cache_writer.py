"""How what pages bring gets into a cache: those of a moment together, and none is lost with its question."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from attrs import evolve

from asyncfin import Client, FiscalRange, MemoryCache, Retry, Select, ServerFailureError
from asyncfin.read.write import CacheWriter
from asyncfin.sandbox import Latency, Sandbox, Status
from asyncfin.table.block import PageText
from tests.cache.stored import blocks
from tests.generate import generate

DATASET = generate(7, series=900, publications=1)
ENTITY = DATASET.entity_id
virtual = pytest.mark.virtual


class Store:
    """What was put, and when; a put takes a while."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.puts: list[tuple[float, list[str]]] = []

    async def put(self, put: Iterable[Any]) -> None:
        await asyncio.sleep(self.seconds)
        ids = [series_id for block in put for series_id in block.series_ids]
        self.puts.append((asyncio.get_running_loop().time(), ids))

    @property
    def ids(self) -> list[list[str]]:
        return [ids for _, ids in self.puts]


@virtual
async def test_what_comes_within_a_moment_is_put_together() -> None:
    """A quarter of a second after the first of them has come, and at the end; nothing is put twice."""
    store = Store()
    async with CacheWriter(store.put) as writer:
        for number in range(8):
            await writer.add(blocks(number))
            await asyncio.sleep(0.1)
    assert store.ids == [["S-0", "S-1", "S-2"], ["S-3", "S-4", "S-5"], ["S-6", "S-7"]]


@virtual
async def test_a_page_is_put_after_a_moment_though_no_other_one_comes() -> None:
    """A process that is killed while it waits for the next page has lost nothing."""
    store = Store()
    async with CacheWriter(store.put) as writer:
        for number in range(3):
            await writer.add(blocks(number))
            await asyncio.sleep(60)
            assert store.ids[-1] == [f"S-{number}"]
    assert [time for time, _ in store.puts] == pytest.approx([0.25, 60.25, 120.25])


@virtual
async def test_many_megabytes_are_put_without_waiting_for_more() -> None:
    """What is gathered takes no more than a few megabytes."""
    store = Store()
    (large,) = blocks(0)
    large = evolve(large, text=PageText((bytes(5_000_000),), compressed=False))
    async with CacheWriter(store.put) as writer:
        await writer.add(blocks(1))
        await asyncio.sleep(0.1)
        await writer.add([large])
        await asyncio.sleep(0.1)
        assert store.ids == [["S-1", "S-0"]]


@virtual
async def test_what_a_cancelled_reader_brought_is_put_once() -> None:
    """A put goes on in its thread whoever is cancelled, so it is not cancelled, and not done again."""
    store = Store(seconds=5)

    async def read() -> None:
        async with CacheWriter(store.put) as writer:
            await writer.add(blocks(1))
            await asyncio.sleep(1)
            await writer.add(blocks(2))

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(2)
    for _ in range(3):
        reading.cancel()
        await asyncio.sleep(0.5)
    assert not reading.done()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert store.ids == [["S-1"], ["S-2"]]


@virtual
async def test_a_slow_store_holds_up_those_who_bring_more() -> None:
    """A slow store holds up those who bring more, so that little is gathered at a time."""
    store = Store(seconds=5)
    async with CacheWriter(store.put) as writer:
        await writer.add(blocks(0))
        await asyncio.sleep(1)
        adding = [asyncio.ensure_future(writer.add(blocks(number))) for number in (1, 2)]
        await asyncio.sleep(4)
        assert not any(task.done() for task in adding)
        await asyncio.gather(*adding)
    assert store.ids == [["S-0"], ["S-1", "S-2"]]


@pytest.mark.parametrize("end", ["fails", "is cancelled", "is left"])
@virtual
async def test_what_came_of_a_question_that_ends_early_is_kept(end: str) -> None:
    """Asked again, it costs only what has not come."""
    failing = Status(status=500, operation="query", nth=3)
    late = Latency(operation="query", nth=3, seconds=60)
    async with (
        Sandbox(DATASET) as sandbox,
        Client(
            sandbox.base_url,
            sandbox.token,
            cache=MemoryCache(),
            max_age=600,
            max_in_flight=1,
            retry=Retry(attempts=1),
        ) as client,
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
