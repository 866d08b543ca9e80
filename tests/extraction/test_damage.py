"""Damaged folders and full disks: nothing is deleted without need, and damaged files are read again."""

from pathlib import Path

from tools.checks.damage import damage


async def test_random_damage_deletes_nothing_ends_error(tmp_path: Path) -> None:
    """Damage of the files or the lock's folder ends in one error or is repaired, and deletes no file."""
    outcome = await damage(10, 1, tmp_path)
    outcome.check()
