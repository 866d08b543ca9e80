"""Clients that share a cache on disk, as the workers of one machine do."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from asyncfin import (
    Annual,
    Client,
    FileCache,
    FiscalRange,
    Select,
)
from asyncfin.sandbox import Sandbox
from tests.generate import generate
from tests.read.test_answers import content
from tests.shared_buckets import redis_server

DATASET = generate(23, series=400, publications=1)
ENTITY = DATASET.entity_id


def worker(sandbox: Sandbox, folder: Path, **options: float) -> Client:
    """Return a client with a separate cache object, as in another process."""
    cache = FileCache(folder, account="tests")
    return Client(sandbox.base_url, sandbox.token, cache=cache, **options)  # type: ignore[arg-type]


COLD = """
import asyncio, sys
from asyncfin import Client, FileCache, FiscalRange, RedisCache, Select
from asyncfin.cache import base, file, redis

# The machine may be busy: who waits so long for a store or a claim goes on without it.
base.STORE_SECONDS = file.STORE_SECONDS = redis.STORE_SECONDS = base.LOCK_SECONDS = 60.0

async def main():
    kind, place, base_url, token, entity_id = sys.argv[1:]
    cache = FileCache(place, account="desk") if kind == "file" else RedisCache(place, account="desk")
    async with Client(base_url, token, cache=cache, max_age=60) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for select in (Select(), Select(label="a"), Select(label="e")):
            panel = await client.query(entity_id, select, FiscalRange())
            print(len(panel), panel.value_count, panel.requests)
    assert cache.stats().broken == 0
    await cache.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_cold_processes_request_as_one(kind: str, tmp_path: Path) -> None:
    """Four processes begin at the same moment: their claims let one ask, and the others find it."""
    # Seconds of real time: each worker is an interpreter that starts.

    async def spent(count: int, place: str) -> tuple[int, list[list[str]]]:
        """Return the requests of several cold processes, and the panels that each has printed."""
        async with Sandbox(DATASET) as sandbox:
            workers = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", COLD, kind, place, sandbox.base_url, sandbox.token, ENTITY),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for _ in range(count)
            ]
            for each in workers:
                assert each.stdout is not None
                await each.stdout.readline()
            ends = await asyncio.gather(*(each.communicate(b"go\n") for each in workers))
            assert [each.returncode for each in workers] == [0] * count
            lines = [out.decode().splitlines() for out, _ in ends]
            requests = sum(int(line.split()[2]) for each in lines for line in each)
            assert requests == len(sandbox.log), "each request is counted for one question"
            return len(sandbox.log), [[line.rpartition(" ")[0] for line in each] for each in lines]

    with redis_server() if kind == "redis" else nullcontext() as server:
        place = f"{server.url}?db=" if server else str(tmp_path / "cache")
        cost, (panels,) = await spent(1, f"{place}1")
        together, theirs = await spent(4, f"{place}2")
    assert theirs == [panels] * 4
    assert together == cost


async def test_new_process_reads_the_cache(tmp_path: Path) -> None:
    """Catalogue and values, for any question about them; only the publication is confirmed."""
    async with Sandbox(DATASET) as sandbox:
        async with worker(sandbox, tmp_path / "cache") as first:
            whole = await first.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        async with worker(sandbox, tmp_path / "cache") as second:
            panel = await second.query(ENTITY, Select.of(whole.series[:7]), Annual())
            assert [served.operation for served in list(sandbox.log)[spent:]] == ["dataset"]
        async with worker(sandbox, tmp_path / "cache", max_age=600) as third:
            again = await third.query(ENTITY, Select.of(whole.series[:7]), Annual())
            assert again.requests == 0
        assert content(again) == content(panel)
