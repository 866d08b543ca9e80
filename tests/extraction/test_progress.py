"""What a run tells while it runs, and its report at the end."""

import asyncio
import logging
from pathlib import Path

import pytest

from asyncfin import Annual, Catalogue, Client, ExtractProgress, Select, extract
from asyncfin.sandbox import Sandbox, Status
from tests.extraction.conftest import IDS, NOBODY


async def test_progress_counts_up_to_the_report(client: Client, folder: Path) -> None:
    """Every entity's end is told once; the last word agrees with the report."""
    told: list[ExtractProgress] = []
    report = await extract(client, (*IDS, NOBODY), Select(), Annual(), to=folder, progress=told.append)
    ended = [progress.ended for progress in told if progress.ended]
    assert sorted(each.entity_id for each in ended) == sorted((*IDS, NOBODY))
    last = told[-1]
    assert (last.entities, last.done, last.failed) == (len(IDS) + 1, len(IDS), 1)
    assert (last.requests, last.rows, last.bytes) == (report.requests, report.rows, report.bytes)
    assert [progress.requests for progress in told] == sorted(progress.requests for progress in told)


@pytest.mark.virtual
async def test_progress_says_what_is_waited_for(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """After a refusal, and no longer once an answer has come."""
    sandbox.inject(Status(operation="catalogue", nth=2, status=429, retry_after=30))
    told: list[ExtractProgress] = []
    await extract(client, IDS, Select(), Annual(), to=folder, progress=told.append)
    waiting = [progress.waiting for progress in told if progress.waiting]
    assert waiting
    assert waiting[0].startswith("RateLimitedError, again in 30")
    assert told[-1].waiting is None


async def test_a_callback_that_fails_does_not_disturb_the_run(
    client: Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged."""

    def broken(progress: ExtractProgress) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR):
        report = await extract(client, IDS, Select(), Annual(), to=folder, progress=broken)
    assert len(report.done) == len(IDS)
    assert "progress callback" in caplog.text


async def test_others_who_use_the_client_are_not_counted(client: Client, folder: Path) -> None:
    """Requests for entities that are not of the run belong to somebody else."""

    others: list[asyncio.Task[Catalogue]] = []

    def watch(progress: ExtractProgress) -> None:
        if not others:
            others.append(asyncio.ensure_future(client.catalogue(IDS[1])))

    report = await extract(client, IDS[:1], Select(), Annual(), to=folder, progress=watch)
    await others[0]
    assert (report.requests, client.stats.requests) == (3, 5)
