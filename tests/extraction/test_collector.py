"""The garbage collector: the command and its workers adjust it, and never a program that calls `extract`."""

import gc
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asyncfin import Annual, Client, Select, extract
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import COMPANIES, IDS
from tests.extraction.fresh import processes

RARELY = (50_000, 20, 50)


@pytest.fixture
async def sandbox(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sandbox]:
    """A service that is named in the environment, where workers find it."""
    async with Sandbox(*COMPANIES) as sandbox:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        yield sandbox


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails where this process's collector is changed."""
    before, calls = (gc.isenabled(), gc.get_threshold()), []
    for name in ("freeze", "unfreeze", "disable", "set_threshold"):
        monkeypatch.setattr(gc, name, lambda *_, name=name: calls.append(name))
    yield
    assert not calls
    assert (gc.isenabled(), gc.get_threshold()) == before


@pytest.mark.usefixtures("sandbox", "kept")
async def test_program_calls_extract_keeps_collector(tmp_path: Path) -> None:
    async with Client.from_env() as client:
        await extract(client, IDS, Select(), Annual(), to=tmp_path / "night")
    with ThreadPoolExecutor(1) as threads:
        await extract(Client.from_env, IDS, Select(), Annual(), to=tmp_path / "other", executor=threads)


@pytest.mark.usefixtures("sandbox")
async def test_worker_processes_freeze_they_imported_once(tmp_path: Path) -> None:
    before = gc.get_threshold()
    with processes(1) as process:
        report = await extract(
            Client.from_env, IDS, Select(), Annual(), to=tmp_path / "first", executor=process, chunk=2
        )
        assert len(report.done) == len(IDS)
        assert process.submit(gc.get_threshold).result() == RARELY
        assert process.submit(gc.get_freeze_count).result() > 10_000  # what asyncfin and pyarrow consist of
        process.submit(gc.unfreeze).result()
        await extract(
            Client.from_env, IDS[:1], Select(), Annual(), to=tmp_path / "second", executor=process, chunk=2
        )
        assert process.submit(gc.get_freeze_count).result() < 10_000, "it froze a second time"
    assert gc.get_threshold() == before
