"""What the journal knows whatever happens, whose file it is, and who may look into it."""

import asyncio
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    ManifestMismatchError,
    Quarterly,
    Select,
    ServerFailureError,
    extract,
    extract_cost,
)
from asyncfin.sandbox import Sandbox, Status
from tests.extraction.conftest import FIRST, IDS, NOBODY, annual, names, rows

_KILLED = """
import asyncio, os, signal, sys
from asyncfin import Annual, Client, Select, extract

rename = os.replace

def replace(*names):
    rename(*names)
    os.kill(os.getpid(), signal.SIGKILL)

os.replace = replace

async def main(base_url, token, folder, *ids):
    async with Client(base_url, token) as client:
        await extract(client, ids, Select(), Annual(), to=folder)

asyncio.run(main(*sys.argv[1:]))
"""


def opened(folder: Path) -> closing[sqlite3.Connection]:
    """The journal of a folder, as SQLite sees it."""
    return closing(sqlite3.connect(folder.parent / "night.journal" / "journal.sqlite"))


@pytest.fixture
async def killed(sandbox: Sandbox, folder: Path) -> Path:
    """A folder in which a run was killed as soon as its first file was in place."""
    arguments = (sandbox.base_url, sandbox.token, str(folder), *IDS[:1])
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, *arguments)
    assert await process.wait() == -signal.SIGKILL
    assert names(folder) == [f"{IDS[0]}.parquet"]
    return folder


async def test_a_file_never_stands_in_the_folder_unknown_to_the_journal(client: Client, killed: Path) -> None:
    """Another question is refused at any moment, also when it asks other entities."""
    with pytest.raises(ManifestMismatchError, match="another question"):
        await extract(client, IDS[1:], Select(), Quarterly(), to=killed)
    assert rows(killed) == annual(FIRST[0])


async def test_a_run_killed_as_a_file_came_into_place_goes_on(client: Client, killed: Path) -> None:
    """The same question completes the folder."""
    await extract(client, IDS, Select(), Annual(), to=killed)
    assert rows(killed) == annual(*FIRST)


async def test_another_question_replaces_a_file_whose_run_was_killed(client: Client, killed: Path) -> None:
    """No row of the old one is left."""
    await extract(
        client, IDS[1:], Select(), Annual(), to=killed, replace=True, value_version="latest_restated"
    )
    assert names(killed) == sorted(f"{entity_id}.parquet" for entity_id in IDS[1:])


async def test_an_entity_that_is_noted_but_not_in_place_is_read_again(client: Client, folder: Path) -> None:
    """A run may be killed between its note and its file."""
    await extract(client, IDS[:2], Select(), Annual(), to=folder)
    (folder / f"{IDS[0]}.parquet").unlink()
    report = await extract(client, IDS[:2], Select(), Annual(), to=folder)
    assert [each.state for each in report.entities] == ["done", "unchanged"]


async def test_a_question_that_only_failed_keeps_no_other_out(client: Client, folder: Path) -> None:
    """The folder is empty, so it is nobody's; the journal then knows the new question alone."""
    assert len((await extract(client, [NOBODY], Select(), Annual(), to=folder)).failed) == 1
    cost = await extract_cost(client, IDS, Select(), Quarterly(), to=folder)
    assert cost.new == len(IDS)
    await extract(client, IDS[:1], Select(), Quarterly(), to=folder)
    with opened(folder) as journal:
        assert journal.execute("SELECT entity_id, state FROM entity").fetchall() == [(IDS[0], "done")]


async def test_a_file_outlives_the_failure_of_its_entity_in_the_journal_too(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """A file whose entity has failed since keeps other questions out, as before."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    async with Client(sandbox.base_url + "/elsewhere", sandbox.token) as lost:
        assert len((await extract(lost, IDS[:1], Select(), Annual(), to=folder)).failed) == 1
    with pytest.raises(ManifestMismatchError, match="another question"):
        await extract(client, IDS[1:], Select(), Quarterly(), to=folder)


async def test_a_refusal_says_how_to_replace_the_files(client: Client, folder: Path) -> None:
    """In Python and on the command line."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    with pytest.raises(ManifestMismatchError, match=r"replace=True.*--replace"):
        await extract(client, IDS[:1], Select(), Quarterly(), to=folder)


async def test_a_database_of_something_else_is_refused_and_left_as_it_is(
    client: Client, folder: Path
) -> None:
    """A database of something else is refused and left as it is, with or without a version."""
    (folder.parent / "night.journal").mkdir()
    with opened(folder) as other:
        other.execute("CREATE TABLE mine (name TEXT)")
    path = folder.parent / "night.journal" / "journal.sqlite"
    content = path.read_bytes()
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=r"night\.journal/journal\.sqlite"):
            await ask(client, IDS[:1], Select(), Annual(), to=folder)
    assert path.read_bytes() == content


def contents(place: Path) -> dict[str, Any]:
    """Every name below a place, with what is in the file."""
    return {name: (place / name).read_bytes() if (place / name).is_file() else None for name in names(place)}


async def test_an_estimate_beside_a_killed_run_sees_its_entities_and_writes_nothing(
    client: Client, killed: Path
) -> None:
    """An estimate sees what a killed run had noted beside the journal's one file, and writes nothing."""
    before = contents(killed.parent)
    assert "night.journal/journal.sqlite-wal" in before
    cost = await extract_cost(client, IDS, Select(), Annual(), to=killed)
    assert (cost.unchanged, cost.new) == (1, len(IDS) - 1)
    assert contents(killed.parent) == before


async def test_an_estimate_sees_what_a_run_folds_into_the_journal_meanwhile(
    client: Client, killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal's two files are of one moment, also if a run ends while they are copied."""
    copyfile = shutil.copyfile
    ended: list[str] = []

    def copy(source: str, target: str) -> None:
        copyfile(source, target)
        if not ended:
            ended.append(source)
            with opened(killed) as journal:
                journal.execute("SELECT * FROM entity").fetchall()

    monkeypatch.setattr(shutil, "copyfile", copy)
    cost = await extract_cost(client, IDS, Select(), Annual(), to=killed)
    assert (cost.unchanged, cost.new) == (1, len(IDS) - 1)


@pytest.mark.parametrize("tables", [False, True])
async def test_an_estimate_takes_a_journal_that_was_only_begun_for_none(
    client: Client, folder: Path, tables: bool
) -> None:
    """A start that is killed leaves an empty file, or one without tables."""
    (folder.parent / "night.journal").mkdir()
    with opened(folder) as journal:
        journal.execute("PRAGMA journal_mode = WAL" if tables else "PRAGMA user_version")
    before = contents(folder.parent)
    cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    assert cost.new == len(IDS)
    assert contents(folder.parent) == before


@pytest.mark.parametrize("lost", ["journal.sqlite-wal", "journal.sqlite", "everything"])
async def test_a_journal_that_has_lost_what_it_knew_is_completed_from_the_files(
    sandbox: Sandbox, client: Client, killed: Path, lost: str
) -> None:
    """A journal that has lost rows is completed from files, which say whose and of which question."""
    beside = killed.parent / "night.journal"
    (beside / "journal.sqlite-shm").unlink()
    (beside / "journal.sqlite-wal").unlink()
    match lost:
        case "journal.sqlite":
            (beside / "journal.sqlite").write_bytes(b"")
        case "everything":
            shutil.rmtree(beside)
    before = len(sandbox.log)
    for ask in (extract_cost, extract):
        with pytest.raises(ManifestMismatchError, match=r"another question.*periods.*Annual.*Quarterly"):
            await ask(client, IDS, Select(), Quarterly(), to=killed)
    assert len(sandbox.log) == before
    assert rows(killed) == annual(FIRST[0])
    cost = await extract_cost(client, IDS, Select(), Annual(), to=killed)
    assert (cost.unchanged, cost.new) == (1, len(IDS) - 1)
    report = await extract(client, IDS, Select(), Annual(), to=killed)
    assert [each.entity_id for each in report.unchanged] == [IDS[0]]
    assert rows(killed) == annual(*FIRST)


@pytest.mark.parametrize("stranger", ["other.parquet", "deep/er/other.parquet"])
async def test_a_file_that_the_journal_does_not_know_is_refused(
    client: Client, folder: Path, stranger: str
) -> None:
    """The user who has put it there would read it as part of the table."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    (folder / stranger).parent.mkdir(parents=True, exist_ok=True)
    (folder / stranger).write_bytes((folder / f"{IDS[0]}.parquet").read_bytes())
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=f"night holds {stranger}, which no journal"):
            await ask(client, IDS, Select(), Annual(), to=folder)


async def test_a_failure_is_noted_with_its_requests_and_leaves_those_of_the_file(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """A failure is noted with its requests, also with on_error="raise", and a later success clears it."""
    columns = "SELECT state, requests, failed_requests, error FROM entity"
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    with opened(folder) as journal:
        ((_, taken, *_),) = done = journal.execute(columns).fetchall()
        assert done == [("done", taken, None, None)]
    sandbox.inject(Status(operation="dataset", status=501))
    with pytest.raises(ServerFailureError):
        await extract(client, IDS[:1], Select(), Annual(), to=folder, on_error="raise")
    with opened(folder) as journal:
        assert journal.execute(columns).fetchall() == [("failed", taken, 1, "ServerFailureError")]
    sandbox.clear_faults()
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    with opened(folder) as journal:
        assert journal.execute(columns).fetchall() == done


async def test_a_journal_that_was_read_only_for_a_while_is_good_again(client: Client, place: Path) -> None:
    """Nothing is left of the refusal; tests that run as root become someone else meanwhile."""
    folder = place / "night"
    for path in (folder, place / "night.journal"):
        path.mkdir()
        path.chmod(0o777)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        await extract(client, IDS[:1], Select(), Annual(), to=folder)
        journal = place / "night.journal" / "journal.sqlite"
        journal.chmod(0o444)
        with pytest.raises(PermissionError, match=r"journal\.sqlite"):
            await extract(client, IDS[:1], Select(), Annual(), to=folder)
        journal.chmod(0o644)
        assert len((await extract(client, IDS[:1], Select(), Annual(), to=folder)).unchanged) == 1
    finally:
        if root:
            os.seteuid(0)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that all users can reach, and a place for temporary files that all can write to."""
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # TMPDIR may lie in one user's own folders
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def test_an_estimate_needs_no_leave_to_write(client: Client, place: Path) -> None:
    """A folder that may only be read is as good; tests that run as root become someone else meanwhile."""
    folder = place / "night"
    await extract(client, IDS, Select(), Annual(), to=folder)
    everything = [place, *(place / name for name in names(place))]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    finally:
        if root:
            os.seteuid(0)
        for path in everything:
            path.chmod(0o755)
    assert cost.unchanged == len(IDS)
