"""A store that fails or is slow is as if it were not there."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from asyncfin.cache.entries import EntityRecord
from asyncfin.clock import utc_now
from tests.cache.dict_store import DictCache
from tests.cache.stored import (
    AT,
    DATASET,
    ENTITY,
    TOKEN,
    URL,
    blocks,
    check_missing,
    check_whole,
    content,
    current,
    fill,
)

pytestmark = pytest.mark.virtual


async def test_failing_store_rests_two_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """There is one warning, memory serves what this process has read, and a claim is free."""
    cache = DictCache()
    cache.store.fails = True
    part = await fill(cache)
    async with part.claim(ENTITY):
        await check_whole(part)
    assert asyncio.get_running_loop().time() < 0.1
    assert cache.store.calls == 1
    await asyncio.sleep(2)
    assert await current(part) == DATASET
    assert cache.store.calls == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "the cache in a dict can't be used at the moment: ConnectionError" in caplog.text
    assert cache.stats().broken == 2


@pytest.mark.parametrize(("seconds", "calls"), [(1.9, 2), (2.1, 1)])
async def test_slow_operation_counts_as_failed(seconds: float, calls: int) -> None:
    """The next operations of the two seconds after it do not wait at all."""
    cache = DictCache()
    cache.store.seconds = seconds
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(2):
        assert await cache.partition(URL, TOKEN).record(ENTITY) is None
    assert cache.store.calls == calls
    assert loop.time() - began < 2 * seconds + 0.1


async def test_failed_put_is_not_repeated() -> None:
    """Except a record, which applies in this process until a later one is stored."""
    rows: dict[str, bytes] = {}
    cache, other = DictCache(rows), DictCache(rows)
    cache.store.fails = True
    part = await fill(cache)
    cache.store.fails = False
    await asyncio.sleep(2)
    await check_whole(part)
    await check_missing(other.partition(URL, TOKEN))
    await part.observe(ENTITY, EntityRecord(utc_now(), DATASET))
    assert await current(other.partition(URL, TOKEN)) == DATASET


async def test_equal_record_is_written_once() -> None:
    """A question whose publication was confirmed by the metadata observes it twice."""
    cache = DictCache()
    for _ in range(3):
        await cache.partition(URL, TOKEN).observe(ENTITY, EntityRecord(AT, DATASET))
    assert cache.store.calls == 1


async def test_eviction_while_reading_loses_no_series() -> None:
    """Blocks that were there before the store was read are part of the result."""
    cache = DictCache()
    part, other = (cache.partition(URL, TOKEN) for cache in (cache, DictCache(cache.store.rows)))
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    await other.put_blocks(ENTITY, DATASET, "original", blocks(2))
    get = cache.store.get

    async def evict(keys: Sequence[str]) -> list[bytes | None]:
        cache._memory.clear(None)
        return await get(keys)

    cache.store.get = evict  # type: ignore[method-assign]
    cached_blocks = await part.blocks(ENTITY, DATASET, "original", ["S-1", "S-2"])
    assert content(cached_blocks) == content(blocks(1, 2))
