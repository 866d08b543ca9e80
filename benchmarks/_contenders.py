"""One way of reading answers, in a separate process: ``benchmarks._contenders NAME FILE
URL TOKEN``.

With ``"NAME again"`` it is measured in a process that has read the same before.

It prints one JSON object: values, CPU and wall seconds, the longest stop of the loop,
and the memory above what was there before: at its peak, and with the result held.
"""

import asyncio
import gc
import json
import pickle
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from attrs import evolve

from benchmarks import _ours
from benchmarks._gauges import Heartbeat, memory, peak, reset_peak
from benchmarks._ours import IN_FLIGHT, Held, Question

Read = Callable[[Question], Awaitable[tuple[int, Held]]]


async def _gathered(
    question: Question, read: Callable[[dict[str, Any]], Awaitable[Any]]
) -> list[Any]:
    """Read all chains, eight at a time."""
    limit = asyncio.Semaphore(IN_FLIGHT)

    async def one(chain: dict[str, Any]) -> Any:
        async with limit:
            return await read(chain)

    return await asyncio.gather(*map(one, question.chains))


async def _bodies(
    session: Any, question: Question, chain: dict[str, Any]
) -> AsyncIterator[bytes]:
    """Yield the bodies of a chain by aiohttp; the cursor is found without parsing."""
    cursor = None
    headers = {"Authorization": f"Bearer {question.token}"}
    while True:
        async with session.post(
            question.path,
            json={**chain, "cursor": cursor} if cursor else chain,
            headers=headers,
        ) as answer:
            answer.raise_for_status()
            body = await answer.read()
        yield body
        _, marker, tail = body[-100:].rpartition(b'"next_cursor":"')
        if not marker:
            return
        cursor = tail.partition(b'"')[0].decode()


async def floor(
    question: Question, parse: Callable[[bytes], Any] = len
) -> tuple[int, Held]:
    import aiohttp

    async def read(chain: dict[str, Any]) -> None:
        async for body in _bodies(session, question, chain):
            parse(body)

    async with aiohttp.ClientSession() as session:
        await _gathered(question, read)
    return 0, None


async def floor_orjson(question: Question) -> tuple[int, Held]:
    import orjson

    return await floor(question, orjson.loads)


async def handwritten(question: Question) -> tuple[int, Held]:
    import aiohttp
    import orjson

    async def read(chain: dict[str, Any]) -> dict[str, dict[tuple[int, ...], Any]]:
        values: dict[str, dict[tuple[int, ...], Any]] = {}
        cursor = None
        while True:
            async with session.post(
                question.path, json={**chain, "cursor": cursor}
            ) as answer:
                page = orjson.loads(await answer.read())
            periods = [tuple(period.values()) for period in page["periods"]]
            for series in page["series"]:
                pairs = zip(periods, series["values"], strict=True)
                values[series["series_id"]] = {
                    period: value for period, value in pairs if value is not None
                }
            cursor = page.get("next_cursor")
            if cursor is None:
                return values

    async with aiohttp.ClientSession() as session:
        parts = await _gathered(question, read)
    return sum(len(values) for part in parts for values in part.values()), parts


async def numbers_by_hand(question: Question) -> tuple[int, Held]:
    """Read only the numbers: msgspec skips all else."""
    import aiohttp
    import msgspec

    class Number(msgspec.Struct, gc=False):
        number: float

    class Numbers(msgspec.Struct, gc=False):
        series_id: str
        values: list[Number | None]

    class Page(msgspec.Struct, gc=False):
        periods: list[dict[str, int]]
        series: list[Numbers]

    decoder = msgspec.json.Decoder(Page)

    async def read(chain: dict[str, Any]) -> dict[str, list[Number | None]]:
        numbers: dict[str, list[Number | None]] = {}
        async for body in _bodies(session, question, chain):
            page = decoder.decode(body)
            numbers |= {series.series_id: series.values for series in page.series}
        return numbers

    async with aiohttp.ClientSession() as session:
        chains = await _gathered(question, read)
    count = sum(
        value is not None
        for chain in chains
        for values in chain.values()
        for value in values
    )
    return count, chains


async def pandas_by_hand(question: Question) -> tuple[int, Held]:
    import pandas as pd
    import requests

    rows, columns = [], ("series_id", "metric_id", "label", "basis")
    with requests.Session() as session:
        for chain in question.chains:
            cursor = None
            while True:
                page = session.post(
                    question.path, json={**chain, "cursor": cursor}
                ).json()
                for series in page["series"]:
                    for period, value in zip(
                        page["periods"], series["values"], strict=True
                    ):
                        if value is not None:
                            rows.append(
                                {
                                    **{name: series[name] for name in columns},
                                    **period,
                                    **value,
                                }
                            )
                cursor = page.get("next_cursor")
                if cursor is None:
                    break
    frame = pd.DataFrame(rows)
    return len(frame), frame


async def pydantic_models(question: Question) -> tuple[int, Held]:
    import httpx
    from pydantic import BaseModel

    class Period(BaseModel):
        year: int
        end_month: int
        duration_months: int

    class Source(BaseModel):
        item_id: str
        row_index: int
        column_index: int

    class Value(BaseModel):
        number: int | float
        text: str
        number_format: str
        fill_type: str
        value_version: str
        report_period: Period
        sources: list[Source]

    class ScopeRef(BaseModel):
        scope_group_id: str
        scope_id: str

    class Series(BaseModel):
        series_id: str
        reporting_group_id: str
        metric_id: str
        label: str
        basis: str
        scopes: list[ScopeRef]
        number_format: str
        period_meaning: str
        values: list[Value | None]

    class Page(BaseModel):
        entity_id: str
        name: str
        dataset_id: str
        created_timestamp: str
        periods: list[Period]
        series: list[Series]
        next_cursor: str | None = None

    async def read(chain: dict[str, Any]) -> list[Page]:
        pages: list[Page] = []
        cursor = None
        while True:
            answer = await client.post(question.path, json={**chain, "cursor": cursor})
            pages.append(Page.model_validate_json(answer.content))
            cursor = pages[-1].next_cursor
            if cursor is None:
                return pages

    async with httpx.AsyncClient(timeout=60) as client:
        chains = await _gathered(question, read)
    pages = [page for chain in chains for page in chain]
    return sum(
        v is not None for page in pages for s in page.series for v in s.values
    ), pages


async def generated(question: Question) -> tuple[int, Held]:
    """The client that openapi-python-client makes of the sandbox's document, found on
    the path.
    """
    from generated_client import AuthenticatedClient
    from generated_client.api.default import query as operation
    from generated_client.models import Query as Body

    async def read(chain: dict[str, Any]) -> list[Any]:
        pages: list[Any] = []
        cursor = None
        while True:
            body = Body.from_dict({**chain, "cursor": cursor} if cursor else chain)
            pages.append(
                await operation.asyncio(
                    question.plan.catalogue.entity_id, client=client, body=body
                )
            )
            cursor = pages[-1].next_cursor
            if not isinstance(cursor, str):
                return pages

    async with AuthenticatedClient(
        base_url=question.url, token=question.token, timeout=60
    ) as client:
        chains = await _gathered(question, read)
    pages = [page for chain in chains for page in chain]
    return sum(
        v is not None for page in pages for s in page.series for v in s.values
    ), pages


async def measured(read: Read, question: Question) -> dict[str, Any]:
    gc.collect()
    reset_peak()
    memory_before = memory()
    heartbeat = Heartbeat()
    await asyncio.sleep(0.01)
    heartbeat.longest, heartbeat.beats = 0.0, 0
    wall, cpu = time.perf_counter(), time.process_time()
    count, result = await read(question)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    figures = {
        "values": count,
        "cpu": cpu,
        "wall": wall,
        "stop": heartbeat.longest,
        "beats": heartbeat.beats / wall,
        "peak": peak() - memory_before,
    }
    gc.collect()
    figures["held"] = memory() - memory_before
    del result
    return figures


async def _warm(name: str, question: Question) -> None:
    """Pay for imports and first-use work before anything is measured."""
    if not hasattr(_ours, name) or len(question.chains) == 1:
        await _way(name)(evolve(question, chains=question.chains[-1:]))
        return
    from asyncfin import Client

    last = question.plan.batches[-1]
    series = tuple(item for item in question.plan.series if item.series_id in last.home)
    async with Client(question.url, question.token, max_in_flight=IN_FLIGHT) as client:
        panel = await client.run(evolve(question.plan, batches=(last,), series=series))
    if name == "arrow":
        panel.to_arrow()


def _way(name: str) -> Read:
    way: Read = getattr(_ours, name, None) or globals()[name]
    return way


async def main(name: str, question: Question) -> None:
    name, _, suffix = name.partition(" ")
    await _warm(name, question)
    if suffix:
        await _way(name)(question)
    print(json.dumps(await measured(_way(name), question)))


if __name__ == "__main__":
    name, file, url, token = sys.argv[1:]
    asyncio.run(
        main(name, Question(url, token, *pickle.loads(Path(file).read_bytes())))
    )
