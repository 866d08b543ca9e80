"""The example backend under uvicorn with four workers: its forms, its errors, and its end."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asyncfin.sandbox import Sandbox, Status

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="ends its workers by SIGTERM")


@asynccontextmanager
async def served(sandbox: Sandbox, workers: int = 1) -> AsyncIterator[tuple[Any, asyncio.subprocess.Process]]:
    """Give an HTTP client of the example, and its process."""
    with socket.socket() as listening:
        # Visitors who come before the workers are ready wait in the socket's queue.
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        port = listening.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "uvicorn", "examples.fastapi_app:app", "--fd", str(listening.fileno())),
            *("--workers", str(workers), "--log-level", "warning"),
            env={**os.environ, "ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token},
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


async def test_each_form_holds_the_same_numbers() -> None:
    """JSON, Arrow and CSV of one question."""
    async with Sandbox.demo() as sandbox, served(sandbox) as (http, _):
        path = f"/entities/{sandbox.entities[0]}/values"
        asked = {"metric": "NetIncome", "years": 3}
        document = (await http.get(f"{path}.json", params=asked)).json()
        with pa.ipc.open_stream((await http.get(f"{path}.arrow", params=asked)).content) as reader:
            table = reader.read_all()
        lines = (await http.get(f"{path}.csv", params=asked)).text.splitlines()
    numbers = [number for series in document for number in series["values"].values()]
    assert numbers
    assert sorted(table["number"].to_pylist()) == sorted(map(float, numbers))
    assert sorted(float(cell) for line in lines[1:] for cell in line.split(",")[1:] if cell) == sorted(
        numbers
    )


async def test_errors_are_statuses_with_a_sentence() -> None:
    """A visitor's mistake, an unknown company, and an allowance that is used up."""
    faults = [Status(status=429, retry_after=3600, operation="query")]
    async with Sandbox.demo(faults=faults) as sandbox, served(sandbox) as (http, _):
        path = "/entities/{}/values.json"
        wrong = await http.get(path.format(sandbox.entities[0]), params={"metric": "NoSuchMetric"})
        unknown = await http.get(path.format("O-" + "f" * 32), params={"metric": "NetIncome"})
        used_up = await http.get(path.format(sandbox.entities[0]), params={"metric": "NetIncome"})
        malformed = await http.get(path.format("apple"), params={"metric": "NetIncome"})
    assert (wrong.status_code, unknown.status_code, malformed.status_code) == (400, 404, 400)
    assert "NoSuchMetric" in wrong.text
    assert used_up.status_code == 503
    assert int(used_up.headers["retry-after"]) > 3000


async def test_four_workers_end_cleanly_under_load() -> None:
    """SIGTERM while visitors wait: no traceback, and every worker is gone."""
    async with Sandbox.demo() as sandbox, served(sandbox, workers=4) as (http, process):
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
