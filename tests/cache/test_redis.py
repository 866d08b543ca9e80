"""A RedisCache against a real Redis: accounts, expiry, damage, connections and secrets."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from asyncfin.cache.record import EntityRecord
from tests.cache.stored import AT, DATASET, ENTITY, OTHER, URL, blocks, catalogue, content, current

pytest.importorskip("redis")

from redis.asyncio import Redis

from asyncfin.cache.redis import RedisCache


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of the caller's own, on an empty Redis."""
    client = Redis.from_url(redis_url)
    await client.flushall()
    yield client
    await client.aclose()


async def fill(cache: RedisCache, entity_id: str = ENTITY) -> None:
    part = cache.partition(URL, "t")
    await part.observe(entity_id, EntityRecord(AT, DATASET))
    await part.put_catalogue(catalogue(entity_id=entity_id))
    await part.put_blocks(entity_id, DATASET, "original", blocks(1, 2))


async def test_machines_share_what_one_has_read(redis: Redis, redis_url: str) -> None:
    """By URL or client; each series is there once, whichever client stored it."""
    one, other = RedisCache(redis_url, account="desk"), RedisCache(redis, account="desk")
    mine, theirs = one.partition(URL, "a-token"), other.partition(URL, "b-token")
    await fill(one)
    assert await current(theirs) == DATASET
    assert await theirs.catalogue(ENTITY, DATASET) == catalogue()
    await theirs.put_blocks(ENTITY, DATASET, "original", blocks(2, 3))
    for part in (mine, theirs):
        assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(1, 2, 3))
    await theirs.observe(ENTITY, EntityRecord(AT, status=404))
    assert await current(mine) is None
    await one.aclose()
    await other.aclose()
    assert await redis.ping()


async def test_accounts_share_nothing(redis: Redis) -> None:
    """Each clears and inspects only its own data."""
    caches = [RedisCache(redis, account=account) for account in ("desk", "other", "des")]
    for cache in caches:
        assert await current(cache.partition(URL, "t")) is None
        await fill(cache)
        await fill(cache, OTHER)
    assert [(await cache.inspect()).series for cache in caches] == [4, 4, 4]
    await caches[0].clear(ENTITY)
    assert [(await cache.inspect()).series for cache in caches] == [2, 4, 4]
    assert await caches[0].partition(URL, "t").blocks(ENTITY, DATASET, "original") == ()
    await caches[0].clear()
    assert [(await cache.inspect()).bytes > 0 for cache in caches] == [False, True, True]
    assert await current(caches[1].partition(URL, "t")) == DATASET


async def test_unused_data_expire(redis: Redis) -> None:
    """Each key has the time that was asked for; reading starts it again."""
    options = {"account": "desk", "keep": timedelta(hours=1)}
    await fill(RedisCache(redis, **options))  # type: ignore[arg-type]
    names = await redis.keys("*")
    assert len(names) == 3
    for name in names:
        assert 3_500_000 < await redis.pttl(name) <= 3_600_000
        await redis.pexpire(name, 5_000)
    part = RedisCache(redis, **options).partition(URL, "t")  # type: ignore[arg-type]
    await part.blocks(ENTITY, DATASET, "original")
    await part.catalogue(ENTITY, DATASET)
    await part.record(ENTITY)
    assert [await redis.pttl(name) > 5_000 for name in names] == [True, True, True]


async def test_damaged_rows_are_dropped(redis: Redis) -> None:
    """Nothing wrong is read, and it is counted. Fields of others are ignored."""
    await fill(RedisCache(redis, account="desk"))
    for name in await redis.keys("*"):
        for field, row in (await redis.hgetall(name)).items():  # type: ignore[misc]
            await redis.hset(name, field, row[:-1] + bytes([row[-1] ^ 1]))  # type: ignore[misc]
            await redis.hset(name, mapping={"note": b"of others", b"\xff": b""})  # type: ignore[misc]
    cache = RedisCache(redis, account="desk")
    part = cache.partition(URL, "t")
    assert await current(part) is None
    assert await part.catalogue(ENTITY, DATASET) is None
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    assert cache.stats().broken == 3
    await fill(cache)
    again = RedisCache(redis, account="desk")
    assert content(await again.partition(URL, "t").blocks(ENTITY, DATASET, "original")) == content(
        blocks(1, 2)
    )
    assert await current(again.partition(URL, "t")) == DATASET
    assert again.stats().broken == 0


async def test_claim_holds_off_another_machine(redis: Redis) -> None:
    """It passes on when it is given up, ends by itself, and no client gives up another's."""
    one, other = (RedisCache(redis, account="desk").partition(URL, "t") for _ in range(2))

    async def claim() -> None:
        async with other.claim(ENTITY):
            pass

    async with one.claim(ENTITY):
        waiting = asyncio.ensure_future(claim())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.2)
        (name,) = await redis.keys("*lock*")
        assert 9_000 < await redis.pttl(name) <= 10_000
        async with other.claim(OTHER):
            pass
    await asyncio.wait_for(waiting, 5)
    assert await redis.keys("*lock*") == []
    async with one.claim(ENTITY):
        await redis.set(name, "of another, after the first one has ended by itself")
    assert await redis.exists(name)


async def test_missing_redis_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """Logged once, without the password, and what was read stays in memory."""
    cache = RedisCache("redis://user:s3cr3t@127.0.0.1:1/0", account="desk")
    part = cache.partition(URL, "t")
    await fill(cache)
    assert await current(part) == DATASET
    assert await part.catalogue(ENTITY, DATASET) == catalogue()
    assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(1, 2))
    for call in (cache.clear, cache.inspect):
        with pytest.raises(OSError, match=r"redis://127\.0\.0\.1:1/0 could not be") as raised:
            await call()
        assert "s3cr3t" not in str(raised.value)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "redis://127.0.0.1:1/0" in caplog.text
    for text in (caplog.text, repr(cache), str(cache.stats())):
        assert "s3cr3t" not in text
    await cache.aclose()
