"""Reads a batch of a plan, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import TypeAlias

from attrs import evolve

from asyncfin.errors import ServiceError, ValidationFailedError, error_context
from asyncfin.model.selection import Exact, FiscalRange
from asyncfin.plan.plan import Batch
from asyncfin.read.read import Read
from asyncfin.read.stitch import Stitch
from asyncfin.read.write import CacheWriter
from asyncfin.table.block import Block
from asyncfin.wire.pages import planned_pages

# The wanted series of a page, and the foreign ones where they are kept.
Page: TypeAlias = tuple[Block, Block | None]

_TOO_LARGE = 413
_TOO_WIDE = "narrow the query: the service does not accept one of this size"
_CURSOR_REJECTED = "the service rejected a cursor that it had sent; query again"


async def read_batch(
    read: Read,
    stitch: Stitch,
    batch: Batch,
    writer: CacheWriter | None,
    *,
    prefetch: bool,
) -> AsyncGenerator[Page, None]:
    """Yield each page of a batch that has series which are at home in it.

    The spec does not show how many exact periods a query may have (4.3). If the
    service rejects them, one batch requests them as a range while the others wait. If
    that is accepted, all further batches of the read are sent as ranges.
    """
    has_exact = isinstance(batch.periods, Exact) and len(batch.periods.periods) > 1
    as_range = evolve(batch, periods=stitch.plan.catalogue.resolve(FiscalRange()))
    async with read.trial:  # wait for the batch that tries a range
        form = as_range if has_exact and read.sends_ranges else batch
    rejection: ServiceError | None = None
    while True:
        has_page = False
        try:
            async with (
                AsyncExitStack() as trial,
                aclosing(_read_pages(read, stitch, form, writer, prefetch)) as pages,
            ):
                if rejection is not None:
                    await trial.enter_async_context(read.trial)
                    if read.sends_ranges:
                        await trial.aclose()
                    else:
                        await read.check_unchanged(
                            rejection, stitch.plan.catalogue.dataset_id
                        )
                async for home, foreign in pages:
                    has_page = True
                    read.sends_ranges |= rejection is not None
                    await trial.aclose()
                    if home is not None:
                        yield home, foreign
            return
        except ServiceError as error:
            if error.status != _TOO_LARGE and not isinstance(
                error, ValidationFailedError
            ):
                raise
            if (
                has_exact
                and form is batch
                and not has_page
                and error.status != _TOO_LARGE
            ):
                rejection, form = error, as_range
                continue
            first = error if rejection is None else rejection
            first.add_note(_CURSOR_REJECTED if has_page else _TOO_WIDE)
            raise first from None


async def _read_pages(
    read: Read, stitch: Stitch, form: Batch, writer: CacheWriter | None, prefetch: bool
) -> AsyncGenerator[tuple[Block | None, Block | None], None]:
    """Yield the wanted series of each page, and the foreign ones where they are
    kept.
    """
    began = read.publications.clock()
    pages = planned_pages(
        read.send,
        read.entity_id,
        form,
        wanted=form.home,
        matched=form.matched,
        keep_foreign=writer is not None,
        prefetch=prefetch,
    )
    async with aclosing(pages):
        async for page in pages:
            # It was pinned and not rejected: its publication was current when it was
            # sent.
            read.record_confirmation(stitch.plan.catalogue.dataset_id, began)
            # With `prefetch` the next request may have left as soon as this page was
            # there.
            next_began = page.at if prefetch else None
            read.received_at = page.at
            with error_context("query", page.entity_id, page):
                blocks = await stitch.add(page, asked=form.periods)
            if writer is not None:
                await writer.add(filter(None, blocks))
            # While the blocks wait to be taken, they alone are held, and not the page's
            # bytes.
            del page
            yield blocks
            began = next_began or read.publications.clock()
