"""A night during which the service is away for longer than a run waits."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, Select, extract
from asyncfin.sandbox import Drop, Sandbox, Status
from tests.extraction.conftest import FIRST, IDS

# How many requests a client may send before it ends.
MOST = 75


@pytest.mark.virtual
@pytest.mark.parametrize("in_workers", [False, True])
@pytest.mark.parametrize("fault", [Status(status=503), Drop()], ids=["503", "dropped"])
async def test_long_outage_ends_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, in_workers: bool
) -> None:
    """Nothing has failed: what had no outcome is left, and the exit code is that of the service."""
    night: Any = partial(extract, entity_ids=IDS, select=Select(), periods=Annual(), to=tmp_path / "night")
    async with Sandbox(*FIRST) as sandbox:
        async with Client(sandbox.base_url, sandbox.token) as client:
            await night(client)
        sandbox.inject(fault)
        spent, loop = len(sandbox.log), asyncio.get_running_loop()
        began = loop.time()
        if not in_workers:
            async with Client(sandbox.base_url, sandbox.token, lane="bulk") as client:
                report = await night(client)
        else:
            # In this loop, so that the clock of the workers is virtual too.
            monkeypatch.setattr(
                asyncio, "run", lambda job: asyncio.run_coroutine_threadsafe(job, loop).result()
            )
            monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
            monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
            make_client = partial(Client.from_env, lane="bulk")
            with ThreadPoolExecutor(2) as workers:
                report = await night(make_client, executor=workers, chunk=3)
        spent = len(sandbox.log) - spent
    assert report.exit_code == 6
    assert report.stopped is not None
    assert report.stopped.concerns == "service"
    assert (len(report.failed), len(report.left)) == (0, len(IDS))
    assert loop.time() - began >= 15 * 60
    assert spent <= MOST * (2 if in_workers else 1)
