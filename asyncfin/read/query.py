"""The answer to a question: its publication, its plan, the pages of its batches, and
one panel of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Sequence,
)
from contextlib import (
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from operator import attrgetter
from typing import Self, TypeVar

from attrs import evolve

from asyncfin.errors import (
    IncompleteResultError,
    MalformedAnswerError,
    SelectionError,
    ServiceError,
    ValidationFailedError,
    complete_error,
)
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.selection import Exact, FiscalRange
from asyncfin.plan.fill import adapt_to_cache
from asyncfin.plan.plan import Batch, Plan, make_batches
from asyncfin.plan.question import Question
from asyncfin.read.publications import (
    MAX_PANEL_VALUES,
    Publication,
    Publications,
    Standing,
)
from asyncfin.read.read import Read
from asyncfin.read.stitch import Stitch
from asyncfin.table.block import Block, nbytes
from asyncfin.table.panel import Panel, reconfirmed, release_decoded
from asyncfin.tasks import finish, merged
from asyncfin.wire.pages import planned_pages
from asyncfin.words import listed

T = TypeVar("T")
_series_id = attrgetter("series_id")

# Planning for more series takes so long that the loop should not stop for it.
_PLANNED_INLINE = 1000
# For how long a query waits for another one that requests series of the publication.
_CLAIM_SECONDS = 10.0
# A put is a file and a turn in a thread, whatever it holds: a put for each page would
# take multiple times as long as compressing the pages.
_BYTES = 4 * 1024 * 1024
_TOO_LARGE = 413
_TOO_WIDE = "narrow the query: the service may not accept one of this size"
_CURSOR_REJECTED = "the service rejected a cursor that it had sent; query again"


async def read_question(
    publications: Publications, question: Question, first_plan: Plan | None = None
) -> Panel:
    """Return the answer to a question, as `Client.query` describes.

    `first_plan` is the plan of the first attempt. Without it, and after a restart, one
    is made here.
    """
    read = Read(publications, question, "query")
    async with read.announce():
        panel = await read_shared(read, first_plan)
        read.add(panel)
        return panel


async def read_shared(read: Read, first_plan: Plan | None = None) -> Panel:
    """Return the answer to the question of a read, which equal pending questions
    share.
    """
    if first_plan is None and read.cache is not None:
        stored_panel = await _find_panel(read)
        if stored_panel is not None:
            return stored_panel

    async def attempt() -> Panel:
        nonlocal first_plan
        plan = first_plan or await plan_read(read)
        first_plan = None
        panel = await read_panel(read, plan)
        if read.cache is not None and not panel.requests:
            _store_panel(read, panel)
        return panel

    return await share(read, read.question.key, partial(read.attempt, attempt))


async def share(
    read: Read,
    key: Hashable,
    work: Callable[[], Awaitable[Panel]],
) -> Panel:
    """Return the panel of a pending equal query, or begin to read it."""

    async def lead() -> tuple[object, Panel, bool]:
        return read, await work(), read.is_stale

    pending = read.publications.pending_panels
    leader, panel, read.is_stale = await pending.share(key, lead)
    # The requests count for the query that sent them.
    return panel if leader is read else evolve(panel, requests=0)


async def read_panel(read: Read, plan: Plan) -> Panel:
    """Return the answer of one publication, by its plan."""
    publication = read.publications.of(plan.catalogue)
    dataset_id = plan.catalogue.dataset_id
    stitch = Stitch(plan, publication)
    async with read.detecting_change(dataset_id), AsyncExitStack() as claims:
        cached_blocks, blocks = await take_cached(read, stitch)
        has_periods = plan.periods is not None
        if read.fills_cache and has_periods and stitch.list_missing():
            await _claim(read, publication, claims)
            # During the wait series may have been cached, or evicted.
            stitch = Stitch(plan, publication)
            cached_blocks, blocks = await take_cached(read, stitch)
        batches = await plan_batches(read, stitch, cached_blocks)
        if batches:
            async with send_batches(read, stitch, batches) as pages:
                async for block in pages:
                    blocks.append(block)
        blocks += await retry_missing(read, stitch)
        confirmed_at = await read.confirm(dataset_id)
    return stitch.panel(
        blocks, plan.series, requests=read.requests, confirmed_at=confirmed_at
    )


# Plans.


async def plan_question(publications: Publications, question: Question) -> Plan:
    """Return the plan of a question, as `Client.plan` describes."""
    read = Read(publications, question, "plan")
    plan = await read.attempt(partial(plan_read, read))
    if read.cache is None:
        return plan
    return await _plan_missing(read, plan, await _load_blocks(read, plan))


async def plan_read(read: Read) -> Plan:
    """Return the plan of a read's question, made with a cached catalogue if there is
    one.

    That may be stale. What is requested with it is then rejected. Before it leads to a
    SelectionError, or to a plan without series, one request for the metadata confirms
    it.
    """
    question = read.question
    if isinstance(question.source, Catalogue):
        return await plan_for(read, question, question.source)
    last = await read.last_publication()
    if last is not None:
        is_current = last.standing is Standing.CURRENT
        try:
            plan = await plan_for(read, question, last.publication.catalogue)
            if is_current or plan.series:
                return plan
        except SelectionError:
            if is_current:
                raise
    publication = await read.current_publication()
    return await plan_for(read, question, publication.catalogue)


async def plan_for(read: Read, question: Question, catalogue: Catalogue) -> Plan:
    """Return the plan of a question for a catalogue. No request.

    With a cache it has no batches yet: they depend on what is cached.
    """
    plans = read.publications.of(catalogue).plans
    key = question.key
    # A predicate may depend on anything, so a Select with one may mean other series the
    # next time.
    is_reusable = question.select.where is None
    if is_reusable:
        stored_plan = plans.get(key)
        if stored_plan is not None:
            return stored_plan
    # The first Select makes the catalogue's indexes. A predicate may need the loop's
    # thread. An error names close matches, which are searched for among all ids.
    has_predicate = question.select.where is not None
    is_large = len(catalogue) > _PLANNED_INLINE
    judge = partial(question.judge, catalogue)
    judgement = await _run(judge, aside=is_large and not has_predicate)
    has_error = judgement.missing and not question.allow_missing
    resolve = partial(question.resolve, catalogue)
    series, periods = await _run(resolve, aside=bool(has_error))
    plan = Plan(question, catalogue, periods, series)
    if read.cache is None:
        version = question.value_version
        make = partial(make_batches, catalogue, series, periods, version)
        is_large = len(series) > _PLANNED_INLINE
        batches = await _run(make, aside=is_large)
        plan = evolve(plan, batches=batches)
    if is_reusable:
        plans.put(key, plan, len(series))
    return plan


async def _run(make: Callable[[], T], *, aside: bool) -> T:
    """Run a function, in a thread if it may need long."""
    return await asyncio.to_thread(make) if aside else make()


async def _plan_missing(read: Read, plan: Plan, blocks: tuple[Block, ...]) -> Plan:
    """Return a plan that requests the series that are not in the cached blocks, and no
    others.
    """
    cached_ids: set[str] = set()
    for block in blocks:
        cached_ids.update(block.series_ids)
    publication = read.publications.of(plan.catalogue)
    unlisted_ids = publication.unlisted_ids[plan.question.value_version]
    missing_ids = set(map(_series_id, plan.series))
    missing_ids -= cached_ids | unlisted_ids
    count = len(missing_ids)
    if missing_ids and read.fills_cache:
        count = len(plan.catalogue)  # filling a single batch looks at all of it
    make = partial(
        adapt_to_cache, plan, cached_ids, unlisted_ids, fill=read.fills_cache
    )
    return await _run(make, aside=count > _PLANNED_INLINE)


# What is cached.


async def _load_blocks(read: Read, plan: Plan) -> tuple[Block, ...]:
    """Load the cached blocks of a plan's publication, in its value version."""
    if read.cache is None:
        return ()
    dataset_id = plan.catalogue.dataset_id
    version = plan.question.value_version
    series_ids = map(_series_id, plan.series)
    return await read.cache.blocks(read.entity_id, dataset_id, version, series_ids)


async def _find_panel(read: Read) -> Panel | None:
    """Return the stored panel of an equal query if it counts as current. No request.

    It is the same object as long as its publication is not confirmed again.
    """
    publications = read.publications
    panel = publications.panels.get(read.question.key)
    if panel is None:
        return None
    last = await read.last_publication()
    if last is None or last.standing is not Standing.CURRENT:
        return None
    if last.publication.catalogue is not panel.catalogue:  # `cache.clear()` was called
        return None
    if panel.confirmed_at != last.sent_at:
        panel = reconfirmed(panel, last.sent_at)
        publications.panels.put(read.question.key, panel)
    # Decoded pages may be a hundred times as large as the values: of one panel at a
    # time.
    last_panel = publications.last_panel
    publications.last_panel = panel
    if last_panel is not None and last_panel is not panel:
        release_decoded(last_panel)
    assert read.cache is not None  # else no panel is stored
    read.cached = len(panel)
    read.cache.count(hits=read.cached, misses=0)
    return panel


def _store_panel(read: Read, panel: Panel) -> None:
    """Store a panel that cost no request, if it is small, for equal queries."""
    # A predicate may depend on anything, and another query may list an unlisted series.
    may_return_again = panel.select.where is None and not panel.unlisted
    # All values of a large one are not counted: that would stop the loop.
    is_small = len(panel) <= MAX_PANEL_VALUES and panel.value_count <= MAX_PANEL_VALUES
    if may_return_again and is_small:
        read.publications.panels.put(read.question.key, panel)


# Requests.


async def take_cached(
    read: Read, stitch: Stitch
) -> tuple[tuple[Block, ...], list[Block]]:
    """Return the cached blocks that have wanted series, and their part of the
    answer.
    """
    if read.cache is None:
        return (), []
    blocks = await _load_blocks(read, stitch.plan)
    return blocks, stitch.take(blocks)


async def plan_batches(
    read: Read, stitch: Stitch, cached_blocks: tuple[Block, ...]
) -> Sequence[Batch]:
    """Return the batches that request the missing series, and count for the cache how
    many it has.
    """
    plan = stitch.plan
    if read.cache is None:
        return plan.batches
    misses = len(stitch.list_missing())
    read.cached = len(plan.series) - misses
    read.cache.count(hits=read.cached, misses=misses)
    if not misses:
        return ()
    plan = await _plan_missing(read, plan, cached_blocks)
    return plan.batches


async def _claim(read: Read, publication: Publication, claims: AsyncExitStack) -> None:
    """Wait for queries of the client that request series of the same publication, and
    for other processes, each for at most ten seconds, and make them wait.

    A query requests many neighbours of its series for the cache. Sent at once, queries
    of one entity would each request the same ones.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLAIM_SECONDS):
            await claims.enter_async_context(publication.lock)
    await claims.enter_async_context(read.claim())


@asynccontextmanager
async def send_batches(
    read: Read, stitch: Stitch, batches: Sequence[Batch]
) -> AsyncIterator[AsyncIterator[Block]]:
    """Yield the pages of all batches in the order in which they are received, and cache
    them.
    """
    writer: CacheWriter | None = None
    if batches and read.cache is not None and read.fills_cache:
        dataset_id = stitch.plan.catalogue.dataset_id
        version = stitch.plan.question.value_version
        put = partial(read.cache.put_blocks, read.entity_id, dataset_id, version)
        writer = CacheWriter(put)
    jobs = [partial(_read_batch, read, stitch, batch, writer) for batch in batches]
    async with writer or nullcontext(), merged(jobs, read.publications.limit) as pages:
        yield pages


async def retry_missing(read: Read, stitch: Stitch) -> list[Block]:
    """Request the missing series again, together, over all periods of the catalogue.

    The spec leaves open whether a series without values is listed, so one response
    without a series proves nothing, and a service may list fewer series than a query
    matches. So rounds follow until one lists none of them. What is missing then is
    unlisted, and is not requested again. If a response over all periods has listed it,
    that is an IncompleteResultError.
    """
    plan = stitch.plan
    blocks: list[Block] = []
    if plan.periods is None or not stitch.list_missing():
        return blocks
    version = plan.question.value_version
    every_period = plan.catalogue.resolve(FiscalRange())
    while missing := stitch.list_missing():
        batches = make_batches(plan.catalogue, missing, every_period, version)
        async with send_batches(read, stitch, batches) as pages:
            round_blocks = [block async for block in pages]
        if not round_blocks:
            break
        blocks += round_blocks
    missing_ids = list(map(_series_id, stitch.list_missing()))
    listed_ids = stitch.publication.listed_ids[version]
    lost = [series_id for series_id in missing_ids if series_id in listed_ids]
    if lost:
        raise IncompleteResultError(
            f"{len(lost)} of the {len(plan.series)} planned series are missing: "
            f"{listed(lost)}",
            series_ids=lost,
            operation="query",
            entity_id=read.entity_id,
            at=read.publications.clock(),
        )
    stitch.unlisted.update(missing_ids)
    return blocks


# Batches.


async def _read_batch(
    read: Read,
    stitch: Stitch,
    batch: Batch,
    writer: CacheWriter | None,
) -> AsyncGenerator[Block, None]:
    """Yield each page of a batch that has series which are at home in it.

    The spec does not show how many exact periods a query may have (4.3). If the
    service rejects them, one batch requests them as a range while the others wait. If
    that is accepted, all further batches of the read are sent as ranges.
    """
    catalogue = stitch.plan.catalogue
    periods = batch.periods
    has_exact = isinstance(periods, Exact) and len(periods.periods) > 1
    form = batch
    async with read.trial:  # wait for the batch that tries a range
        if has_exact and read.sends_ranges:
            form = _make_range(batch, catalogue)
    rejection: ServiceError | None = None
    while True:
        has_page = False
        pages = _read_pages(read, stitch, form, writer)
        try:
            async with aclosing(pages), read.trial if rejection else nullcontext():
                if rejection is not None and not read.sends_ranges:
                    # It may be about a replaced publication.
                    await read.check_unchanged(rejection, catalogue.dataset_id)
                async for block in pages:
                    has_page = True
                    if rejection is not None:
                        read.sends_ranges = True
                    if block is not None:
                        yield block
            return
        except ServiceError as error:
            is_invalid = isinstance(error, ValidationFailedError)
            if not is_invalid and error.status != _TOO_LARGE:
                raise
            if is_invalid and has_exact and form is batch and not has_page:
                rejection = error
                form = _make_range(batch, catalogue)
                continue
            first = rejection or error
            first.add_note(_CURSOR_REJECTED if has_page else _TOO_WIDE)
            raise first from None


def _make_range(batch: Batch, catalogue: Catalogue) -> Batch:
    """Return a batch that requests all periods as one range."""
    return evolve(batch, periods=catalogue.resolve(FiscalRange()))


async def _read_pages(
    read: Read, stitch: Stitch, form: Batch, writer: CacheWriter | None
) -> AsyncGenerator[Block | None, None]:
    """Yield the series of each page that are at home in the batch."""
    pages = planned_pages(
        read.send,
        read.entity_id,
        form,
        home=form.home,
        query_ids=form.matched,
        wanted_ids=form.home if writer is None else form.matched,
    )
    async with aclosing(pages):
        async for page in pages:
            # It was pinned and not rejected: its publication was current when it was
            # sent.
            response = page.response
            assert response is not None
            read.record_confirmation(stitch.plan.catalogue.dataset_id, response.sent_at)
            try:
                block, read_block = await stitch.add(
                    page, home=form.home, request_periods=form.periods
                )
            except MalformedAnswerError as error:
                complete_error(error, "query", page.entity_id, response)
                raise
            if writer is not None and read_block is not None:
                await writer.add([read_block])
            # While the block waits to be taken, it alone is held, and not the page's
            # bytes.
            del page, response, read_block
            yield block


class CacheWriter:
    """Gathers blocks of one publication and value version, and puts them into a cache.

    They are put as soon as they take 4 MiB. Leaving the `async with` block puts the
    others, also if the query fails or is cancelled. A put is never cancelled: its
    thread would go on, and its blocks would be put again.
    """

    def __init__(self, put: Callable[[tuple[Block, ...]], Awaitable[None]]) -> None:
        self._put = put
        self._gathered: list[Block] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await finish(self._flush())

    async def add(self, blocks: Iterable[Block]) -> None:
        """Gather the blocks of a page, and put all if they are many."""
        self._gathered += blocks
        if nbytes(self._gathered) > _BYTES:
            await finish(self._flush())

    async def _flush(self) -> None:
        blocks, self._gathered = tuple(self._gathered), []
        if blocks:
            await self._put(blocks)
