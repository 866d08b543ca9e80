"""Sends the batches of a plan, makes one answer of what comes, and checks that all came."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial

from asyncfin.errors import IncompleteResultError, MalformedAnswerError
from asyncfin.fanout.plan import Batch, Plan, batches_of
from asyncfin.fanout.question import Question
from asyncfin.fanout.read import Read
from asyncfin.fanout.stitch import Arrival, Stitch
from asyncfin.model.period import FiscalRange, Trailing, resolve
from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.table.panel import Panel
from asyncfin.wire.codec import error_context
from asyncfin.wire.pages import query_pages
from asyncfin.wire.tasks import merged
from asyncfin.wire.values import QueryPage, series_path


async def answer(read: Read, question: Question, plan: Plan | None = None) -> Panel:
    """Return the whole answer to a question, as `Client.query` says.

    Args:
        plan: what to begin with. None, and after a restart: it is planned here.
    """
    while True:
        async with read.restarting():
            current, plan = plan or await read.plan(question), None
            stitch = Stitch(current, read.publication(current.catalogue))
            async with read.pinned_to(current.catalogue.dataset_id):
                async with _arrivals(read, stitch, current.batches) as arriving:
                    arrivals = [arrival async for arrival in arriving]
                arrivals += await _ask_again(read, stitch)
            return stitch.panel(arrivals, current.series, requests=read.stats.requests)


async def pieces(read: Read, question: Question, plan: Plan) -> AsyncGenerator[Panel, None]:
    """Yield the answer to a planned question in pieces, as `Client.stream` says."""
    begin: Plan | None = plan
    while True:
        async with read.restarting():
            current, begin = begin or await read.plan(question), None
            async with (
                read.pinned_to(current.catalogue.dataset_id),
                aclosing(_pieces(read, current)) as panels,
            ):
                async for panel in panels:
                    read.final = True
                    yield panel
            return


async def _pieces(read: Read, plan: Plan) -> AsyncGenerator[Panel, None]:
    """Yield a panel of each page that brought wanted series, and one of those that did not come."""
    stitch = Stitch(plan, read.publication(plan.catalogue))
    held: deque[Arrival] = deque()

    def panel(arrival: Arrival) -> Panel:
        series = stitch.series_of(arrival)
        return stitch.panel([arrival], series, requests=read.stats.requests)

    async with _arrivals(read, stitch, plan.batches) as arriving:
        async for arrival in arriving:
            held.append(arrival)
            if _window_is_certain(stitch):
                while held:
                    yield panel(held.popleft())
    held += await _ask_again(read, stitch)
    for arrival in held:
        yield panel(arrival)
    if missing := stitch.absent:
        yield stitch.panel([], missing, requests=read.stats.requests)


def _window_is_certain(stitch: Stitch) -> bool:
    """Return whether no value that may still come can move the panel's periods.

    The window of a `Trailing` ends at the latest value of all, which can be no later than the last fiscal
    end of the catalogue, whatever the duration of the period that reaches it.
    """
    if not isinstance(stitch.plan.periods, Trailing):
        return True
    last = stitch.plan.catalogue.periods[-1]
    return stitch.anchor is not None and stitch.anchor.fiscal_end == last.fiscal_end


def _arrivals(
    read: Read, stitch: Stitch, batches: Sequence[Batch]
) -> AbstractAsyncContextManager[AsyncIterator[Arrival]]:
    """Give what each page of the batches brings, whichever comes first."""
    return merged([partial(_read_batch, read, stitch, batch) for batch in batches], read.limit)


async def _read_batch(read: Read, stitch: Stitch, batch: Batch) -> AsyncGenerator[Arrival, None]:
    """Yield what each page of a batch brings, if it is anything at home in the batch."""
    pages = query_pages(
        read.send,
        read.entity_id,
        batch,
        page_size=MAX_PAGE_SIZE,
        prefetch=False,
        check=partial(_refuse_unlisted, batch),  # by id; what each id stands for, the stitch compares
    )
    async with aclosing(pages):
        async for page in pages:
            with error_context("query", page.entity_id, page):
                arrival = await stitch.add(page, home=batch.home, asked=batch.periods)
            if arrival.blocks:
                yield arrival


def _refuse_unlisted(batch: Batch, page: QueryPage) -> None:
    for at, raw in enumerate(page.raw_series):
        if raw.series_id not in batch.matched:
            path = series_path(at, raw.series_id)
            raise MalformedAnswerError(f"the catalogue lists no such series @ {path}")


async def _ask_again(read: Read, stitch: Stitch) -> list[Arrival]:
    """Ask for the series that did not come once more, together, over all periods of the catalogue.

    The spec does not say whether a series without values is listed, so one response that leaves a series
    out proves nothing. Two do, and such a series is not asked for a third time, unless it comes after all.

    Raises:
        IncompleteResultError: a series did not come although a response over all periods has listed it.
    """
    plan, publication = stitch.plan, stitch.publication
    missing = [series for series in stitch.absent if series.series_id not in publication.left_out]
    if not missing or not plan.batches:
        return []
    everything = resolve(FiscalRange(), plan.catalogue.periods)
    batches = batches_of(plan.catalogue, missing, everything, plan.question.value_version)
    async with _arrivals(read, stitch, batches) as arriving:
        arrivals = [arrival async for arrival in arriving]
    absent = stitch.absent
    lost = [series.series_id for series in absent if series.series_id in publication.listed]
    if lost:
        named = ", ".join(lost[:20]) + (", ..." if len(lost) > 20 else "")
        raise IncompleteResultError(
            f"{len(lost)} of the {len(plan.series)} planned series did not come: {named}",
            series_ids=lost,
            operation="query",
            entity_id=read.entity_id,
            at=read.stats.answered_at,
        )
    publication.left_out.update(series.series_id for series in absent)
    return arrivals
