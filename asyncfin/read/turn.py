"""The turn of a request: who asks a question may bound the requests that it sends."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from asyncfin.errors import AsyncfinError

# It gives a function that says whether another attempt may be sent. None: as many as `Retry` allows.
Turn: TypeAlias = Callable[[], AbstractAsyncContextManager[Callable[[], bool] | None]]


class NoTurnError(AsyncfinError):
    """Raised by a turn: no further request may be sent. Pages of a catalogue that were read are kept."""

    ended_by_turn = True
