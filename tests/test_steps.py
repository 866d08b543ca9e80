"""A generator's items, step by step: a cancelled step loses nothing, and nothing is left behind."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from asyncfin.fanout.steps import steps_of

pytestmark = pytest.mark.virtual


class Counting:
    """A generator of numbers, one a second, that knows whether it was closed."""

    def __init__(self, count: int) -> None:
        self.closed = False
        self.numbers = self._numbers(count)

    async def _numbers(self, count: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(count):
                await asyncio.sleep(1)
                yield number
        finally:
            await asyncio.sleep(1)
            self.closed = True


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def test_a_step_that_ran_out_of_time_loses_nothing() -> None:
    """The next one waits on for what it had begun; the end comes when all was given."""
    came: list[int] = []
    late = 0
    async with steps_of(Counting(3).numbers) as steps:
        while True:
            try:
                came.append(await asyncio.wait_for(anext(steps), 0.4))
            except TimeoutError:
                late += 1
            except StopAsyncIteration:
                break
    assert came == [0, 1, 2]
    assert late > 3


@pytest.mark.parametrize("turns", range(8))
async def test_an_item_that_comes_while_its_step_is_cancelled_is_kept(turns: int) -> None:
    """In whatever turn of the loop the two meet."""

    async def three() -> AsyncGenerator[int, None]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async with steps_of(three()) as steps:
        waiting = asyncio.ensure_future(anext(steps))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        came = [] if waiting.cancelled() else [waiting.result()]
        assert [*came, *[number async for number in steps]] == [0, 1, 2]


async def test_several_consumers_share_the_items() -> None:
    """Each item goes to one of them."""

    async def consume() -> list[int]:
        return [item async for item in steps]

    async with steps_of(Counting(7).numbers) as steps:
        shares = await asyncio.gather(consume(), consume(), consume())
    assert sorted(item for share in shares for item in share) == list(range(7))


@pytest.mark.parametrize("moment", [0.5, 1.5, 9])
async def test_leaving_closes_the_generator(moment: float) -> None:
    """Within a step, between two, and after the last; whoever is cancelled while leaving waits for it."""
    before, counting = others(), Counting(3)

    async def consume() -> None:
        async with steps_of(counting.numbers) as steps:
            async for _ in steps:
                pass
            await asyncio.sleep(100)

    task = asyncio.ensure_future(consume())
    await asyncio.sleep(moment)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert counting.closed
    assert others() <= before


async def test_an_error_comes_out_as_itself() -> None:
    """Once; the generator has ended with it."""

    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise LookupError

    async with steps_of(failing()) as steps:
        assert await anext(steps) == 1
        with pytest.raises(LookupError):
            await anext(steps)
        with pytest.raises(StopAsyncIteration):
            await anext(steps)
