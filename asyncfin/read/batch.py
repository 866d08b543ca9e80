"""Reads a batch of a plan, page by page, and stores the series of its pages in the
cache.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, nullcontext
from typing import Self

from attrs import evolve

from asyncfin.errors import ServiceError, ValidationFailedError, error_context
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.selection import Exact, FiscalRange
from asyncfin.plan.plan import Batch
from asyncfin.read.read import Read
from asyncfin.read.stitch import Stitch
from asyncfin.table.block import Block, nbytes
from asyncfin.tasks import finish
from asyncfin.wire.pages import planned_pages

_TOO_LARGE = 413
_TOO_WIDE = "narrow the query: the service may not accept one of this size"
_CURSOR_REJECTED = "the service rejected a cursor that it had sent; query again"


async def read_batch(
    read: Read,
    stitch: Stitch,
    batch: Batch,
    writer: CacheWriter | None,
    *,
    prefetch: bool,
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
        pages = _read_pages(read, stitch, form, writer, prefetch)
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
    read: Read, stitch: Stitch, form: Batch, writer: CacheWriter | None, prefetch: bool
) -> AsyncGenerator[Block | None, None]:
    """Yield the series of each page that are at home in the batch."""
    pages = planned_pages(
        read.send,
        read.entity_id,
        form,
        home=form.home,
        query_ids=form.matched,
        wanted_ids=form.home if writer is None else form.matched,
        prefetch=prefetch,
    )
    async with aclosing(pages):
        async for page in pages:
            # It was pinned and not rejected: its publication was current when it was
            # sent.
            response = page.response
            assert response is not None
            read.record_confirmation(stitch.plan.catalogue.dataset_id, response.sent_at)
            with error_context("query", page.entity_id, response):
                block, read_block = await stitch.add(
                    page, home=form.home, request_periods=form.periods
                )
            if writer is not None and read_block is not None:
                await writer.add([read_block])
            # While the block waits to be taken, it alone is held, and not the page's
            # bytes.
            del page, response, read_block
            yield block


# A put is a file and a turn in a thread, whatever it holds: a put for each page would
# take multiple times as long as compressing the pages.
_BYTES = 4 * 1024 * 1024


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
