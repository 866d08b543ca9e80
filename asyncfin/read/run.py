"""Sends the batches of a plan, makes one answer of what comes, and checks that all came."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

from attrs import evolve

from asyncfin.errors import IncompleteResultError, error_context
from asyncfin.model.catalogue import publication_id
from asyncfin.model.period import FiscalRange, Trailing, resolve
from asyncfin.plan.plan import Batch, Plan, batches_of
from asyncfin.plan.question import Question
from asyncfin.read.read import Read
from asyncfin.read.stitch import Arrival, Stitch
from asyncfin.read.write import CacheWriter
from asyncfin.table.block import Block
from asyncfin.table.panel import Panel
from asyncfin.tasks import merged
from asyncfin.wire.pages import planned_pages


async def answer(read: Read, question: Question, plan: Plan | None = None) -> Panel:
    """Return the whole answer to a question, as `Client.query` says.

    Args:
        plan: what to begin with. None, and after a restart: it is planned here.
    """
    while True:
        async with read.restarting():
            # What a cache lacks is planned once that is known, and only by the reader who asks for it.
            current, plan = plan or await read.plan(question, batches=not read.fills_cache), None
            publication = await read.publication(current.catalogue)
            stitch, confirmed = Stitch(current, publication, read.tolerance), publication.confirmed
            async with read.pinned_to(current.catalogue.dataset_id):
                if read.fills_cache:
                    arrivals = await _gather(read, stitch)
                else:
                    arrivals, batches = await _at_hand(read, stitch)
                    async with _arrivals(read, stitch, batches, prefetch=True) as arriving:
                        arrivals += [arrival async for arrival in arriving]
                arrivals += await _ask_again(read, stitch)
                if publication.confirmed == confirmed:  # no page has come that was pinned to it
                    await read.confirm(publication)
            await read.store_confirmation(publication)
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
                    read.final = True  # the consumer has values of this publication from here on
                    yield panel
            return


async def _pieces(read: Read, plan: Plan) -> AsyncGenerator[Panel, None]:
    """Yield a panel of each page that brought wanted series, and one of those that did not come."""
    publication = await read.publication(plan.catalogue)
    stitch, confirmed = Stitch(plan, publication, read.tolerance), publication.confirmed

    # What is cached waits for the first page, which shows whether the publication is still the current one.
    at_hand, batches = await _at_hand(read, stitch)
    held = deque(at_hand)

    def piece() -> Panel:
        arrival = stitch.release(held.popleft())
        return stitch.panel([arrival], stitch.series_of(arrival), requests=read.stats.requests, whole=False)

    async with _arrivals(read, stitch, batches) as arriving:
        async for arrival in arriving:
            held.append(arrival)
            if _window_is_certain(stitch):
                while held:
                    yield piece()
    held += await _ask_again(read, stitch)
    if publication.confirmed == confirmed:
        await read.confirm(publication)
    await read.store_confirmation(publication)
    while held:
        yield piece()
    if missing := stitch.absent:
        yield stitch.panel([], missing, requests=read.stats.requests, whole=False)


def _window_is_certain(stitch: Stitch) -> bool:
    """Return whether no value that may still come can move the panel's periods.

    The window of a `Trailing` ends at the latest value of all, which can be no later than the last fiscal
    end of the catalogue, whatever the duration of the period that reaches it.
    """
    if not isinstance(stitch.plan.periods, Trailing):
        return True
    last = stitch.plan.catalogue.periods[-1]
    return stitch.anchor is not None and stitch.anchor.fiscal_end == last.fiscal_end


async def _at_hand(read: Read, stitch: Stitch) -> tuple[list[Arrival], Sequence[Batch]]:
    """Return what the cache holds of the answer, and the batches that bring the rest."""
    if read.cache is None:
        return [], stitch.plan.batches
    blocks = await read.blocks(stitch.plan)
    plan = await read.plan_missing(stitch.plan, blocks)
    arrivals = stitch.take(blocks)
    missing = len(stitch.missing)
    read.cache.count(hits=len(stitch.plan.series) - missing, misses=missing)
    return arrivals, plan.batches


async def _gather(read: Read, stitch: Stitch) -> list[Arrival]:
    """Return what the cache holds of the answer, and what it lacks, asked for once for all readers."""
    plan = stitch.plan
    assert read.cache is not None
    arrivals = stitch.take(await read.blocks(plan))
    missing = [series.series_id for series in stitch.missing]
    read.cache.count(hits=len(plan.series) - len(missing), misses=len(missing))
    if missing:
        key = (read.entity_id, publication_id(plan.catalogue.dataset_id), plan.question.value_version)
        ask = partial(_ask, read, stitch)
        for blocks in await read.publications.flights.gather(key, missing, ask):
            arrivals += stitch.take(blocks)
    return arrivals


async def _ask(read: Read, asking: Stitch, series_ids: Collection[str]) -> tuple[Block, ...]:
    """Ask for some series with all their periods, and return all that comes."""
    assert read.cache is not None
    catalogue = asking.plan.catalogue
    wanted = tuple([catalogue.series[catalogue.places[each]] for each in series_ids])
    async with read.cache.claim(read.entity_id):
        # Another process may have asked for them meanwhile: the cache is looked at again, under the claim.
        plan = evolve(asking.plan, series=wanted)
        blocks = await read.blocks(plan)
        stitch = Stitch(await read.plan_missing(plan, blocks), asking.publication, read.tolerance)
        arrivals = stitch.take(blocks)
        async with _arrivals(read, stitch, stitch.plan.batches, prefetch=True) as arriving:
            arrivals += [arrival async for arrival in arriving]
    return tuple(block for arrival in arrivals for block in (*arrival.blocks, *arrival.foreign))


@asynccontextmanager
async def _arrivals(
    read: Read, stitch: Stitch, batches: Sequence[Batch], *, prefetch: bool = False
) -> AsyncIterator[AsyncIterator[Arrival]]:
    """Give what each page of the batches brings, whichever comes first, and put it into the cache.

    Args:
        prefetch: whether a batch's next page is asked for while one is read. It is not counted among those
            under way until then, so a stream, which bounds what it holds, must not ask for it.
    """
    async with AsyncExitStack() as open_writer:
        writer = None
        if batches and read.cache is not None and read.fills_cache:
            dataset_id, version = stitch.plan.catalogue.dataset_id, stitch.plan.question.value_version
            put = partial(read.cache.put_blocks, read.entity_id, dataset_id, version)
            writer = await open_writer.enter_async_context(CacheWriter(put))
        jobs = [partial(_read_batch, read, stitch, batch, writer, prefetch=prefetch) for batch in batches]
        async with merged(jobs, read.limit) as arriving:
            yield arriving


async def _read_batch(
    read: Read, stitch: Stitch, batch: Batch, writer: CacheWriter | None, *, prefetch: bool
) -> AsyncGenerator[Arrival, None]:
    """Yield what each page of a batch brings, if it is anything at home in the batch."""
    pages = planned_pages(
        read.send,
        read.entity_id,
        batch,
        wanted=batch.home,
        matched=batch.matched,
        keep_foreign=writer is not None,
        prefetch=prefetch,
    )
    began = read.publications.clock()
    async with aclosing(pages):
        async for page in pages:
            # The request was pinned and not refused: its publication was current when it was sent.
            stitch.publication.confirm(began)
            read.stats.answered_at = page.at
            with error_context("query", page.entity_id, page):
                arrival = await stitch.add(page, asked=batch.periods)
            if writer is not None:
                await writer.add((*arrival.blocks, *arrival.foreign))
            # With `prefetch` the next request may have left as soon as this page was there.
            left = page.at if prefetch else None
            del page  # while the arrival waits to be taken, it alone is held, and not the page's bytes
            # A page may bring only series that nobody asked for, or none.
            if arrival.blocks:
                yield arrival
            else:
                stitch.release(arrival)
            began = left or read.publications.clock()


async def _ask_again(read: Read, stitch: Stitch) -> list[Arrival]:
    """Ask for the series that did not come once more, together, over all periods of the catalogue.

    The spec leaves open whether a series without values is listed, so one response that leaves a series
    out proves nothing. Two do, and such a series is not asked for a third time, unless it comes after all.

    Raises:
        IncompleteResultError: a series did not come although a response over all periods has listed it.
    """
    plan = stitch.plan
    if plan.periods is None or not plan.catalogue.periods or not (missing := stitch.missing):
        return []
    everything = resolve(FiscalRange(), plan.catalogue.periods)
    batches = batches_of(plan.catalogue, missing, everything, plan.question.value_version)
    async with _arrivals(read, stitch, batches) as arriving:
        arrivals = [arrival async for arrival in arriving]
    lost = [series.series_id for series in stitch.missing if stitch.listing.has_listed(series)]
    if lost:
        named = ", ".join(lost[:20]) + (", ..." if len(lost) > 20 else "")
        raise IncompleteResultError(
            f"{len(lost)} of the {len(plan.series)} planned series did not come: {named}",
            series_ids=lost,
            operation="query",
            entity_id=read.entity_id,
            at=read.stats.answered_at,
        )
    stitch.listing.unlisted.update(series.series_id for series in stitch.missing)
    return arrivals
