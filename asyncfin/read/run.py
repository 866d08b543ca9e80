"""Sends the batches of a plan, stitches the responses to one result, and checks that it is complete."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial

from attrs import evolve

from asyncfin.errors import IncompleteResultError
from asyncfin.model.selection import FiscalRange, Trailing
from asyncfin.model.words import listed
from asyncfin.plan.plan import Batch, Plan, batches_of, without_batches
from asyncfin.read.attempts import Attempt, Attempts
from asyncfin.read.batch import Page, read_batch
from asyncfin.read.publications import Received
from asyncfin.read.read import Read
from asyncfin.read.stitch import Stitch
from asyncfin.read.write import CacheWriter
from asyncfin.table.block import Block
from asyncfin.table.panel import Panel
from asyncfin.tasks import merged


async def answer(read: Read, plan: Plan | None = None) -> Panel:
    """Return the whole answer to the question of a read, as `Client.query` says.

    `plan` is that of the first attempt; without it, and after a restart, one is made here.
    """
    kept = read.publications.kept_panels
    async for attempt in Attempts(read):
        async with attempt:
            # What is missing in a cache is planned once that is known, by the read that requests it.
            current, plan = plan or await attempt.plan(read.question, batches=not read.fills_cache), None
            stitch = Stitch(current, read.publications.of(current.catalogue))
            async with attempt.pinned_to(current.catalogue.dataset_id):
                if read.fills_cache:
                    blocks = await _from_cache_or_service(attempt, stitch)
                else:
                    blocks, batches = await _cached(attempt, stitch)
                    _count_cached(read, stitch)
                    async with _pages(attempt, stitch, batches, prefetch=True) as pages:
                        blocks += [block async for block, _ in pages]
                blocks += await _retry_missing(attempt, stitch)
                confirmed = await attempt.confirm(current.catalogue)
    requests = read.stats.requests
    owner = None if requests else kept.owner(current.question, current)
    if (panel := kept.get(read.cache, owner, confirmed)) is None:
        panel = stitch.panel(blocks, current.series, requests=requests, confirmed_at=confirmed)
        kept.put(read.cache, current, panel, blocks)
    return panel


async def kept_answer(read: Read, plan: Plan | None = None) -> Panel | None:
    """Return the answer to a question if its panel is kept and counts as current. No request."""
    kept = read.publications.kept_panels
    if (owner := kept.owner(read.question, plan)) is None:
        return None
    known = await Attempt(read).known()
    if known is None or known.catalogue is not owner.plan.catalogue:
        return None
    if (panel := kept.get(read.cache, owner, known.confirmed)) is not None:
        assert read.cache is not None
        read.cache.count(hits=len(panel), misses=0)
        read.stats.cached = len(panel)
    return panel


async def cached_answer(read: Read) -> Panel | None:
    """Return the answer to a question if all of it is cached and counts as current. No request."""
    attempt = Attempt(read)
    if (known := await attempt.known()) is None:
        return None
    plan = without_batches(read.question, known.catalogue)
    stitch = Stitch(plan, known)
    blocks = stitch.take(await attempt.blocks(plan))
    if stitch.missing:
        return None
    return stitch.panel(blocks, plan.series, confirmed_at=known.confirmed)


async def pieces(read: Read, plan: Plan) -> AsyncGenerator[Panel, None]:
    """Yield the answer to the question of a read in pieces, as `Client.stream` says."""
    begin: Plan | None = plan
    async for attempt in Attempts(read):
        async with attempt:
            current, begin = begin or await attempt.plan(read.question), None
            async with (
                attempt.pinned_to(current.catalogue.dataset_id),
                aclosing(_pieces(attempt, current)) as panels,
            ):
                async for panel in panels:
                    attempt.commit()  # from here on the consumer has values of this publication
                    if (span := read.stats.span) is not None:
                        span.add(panel)
                        span.cached, span.stale = read.stats.cached, read.stats.stale
                    yield panel


async def _pieces(attempt: Attempt, plan: Plan) -> AsyncGenerator[Panel, None]:
    """Yield a panel for each page that has wanted series, and one for the unlisted series."""
    read = attempt.read
    stitch = Stitch(plan, read.publications.of(plan.catalogue))

    # What is cached waits for the first page, which shows whether the publication is still the current one.
    cached, batches = await _cached(attempt, stitch)
    _count_cached(read, stitch)
    held = deque(cached)

    async def piece() -> Panel:
        block, requests = stitch.release(held.popleft()), read.stats.requests
        confirmed = await attempt.confirm(plan.catalogue, store=False)
        series = stitch.series_of(block)
        return stitch.panel([block], series, requests=requests, confirmed_at=confirmed, whole=False)

    async with _pages(attempt, stitch, batches) as pages:
        async for block, _ in pages:
            held.append(block)
            if _window_is_certain(stitch):
                while held:
                    yield await piece()
    held += await _retry_missing(attempt, stitch)
    confirmed = await attempt.confirm(plan.catalogue)
    while held:
        yield await piece()
    if missing := stitch.not_received:
        requests = read.stats.requests
        yield stitch.panel([], missing, requests=requests, confirmed_at=confirmed, whole=False)


def _window_is_certain(stitch: Stitch) -> bool:
    """Return whether no value that may still come can move the panel's periods.

    The window of a `Trailing` ends at the latest value of all: at the last fiscal end of the catalogue or
    before.
    """
    if not isinstance(stitch.plan.periods, Trailing):
        return True
    last = stitch.plan.catalogue.periods[-1]
    return stitch.anchor is not None and stitch.anchor.fiscal_end == last.fiscal_end


async def _cached(attempt: Attempt, stitch: Stitch) -> tuple[list[Block], Sequence[Batch]]:
    """Return what the cache has of the answer, and the batches that request the rest."""
    if attempt.read.cache is None:
        return [], stitch.plan.batches
    blocks = await attempt.blocks(stitch.plan)
    plan = await attempt.plan_missing(stitch.plan, blocks)
    taken = stitch.take(blocks)
    if plan.batches:
        await attempt.check_not_replaced(plan.catalogue)
    return taken, plan.batches


def _count_cached(read: Read, stitch: Stitch) -> None:
    if read.cache is not None:
        wanted, misses = len(stitch.plan.series), len(stitch.missing)
        read.cache.count(hits=wanted - misses, misses=misses)
        read.stats.cached = wanted - misses


async def _from_cache_or_service(attempt: Attempt, stitch: Stitch) -> list[Block]:
    """Return what the cache has of the answer, and the rest, which is requested once for all questions."""
    read, plan = attempt.read, stitch.plan
    taken = stitch.take(await attempt.blocks(plan))
    missing = [series.series_id for series in stitch.missing]
    _count_cached(read, stitch)
    if missing:
        request = partial(_request, attempt, stitch)
        for blocks, sent in await stitch.publication.gather(plan.question.value_version, missing, request):
            taken += stitch.take(blocks)
            if sent is not None:  # also by a request of another question, which this one has shared
                attempt.record_confirmation(sent)
    return taken


async def _request(attempt: Attempt, asking: Stitch, series_ids: Collection[str]) -> Received:
    """Request some series with all their periods, and return all that is received."""
    read = attempt.read
    assert read.cache is not None
    catalogue = asking.plan.catalogue
    wanted = tuple([catalogue.series[catalogue.places[each]] for each in series_ids])
    # Within the claim, so that the next holder learns that the publication was replaced.
    async with read.cache.claim(read.entity_id), attempt.pinned_to(catalogue.dataset_id):
        # Another process may have requested them during the wait, or found that the publication is replaced.
        stitch = Stitch(evolve(asking.plan, series=wanted), asking.publication)
        blocks, batches = await _cached(attempt, stitch)
        async with _pages(attempt, stitch, batches, prefetch=True) as pages:
            blocks += [block async for both in pages for block in both if block is not None]
    return tuple(blocks), attempt.confirmed if batches else None


@asynccontextmanager
async def _pages(
    attempt: Attempt, stitch: Stitch, batches: Sequence[Batch], *, prefetch: bool = False
) -> AsyncIterator[AsyncIterator[Page]]:
    """Yield the pages of all batches in the order in which they are received, and cache them.

    With `prefetch` a batch's next page is requested while one is read. It does not count as held until then,
    so a stream, which bounds what it holds, must not prefetch.
    """
    read, writer = attempt.read, None
    async with AsyncExitStack() as opened:
        if batches and read.cache is not None and read.fills_cache:
            dataset_id, version = stitch.plan.catalogue.dataset_id, stitch.plan.question.value_version
            put = partial(read.cache.put_blocks, read.entity_id, dataset_id, version)
            writer = await opened.enter_async_context(CacheWriter(put))
        jobs = [partial(read_batch, attempt, stitch, each, writer, prefetch=prefetch) for each in batches]
        async with merged(jobs, read.limit) as pages:
            yield pages


async def _retry_missing(attempt: Attempt, stitch: Stitch) -> list[Block]:
    """Request the missing series again, together, over all periods of the catalogue.

    The spec leaves open whether a series without values is listed, so one response without a series proves
    nothing, and a service may list fewer series than a query matches. So rounds follow until one lists none
    of them. What is missing then is unlisted, and is not requested again. If a response over all periods has
    listed it, that is an IncompleteResultError.
    """
    plan, blocks = stitch.plan, list[Block]()
    if plan.periods is None or not stitch.missing:
        return blocks
    everything = plan.catalogue.resolve(FiscalRange())
    while missing := stitch.missing:
        batches = batches_of(plan.catalogue, missing, everything, plan.question.value_version)
        async with _pages(attempt, stitch, batches) as pages:
            found = [block async for block, _ in pages]
        if not found:
            break
        blocks += found
    version, has_listed = plan.question.value_version, stitch.publication.has_listed
    lost = [series.series_id for series in stitch.missing if has_listed(version, series)]
    if lost:
        raise IncompleteResultError(
            f"{len(lost)} of the {len(plan.series)} planned series are missing: {listed(lost)}",
            series_ids=lost,
            operation="query",
            entity_id=attempt.read.entity_id,
            at=attempt.read.stats.received_at,
        )
    stitch.unlisted.update(series.series_id for series in stitch.missing)
    return blocks
