"""What a run reports while it runs, and its report at the end."""

import asyncio
import logging
from pathlib import Path

import pytest

from asyncfin import (
    Annual,
    Client,
    ExtractProgress,
    Select,
    extract,
    extract_cost,
)
from asyncfin.sandbox import Sandbox, Status
from tests.extraction.conftest import IDS, UNKNOWN_ID


async def test_progress_counts_up_to_the_report(client: Client, folder: Path) -> None:
    """Every entity's end is reported once; the last progress agrees with the report."""
    received: list[ExtractProgress] = []
    report = await extract(
        client, (*IDS, UNKNOWN_ID), Select(), Annual(), to=folder, progress=received.append
    )
    ended = [progress.ended for progress in received if progress.ended]
    assert sorted(each.entity_id for each in ended) == sorted((*IDS, UNKNOWN_ID))
    last = received[-1]
    assert (last.entities, last.done, last.failed) == (len(IDS) + 1, len(IDS), 1)
    assert last.requests == report.requests
    assert [progress.requests for progress in received] == sorted(progress.requests for progress in received)


@pytest.mark.virtual
async def test_progress_says_what_is_waited_for(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """After a refusal, and no longer once an answer has come."""
    sandbox.inject(Status(operation="catalogue", nth=2, status=429, retry_after=30))
    received: list[ExtractProgress] = []
    await extract(client, IDS, Select(), Annual(), to=folder, progress=received.append)
    waiting = [progress.waiting for progress in received if progress.waiting]
    assert waiting
    assert waiting[0].startswith("the pause until")
    assert received[-1].waiting is None


async def test_callback_fails_does_not_disturb_run(
    client: Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The error of a callback is logged and does not disturb the run."""

    def broken(progress: ExtractProgress) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        report = await extract(client, IDS, Select(), Annual(), to=folder, progress=broken)
    assert len(report.done) == len(IDS)
    assert "progress callback" in caplog.text


async def test_two_runs_on_client_count(client: Client, folder: Path) -> None:
    """Both ask the same entities at once, and the footers say what each took."""
    beside = folder.parent / "beside"
    one, other = await asyncio.gather(
        extract(client, IDS, Select(), Annual(), to=folder),
        extract(client, IDS, Select("gen:Metric1"), Annual(), to=beside),
    )
    assert [each.requests for each in (*one.entities, *other.entities)] == [2] * 2 * len(IDS)
    assert client.stats().requests == one.requests + other.requests
    cost = await extract_cost(client, IDS, Select(), Annual(), to=folder, refresh=True)
    assert cost.least == one.requests
