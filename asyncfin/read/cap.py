"""Requests exact periods as a range if the service refuses so many: spec 4.3 states no cap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from attrs import evolve

from asyncfin.errors import ValidationFailedError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.selection import Exact, FiscalRange, resolve
from asyncfin.plan.plan import Batch
from asyncfin.tasks import PerLoop

Check = Callable[[ValidationFailedError, str], Awaitable[None]]


class ExactCap:
    """How many exact periods the service has refused, for the life of a client."""

    def __init__(self) -> None:
        self._refused: int | None = None
        # One batch tries the range while the others that were refused wait.
        self._trying = PerLoop(asyncio.Lock)

    def sendable(self, batch: Batch, catalogue: Catalogue) -> Batch:
        """Return a batch as it may be sent: as a range if so many exact periods were refused."""
        if self._refused is None or count_exact(batch) < self._refused:
            return batch
        return _as_range(batch, catalogue)

    @asynccontextmanager
    async def trial(
        self, batch: Batch, catalogue: Catalogue, refusal: ValidationFailedError, check: Check
    ) -> AsyncIterator[Batch]:
        """Yield a refused batch as a range, for its first page: if that is refused too, raise `refusal`.

        `check` finds out first whether the publication was replaced.
        """
        async with self._trying.get():
            sent = self.sendable(batch, catalogue)
            if count_exact(sent):
                await check(refusal, catalogue.dataset_id)
                sent = _as_range(batch, catalogue)
            try:
                yield sent
            except ValidationFailedError:
                raise refusal from None
            self._refused = min(count_exact(batch), self._refused or count_exact(batch))


def count_exact(batch: Batch) -> int:
    """Return how many exact periods a batch requests; 0: a range."""
    return len(batch.periods.periods) if isinstance(batch.periods, Exact) else 0


def _as_range(batch: Batch, catalogue: Catalogue) -> Batch:
    """Return a batch over the catalogue's whole span, of which the result is cut."""
    span = resolve(FiscalRange(), catalogue.periods)
    return batch if span is None else evolve(batch, periods=span)
