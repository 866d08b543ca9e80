"""Two processes on one folder."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, Select, extract
from asyncfin.events import Event
from asyncfin.extraction.place import Holder
from asyncfin.extraction.places import place_of
from asyncfin.sandbox import Hang, Sandbox
from tests.extraction.conftest import FIRST, IDS, annual, rows, wait_for
from tests.extraction.fresh import extracted, processes


async def another(sandbox: Sandbox, folder: Path) -> str:
    """What a run in another process says of the same question."""
    with processes(1) as executor:
        return await asyncio.wrap_future(
            executor.submit(extracted, sandbox.base_url, sandbox.token, str(folder), IDS)
        )


@asynccontextmanager
async def at_work(sandbox: Sandbox, client: Client, folder: Path) -> AsyncIterator[None]:
    """A run of this process that stops in the middle."""
    sandbox.inject(Hang(operation="query", nth=1))
    began = asyncio.Event()

    def watch(event: Event) -> None:
        if event.operation == "query":
            began.set()

    with client.observed(watch):
        running = asyncio.ensure_future(extract(client, IDS[:1], Select(), Annual(), to=folder))
        await began.wait()
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


async def test_second_process_folder_refused(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """While the first is at work, and not after it."""
    async with at_work(sandbox, client, folder):
        assert "another run is at work" in await another(sandbox, folder)
    assert await another(sandbox, folder) == f"{len(IDS)} done"
    assert rows(folder) == annual(*FIRST)


async def test_lock_names_its_renewed_holder(
    sandbox: Sandbox, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON: owner, host, process, when the run began and was still at work, and the version."""
    monkeypatch.setattr(sys.modules["asyncfin.extraction.extract"], "RENEW_SECONDS", 0.01)
    lock = folder.parent / "_night.journal" / "lock"
    async with at_work(sandbox, client, folder):
        first = json.loads(lock.read_bytes())
        assert first.keys() >= {"owner", "host", "pid", "began", "renewed"}
        assert (first["host"], first["pid"]) == (socket.gethostname(), os.getpid())
        await wait_for(lambda: _holder(lock).get("renewed", "") > first["renewed"])
        again = _holder(lock)
    assert [again[name] for name in ("owner", "began")] == [first["owner"], first["began"]]


def _holder(lock: Path) -> Any:
    with suppress(ValueError):  # it is just being written
        return json.loads(lock.read_bytes())
    return {}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_forked_child_holds_no_lock(folder: Path) -> None:
    """As a worker of a process pool does whose driver was killed: it waits for work for ever."""
    place = place_of(folder)
    mine, its = socket.socketpair()
    lock = place.lock(Holder())
    child = os.fork()
    if child == 0:
        mine.close()
        its.sendall(b"forked")
        its.recv(1)  # until the other end is closed
        os._exit(0)
    its.close()
    mine.recv(6)
    lock.release()
    with mine:
        place.lock(Holder()).release()
    os.waitpid(child, 0)
