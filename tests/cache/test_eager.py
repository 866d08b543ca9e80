"""Questions in an event loop whose tasks begin with their creation (Python 3.12 and later)."""

import asyncio
import sys
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client, FileBucket, FileCache, FiscalRange, MemoryCache, Select, TokenBucket
from asyncfin.sandbox import Sandbox
from tests.conftest import eager
from tests.generate import generate

pytestmark = pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks are eager from Python 3.12 on")

DATASET = generate(7, series=150, publications=1)
KINDS = ["memory", "file", "redis"]


def bucket_of(kind: str, path: Path, url: str) -> Any:
    if kind == "redis":
        from asyncfin import RedisBucket

        return RedisBucket(url, account=str(path), rate=200, burst=5)
    return FileBucket(path / "bucket", 200, 5) if kind == "file" else TokenBucket(200, 5)


def cache_of(kind: str, path: Path, url: str) -> Any:
    if kind == "redis":
        from asyncfin import RedisCache

        return RedisCache(url, account=str(path))
    return FileCache(path / "cache") if kind == "file" else MemoryCache()


@pytest.mark.parametrize("cache_kind", KINDS)
@pytest.mark.parametrize("bucket_kind", KINDS)
def test_eager_equal_queries_are_shared(
    bucket_kind: str, cache_kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Each result is whole, the requests are shared, and no task and no shared call is left."""
    url = request.getfixturevalue("redis_url") if "redis" in (bucket_kind, cache_kind) else ""

    async def ask() -> None:
        async with AsyncExitStack() as stack:
            sandbox = await stack.enter_async_context(Sandbox(DATASET))
            bucket = await stack.enter_async_context(aclosing(bucket_of(bucket_kind, tmp_path, url)))
            cache = await stack.enter_async_context(aclosing(cache_of(cache_kind, tmp_path, url)))
            client = Client(sandbox.base_url, sandbox.token, bucket=bucket, cache=cache)
            await stack.enter_async_context(client)
            async with asyncio.timeout(30):
                questions = (client.query(DATASET.entity_id, Select(), FiscalRange()) for _ in range(5))
                panels = await asyncio.gather(*questions)
                assert [len(panel) for panel in panels] == [150] * 5
                assert sum(panel.requests for panel in panels) == max(panel.requests for panel in panels)
                assert (await client.query(DATASET.entity_id, Select(), FiscalRange())).requests == 1
                grants = await asyncio.gather(*(bucket.acquire() for _ in range(20)))
                assert len(grants) == 20
            kept = client._publications.stored.values()
            assert kept
            assert not any(pending for each in kept for pending in each._pending.values())

    with asyncio.Runner(loop_factory=lambda: eager(asyncio.new_event_loop())) as runner:
        runner.run(ask())
