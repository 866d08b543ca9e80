"""What every bucket promises: used grants never exceed burst + rate x seconds."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from asyncfin import TokenBucket
from asyncfin.pacing.bucket import Bucket
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.shared_buckets import RedisLine, excess, file_bucket

RATE, BURST = 2.0, 2
# Seconds before a request, its process, and what becomes of its grant.
REQUEST = st.tuples(
    st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.3]),
    st.integers(0, 1),
    st.sampled_from(["used", "unsent", "returned"]),
)
FILLED = [(0.0, 0, "used"), (0.0, 0, "returned"), *[(0.0, 1, "used")] * 3]


async def list_used(buckets: list[Bucket], requests: list[Any]) -> list[float]:
    """Return the times of the grants that were not given back."""
    times = []

    async def send(bucket: Bucket, outcome: str) -> None:
        sent_at = await bucket.acquire()
        if outcome == "returned":
            await bucket.give_back()
            return
        times.append(sent_at)
        if outcome == "unsent":
            await bucket.unspend(sent_at=sent_at)

    tasks = []
    for seconds, process, outcome in requests:
        await asyncio.sleep(seconds)
        bucket = buckets[process % len(buckets)]
        tasks.append(asyncio.create_task(send(bucket, outcome)))
    await asyncio.gather(*tasks)
    for bucket in buckets:
        await bucket.aclose()
    return times


@pytest.mark.parametrize("kind", ["token", "file", "redis"])
def test_used_grants_keep_the_rate(kind: str, line: RedisLine) -> None:
    """In any stretch of time, whatever is returned at once, also by two processes."""

    def make_buckets(folder: str) -> list[Bucket]:
        if kind == "token":
            return [TokenBucket(RATE, BURST)]
        if kind == "file":
            return [file_bucket(Path(folder, "state"), RATE, BURST) for _ in range(2)]
        account = uuid4().hex
        return [line.bucket(account, rate=RATE, burst=BURST) for _ in range(2)]

    @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
    @given(st.lists(REQUEST, min_size=3, max_size=12))
    @example(FILLED)
    def check(requests: list[Any]) -> None:
        with (
            TemporaryDirectory() as folder,
            asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
        ):
            times = runner.run(list_used(make_buckets(folder), requests))
        assert excess(times, RATE, BURST) < 1e-3

    check()
