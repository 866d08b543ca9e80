"""A RedisCache, and caches whose store is away, stopped, read-only, full or closed."""

import asyncio
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("redis")

from redis.asyncio import Redis

from asyncfin import Cache, Client, FileCache, FiscalRange, Panel, RedisCache, Retry, Select, local
from asyncfin.events import Event, Restarted
from asyncfin.sandbox import DatasetFile, Sandbox, Status
from tests.cache.stored import ENTITY, OTHER, TOKEN, URL, check_missing, check_whole, current, fill
from tests.generate import generate
from tests.shared_buckets import FAULTS, RedisServer, redis_server

BOTH = generate(7, series=150, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@asynccontextmanager
async def asking(sandbox: Sandbox, cache: Cache | None = None, **options: Any) -> AsyncIterator[Any]:
    """Yield what queries everything of the entity."""
    async with Client(sandbox.base_url, sandbox.token, cache=cache, **options) as client:
        yield partial(client.query, BOTH.entity_id, Select(), FiscalRange())


def values_of(panel: Panel) -> list[Any]:
    return [series.values for series in panel]


async def check(cache: Cache, spoil: Callable[[], Any]) -> None:
    """A new publication is read in one restart, and the next question confirms it with one request."""
    events: list[Event] = []
    async with Sandbox(OLD) as sandbox, Sandbox(NEW) as other, aclosing(cache):
        async with asking(other) as query:
            right = await query()
        async with asking(sandbox, cache, observers=[events.append]) as query:
            await query()
            await spoil()
            sandbox.publish(NEW)
            loop = asyncio.get_running_loop()
            began, before = loop.time(), len(sandbox.log)
            panel = await query()
            assert panel.dataset.dataset_id == right.dataset.dataset_id
            assert values_of(panel) == values_of(right)
            assert len(sandbox.log) - before <= right.requests + 3
            assert sum(isinstance(event, Restarted) for event in events) <= 1
            assert loop.time() - began < 3
            before = len(sandbox.log)
            assert values_of(await query()) == values_of(right)
            assert [served.operation for served in list(sandbox.log)[before:]] == ["dataset"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_publication_is_read_despite_redis(fault: str, server: RedisServer) -> None:
    """A new publication is read whatever has become of Redis."""
    await check(RedisCache(server.url, account="desk"), partial(server.suffer, fault))


@pytest.mark.virtual
@pytest.mark.parametrize("fault", ["locked", "removed", "a file"])
async def test_publication_is_read_despite_the_folder(fault: str, tmp_path: Path) -> None:
    """Another process is stopped while it holds the lock, or somebody has removed the folder."""
    folder = tmp_path / "cache"

    async def spoil() -> None:
        if fault == "locked":
            local.try_lock(os.open(folder, os.O_RDONLY))
            return
        shutil.rmtree(folder)
        if fault == "a file":
            folder.write_text("a note")

    await check(FileCache(folder), spoil)


@pytest.mark.parametrize(("fault", "is_emptied"), [("read-only", False), ("flushed", True)])
async def test_redis_serves_new_processes_again(fault: str, is_emptied: bool, server: RedisServer) -> None:
    """A replica has the figures; an emptied server has them from the next process, and memory meanwhile."""
    caches = [RedisCache(server.url, account="desk") for _ in range(3)]
    async with Sandbox(OLD) as sandbox, asking(sandbox, caches[0], max_age=600) as query:
        whole = (await query()).requests
        await server.suffer(fault)
        costs = [(await query()).requests]
        for cache in caches[1:]:
            async with asking(sandbox, cache, max_age=600) as query_anew:
                costs.append((await query_anew()).requests)
    assert costs == [0, whole * is_emptied, 0]
    for cache in caches:
        assert cache.stats().broken == 0
        await cache.aclose()


@pytest.mark.parametrize("fault", ["killed", "stopped", "another password"])
async def test_memory_serves_while_redis_is_away(fault: str, server: RedisServer) -> None:
    """Within `max_age` without a request; if the service fails too, for `stale_if_error`.

    The bucket may be in the same Redis.
    """
    from asyncfin import RedisBucket

    cache, bucket = RedisCache(server.url, account="desk"), RedisBucket(server.url, account="desk")
    options: dict[str, Any] = {"stale_if_error": 3600, "retry": Retry(attempts=1)}
    async with (
        aclosing(cache),
        aclosing(bucket),
        Sandbox(OLD) as sandbox,
        asking(sandbox, cache, **options) as query,
        asking(sandbox, cache, bucket=bucket, **options) as query_paced,
    ):
        first = await query()
        await server.suffer(fault)
        stale = [await query(max_age=3600), await query_paced()]
        sandbox.inject(Status(status=503))
        stale.append(await query())
        for panel in stale:
            assert values_of(panel) == values_of(first)
            assert panel.confirmed_at == first.confirmed_at
        assert [panel.requests for panel in stale[:2]] == [0, 0]


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
