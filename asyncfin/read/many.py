"""The answers of many entities: which are begun when, and whose requests go first."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from copy import copy
from heapq import heappop, heappush
from itertools import count
from typing import Any

from asyncfin.errors import AsyncfinError, ends_all
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer, answer_of
from asyncfin.read.reads import Reads
from asyncfin.read.turn import Turn, mark_ended
from asyncfin.tasks import cancel_and_wait, running_loop

EntityIds = Iterable[str] | AsyncIterable[str]
# How long a place is kept for an entity that is decoding or planning between two requests.
_KEPT_SECONDS = 1.0


class Turns:
    """Bounds the requests of several entities together; those of the entity begun first go first.

    `waits` is that of `ends_all`.
    """

    def __init__(self, limit: int, *, waits: bool) -> None:
        self._free = limit
        self._waits = waits
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []  # a heap
        self._order = count()
        self._sending: Counter[int] = Counter()
        # Otherwise a later entity would take the place at once, and all would advance together: when an
        # allowance ends, little would be complete.
        self._kept: dict[int, asyncio.TimerHandle] = {}
        self._failure: AsyncfinError | None = None

    @asynccontextmanager
    async def of(self, number: int) -> AsyncIterator[None]:
        """Wait for the turn of a request of the entity with this number.

        After an error that would fail every other request too, each further turn is that error.
        """
        await self._wait(number)
        self._sending[number] += 1
        try:
            yield
        except AsyncfinError as error:
            if ends_all(error, waits=self._waits):
                self._close(error)
            raise
        finally:
            self._sending[number] -= 1
            is_idle = not self._sending[number]
            if is_idle:
                del self._sending[number]
            if is_idle and number not in self._kept and self._waiting and self._waiting[0][0] > number:
                loop = asyncio.get_running_loop()
                self._kept[number] = loop.call_later(_KEPT_SECONDS, self.end, number)
            else:
                self._give()

    def turn_of(self, number: int, turn: Turn) -> Turn:
        """Return a turn that waits for that of the entity, and then for the caller's."""

        @asynccontextmanager
        async def in_order() -> AsyncIterator[Callable[[], bool] | None]:
            async with self.of(number), turn() as may_retry:
                yield may_retry

        return in_order

    def end(self, number: int) -> None:
        """Give the place that is kept for an entity, if any, to the next one."""
        if (timer := self._kept.pop(number, None)) is not None:
            timer.cancel()
            self._give()

    async def _wait(self, number: int) -> None:
        if self._failure is not None:
            raise self._failure
        if (timer := self._kept.pop(number, None)) is not None:
            timer.cancel()
            return
        if self._free:
            self._free -= 1
            return
        waiting = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (number, next(self._order), waiting))
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                self._give()
            raise

    def _close(self, failure: AsyncfinError) -> None:
        self._failure = failure = copy(failure)
        # It is about another request: questions that share one which is not sent for it send that themselves.
        mark_ended(failure)
        while self._waiting:
            _, _, waiting = heappop(self._waiting)
            if not waiting.done():
                waiting.set_exception(failure)

    def _give(self) -> None:
        """Give a place to the waiting request of the entity begun first."""
        while self._waiting:
            _, _, waiting = heappop(self._waiting)
            if not waiting.done():
                waiting.set_result(None)
                return
        self._free += 1


@asynccontextmanager
async def answers_of(
    reads: Reads,
    entity_ids: EntityIds,
    question_of: Callable[[str], Question],
    *,
    ahead: int | None = None,
    turn: Turn = nullcontext,
) -> AsyncIterator[AsyncIterator[EntityAnswer]]:
    """Read entities and yield an iterator of their answers as they finish, as `Client.query_many` says.

    `question_of` returns the question to an entity, with `known_only`. `ahead` bounds the entities begun
    beyond those that the consumer has received; None: as many as there may be requests in flight.
    """
    running_loop()  # before a coroutine is made
    answers = _Answers(reads, entity_ids, question_of, ahead or reads.limit, turn)
    try:
        yield answers
    finally:
        await answers.aclose()


class _Answers:
    def __init__(
        self,
        reads: Reads,
        entity_ids: EntityIds,
        question_of: Callable[[str], Question],
        ahead: int,
        turn: Turn,
    ) -> None:
        self._reads = reads
        self._question_of = question_of
        self._turn = turn
        self._turns = Turns(reads.limit, waits=reads.waits)
        self._places = asyncio.Semaphore(ahead)  # one for each entity begun and not yet received
        self._finished: deque[EntityAnswer] = deque()
        self._failure: BaseException | None = None  # what ends the iteration early
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._beginner = self._start(self._begin(entity_ids))

    def __aiter__(self) -> AsyncIterator[EntityAnswer]:
        return self

    async def __anext__(self) -> EntityAnswer:
        while not self._finished:
            if not self._tasks:
                raise self._failure or StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        self._places.release()
        return self._finished.popleft()

    async def aclose(self) -> None:
        """Cancel what still runs and wait for its end; answers not yet received are dropped."""
        self._failure = StopAsyncIteration()
        self._finished.clear()
        await cancel_and_wait(list(self._tasks))

    async def _begin(self, entity_ids: EntityIds) -> None:
        """Begin one entity after the other, each when there is a place for it."""
        async with aclosing(_distinct(entity_ids)) as ids:
            await self._places.acquire()
            number = 0
            async for entity_id in ids:
                if self._failure is not None:  # a source of ids may ignore its cancellation
                    return
                self._start(self._answer(entity_id, number))
                number += 1
                await self._places.acquire()

    async def _answer(self, entity_id: str, number: int) -> None:
        try:
            question = self._question_of(entity_id)
            answer = await answer_of(
                self._reads,
                question,
                [question.value_version],
                operation="query",
                turn=self._turns.turn_of(number, self._turn),
            )
        except AsyncfinError as error:
            if ends_all(error, waits=self._reads.waits):
                raise
            # Without its traceback, whose frames would keep everything that was read of the entity.
            answer = EntityAnswer(entity_id, None, error=error.with_traceback(None))
        finally:
            self._turns.end(number)
        self._finished.append(answer)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end)
        return task

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._changed.set()
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None or self._failure is not None:
            return
        self._failure = error
        # If the source of ids fails, the entities begun are still read.
        if task is self._beginner:
            return
        if isinstance(error, AsyncfinError):
            self._beginner.cancel()
        else:
            for other in self._tasks:
                other.cancel()


async def _distinct(entity_ids: EntityIds) -> AsyncGenerator[str, None]:
    """Yield each id once. An async generator is closed at the end: the loop would close it in a task."""
    seen: set[str] = set()

    def is_new(entity_id: object) -> bool:
        if not isinstance(entity_id, str):  # refused when it is read
            return True
        known = entity_id in seen
        seen.add(entity_id)
        return not known

    if not isinstance(entity_ids, AsyncIterable):
        for entity_id in filter(is_new, entity_ids):
            yield entity_id
        return
    async with AsyncExitStack() as stack:
        if isinstance(entity_ids, AsyncGenerator):
            await stack.enter_async_context(aclosing(entity_ids))
        async for entity_id in entity_ids:
            if is_new(entity_id):
                yield entity_id
