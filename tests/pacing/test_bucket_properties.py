"""Random use: the grants that are used keep the rate, whatever becomes of the others."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from asyncfin.pacing.bucket import TokenBucket
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.shared_buckets import RedisLine, excess, file_bucket

RATE, BURST = 2.0, 2
# Seconds before a request, its process, its lane, and what becomes of its grant.
REQUEST = st.tuples(
    st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.3]),
    st.integers(0, 1),
    st.sampled_from(["interactive", "bulk"]),
    st.sampled_from(["used", "used", "unsent", "returned", "rejected", "left"]),
)
NOW = (0.0, 0, "interactive")
FULL = [(*NOW, "used"), (*NOW, "returned"), *[(*NOW, "used")] * 3]


async def list_used(buckets: list[Any], requests: list[Any]) -> tuple[list[float], list[float]]:
    """Return the times of the grants that were not given back, and the ends of the pauses."""
    loop, times, ends = asyncio.get_running_loop(), list[float](), list[float]()

    async def send(bucket: Any, lane: str, outcome: str) -> None:
        async with asyncio.timeout(0.4 if outcome == "left" else None):
            sent_at = await bucket.acquire(lane=lane)
        if outcome == "returned":
            await bucket.give_back()
            return
        times.append(sent_at)
        if outcome == "unsent":
            await bucket.unspend(sent_at=sent_at)
        elif outcome == "rejected":
            await bucket.refused(sent_at=sent_at, retry_after=0.7)
            ends.append(loop.time() + 0.7)

    tasks = []
    for seconds, process, lane, outcome in requests:
        await asyncio.sleep(seconds)
        tasks.append(asyncio.create_task(send(buckets[process], lane, outcome)))
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), TimeoutError}
    for bucket in buckets:
        async with asyncio.timeout(1.5):
            times.append(await bucket.acquire())
        assert bucket.stats().waiting == {"interactive": 0, "bulk": 0}
    for bucket in buckets:
        await bucket.aclose()
    return times, ends


@pytest.mark.parametrize("kind", ["token", "file", "redis"])
def test_used_grants_keep_the_rate(kind: str, request: pytest.FixtureRequest) -> None:
    """Of two processes, whatever is returned or left; none in a pause, no burst after it, nobody waits on."""
    line: RedisLine | None = request.getfixturevalue("line") if kind == "redis" else None

    def make_buckets(place: str) -> list[Any]:
        if kind == "token":
            return [TokenBucket(RATE, BURST)] * 2
        if line is None:
            return [file_bucket(Path(place, "state"), RATE, BURST) for _ in range(2)]
        return [line.bucket(place, rate=RATE, burst=BURST) for _ in range(2)]

    @settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
    @given(st.lists(REQUEST, min_size=3, max_size=12))
    @example(FULL)
    def check(requests: list[Any]) -> None:
        loop = asyncio.Runner(loop_factory=VirtualTimeLoop)
        with TemporaryDirectory(suffix=uuid4().hex) as folder, loop as runner:
            times, ends = runner.run(list_used(make_buckets(folder), requests))
        assert excess(times, RATE, BURST) < 1e-3
        for end in ends:
            later = sorted(time for time in times if time > end - 0.69)
            assert all(time > end - 0.01 for time in later)
            assert all(index <= RATE * (time - end) + 0.1 for index, time in enumerate(later))

    check()
