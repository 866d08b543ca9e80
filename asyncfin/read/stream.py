"""The answer to a question in pieces: a panel for each page that has wanted series."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from contextvars import copy_context
from functools import partial

from asyncfin.errors import DatasetChangedError
from asyncfin.model.selection import Trailing
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publications
from asyncfin.read.query import (
    plan_batches,
    plan_read,
    retry_missing,
    send_batches,
    take_cached,
)
from asyncfin.read.read import Read
from asyncfin.read.stitch import Stitch
from asyncfin.table.panel import Panel
from asyncfin.tasks import resumable


@asynccontextmanager
async def stream_question(
    publications: Publications, question: Question
) -> AsyncIterator[AsyncIterator[Panel]]:
    """Yield an iterator over the answer in pieces, as `Client.stream` describes."""
    read = Read(publications, question, "stream")
    # Not the caller's context: what it does in its block is not a part of the question.
    context = copy_context()
    async with read.announce(context):
        # Planned out here, so that a wrong question is an error of `async with`, not of
        # the first step.
        planning = read.attempt(partial(plan_read, read))
        loop = asyncio.get_running_loop()
        plan = await loop.create_task(planning, context=context)
        async with resumable(_read_pieces(read, plan), context) as panels:
            yield panels


async def _read_pieces(
    read: Read, first_plan: Plan | None
) -> AsyncGenerator[Panel, None]:
    """Yield the answer to the question of a read in pieces."""
    while True:
        try:
            plan = first_plan or await plan_read(read)
            first_plan = None
            async with (
                read.detecting_change(plan.catalogue.dataset_id),
                aclosing(_iter_pieces(read, plan)) as panels,
            ):
                async for panel in panels:
                    # From here on the consumer has values of this publication.
                    read.add(panel)
                    yield panel
            return
        except DatasetChangedError as error:
            change = error
        await read.restart(change)


async def _iter_pieces(read: Read, plan: Plan) -> AsyncGenerator[Panel, None]:
    """Yield a panel for each page that has wanted series, and one for the unlisted
    series.
    """
    stitch = Stitch(plan, read.publications.of(plan.catalogue))
    dataset_id = plan.catalogue.dataset_id

    # What is cached waits for the first page, which shows whether the publication is
    # still the current one.
    cached_blocks, parts = await take_cached(read, stitch)
    batches = await plan_batches(read, stitch, cached_blocks)
    waiting_blocks = deque(parts)

    async def piece() -> Panel:
        block, requests = stitch.release(waiting_blocks.popleft()), read.requests
        confirmed_at = await read.confirm(dataset_id, store=False)
        series = stitch.series_of(block)
        return stitch.panel(
            [block],
            series,
            requests=requests,
            confirmed_at=confirmed_at,
            is_whole=False,
        )

    async with send_batches(read, stitch, batches) as pages:
        async for block in pages:
            waiting_blocks.append(block)
            if _is_window_certain(stitch):
                while waiting_blocks:
                    yield await piece()
    waiting_blocks += await retry_missing(read, stitch)
    confirmed_at = await read.confirm(dataset_id)
    while waiting_blocks:
        yield await piece()
    if missing := stitch.list_missing(include_unlisted=True):
        yield stitch.panel(
            [],
            missing,
            requests=read.requests,
            confirmed_at=confirmed_at,
            is_whole=False,
        )


def _is_window_certain(stitch: Stitch) -> bool:
    """Return whether no value that may still come can move the panel's periods.

    The window of a `Trailing` ends at the latest value of all: at the last fiscal end
    of the catalogue or before.
    """
    if not isinstance(stitch.plan.periods, Trailing):
        return True
    anchor = stitch.anchor
    last = stitch.plan.catalogue.periods[-1]
    return anchor is not None and anchor.fiscal_end == last.fiscal_end
