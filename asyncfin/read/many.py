"""The answers of many entities, as they finish."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

from asyncfin.errors import AsyncfinError, ends_all
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer
from asyncfin.read.publications import Publications
from asyncfin.read.query import read_question
from asyncfin.tasks import cancel_and_wait, running_loop

EntityIds = Iterable[str] | AsyncIterable[str]


@asynccontextmanager
async def read_many(
    publications: Publications,
    entity_ids: EntityIds,
    question_of: Callable[[str], Question],
    *,
    ahead: int | None = None,
) -> AsyncIterator[AsyncIterator[EntityAnswer]]:
    """Read entities and yield an iterator of their answers as they finish, as
    `Client.query_many` says.

    `question_of` returns the question to an entity, with `allow_missing`. `ahead`
    bounds the entities begun beyond those that the consumer has received; None: as
    many as there may be requests in flight.
    """
    running_loop()  # before a coroutine is made
    answers = _Answers(
        publications, entity_ids, question_of, ahead or publications.limit
    )
    try:
        yield answers
    finally:
        await answers.aclose()


class _Answers:
    def __init__(
        self,
        publications: Publications,
        entity_ids: EntityIds,
        question_of: Callable[[str], Question],
        ahead: int,
    ) -> None:
        self._publications = publications
        self._question_of = question_of
        self._waits = publications.sender.lane == "bulk"
        self._places = asyncio.Semaphore(
            ahead
        )  # one for each entity begun and not yet received
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
        """Cancel what still runs and wait for its end; answers not yet received are
        dropped.
        """
        self._failure = StopAsyncIteration()
        self._finished.clear()
        await cancel_and_wait(list(self._tasks))

    async def _begin(self, entity_ids: EntityIds) -> None:
        """Begin one entity after the other, each when there is a place for it."""
        async with aclosing(_distinct(entity_ids)) as ids:
            await self._places.acquire()
            async for entity_id in ids:
                if (
                    self._failure is not None
                ):  # a source of ids may ignore its cancellation
                    return
                self._start(self._read(entity_id))
                await self._places.acquire()

    async def _read(self, entity_id: str) -> None:
        try:
            question = self._question_of(entity_id)
            panel = await read_question(self._publications, question)
            answer = EntityAnswer(
                entity_id, panel, missing=question.missing(panel.catalogue)
            )
        except AsyncfinError as error:
            if ends_all(error, waits=self._waits):
                raise
            # Without its traceback, whose frames would keep everything that was read of
            # the entity.
            answer = EntityAnswer(entity_id, None, error=error.with_traceback(None))
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
    """Yield each id once. An async generator is closed at the end: the loop would close
    it in a task.
    """
    seen: set[str] = set()

    def is_new(entity_id: object) -> bool:
        if not isinstance(entity_id, str):  # refused when it is read
            return True
        is_repeated = entity_id in seen
        seen.add(entity_id)
        return not is_repeated

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
