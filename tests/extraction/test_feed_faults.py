"""Runs that are killed, or find the disk full, at any step: the next one loses and repeats nothing.

ASYNCFIN_STEPS=1 takes every step. By default every fifth one is taken: of every third one, most would be of
one kind.
"""

import asyncio
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client, as_of, read_changes
from asyncfin.sandbox import Sandbox
from tests.extraction.steps import at_step, full, in_child, kill
from tests.extraction.test_feed import Nights, files, in_files, rows
from tests.nights import BEGIN, Cell, Content, Key, changes_in, entity, publication

REVENUE, COST = Key("S-1"), Key("S-2", "Cost")
CONTENTS: tuple[Content, ...] = (
    {REVENUE: {"FY2020": Cell(1), "FY2021": Cell(2)}},
    {REVENUE: {"FY2020": Cell(3), "FY2021": Cell(2)}, COST: {"FY2021": Cell(4)}},
    {REVENUE: {"FY2020": Cell(5)}, COST: {"FY2021": Cell(4)}},
)
ALL = tuple(entity(number) for number in (1, 2, 3))
# The exit code of a run that ended before the step was reached.
ENDED = 7
EVERY = int(os.environ.get("ASYNCFIN_STEPS", "5"))


async def night(folder: Path, number: int) -> None:
    """Run a night over three companies; from the second on, the third one has left the list."""
    publications = (
        publication(
            CONTENTS[number], number=10 * number + at, of=each, created=BEGIN + timedelta(days=number)
        )
        for at, each in enumerate(ALL)
    )
    async with Sandbox(*publications) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        nights = Nights(sandbox, client, folder)
        nights.now += timedelta(days=number)
        await nights.run(ALL[: 3 if number == 0 else 2], history=True, prune=number > 0)


def check(folder: Path, expected: object) -> None:
    """Nothing is pending, nothing appears twice, and the state is that of the files."""
    changes = read_changes(folder)
    assert changes_in(changes) == expected
    check_files(folder, changes)


def check_files(folder: Path, changes: Any) -> None:
    assert rows(as_of(folder, "2999-01-01")) == in_files(folder)
    assert not [name for name in files(folder.parent) if name.endswith(".part")]
    head = folder.parent / "_night.changes" / "head"
    assert head.read_text().split()[0] == max(changes.column("run").to_pylist())


@pytest.mark.parametrize("number", [0, 1])
def test_killed_at_any_step(tmp_path: Path, number: int) -> None:
    """SIGKILL before a change to the disk; the same command again ends as if it had not happened."""
    codes = _at_any_step(tmp_path, number, kill)
    assert set(codes) == {-9}


def test_the_disk_full_at_any_step(tmp_path: Path) -> None:
    """One error at most, and what is in place is whole; the same command again ends it."""
    codes = _at_any_step(tmp_path, 1, full, first=2)
    assert set(codes) <= {0, 1}
    assert codes.count(1) > 3


def _at_any_step(tmp_path: Path, number: int, act: Callable[[], None], first: int = 1) -> list[int]:
    """Run a night that fails at this step, then one that fails at a later one, and so on to the last."""
    before, whole = tmp_path / "before" / "night", tmp_path / "whole" / "night"
    for folder, count in ((before, number), (whole, number + 1)):
        folder.parent.mkdir()
        for at in range(count):
            asyncio.run(night(folder, at))
    expected = changes_in(read_changes(whole))
    check(whole, expected)
    was = changes_in(read_changes(before)) if number else []
    codes: list[int] = []
    while True:
        folder = tmp_path / "failed" / "night"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(before.parent, folder.parent)

        def work(step: int = first + len(codes) * EVERY, folder: Path = folder) -> int:
            with at_step(folder.parent, step, act) as count:
                asyncio.run(night(folder, number))
                return 0 if count() >= step else ENDED

        code = in_child(work)
        if code == ENDED:
            return codes
        codes.append(code)
        if number:
            # Before the next run completes it, it has its changes as a whole, or none of them.
            assert changes_in(read_changes(folder)) in (was, expected)
        asyncio.run(night(folder, number))
        check(folder, expected)
