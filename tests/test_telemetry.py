"""A client's events as OpenTelemetry records them."""

import asyncio
import builtins
import importlib
import pickle
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from asyncfin.errors import ServiceError
from asyncfin.events import Restarted
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.telemetry import OpenTelemetryObserver
from asyncfin.wire.protocol import Request
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.scripted import answer, dropping, hanging, refusal, scripted

pytestmark = pytest.mark.virtual

READ = Request("dataset", "GET", "/v1/entities/O-1/dataset", entity_id="O-1")
LIMITS = Request("limits", "GET", "/v1/limits")


class Recorder:
    """What an application would send away: spans and sums."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])
        self.observer = OpenTelemetryObserver(tracer_provider=self.tracers, meter_provider=self.meters)

    @property
    def spans(self) -> Any:
        return self._spans.get_finished_spans()

    def sums(self) -> dict[tuple[str, str], float]:
        """Return each counter's sum, by its name and operation."""
        read = self._reader.get_metrics_data()
        assert read
        (scope,) = read.resource_metrics[0].scope_metrics
        return {
            (metric.name, point.attributes["asyncfin.operation"]): point.value
            for metric in scope.metrics
            for point in metric.data.data_points
        }


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@asynccontextmanager
async def sending(recorder: Recorder, *steps: Any) -> AsyncIterator[Sender]:
    async with scripted(*steps) as server:
        transport = Transport(server.base_url)
        bucket = TokenBucket(rate=1e6, burst=10)
        try:
            yield Sender(transport, "a-token", bucket=bucket, observers=[recorder.observer])
        finally:
            await transport.aclose()


async def test_each_attempt_is_a_span_within_the_caller_s(recorder: Recorder) -> None:
    """A refusal, a drop and an answer: three spans, and two events of the caller's span between them."""
    async with sending(recorder, refusal(429, retry_after="2"), dropping(), answer()) as sender:
        with recorder.tracers.get_tracer("application").start_as_current_span("job"):
            await sender.send(READ)
    *attempts, job = recorder.spans
    assert [span.name for span in attempts] == ["asyncfin dataset"] * 3
    assert all(span.kind is SpanKind.CLIENT for span in attempts)
    assert all(span.parent.span_id == job.context.span_id for span in attempts)
    assert [dict(span.attributes) for span in attempts] == [
        {
            "asyncfin.operation": "dataset",
            "asyncfin.entity_id": "O-1",
            "http.response.status_code": 429,
            "asyncfin.request_id": "r-1",
            "error.type": "429",
        },
        {
            "asyncfin.operation": "dataset",
            "asyncfin.entity_id": "O-1",
            "http.request.resend_count": 1,
            "error.type": "ConnectionFailedError",
        },
        {
            "asyncfin.operation": "dataset",
            "asyncfin.entity_id": "O-1",
            "http.request.resend_count": 2,
            "http.response.status_code": 200,
        },
    ]
    assert [span.status.status_code for span in attempts] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    retries = [event for event in job.events if event.name == "asyncfin.retrying"]
    assert [event.attributes["error.type"] for event in retries] == [
        "RateLimitedError",
        "ConnectionFailedError",
    ]


async def test_a_long_wait_is_an_event_of_the_caller_s_span(recorder: Recorder) -> None:
    """The event of a long wait says what for, how long so far, and until when."""
    async with sending(recorder, refusal(429, retry_after="3"), answer()) as sender:
        with recorder.tracers.get_tracer("application").start_as_current_span("job"):
            await sender.send(READ)
    waits = [event.attributes for event in recorder.spans[-1].events if event.name == "asyncfin.waiting"]
    assert [(each["asyncfin.reason"], round(each["asyncfin.wait"])) for each in waits] == [
        ("pause", 1),
        ("pause", 2),
    ]
    assert all(datetime.fromisoformat(each["asyncfin.until"]).tzinfo for each in waits)


async def test_the_counters_are_the_client_s_own_figures(recorder: Recorder) -> None:
    """The counters are the client's own figures, by operation."""
    steps = [refusal(429, retry_after="2"), dropping(), answer(body=b"12345"), refusal(404)]
    async with sending(recorder, *steps) as sender:
        await sender.send(READ)
        with pytest.raises(ServiceError):
            await sender.send(LIMITS)
        sender.announce(Restarted("query", "O-1", 1))
        stats = sender.stats()
    sums = recorder.sums()
    for operation, counts in stats.by_operation.items():
        for name in ("requests", "retries", "refused", "waits", "received"):
            assert sums.get((f"asyncfin.{name}", operation), 0) == getattr(counts, name)
    assert stats.by_operation["dataset"].requests == 3
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert sums["asyncfin.restarts", "query"] == 1


async def test_the_span_of_a_cancelled_attempt_ends(recorder: Recorder) -> None:
    """The span of a cancelled attempt says that the caller left."""
    async with sending(recorder, hanging()) as sender:
        leaving = asyncio.ensure_future(sender.send(READ))
        await asyncio.sleep(1)
        leaving.cancel()
        await asyncio.wait([leaving])
    (span,) = recorder.spans
    assert span.attributes["error.type"] == "CancelledError"


async def test_a_request_under_way_before_the_observer_came_is_no_span(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """An observer added in between ignores the end of an attempt that it has not seen begin."""
    async with sending(Recorder(), hanging(), answer()) as sender:
        under_way = asyncio.ensure_future(sender.send(READ))
        await asyncio.sleep(1)
        with sender.announce.also(recorder.observer):
            under_way.cancel()
            await asyncio.wait([under_way])
            await sender.send(LIMITS)
    assert [span.name for span in recorder.spans] == ["asyncfin limits"]
    assert not caplog.records


def test_without_the_extra_the_import_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error holds the install command, to be pasted into a shell."""
    real = builtins.__import__

    def missing(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ModuleNotFoundError(name)
        return real(name, *args, **options)

    monkeypatch.delitem(sys.modules, "asyncfin.telemetry")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=r'pip install "asyncfin\[otel\]"'):
        importlib.import_module("asyncfin.telemetry")
