"""The one worker thread of an extraction: files and journal are written there, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Thread:
    """Runs calls one at a time, in the order of asking; a call that has begun always ends.

    Leaving the block waits for the call under way, also when that is cancelled, and drops the others.
    """

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(1, "asyncfin-extract")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.last(lambda: None)
        finally:
            self._worker.shutdown(wait=False)

    async def run(self, call: Callable[[], T]) -> T:
        """Return what a call returns, or raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)

    async def last(self, call: Callable[[], T]) -> T:
        """Likewise, and wait for its end however often this is cancelled."""
        future = asyncio.ensure_future(self.run(call))
        cancelled = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            future.exception()
            raise cancelled
        return future.result()
