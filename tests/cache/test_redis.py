"""A RedisCache against a real Redis: accounts, expiry, claims, connections and secrets."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.cache.stored import ENTITY, OTHER, TOKEN, URL, check_missing, check_whole, current, fill

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


async def test_accounts_share_nothing(redis: Redis, redis_url: str) -> None:
    """Each clears and inspects only its own data, by client or URL; fields of others are ignored."""
    caches = [RedisCache(redis, account=account) for account in ("desk", "other", "des")]
    for cache in caches:
        await check_missing(cache.partition(URL, TOKEN))
        for entity_id in (ENTITY, OTHER):
            await fill(cache, entity_id)
    for name in await redis.keys("*"):
        await redis.hset(name, mapping={"note": b"of others", b"\xff": b""})
    assert [(await cache.inspect()).series for cache in caches] == [80, 80, 80]
    await caches[0].clear(ENTITY)
    assert [(await cache.inspect()).series for cache in caches] == [40, 80, 80]
    await caches[0].clear()
    assert [(await cache.inspect()).bytes > 0 for cache in caches] == [False, True, True]
    again = RedisCache(redis_url, account="other")
    await check_whole(again.partition(URL, "another-token"), OTHER)
    await again.aclose()
    await caches[1].aclose()
    assert await redis.ping()


async def test_unused_data_expire(redis: Redis) -> None:
    """Each key has the time that was asked for; reading starts it again."""
    cache, again = (RedisCache(redis, account="desk", keep=timedelta(hours=1)) for _ in range(2))
    await fill(cache)
    names = await redis.keys("*")
    assert len(names) == 3
    for name in names:
        assert 3_500_000 < await redis.pttl(name) <= 3_600_000
        await redis.pexpire(name, 5_000)
    await check_whole(again.partition(URL, TOKEN))
    assert [await redis.pttl(name) > 5_000 for name in names] == [True, True, True]


async def test_claim_ends_by_itself(redis: Redis) -> None:
    """A killed process's would stay; no client gives up that of another one, which came after it."""
    part = RedisCache(redis, account="desk").partition(URL, TOKEN)
    async with part.claim(ENTITY):
        (name,) = await redis.keys("*lock*")
        assert 9_000 < await redis.pttl(name) <= 10_000
    assert await redis.keys("*lock*") == []
    async with part.claim(ENTITY):
        await redis.set(name, "of another")
    assert await redis.exists(name)


async def test_missing_redis_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """Logged once, without the password, and what was read stays in memory."""
    cache = RedisCache("redis://user:s3cr3t@127.0.0.1:1/0", account="desk")
    part = await fill(cache)
    await check_whole(part)
    for call in (cache.clear, cache.inspect):
        with pytest.raises(OSError, match=r"redis://127\.0\.0\.1:1/0 could not be") as raised:
            await call()
        assert "s3cr3t" not in str(raised.value)
    assert await current(part) is None
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "redis://127.0.0.1:1/0" in caplog.text
    for text in (caplog.text, repr(cache), str(cache.stats())):
        assert "s3cr3t" not in text
    await cache.aclose()
