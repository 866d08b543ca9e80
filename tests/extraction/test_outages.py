"""A night during which the service is away for minutes: refused, cut off, or not there at all."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, ExtractReport, Select, extract
from tests.extraction.gate import TOKEN, dataset_body, entity
from tests.extraction.making import make_bulk_client
from tests.services.raw import Received, Scripted, answer, dropping, refusal, writing

# ASYNCFIN_ENTITIES=600 is the night that the documents speak of.
COUNT = int(os.environ.get("ASYNCFIN_ENTITIES", "60"))
IDS = [entity(number) for number in range(1, COUNT + 1)]
# How many requests are answered before the trouble, and how many a client may send during it.
BEFORE, MOST = 20, 60
KINDS = ("503", "dropped", "closed")


class Service:
    """A service that is away for some seconds after its first answers of a night."""

    def __init__(self, kind: str, seconds: float) -> None:
        self._kind, self._seconds = kind, seconds
        self._server: asyncio.Server | None = None
        self._script = Scripted(self._step)
        self.answered, self.away, self.port = 0, False, 0
        self._ending: asyncio.TimerHandle | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._script.serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._script.connections):
            connection.cancel()

    def _begin(self) -> None:
        self.away = True
        if self._kind == "closed":
            self.close()
        loop = asyncio.get_running_loop()
        self._ending = loop.call_later(self._seconds, lambda: asyncio.ensure_future(self._end()))

    async def end(self) -> None:
        """Close for good: virtual time can pass while the threads of workers are slow, and open it again."""
        if self._ending is not None:
            self._ending.cancel()
        while self._script.connections:
            self.close()
            await asyncio.gather(*self._script.connections, return_exceptions=True)
        self.close()
        await asyncio.sleep(1)  # of virtual time: its connections end

    async def _end(self) -> None:
        self.away = False
        if self._kind == "closed":
            await self.open()

    def _step(self, request: Received) -> Any:
        if self.answered == BEFORE and self._seconds and not self.away:
            self._begin()
            self._seconds = 0.0
        if self.away:
            return dropping() if self._kind != "503" else writing(refusal(503))
        self.answered += 1
        _, _, _, entity_id, *rest = request.target.partition("?")[0].split("/")
        return writing(answer(body=json.dumps(dataset_body(entity_id, rest[-1])).encode()))


@asynccontextmanager
async def serving(kind: str, seconds: float) -> AsyncIterator[Service]:
    service = Service(kind, seconds)
    await service.open()
    try:
        yield service
    finally:
        await service.end()


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a first run, in which nothing went wrong."""
    to = tmp_path_factory.mktemp("first") / "night"

    async def run() -> None:
        async with serving("503", 0.0) as service, Client(service.base_url, TOKEN) as client:
            await extract(client, IDS, Select(), Annual(), to=to)

    asyncio.run(run())
    return to


@pytest.fixture(params=["one process", "workers"])
def night(
    request: pytest.FixtureRequest, first_night: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Service], Any]:
    """Run the second night, in one process or with workers whose loop is that of the test."""
    to = tmp_path / "night"
    shutil.copytree(first_night, to)
    shutil.copytree(first_night.with_name("_night.journal"), tmp_path / "_night.journal")

    async def run(service: Service) -> ExtractReport:
        question: Any = (IDS, Select(), Annual())
        if request.param == "one process":
            async with Client(service.base_url, TOKEN, lane="bulk") as client:
                return await extract(client, *question, to=to)
        loop = asyncio.get_running_loop()
        # So that the clock of the workers is virtual too.
        monkeypatch.setattr(asyncio, "run", lambda job: asyncio.run_coroutine_threadsafe(job, loop).result())
        monkeypatch.setenv("ASYNCFIN_BASE_URL", service.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", TOKEN)
        with ThreadPoolExecutor(2) as workers:
            return await extract(make_bulk_client, *question, to=to, executor=workers, chunk=COUNT // 4)

    run.workers = 1 if request.param == "one process" else 2  # type: ignore[attr-defined]
    return run


@pytest.mark.virtual
@pytest.mark.parametrize("kind", KINDS)
async def test_sixteen_minutes_of_trouble_end_run(night: Callable[[Service], Any], kind: str) -> None:
    """Nothing has failed: what had no outcome is left, and the exit code is that of the service."""
    async with serving(kind, 16 * 60.0) as service:
        report = await night(service)
    assert report.exit_code == 6
    assert report.stopped is not None
    assert report.stopped.concerns == "service"
    assert not report.failed
    assert len(report.unchanged) == service.answered
    assert len(report.unchanged) + len(report.left) == COUNT
    assert report.requests - service.answered <= (MOST + 15) * night.workers  # type: ignore[attr-defined]
