"""The answers of many entities, as they finish."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

from asyncfin.errors import AsyncfinError, ends_all
from asyncfin.plan.question import Question
from asyncfin.read.entity import EntityAnswer
from asyncfin.read.publications import Publications
from asyncfin.read.query import read_question
from asyncfin.tasks import merged

# Each entity begun is a task.
_MOST_AHEAD = 1_000

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
    `Client.query_many` describes.

    `question_of` returns the query of an entity, with `allow_missing`. `ahead` bounds
    the entities begun beyond those that the consumer has received; by default as many
    as there may be requests in flight.
    """
    waits = publications.sender.lane == "bulk"
    turn = asyncio.Lock()
    is_left = False
    limit = min(ahead or publications.limit, _MOST_AHEAD)
    running = limit
    # What ends the iteration, once the entities in flight are finished.
    failures: list[Exception] = []
    id_reader: asyncio.Task[Any] | None = None

    async def read_entity(entity_id: str) -> EntityAnswer:
        try:
            question = question_of(entity_id)
            panel = await read_question(publications, question)
        except AsyncfinError as error:
            if ends_all(error, waits=waits):
                raise
            # Without its traceback, whose frames would hold what was read.
            return EntityAnswer(entity_id, None, error=error.with_traceback(None))
        missing = question.missing(panel.catalogue)
        return EntityAnswer(entity_id, panel, missing=missing)

    async def read_next_ids() -> list[str]:
        """Return the next id, or nothing at their end or after a failure."""
        nonlocal id_reader
        async with turn:
            if failures:
                return []
            id_reader = asyncio.current_task()
            try:
                entity_id = await anext(ids)
            except StopAsyncIteration:
                return []
            except asyncio.CancelledError:
                if is_left or not failures:
                    raise
                return []
            except Exception as error:  # noqa: BLE001 - the consumer raises it
                failures.append(error)
                return []
            finally:
                id_reader = None
        # A source of ids may ignore its cancellation.
        return [] if is_left or failures else [entity_id]

    async def read_next_entities() -> AsyncGenerator[EntityAnswer, None]:
        nonlocal running
        while next_ids := await read_next_ids():
            try:
                answer = await read_entity(next_ids[0])
            except AsyncfinError as error:
                failures.append(error)
                if id_reader is not None:
                    id_reader.cancel()
                break
            yield answer
        running -= 1
        if failures and not running:
            raise failures[0]

    async with (
        aclosing(_iter_distinct(entity_ids)) as ids,
        merged([read_next_entities] * limit, limit) as answers,
    ):
        try:
            yield answers
        finally:
            is_left = True


async def _iter_distinct(entity_ids: EntityIds) -> AsyncGenerator[str, None]:
    """Yield each id once, and close a generator of ids at the end."""
    seen_ids: set[object] = set()

    def is_new(entity_id: object) -> bool:
        if not isinstance(entity_id, str):  # rejected when it is read
            return True
        is_repeated = entity_id in seen_ids
        seen_ids.add(entity_id)
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
