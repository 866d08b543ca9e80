"""Buckets shared by real processes: shares, budgets, forks, and processes that are killed.

Time is real here, so the bounds are those that hold on a busy machine too.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, FileBucket, RedisBucket
from tests.shared_buckets import excess, grants_of_processes, make_bucket


@pytest.fixture(params=["file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Return what makes buckets that share one state."""
    if request.param == "file":
        return partial(make_bucket, "file", str(tmp_path / "bucket"))
    url = request.getfixturevalue("server").url
    return partial(RedisBucket, url, account=str(tmp_path))


HOLDER = """
import asyncio, sys
from asyncfin import AllowanceExhaustedError, FileBucket, RedisBucket

async def main():
    kind, place, account, rate = sys.argv[1:]
    settings = {"rate": float(rate), "burst": 2}
    file = kind == "file"
    bucket = FileBucket(place, **settings) if file else RedisBucket(place, account=account, **settings)
    await bucket.acquire()
    print("ready", flush=True)
    await asyncio.gather(*(without_end(bucket) for _ in range(8)))

async def without_end(bucket):
    while True:
        try:
            print(await bucket.acquire(), flush=True)
        except AllowanceExhaustedError:
            await asyncio.sleep(0.01)

asyncio.run(main())
"""


def test_budget_over_processes_is_exact(make: Callable[..., Any]) -> None:
    """Four of them, sixty in all."""
    grants = grants_of_processes(partial(make, rate=500, burst=5, daily_budget=60), [1] * 4, 60)
    assert sum(map(len, grants)) == 60


def test_bucket_survives_fork(make: Callable[..., Any]) -> None:
    """Parent and child share the state, and no descriptor or connection."""
    bucket = make(rate=1000, burst=10, daily_budget=3)
    asyncio.run(bucket.acquire())
    if not (child := os.fork()):
        try:
            asyncio.run(bucket.acquire())
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    asyncio.run(bucket.acquire())
    with pytest.raises(AllowanceExhaustedError):
        asyncio.run(bucket.acquire())


@asynccontextmanager
async def holders(
    kind: str, place: str, account: str, rate: float, count: int = 1
) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Give processes that acquire without end, each of which has been granted once, and end them."""
    arguments = (sys.executable, "-c", HOLDER, kind, place, account, str(rate))
    started = [await asyncio.create_subprocess_exec(*arguments, stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for each in started:
            assert each.stdout is not None
            await each.stdout.readline()
        yield started
    finally:
        for each in started:
            if each.returncode is None:
                each.kill()
        await asyncio.gather(*(each.wait() for each in started))


def placed(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[str, Any]:
    """Return where the state of a kind is, and what makes buckets there."""
    if kind == "file":
        return str(tmp_path / "bucket"), partial(FileBucket, tmp_path / "bucket")
    url = request.getfixturevalue("server").url
    return url, partial(RedisBucket, url, account=str(tmp_path))


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_killed_process_blocks_nobody(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Three are killed in their work; the state stays whole and the pace holds."""
    # Seconds of real time: the processes are real ones, and each has a clock of the machine.
    place, make = placed(kind, tmp_path, request)
    chance, grants = random.Random(7), list[float]()
    async with (
        holders(kind, place, str(tmp_path), 50, 3) as others,
        aclosing(make(rate=50, burst=2)) as bucket,
    ):
        for each in others:
            await asyncio.sleep(chance.uniform(0, 0.1))
            each.kill()
            async with asyncio.timeout(60):
                grants += [await bucket.acquire() for _ in range(3)]
    assert len(grants) == 9
    assert excess(grants, 50, 2) <= 2
