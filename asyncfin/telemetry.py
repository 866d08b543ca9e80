"""A client's events as OpenTelemetry spans and metrics; docs/reference/events.md has
the table of them.

Needs the extra ``otel`` (``pip install "asyncfin[otel]"``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from threading import Lock
from time import monotonic, time_ns
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from asyncfin import Bucket, Cache, checks, events
from asyncfin.errors import own_version

try:
    from opentelemetry import context, metrics, trace
except ImportError:
    raise ImportError(
        'asyncfin.telemetry needs the extra otel: pip install "asyncfin[otel]"'
    ) from None

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, TracerProvider

Attributes: TypeAlias = dict[str, str | int | float]

_OUTCOME = ("http.response.status_code", "error.type")

# Those that the HTTP conventions recommend, in seconds.
_BOUNDARIES = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
)


class _Counter:
    """A counter by operation, and by other attributes, whose sums are read when they
    are exported.

    A counter of the SDK takes about 10 us for each addition, half of what a span takes.
    """

    def __init__(
        self, meter: Meter, name: str, unit: str, description: str, *keys: str
    ) -> None:
        self._keys = ("asyncfin.operation", *keys)
        # Exported in another thread; and clients of multiple threads may share it.
        self._lock = Lock()
        self._sums: dict[tuple[str | int | None, ...], float] = {}
        meter.create_observable_counter(
            f"asyncfin.{name}", [self._observe], unit, description
        )

    def add(self, amount: float, *values: str | int | None) -> None:
        """Add an amount; an attribute that is None is omitted."""
        with self._lock:
            self._sums[values] = self._sums.get(values, 0) + amount

    def _observe(self, options: CallbackOptions) -> list[Observation]:
        with self._lock:
            sums = list(self._sums.items())
        observations = []
        for values, total in sums:
            pairs = zip(self._keys, values, strict=True)
            attributes = {key: value for key, value in pairs if value is not None}
            observations.append(metrics.Observation(total, attributes))
        return observations


class OpenTelemetryObserver:
    """An observer for `Client(observers=[...])`, of one client or more: spans and
    metrics.

    Each question is a span ``asyncfin.question``, also if no request is sent, and each
    run of `extract` a span ``asyncfin.extract``. Below them, each attempt is a client
    span ``asyncfin <operation>`` with the attributes of OpenTelemetry's HTTP
    conventions. Long waits, retries and restarts are events of the span above the
    attempts. The duration of attempts is the histogram
    ``http.client.request.duration``; all other names begin with ``asyncfin.``. The
    table in docs/reference/events.md lists them.

    The gauges show the bucket and the cache as this process sees them when they are
    exported: a shared bucket as it was last read.

    Args:
        bucket: the bucket, whose state is exported, or None for no gauges of it.
        cache: the cache, whose size is exported, or None.
        tracer_provider: makes the spans, or None for the global one.
        meter_provider: makes the instruments, or None for the global one.

    Raises:
        ArgumentError: `bucket` is not a bucket, or `cache` not a cache.
    """

    def __init__(
        self,
        bucket: Bucket | None = None,
        cache: Cache | None = None,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("asyncfin", own_version(), tracer_provider)
        meter = metrics.get_meter("asyncfin", own_version(), meter_provider)
        self._duration = meter.create_histogram(
            "http.client.request.duration",
            "s",
            "duration of attempts",
            explicit_bucket_boundaries_advisory=_BOUNDARIES,
        )
        self._questions = meter.create_histogram(
            "asyncfin.question.duration",
            "s",
            "duration of questions",
            explicit_bucket_boundaries_advisory=_BOUNDARIES,
        )
        # The serials of those that have begun and not ended.
        self._outages: set[int] = set()
        meter.create_observable_gauge(
            "asyncfin.outage",
            [lambda _: [metrics.Observation(int(bool(self._outages)))]],
            "1",
            "whether the service fails, by any observed client",
        )
        counter = partial(_Counter, meter)
        self._requests = counter(
            "requests", "{request}", "attempts that have ended", *_OUTCOME
        )
        self._retries = counter(
            "retries", "{request}", "attempts after a failed one", "error.type"
        )
        self._refused = counter("refused", "{request}", "attempts that received a 429")
        self._restarts = counter("restarts", "{restart}", "reads started over")
        self._waits = counter("waits", "s", "waits for a turn and between attempts")
        self._received = counter("received", "By", "bodies, after decompression")
        if bucket is not None:
            self._observe_bucket(meter, bucket)
        if cache is not None:
            _observe_cache(meter, cache)
        self._time: Callable[[], float] = monotonic  # of the last loop
        # By the class of the event that begins them, and its serial.
        self._spans: dict[tuple[type[events.Event], int], tuple[Span, Context]] = {}
        self._attempts: dict[int, tuple[events.RequestStarted, int]] = {}

    def __call__(self, event: events.Event) -> None:
        """Record one event."""
        match event:
            case events.RequestStarted():
                self._attempts[event.serial] = event, time_ns()
            case events.RequestFinished():
                self._end_attempt(event)
            case events.Waited():
                self._waits.add(event.seconds, event.operation)
            case events.QuestionStarted():
                attributes: Attributes = {
                    "asyncfin.operation": event.operation,
                    "asyncfin.entity": event.entity_id,
                    "asyncfin.lane": event.lane,
                }
                self._begin(event, "asyncfin.question", attributes)
            case events.QuestionFinished():
                names = ("requests", "cached", "restarts", "series", "periods")
                figures = _read_figures(event, *names, "dataset_id")
                self._end(
                    (events.QuestionStarted, event.serial), figures, event.failure
                )
                self._questions.record(event.seconds, _outcome_of(event))
            case events.ExtractStarted():
                self._begin(
                    event, "asyncfin.extract", {"asyncfin.entities": event.entities}
                )
            case events.ExtractFinished():
                figures = _read_figures(
                    event, "done", "unchanged", "failed", "requests"
                )
                self._end((events.ExtractStarted, event.serial), figures, event.failure)
            case events.Waiting():
                attributes = {
                    "asyncfin.reason": event.reason,
                    "asyncfin.wait": event.seconds,
                }
                if event.until is not None:
                    attributes["asyncfin.until"] = event.until.isoformat()
                _add_event(event, "asyncfin.waiting", attributes)
            case events.Retrying():
                self._retries.add(1, event.operation, event.failure)
                attributes = {"error.type": event.failure, "asyncfin.wait": event.wait}
                _add_event(event, "asyncfin.retrying", attributes)
            case events.OutageBegan():
                self._outages.add(event.serial)
            case events.OutageEnded():
                self._outages.discard(event.serial)
            case events.Restarted():
                self._restarts.add(1, event.operation)
                _add_event(event, "asyncfin.restarted", {})

    def _observe_bucket(self, meter: Meter, bucket: Bucket) -> None:
        """Make the gauges of a bucket."""
        checks.instance_of(Bucket)("bucket", bucket)

        def read_waiting(_: CallbackOptions) -> list[Observation]:
            return [
                metrics.Observation(count, {"asyncfin.lane": lane})
                for lane, count in bucket.stats().waiting.items()
            ]

        def read_pause(_: CallbackOptions) -> list[Observation]:
            until, now = bucket.stats().paused_until, self._time()
            return [metrics.Observation(max(0.0, (until or now) - now))]

        for name, unit, description, read in (
            ("rate", "{request}/s", "the rate", None),
            ("level", "{request}", "its requests; below zero in debt", None),
            ("waiting", "{request}", "requests that wait for the bucket", read_waiting),
            ("paused", "s", "until the pause after a 429 ends", read_pause),
            ("left_today", "{request}", "the rest of the daily budget", None),
            ("fallback", "1", "whether the fallback paces", None),
        ):
            observe = read or partial(_observe, bucket, name)
            meter.create_observable_gauge(
                f"asyncfin.bucket.{name}", [observe], unit, description
            )

    def _begin(
        self,
        event: events.QuestionStarted | events.ExtractStarted,
        name: str,
        attributes: Attributes,
    ) -> None:
        """Start a span, and make it the current one of the task and of those that it
        makes.
        """
        self._time = asyncio.get_running_loop().time
        outer = context.get_current()
        span = self._tracer.start_span(name, attributes=attributes)
        self._spans[type(event), event.serial] = span, outer
        context.attach(trace.set_span_in_context(span, outer))

    def _end(
        self,
        key: tuple[type[events.Event], int],
        attributes: Attributes,
        failure: str | None,
    ) -> None:
        if key not in self._spans:  # it began before the observer was added
            return
        span, outer = self._spans.pop(key)
        # Not `detach`: it logs an error in any other context, such as that of a task
        # that closes a stream.
        if trace.get_current_span() is span:
            context.attach(outer)
        span.set_attributes(attributes)
        if failure is not None:
            span.set_attribute("error.type", failure)
            span.set_status(trace.StatusCode.ERROR)
        span.end()

    def _end_attempt(self, event: events.RequestFinished) -> None:
        started, start_time = self._attempts.pop(event.serial, (None, 0))
        if started is None:  # it began before the observer was added
            return
        status, failure = event.status, event.failure
        if status is not None:
            failure = None if status < 300 else str(status)
            self._received.add(event.received, event.operation)
            if status == 429:
                self._refused.add(1, event.operation)
        self._requests.add(1, event.operation, status, failure)
        # The rest of the URL differs between most requests, and a cursor in it can be
        # long.
        origin = "/".join(started.url.split("/", 3)[:3])
        http = _http_attributes(
            origin, started.method, event.operation, status, failure
        )
        self._duration.record(event.seconds, http)
        attributes = http.copy()
        attributes["url.full"] = started.url
        if event.entity_id is not None:
            attributes["asyncfin.entity"] = event.entity_id
        if event.attempt > 1:
            attributes["http.request.resend_count"] = event.attempt - 1
        if event.request_id is not None:
            attributes["asyncfin.request_id"] = event.request_id
        # Made at the end, with all attributes at once: half the cost of adding them to
        # a span that has begun.
        span = self._tracer.start_span(
            f"asyncfin {event.operation}",
            kind=trace.SpanKind.CLIENT,
            attributes=attributes,
            start_time=start_time,
        )
        if failure is not None:
            span.set_status(trace.StatusCode.ERROR)
        span.end()


def _observe_cache(meter: Meter, cache: Cache) -> None:
    """Make the gauge and the counters of a cache."""
    checks.instance_of(Cache)("cache", cache)
    meter.create_observable_gauge(
        "asyncfin.cache.bytes",
        [partial(_observe, cache, "bytes")],
        "By",
        "what is cached in memory",
    )
    for name, unit, description in (
        ("hits", "{series}", "wanted series that were cached"),
        ("misses", "{series}", "wanted series that had to be requested"),
        ("broken", "{fault}", "damaged parts, and outages of the disk or server"),
    ):
        meter.create_observable_counter(
            f"asyncfin.cache.{name}",
            [partial(_observe, cache, name)],
            unit,
            description,
        )


def _observe(
    source: Bucket | Cache, name: str, options: CallbackOptions
) -> list[Observation]:
    """Read a field of the state of this process; one that is None is not exported."""
    reading = getattr(source.stats(), name)
    return [] if reading is None else [metrics.Observation(reading)]


def _outcome_of(event: events.QuestionFinished) -> Attributes:
    """The attributes of a question's duration."""
    attributes: Attributes = {"asyncfin.operation": event.operation}
    if event.failure == "CancelledError":
        attributes["asyncfin.outcome"] = "cancelled"
    elif event.failure is not None:
        attributes |= {"asyncfin.outcome": "error", "error.type": event.failure}
    else:
        attributes["asyncfin.outcome"] = "stale" if event.stale else "ok"
    return attributes


def _read_figures(event: events.Event, *names: str) -> Attributes:
    """Return fields of an event as attributes, without those that are None."""
    figures = {f"asyncfin.{name}": getattr(event, name) for name in names}
    return {name: figure for name, figure in figures.items() if figure is not None}


def _add_event(event: events.Event, name: str, attributes: Attributes) -> None:
    # To the span above the attempts: while its request waits, no attempt is sent.
    trace.get_current_span().add_event(
        name, {"asyncfin.operation": event.operation, **attributes}
    )


@lru_cache(1024)
def _http_attributes(
    origin: str, method: str, operation: str, status: int | None, failure: str | None
) -> Attributes:
    """The attributes of an attempt that are those of its duration too; do not change
    them.
    """
    parts = urlsplit(origin)
    attributes: Attributes = {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        "http.request.method": method,
        "asyncfin.operation": operation,
    }
    if status is not None:
        attributes["http.response.status_code"] = status
    if failure is not None:
        attributes["error.type"] = failure
    return attributes
