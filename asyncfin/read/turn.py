"""The turn of a request: the caller that asks a question may limit the requests sent for it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias
from weakref import WeakSet

from asyncfin.errors import AsyncfinError, Concern

# It yields a function that returns whether another attempt may be sent; None: as many as `Retry` allows.
Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[Callable[[], bool] | None]]

# Errors with which a turn has ended a request: kept here, since what raises them does not know of turns.
_ended: WeakSet[BaseException] = WeakSet()


class NoTurnError(AsyncfinError):
    """Raised by a turn: no further request may be sent. Pages of a catalogue that were read are kept."""

    concerns: Concern = "entity"


def is_ended_by_turn(error: BaseException) -> bool:
    """Return whether the turn of the question whose request it was has ended that request.

    Other questions that share the request then send it themselves.
    """
    return isinstance(error, NoTurnError) or error in _ended


def mark_ended(error: AsyncfinError) -> None:
    """Record that a turn has ended a request with this error."""
    _ended.add(error)


@asynccontextmanager
async def taken(turn: Turn) -> AsyncIterator[Callable[[], bool]]:
    """Take a turn; yield the function that allows further attempts. Once it does not, mark the error."""
    ended = False
    async with turn() as may_retry:

        def may_go_on() -> bool:
            nonlocal ended
            ended = may_retry is not None and not may_retry()
            return not ended

        try:
            yield may_go_on
        except AsyncfinError as error:
            if ended:
                error.add_note("not retried: no further request may be sent")
                mark_ended(error)
            raise
