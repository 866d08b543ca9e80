"""Damaged folders and full disks: nothing is deleted without need, and damaged files are read again."""

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncfin import Annual, Client, ManifestMismatchError, Quarterly, Select, UnknownToAllError, extract
from asyncfin.sandbox import Sandbox, Status
from tests.extraction.conftest import FIRST, IDS, annual, names, rows
from tools.checks.damage import damage


async def test_long_message_service_cut_report(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """A report of a thousand failures must not contain gigabytes."""
    body = b'{"error":{"code":"forbidden","message":"%b"}}' % (b"x" * 5_000_000)
    sandbox.inject(Status(operation="catalogue", status=403, body=body))
    report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert report.failed[0].failure is not None
    assert len(report.failed[0].failure.message) <= 2000


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no second file system here")
async def test_lock_folder_on_another_file_system(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """Files could never be renamed from there into the folder; nothing is left behind."""
    elsewhere = Path("/dev/shm") / f"asyncfin-{os.getpid()}"
    elsewhere.mkdir()
    try:
        if elsewhere.stat().st_dev == folder.parent.stat().st_dev:
            pytest.skip("both folders are on one file system here")
        (folder.parent / "_night.journal").symlink_to(elsewhere)
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
async def test_full_disk_called_wherever_met(client: Client, small_disk: Path, left: int) -> None:
    """Whichever file meets it; a later run continues."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500 * 1024 - left))
    with pytest.raises(OSError, match=str(small_disk)) as raised:
        await extract(client, IDS, Select(), Annual(), to=small_disk / "night")
    assert raised.value.errno == errno.ENOSPC
    ballast.unlink()
    await extract(client, IDS, Select(), Annual(), to=small_disk / "night")
    assert rows(small_disk / "night") == annual(*FIRST)


async def test_random_damage_deletes_nothing_ends_error(tmp_path: Path) -> None:
    """Damage of the files or the lock's folder ends in one error or is repaired, and deletes no file."""
    outcome = await damage(10, 1, tmp_path)
    outcome.check()


async def test_question_corrected_after_run_without_rows(client: Client, folder: Path) -> None:
    """A file without rows keeps no other question out; one with rows does."""
    for _ in range(2):  # the first run ends after three entities, the second one reads all
        with pytest.raises(UnknownToAllError):
            await extract(client, IDS, Select(label="no such label"), Annual(), to=folder)
    report = await extract(client, IDS[:4], Select(), Annual(), to=folder)
    assert len(report.done) == 4
    assert names(folder) == sorted(f"{entity_id}.parquet" for entity_id in IDS)
    assert rows(folder) == annual(*FIRST[:4])
    with pytest.raises(ManifestMismatchError, match="another question"):
        await extract(client, IDS, Select(), Quarterly(), to=folder)
