"""What a client has learned of caps, for its life, and which batches are refused whatever their size."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakSet

from asyncfin.cache.base import LeastRecentlyUsed
from asyncfin.errors import ServiceError, ValidationFailedError
from asyncfin.model.catalogue import Catalogue
from asyncfin.plan.plan import Batch
from asyncfin.read.caps import NO_CAPS, TOO_LARGE, Caps, Kind, Part, cut, joined
from asyncfin.tasks import PerLoop

_log = logging.getLogger("asyncfin")

# Batches that are remembered as refused.
_MOST_REFUSED = 1_000
# Requests of a question that may be refused, besides one for each that may be in flight.
_MOST_SMALLER = 16
# Errors that were raised without a request.
_repeated: WeakSet[BaseException] = WeakSet()


def is_repeated(error: BaseException) -> bool:
    """Return whether an error repeats a refusal that was received before."""
    return error in _repeated


def is_about_size(refusal: ServiceError) -> bool:
    """Return whether a refusal may be about the size of a request."""
    return refusal.status == TOO_LARGE or isinstance(refusal, ValidationFailedError)


class Refusals:
    """How many requests of a question were refused as too large, and how many may still be."""

    def __init__(self, limit: int) -> None:
        self._left = limit + _MOST_SMALLER
        # Each request that is sent may be refused.
        self._places = asyncio.Semaphore(self._left)

    @property
    def are_too_many(self) -> bool:
        """Whether no smaller request may be sent."""
        return not self._left

    @asynccontextmanager
    async def may_follow(self) -> AsyncIterator[None]:
        """Wait until a request may be refused; the block is the request, up to its first page."""
        await self._places.acquire()
        is_refused = False
        try:
            yield
        except ServiceError as refusal:
            is_refused = is_about_size(refusal)
            raise
        finally:
            if is_refused:
                self._left -= 1
            else:
                self._places.release()


class LearnedCaps:
    """The caps that the responses to a client's questions have shown.

    What a question has learned counts at once, for all. It is dropped if one of its batches is refused
    whatever its size, since then the refusals before need not be about a size.
    """

    def __init__(self) -> None:
        self._lasting: Caps = NO_CAPS
        self._of_questions: dict[object, Caps] = {}  # of those in progress
        self._refused: LeastRecentlyUsed[Hashable, ServiceError] = LeastRecentlyUsed(_MOST_REFUSED)
        self._logged: set[Kind] = set()
        # One batch looks for a size while the others that were refused wait.
        self.searching = PerLoop(asyncio.Lock).get

    @property
    def known(self) -> Caps:
        """What is known of all caps."""
        return joined([self._lasting, *self._of_questions.values()])

    @contextmanager
    def learning(self, question: object) -> Iterator[None]:
        """Keep what a question learns within the block."""
        try:
            yield
        finally:
            if (caps := self._of_questions.pop(question, None)) is not None:
                self._lasting = joined([self._lasting, caps])
                self._log_new()

    def learn(self, question: object, caps: Caps) -> None:
        """Add what a question has learned."""
        self._of_questions[question] = joined([self._of_questions.get(question, NO_CAPS), caps])

    def parts(self, batches: Iterable[Batch], catalogue: Catalogue) -> list[Part]:
        """Return what to send for batches; raise the refusal that an equal one has received."""
        known = self.known
        parts = [part for each in batches for part in cut(Part.of(each, catalogue), known, catalogue)]
        for part in parts if self._refused.total else ():
            if (refusal := self._refused.get(_key(part.batch))) is not None:
                error = type(refusal)(**refusal.facts())
                for note in getattr(refusal, "__notes__", ()):
                    error.add_note(note)
                _repeated.add(error)
                raise error
        return parts

    def drop(self, question: object) -> None:
        """Drop what a question has learned."""
        self._of_questions.pop(question, None)

    def remember(self, batch: Batch, refusal: ServiceError) -> None:
        """Remember that a batch is refused, whatever its size."""
        self._refused.put(_key(batch), refusal)

    def _log_new(self) -> None:
        for kind, cap in self._lasting.items():
            if kind not in self._logged and cap.refused is not None:
                self._logged.add(kind)
                sizes = f"{cap.refused:,} {kind.value}", f"{cap.most:,}"
                if kind is Kind.EXACT:
                    _log.warning(
                        "the service refuses a query of %s: more than %s are sent as a range", *sizes
                    )
                else:
                    _log.warning("the service refuses a query of %s: more than %s are cut", *sizes)


def _key(batch: Batch) -> Hashable:
    ids = (batch.metric_ids, batch.scope_combinations, batch.reporting_group_ids)
    return (*ids, batch.periods, batch.value_version, batch.expected_dataset_id)
