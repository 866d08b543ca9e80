"""What can be observed of a client: frozen events, who is told, and the figures that they add up to.

Everything that a client shows of its work goes through here, its own log and its own figures too:
both are observers like any other. No event holds a header, a body or a token. Each request makes
several, so they are of the cheapest kind of class.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, Self, TypeAlias

import msgspec
from attrs import astuple, field, frozen

from asyncfin.errors import printable
from asyncfin.model.kind import check_plain_callable
from asyncfin.model.words import counted

_log = logging.getLogger("asyncfin")


class RequestStarted(msgspec.Struct, frozen=True):
    """An attempt is sent. Exactly one `RequestAnswered` or `RequestFailed` of the same `serial` follows.

    Attributes:
        operation: which endpoint, e.g. ``"query"``.
        entity_id: whose; None for usage and limits.
        serial: the attempt's number; no two attempts in this process share one.
        attempt: its number within the request, from 1.
    """

    operation: str
    entity_id: str | None
    serial: int
    attempt: int


class RequestAnswered(msgspec.Struct, frozen=True):
    """A complete response came, of whatever status.

    Attributes:
        status: the HTTP status.
        received: bytes of the body, after inflating.
        seconds: from sending to the complete response.
        request_id: the service's id of the request, where the response is an error that names one.
    """

    operation: str
    entity_id: str | None
    serial: int
    attempt: int
    status: int
    received: int
    seconds: float
    request_id: str | None


class RequestFailed(msgspec.Struct, frozen=True):
    """No complete response came.

    Attributes:
        failure: the name of the error's class, e.g. ``"RequestTimeoutError"``, ``"CancelledError"``
            where the caller left.
        seconds: from sending to the failure.
    """

    operation: str
    entity_id: str | None
    serial: int
    attempt: int
    failure: str
    seconds: float


class Waited(msgspec.Struct, frozen=True):
    """A request has waited.

    Attributes:
        reason: ``"turn"``: for the token, a free connection and the bucket, shared pauses included;
            ``"retry"``: before trying again.
        seconds: how long.
    """

    operation: str
    entity_id: str | None
    reason: str
    seconds: float


class Retrying(msgspec.Struct, frozen=True):
    """An attempt failed, and the request will be sent again.

    Attributes:
        attempt: the attempt that failed, from 1.
        failure: the name of its error's class.
        wait: seconds before the next one. After a 429, what everybody waits.
        request_id: the service's id of the failed request, where it gave one.
    """

    operation: str
    entity_id: str | None
    attempt: int
    failure: str
    wait: float
    request_id: str | None


class Restarted(msgspec.Struct, frozen=True):
    """The dataset changed during a whole read, which starts over from the new catalogue.

    Attributes:
        operation: which read, e.g. ``"query"``.
        restart: its number within the read, from 1.
    """

    operation: str
    entity_id: str | None
    restart: int


Event: TypeAlias = RequestStarted | RequestAnswered | RequestFailed | Waited | Retrying | Restarted


class Observer(Protocol):
    """Whatever can be called with an event: a function, or an object with ``__call__``.

    It is called on the event loop, in the task whose request the event is about, and must not block.
    What it raises is logged, and disturbs neither the request nor the other observers.
    """

    def __call__(self, event: Event, /) -> None: ...


class Announcer:
    """Tells every observer of each event, in the order in which they were given."""

    def __init__(self, *observers: Observer) -> None:
        for each in observers:
            check_plain_callable("observers", each)
        self._observers = observers

    def __call__(self, event: Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001  an observer's mistake is not the request's
                _log.exception("an observer failed on %s", type(event).__name__)

    @contextmanager
    def also(self, observer: Observer) -> Iterator[Self]:
        """Tell one more observer while the block lasts; give what tells of events of its own."""
        check_plain_callable("observer", observer)
        self._observers += (observer,)
        try:
            yield self
        finally:
            last = max(at for at, each in enumerate(self._observers) if each is observer)
            self._observers = self._observers[:last] + self._observers[last + 1 :]


_INFORMATIVE = (Retrying, Restarted)


def log(event: Event) -> None:
    """Write an event to the logger ``asyncfin``, its fields as extras of the record.

    Retries and restarts are of level INFO, all else of DEBUG.
    """
    level = logging.INFO if isinstance(event, _INFORMATIVE) else logging.DEBUG
    if _log.isEnabledFor(level):
        facts = msgspec.structs.asdict(event)
        told = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        _log.log(level, "%s %s", type(event).__name__, printable(told), extra=facts)


@frozen
class Counts:
    """What requests have cost so far.

    Attributes:
        requests: attempts; each that reached the service counts against the account's allowance.
        retries: attempts beyond the first of their request.
        refused: attempts that the service answered with 429.
        waits: seconds that requests have waited, for their turn and between attempts.
        received: bytes of bodies, after inflating.
    """

    requests: int = 0
    retries: int = 0
    refused: int = 0
    waits: float = 0.0
    received: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.requests + other.requests,
            self.retries + other.retries,
            self.refused + other.refused,
            self.waits + other.waits,
            self.received + other.received,
        )


@frozen
class Stats(Counts):
    """The counts of a client at one moment: of all its requests, and by operation."""

    by_operation: Mapping[str, Counts] = field(kw_only=True)

    def __str__(self) -> str:
        each = ", ".join(f"{counts.requests} {name}" for name, counts in self.by_operation.items())
        requests, retries = counted(self.requests, "request"), counted(self.retries, "retry", "retries")
        return f"{requests}{f' ({each})' if each else ''}, {retries}, {self.received / 1000:,.0f} kB"


class Tally:
    """An observer that counts."""

    def __init__(self) -> None:
        self._counts: dict[str, Counts] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case RequestStarted():
                self._add(event.operation, Counts(requests=1, retries=int(event.attempt > 1)))
            case RequestAnswered():
                refused = int(event.status == 429)
                self._add(event.operation, Counts(refused=refused, received=event.received))
            case Waited():
                self._add(event.operation, Counts(waits=event.seconds))

    def _add(self, operation: str, counts: Counts) -> None:
        self._counts[operation] = self._counts.get(operation, Counts()) + counts

    def stats(self) -> Stats:
        """Return the counts so far."""
        total = sum(self._counts.values(), Counts())
        return Stats(*astuple(total), by_operation=dict(self._counts))
