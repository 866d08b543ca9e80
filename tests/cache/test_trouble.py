"""A store that is away, stopped, read-only, full or closed while the service publishes anew."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Cache, Client, FileCache, FiscalRange, MemoryCache, Retry, Select, local
from asyncfin.events import Event, Restarted
from asyncfin.sandbox import DatasetFile, Sandbox, Status
from tests.generate import generate
from tests.shared_buckets import RedisServer, distant, redis_server

BOTH = generate(7, series=150, publications=2)
ENTITY = BOTH.entity_id
OLD, NEW = (DatasetFile(ENTITY, BOTH.name, (each,)) for each in BOTH.publications)
ONCE = Retry(attempts=1)


@pytest.fixture
def server() -> Any:
    with redis_server() as running:
        yield running


async def told(server: RedisServer, *commands: tuple[Any, ...]) -> None:
    from redis.asyncio import Redis

    async with Redis.from_url(server.url) as client:
        for command in commands:
            await client.execute_command(*command)


# What may become of a Redis, as the commands that do it.
TROUBLES: dict[str, list[tuple[Any, ...]]] = {
    "read-only": [("REPLICAOF", "127.0.0.1", "1")],
    "full": [
        ("CONFIG", "SET", "maxmemory-policy", "noeviction"),
        ("CONFIG", "SET", "maxmemory", "1"),
    ],
    "wrong password": [
        ("CONFIG", "SET", "requirepass", "another"),
        ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
    ],
    "flushed": [("FLUSHALL",)],
}


async def spoil(server: RedisServer, trouble: str) -> None:
    if trouble == "killed":
        server.stop()
    elif trouble == "stopped":
        server.signal(signal.SIGSTOP)
    else:
        await told(server, *TROUBLES[trouble])


async def check(cache: Cache, trouble: Callable[[], Any]) -> None:
    """A new publication is read in one restart, and the next question confirms it with one request."""
    events: list[Event] = []
    async with Sandbox(OLD) as sandbox, Sandbox(NEW) as other:
        async with Client(other.base_url, other.token, cache=MemoryCache()) as plain:
            right = await plain.query(ENTITY, Select(), FiscalRange())
        client = Client(sandbox.base_url, sandbox.token, cache=cache, observers=[events.append])
        async with client:
            await client.query(ENTITY, Select(), FiscalRange())
            await trouble()
            sandbox.publish(NEW)
            loop = asyncio.get_running_loop()
            began, before = loop.time(), len(sandbox.log)
            panel = await client.query(ENTITY, Select(), FiscalRange())
            assert panel.dataset.dataset_id == right.dataset.dataset_id
            assert [each.values for each in panel] == [each.values for each in right]
            assert len(sandbox.log) - before <= right.requests + 3
            assert sum(isinstance(each, Restarted) for each in events) <= 1
            assert loop.time() - began < 3
            before = len(sandbox.log)
            again = await client.query(ENTITY, Select(), FiscalRange())
            assert [each.values for each in again] == [each.values for each in right]
            assert [each.operation for each in list(sandbox.log)[before:]] == ["dataset"]


@pytest.mark.parametrize("trouble", ["killed", "stopped", *TROUBLES])
async def test_publication_is_read_despite_redis(trouble: str, server: RedisServer) -> None:
    """A new publication is read whatever has become of redis."""
    from asyncfin import RedisCache

    cache = RedisCache(server.url, account="desk")
    await check(cache, lambda: spoil(server, trouble))
    await cache.aclose()


async def test_read_only_redis_serves_new_processes(server: RedisServer) -> None:
    """After a failover the figures are there, and only their expiry can't be moved."""
    from asyncfin import RedisCache

    async with Sandbox(OLD) as sandbox:
        for requests in (None, 0):
            async with (
                aclosing(RedisCache(server.url, account="desk")) as cache,
                Client(sandbox.base_url, sandbox.token, cache=cache, max_age=600) as client,
            ):
                panel = await client.query(ENTITY, Select(), FiscalRange())
            assert requests in (None, panel.requests)
            await spoil(server, "read-only")


@pytest.mark.parametrize("trouble", ["locked", "removed", "a file"])
async def test_publication_is_read_despite_the_folder(trouble: str, tmp_path: Path) -> None:
    """Another process is stopped while it holds the lock, or somebody has removed the folder."""
    folder = tmp_path / "cache"
    cache = FileCache(folder)

    async def spoil_folder() -> None:
        if trouble == "locked":
            local.try_lock(os.open(folder, os.O_RDONLY))
            return
        shutil.rmtree(folder)
        if trouble == "a file":
            folder.write_text("a note")

    await check(cache, spoil_folder)
    await cache.aclose()


@pytest.mark.parametrize("trouble", ["killed", "stopped", "wrong password"])
async def test_memory_serves_while_redis_is_away(trouble: str, server: RedisServer) -> None:
    """Within `max_age` without a request; if the service fails too, for `stale_if_error`.

    The bucket may be in the same Redis.
    """
    from asyncfin import RedisBucket, RedisCache

    cache, bucket = RedisCache(server.url, account="desk"), RedisBucket(server.url, account="desk")
    options: dict[str, Any] = {"cache": cache, "stale_if_error": 3600, "retry": ONCE}
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token, **options) as client:
        first = await client.query(ENTITY, Select(), FiscalRange())
        await spoil(server, trouble)
        panel = await client.query(ENTITY, Select(), FiscalRange(), max_age=3600)
        assert (panel.requests, panel.confirmed_at) == (0, first.confirmed_at)
        async with Client(sandbox.base_url, sandbox.token, bucket=bucket, **options) as paced:
            stale = await paced.query(ENTITY, Select(), FiscalRange())
            assert (stale.requests, [series.values for series in stale]) == (
                0,
                [series.values for series in first],
            )
        sandbox.inject(Status(status=503))
        stale = await client.query(ENTITY, Select(), FiscalRange())
        assert [series.values for series in stale] == [series.values for series in first]
        assert stale.confirmed_at == first.confirmed_at
    await cache.aclose()
    await bucket.aclose()


@pytest.mark.virtual
@pytest.mark.parametrize("delay", [0.0, 0.15, 3.0])
async def test_far_store_costs_three_seconds(delay: float, server: RedisServer) -> None:
    """Cold, cached, and by another process; each result is right."""
    from asyncfin import RedisCache

    loop = asyncio.get_running_loop()
    async with distant(server.url, delay) as url, Sandbox(OLD) as sandbox:
        async with Client(sandbox.base_url, sandbox.token) as plain:
            right = [each.values for each in await plain.query(ENTITY, Select(), FiscalRange())]
        for _ in range(2):
            cache = RedisCache(url, account="desk")
            async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
                for _ in range(3):
                    began = loop.time()
                    panel = await client.query(ENTITY, Select(), FiscalRange())
                    assert loop.time() - began < 3.001  # virtual time has a nanosecond for each turn
                    assert [each.values for each in panel] == right
            await cache.aclose()
