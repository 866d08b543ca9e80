"""What a cache costs and saves: a hit, a miss, a put, and the first question of a process.

The service is a sandbox in a process of its own; the medians of wall time, since a request is mostly waiting.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from asyncfin import Client, FileCache, FiscalRange, MemoryCache, Select
from benchmarks.catalogue import Service, service

ROUNDS = 15
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


async def _times(work: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = perf_counter()
        await work()
        times.append(perf_counter() - began)
    return median(times)


async def _rows(at: Service, folder: str) -> list[tuple[str, float, str]]:
    whole, few = Select(), None
    async with Client(at.base_url, at.token) as plain:
        catalogue = await plain.catalogue(at.entity_id)
        metric = catalogue.series[0].metric_id
        few = Select(metric)
        none = await _times(lambda: plain.query(at.entity_id, whole, FiscalRange()))
        none_few = await _times(lambda: plain.query(at.entity_id, few, FiscalRange()))
    rows = [
        (f"no cache: {len(catalogue):,} series", none, ""),
        ("no cache: a metric", none_few, ""),
    ]
    for name, cache in (("memory", MemoryCache()), ("file", FileCache(folder, account="benchmark"))):
        async with Client(at.base_url, at.token, cache=cache, max_age=1e9) as client:
            began = perf_counter()
            await client.query(at.entity_id, whole, FiscalRange())
            rows.append((f"{name}: first, asked for and put", perf_counter() - began, ""))
            hit = await _times(lambda client=client: client.query(at.entity_id, whole, FiscalRange()))
            hit_few = await _times(lambda client=client: client.query(at.entity_id, few, FiscalRange()))
        rows.append((f"{name}: hit, {len(catalogue):,} series", hit, "< 5 ms for 2,000"))
        rows.append((f"{name}: hit, a metric", hit_few, "< 1 ms from memory"))
        if name == "file":
            await cache.aclose()
    return rows


def run() -> str:
    """Return a Markdown table."""
    with service() as at, tempfile.TemporaryDirectory() as parent:
        folder = str(Path(parent) / "cache")
        rows = asyncio.run(_rows(at, folder))
        first = []
        for _ in range(5):
            command = [sys.executable, "-c", _FIRST, folder, at.base_url, at.token, at.entity_id]
            seconds, requests = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout.split()
            assert requests == "0"
            first.append(float(seconds))
        rows.append(("file: first question of a process", median(first), "< 25 ms"))
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
    lines = [f"| {name} | {seconds * 1e3:.1f} ms | {goal} |" for name, seconds, goal in rows]
    head = ["| question | wall time | goal |", "| --- | ---: | --- |"]
    return "\n".join([*head, *lines, "", f"On disk: {size / 1024:,.0f} KiB."])


if __name__ == "__main__":
    print(run())
