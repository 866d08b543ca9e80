"""Damaged journals and folders: nothing is deleted that was not asked for, and what can be repaired is."""

import errno
import io
import logging
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from asyncfin import Annual, Client, ManifestMismatchError, Quarterly, Select, extract, extract_cost
from asyncfin.extraction import journal as journal_module
from asyncfin.sandbox import Sandbox, Status
from tests.damage import damage
from tests.extraction.conftest import FIRST, IDS, NOBODY, annual, names, rows


def journal_of(folder: Path) -> Path:
    return folder.parent / "night.journal" / "journal.sqlite"


def changed(folder: Path, sql: str) -> None:
    """Change the journal as only a damage would."""
    with closing(sqlite3.connect(journal_of(folder))) as journal:
        journal.execute("PRAGMA foreign_keys = OFF")
        journal.execute(sql)
        journal.commit()


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


async def test_a_row_of_a_question_that_the_journal_does_not_know_deletes_nothing(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """A row of an unknown question is refused before a request, and only replace=True deletes its file."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    changed(folder, f"UPDATE entity SET question = 'lost' WHERE entity_id = '{IDS[0]}'")
    before, spent = content(folder), len(sandbox.log)
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=rf"does not have \(that of {IDS[0]}\.parquet\)"):
            await ask(client, IDS, Select(), Annual(), to=folder)
    assert (content(folder), len(sandbox.log)) == (before, spent)
    report = await extract(client, IDS, Select(), Annual(), to=folder, replace=True)
    assert [each.state for each in report.entities] == ["done"] + ["unchanged"] * 5
    assert rows(folder) == annual(*FIRST)


def overwritten(start: int, length: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        with journal_of(folder).open("r+b") as file:
            file.seek(start)
            file.write(b"\xa5" * length)

    return damage


def by_sql(sql: str) -> Callable[[Path], None]:
    return lambda folder: changed(folder, sql)


@pytest.mark.parametrize(
    "damaged",
    [
        overwritten(0, 100),
        overwritten(5000, 4000),
        by_sql("UPDATE entity SET lacking = 'none of it'"),
        by_sql("UPDATE entity SET lacking = '[1]'"),
        by_sql("""UPDATE entity SET lacking = '{"metric_ids": "x"}'"""),
        by_sql("UPDATE entity SET lacking = CAST(x'ff' AS TEXT)"),
        by_sql("UPDATE entity SET rows = 'many'"),
        by_sql("UPDATE entity SET bytes = NULL"),
        by_sql("UPDATE entity SET dataset_id = x'00'"),
        by_sql("UPDATE question SET text = 'x'"),
        by_sql("UPDATE question SET text = '7'"),
        by_sql("DROP TABLE entity"),
    ],
    ids=str,
)
async def test_a_damaged_journal_is_rebuilt_from_the_files_and_kept_under_another_name(
    sandbox: Sandbox,
    client: Client,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    damaged: Callable[[Path], None],
) -> None:
    """The estimate sees through it too, without writing; the log and the report say what was done."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    damaged(folder)
    before, broken, files = content(folder), journal_of(folder).read_bytes(), names(folder.parent)
    cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    assert (cost.unchanged, names(folder.parent)) == (len(IDS), files)
    caplog.clear()
    spent = len(sandbox.log)
    with caplog.at_level(logging.WARNING, "asyncfin"):
        report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert (len(report.unchanged), len(sandbox.log) - spent) == (len(IDS), len(IDS))
    assert content(folder) == before
    aside = journal_of(folder).with_name("journal.sqlite.damaged-1")
    assert aside.read_bytes() == broken
    assert report.repaired is not None
    assert str(aside) in report.repaired
    assert report.repaired in str(report)
    assert report.repaired in caplog.text
    assert (await extract(client, IDS, Select(), Annual(), to=folder)).repaired is None


async def test_a_damaged_journal_without_files_is_one_clear_error(client: Client, folder: Path) -> None:
    """A damaged journal without files may be somebody else's, so it stays as it is."""
    await extract(client, [NOBODY], Select(), Annual(), to=folder)
    overwritten(0, 100)(folder)
    broken = journal_of(folder).read_bytes()
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=r"journal\.sqlite is damaged.*remove it"):
            await ask(client, IDS, Select(), Annual(), to=folder)
    assert journal_of(folder).read_bytes() == broken


def rotten(original: bytes) -> bytes:
    """A file with one wrong byte that pyarrow reads, as another table, unless it is asked for checksums."""
    table = pq.read_table(io.BytesIO(original))
    for at in range(4, len(original)):
        changed = original[:at] + bytes([original[at] ^ 1]) + original[at + 1 :]
        with suppress(Exception):
            if not pq.read_table(io.BytesIO(changed)).equals(table):
                return changed
    raise AssertionError("every damage was noticed")


async def test_a_file_that_rotted_while_the_journal_was_lost_is_read_again(
    client: Client, folder: Path
) -> None:
    """Page checksums show a rebuilt journal that a file has rotted, and it is read again."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    shutil.rmtree(journal_of(folder).parent)
    path = folder / f"{IDS[2]}.parquet"
    path.write_bytes(rotten(path.read_bytes()))
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert [each.entity_id for each in report.done] == [IDS[2]]
    assert rows(folder) == annual(*FIRST)


async def test_a_long_message_of_the_service_is_cut_in_the_journal(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """Five megabytes of it would be written for each entity."""
    body = b'{"error":{"code":"forbidden","message":"%b"}}' % (b"x" * 5_000_000)
    sandbox.inject(Status(operation="dataset", status=403, body=body))
    report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert report.failed[0].failure is not None
    assert len(report.failed[0].failure.message) <= 2000
    assert journal_of(folder).stat().st_size < 100_000


async def test_a_locked_journal_is_an_error_that_says_so(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute of waiting, which is shortened here; the next call goes on."""
    assert journal_module._LOCKED_SECONDS == 60
    monkeypatch.setattr(journal_module, "_LOCKED_SECONDS", 0.1)
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    with closing(sqlite3.connect(journal_of(folder))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="locked by another process") as raised:
            await extract(client, IDS, Select(), Annual(), to=folder)
    assert raised.value.errno == errno.EBUSY
    assert raised.value.filename == str(journal_of(folder))
    assert len((await extract(client, IDS[:1], Select(), Annual(), to=folder)).unchanged) == 1


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no second file system here")
async def test_a_journal_on_another_file_system_is_found_before_a_request_is_sent(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """Files could never be renamed from there into the folder; nothing is left behind."""
    elsewhere = Path("/dev/shm") / f"asyncfin-{os.getpid()}"
    elsewhere.mkdir()
    try:
        if elsewhere.stat().st_dev == folder.parent.stat().st_dev:
            pytest.skip("both folders are on one file system here")
        (folder.parent / "night.journal").symlink_to(elsewhere)
        with pytest.raises(OSError, match="ross-device") as raised:
            await extract(client, IDS, Select(), Annual(), to=folder)
        assert raised.value.errno == errno.EXDEV
        assert (sandbox.log, names(folder)) == ([], [])
    finally:
        shutil.rmtree(elsewhere)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=500k", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("left", [8_000, 30_000, 60_000, 90_000])
async def test_a_full_disk_is_called_one_wherever_it_is_met(
    client: Client, small_disk: Path, left: int
) -> None:
    """In a file, or in the journal, where SQLite speaks of an I/O error; a later run goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500 * 1024 - left))
    with pytest.raises(OSError, match=str(small_disk)) as raised:
        await extract(client, IDS, Select(), Annual(), to=small_disk / "night")
    assert raised.value.errno == errno.ENOSPC
    ballast.unlink()
    await extract(client, IDS, Select(), Annual(), to=small_disk / "night")
    assert rows(small_disk / "night") == annual(*FIRST)


async def test_random_damage_deletes_nothing_and_ends_in_one_error_or_a_repair(tmp_path: Path) -> None:
    """Damage of the journal, its parts or the files ends in one error or a repair, and deletes nothing."""
    outcome = await damage(30, 1, tmp_path)
    outcome.check()


async def test_a_question_corrected_after_a_run_without_rows_finds_its_folder_free(
    client: Client, folder: Path
) -> None:
    """A file without rows keeps no other question out; one with rows does."""
    await extract(client, IDS, Select(label="no such label"), Annual(), to=folder)
    report = await extract(client, IDS[:4], Select(), Annual(), to=folder)
    assert len(report.done) == 4
    assert names(folder) == sorted(f"{entity_id}.parquet" for entity_id in IDS)
    assert rows(folder) == annual(*FIRST[:4])
    with pytest.raises(ManifestMismatchError, match="another question"):
        await extract(client, IDS, Select(), Quarterly(), to=folder)
