"""Caches that processes share, in a folder and in Redis: what a new process, a warm
visit, eight writers and four cold workers cost, with 1,000 companies stored.

Each process is forked, so no import is counted. The service replays bodies without
latency.
"""

import asyncio
import multiprocessing
import shutil
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any

from asyncfin import (
    Cache,
    Client,
    FileCache,
    FiscalRange,
    RedisCache,
    Select,
    TokenBucket,
)
from benchmarks._night import TOKEN, entity_id
from benchmarks.bucket import PLENTY
from benchmarks.extraction import night

SERIES, COMPANIES = 60, 1_000
NEW_PROCESSES, VISITS = 15, 300
WRITERS, PUTS = 8, 40
WORKERS, ROUNDS = 4, 5

MakeCache = Callable[[], Cache]
CONTEXT = multiprocessing.get_context("fork")


def _client(url: str, cache: Cache) -> Client:
    bucket = TokenBucket(PLENTY, PLENTY)
    return Client(url, TOKEN, bucket=bucket, cache=cache, max_age=86_400)


async def _query(client: Client, number: int) -> tuple[float, int]:
    """Return the milliseconds and the requests of a query of everything."""
    began = perf_counter()
    panel = await client.query(entity_id(number), Select(), FiscalRange())
    return (perf_counter() - began) * 1_000, panel.requests


def _fork(count: int, work: Callable[..., Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return what so many processes return that begin at the same moment."""
    barrier, results = CONTEXT.Barrier(count), CONTEXT.Queue()

    def run(index: int) -> None:
        barrier.wait()
        results.put(asyncio.run(work(index)))

    processes = [CONTEXT.Process(target=run, args=(index,)) for index in range(count)]
    for process in processes:
        process.start()
    rows = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return rows


def _measure(url: str, make_cache: MakeCache) -> Iterator[tuple[str, str]]:
    """Yield what was measured, and the figures."""

    async def ask(number: int, visits: int = 1) -> list[tuple[float, int]]:
        cache = make_cache()
        async with _client(url, cache) as client:
            rows = [await _query(client, number) for _ in range(visits)]
        await cache.aclose()
        return rows

    async def fill() -> None:
        cache = make_cache()
        async with _client(url, cache) as client:
            ids = [entity_id(number) for number in range(COMPANIES)]
            async with client.query_many(ids, Select(), FiscalRange()) as answers:
                async for _ in answers:
                    pass
        await cache.aclose()

    async def put(index: int) -> float:
        cache = make_cache()
        part = cache.partition(url, TOKEN)
        async with _client(url, cache) as client:
            dataset_id = (await client.dataset(entity_id(0))).dataset_id
        blocks = await part.blocks(entity_id(0), dataset_id, "original")
        began = perf_counter()
        for number in range(PUTS):
            company = entity_id(2 * COMPANIES + index * PUTS + number)
            await part.put_blocks(company, dataset_id, "original", blocks)
        await cache.aclose()
        return (perf_counter() - began) * 1_000 / PUTS

    async def inspect() -> tuple[float, int]:
        cache = make_cache()
        began = perf_counter()
        stats = await cache.inspect()
        await cache.aclose()
        return perf_counter() - began, stats.bytes

    began = perf_counter()
    asyncio.run(fill())
    seconds = (perf_counter() - began) * 1_000 / COMPANIES
    yield f"{COMPANIES:,} companies are read and stored, each", f"{seconds:.1f} ms"
    firsts = []
    for number in range(NEW_PROCESSES):

        async def first(_: int, number: int = number) -> tuple[float, int]:
            return (await ask(number * COMPANIES // NEW_PROCESSES))[0]

        firsts += _fork(1, first)
    assert not any(requests for _, requests in firsts)
    milliseconds = median(row[0] for row in firsts)
    yield "first query of a new process", f"{milliseconds:.1f} ms"
    visits = asyncio.run(ask(1, VISITS))
    milliseconds = median(row[0] for row in visits[1:])
    yield "warm visit", f"{milliseconds:.2f} ms"
    milliseconds = median(_fork(WRITERS, put))
    yield f"a put of {WRITERS} writers", f"{milliseconds:.1f} ms"
    times: dict[int, list[float]] = {1: [], WORKERS: []}
    requests: dict[int, set[int]] = {1: set(), WORKERS: set()}
    company = COMPANIES
    for _ in range(ROUNDS):
        for count in times:
            company += 1

            async def cold(_: int, company: int = company) -> tuple[float, int]:
                return (await ask(company))[0]

            rows = _fork(count, cold)
            times[count].append(max(row[0] for row in rows))
            requests[count].add(sum(row[1] for row in rows))
    for count in times:
        sent = " or ".join(map(str, sorted(requests[count])))
        name = "one cold worker" if count == 1 else f"the slowest of {count} cold ones"
        yield name, f"{median(times[count]):.0f} ms, {sent} requests in all"
    seconds, size = asyncio.run(inspect())
    yield "`inspect`", f"{seconds:.2f} s, {size / 1e6:.1f} MB"


@contextmanager
def _caches() -> Iterator[dict[str, MakeCache]]:
    with TemporaryDirectory() as folder:
        caches: dict[str, MakeCache] = {
            "FileCache": lambda: FileCache(Path(folder, "cache"), account="desk")
        }
        server = shutil.which("redis-server")
        if server is None:
            yield caches
            return
        place = Path(folder, "socket")
        arguments = ["--port", "0", "--unixsocket", str(place), "--save", ""]
        with subprocess.Popen(
            [server, *arguments, "--dir", folder], stdout=subprocess.DEVNULL
        ) as redis:
            while not place.exists():
                sleep(0.01)
            caches["RedisCache"] = lambda: RedisCache(f"unix://{place}", account="desk")
            yield caches
            redis.terminate()


def run() -> str:
    columns = {}
    with night(SERIES) as url, _caches() as caches:
        for name, make_cache in caches.items():
            columns[name] = dict(_measure(url, make_cache))
    lines = [
        f"| companies of {SERIES} series | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
    ]
    for name in next(iter(columns.values())):
        figures = " | ".join(column[name] for column in columns.values())
        lines.append(f"| {name} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(run())
