"""Extractions over an executor: the same rows, and nothing lost with a worker."""

import asyncio
import multiprocessing
import pickle
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    ExtractProgress,
    ManifestMismatchError,
    NotFoundError,
    RunInProgressError,
    Select,
    TokenBucket,
    extract,
)
from asyncfin.extraction import workers
from asyncfin.sandbox import Sandbox, Status
from tests.extraction.conftest import COMPANIES, FIRST, IDS, UNKNOWN_ID, annual, names, rows, wait_for
from tests.extraction.fresh import processes
from tests.extraction.making import (
    make_client_after_another,
    make_impatient_client,
    make_killing_client,
    make_later,
    make_nothing,
)


@pytest.fixture(autouse=True)
def environment(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers find the service in their environment."""
    monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)


@pytest.fixture
def threads() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


async def test_process_pool_writes_equal_files(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """Row for row; a later run of either kind sends one request per entity."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        asked: dict[str, Any] = {"to": folder, "executor": executor, "chunk": 2}
        make_client = partial(Client.from_env, lane="bulk")
        report = await extract(make_client, IDS, Select(), Annual(), **asked)
        assert rows(folder) == annual(*FIRST)
        assert [each.state for each in report.entities] == ["done"] * len(IDS)
        assert report.requests == len(sandbox.log)
        again = await extract(Client.from_env, IDS, Select(), Annual(), **asked)
        assert (len(again.unchanged), again.requests) == (len(IDS), len(IDS))
    alone = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(alone.unchanged) == len(IDS)
    assert not list((folder.parent / "_night.journal").glob("*.part"))


async def test_failures_are_reported_by_the_driver(folder: Path, threads: Executor) -> None:
    """Failures have the error's class, as in one process, and on_error="raise" ends the run with it."""
    ids = (IDS[0], UNKNOWN_ID, IDS[1])
    received: list[ExtractProgress] = []
    asked: dict[str, Any] = {"to": folder, "executor": threads, "chunk": 1}
    report = await extract(Client.from_env, ids, Select(), Annual(), **asked, progress=received.append)
    assert [each.state for each in report.entities] == ["done", "failed", "done"]
    assert (received[-1].done, received[-1].failed, received[-1].requests) == (2, 1, report.requests)
    assert [each.failure.error for each in report.failed if each.failure] == ["NotFoundError"]
    with pytest.raises(NotFoundError):
        await extract(Client.from_env, ids, Select(), Annual(), **asked, on_error="raise")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
@pytest.mark.parametrize("at", [1, 4, 6])
async def test_killed_worker_costs_little(
    sandbox: Sandbox, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The driver makes another pool; what the dead one had put in place is found there."""
    kill = tmp_path / "kill"
    kill.write_text(str(at))
    monkeypatch.setenv("ASYNCFIN_KILL_AT", str(kill))
    made: list[Executor] = []

    def make_executor() -> Executor:
        made.append(processes(1))
        return made[-1]

    asked: dict[str, Any] = {"to": folder, "executor": make_executor, "chunk": 6}
    report = await extract(make_killing_client, IDS, Select(), Annual(), **asked)
    assert len(made) == 2
    assert report.uncounted == 1
    assert "and those of workers that were killed (1 time)" in str(report)
    assert rows(folder) == annual(*FIRST)
    read = [served for served in sandbox.log if served.operation != "dataset"]
    assert len(read) <= 2 * len(IDS) + 2 * 2  # two requests an entity; two entities were in flight
    assert not list((folder.parent / "_night.journal").glob("*.part"))


async def test_worker_finds_files_of_killed_one(
    client: Client,
    sandbox: Sandbox,
    folder: Path,
    threads: Executor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though the driver knows of the old file: what is in place is not read again."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    sandbox.publish(COMPANIES[0])
    await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "other")
    monkeypatch.setenv("ASYNCFIN_MOVED", str(tmp_path / "other" / f"{IDS[0]}.parquet"))
    monkeypatch.setenv("ASYNCFIN_MOVED_TO", str(folder / f"{IDS[0]}.parquet"))
    report = await extract(
        make_client_after_another, IDS[:1], Select(), Annual(), to=folder, executor=threads
    )
    assert (len(report.unchanged), report.requests) == (1, 1)
    again = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert len(again.unchanged) == 1
    assert rows(folder) == annual(COMPANIES[0])


async def test_worker_rejects_foreign_file(
    folder: Path, threads: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was put in place after the run began: it stays."""
    foreign, path = tmp_path / "foreign.parquet", folder / f"{IDS[0]}.parquet"
    parquet.write_table(pyarrow.table({"number": [1]}), foreign)
    content = foreign.read_bytes()
    monkeypatch.setenv("ASYNCFIN_MOVED", str(foreign))
    monkeypatch.setenv("ASYNCFIN_MOVED_TO", str(path))
    with pytest.raises(ManifestMismatchError, match="not an extraction's file"):
        await extract(make_client_after_another, IDS[:1], Select(), Annual(), to=folder, executor=threads)
    assert path.read_bytes() == content


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL on Windows")
async def test_broken_executor_loses_nothing(
    client: Client, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same call with another one goes on from there."""
    kill = tmp_path / "kill"
    kill.write_text("5")
    monkeypatch.setenv("ASYNCFIN_KILL_AT", str(kill))
    with processes(1) as executor, pytest.raises(BrokenExecutor):
        await extract(make_killing_client, IDS, Select(), Annual(), to=folder, executor=executor)
    assert names(folder)
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert report.unchanged
    assert rows(folder) == annual(*FIRST)


class Breaking(Executor):
    """An executor whose futures stay as they are."""

    def __init__(self) -> None:
        self.futures: list[Future[Any]] = []

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        self.futures.append(Future())
        return self.futures[-1]


async def test_broken_pool_fails_futures_undisturbed(client: Client, folder: Path) -> None:
    """If one were cancelled then, Python 3.11's pool would not end the others: the run would hang."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)  # all chunks are sent at once then
    executor = Breaking()
    asked: dict[str, Any] = {"executor": executor, "chunk": 1}
    running = asyncio.ensure_future(extract(Client.from_env, IDS, Select(), Annual(), to=folder, **asked))
    await wait_for(lambda: len(executor.futures) == len(IDS))
    for future in executor.futures:
        future.set_exception(BrokenExecutor("a worker died"))
        for _ in range(20):
            await asyncio.sleep(0)
    with pytest.raises(BrokenExecutor):
        await running


async def test_stop_leaves_waiting_chunks(client: Client, folder: Path) -> None:
    """Those that have are finished."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    stop = asyncio.Event()

    def watch(progress: ExtractProgress) -> None:
        if progress.done:
            stop.set()

    with ThreadPoolExecutor(1) as executor:
        asked: dict[str, Any] = {"executor": executor, "chunk": 1, "stop": stop, "progress": watch}
        report = await extract(Client.from_env, IDS[1:], Select(), Annual(), to=folder, **asked)
    assert 1 <= len(report.done) <= 3
    assert len(report.done) + len(report.left) == len(IDS) - 1
    assert len(names(folder)) == len(report.done) + 1


async def test_the_driver_waits_for_the_allowance(sandbox: Sandbox, folder: Path, threads: Executor) -> None:
    """A worker that slept would be a worker less; all requests are counted."""
    sandbox.inject(Status(operation="query", nth=4, status=429, retry_after=1))
    received: list[ExtractProgress] = []
    asked: dict[str, Any] = {"to": folder, "executor": threads, "chunk": 1, "wait": True}
    report = await extract(make_impatient_client, IDS, Select(), Annual(), **asked, progress=received.append)
    assert (len(report.done), report.stopped, report.requests) == (len(IDS), None, len(sandbox.log))
    waits = [progress.waiting for progress in received if progress.waiting is not None]
    assert waits
    assert all("the allowance is used up until" in waiting for waiting in waits)
    # The wait is over for the progress too, whichever entities are sent afterwards.
    assert [progress for progress in received if progress.ended and progress.waiting] == []
    assert rows(folder) == annual(*FIRST)


async def test_a_silent_executor_is_logged(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A pool that has no worker left looks like a slow one otherwise."""
    monkeypatch.setattr(workers, "_SILENT_SECONDS", 0.05)
    held = Holding()
    running = asyncio.ensure_future(
        extract(Client.from_env, IDS, Select(), Annual(), to=folder, executor=held, chunk=3)
    )
    await wait_for(lambda: "no chunk has ended for 0 s: 2 of 2 have not" in caplog.text)
    running.cancel()
    await asyncio.wait([running])


async def test_cancelled_run_waits_for_workers(folder: Path, client: Client) -> None:
    """Else another run could take the place while they write to it."""
    received = asyncio.Event()
    with ThreadPoolExecutor(1) as executor:
        running = asyncio.ensure_future(
            extract(
                Client.from_env,
                IDS,
                Select(),
                Annual(),
                to=folder,
                executor=executor,
                chunk=1,
                progress=lambda progress: received.set() if progress.done else None,
            )
        )
        await received.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        before = names(folder)
        await asyncio.to_thread(executor.submit(int).result)
        assert names(folder) == before
    assert len(before) < len(IDS)
    await extract(client, IDS, Select(), Annual(), to=folder)
    assert rows(folder) == annual(*FIRST)


class Holding(ThreadPoolExecutor):
    """Begins nothing that is submitted."""

    def __init__(self) -> None:
        super().__init__(1)
        self.calls: list[Callable[[], Any]] = []
        self.submitted = asyncio.Event()

    def submit(self, function: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        self.calls.append(partial(function, *args, **options))
        self.submitted.set()
        return Future()


async def test_worker_writes_nothing_after_another_run(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """Its driver was killed, and with it the lock ended; it has a chunk nevertheless."""
    held = Holding()
    asked: dict[str, Any] = {"to": folder, "history": True}
    driver = asyncio.ensure_future(
        extract(Client.from_env, IDS, Select(), Annual(), **asked, executor=held, chunk=6)
    )
    await held.submitted.wait()
    driver.cancel()
    await asyncio.wait([driver])
    await extract(client, IDS, Select(), Annual(), **asked)
    before = {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")}
    sandbox.publish(COMPANIES[0])
    with pytest.raises(RunInProgressError, match="another run has taken over"):
        await asyncio.to_thread(held.calls[0])
    assert {path: path.stat().st_mtime_ns for path in folder.parent.rglob("*")} == before


def of_main() -> Client:
    return Client.from_env()


of_main.__module__ = "__main__"


def within() -> Callable[[], Client]:
    def make_client() -> Client:
        return Client.from_env()

    return make_client


@pytest.mark.parametrize(
    ("make_client", "options", "said"),
    [
        (lambda: Client.from_env(), {}, "client must be a function of a module"),
        (within(), {}, "client must be a function of a module"),
        (of_main, {}, "client must be a function of a module"),
        (partial(Client, "http://127.0.0.1:1", "hunter2-token"), {}, "not a partial"),
        (partial(Client.from_env, bucket=TokenBucket(1)), {}, "not a partial"),
        (Client("http://127.0.0.1:1", "hunter2-token"), {}, "not a Client"),
        (make_later, {}, "client must be a function of a module"),
        (None, {}, "client must be a function of a module"),
        (Client.from_env, {"select": Select(where=bool, name="some")}, "can't have `where`"),
        (Client.from_env, {"select": Select(where=bool)}, "can't have `where`"),
        (Client.from_env, {"executor": 5}, "executor must be"),
        (Client.from_env, {"chunk": 0}, "chunk must be"),
        (Client.from_env, {"executor": None}, "client must be a Client"),
        (make_nothing, {}, "what make_client returns must be a Client"),
        (Client.from_env, {"executor": make_nothing}, "what executor makes must be an Executor, not None"),
    ],
)
async def test_unsendable_arguments_are_rejected(
    sandbox: Sandbox,
    folder: Path,
    threads: Executor,
    monkeypatch: pytest.MonkeyPatch,
    make_client: Any,
    options: dict[str, Any],
    said: str,
) -> None:
    """Before a request is sent."""
    monkeypatch.setattr(sys.modules["__main__"], "of_main", of_main, raising=False)
    asked: dict[str, Any] = {"select": Select(), "periods": Annual(), "to": folder, "executor": threads}
    with pytest.raises(ArgumentError, match=said) as raised:
        await extract(make_client, IDS, **(asked | options))
    assert "hunter2" not in str(raised.value)
    assert sandbox.log == []


async def test_chunk_contains_no_token(sandbox: Sandbox, folder: Path) -> None:
    """The client is made where they are, by a function that is sent as a name."""
    executor = Holding()
    running = asyncio.ensure_future(
        extract(make_killing_client, IDS, Select(), Annual(), to=folder, executor=executor)
    )
    await executor.submitted.wait()
    running.cancel()
    await asyncio.wait([running])
    sent = pickle.dumps(executor.calls[0])
    assert sandbox.token.encode() not in sent
    assert b"make_killing_client" in sent
