"""What OpenTelemetry records of a client: spans, metrics, and the table of them in the documents."""

import asyncio
import builtins
import importlib
import logging
import pickle
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from asyncfin import (
    Annual,
    ArgumentError,
    AsyncfinError,
    Client,
    FiscalRange,
    MemoryCache,
    Select,
    SelectionError,
    TokenBucket,
    extract,
    read_entity,
)
from asyncfin.errors import ServiceError
from asyncfin.events import (
    BucketStats,
    Event,
    ExtractFinished,
    ExtractStarted,
    OutageBegan,
    OutageEnded,
    QuestionFinished,
    QuestionStarted,
    Restarted,
)
from asyncfin.sandbox import Latency, Sandbox, Status
from asyncfin.sandbox.dataset import DatasetFile
from asyncfin.telemetry import OpenTelemetryObserver
from asyncfin.wire.protocol import Request
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.generate import generate
from tests.services.raw import answer, dropping, refusal, scripted

pytestmark = pytest.mark.virtual

ENTITY = "O-" + "1" * 32
PATH = f"/v1/entities/{ENTITY}/dataset"
READ = Request("dataset", "GET", PATH, entity_id=ENTITY)
LIMITS = Request("limits", "GET", "/v1/limits")
BOTH = generate(7, series=150, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)
REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"


class Recorder:
    """What an application would export: spans and metrics."""

    def __init__(self, *readers: MetricReader, **options: Any) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader, *readers])
        self.tracer = self.tracers.get_tracer("application")
        self.observer = OpenTelemetryObserver(
            **options, tracer_provider=self.tracers, meter_provider=self.meters
        )

    @property
    def spans(self) -> Any:
        return self._spans.get_finished_spans()

    def named(self, name: str) -> Any:
        return [span for span in self.spans if span.name == name]

    @property
    def attempts(self) -> Any:
        return [span for span in self.spans if span.kind is SpanKind.CLIENT]

    def metrics(self) -> dict[str, Any]:
        """Return the points of event instrument, by its name."""
        read = self._reader.get_metrics_data()
        if read is None:
            return {}
        (scope,) = read.resource_metrics[0].scope_metrics
        return {metric.name: list(metric.data.data_points) for metric in scope.metrics}

    def gauges(self) -> dict[str, Any]:
        """Return the values of the instruments of bucket and cache; those by lane as a dict."""
        found: dict[str, Any] = {}
        for name, points in self.metrics().items():
            if name.startswith(("asyncfin.bucket", "asyncfin.cache")):
                by_lane = {point.attributes.get("asyncfin.lane"): point.value for point in points}
                found[name] = by_lane.get(None, by_lane)
        return found

    def sums(self) -> Counter[tuple[str, str]]:
        """Return each counter's sum, by its name and operation."""
        sums: Counter[tuple[str, str]] = Counter()
        for name, points in self.metrics().items():
            for point in points:
                if hasattr(point, "value") and "asyncfin.operation" in point.attributes:
                    sums[name, point.attributes["asyncfin.operation"]] += point.value
        return sums


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


async def test_attempts_are_spans_below_the_caller(recorder: Recorder) -> None:
    """A refusal, a drop and an answer: three spans, and two events of the caller's span between them."""
    async with sending(recorder, refusal(429, retry_after="2"), dropping(), answer()) as sender:
        with recorder.tracers.get_tracer("application").start_as_current_span("job"):
            await sender.send(READ)
    *attempts, job = recorder.spans
    port = attempts[0].attributes["server.port"]
    common = {
        "asyncfin.operation": "dataset",
        "asyncfin.entity": ENTITY,
        "http.request.method": "GET",
        "server.address": "127.0.0.1",
        "server.port": port,
        "url.full": f"http://127.0.0.1:{port}{PATH}",
    }
    assert [span.name for span in attempts] == ["asyncfin dataset"] * 3
    assert all(span.kind is SpanKind.CLIENT for span in attempts)
    assert all(span.parent.span_id == job.context.span_id for span in attempts)
    assert [dict(span.attributes) for span in attempts] == [
        {
            **common,
            "http.response.status_code": 429,
            "asyncfin.request_id": "r-1",
            "error.type": "429",
        },
        {
            **common,
            "http.request.resend_count": 1,
            "error.type": "ConnectionFailedError",
        },
        {
            **common,
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


async def test_counters_equal_the_stats(recorder: Recorder) -> None:
    """Requests, retries, refusals, waits and bytes are those of `stats`, by operation."""
    steps = [refusal(429, retry_after="2"), dropping(), answer(body=b"12345"), refusal(404)]
    async with sending(recorder, *steps) as sender:
        await sender.send(READ)
        with pytest.raises(ServiceError):
            await sender.send(LIMITS)
        sender.announce(Restarted("query", ENTITY, 1))
        stats = sender.stats()
    sums = recorder.sums()
    for operation, counts in stats.by_operation.items():
        for name in ("requests", "retries", "refused", "waits", "received"):
            assert sums[f"asyncfin.{name}", operation] == getattr(counts, name)
    assert stats.by_operation["dataset"].requests == 3
    assert pickle.loads(pickle.dumps(stats)) == stats
    assert sums["asyncfin.restarts", "query"] == 1
    outcomes = {
        (point.attributes.get("http.response.status_code"), point.attributes.get("error.type")): point.value
        for point in recorder.metrics()["asyncfin.requests"]
    }
    assert outcomes == {(429, "429"): 1, (None, "ConnectionFailedError"): 1, (200, None): 1, (404, "404"): 1}


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
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


class Events:
    """An observer that keeps the events of questions and runs."""

    def __init__(self) -> None:
        self.seen: list[QuestionStarted | QuestionFinished | ExtractStarted | ExtractFinished] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, (QuestionStarted, QuestionFinished, ExtractStarted, ExtractFinished)):
            self.seen.append(event)

    @property
    def finished(self) -> list[QuestionFinished]:
        return [event for event in self.seen if isinstance(event, QuestionFinished)]

    def check(self) -> None:
        """Check that each question has exactly one end, after its begin."""
        begun: list[int] = []
        for event in self.seen:
            if isinstance(event, QuestionStarted):
                begun.append(event.serial)
            elif isinstance(event, QuestionFinished):
                begun.remove(event.serial)
        assert begun == []


def client_tasks() -> set[asyncio.Task[Any]]:
    """Return the pending tasks without those of the sandbox, which runs in the same loop."""
    return {task for task in asyncio.all_tasks() if "RequestHandler" not in repr(task.get_coro())}


@asynccontextmanager
async def service(
    recorder: Recorder, *observers: Any, **options: Any
) -> AsyncIterator[tuple[Sandbox, Client]]:
    faults = options.pop("faults", ())
    observers = (recorder.observer, *observers)
    async with (
        Sandbox(OLD, faults=faults) as sandbox,
        Client(sandbox.base_url, sandbox.token, observers=observers, **options) as client,
    ):
        yield sandbox, client


async def test_query_is_a_span_above_attempts(recorder: Recorder) -> None:
    """Its attributes are the figures of its panel; the span is a child of the caller's."""
    async with service(recorder, lane="bulk") as (sandbox, client):
        with recorder.tracer.start_as_current_span("job") as job:
            panel = await client.query(BOTH.entity_id, Select(), FiscalRange())
            assert get_current_span() is job
    (question,) = recorder.named("asyncfin.question")
    assert question.parent.span_id == job.get_span_context().span_id
    assert dict(question.attributes) == {
        "asyncfin.operation": "query",
        "asyncfin.entity": BOTH.entity_id,
        "asyncfin.series": len(panel),
        "asyncfin.periods": len(panel.periods),
        "asyncfin.requests": panel.requests,
        "asyncfin.cached": 0,
        "asyncfin.restarts": 0,
        "asyncfin.lane": "bulk",
        "asyncfin.dataset_id": panel.dataset.dataset_id,
    }
    assert len(recorder.attempts) == panel.requests == len(sandbox.log)
    assert {span.parent.span_id for span in recorder.attempts} == {question.context.span_id}


async def test_cached_query_is_a_span(recorder: Recorder) -> None:
    """It has no attempts, and says how many series were cached."""
    async with service(recorder, cache=MemoryCache(), max_age=60) as (_, client):
        panel = await client.query(BOTH.entity_id, Select(), FiscalRange())
        sent = len(recorder.attempts)
        some = Select.of(panel.series[:7])
        await client.query(BOTH.entity_id, some, FiscalRange())
        async with client.stream(BOTH.entity_id, some, FiscalRange()) as pieces:
            assert [len(piece) async for piece in pieces]
    first, *others = [span.attributes for span in recorder.named("asyncfin.question")]
    assert (first["asyncfin.requests"], first["asyncfin.cached"]) == (panel.requests, 0)
    assert [event["asyncfin.operation"] for event in others] == ["query", "stream"]
    for event in others:
        counts = [event[f"asyncfin.{name}"] for name in ("series", "requests", "cached")]
        assert counts == [7, 0, 7]
    assert len(recorder.attempts) == sent


async def _left_early(client: Client) -> None:
    async with client.stream(BOTH.entity_id, Select(), FiscalRange()) as pieces:
        await anext(pieces)


async def _cancelled(client: Client) -> None:
    task = asyncio.ensure_future(client.query(BOTH.entity_id, Select(), FiscalRange()))
    await asyncio.sleep(0.5)
    task.cancel()
    await task


async def _stream_cancelled(client: Client) -> None:
    async with asyncio.timeout(0.5):
        async with client.stream(BOTH.entity_id, Select(), FiscalRange()) as pieces:
            await anext(pieces)


ENDS: dict[str, tuple[Callable[[Client], Any], str | None]] = {
    "unknown": (
        lambda client: client.query(BOTH.entity_id, Select("no metric"), FiscalRange()),
        "SelectionError",
    ),
    "refused": (lambda client: client.query(ENTITY, Select(), FiscalRange()), "NotFoundError"),
    "stream refused": (
        lambda client: client.stream(ENTITY, Select(), FiscalRange()).__aenter__(),
        "NotFoundError",
    ),
    "read_entity": (lambda client: read_entity(client, ENTITY, Select(), FiscalRange()), "NotFoundError"),
    "left early": (_left_early, None),
    "cancelled": (_cancelled, "CancelledError"),
    "stream cancelled": (_stream_cancelled, "CancelledError"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_each_query_ends_once(recorder: Recorder, end: str) -> None:
    """Success, an error, a cancellation, an early leave: neither a task nor the current span remains."""
    ask, failure = ENDS[end]
    events = Events()
    async with service(recorder, events, faults=[Latency(seconds=1.0)] if "cancelled" in end else ()) as (
        _,
        client,
    ):
        tasks = client_tasks()
        before = get_current_span()
        with suppress(AsyncfinError, asyncio.CancelledError, TimeoutError):
            await ask(client)
        assert get_current_span() is before
        assert client_tasks() <= tasks
    events.check()
    assert [event.failure for event in events.finished] == [failure]
    (question,) = recorder.named("asyncfin.question")
    assert question.attributes.get("error.type") == failure
    assert question.status.status_code is (StatusCode.UNSET if failure is None else StatusCode.ERROR)
    if failure is not None:
        assert (events.finished[0].series, events.finished[0].dataset_id) == (None, None)


async def test_consumer_of_a_stream_is_separate(recorder: Recorder) -> None:
    """Neither its spans nor its requests; the stream's own attempts are below the question."""
    async with service(recorder) as (_, client):
        with recorder.tracer.start_as_current_span("job") as job:
            async with client.stream(BOTH.entity_id, Select(), FiscalRange()) as pieces:
                assert get_current_span() is job
                received = [len(piece) async for piece in pieces]
                await client.dataset(BOTH.entity_id)
    (question,) = recorder.named("asyncfin.question")
    *own, others = recorder.attempts
    assert question.attributes["asyncfin.requests"] == len(own)
    assert {span.parent.span_id for span in own} == {question.context.span_id}
    assert others.parent.span_id == job.get_span_context().span_id
    assert question.attributes["asyncfin.series"] == sum(received)


async def test_read_entity_is_one_span(recorder: Recorder) -> None:
    """Metadata, catalogue and both versions."""
    events = Events()
    async with service(recorder, events) as (sandbox, client):
        answer = await read_entity(client, BOTH.entity_id, Select(), FiscalRange(), value_version="both")
        spent = len(sandbox.log)
    events.check()
    (question,) = recorder.named("asyncfin.question")
    assert question.attributes["asyncfin.operation"] == "read_entity"
    assert question.attributes["asyncfin.requests"] == len(recorder.attempts) == spent
    assert answer.panel is not None
    assert question.attributes["asyncfin.series"] == 2 * len(answer.panel)
    assert {span.parent.span_id for span in recorder.attempts} == {question.context.span_id}


async def test_extract_is_a_span_above_queries(recorder: Recorder, tmp_path: Path) -> None:
    """The second run finds the file unchanged; its one query, and attempt, is below the run."""
    events = Events()
    ids = [BOTH.entity_id, ENTITY]
    async with service(recorder, events) as (sandbox, client):
        await extract(client, ids, Select(), FiscalRange(), to=tmp_path / "night")
        spent = len(sandbox.log)
        await extract(client, ids[:1], Select(), FiscalRange(), to=tmp_path / "night")
    events.check()
    first, second = recorder.named("asyncfin.extract")
    names = ("entities", "done", "unchanged", "failed", "requests")
    assert [first.attributes[f"asyncfin.{name}"] for name in names] == [2, 1, 0, 1, spent]
    assert [second.attributes[f"asyncfin.{name}"] for name in names] == [1, 0, 1, 0, 1]
    questions = recorder.named("asyncfin.question")
    assert [event.attributes["asyncfin.operation"] for event in questions] == ["read_entity"] * 3
    parents = [event.parent.span_id for event in questions]
    assert parents == [first.context.span_id] * 2 + [second.context.span_id]
    assert recorder.attempts[-1].parent.span_id == questions[-1].context.span_id


async def test_gauges_show_bucket_and_cache() -> None:
    """As this process sees them at the export; what is unknown is not exported."""

    class Away(TokenBucket):
        away = False

        def stats(self) -> BucketStats:
            return replace(super().stats(), fallback=self.away)

    bucket, cache = Away(1e6, burst=10, daily_budget=1000), MemoryCache()
    recorder = Recorder(bucket=bucket, cache=cache)
    async with service(recorder, bucket=bucket, cache=cache) as (_, client):
        panel = await client.query(BOTH.entity_id, Select(), FiscalRange())
        await client.query(BOTH.entity_id, Select(), FiscalRange())
        bucket.away = True
        assert recorder.gauges() == {
            "asyncfin.bucket.rate": 1e6,
            "asyncfin.bucket.level": pytest.approx(5, abs=5),
            "asyncfin.bucket.waiting": {"interactive": 0, "bulk": 0},
            "asyncfin.bucket.paused": 0.0,
            "asyncfin.bucket.left_today": 1000 - panel.requests - 1,
            "asyncfin.bucket.fallback": 1,
            "asyncfin.cache.bytes": cache.stats().bytes,
            "asyncfin.cache.hits": len(panel),
            "asyncfin.cache.misses": len(panel),
            "asyncfin.cache.broken": 0,
        }
    assert {"asyncfin.bucket.rate", "asyncfin.bucket.left_today"}.isdisjoint(
        Recorder(bucket=TokenBucket()).gauges()
    )


async def test_gauge_of_a_pause_counts_down() -> None:
    """The seconds that are left when it is exported."""
    bucket = TokenBucket(1e6, burst=10)
    recorder = Recorder(bucket=bucket)
    async with service(recorder, bucket=bucket) as (_, client):
        await client.query(BOTH.entity_id, Select(), FiscalRange())
        await bucket.refused(sent_at=asyncio.get_running_loop().time(), retry_after=30)
        await asyncio.sleep(10)
        assert recorder.gauges()["asyncfin.bucket.paused"] == pytest.approx(20, abs=1)
        await asyncio.sleep(25)
        assert recorder.gauges()["asyncfin.bucket.paused"] == 0


async def test_duration_shows_the_outcome(recorder: Recorder) -> None:
    """Once for each question: with its result, a stale one, an error, or cancelled."""
    async with service(recorder, cache=MemoryCache(), stale_if_error=60) as (sandbox, client):
        await client.query(BOTH.entity_id, Select(), FiscalRange())
        with pytest.raises(SelectionError):
            await client.query(BOTH.entity_id, Select("no such metric"), FiscalRange())
        sandbox.inject(Status(operation="dataset", status=503))
        same = [client.query(BOTH.entity_id, Select(), FiscalRange()) for _ in range(2)]
        await asyncio.gather(*same)  # one of them leads
        async with client.stream(BOTH.entity_id, Select(), FiscalRange()) as pieces:
            async for _ in pieces:
                pass
        sandbox.inject(Latency(seconds=50))
        task = asyncio.ensure_future(client.query(BOTH.entity_id, Select(), Annual(), max_age=0))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
    keys = ("asyncfin.operation", "asyncfin.outcome", "error.type")
    points = recorder.metrics()["asyncfin.question.duration"]
    counts = {tuple(map(point.attributes.get, keys)): point.count for point in points}
    assert counts == {
        ("query", "ok", None): 1,
        ("query", "error", "SelectionError"): 1,
        ("query", "stale", None): 2,
        ("stream", "stale", None): 1,
        ("query", "cancelled", None): 1,
    }


async def test_gauge_of_outages(recorder: Recorder) -> None:
    """Two clients share an observer; it is 0 again when the second one is closed."""

    def shown() -> int:
        return int(recorder.metrics()["asyncfin.outage"][0].value)

    def outage(serial: int, *, ends: bool) -> Event:
        since = datetime(2026, 1, 1, tzinfo=UTC)
        if ends:
            return OutageEnded("query", ENTITY, serial, since, 1.0, 1, recovered=False)
        return OutageBegan("query", ENTITY, serial, "ServerFailureError", 8, since)

    expected = {(1, False): 1, (2, False): 1, (1, True): 1, (2, True): 0}
    assert shown() == 0
    for (serial, ends), value in expected.items():
        recorder.observer(outage(serial, ends=ends))
        assert shown() == value


async def test_documents_list_every_name(tmp_path: Path) -> None:
    """Each name that is recorded is in the table, with its unit; and event in the table is recorded."""
    bucket, cache = TokenBucket(1e6, burst=10, daily_budget=1000), MemoryCache()
    recorder = Recorder(bucket=bucket, cache=cache)
    faults = [Status(operation="query", nth=1, status=503), Status(operation="dataset", nth=2, status=429)]
    async with service(recorder, bucket=bucket, cache=cache, faults=faults) as (sandbox, client):
        await client.query(BOTH.entity_id, Select(), FiscalRange())
        sandbox.publish(NEW)
        await client.query(BOTH.entity_id, Select(), FiscalRange())
        await extract(client, [BOTH.entity_id, ENTITY], Select(), Annual(), to=tmp_path / "night")
    text = REFERENCE.read_text()
    rows = dict(re.findall(r"^\| `([\w. <>]+)` \|(.*)\|$", text, re.MULTILINE))
    recorded = recorder.metrics()
    instruments = {name for name in rows if name.startswith(("http.client", "asyncfin.")) and " " not in name}
    assert instruments - {"asyncfin.question", "asyncfin.extract"} == set(recorded)
    named = set(re.findall(r"`([\w.]+)`", text))
    for points in recorded.values():
        assert {key for point in points for key in point.attributes} <= named
    assert {key for span in recorder.spans for key in span.attributes} <= named
    for span in recorder.spans:
        row = rows["asyncfin <operation>" if span.kind is SpanKind.CLIENT else span.name]
        assert {f"`{key}`" for key in span.attributes} <= set(re.findall(r"`[\w.]+`", row))


def test_wrong_bucket_or_cache_is_rejected() -> None:
    """The error names the argument."""
    wrong: Any = MemoryCache
    with pytest.raises(ArgumentError, match=r"^bucket must be"):
        OpenTelemetryObserver(wrong())
    with pytest.raises(ArgumentError, match=r"^cache must be"):
        OpenTelemetryObserver(cache=wrong)


async def test_redirect_is_an_error(recorder: Recorder) -> None:
    """The client does not follow it: the attempt's span says so, and which status it was."""
    async with sending(recorder, answer(307, location="https://other.example/")) as sender:
        with pytest.raises(ServiceError):
            await sender.send(READ)
    attempt = recorder.attempts[0]
    assert attempt.attributes["error.type"] == "307"
    assert attempt.status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("way", ["query", "stream", "read_entity", "failed"])
async def test_context_of_the_caller_is_unchanged(way: str) -> None:
    """Nothing of it stays in the task, or each question would keep the one before it in memory."""

    def values() -> list[object]:
        return [event for event in copy_context().values() if event is not None]

    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        before = values()
        if way == "query":
            await client.query(BOTH.entity_id, Select(), FiscalRange())
        elif way == "read_entity":
            await read_entity(client, BOTH.entity_id, Select(), FiscalRange(), value_version="both")
        elif way == "stream":
            async with client.stream(BOTH.entity_id, Select(), FiscalRange()) as pieces:
                assert values() == before
                assert [len(piece) async for piece in pieces]
        else:
            with pytest.raises(SelectionError):
                await client.query(BOTH.entity_id, Select("no metric"), FiscalRange())
        assert values() == before


async def test_stream_closed_by_another_task(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    """As the fixtures and dependencies of frameworks do."""
    async with service(recorder) as (_, client):
        stream = client.stream(BOTH.entity_id, Select(), FiscalRange())
        await asyncio.create_task(stream.__aenter__())
        await asyncio.create_task(stream.__aexit__(None, None, None))
    assert len(recorder.named("asyncfin.question")) == 1
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_log_has_a_line_per_query(recorder: Recorder, caplog: pytest.LogCaptureFixture) -> None:
    """At INFO, with its figures; a quick one from the cache is at DEBUG only."""
    caplog.set_level(logging.INFO, "asyncfin")

    def lines() -> list[str]:
        found = [event.getMessage() for event in caplog.records if event.getMessage().startswith("Question")]
        caplog.clear()
        return found

    async with service(recorder, cache=MemoryCache(), max_age=60) as (_, client):
        panel = await client.query(BOTH.entity_id, Select(), FiscalRange())
        (line,) = lines()
        assert line.startswith(f"QuestionFinished operation=query entity_id={BOTH.entity_id} ")
        assert f" requests={panel.requests} " in line
        await client.query(BOTH.entity_id, Select(), Annual())
        assert lines() == []
        async with client.stream(BOTH.entity_id, Select(), Annual()) as pieces:
            await anext(pieces)
            await asyncio.sleep(1.1)
        (line,) = lines()
        assert " requests=0 " in line
        with pytest.raises(SelectionError):
            await client.query(BOTH.entity_id, Select("no metric"), Annual(), max_age=0)
        (line,) = lines()
        assert " failure=SelectionError " in line
