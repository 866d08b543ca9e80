"""Ending a run early, and two runs at once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, ExtractProgress, Select, extract
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, annual, names, rows


async def test_stop_finishes_entities_in_progress(sandbox: Sandbox, folder: Path) -> None:
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


@pytest.mark.virtual
async def test_stop_ends_sleep_for_allowance(tmp_path: Path) -> None:
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
async def test_cancelled_run_leaves_nothing_behind(
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
