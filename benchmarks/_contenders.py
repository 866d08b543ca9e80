"""One way of reading answers, in a process of its own: ``python -m benchmarks._contenders NAME FILE URL``.

It prints one JSON object: values, CPU and wall seconds, the longest stop of the loop, and the memory
above what was there before: at its peak, and with the result held.
"""

import asyncio
import gc
import json
import pickle
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from asyncfin.fanout.plan import Plan

IN_FLIGHT = 8
TOKEN = "not-checked"


@frozen
class Question:
    """What every contender is asked."""

    url: str
    plan: Plan
    chains: list[dict[str, Any]]

    @property
    def path(self) -> str:
        return f"{self.url}/v1/entities/{self.plan.catalogue.entity_id}/dataset/query"


Held = Any
Read = Callable[[Question], Awaitable[tuple[int, Held]]]


async def _gathered(question: Question, read: Callable[[dict[str, Any]], Awaitable[Any]]) -> list[Any]:
    """Read all chains, eight at a time."""
    limit = asyncio.Semaphore(IN_FLIGHT)

    async def one(chain: dict[str, Any]) -> Any:
        async with limit:
            return await read(chain)

    return await asyncio.gather(*map(one, question.chains))


async def _bodies(session: Any, question: Question, chain: dict[str, Any]) -> AsyncIterator[bytes]:
    """Yield the bodies of a chain by aiohttp; the cursor is found without parsing."""
    cursor = None
    while True:
        async with session.post(
            question.path, json={**chain, "cursor": cursor} if cursor else chain
        ) as answer:
            body = await answer.read()
        yield body
        _, found, tail = body[-100:].rpartition(b'"next_cursor":"')
        if not found:
            return
        cursor = tail.partition(b'"')[0].decode()


async def floor(question: Question, parse: Callable[[bytes], Any] = len) -> tuple[int, Held]:
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


async def numbers(question: Question) -> tuple[int, Held]:
    from asyncfin import Client

    async with Client(question.url, TOKEN, max_in_flight=IN_FLIGHT) as client:
        panel = await client.run(question.plan)
    return panel.value_count, panel


async def traced(question: Question) -> tuple[int, Held]:
    """Return what Python's allocator holds for a panel, in bytes, in place of its values."""
    import tracemalloc

    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    _, panel = await numbers(question)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return after - before, panel


async def planned(question: Question) -> tuple[int, Held]:
    from asyncfin import Client, Select

    async with Client(question.url, TOKEN) as client:
        plan = await client.plan(question.plan.catalogue, Select(), question.plan.period_selection)
    return len(plan.series), plan


async def arrow(question: Question) -> tuple[int, Held]:
    _, panel = await numbers(question)
    table = panel.to_arrow()
    return table.num_rows, table


async def every_value(question: Question) -> tuple[int, Held]:
    _, panel = await numbers(question)
    return sum(1 for series in panel for _ in series.observations()), panel


async def stream(question: Question) -> tuple[int, Held]:
    from asyncfin import Client, Select

    plan, count = question.plan, 0
    async with (
        Client(question.url, TOKEN, max_in_flight=IN_FLIGHT) as client,
        client.stream(plan.catalogue, Select(), plan.period_selection) as pieces,
    ):
        async for piece in pieces:
            count += piece.value_count
    return count, None


async def prefetched(question: Question) -> tuple[int, Held]:
    from asyncfin import Client, Query, Select
    from asyncfin.fanout.stitch import Stitch

    plan, chain = question.plan, question.chains[0]
    paths = [[tuple(ref.values()) for ref in path] for path in chain["scope_combinations"]]
    query = Query(
        chain["metric_ids"], paths, plan.period_selection, expected_dataset_id=plan.catalogue.dataset_id
    )
    stitch = Stitch(plan.catalogue, plan.series, plan.periods)
    home = frozenset(series.series_id for series in plan.series)
    async with Client(question.url, TOKEN, max_in_flight=IN_FLIGHT) as client:
        pages = client.query_pages(plan.catalogue.entity_id, query, prefetch=True)
        async with aclosing(pages):
            async for page in pages:
                await stitch.add(page, home=home, asked=query.periods)
    panel = stitch.panel(select=Select(), value_version="original")
    return panel.value_count, panel


async def handwritten(question: Question) -> tuple[int, Held]:
    import aiohttp

    async def read(chain: dict[str, Any]) -> dict[str, dict[tuple[int, ...], Any]]:
        found: dict[str, dict[tuple[int, ...], Any]] = {}
        cursor = None
        while True:
            async with session.post(question.path, json={**chain, "cursor": cursor}) as answer:
                page = await answer.json()
            periods = [tuple(period.values()) for period in page["periods"]]
            for series in page["series"]:
                pairs = zip(periods, series["values"], strict=True)
                found[series["series_id"]] = {period: value for period, value in pairs if value is not None}
            cursor = page.get("next_cursor")
            if cursor is None:
                return found

    async with aiohttp.ClientSession() as session:
        found = await _gathered(question, read)
    return sum(len(values) for each in found for values in each.values()), found


async def pandas_by_hand(question: Question) -> tuple[int, Held]:
    import pandas as pd
    import requests

    rows, shown = [], ("series_id", "metric_id", "label", "basis")
    with requests.Session() as session:
        for chain in question.chains:
            cursor = None
            while True:
                page = session.post(question.path, json={**chain, "cursor": cursor}).json()
                for series in page["series"]:
                    for period, value in zip(page["periods"], series["values"], strict=True):
                        if value is not None:
                            rows.append({**{name: series[name] for name in shown}, **period, **value})
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
    return sum(v is not None for page in pages for s in page.series for v in s.values), pages


async def generated(question: Question) -> tuple[int, Held]:
    """The client that openapi-python-client makes of the sandbox's document, found on the path."""
    from generated_client import AuthenticatedClient
    from generated_client.api.default import query as operation
    from generated_client.models import Query as Body

    async def read(chain: dict[str, Any]) -> list[Any]:
        pages: list[Any] = []
        cursor = None
        while True:
            body = Body.from_dict({**chain, "cursor": cursor} if cursor else chain)
            pages.append(await operation.asyncio(question.plan.catalogue.entity_id, client=client, body=body))
            cursor = pages[-1].next_cursor
            if not isinstance(cursor, str):
                return pages

    async with AuthenticatedClient(base_url=question.url, token=TOKEN, timeout=60) as client:
        chains = await _gathered(question, read)
    pages = [page for chain in chains for page in chain]
    return sum(v is not None for page in pages for s in page.series for v in s.values), pages


class Heartbeat:
    """How long the loop was kept from its other work: CPU time between two beats, so that other processes of
    the machine do not count.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self._loop = asyncio.get_running_loop()
        self._beat(time.thread_time())

    def _beat(self, last: float) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - last)
        self._loop.call_later(0.0005, self._beat, now)


def _memory() -> int:
    """Return the resident bytes now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Return the most resident bytes since the mark was last reset."""
    line = next(each for each in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in each)
    return int(line.split()[1]) * 1024


async def measured(read: Read, question: Question) -> dict[str, Any]:
    gc.collect()
    _reset_peak()
    before = _memory()
    heartbeat = Heartbeat()
    await asyncio.sleep(0.01)
    heartbeat.longest = 0.0
    wall, cpu = time.perf_counter(), time.process_time()
    count, held = await read(question)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    figures = {"values": count, "cpu": cpu, "wall": wall, "stop": heartbeat.longest, "peak": _peak() - before}
    gc.collect()
    figures["held"] = _memory() - before
    del held
    return figures


OURS = ("numbers", "traced", "planned", "arrow", "every_value", "stream", "prefetched")


async def _warm(name: str, question: Question) -> None:
    """Pay for imports and first-use work before anything is measured."""
    if name not in OURS:
        await globals()[name](evolve(question, chains=question.chains[-1:]))
        return
    from asyncfin import Client, Select
    from asyncfin.fanout.stitch import Stitch

    Client(question.url, TOKEN)
    panel = Stitch(question.plan.catalogue, (), question.plan.periods).panel(
        select=Select(), value_version="original"
    )
    if name == "arrow":
        panel.to_arrow()


async def main(name: str, question: Question) -> None:
    if len(question.chains) > 1:
        await _warm(name, question)
    print(json.dumps(await measured(globals()[name], question)))


if __name__ == "__main__":
    name, file, url = sys.argv[1:]
    asyncio.run(main(name, Question(url, *pickle.loads(Path(file).read_bytes()))))
