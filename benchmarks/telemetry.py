"""What OpenTelemetry costs: the CPU time of questions with and without the observer, in one run.

Each question is sent by two clients in turn, and the least of the rounds is shown.
"""

import asyncio
import pickle
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from time import process_time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from asyncfin import Client, FiscalRange, MemoryCache, Select, TokenBucket
from asyncfin.telemetry import OpenTelemetryObserver
from benchmarks._shapes import dense
from benchmarks.answers import _served
from benchmarks.catalogue import service

ROUNDS = 20
CACHED = 20  # questions in a round that are answered from the cache


class _Dropping(SpanExporter):
    """Drops spans: sending them away is not the client's cost."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _observer() -> OpenTelemetryObserver:
    tracers = TracerProvider()
    tracers.add_span_processor(BatchSpanProcessor(_Dropping()))
    meters = MeterProvider([InMemoryMetricReader()])
    return OpenTelemetryObserver(TokenBucket(), MemoryCache(), tracer_provider=tracers, meter_provider=meters)


async def _row(
    name: str, url: str, token: str, ask: Callable[[Client], Awaitable[object]], count: int
) -> str:
    times: list[tuple[float, float]] = []
    async with AsyncExitStack() as opened:
        clients = []
        for observers in ((), (_observer(),)):
            client = Client(
                url,
                token,
                bucket=TokenBucket(1e9, burst=100),
                cache=MemoryCache() if count > 1 else None,
                max_age=1e9,
                observers=observers,
            )
            clients.append(await opened.enter_async_context(client))
            await ask(client)
        for number in range(ROUNDS):
            found = {}
            for client in clients if number % 2 else reversed(clients):
                began = process_time()
                for _ in range(count):
                    await ask(client)
                found[client] = (process_time() - began) / count
            times.append((found[clients[0]], found[clients[1]]))
    without, observed = (min(each) * 1000 for each in zip(*times, strict=True))
    return f"| {name} | {without:.2f} ms | {observed:.2f} ms | {observed / without - 1:+.1%} |"


def run() -> str:
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(dense(), Path(folder), sandbox=False) as (question, url, token),
    ):
        plan, _ = pickle.loads(Path(question).read_bytes())
        rows.append(asyncio.run(_row(f"{plan.requests} full pages", url, token, partial(_run, plan=plan), 1)))
    with service() as at:
        ask = partial(_query, entity_id=at.entity_id)
        rows.append(asyncio.run(_row("30 small pages", at.base_url, at.token, ask, 1)))
        rows.append(asyncio.run(_row("2,900 cached series", at.base_url, at.token, ask, CACHED)))
    head = ["| question | CPU without | CPU with | more |", "| --- | ---: | ---: | ---: |"]
    return "\n".join([*head, *rows])


async def _run(client: Client, plan: object) -> object:
    return await client.run(plan)  # type: ignore[arg-type]


async def _query(client: Client, entity_id: str) -> object:
    return await client.query(entity_id, Select(), FiscalRange())
