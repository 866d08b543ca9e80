"""Buckets shared by real processes, in real time: forks, budgets, and processes that are killed."""

import asyncio
import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, FileBucket, RedisBucket
from tests.cache.processes import check_ends, forks, start
from tests.shared_buckets import excess

pytestmark = forks


@pytest.fixture(params=["file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Return what makes buckets that share one state."""
    if request.param == "file":
        return partial(FileBucket, tmp_path / "bucket")
    return partial(RedisBucket, request.getfixturevalue("server").url, account=str(tmp_path))


async def acquire_forever(bucket: Any, pipe: int) -> None:
    """Write the time of each grant into a pipe, until the budget is used up."""

    async def work() -> None:
        while True:
            os.write(pipe, f"{await bucket.acquire()}\n".encode())

    await asyncio.gather(*(work() for _ in range(4)), return_exceptions=True)


def read_grants(pipe: int) -> list[float]:
    return [float(line) for line in os.read(pipe, 1_000_000).split()]


def test_budget_over_processes_is_exact(make: Callable[..., Any]) -> None:
    """Four children that were forked with a used bucket and its parent get sixty in all."""
    reader, writer = os.pipe()
    bucket = make(rate=500, burst=5, daily_budget=60)
    asyncio.run(bucket.acquire())
    check_ends([start(acquire_forever, bucket, writer) for _ in range(4)])
    assert len(read_grants(reader)) == 59
    with pytest.raises(AllowanceExhaustedError):
        asyncio.run(bucket.acquire())


def test_killed_process_blocks_nobody(make: Callable[..., Any]) -> None:
    """Thirty are killed at random moments; the state stays whole, and the pace of all holds."""
    chance, (reader, writer) = random.Random(7), os.pipe()
    rate, burst = 200, 2
    bucket, times = make(rate=rate, burst=burst), list[float]()

    async def acquire() -> float:
        async with asyncio.timeout(60):
            return float(await bucket.acquire())

    for _ in range(10):
        for child in [start(acquire_forever, bucket, writer) for _ in range(3)]:
            time.sleep(chance.uniform(0, 0.1))
            child.kill()
            child.join()
            times.append(asyncio.run(acquire()))
    grants = read_grants(reader)
    assert len(grants) > 100
    assert excess([*grants, *times], rate, burst) <= 2
