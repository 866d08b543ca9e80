"""An account's allowance ends before the run does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    AllowanceExhaustedError,
    Annual,
    Client,
    ExtractProgress,
    Select,
    TokenBucket,
    extract,
)
from asyncfin.events import Event, RequestStarted
from asyncfin.sandbox import Latency, Sandbox
from asyncfin.sandbox.dataset import DatasetFile
from tests.extraction.conftest import FIRST, IDS, annual, clocked, rows
from tests.generate import generate


@pytest.fixture(scope="module")
def large() -> tuple[DatasetFile, ...]:
    """Return 8 datasets of 400 series."""
    return tuple(generate(seed, series=400, publications=1) for seed in range(20, 28))


@pytest.fixture(scope="module")
def many() -> tuple[DatasetFile, ...]:
    """Return 60 datasets of 10 series."""
    return tuple(generate(seed, series=10, publications=1) for seed in range(100, 160))


async def test_used_up_allowance_stops_run(tmp_path: Path) -> None:
    """A used-up allowance keeps what is done, and the next day's run goes on with what is left."""
    folder = tmp_path / "night"
    later = timedelta(0)

    def clock() -> datetime:
        return datetime.now(UTC) + later

    async with (
        Sandbox(*FIRST, allowance=7, clock=clock) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=1, bucket=TokenBucket(clock=clock)) as client,
    ):
        report = await extract(client, IDS, Select(), Annual(), to=folder)
        assert isinstance(report.stopped, AllowanceExhaustedError)
        assert report.resume_at is not None
        assert f"{report.resume_at:%H:%M}" == "00:00"
        assert [each.state for each in report.entities] == ["done"] * 3 + ["left"] * 3
        assert rows(folder) == annual(*FIRST[:3])
        later = timedelta(days=1)
        await extract(client, IDS[3:], Select(), Annual(), to=folder)
    assert rows(folder) == annual(*FIRST)


async def test_small_allowance_comes_further_every_day(
    large: tuple[DatasetFile, ...], tmp_path: Path
) -> None:
    """One for two entities: some are done each day, few requests twice."""
    ids, today = [each.entity_id for each in large], datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        return today

    async with Sandbox(*large) as sandbox:
        async with Client(sandbox.base_url, sandbox.token) as client:
            calm = await extract(client, ids, Select(), Annual(), to=tmp_path / "calm")
        since = len(sandbox.log)
        largest = max(each.requests for each in calm.entities)
        bucket = TokenBucket(daily_budget=2 * largest, clock=clock)
        async with Client(sandbox.base_url, sandbox.token, bucket=bucket) as client:
            for _ in ids:
                report = await extract(clocked(client, clock), ids, Select(), Annual(), to=tmp_path / "night")
                if not report.left:
                    break
                assert report.done
                today += timedelta(days=1)
    assert (len(report.left), rows(tmp_path / "night")) == (0, rows(tmp_path / "calm"))
    read = sum(served.operation != "dataset" for served in sandbox.log[since:])
    assert read < 1.5 * (calm.requests - len(ids))


@pytest.mark.virtual
async def test_run_can_sleep_until_allowance_returns(tmp_path: Path, virtual_clock: Any) -> None:
    """With wait=True a run over several midnights ends with everything done, in one call."""
    folder = tmp_path / "night"
    bucket = TokenBucket(daily_budget=5, clock=virtual_clock)
    async with (
        Sandbox(*FIRST) as sandbox,
        Client(sandbox.base_url, sandbox.token, bucket=bucket, max_in_flight=2) as client,
    ):
        waiting = set()
        report = await extract(
            clocked(client, virtual_clock),
            IDS,
            Select(),
            Annual(),
            to=folder,
            wait=True,
            progress=lambda progress: waiting.add(progress.waiting),
        )
    assert (report.stopped, len(report.done)) == (None, len(IDS))
    assert any("00:00 UTC" in reason for reason in waiting if reason)
    assert report.seconds > 86_400
    assert rows(folder) == annual(*FIRST)


@pytest.mark.virtual
async def test_two_entities_are_read_first(many: tuple[DatasetFile, ...], tmp_path: Path) -> None:
    """A small allowance finishes some entities, and a large one comes to use all connections."""
    companies = many[:40]
    reading: set[str] = set()
    peaks: dict[int, int] = {}
    done = 0

    def observe(event: Event) -> None:
        if isinstance(event, RequestStarted) and event.operation == "catalogue":
            reading.add(str(event.entity_id))
            peaks[done // 8] = max(peaks.get(done // 8, 0), len(reading))

    def progress(now: ExtractProgress) -> None:
        nonlocal done
        if now.ended is not None:
            reading.discard(now.ended.entity_id)
            done = now.done

    async with (
        Sandbox(*companies, faults=[Latency(seconds=1)]) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=20, observers=[observe]) as client,
    ):
        ids = [each.entity_id for each in companies]
        await extract(client, ids, Select(), Annual(), to=tmp_path / "night", progress=progress)
    assert [peaks[level] for level in range(4)] == [2, 3, 4, 5]
