"""The example backend under uvicorn: its forms and its errors in this process, and with several workers."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, Select
from asyncfin.sandbox import Sandbox, Status

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("fastapi")
from examples.fastapi_app import app  # noqa: E402
from tests.web.named_workers import work  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends its workers by SIGTERM")


def settings(sandbox: Sandbox, shared: Path | None = None) -> dict[str, str]:
    """Return what the example takes from the environment; workers share cache and bucket in a folder."""
    found = {
        "ASYNCFIN_BASE_URL": sandbox.base_url,
        "ASYNCFIN_TOKEN": sandbox.token,
        "ASYNCFIN_ENTITIES": " ".join(sandbox.entities),
    }
    if shared is not None:
        found |= {"ASYNCFIN_CACHE": str(shared / "cache"), "ASYNCFIN_BUCKET": str(shared / "bucket")}
    return found


@asynccontextmanager
async def served(sandbox: Sandbox, shared: Path | None = None) -> AsyncIterator[Any]:
    """Give an HTTP client of the example, which uvicorn serves in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings(sandbox, shared).items():
            patch.setenv(name, value)
        patch.setattr("examples.fastapi_app.OFFER", set(sandbox.entities))
        server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
        task = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            try:
                yield http
            finally:
                server.should_exit = True
                await task


@asynccontextmanager
async def served_by_four(sandbox: Sandbox, shared: Path) -> AsyncIterator[Any]:
    """Give an HTTP client of the example, which four workers serve.

    They are forked by a process that has imported it, unless another test needed one before.
    """
    processes = get_context("forkserver")
    processes.set_forkserver_preload([work.__module__])
    environment = os.environ | settings(sandbox, shared)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        port = listening.getsockname()[1]
        workers = [processes.Process(target=work, args=(listening, environment)) for _ in range(4)]
        for each in workers:
            each.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        try:
            yield http
        finally:
            for each in workers:
                each.terminate()
            for each in workers:
                await asyncio.to_thread(each.join, 20)
                each.kill()  # one that hangs; the test would never end


@asynccontextmanager
async def supervised(sandbox: Sandbox) -> AsyncIterator[tuple[Any, asyncio.subprocess.Process]]:
    """Give an HTTP client of the example, which two workers of uvicorn serve, and their parent."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        # Visitors who come before the workers are ready wait in the socket's queue.
        port = listening.getsockname()[1]
        command = (
            sys.executable,
            "-m",
            "uvicorn",
            "examples.fastapi_app:app",
            "--fd",
            str(listening.fileno()),
        )
        process = await asyncio.create_subprocess_exec(
            *(*command, "--workers", "2", "--log-level", "warning"),
            env=os.environ | settings(sandbox),
            pass_fds=[listening.fileno()],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        try:
            yield http, process
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 60)


async def test_health_spends_nothing() -> None:
    """Before the first question, and after it."""
    async with Sandbox.demo() as sandbox, served(sandbox) as http:
        before = (await http.get("/health")).json()
        assert not sandbox.log
        asked = {"metric": "NetIncome"}
        await http.get(f"/entities/{sandbox.entities[0]}/values", params=asked)
        sent = len(sandbox.log)
        after = (await http.get("/health")).json()
        assert len(sandbox.log) == sent
    assert (before["spent_today"], before["cached_series"]) == (0, 0)
    assert (after["spent_today"], after["waiting"]) == (sent, 0)
    assert after["cached_series"] > 0


async def test_health_never_fails_on_stores(tmp_path: Path) -> None:
    """A balancer that reads it removes no worker while cache and bucket cannot be used; ready is another."""
    async with Sandbox.demo() as sandbox:
        async with served(sandbox, tmp_path) as http:
            (tmp_path / "bucket").unlink(missing_ok=True)
            (tmp_path / "bucket").mkdir()
            lost = await http.get(
                f"/entities/{sandbox.entities[0]}/values.json", params={"metric": "NetIncome"}
            )
            health, ready = await http.get("/health"), await http.get("/ready")
        assert app.state.is_ready is False
    assert lost.status_code == 503
    assert (health.status_code, ready.status_code) == (200, 204)


async def visited(http: Any, path: str, workers: int = 4, **params: str) -> list[Any]:
    """Return the answers of visitors who come eight at a time until every worker has answered one."""
    answers: list[Any] = []
    for _ in range(200):
        # Each over a separate connection: a worker keeps the connections that it has taken.
        visits = (http.get(path, params=params, headers={"Connection": "close"}) for _ in range(8))
        answers += await asyncio.gather(*visits)
        if len({answer.headers["worker"] for answer in answers}) == workers:
            return answers
    raise AssertionError("not every worker has answered")


async def test_four_workers_spend_as_one(tmp_path: Path) -> None:
    """Equal visits to cold workers: what one has read the others find, and the next visits spend nothing."""
    async with Sandbox.demo() as sandbox:
        path = f"/entities/{sandbox.entities[0]}/values.json"
        async with Client(sandbox.base_url, sandbox.token) as alone:
            select = Select(metric_ids="NetIncome")
            cost = (await alone.query(sandbox.entities[0], select, Annual(last=5))).requests
        before = len(sandbox.log)
        async with served_by_four(sandbox, tmp_path) as http:
            await visited(http, "/")  # until all of them have started
            cold = await visited(http, path, metric="NetIncome")
            spent = len(sandbox.log) - before
            warm = await visited(http, path, metric="NetIncome")
            again = len(sandbox.log) - before - spent
    assert {answer.status_code for answer in cold + warm} == {200}
    assert len({answer.headers["etag"] for answer in cold + warm}) == 1
    figures = [{**answer.json(), "requests": 0} for answer in cold + warm]
    assert all(each == figures[0] for each in figures)
    assert spent < 2 * cost  # one request more where a busy machine's disk takes over two seconds
    assert again == 0


async def test_one_429_serves_all_workers(tmp_path: Path) -> None:
    """A 429 with a long Retry-After: one request, and 503 with the time to come back for everybody."""
    faults = [Status(status=429, retry_after=3600)]
    async with (
        Sandbox.demo(faults=faults) as sandbox,
        served_by_four(sandbox, tmp_path) as http,
    ):
        await visited(http, "/")  # until all of them have started
        answers = await visited(http, f"/entities/{sandbox.entities[0]}/values.json", metric="NetIncome")
        asked = len(sandbox.log)
    assert {answer.status_code for answer in answers} == {503}
    assert all(3000 < int(answer.headers["retry-after"]) <= 3600 for answer in answers)
    assert asked == 1


async def test_workers_end_cleanly_under_load() -> None:
    """SIGTERM while visitors wait: no traceback, and every worker is gone."""
    async with Sandbox.demo() as sandbox, supervised(sandbox) as (http, process):
        path = f"/entities/{sandbox.entities[0]}/values.json"
        visits = [
            asyncio.ensure_future(http.get(path, params={"metric": "NetIncome", "years": years % 9 + 1}))
            for years in range(40)
        ]
        await asyncio.wait(visits, return_when=asyncio.FIRST_COMPLETED)
        process.send_signal(signal.SIGTERM)
        printed, _ = await asyncio.wait_for(process.communicate(), 60)
        answers = await asyncio.gather(*visits, return_exceptions=True)
    assert any(getattr(answer, "status_code", None) == 200 for answer in answers)
    assert b"Traceback" not in printed
    assert process.returncode in (0, -signal.SIGTERM)
