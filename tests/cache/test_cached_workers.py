"""Workers that begin at the same moment, with a cache of one machine or of several."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Cache, Client, FileCache, FiscalRange, RedisCache, Select
from asyncfin.sandbox import Sandbox
from tests.cache.processes import CONTEXT, check_ends, forks, start
from tests.generate import generate
from tests.shared_buckets import redis_server

DATASET = generate(23, series=400, publications=1)


async def query(make_cache: Callable[[], Cache], addresses: Any, barrier: Any, results: Any) -> None:
    """Ask thrice once all are there, and put what came of it into a queue."""
    base_url, token = addresses.get()
    cache = make_cache()
    async with Client(base_url, token, cache=cache, max_age=60) as client:
        await asyncio.to_thread(barrier.wait)
        for select in (Select(), Select(label="a"), Select(label="e")):
            panel = await client.query(DATASET.entity_id, select, FiscalRange())
            results.put((panel.requests, len(panel), panel.value_count))
    assert cache.stats().broken == 0
    await cache.aclose()


def run_workers(count: int, make_cache: Callable[[], Cache]) -> tuple[int, set[tuple[int, int]]]:
    """Return the requests of cold processes, and the sizes of their panels."""
    addresses, barrier, results = CONTEXT.Queue(), CONTEXT.Barrier(count), CONTEXT.Queue()
    workers = [start(query, make_cache, addresses, barrier, results) for _ in range(count)]

    async def serve() -> int:
        async with Sandbox(DATASET) as sandbox:
            for _ in workers:
                addresses.put((sandbox.base_url, sandbox.token))
            await asyncio.to_thread(check_ends, workers)
            return len(sandbox.log)

    served = asyncio.run(serve())
    panels = [results.get() for _ in range(3 * count)]
    assert sum(panel[0] for panel in panels) == served, "each request is counted for one query"
    return served, {panel[1:] for panel in panels}


@forks
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kind", ["file", "redis"])
def test_cold_processes_request_as_one(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their claims let one send its requests, and the others find the values. Seconds of real time."""
    for module in ("base", "redis"):
        monkeypatch.setattr(f"asyncfin.cache.{module}.LOCK_SECONDS", 60.0)
    with redis_server() if kind == "redis" else nullcontext() as server:

        def make_cache(name: str) -> Cache:
            return RedisCache(server.url, account=name) if server else FileCache(tmp_path / name)

        cost, panels = run_workers(1, partial(make_cache, "one"))
        assert run_workers(4, partial(make_cache, "four")) == (cost, panels)
