"""Reads a batch of a plan, page by page, in smaller requests where the service refuses it as too large."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import TypeAlias

from asyncfin.errors import ServiceError, error_context
from asyncfin.model.selection import Exact, FiscalRange
from asyncfin.read.attempts import Attempt
from asyncfin.read.caps import TOO_LARGE, Cutting, Part
from asyncfin.read.learned import is_about_size
from asyncfin.read.stitch import Stitch
from asyncfin.read.write import CacheWriter
from asyncfin.table.block import Block
from asyncfin.wire.pages import planned_pages
from asyncfin.wire.ranges import RangePage, joined_ranges
from asyncfin.wire.values import PlannedPage

# The wanted series of a page, and the foreign ones where they are kept.
Page: TypeAlias = tuple[Block, Block | None]


async def read_part(
    attempt: Attempt, stitch: Stitch, whole: Part, writer: CacheWriter | None, *, prefetch: bool
) -> AsyncGenerator[Page, None]:
    """Yield each page of a batch, or of a part of one, that has series which are at home in it.

    If it is refused as too large, it is sent in smaller parts, one after the other. What they show is learned
    for the other batches, and what these have shown is used.
    """
    read, caps = attempt.read, attempt.read.publications.caps
    cutting = Cutting(whole, stitch.plan.catalogue, caps.known)
    refusals: list[ServiceError] = []
    async with AsyncExitStack() as search:
        while (part := cutting.part) is not None:
            requested = _requested if len(part.queries) == 1 else _joined
            pages = requested(attempt, part, keep_foreign=writer is not None, prefetch=prefetch)
            began = read.publications.clock()
            try:
                async with AsyncExitStack() as unknown, aclosing(pages):
                    await unknown.enter_async_context(read.refusals.may_follow())
                    async for page in pages:
                        if cutting.part is part:  # its outcome is known with its first page
                            await unknown.aclose()
                            cutting.passed(caps.known)
                            caps.learn(read, cutting.learned)
                            if not cutting.searches:
                                await search.aclose()
                        # It was pinned and not refused: its publication was current when it was sent.
                        attempt.record_confirmation(began)
                        if part.is_probe:
                            break
                        # With `prefetch` the next request may have left as soon as this page was there.
                        left = page.at if prefetch else None
                        wanted, foreign = await _added(attempt, stitch, page, part, writer)
                        # While the blocks wait to be taken, they alone are held, and not the page's bytes.
                        del page
                        if wanted is not None:
                            yield wanted, foreign
                        began = left or read.publications.clock()
            except ServiceError as refusal:
                if cutting.part is not part or not is_about_size(refusal):
                    raise
                refusals.append(refusal)
                # The search of another batch may wait for this request.
                if not cutting.searches and not read.refusals.are_too_many:
                    await search.enter_async_context(caps.searching())
                if refusal.status != TOO_LARGE:
                    await attempt.check_refusal(refusal, stitch.plan.catalogue.dataset_id)
                cutting.refused(refusal.status, caps.known)
                if read.refusals.are_too_many:
                    caps.learn(read, cutting.learned)
                    break
                if not cutting.searches:
                    await search.aclose()
    if cutting.is_refused:
        caps.drop(read)
        caps.remember(whole.batch, refusals[0])
    if cutting.is_refused or cutting.part is not None:  # then too many were refused
        if len(refusals) > 1:
            refusals[0].add_note(f"{len(refusals) - 1} smaller requests were refused too")
        raise refusals[0]


def _requested(
    attempt: Attempt, part: Part, *, keep_foreign: bool, prefetch: bool
) -> AsyncGenerator[PlannedPage, None]:
    """Return the pages of a part of one range."""
    read, (query,) = attempt.read, part.queries
    return planned_pages(
        read.send,
        read.entity_id,
        query,
        wanted=query.home,
        matched=query.matched,
        keep_foreign=keep_foreign,
        prefetch=prefetch,
    )


async def _joined(
    attempt: Attempt, part: Part, *, keep_foreign: bool, prefetch: bool
) -> AsyncGenerator[PlannedPage, None]:
    """Yield one page for all ranges of a part."""
    found: list[RangePage] = []
    for query in part.queries:
        assert isinstance(query.periods, FiscalRange)
        pages = _requested(attempt, Part(query, query.periods), keep_foreign=False, prefetch=prefetch)
        async with aclosing(pages):
            async for page in pages:
                await attempt.read.received(page)
                found.append((query.periods, page))
    planned = part.batch.periods
    joined = [
        await joined_ranges(
            found,
            part.batch.home,
            part.batch.value_version,
            attempt.read.tolerance,
            periods=planned.periods if isinstance(planned, Exact) else None,
            keep_foreign=keep_foreign,
        )
    ]
    found.clear()  # while the consumer works, only the consumer holds pages
    yield joined.pop()


async def _added(
    attempt: Attempt, stitch: Stitch, page: PlannedPage, part: Part, writer: CacheWriter | None
) -> tuple[Block | None, Block | None]:
    """Add a page to the answer and to what is cached."""
    attempt.read.stats.received_at = page.at
    await attempt.read.received(page)
    with error_context("query", page.entity_id, page):
        both = await stitch.add(page, asked=part.asked)
    if writer is not None:
        await writer.add(filter(None, both))
    return both
