"""Damaged folders and full disks: nothing is deleted without need, and damaged files are read again."""

import errno
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncfin import Annual, Client, Select, extract
from tests.extraction.conftest import FIRST, IDS, annual, rows
from tools.checks.damage import damage


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
