"""How a client tells its observers of events. Its own log and statistics are observers like any other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import msgspec
from attrs import astuple

from asyncfin.errors import printable
from asyncfin.events import (
    Counts,
    Event,
    Observer,
    RequestAnswered,
    RequestStarted,
    Restarted,
    Retrying,
    Stats,
    Waited,
    Waiting,
)
from asyncfin.model import checks

_log = logging.getLogger("asyncfin")


class Announcer:
    """Calls every observer with each event, in the order in which they were given."""

    def __init__(self, *observers: Observer) -> None:
        for each in observers:
            checks.plain_callable("observers", each)
        self._observers = observers

    def __call__(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001  an observer's mistake is not the request's
                _log.exception("an observer failed on %s", type(event).__name__)

    @contextmanager
    def also(self, observer: Observer) -> Iterator[Self]:
        """Add an observer while the block lasts; the block gets this, to announce events of its own."""
        checks.plain_callable("observer", observer)
        self._observers += (observer,)
        try:
            yield self
        finally:
            # By identity, and the last: observers may be equal, and one may be given twice.
            last = max(at for at, each in enumerate(self._observers) if each is observer)
            self._observers = self._observers[:last] + self._observers[last + 1 :]


_INFORMATIVE = (Retrying, Restarted, Waiting)


def log(event: Event) -> None:
    """Write an event to the logger ``asyncfin``, its fields as extras of the record.

    Retries, restarts and long waits are of level INFO, all else of DEBUG.
    """
    level = logging.INFO if isinstance(event, _INFORMATIVE) else logging.DEBUG
    if _log.isEnabledFor(level):
        facts = msgspec.structs.asdict(event)
        told = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        _log.log(level, "%s %s", type(event).__name__, printable(told), extra=facts)


class Tally:
    """An observer that counts."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case RequestStarted():
                counts = Counts(requests=1, retries=int(event.attempt > 1))
            case RequestAnswered():
                counts = Counts(refused=int(event.status == 429), received=event.received)
            case Waited():
                counts = Counts(waits=event.seconds)
            case _:
                return
        self._counts[event.operation] = self._counts.get(event.operation, Counts()) + counts

    def stats(self) -> Stats:
        """Return the counts so far."""
        total = sum(self._counts.values(), Counts())
        return Stats(*astuple(total), by_operation=dict(self._counts))
