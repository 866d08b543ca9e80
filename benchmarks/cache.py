"""What a cache costs and saves: a hit, a miss, a put, and the first question of a
process.

The service is a sandbox in a separate process; a question's wall time is mostly waiting
for it.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from asyncfin import Client, FileCache, FiscalRange, MemoryCache, Select
from asyncfin.table.block import compressed as compressed_blocks
from benchmarks.catalogue import Service, service

ROUNDS = 25
_FIRST = """
import asyncio, sys
from time import perf_counter, process_time
from asyncfin import Client, FileCache, FiscalRange, Select

async def main(folder, url, token, entity_id):
    await asyncio.sleep(0)
    wall, cpu = perf_counter(), process_time()
    cache = FileCache(folder, account="benchmark")
    async with Client(url, token, cache=cache, max_age=1e9) as client:
        panel = await client.query(entity_id, Select(), FiscalRange())
        print(perf_counter() - wall, process_time() - cpu, panel.requests)
    await cache.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


class Cost(NamedTuple):
    """What a piece of work takes, in seconds: by the clock, and of this process's
    CPU.
    """

    wall: float
    cpu: float


async def _cost(work: Callable[[], Awaitable[object]]) -> Cost:
    wall, cpu = perf_counter(), process_time()
    await work()
    return Cost(perf_counter() - wall, process_time() - cpu)


class Costs:
    """The costs of pieces of work, by name, in rounds: what is done in the same round
    can be compared.
    """

    def __init__(self) -> None:
        self._rounds: dict[str, list[Cost]] = {}

    async def add(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        self._rounds.setdefault(name, []).append(await _cost(work))

    def median(self, name: str) -> Cost:
        walls, cpus = zip(*self._rounds[name], strict=True)
        return Cost(median(walls), median(cpus))

    def ratio(self, name: str, other: str) -> float:
        """Return how much CPU one takes beside the other: the median of the rounds."""
        pairs = zip(self._rounds[name], self._rounds[other], strict=True)
        return median(one.cpu / two.cpu for one, two in pairs)


async def _rows(at: Service, folder: str) -> list[tuple[str, Cost, str]]:
    # By a predicate: those are planned each time, as what is missing in a cache is.
    whole = Select(where=lambda series: True)
    caches = {"memory": MemoryCache(), "file": FileCache(folder, account="benchmark")}
    costs = Costs()
    async with AsyncExitStack() as opened:
        opened.push_async_callback(caches["file"].aclose)
        plain = await opened.enter_async_context(Client(at.base_url, at.token))
        clients = {
            name: await opened.enter_async_context(
                Client(at.base_url, at.token, cache=cache, max_age=1e9)
            )
            for name, cache in caches.items()
        }
        catalogue = await plain.catalogue(at.entity_id)
        few = Select(catalogue.series[0].metric_id)
        count = f"{len(catalogue):,} series"
        for _ in range(ROUNDS):
            await costs.add(
                "none", lambda: plain.query(catalogue, whole, FiscalRange())
            )
            await costs.add(
                "none, few", lambda: plain.query(catalogue, few, FiscalRange())
            )
            for name, client in clients.items():
                await caches[name].clear()
                ask = partial(client.query, catalogue, whole, FiscalRange())
                await costs.add(f"{name}, miss", ask)
            # The same alone: the blocks that came, put into caches that have nothing.
            await caches["memory"].clear()
            panel = await clients["memory"].query(catalogue, whole, FiscalRange())
            key = at.entity_id, catalogue.dataset_id, panel.value_version
            came = await caches["memory"].partition(at.base_url, at.token).blocks(*key)
            for name, cache in caches.items():
                # An answer of more than 4 MiB has compressed the texts beyond that for
                # itself.
                for kind, texts in (
                    ("put", came),
                    ("put compressed", compressed_blocks(came)),
                ):
                    await cache.clear()
                    put = partial(
                        cache.partition(at.base_url, at.token).put_blocks, *key, texts
                    )
                    await costs.add(f"{name}, {kind}", put)
        for name, client in clients.items():
            for kind, select in (("hit", Select()), ("hit, few", few)):
                ask = partial(client.query, at.entity_id, select, FiscalRange())
                await ask()
                for _ in range(ROUNDS):
                    await costs.add(f"{name}, {kind}", ask)
    rows = [
        (f"no cache: {count}", costs.median("none"), ""),
        ("no cache: a metric", costs.median("none, few"), ""),
    ]
    for name in caches:
        miss = f"{costs.ratio(f'{name}, miss', 'none') - 1:+.0%} of CPU without a cache"
        put, compressed = (
            f"{costs.ratio(f'{name}, {kind}', 'none'):.1%} of CPU without a cache, < 5 "
            "%"
            for kind in ("put", "put compressed")
        )
        rows += [
            (
                f"{name}: miss, {count} requested and stored",
                costs.median(f"{name}, miss"),
                miss,
            ),
            (f"{name}: storing them alone", costs.median(f"{name}, put"), put),
            (
                f"{name}: the same, compressed already",
                costs.median(f"{name}, put compressed"),
                compressed,
            ),
            (f"{name}: hit, {count}", costs.median(f"{name}, hit"), "< 5 ms for 2,000"),
            (
                f"{name}: hit, a metric",
                costs.median(f"{name}, hit, few"),
                "< 1 ms from memory",
            ),
        ]
    return rows


async def _fill(at: Service, folder: str) -> None:
    """Store what the first question of a process will find."""
    cache = FileCache(folder, account="benchmark")
    await cache.clear()
    async with Client(at.base_url, at.token, cache=cache) as client:
        await client.query(at.entity_id, Select(), FiscalRange())
    await cache.aclose()


def run() -> str:
    """Return a Markdown table."""
    with service() as at, tempfile.TemporaryDirectory() as parent:
        folder = str(Path(parent) / "cache")
        rows = asyncio.run(_rows(at, folder))
        asyncio.run(_fill(at, folder))
        first = []
        for _ in range(9):
            command = [
                sys.executable,
                "-c",
                _FIRST,
                folder,
                at.base_url,
                at.token,
                at.entity_id,
            ]
            said = subprocess.run(
                command, check=True, capture_output=True, text=True
            ).stdout
            wall, cpu, requests = map(float, said.split())
            assert requests == 0
            first.append(Cost(wall, cpu))
        size = sum(
            file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()
        )
    asked = Cost(*map(median, zip(*first, strict=True)))
    rows.append(("file: first question of a process", asked, "< 25 ms by the clock"))
    lines = [
        f"| {name} | {cost.wall * 1e3:.1f} ms | {cost.cpu * 1e3:.1f} ms | {goal} |"
        for name, cost, goal in rows
    ]
    head = ["| question | wall time | CPU time | goal |", "| --- | ---: | ---: | --- |"]
    return "\n".join([*head, *lines, "", f"On disk: {size / 1024:,.0f} KiB."])


if __name__ == "__main__":
    print(run())
