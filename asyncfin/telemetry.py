"""A client's events as OpenTelemetry spans and counters: one span for each attempt.

Needs the extra ``otel`` (``pip install "asyncfin[otel]"``), which brings the API only; without an SDK
set up by the application nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from asyncfin.errors import own_version
from asyncfin.events import (
    Event,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    Restarted,
    Retrying,
    Waited,
    Waiting,
)

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

try:
    from opentelemetry import metrics, trace
except ImportError:
    raise ImportError('asyncfin.telemetry needs the extra otel: pip install "asyncfin[otel]"') from None


class OpenTelemetryObserver:
    """An observer for `Client(observers=[...])`, of one client or several.

    Each attempt is a client span ``asyncfin <operation>``, a child of the span in which the request is
    made, to which long waits, retries and restarts are added as span events. The counters are
    ``asyncfin.requests``, ``asyncfin.retries``, ``asyncfin.refused``, ``asyncfin.restarts``,
    ``asyncfin.waits`` (seconds) and ``asyncfin.received`` (bytes), each by ``asyncfin.operation``.

    Args:
        tracer_provider: makes the spans. None: the global one.
        meter_provider: makes the counters. None: the global one.
    """

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        self._tracer = trace.get_tracer("asyncfin", own_version(), tracer_provider)
        meter = metrics.get_meter("asyncfin", own_version(), meter_provider)
        self._requests = meter.create_counter("asyncfin.requests", "{request}", "attempts sent")
        self._retries = meter.create_counter("asyncfin.retries", "{request}", "attempts after a failed one")
        self._refused = meter.create_counter("asyncfin.refused", "{request}", "attempts answered with 429")
        self._restarts = meter.create_counter("asyncfin.restarts", "{restart}", "reads started over")
        self._waits = meter.create_counter("asyncfin.waits", "s", "waiting for a turn and between attempts")
        self._received = meter.create_counter("asyncfin.received", "By", "bodies, after inflating")
        self._spans: dict[int, Span] = {}

    def __call__(self, event: Event) -> None:
        """Record one event."""
        by_operation = {"asyncfin.operation": event.operation}
        match event:
            case RequestStarted():
                self._requests.add(1, by_operation)
                attributes: dict[str, str | int] = {"asyncfin.operation": event.operation}
                if event.entity_id is not None:
                    attributes["asyncfin.entity_id"] = event.entity_id
                if event.attempt > 1:
                    attributes["http.request.resend_count"] = event.attempt - 1
                # By serial: the events of one attempt may come while others of the same request's are open.
                self._spans[event.serial] = self._tracer.start_span(
                    f"asyncfin {event.operation}", kind=trace.SpanKind.CLIENT, attributes=attributes
                )
            case RequestAnswered():
                self._received.add(event.received, by_operation)
                if event.status == 429:
                    self._refused.add(1, by_operation)
                told: dict[str, str | int] = {"http.response.status_code": event.status}
                if event.request_id is not None:
                    told["asyncfin.request_id"] = event.request_id
                self._end(event.serial, told, None if event.status < 300 else str(event.status))
            case RequestFailed():
                self._end(event.serial, {}, event.failure)
            case Waiting():
                facts: dict[str, str | float] = {
                    "asyncfin.reason": event.reason,
                    "asyncfin.wait": event.seconds,
                }
                if event.until is not None:
                    facts["asyncfin.until"] = event.until.isoformat()
                # The caller's span and not one of ours: no attempt is under way while its request waits.
                trace.get_current_span().add_event("asyncfin.waiting", {**by_operation, **facts})
            case Waited():
                self._waits.add(event.seconds, by_operation)
            case Retrying():
                self._retries.add(1, by_operation)
                trace.get_current_span().add_event(
                    "asyncfin.retrying",
                    {**by_operation, "asyncfin.wait": event.wait, "error.type": event.failure},
                )
            case Restarted():
                self._restarts.add(1, by_operation)
                trace.get_current_span().add_event("asyncfin.restarted", by_operation)

    def _end(self, serial: int, told: Mapping[str, str | int], failure: str | None) -> None:
        span = self._spans.pop(serial, None)
        if span is None:  # it was under way before this observer came
            return
        span.set_attributes(told)
        if failure is not None:
            span.set_attribute("error.type", failure)
            span.set_status(trace.StatusCode.ERROR)
        span.end()
