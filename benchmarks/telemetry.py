"""What OpenTelemetry costs: the CPU time that observers take of questions, and what the
SDK alone takes.

An observer's calls are timed where they happen, by the clock of their thread: the
difference between questions with and without it is smaller than what other work on the
machine adds to either. The least of the rounds is shown.
"""

import asyncio
import pickle
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from time import process_time, thread_time_ns

from opentelemetry import metrics, trace
from opentelemetry.context import attach
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Sampler
from opentelemetry.util.types import AttributeValue

from asyncfin import Client, FiscalRange, MemoryCache, Select, TokenBucket
from asyncfin.events import (
    Event,
    Observer,
    QuestionFinished,
    QuestionStarted,
    RequestFinished,
)
from asyncfin.telemetry import OpenTelemetryObserver
from benchmarks._large import Service, service
from benchmarks._shapes import dense
from benchmarks.answers import served

ROUNDS = 20


class _Dropping(SpanExporter):
    """Drops spans: sending them away is not the client's cost."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def _providers(sampler: Sampler = DEFAULT_ON) -> tuple[TracerProvider, MeterProvider]:
    tracers = TracerProvider(sampler=sampler)
    tracers.add_span_processor(BatchSpanProcessor(_Dropping()))
    return tracers, MeterProvider([InMemoryMetricReader()])


class _Least:
    """The SDK's calls for the required spans and the histogram, with attributes that
    are made once.
    """

    def __init__(self) -> None:
        tracers, meters = _providers()
        self._tracer = tracers.get_tracer("benchmark")
        self._duration = meters.get_meter("benchmark").create_histogram(
            "http.client.request.duration", "s"
        )
        self._conventional: dict[str, AttributeValue] = {
            "server.address": "127.0.0.1",
            "server.port": 80,
            "http.request.method": "POST",
            "http.response.status_code": 200,
            "asyncfin.operation": "query",
        }
        self._attempt = self._conventional | {
            "url.full": "http://127.0.0.1/v1/entities",
            "asyncfin.entity": "O-1",
        }
        self._question = {f"asyncfin.{number}": "" for number in range(9)}
        self._span: trace.Span = trace.INVALID_SPAN

    def __call__(self, event: Event) -> None:
        match event:
            case RequestFinished():
                self._duration.record(event.seconds, self._conventional)
                self._tracer.start_span(
                    "asyncfin query",
                    kind=trace.SpanKind.CLIENT,
                    attributes=self._attempt,
                ).end()
            case QuestionStarted():
                self._span = self._tracer.start_span(
                    "asyncfin.question", attributes=self._question
                )
                attach(trace.set_span_in_context(self._span))
            case QuestionFinished():
                attach(trace.set_span_in_context(trace.INVALID_SPAN))
                self._span.end()


def _observing(
    tracers: trace.TracerProvider, meters: metrics.MeterProvider
) -> Observer:
    return OpenTelemetryObserver(
        TokenBucket(), MemoryCache(), tracer_provider=tracers, meter_provider=meters
    )


OBSERVERS: dict[str, Callable[[], Observer]] = {
    "nothing": lambda: lambda event: None,
    "no-op": lambda: _observing(trace.NoOpTracerProvider(), NoOpMeterProvider()),
    "the SDK alone": _Least,
    "not sampled": lambda: _observing(*_providers(ALWAYS_OFF)),
    "observer": lambda: _observing(*_providers()),
}


class _Timed:
    """Sums the CPU time of an observer's calls."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.nanoseconds = 0

    def __call__(self, event: Event) -> None:
        began = thread_time_ns()
        self._observer(event)
        self.nanoseconds += thread_time_ns() - began


async def _row(
    name: str,
    url: str,
    token: str,
    ask: Callable[[Client], Awaitable[object]],
    count: int,
) -> str:
    shares = {}
    smallest = 0.0
    for kind, make in OBSERVERS.items():
        observer = _Timed(make())
        async with Client(
            url,
            token,
            bucket=TokenBucket(1e9, burst=100),
            cache=MemoryCache() if count > 1 else None,
            max_age=1e9,
            observers=[observer],
        ) as client:
            await ask(client)
            times = []
            for _ in range(ROUNDS):
                observer.nanoseconds, began = 0, process_time()
                for _ in range(count):
                    await ask(client)
                times.append(
                    (
                        (process_time() - began) / count,
                        observer.nanoseconds / count / 1e9,
                    )
                )
        shares[kind] = min(seconds for _, seconds in times)
        if kind == "nothing":  # the clock's part of every call
            smallest = min(total for total, _ in times) - shares[kind]
    clock = shares.pop("nothing")
    parts = [
        f"{(share - clock) * 1e6:,.0f} us, {(share - clock) / smallest:.1%}"
        for share in shares.values()
    ]
    return f"| {name} | {smallest * 1e3:.2f} ms | {' | '.join(parts)} |"


def run() -> str:
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        served(dense(), Path(folder)) as (question, url, token),
    ):
        plan, _ = pickle.loads(Path(question).read_bytes())
        rows.append(
            asyncio.run(
                _row(
                    f"{plan.requests} full pages",
                    url,
                    token,
                    partial(_run, plan=plan),
                    1,
                )
            )
        )
    with service() as running:
        everything = partial(_query, entity_id=running.entity_id, select=Select())
        query = partial(
            _query, entity_id=running.entity_id, select=asyncio.run(_few(running))
        )
        for name, ask, count in (
            ("30 small pages", everything, 1),
            ("2,900 cached series", everything, 20),
            ("7 cached series", query, 200),
        ):
            rows.append(
                asyncio.run(_row(name, running.base_url, running.token, ask, count))
            )
    names = [observer_name for observer_name in OBSERVERS if observer_name != "nothing"]
    head = [
        f"| question | CPU without | {' | '.join(names)} |",
        "| --- |" + " ---: |" * (len(names) + 1),
    ]
    return "\n".join([*head, *rows])


async def _run(client: Client, plan: object) -> object:
    return await client.run(plan)  # type: ignore[arg-type]


async def _few(running: Service) -> Select:
    async with Client(running.base_url, running.token) as client:
        return Select.of((await client.catalogue(running.entity_id)).series[:7])


async def _query(client: Client, entity_id: str, select: Select) -> object:
    return await client.query(entity_id, select, FiscalRange())
