"""Jobs in flight: bounded, as they come, the first failure as itself, and nothing left behind."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncfin.fanout.flight import in_flight
from tests.conftest import VirtualTimeLoop

pytestmark = pytest.mark.virtual


class Busy:
    """Jobs that wait, and count how many are under way."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = self.ended = 0

    async def job(self, name: int, seconds: float = 1) -> int:
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now -= 1
            self.ended += 1
        return name

    def jobs(self, count: int) -> list[Callable[[], Coroutine[Any, Any, int]]]:
        return [partial(self.job, name) for name in range(count)]


async def failing(error: BaseException, seconds: float = 0) -> int:
    await asyncio.sleep(seconds)
    raise error


async def taken(jobs: Sequence[Callable[[], Awaitable[int]]], limit: int) -> list[int]:
    async with in_flight(jobs, limit) as results:
        return [result async for result in results]


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
async def nothing_left() -> Any:
    """Whatever a test does: no task is left, and no exception is lost."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    before = others()
    yield
    assert others() <= before
    assert not lost


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 7])
async def test_every_job_gives_one_result(count: int, limit: int) -> None:
    """Also none at all, and with more room than jobs."""
    assert sorted(await taken(Busy().jobs(count), limit)) == list(range(count))


@pytest.mark.parametrize("limit", [1, 3])
async def test_at_most_so_many_are_under_way(limit: int) -> None:
    """And as many as may be."""
    busy = Busy()
    async with in_flight(busy.jobs(20), limit) as results:
        async for _ in results:
            await asyncio.sleep(0.1)
    assert busy.most == limit


async def test_a_consumer_that_stands_still_holds_back_the_jobs() -> None:
    """As many results wait as jobs may be under way, and each worker holds one more."""
    busy = Busy()
    async with in_flight(busy.jobs(50), 4) as results:
        await anext(results)
        await asyncio.sleep(1000)
        assert busy.begun == 4 + 4 + 1


async def test_results_come_as_soon_as_they_are_there() -> None:
    """In the order of their ends, not of their beginnings."""
    busy = Busy()
    jobs = [partial(busy.job, seconds, seconds) for seconds in (3, 1, 2)]
    assert await taken(jobs, 3) == [1, 2, 3]
    assert asyncio.get_running_loop().time() == pytest.approx(3)


async def test_the_first_failure_comes_as_itself_and_ends_the_others() -> None:
    """No group wraps it, and no job outlives it."""
    error, busy = KeyError("x"), Busy()
    with pytest.raises(KeyError) as caught:
        await taken([*busy.jobs(2), partial(failing, error, 0.5), *busy.jobs(3)], 3)
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert busy.now == 0
    assert busy.begun == 2


async def test_two_failures_at_once_are_one() -> None:
    """The first is raised, the second is not reported as lost."""
    jobs = [partial(failing, ValueError(name), 1) for name in "ab"]
    with pytest.raises(ValueError, match=r"^a$"):
        async with in_flight(jobs, 2) as results:
            await anext(results)


async def test_a_failure_drops_results_not_yet_taken() -> None:
    """What was asked for can't be whole any longer."""
    busy = Busy()
    async with in_flight([*busy.jobs(1), partial(failing, ValueError(), 2)], 2) as results:
        await asyncio.sleep(3)
        with pytest.raises(ValueError, match=r"^$"):
            await anext(results)


async def test_a_failure_while_the_block_is_left_is_not_lost_noise() -> None:
    """Whoever has left does not hear of it, and nobody else."""
    async with in_flight([partial(failing, ValueError())], 1):
        await asyncio.sleep(1)


@pytest.mark.parametrize("way", ["break", "raise"])
async def test_leaving_early_ends_all_jobs(way: str) -> None:
    """A break, or an error of the consumer, which stays the one that is raised."""
    busy = Busy()
    with pytest.raises(LookupError) if way == "raise" else nullcontext():
        async with in_flight(busy.jobs(9), 3) as results:
            async for _ in results:
                if way == "raise":
                    raise LookupError
                break
    assert busy.now == 0
    assert busy.begun == busy.ended < 9


@given(st.integers(1, 6), st.integers(1, 4), st.floats(0, 4))
def test_cancellation_at_any_moment_leaves_nothing(count: int, limit: int, moment: float) -> None:
    """All jobs have ended when the cancelled consumer has."""

    async def consume(busy: Busy) -> None:
        async with in_flight(busy.jobs(count), limit) as results:
            async for _ in results:
                await asyncio.sleep(0.3)

    async def cancelled() -> None:
        busy = Busy()
        task = asyncio.ensure_future(consume(busy))
        await asyncio.wait([task], timeout=moment)
        task.cancel()
        await asyncio.wait([task])
        assert busy.now == 0
        assert not others()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(cancelled())


async def test_being_cancelled_twice_still_waits_for_the_jobs() -> None:
    """A job that takes its time to end is not left alone."""
    ended = asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(10)
            ended.set()

    async def consume() -> None:
        async with in_flight([slow_to_end], 1) as results:
            await anext(results)

    task = asyncio.ensure_future(consume())
    for _ in range(3):
        await asyncio.sleep(1)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
async def test_a_failure_before_its_first_wait_is_raised_where_tasks_are_eager() -> None:
    """The job fails while the others are still being made."""
    busy = Busy()

    async def fails_at_once() -> int:
        raise LookupError

    loop: Any = asyncio.get_running_loop()
    loop.set_task_factory(getattr(asyncio, "eager_task_factory", None))
    with pytest.raises(LookupError):
        await taken([*busy.jobs(1), fails_at_once, *busy.jobs(5)], 4)
    assert busy.begun == busy.ended == 1


async def test_a_job_that_cancels_itself_is_no_silent_end() -> None:
    """A missing result never passes for a whole answer."""

    async def cancels() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await taken([cancels, *Busy().jobs(2)], 2)
