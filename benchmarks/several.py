"""Questions to companies of which nothing is known, beside the same requests by aiohttp
and orjson.

By hand nothing is planned, checked, paced or repeated: the requests are those that the
client has sent.
"""

import asyncio
import gc
import multiprocessing
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter, process_time
from typing import Any

import aiohttp
import orjson

from asyncfin import Client, FiscalRange, MemoryCache, Select, TokenBucket
from asyncfin.plan.plan import Plan
from asyncfin.sandbox import Sandbox
from asyncfin.web import reply
from asyncfin.wire.protocol import catalogue_request, query_request
from benchmarks._hand import IN_FLIGHT, KINDS, requests_of
from benchmarks._night import TOKEN, entity_id
from benchmarks.bucket import PLENTY
from benchmarks.extraction import night

ROUNDS = 5
SMALL, COMPANIES = 60, 300
VISITED, VISITS, FIRST = 206, 60, 12

Requests = list[tuple[str, str, str]]


@asynccontextmanager
async def _asked(
    url: str, ask: Callable[[int], Awaitable[object]]
) -> AsyncIterator[Any]:
    """Yield a session, and what the client asks of a company of each kind."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(
        url, connector=connector, headers=headers
    ) as session:
        for kind in range(KINDS):
            await ask(kind)
        yield session, [await requests_of(session, kind) for kind in range(KINDS)]


async def _bodies(
    session: aiohttp.ClientSession,
    requests: Mapping[int, Requests] | list[Requests],
    number: int,
) -> list[bytes]:
    bodies, kind = [], number % KINDS
    for method, path, body in requests[kind]:
        path_of_company = path.replace(entity_id(kind), entity_id(number))
        async with session.request(
            method, path_of_company, data=body or None
        ) as answer:
            bodies.append(await answer.read())
    return bodies


def _client(url: str) -> Client:
    return Client(
        url,
        TOKEN,
        bucket=TokenBucket(PLENTY, PLENTY),
        cache=MemoryCache(),
        max_age=3600,
    )


def _numbers(page: Any) -> dict[str, dict[tuple[int, ...], float]]:
    """Return the numbers of a page of a query, by series and period."""
    periods = [
        (entry["year"], entry["end_month"], entry["duration_months"])
        for entry in page["periods"]
    ]
    return {
        series["series_id"]: {
            period: value["number"]
            for period, value in zip(periods, series["values"], strict=True)
            if value is not None
        }
        for series in page["series"]
    }


async def _ratio(
    works: list[Callable[[], Awaitable[None]]],
    clock: Callable[[], float] = process_time,
) -> float:
    """Return the time of the first work as a multiple of the second's: the median of
    rounds in turn.
    """
    ratios = []
    for _ in range(ROUNDS):
        seconds = []
        for work in works:
            began = clock()
            await work()
            seconds.append(clock() - began)
        ratios.append(seconds[0] / seconds[1])
    return median(ratios)


async def many() -> float:
    """Return the ratio of `query_many` to dicts of numbers by hand, for 300 companies
    of 60 series.
    """
    with night(SMALL) as url:

        async def ours(count: int = COMPANIES) -> None:
            bucket = TokenBucket(PLENTY, PLENTY)
            async with (
                Client(url, TOKEN, bucket=bucket) as client,
                client.query_many(
                    map(entity_id, range(count)), Select(), FiscalRange()
                ) as answers,
            ):
                async for answer in answers:
                    assert answer.panel is not None
                    for series in answer.panel.series_ids:
                        answer.panel._grid.observations(series)

        async def by_hand() -> None:
            numbers = iter(range(COMPANIES))
            results: dict[int, object] = {}

            async def work() -> None:
                for number in numbers:
                    for body in await _bodies(session, requests, number):
                        page = orjson.loads(body)
                        if "series" in page:
                            results[number] = _numbers(page)

            await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))

        async with _asked(
            url, lambda kind: ours(KINDS) if not kind else asyncio.sleep(0)
        ) as (
            session,
            requests,
        ):
            return await _ratio([ours, by_hand])


async def cold() -> float:
    """Return the ratio of a cold visit to a company of 206 series, its JSON too, to a
    backend by hand.
    """
    with night(VISITED) as url:
        async with _client(url) as first:

            async def visit(number: int, client: Client = first) -> None:
                panel = await client.query(entity_id(number), Select(), FiscalRange())
                assert (await reply(panel, accept=None)).body

            async def ours() -> None:
                async with _client(url) as client:
                    for number in range(VISITS):
                        await visit(number, client)

            async def by_hand() -> None:
                for number in range(VISITS):
                    pages = [
                        orjson.loads(body)
                        for body in await _bodies(session, requests, number)
                    ]
                    series = [item for page in pages for item in page.get("series", ())]
                    assert orjson.dumps(
                        {"periods": pages[-1]["periods"], "series": series}
                    )

            async with _asked(url, visit) as (session, requests):
                return await _ratio([ours, by_hand])


async def first() -> tuple[float, float, float]:
    """Return what a first query to a company of 206 series takes: requests, wall and
    CPU time.

    Requests are those besides the pages of the catalogue and the queries. By hand the
    pages are requested one after the other and the queries at once, and numbers are put
    into dicts.
    """
    with night(VISITED, latency=20) as url:
        beyond = 0

        async def ours(count: int = FIRST) -> None:
            nonlocal beyond
            for number in range(count):
                async with Client(
                    url, TOKEN, bucket=TokenBucket(PLENTY, PLENTY)
                ) as client:
                    panel = await client.query(
                        entity_id(number), Select(), FiscalRange()
                    )
                    for series in panel.series_ids:
                        panel._grid.observations(series)
                operations = client.stats().by_operation
                beyond += sum(counts.requests for counts in operations.values())
                beyond -= (
                    operations["catalogue"].requests + operations["query"].requests
                )

        async def by_hand() -> None:
            for number in range(FIRST):
                query_body = requests[number % KINDS]
                pages = [item for item in query_body if item[0] == "GET"]
                queries = [item for item in query_body if item[0] == "POST"]
                headers = {
                    "Authorization": f"Bearer {TOKEN}",
                    "Content-Type": "application/json",
                }
                async with aiohttp.ClientSession(url, headers=headers) as session:
                    for page in pages:
                        orjson.loads(
                            (await _bodies(session, {number % KINDS: [page]}, number))[
                                0
                            ]
                        )
                    for (body,) in await asyncio.gather(
                        *(
                            _bodies(session, {number % KINDS: [query]}, number)
                            for query in queries
                        )
                    ):
                        _numbers(orjson.loads(body))

        async with _asked(
            url, lambda kind: ours(KINDS) if not kind else asyncio.sleep(0)
        ) as (_, requests):
            wall = await _ratio([ours, by_hand], perf_counter)
            return beyond, wall, await _ratio([ours, by_hand])


def _serve_demo(port: Connection) -> None:
    async def run() -> None:
        async with Sandbox.demo() as sandbox:
            port.send((sandbox.base_url, sandbox.token, sandbox.entities))
            await asyncio.sleep(3600)

    asyncio.run(run())


async def _kept_by_hand(url: str, token: str, plan: Plan) -> list[bytes]:
    """Return the bodies of a company's catalogue and of the queries of a plan."""
    entity, bodies = plan.catalogue.entity_id, list[bytes]()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(url, headers=headers) as session:
        cursor: str | None = ""
        while cursor is not None:
            request = catalogue_request(
                entity, expected_dataset_id=None, page_size=100, cursor=cursor or None
            )
            async with session.get(request.target) as answer:
                bodies.append(await answer.read())
            cursor = orjson.loads(bodies[-1]).get("next_cursor")
        for batch in plan.batches:
            request = query_request(entity, batch, page_size=100, cursor=None)
            async with session.post(request.target, data=request.body) as answer:
                bodies.append(await answer.read())
    return bodies


async def memory() -> float:
    """Return the memory of a cached company of the demo as a multiple of that of its
    response bodies.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(
        target=_serve_demo, args=(sender,), daemon=True
    )
    process.start()
    try:
        url, token, entities = await asyncio.to_thread(receiver.recv)
        sizes: list[list[int]] = [[], []]
        async with (
            Client(url, token, cache=MemoryCache()) as client,
            Client(url, token) as plain,
        ):
            plans = [
                await plain.plan(entity, Select(), FiscalRange()) for entity in entities
            ]
            results: list[Any] = []
            for plan in plans:
                question = client.query(
                    plan.catalogue.entity_id, Select(), FiscalRange()
                )
                for number, way in enumerate(
                    (question, _kept_by_hand(url, token, plan))
                ):
                    gc.collect()
                    tracemalloc.start()
                    results.append(await way)
                    if not number:
                        results.pop()  # the cache has it
                    gc.collect()
                    sizes[number].append(tracemalloc.get_traced_memory()[0])
                    tracemalloc.stop()
        # Not the first: what is made once is counted there.
        return sum(sizes[0][1:]) / sum(sizes[1][1:])
    finally:
        process.terminate()


def run() -> str:
    """Return a table."""
    lines = ["| | of by hand |", "| --- | --- |"]
    for name, measure in (
        ("query_many", many),
        ("cold visit", cold),
        ("memory", memory),
    ):
        lines.append(f"| {name} | {asyncio.run(measure()):.2f} |")
    return "\n".join(lines)
