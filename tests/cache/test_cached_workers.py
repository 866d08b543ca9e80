"""Workers that begin at the same moment, with a cache of one machine or of several."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox
from tests.generate import generate
from tests.shared_buckets import redis_server

DATASET = generate(23, series=400, publications=1)
WORKER = """
import asyncio, sys
from asyncfin import Client, FileCache, FiscalRange, RedisCache, Select
from asyncfin.cache import base, redis

# The machine may be busy: who waits so long for a store or a claim goes on without it.
base.STORE_SECONDS = redis.STORE_SECONDS = base.LOCK_SECONDS = 60.0

async def main():
    kind, place, base_url, token, entity_id = sys.argv[1:]
    cache = FileCache(place, account="desk") if kind == "file" else RedisCache(place, account="desk")
    async with Client(base_url, token, cache=cache, max_age=60) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for select in (Select(), Select(label="a"), Select(label="e")):
            panel = await client.query(entity_id, select, FiscalRange())
            print(panel.requests, len(panel), panel.value_count)
    assert cache.stats().broken == 0
    await cache.aclose()

asyncio.run(main())
"""
PIPE = asyncio.subprocess.PIPE


async def run_workers(count: int, kind: str, place: str) -> tuple[int, list[list[str]]]:
    """Return the requests of cold processes, and the panels that each has printed."""
    async with Sandbox(DATASET) as sandbox:
        arguments = ("-c", WORKER, kind, place, sandbox.base_url, sandbox.token, DATASET.entity_id)
        workers = [
            await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=PIPE, stdout=PIPE)
            for _ in range(count)
        ]
        for worker in workers:
            assert worker.stdout is not None
            await worker.stdout.readline()
        ends = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
        assert [worker.returncode for worker in workers] == [0] * count
        lines = [out.decode().splitlines() for out, _ in ends]
        requests = sum(int(line.split()[0]) for out in lines for line in out)
        assert requests == len(sandbox.log), "each request is counted for one query"
        return requests, [[line.partition(" ")[2] for line in out] for out in lines]


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_cold_processes_request_as_one(kind: str, tmp_path: Path) -> None:
    """Their claims let one send its requests, and the others find the values. Seconds of real time."""
    with redis_server() if kind == "redis" else nullcontext() as server:
        place = f"{server.url}?db=" if server else str(tmp_path / "cache")
        cost, (panels,) = await run_workers(1, kind, f"{place}1")
        assert await run_workers(4, kind, f"{place}2") == (cost, [panels] * 4)
