"""Alarms and dashboard for operators use metrics that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.exporter.prometheus")
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, generate_latest

from asyncfin import MemoryCache, TokenBucket, events
from asyncfin.telemetry import OpenTelemetryObserver

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operations.md").read_text()
BOARD = (ROOT / "docs" / "operations" / "grafana.json").read_text()


@pytest.fixture
async def exported() -> str:
    """Return what Prometheus is shown after each kind of event."""
    meters = MeterProvider([PrometheusMetricReader()])
    bucket, cache = TokenBucket(1e6, burst=10, daily_budget=1000), MemoryCache()
    observer = OpenTelemetryObserver(bucket, cache, meter_provider=meters)
    attempt: tuple[Any, ...] = ("query", "O-1", 1, 1)
    ended = {"dataset_id": None, "failure": None, "seconds": 1.0}
    figures = {"series": None, "periods": None, "requests": 1, "cached": 0, "stale": False, "restarts": 0}
    for event in (
        events.RequestStarted(*attempt, method="POST", url="https://figures.example/v1"),
        events.RequestFinished(*attempt, 429, received=10, seconds=1.0, request_id=None, failure=None),
        events.RequestStarted(*attempt, method="POST", url="https://figures.example/v1"),
        events.RequestFinished(
            *attempt, None, received=0, seconds=1.0, request_id=None, failure="ConnectionFailedError"
        ),
        events.Waited("query", "O-1", reason="turn", seconds=1.0),
        events.Retrying("query", "O-1", attempt=1, failure="RateLimitedError", wait=1.0, request_id=None),
        events.Restarted("query", "O-1", restart=1),
        events.QuestionFinished("query", "O-1", 2, "bulk", **figures, **ended),
        events.QuestionFinished("query", "O-1", 3, "bulk", **figures, **ended | {"failure": "TimeoutError"}),
    ):
        observer(event)
    try:
        return generate_latest(REGISTRY).decode()
    finally:
        meters.shutdown()
        await bucket.aclose()
        await cache.aclose()


def test_alarms_and_dashboard_use_exported_metrics(exported: str) -> None:
    """Under Prometheus's names, with the labels that expressions use; the dashboard shows a bucket."""
    names = set(re.findall(r"^(\w+)[{ ]", exported, re.MULTILINE))
    labels = set(re.findall(r"[{,](\w+)=", exported))
    alarms = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    expressions = [target["expr"] for panel in json.loads(BOARD)["panels"] for target in panel["targets"]]
    assert len(alarms) == 1
    assert len(expressions) > 15
    every = " ".join([*alarms, *expressions])
    used_labels = set(re.findall(r'(\w+)="', every)) | set(
        re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)", every)))
    )
    used = set(re.findall(r"\b(?:asyncfin|http_client)_\w+", every)) - used_labels
    assert len(used_labels) > 5
    assert used_labels - labels == set()
    assert used - names == set()
    assert {name for name in names if name.startswith("asyncfin_bucket")} - used == {"asyncfin_bucket_level"}
