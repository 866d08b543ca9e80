"""How large things become: rows of the table "Sizing" of docs/operations.md.

The service is a sandbox in a separate process. Memory is what is resident.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
from pathlib import Path

from asyncfin import Client, FileCache, FiscalRange, MemoryCache, Select
from benchmarks._gauges import memory
from benchmarks._large import Service, service


async def _sizes(running: Service) -> list[tuple[str, str]]:
    gc.disable()
    async with Client(running.base_url, running.token) as client:
        series = Select(
            metric_ids=(await client.catalogue(running.entity_id)).series[0].metric_id
        )
        await client.query(running.entity_id, series, FiscalRange())
        rows = [
            (
                "a process after one query",
                f"{memory() / 1e6:.0f} MB of resident memory",
            )
        ]
        catalogues, memory_before = [], memory()
        for _ in range(5):
            async with Client(running.base_url, running.token) as second_client:
                catalogues.append(await second_client.catalogue(running.entity_id))
        gc.collect()
        count = sum(map(len, catalogues))
        rows.append(
            (
                "a catalogue in memory",
                f"{(memory() - memory_before) / count / 1e3:.1f} kB a series",
            )
        )
    with tempfile.TemporaryDirectory() as folder:
        for cache in (MemoryCache(), FileCache(Path(folder, "cache"))):
            async with Client(running.base_url, running.token, cache=cache) as client:
                panel = await client.query(running.entity_id, Select(), FiscalRange())
            entries = await cache.inspect()
            rows.append(
                (
                    type(cache).__name__,
                    f"{entries.bytes / len(panel) / 1e3:.1f} kB a series",
                )
            )
            await cache.aclose()
    return rows


def run() -> str:
    with service() as running:
        argv = (running.base_url, running.token, running.entity_id)
        code = "import sys; from benchmarks.sizes import main; main(*sys.argv[1:])"
        command = [sys.executable, "-c", code, *argv]
        return subprocess.run(
            command, check=True, capture_output=True, text=True
        ).stdout


def main(*argv: str) -> None:
    rows = asyncio.run(_sizes(Service(*argv)))
    print(
        "| what | size |",
        "| --- | --- |",
        *(f"| {name} | {size} |" for name, size in rows),
        sep="\n",
    )
