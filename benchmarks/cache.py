"""What a cache costs and saves: a hit, a miss, a put, and the first question of a process.

The service is a sandbox in a process of its own; a question's wall time is mostly waiting for it.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from asyncfin import Client, FileCache, FiscalRange, MemoryCache, Select
from benchmarks.catalogue import Service, service

ROUNDS = 11
_FIRST = """
import asyncio, sys
from time import perf_counter
from asyncfin import Client, FileCache, FiscalRange, Select

async def main(folder, url, token, entity_id):
    await asyncio.sleep(0)
    began = perf_counter()
    cache = FileCache(folder, account="benchmark")
    async with Client(url, token, cache=cache, max_age=1e9) as client:
        panel = await client.query(entity_id, Select(), FiscalRange())
        print(perf_counter() - began, panel.requests)
    await cache.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


class Cost(NamedTuple):
    """The medians of what a piece of work takes, in seconds, by the clock and of this process's CPU."""

    wall: float
    cpu: float


async def _cost(
    work: Callable[[], Awaitable[object]], before: Callable[[], Awaitable[object]] | None = None
) -> Cost:
    walls, cpus = [], []
    for _ in range(ROUNDS):
        if before is not None:
            await before()
        wall, cpu = perf_counter(), process_time()
        await work()
        walls.append(perf_counter() - wall)
        cpus.append(process_time() - cpu)
    return Cost(median(walls), median(cpus))


async def _rows(at: Service, folder: str) -> list[tuple[str, Cost, str]]:
    async with Client(at.base_url, at.token) as plain:
        catalogue = await plain.catalogue(at.entity_id)
        few = Select(catalogue.series[0].metric_id)
        rows = []
        # By a predicate: those are planned each time, as what lacks in a cache is.
        whole = Select(where=lambda series: True)
        for name, select in ((f"{len(catalogue):,} series", whole), ("a metric", few)):
            cost = await _cost(lambda select=select: plain.query(catalogue, select, FiscalRange()))
            rows.append((f"no cache: {name}", cost, ""))
    none = rows[0][1]
    for name, cache in (("memory", MemoryCache()), ("file", FileCache(folder, account="benchmark"))):
        async with Client(at.base_url, at.token, cache=cache, max_age=1e9) as client:
            miss = await _cost(
                lambda client=client: client.query(catalogue, whole, FiscalRange()), cache.clear
            )
            put = f"{miss.cpu / none.cpu - 1:+.1%} of CPU beside none, < 5 %"
            rows.append((f"{name}: miss, {len(catalogue):,} series asked for and put", miss, put))
            await client.query(at.entity_id, Select(), FiscalRange())
            hit = await _cost(lambda client=client: client.query(at.entity_id, Select(), FiscalRange()))
            hit_few = await _cost(lambda client=client: client.query(at.entity_id, few, FiscalRange()))
        rows.append((f"{name}: hit, {len(catalogue):,} series", hit, "< 5 ms for 2,000"))
        rows.append((f"{name}: hit, a metric", hit_few, "< 1 ms from memory"))
        await cache.aclose()
    return rows


def run() -> str:
    """Return a Markdown table."""
    with service() as at, tempfile.TemporaryDirectory() as parent:
        folder = str(Path(parent) / "cache")
        rows = asyncio.run(_rows(at, folder))
        first = []
        for _ in range(9):
            command = [sys.executable, "-c", _FIRST, folder, at.base_url, at.token, at.entity_id]
            seconds, requests = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.split()
            assert requests == "0"
            first.append(float(seconds))
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
    lines = [
        f"| {name} | {cost.wall * 1e3:.1f} ms | {cost.cpu * 1e3:.1f} ms | {goal} |"
        for name, cost, goal in rows
    ]
    lines.append(f"| file: first question of a process | {median(first) * 1e3:.1f} ms | | < 25 ms |")
    head = ["| question | wall time | CPU time | goal |", "| --- | ---: | ---: | --- |"]
    return "\n".join([*head, *lines, "", f"On disk: {size / 1024:,.0f} KiB."])


if __name__ == "__main__":
    print(run())
