"""What the journal knows whatever happens, whose file it is, and who may look into it."""

import asyncio
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from asyncfin import Annual, Client, ManifestMismatchError, Quarterly, Select, extract, extract_cost
from asyncfin.sandbox import Sandbox
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
    """It keeps other questions out, as before."""
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
