"""Other processes, forked from the test, that use the same cache."""

import asyncio
import multiprocessing
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from asyncfin.cache.file import FileCache
from tests.cache.stored import DATASET, ENTITY, TOKEN, URL, blocks, content

CONTEXT = multiprocessing.get_context("fork")
Work = Callable[..., Coroutine[Any, Any, None]]
# Python 3.12 warns where a thread of the test runner is alive.
forks = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


def start(work: Work, *arguments: Any) -> BaseProcess:
    """Begin something in another process, whose exit code is 0 if it succeeds."""
    process = CONTEXT.Process(target=_run, args=(work, *arguments))
    process.start()
    return process


def run(work: Work, *arguments: Any) -> None:
    """Do something in another process, which must succeed."""
    check_ends([start(work, *arguments)])


def check_ends(processes: Sequence[BaseProcess]) -> None:
    """Wait until all have ended, as they should."""
    for process in processes:
        process.join(100)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def _run(work: Work, *arguments: Any) -> None:
    asyncio.run(work(*arguments))


def files_of(path: Path) -> list[Path]:
    """Return the records and parts of a cache."""
    return sorted(file for file in path.glob("*/**/*") if not file.is_dir())


async def put_each(cache: FileCache, numbers: Sequence[int]) -> set[str]:
    """Store series one by one, and return the ids of all that are stored."""
    part = cache.partition(URL, TOKEN)
    for number in numbers:
        await part.put_blocks(ENTITY, DATASET, "original", blocks(number))
    return set(content(await part.blocks(ENTITY, DATASET, "original")))
