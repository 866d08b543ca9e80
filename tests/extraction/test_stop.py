"""Ending a run early, and two runs at once."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, ExtractProgress, RunInProgressError, Select, extract
from asyncfin.sandbox import Hang, Sandbox
from tests.extraction.conftest import COMPANIES, FIRST, IDS, annual, names, rows


async def test_a_stop_finishes_what_is_in_progress(sandbox: Sandbox, folder: Path) -> None:
    """Nothing else is begun, and the report names what is left."""
    stop = asyncio.Event()

    def watch(progress: ExtractProgress) -> None:
        if progress.done == 1:
            stop.set()

    async with Client(sandbox.base_url, sandbox.token, max_in_flight=2) as client:
        report = await extract(client, IDS, Select(), Annual(), to=folder, stop=stop, progress=watch)
        assert report.stopped is None
        assert 1 <= len(report.done) <= 2
        assert len(report.done) + len(report.left) == len(IDS)
        assert len(rows(folder)) == report.rows
        after = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(after.unchanged) == len(report.done)
    assert rows(folder) == annual(*FIRST)


@pytest.mark.parametrize("again", [False, True])
async def test_a_stop_leaves_those_whose_turn_has_not_come(
    sandbox: Sandbox, client: Client, folder: Path, again: bool
) -> None:
    """Two are read at first."""
    if again:
        await extract(client, IDS, Select(), Annual(), to=folder)
        for company in COMPANIES:
            sandbox.publish(company)
    stop = asyncio.Event()

    def watch(progress: ExtractProgress) -> None:
        if progress.done:
            stop.set()

    report = await extract(client, IDS, Select(), Annual(), to=folder, stop=stop, progress=watch)
    assert [each.state for each in report.entities] == ["done"] * 2 + ["left"] * 4
    assert [each.requests for each in report.left] == [0] * 4


async def test_a_stop_before_the_beginning_spends_nothing(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """All entities are left."""
    stop = asyncio.Event()
    stop.set()
    report = await extract(client, IDS, Select(), Annual(), to=folder, stop=stop)
    assert (len(report.left), report.requests, sandbox.log) == (len(IDS), 0, [])


@pytest.mark.virtual
async def test_a_stop_ends_the_sleep_for_the_allowance(tmp_path: Path) -> None:
    """A run that is stopped does not wait for midnight first."""
    stop = asyncio.Event()

    def watch(progress: ExtractProgress) -> None:
        if progress.waiting and "allowance" in progress.waiting:
            asyncio.get_running_loop().call_later(5, stop.set)

    async with (
        Sandbox(*FIRST, allowance=5) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        report = await extract(
            client, IDS, Select(), Annual(), to=tmp_path / "night", wait=True, stop=stop, progress=watch
        )
    assert report.stopped is None
    assert report.seconds < 100


def tasks() -> set[asyncio.Task[Any]]:
    """All tasks but those of the sandbox's connections."""
    return {task for task in asyncio.all_tasks() if "RequestHandler" not in repr(task.get_coro())}


@pytest.mark.parametrize("at", range(1, 37, 3))
async def test_a_cancelled_run_leaves_nothing_behind_and_can_be_resumed(
    sandbox: Sandbox, client: Client, folder: Path, at: int
) -> None:
    """Cancelled at any request, it holds neither lock nor task; the next run completes the folder."""
    before = tasks()
    seen = 0

    def watch(event: object) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            running.cancel()

    with client.observed(watch):
        running = asyncio.ensure_future(extract(client, IDS, Select(), Annual(), to=folder))
        with pytest.raises(asyncio.CancelledError):
            await running
    assert tasks() == before
    assert [name for name in names(folder.parent) if name.endswith((".part", "-wal", "-shm"))] == []
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(report.done) + len(report.unchanged) == len(IDS)
    assert rows(folder) == annual(*FIRST)


async def test_a_second_run_in_the_folder_is_refused(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """While the first is at work, before a request is sent, and not after it; one elsewhere is welcome."""
    sandbox.inject(Hang(operation="query", nth=1))
    began = asyncio.Event()

    def watch(progress: ExtractProgress) -> None:
        if progress.requests > 5:
            began.set()

    first = asyncio.ensure_future(extract(client, IDS, Select(), Annual(), to=folder, progress=watch))
    await began.wait()
    async with Client(sandbox.base_url, sandbox.token) as second:
        with pytest.raises(RunInProgressError, match="another run"):
            await extract(second, IDS, Select(), Annual(), to=folder)
        assert second.stats().requests == 0
    await extract(client, IDS[:1], Select(), Annual(), to=folder.parent / "other")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await extract(client, IDS, Select(), Annual(), to=folder)
    assert rows(folder) == annual(*FIRST)


async def test_a_run_that_is_cancelled_again_and_again_still_ends_its_worker_thread(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the thread has begun is finished, so the folder is free as soon as the call has returned."""
    flush, begun, go_on = os.fsync, threading.Event(), threading.Event()

    def fsync(file: int) -> None:
        begun.set()
        go_on.wait(30)
        flush(file)

    before = tasks()
    monkeypatch.setattr(os, "fsync", fsync)
    running = asyncio.ensure_future(extract(client, IDS[:1], Select(), Annual(), to=folder))
    assert await asyncio.to_thread(begun.wait, 30)
    for _ in range(5):  # the run's own wait is cancelled, then each wait of its cleanup
        running.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not running.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert tasks() == before
    report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert len(report.done) + len(report.unchanged) == 1
