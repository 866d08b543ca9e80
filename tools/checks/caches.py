"""Let processes share a cache while publications change and while Redis fails, and
check every result.

``python -m tools.checks.caches oracle [queries] [file|redis]`` starts four processes
of two clients each over one `FileCache` or one Redis. Their results are compared with
a computation that knows no client, and each publication must have been current at some
moment since the query began, less its `max_age`.

``python -m tools.checks.caches faults [visits]`` ends, stops, fills, demotes, flushes
and replaces a Redis server under a client whose bucket and cache are there. The bucket
has a fallback, so that every visit must be served.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from uuid import UUID

from attrs import evolve

from asyncfin import (
    Annual,
    CatalogueSeries,
    Client,
    FileCache,
    FiscalRange,
    RedisBucket,
    RedisCache,
    Select,
    TokenBucket,
    Trailing,
)
from asyncfin.model.query import VALUE_VERSIONS
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.dataset import DatasetFile, Publication
from tests.generate import generate
from tests.pacing.test_bucket_outages import FAULTS
from tests.read.test_answers import Table, content, expected, texts
from tests.shared_buckets import RedisServer, redis_server

PROCESSES, CLIENTS, ENTITIES = 4, 2, 6
MAX_AGES = (0.0, 0.0, 0.5)
PERIODS = (FiscalRange(), Annual(), Trailing(24))
_PUBLISH_SECONDS = 0.25
# Clocks are read before and after what they stamp.
_TOLERANCE = 0.05


def is_in_third(third: int, series_id: str) -> bool:
    """Return whether a series is of a part of all series."""
    return sum(series_id.encode()) % 3 == third


def is_series_in_third(third: int, series: CatalogueSeries) -> bool:
    """Return the same of a series of a catalogue."""
    return is_in_third(third, series.series_id)


def digest_table(table: Table) -> str:
    """Return a digest of the values of a table."""
    rows = sorted((name, sorted(row.items())) for name, row in table.items())
    return hashlib.sha256(repr(rows).encode()).hexdigest()


async def work(
    kind: str, place: str, url: str, token: str, seed: str, count: str, *entities: str
) -> None:
    """Send queries by two clients, and print what each has returned."""
    cache = (FileCache if kind == "file" else RedisCache)(place, account="desk")
    draw = random.Random(int(seed))

    async def visit(client: Client) -> None:
        for _ in range(int(count)):
            entity_id, third = draw.choice(entities), draw.randrange(3)
            place_of_periods, version = (
                draw.randrange(len(PERIODS)),
                draw.choice(VALUE_VERSIONS),
            )
            max_age = draw.choice(MAX_AGES)
            select = Select(where=partial(is_series_in_third, third))
            began = time.time()
            panel = await client.query(
                entity_id,
                select,
                PERIODS[place_of_periods],
                value_version=version,
                max_age=max_age,
            )
            ended = time.time()
            key = [entity_id, third, place_of_periods, version]
            result = [
                panel.dataset.dataset_id,
                digest_table(content(panel)),
                panel.requests,
            ]
            print(json.dumps([key, result, began - max_age, ended]), flush=True)

    clients = [Client(url, token, cache=cache) for _ in range(CLIENTS)]
    try:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        async with asyncio.TaskGroup() as tasks:
            for client in clients:
                tasks.create_task(visit(client))
        print(json.dumps(cache.stats().broken))
    finally:
        for client in clients:
            await client.aclose()
        await cache.aclose()


class Publisher:
    """Publishes entities one after the other, and notes when each became current."""

    def __init__(self, sandbox: Sandbox, datasets: list[DatasetFile]) -> None:
        self.sandbox = sandbox
        self.datasets = datasets
        self.count = 0
        # By entity: when a publication became current, its id, and its content.
        self.spans: dict[str, list[tuple[float, float, Publication]]] = defaultdict(
            list
        )
        for dataset in datasets:
            self.note(dataset.publications[0], 0.0)

    def note(self, publication: Publication, began: float) -> None:
        """Note a publication that became current between a time and now."""
        self.spans[publication.entity_id].append((began, time.time(), publication))

    def publish(self) -> None:
        """Make a new publication of the next entity current."""
        dataset = self.datasets[self.count % len(self.datasets)]
        self.count += 1
        version = len(self.spans[dataset.entity_id])
        base = dataset.publications[version % len(dataset.publications)]
        publication = evolve(base, dataset_id=str(UUID(int=self.count + (1 << 100))))
        began = time.time()
        self.sandbox.publish(publication)
        self.note(publication, began)

    def find(
        self, entity_id: str, dataset_id: str, since: float, until: float
    ) -> Publication | None:
        """Return a publication if it was current at some moment between two times."""
        spans = self.spans[entity_id]
        for number, (began, _, publication) in enumerate(spans):
            end = spans[number + 1][1] if number + 1 < len(spans) else float("inf")
            if publication.dataset_id == dataset_id:
                is_current = began <= until + _TOLERANCE and end >= since - _TOLERANCE
                return publication if is_current else None
        return None


async def compare(kind: str, queries: int) -> None:
    """Run the processes, and print how many of their results were wrong."""
    datasets = [
        generate(100 + number, series=90, publications=2) for number in range(ENTITIES)
    ]
    first = [
        evolve(dataset, publications=dataset.publications[:1]) for dataset in datasets
    ]
    count = -(-queries // (PROCESSES * CLIENTS))
    with (
        tempfile.TemporaryDirectory() as folder,
        redis_server() if kind == "redis" else nullcontext() as server,
    ):
        place = server.url if server else f"{folder}/cache"
        async with Sandbox(*first) as sandbox:
            publisher = Publisher(sandbox, datasets)
            entities = [dataset.entity_id for dataset in datasets]
            processes = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tools.checks.caches", "work", kind, place),
                    *(
                        sandbox.base_url,
                        sandbox.token,
                        str(seed),
                        str(count),
                        *entities,
                    ),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for seed in range(PROCESSES)
            ]
            for process in processes:
                assert process.stdout is not None
                await process.stdout.readline()
            began = time.monotonic()
            ends = asyncio.gather(
                *(process.communicate(b"go\n") for process in processes)
            )
            while not ends.done():
                publisher.publish()
                await asyncio.wait([ends], timeout=_PUBLISH_SECONDS)
            outputs = [output.decode().splitlines() for output, _ in await ends]
            seconds, requests = time.monotonic() - began, len(sandbox.log)
    faults = [
        f"a process ended with {process.returncode}"
        for process in processes
        if process.returncode
    ]
    digests: dict[tuple[object, ...], str] = {}
    results = [json.loads(line) for lines in outputs for line in lines]
    broken = sum(result for result in results if isinstance(result, int))
    lines = [result for result in results if isinstance(result, list)]
    without_request = 0
    for (entity_id, third, place_of_periods, version), result, since, until in lines:
        dataset_id, digest, spent = result
        without_request += spent == 0
        publication = publisher.find(entity_id, dataset_id, since, until)
        if publication is None:
            faults.append(f"{entity_id}: {dataset_id} was not current")
            continue
        key = (id(publication.groups), third, place_of_periods, version)
        if key not in digests:
            ids = {
                row["series_id"]
                for group in publication.groups
                for row in group["series"]
            }
            part = {series_id for series_id in ids if is_in_third(third, series_id)}
            _, values = expected(publication, part, PERIODS[place_of_periods], version)
            digests[key] = digest_table(texts(values))
        if digest != digests[key]:
            faults.append(f"{entity_id}: wrong values of {dataset_id}")
    print(
        f"{kind}: {len(lines)} queries of {PROCESSES * CLIENTS} clients in "
        f"{seconds:.0f} s, {publisher.count} publications, {requests} requests, "
        f"{without_request} queries without one, {broken} broken parts: "
        f"{len(faults)} wrong"
    )
    for fault, times in Counter(faults).most_common(10):
        print(f"  {fault} ({times} times)")
    if faults or len(lines) < queries:
        sys.exit(1)


async def visit_through(
    fault: Callable[[RedisServer], Awaitable[None]], visits: int
) -> None:
    """Send visits while a Redis server fails, and print how many were served."""
    dataset = generate(7, series=90, publications=1)
    with redis_server() as server:
        fallback = TokenBucket(1000, 20)
        bucket = RedisBucket(
            server.url, account="desk", rate=1000, burst=20, fallback=fallback
        )
        cache = RedisCache(server.url, account="desk")
        slowest, served, errors = 0.0, 0, Counter[str]()
        async with Sandbox(dataset) as sandbox:
            client = Client(sandbox.base_url, sandbox.token, bucket=bucket, cache=cache)
            async with client:
                for number in range(visits):
                    if number == visits // 4:
                        await fault(server)
                    began = time.monotonic()
                    try:
                        panel = await client.query(
                            dataset.entity_id, Select(), FiscalRange()
                        )
                        served += len(panel) == 90
                    except Exception as error:
                        errors[type(error).__name__] += 1
                    slowest = max(slowest, time.monotonic() - began)
        for resource in (bucket, cache):
            await resource.aclose()
    name = fault.__name__
    print(
        f"{name}: {served} of {visits} visits served, slowest {slowest:.2f} s", *errors
    )
    if served < visits:
        sys.exit(1)


def main(mode: str = "oracle", *arguments: str) -> None:
    """Run a check by its name."""
    if mode == "work":
        asyncio.run(work(*arguments))
    elif mode == "faults":
        for fault in FAULTS:
            asyncio.run(visit_through(fault, int(arguments[0]) if arguments else 200))
    else:
        queries = int(arguments[0]) if arguments else 2_000
        for kind in arguments[1:] or ("file", "redis"):
            asyncio.run(compare(kind, queries))


if __name__ == "__main__":
    main(*sys.argv[1:])
