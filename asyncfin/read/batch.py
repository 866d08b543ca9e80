"""Reads a batch of a plan, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeAlias

from attrs import evolve

from asyncfin.errors import ServiceError, ValidationFailedError, error_context
from asyncfin.model.selection import Exact, FiscalRange
from asyncfin.plan.plan import Batch
from asyncfin.read.attempts import Attempt
from asyncfin.read.stitch import Stitch
from asyncfin.read.write import CacheWriter
from asyncfin.table.block import Block
from asyncfin.wire.pages import planned_pages
from asyncfin.wire.values import PlannedPage

# The wanted series of a page, and the foreign ones where they are kept.
Page: TypeAlias = tuple[Block, Block | None]

_TOO_LARGE = 413


async def read_batch(
    attempt: Attempt, stitch: Stitch, batch: Batch, writer: CacheWriter | None, *, prefetch: bool
) -> AsyncGenerator[Page, None]:
    """Yield each page of a batch that has series which are at home in it.

    The spec does not show how many exact periods a query may have (4.3). Those that are refused are requested
    as a range, and from then on as many of the client's other questions too.
    """
    publications, forms = attempt.read.publications, [batch]
    if (number := len(batch.periods.periods) if isinstance(batch.periods, Exact) else 0) > 1:
        forms.append(evolve(batch, periods=stitch.plan.catalogue.resolve(FiscalRange())))
        if number >= publications.refused_exact:
            del forms[0]
    read, refused = attempt.read, None
    for form in forms:
        received, began = False, publications.clock()
        pages = planned_pages(
            read.send,
            read.entity_id,
            form,
            wanted=form.home,
            matched=form.matched,
            keep_foreign=writer is not None,
            prefetch=prefetch,
        )
        try:
            async with aclosing(pages):
                async for page in pages:
                    received = True
                    if refused is not None:  # it was about their number
                        publications.refused_exact = min(number, publications.refused_exact)
                    # It was pinned and not refused: its publication was current when it was sent.
                    attempt.record_confirmation(began)
                    # With `prefetch` the next request may have left as soon as this page was there.
                    left = page.at if prefetch else None
                    wanted, foreign = await _added(attempt, stitch, page, form, writer)
                    # While the blocks wait to be taken, they alone are held, and not the page's bytes.
                    del page
                    if wanted is not None:
                        yield wanted, foreign
                    began = left or publications.clock()
            return
        except ServiceError as refusal:
            if received or not _is_about_size(refusal):
                raise
            if form is forms[-1]:
                raise (refused or refusal) from None
            if refusal.status != _TOO_LARGE:
                await attempt.check_refusal(refusal, stitch.plan.catalogue.dataset_id)
            refused = refusal


def _is_about_size(refusal: ServiceError) -> bool:
    return refusal.status == _TOO_LARGE or isinstance(refusal, ValidationFailedError)


async def _added(
    attempt: Attempt, stitch: Stitch, page: PlannedPage, batch: Batch, writer: CacheWriter | None
) -> tuple[Block | None, Block | None]:
    """Add a page to the answer and to what is cached."""
    attempt.read.stats.received_at = page.at
    with error_context("query", page.entity_id, page):
        both = await stitch.add(page, asked=batch.periods)
    if writer is not None:
        await writer.add(filter(None, both))
    return both
