"""What a later run does again, and what it does not."""

import os
from pathlib import Path

import pytest

from asyncfin import Annual, Client, ManifestMismatchError, Quarterly, Select, extract, extract_cost
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import COMPANIES, FIRST, IDS, annual, rows, stamps


def spent(sandbox: Sandbox, since: int) -> list[str | None]:
    """The operations served since then."""
    return [served.operation for served in sandbox.log[since:]]


async def test_unchanged_entity_costs_one_request(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """The second run asks for metadata alone and leaves the files as they are."""
    first = await extract(client, IDS, Select(), Annual(), to=folder)
    written = stamps(folder)
    since = len(sandbox.log)
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert spent(sandbox, since) == ["dataset"] * len(IDS)
    assert report.requests == len(IDS)
    assert [each.state for each in report.entities] == ["unchanged"] * len(IDS)
    assert (report.rows, report.bytes) == (first.rows, first.bytes)
    assert stamps(folder) == written


async def test_what_has_changed_is_read_again(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """An entity with a new publication is read again, alone, with one request for the metadata."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    sandbox.publish(COMPANIES[2])
    since = len(sandbox.log)
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert [each.entity_id for each in report.done] == [IDS[2]]
    assert spent(sandbox, since).count("dataset") == len(IDS)
    assert rows(folder) == annual(*FIRST[:2], COMPANIES[2], *FIRST[3:])


@pytest.mark.parametrize("damage", ["gone", "cut", "rotten"])
async def test_file_without_readable_footer_written_again(client: Client, folder: Path, damage: str) -> None:
    """Unchanged means that the footer can be read, and names the question and the publication."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    path = folder / f"{IDS[1]}.parquet"
    content = path.read_bytes()
    match damage:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(content[:-1])
        case "rotten":
            path.write_bytes(content[:-400] + bytes(392) + content[-8:])
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert [each.entity_id for each in report.done] == [IDS[1]]
    assert rows(folder) == annual(*FIRST)


async def test_more_entities_join_the_folder(client: Client, folder: Path) -> None:
    """The question is the folder's, the entities are the run's; duplicates count once."""
    await extract(client, IDS[:3], Select(), Annual(), to=folder)
    report = await extract(client, (*IDS[2:], IDS[4]), Select(), Annual(), to=folder)
    assert [each.state for each in report.entities] == ["unchanged", "done", "done", "done"]
    assert rows(folder) == annual(*FIRST)


async def test_folder_another_question_refused(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """The message says what differs, and neither a request is spent nor a file touched."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    since = len(sandbox.log)
    with pytest.raises(ManifestMismatchError, match=r"periods.*Annual.*Quarterly"):
        await extract(client, IDS, Select(), Quarterly(), to=folder)
    with pytest.raises(ManifestMismatchError, match="value_version"):
        await extract(client, IDS, Select(), Annual(), to=folder, value_version="latest_restated")
    assert len(sandbox.log) == since
    assert rows(folder) == annual(*FIRST)


async def test_another_question_can_replace_the_folder(client: Client, folder: Path) -> None:
    """All files of the old question go, also those of entities that are not asked now."""
    await extract(client, IDS, Select(), Quarterly(), to=folder)
    await extract(client, IDS[:2], Select(), Annual(), to=folder, replace=True)
    assert rows(folder) == annual(*FIRST[:2])


@pytest.mark.parametrize("name", ["mine.parquet", "below/it/mine.parquet"])
async def test_foreign_files_are_rejected(client: Client, folder: Path, name: str) -> None:
    """A reader would take them for part of the table, wherever they are in it."""
    os.makedirs((folder / name).parent)
    (folder / name).write_bytes(b"PAR1")
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=rf"night/{name}"):
            await ask(client, IDS, Select(), Annual(), to=folder)


async def test_killed_run_left_unfinished_swept_away(client: Client, folder: Path) -> None:
    """The next run deletes it, whatever becomes of the entity."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    (folder.parent / "_night.journal" / f"{IDS[3]}.part").write_bytes(b"half")
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert not list((folder.parent / "_night.journal").glob("*.part"))
