"""A generator's items, one step at a time, of which a cancelled step loses none."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from asyncfin.wire.ending import end

T = TypeVar("T")


@asynccontextmanager
async def steps_of(generator: AsyncGenerator[T, None]) -> AsyncIterator[AsyncIterator[T]]:
    """Give what a generator yields, and close it at the end of the block.

    A step that is cancelled, as by a timeout, goes on, and the next one takes what it brings: a generator
    that is cancelled itself ends, which would pass for the end of what it has to give.
    """
    steps = _Steps(generator)
    try:
        yield steps
    finally:
        await end(steps.under_way)
        await generator.aclose()


class _Steps(Generic[T]):
    def __init__(self, generator: AsyncGenerator[T, None]) -> None:
        self._generator = generator
        self._turn = asyncio.Lock()
        self.under_way: list[asyncio.Task[T]] = []

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        async with self._turn:
            if not self.under_way:
                self.under_way.append(asyncio.ensure_future(self._step()))
            await asyncio.wait(self.under_way)
            return self.under_way.pop().result()

    async def _step(self) -> T:
        return await anext(self._generator)
