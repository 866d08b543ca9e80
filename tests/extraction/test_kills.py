"""SIGKILL, and what the next run makes of it."""

from pathlib import Path

from tools.checks.crash import crash


async def test_run_survives_repeated_kills(tmp_path: Path) -> None:
    """Equal row for row, nothing stray, and only what was in progress is asked again."""
    outcome = await crash(2, 1, tmp_path)
    assert (outcome.kills, outcome.on_disk) == (2, 1)
    outcome.check()
