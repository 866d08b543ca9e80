"""Where an extraction may be, and how entities' files are named."""

import os
import sys
from pathlib import Path

import pytest

from asyncfin import (
    Annual,
    Client,
    MemoryCache,
    Select,
    SelectionError,
    extract,
    extract_cost,
    read_changes,
)
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import IDS, names, rows


async def test_run_does_not_fill_cache(sandbox: Sandbox, tmp_path: Path) -> None:
    """A night's run would evict what visitors use."""
    cache = MemoryCache()
    async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
        await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "first")
        assert cache.stats().bytes == 0
        await client.query(IDS[0], Select(), Annual())
        held, spent = cache.stats().bytes, len(sandbox.log)
        await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "second")
        assert [served.operation for served in sandbox.log[spent:]] == ["dataset"]
        assert cache.stats().bytes == held
    assert rows(tmp_path / "first") == rows(tmp_path / "second")


async def test_no_folder_refused_before_anything_happens(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """The run and the estimate refuse a plain file, and a link to itself, before anything else."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file", "loop"):
        for ask in (extract, extract_cost):
            with pytest.raises(SelectionError, match=rf"to: .*{name} is not a folder"):
                await ask(client, IDS, Select(), Annual(), to=tmp_path / name)
    assert (sandbox.log, names(tmp_path)) == ([], ["file", "loop"])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no directories that can be flushed")
async def test_files_are_flushed_to_disk(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content of a file is flushed before its name, and each before the run goes on."""
    flushed: list[int] = []
    flush = os.fsync

    def recorded(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    await extract(client, IDS, Select(), Annual(), to=folder)
    for name in names(folder):
        file, directory = ((folder / each).stat().st_ino for each in (name, "."))
        assert directory in flushed[flushed.index(file) :]


@pytest.mark.parametrize("segment", ["year=1999", "entity_id=x"])
async def test_name_readers_take_for_column_rejected(
    sandbox: Sandbox, client: Client, tmp_path: Path, segment: str
) -> None:
    """They would replace the files' column by the folder's value; other names of that form are fine."""
    for to in (tmp_path / segment, tmp_path / segment / "night", f"s3://bucket/{segment}"):
        with pytest.raises(SelectionError, match=f"{segment}.*column '{segment.partition('=')[0]}'"):
            await extract(client, IDS, Select(), Annual(), to=to)
    assert (sandbox.log, names(tmp_path)) == ([], [])
    report = await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "date=2026-11-28")
    assert len(report.done) == 1


async def test_a_tilde_is_the_home_folder(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No folder named ~ appears."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    report = await extract(client, IDS[:1], Select(), Annual(), to="~/night", history=True)
    assert f"{IDS[0]}.parquet" in names(tmp_path / "night")
    assert len(read_changes("~/night")) == report.rows
    assert "~" not in names(tmp_path)
