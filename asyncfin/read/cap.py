"""Requests exact periods as a range if the service refuses so many: spec 4.3 states no cap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing

from attrs import evolve

from asyncfin.errors import ValidationFailedError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.selection import Exact, FiscalRange, Resolved, resolve
from asyncfin.plan.plan import Batch
from asyncfin.tasks import PerLoop
from asyncfin.wire.values import PlannedPage

Check = Callable[[ValidationFailedError, str], Awaitable[None]]
Pages = Callable[[Batch], AsyncGenerator[PlannedPage, None]]


class ExactCap:
    """How many exact periods the service has refused, for the life of a client."""

    def __init__(self) -> None:
        self._refused: int | None = None
        # One batch tries the range while the others that were refused wait.
        self._trying = PerLoop(asyncio.Lock)

    async def pages(
        self, catalogue: Catalogue, batch: Batch, pages: Pages, check: Check
    ) -> AsyncGenerator[tuple[PlannedPage, Resolved], None]:
        """Yield the pages of a batch, each with the periods that were requested; `pages` sends a batch.

        If the range is refused too, the first refusal is raised, unless `check` finds a changed publication.
        """
        begun, sent = False, self._sendable(batch, catalogue)
        try:
            async with aclosing(pages(sent)) as received:
                async for page in received:
                    begun, given = True, [(page, sent.periods)]
                    del page  # held by the consumer alone
                    yield given.pop()
            return
        except ValidationFailedError as refusal:
            if begun or _count(sent) < 2:  # with one period their number cannot be the reason
                raise
            refused = refusal
        async with AsyncExitStack() as stack:
            async with self._trying.get():
                sent = self._sendable(batch, catalogue)
                if _count(sent):
                    await check(refused, catalogue.dataset_id)
                    sent = _as_range(batch, catalogue)
                received = await stack.enter_async_context(aclosing(pages(sent)))
                try:
                    given = [(await anext(received), sent.periods)]
                except ValidationFailedError:
                    raise refused from None
                self._refused = min(_count(batch), self._refused or _count(batch))
            yield given.pop()
            async for page in received:
                given.append((page, sent.periods))
                del page
                yield given.pop()

    def _sendable(self, batch: Batch, catalogue: Catalogue) -> Batch:
        if self._refused is None or _count(batch) < self._refused:
            return batch
        return _as_range(batch, catalogue)


def _count(batch: Batch) -> int:
    return len(batch.periods.periods) if isinstance(batch.periods, Exact) else 0


def _as_range(batch: Batch, catalogue: Catalogue) -> Batch:
    """Return a batch over the catalogue's whole span, of which the result is cut."""
    span = resolve(FiscalRange(), catalogue.periods)
    return batch if span is None else evolve(batch, periods=span)
