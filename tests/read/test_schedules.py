"""Shared calls in random schedules: tasks that are ready at the same time run in any order."""

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from asyncfin import ServerFailureError
from asyncfin.tasks import SingleFlight
from tests import examples
from tests.conftest import VirtualTimeLoop

# ASYNCFIN_SCHEDULES=20000 runs more.
SCHEDULES = int(os.environ.get("ASYNCFIN_SCHEDULES", examples(300)))
Caller = Callable[[], Coroutine[Any, Any, object]]


class PermutedLoop(VirtualTimeLoop):
    """A loop in virtual time that permutes the steps of tasks which are ready."""

    def __init__(self, source: Random) -> None:
        self._source = source
        self.reported: list[dict[str, Any]] = []
        super().__init__()
        self.set_exception_handler(lambda _, context: self.reported.append(context))

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        # Other callbacks keep their order, which asyncio promises.
        places = [place for place, each in enumerate(ready) if _is_step(each)]
        steps = [ready[place] for place in places]
        self._source.shuffle(steps)
        for place, step in zip(places, steps, strict=True):
            ready[place] = step
        super()._run_once()  # type: ignore[misc]


def _is_step(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


async def visit(source: Random, caller: Caller) -> list[object]:
    """Return how some callers end that come at random moments; some are cancelled at others, and left out."""
    tasks, cancelled = list[asyncio.Task[object]](), set[asyncio.Task[object]]()

    def cancel(task: asyncio.Task[object]) -> None:
        if task.cancel():
            cancelled.add(task)

    for _ in range(source.randint(2, 6)):
        await asyncio.sleep(source.choice((0, 0, 1)))
        tasks.append(asyncio.ensure_future(caller()))
        if source.random() < 0.5:
            asyncio.get_running_loop().call_later(source.choice((0, 0, 1, 2)), cancel, source.choice(tasks))
    await asyncio.wait(tasks)
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [end for end, task in zip(ends, tasks, strict=True) if task not in cancelled]


def run(loop: PermutedLoop, source: Random, caller: Caller) -> list[object]:
    """Return how the callers end; what a loop reports as an error that was never looked at fails."""
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        ends = runner.run(visit(source, caller))
        gc.collect(0)
        assert loop.reported == []
    for end in ends:
        assert not isinstance(end, BaseException) or isinstance(end, ServerFailureError), repr(end)
    return ends


async def work(source: Random) -> None:
    """Take some time, and fail at times."""
    await asyncio.sleep(source.choice((0, 1, 2)))
    if source.random() < 0.3:
        raise ServerFailureError(status=503)


def share_one_call(seed: int) -> None:
    source, calls = Random(seed), SingleFlight[str, int]()

    async def call() -> int:
        await work(source)
        return 7

    ends = run(PermutedLoop(source), source, lambda: calls.share("key", call))
    assert calls._calls == {}
    assert {each for each in ends if isinstance(each, int)} <= {7}


@pytest.mark.parametrize("begin", range(0, SCHEDULES, 500))
def test_shared_call_reaches_each_caller(begin: int) -> None:
    """However its callers come, leave and are cancelled: all others get the result or the error."""
    for seed in range(begin, min(begin + 500, SCHEDULES)):
        share_one_call(seed)
