"""Ending a pause or a used-up allowance that was not meant: `resume()` of the three buckets."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, BucketUnavailableError, TokenBucket
from tests.shared_buckets import RedisLine, file_bucket, wall_clock

pytestmark = pytest.mark.virtual


@pytest.fixture(params=["token", "file", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """What makes buckets; those of files and Redis share one state."""
    if request.param == "token":
        return lambda **settings: TokenBucket(**settings, clock=wall_clock)
    if request.param == "file":
        return lambda **settings: file_bucket(tmp_path / "bucket", **settings)
    line: RedisLine = request.getfixturevalue("line")
    return lambda **settings: line.bucket(str(tmp_path), **settings)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_used_up_allowance_is_lifted_and_spending_stays(make: Callable[..., Any]) -> None:
    async with aclosing(make(rate=10, burst=5, daily_budget=7)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        await bucket.exhaust(1e9)
        with pytest.raises(AllowanceExhaustedError):
            await bucket.acquire()
        await bucket.resume()
        stats = bucket.stats()
        assert (stats.exhausted_until, stats.spent_today, stats.rate) == (None, 3, 10)
        for _ in range(4):
            await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 7"):
            await bucket.acquire()


async def test_a_pause_is_lifted_for_requests_that_wait(make: Callable[..., Any]) -> None:
    """At once or within half a second; the rate stays, and there is no burst that the pause has saved up."""
    async with aclosing(make(rate=10, burst=3)) as bucket:
        await bucket.refused(sent_at=await bucket.acquire(), retry_after=3600)
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
        await asyncio.sleep(10)
        assert not any(each.done() for each in waiting)
        began = now()
        await bucket.resume()
        grants = await asyncio.gather(*waiting)
        assert (bucket.stats().paused_until, bucket.stats().rate) == (None, 10)
        assert min(grants) - began < 0.51
        assert max(grants) - min(grants) == pytest.approx(0.2, abs=0.01)


async def test_a_learned_rate_stays_when_its_pause_is_lifted(make: Callable[..., Any]) -> None:
    async with aclosing(make()) as bucket:
        await bucket.refused(sent_at=await bucket.acquire(), retry_after=9)
        rate = bucket.stats().rate
        began = now()
        await bucket.resume()
        assert await bucket.acquire() - began < 0.51
        assert bucket.stats().rate == pytest.approx(rate)


async def test_resuming_where_nothing_is_paused_changes_nothing(make: Callable[..., Any]) -> None:
    async with aclosing(make(rate=1, burst=2, daily_budget=9)) as bucket:
        for _ in range(2):
            await bucket.acquire()
        before = bucket.stats()
        await bucket.resume()
        after = bucket.stats()
        assert (after.level, after.spent_today) == (pytest.approx(before.level, abs=1e-6), 2)


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_another_process_resumes_and_does_not_impose_its_parameters(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """As `asyncfin status --resume` does, whose bucket has none: a waiting process goes on."""
    if kind == "file":
        one, other = file_bucket(tmp_path / "bucket", 4, 2), file_bucket(tmp_path / "bucket")
    else:
        line: RedisLine = request.getfixturevalue("line")
        one, other = line.bucket(str(tmp_path), rate=4, burst=2), line.bucket(str(tmp_path))
    async with aclosing(one), aclosing(other):
        await one.refused(sent_at=await one.acquire(), retry_after=3600)
        waiting = asyncio.ensure_future(one.acquire())
        await asyncio.sleep(10)
        began = now()
        await other.resume()
        assert await waiting - began < 0.51
        assert ((await other.inspect()).rate, (await one.inspect()).rate) == (4, 4)
    assert not caplog.records


async def test_a_server_that_is_away_cannot_be_resumed(line: RedisLine, tmp_path: Path) -> None:
    """It is an error also with a fallback, which is resumed."""
    fallback = TokenBucket(10, clock=wall_clock)
    async with aclosing(line.bucket(str(tmp_path), rate=10, fallback=fallback)) as bucket:
        await bucket.exhaust(3600)
        line.cut = True
        with pytest.raises(BucketUnavailableError):
            await bucket.resume()
        assert fallback.stats().exhausted_until is None
