"""A store that is away, stopped, read-only, full or closed while the service publishes anew."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Cache, Client, FileCache, FiscalRange, Panel, RedisCache, Retry, Select, local
from asyncfin.events import Event, Restarted
from asyncfin.sandbox import DatasetFile, Sandbox, Status
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


async def test_read_only_redis_serves_new_processes(server: RedisServer) -> None:
    """After a failover the figures are there, and only their expiry can't be moved."""
    async with Sandbox(OLD) as sandbox:
        for requests in (None, 0):
            cache = RedisCache(server.url, account="desk")
            async with aclosing(cache), asking(sandbox, cache, max_age=600) as query:
                assert (await query()).requests == requests or requests is None
            await server.suffer("read-only")


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
