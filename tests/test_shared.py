"""Shared readings: one a key, left to the others by whoever goes, ended by the last one."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncfin.wire.shared import SharedReads
from tests.conftest import VirtualTimeLoop

pytestmark = pytest.mark.virtual


class Reading:
    """A reading of ten seconds that counts its runs; from the second `failing` on it raises instead."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.begun = self.ended = 0
        self.error = error

    async def __call__(self) -> int:
        self.begun += 1
        run = self.begun
        try:
            await asyncio.sleep(10)
            if self.error is not None:
                raise self.error
        finally:
            self.ended += 1
        return run


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


def start(awaitable: Awaitable[int]) -> asyncio.Future[int]:
    return asyncio.ensure_future(awaitable)


@pytest.fixture
def reads() -> SharedReads[str, int]:
    return SharedReads()


@pytest.fixture(autouse=True)
async def nothing_left(reads: SharedReads[str, int]) -> Any:
    """Whatever a test does: no task is left, no exception is lost, and nothing is remembered."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    before = others()
    yield
    assert others() <= before
    assert not lost
    assert not reads._under_way


async def test_all_who_ask_meanwhile_share_one_reading(reads: SharedReads[str, int]) -> None:
    """It runs once, and each gets its result."""
    read = Reading()
    assert await asyncio.gather(*(reads.share("a", read) for _ in range(5))) == [1] * 5
    assert read.begun == 1


async def test_who_asks_afterwards_begins_anew(reads: SharedReads[str, int]) -> None:
    """A result is shared, not kept."""
    read = Reading()
    assert [await reads.share("a", read), await reads.share("a", read)] == [1, 2]


async def test_different_keys_are_read_at_the_same_time(reads: SharedReads[str, int]) -> None:
    """One does not wait for the other."""
    read = Reading()
    assert await asyncio.gather(reads.share("a", read), reads.share("b", read)) == [1, 2]
    assert asyncio.get_running_loop().time() == pytest.approx(10)


async def test_a_failure_reaches_all_as_itself_and_is_not_kept(reads: SharedReads[str, int]) -> None:
    """The next one to ask begins anew."""
    error = KeyError("x")
    outcomes = await asyncio.gather(
        *(reads.share("a", Reading(error)) for _ in range(3)), return_exceptions=True
    )
    assert all(outcome is error for outcome in outcomes)
    assert await reads.share("a", Reading()) == 1


async def test_a_cancelled_leader_leaves_the_reading_to_its_followers(reads: SharedReads[str, int]) -> None:
    """It is not begun again."""
    read = Reading()
    leader, follower = start(reads.share("a", read)), start(reads.share("a", read))
    await asyncio.sleep(5)
    leader.cancel()
    await asyncio.wait([leader])
    assert leader.cancelled()
    assert await follower == 1
    assert read.begun == 1


async def test_a_cancelled_follower_changes_nothing(reads: SharedReads[str, int]) -> None:
    """Neither for the leader nor for who asks later."""
    read = Reading()
    leader, follower = start(reads.share("a", read)), start(reads.share("a", read))
    await asyncio.sleep(5)
    follower.cancel()
    assert await reads.share("a", read) == await leader == 1


async def test_the_last_one_to_go_ends_the_reading(reads: SharedReads[str, int]) -> None:
    """And waits for its end, so that nothing runs on for nobody."""
    read = Reading()
    both = [start(reads.share("a", read)) for _ in range(2)]
    await asyncio.sleep(5)
    for each in both:
        each.cancel()
    await asyncio.wait(both)
    assert (read.begun, read.ended) == (1, 1)
    assert not others()


async def test_who_asks_while_a_forsaken_reading_ends_begins_anew(reads: SharedReads[str, int]) -> None:
    """A reading that was cancelled is nobody's answer."""

    async def slow_to_end() -> int:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(10)
        return 0

    forsaken = start(reads.share("a", slow_to_end))
    await asyncio.sleep(5)
    forsaken.cancel()
    await asyncio.sleep(1)
    assert not forsaken.done()
    assert await reads.share("a", Reading()) == 1
    await asyncio.wait([forsaken])


async def test_a_forsaken_reading_that_fails_while_it_ends_is_not_noise(reads: SharedReads[str, int]) -> None:
    """Nobody waits for its error, so nobody is told of it."""

    async def fails_to_end() -> int:
        try:
            await asyncio.sleep(10)
        finally:
            raise KeyError("x")
        return 0

    forsaken = start(reads.share("a", fails_to_end))
    await asyncio.sleep(5)
    forsaken.cancel()
    await asyncio.wait([forsaken])
    assert forsaken.cancelled()


async def test_being_cancelled_twice_still_waits_for_the_end(reads: SharedReads[str, int]) -> None:
    """A reading that takes its time to end is not left alone."""

    async def slow_to_end() -> int:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(10)
        return 0

    forsaken = start(reads.share("a", slow_to_end))
    for _ in range(3):
        await asyncio.sleep(1)
        forsaken.cancel()
    await asyncio.wait([forsaken])
    assert not others()


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=6))
def test_any_comings_and_goings_share_as_much_as_can_be(visits: list[tuple[int, int]]) -> None:
    """Whoever stays ten seconds gets a result; at no time do two readings run, nor one for nobody."""

    async def visit(reads: SharedReads[str, int], read: Reading, come: int, stay: int) -> bool:
        await asyncio.sleep(come)
        try:
            async with asyncio.timeout(stay + 0.5):
                await reads.share("a", read)
        except TimeoutError:
            return False
        return True

    async def scene() -> None:
        reads: SharedReads[str, int] = SharedReads()
        read = Reading()
        visitors = [start(visit(reads, read, *each)) for each in visits]
        await asyncio.sleep(0.1)  # to look between the comings and goings
        while not all(visitor.done() for visitor in visitors):
            await asyncio.sleep(0.25)
            assert read.begun - read.ended == min(1, sum(each.waiting for each in reads._under_way.values()))
        served = [await visitor for visitor in visitors]
        assert all(got for got, (_, stay) in zip(served, visits, strict=True) if stay >= 10)
        assert not reads._under_way
        assert not others()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scene())
