"""What could not be stored outside the process is stored later, whatever memory drops in the meantime."""

import asyncio

import pytest

from asyncfin.cache.availability import CLOSED_SECONDS
from asyncfin.cache.record import Pointer
from tests.cache.dict_cache import DictCache
from tests.cache.stored import AT, DATASET, ENTITY, URL, blocks, catalogue, content, pointer

pytestmark = pytest.mark.virtual


async def unstored() -> DictCache:
    """Return a cache whose store could store nothing before, and which can be used again."""
    cache = DictCache(account="desk")
    part = cache.partition(URL, "t")
    cache.fails = True
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1, 2))
    await part.put_catalogue(catalogue())
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    assert cache.rows == {}
    cache.fails = False
    await asyncio.sleep(CLOSED_SECONDS)
    return cache


async def check_stored(cache: DictCache) -> None:
    """What could not be stored is found, and other processes find it afterwards."""
    part = cache.partition(URL, "t")
    assert content(await part.blocks(ENTITY, DATASET, "original", ["S-1"])) == content(blocks(1, 2))
    assert await pointer(part, ENTITY) == Pointer(DATASET, AT)
    other = DictCache(cache.rows, account="desk").partition(URL, "t")
    assert content(await other.blocks(ENTITY, DATASET, "original")) == content(blocks(1, 2))
    assert await other.catalogue(ENTITY, DATASET) == catalogue()
    assert await pointer(other, ENTITY) == Pointer(DATASET, AT)


async def test_what_could_not_be_stored_is_stored_when_it_is_used_next() -> None:
    await check_stored(await unstored())


async def test_blocks_that_memory_drops_while_they_are_stored_are_found() -> None:
    cache = await unstored()
    part = cache.partition(URL, "t")
    cache.seconds = 0.5
    storing = asyncio.ensure_future(part.blocks(ENTITY, DATASET, "original", ["S-1"]))
    await asyncio.sleep(0.75)  # in the put
    cache._memory.clear(None)
    assert content(await storing) == content(blocks(1, 2))


async def test_blocks_whose_storing_is_cancelled_are_stored_when_they_are_next_used() -> None:
    cache = await unstored()
    cache.seconds = 0.5
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.75):
            await cache.partition(URL, "t").blocks(ENTITY, DATASET, "original", ["S-1"])
    cache.seconds = 0.0
    await check_stored(cache)
