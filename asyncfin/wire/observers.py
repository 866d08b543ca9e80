"""How a client calls its observers. Its log and its statistics are observers like any
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Self

import msgspec
from attrs import astuple, define

from asyncfin import checks, events
from asyncfin.clock import later, utc_text
from asyncfin.errors import printable
from asyncfin.pacing.bucket import Bucket
from asyncfin.wire.protocol import Request, has_spec_form
from asyncfin.words import lasting

_log = logging.getLogger("asyncfin")


class Announcer:
    """Calls every observer with each event, in the order in which they were given.

    `own` are the client's: they need no event that is frequent, unless it is logged.
    """

    def __init__(
        self, *own: events.Observer, observers: Iterable[events.Observer] = ()
    ) -> None:
        given = tuple(observers)
        for each in given:
            checks.plain_callable("observers", each)
        self._own, self._observers = len(own), (*own, *given)

    def is_heard(self, level: int = logging.DEBUG) -> bool:
        """Return whether an event is to be made that the log has at a level."""
        return len(self._observers) > self._own or _log.isEnabledFor(level)

    def __call__(self, event: events.Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001  an observer's error must not fail the request
                _log.exception("an observer failed on %s", type(event).__name__)

    async def after_question(self) -> None:
        """Await what the observers do after a question."""
        for observer in self._observers:
            after_question = getattr(observer, "after_question", None)
            if after_question is None or not checks.is_async(after_question):
                continue
            try:
                await after_question()
            except Exception:  # noqa: BLE001  an observer's error must not fail the question
                _log.exception("an observer failed after a question")

    @contextmanager
    def also(self, observer: events.Observer) -> Iterator[Self]:
        """Add an observer for the length of the block; yield this, to announce
        events.
        """
        checks.plain_callable("observer", observer)
        # A new tuple each time: an event that is being announced goes to the observers
        # that were there.
        self._observers += (observer,)
        try:
            yield self
        finally:
            # By identity, and the last: observers may be equal, and one may be given
            # twice.
            last = max(
                at for at, each in enumerate(self._observers) if each is observer
            )
            self._observers = self._observers[:last] + self._observers[last + 1 :]


# Seconds: a question that takes longer is logged at INFO, even if it sent no request.
_SLOW = 1.0


def log(event: events.Event) -> None:
    """Write an event to the logger ``asyncfin``, its fields as extras of the record."""
    # Checked first: most programs log none of it, and the text of each event would be
    # made for nothing.
    if isinstance(event, events.QuestionFinished):
        is_informative = event.requests > 0 or event.seconds > _SLOW
    else:
        is_informative = isinstance(
            event, (events.Retrying, events.Restarted, events.Waiting)
        )
    level = logging.INFO if is_informative else logging.DEBUG
    if _log.isEnabledFor(level):
        facts = msgspec.structs.asdict(event)
        text = " ".join(
            f"{name}={value}" for name, value in facts.items() if value is not None
        )
        _log.log(level, "%s %s", type(event).__name__, printable(text), extra=facts)


class WarningLog:
    """An observer that warns of outages, and of an unusual entity id."""

    def __init__(self) -> None:
        self._has_unusual_id = False

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.OutageBegan():
                _log.warning(
                    "the service fails since %s: %s, %d failures in a row;"
                    " one request at a time is sent until it responds",
                    utc_text(event.since.replace(microsecond=0)),
                    event.failure,
                    event.failures,
                )
            case events.OutageEnded(recovered=True):
                _log.warning(
                    "the service responds again after %s; %d requests were sent in "
                    "that time",
                    lasting(event.seconds),
                    event.probes,
                )

    def check_entity_id(self, entity_id: str) -> None:
        """Warn of the first entity id that is sent and does not have the form of the
        spec.
        """
        if self._has_unusual_id or has_spec_form(entity_id):
            return
        self._has_unusual_id = True
        _log.warning(
            "%s is sent as an entity id, although it is not O- followed by 32 "
            "characters",
            printable(entity_id),
        )


class Count:
    """What the requests of an operation have cost so far."""

    __slots__ = ("received", "refused", "requests", "retries", "waits")

    def __init__(self) -> None:
        self.requests = self.retries = self.refused = self.received = 0
        self.waits = 0.0


class Tally:
    """The counts of a client; as an observer it notes outages."""

    def __init__(self) -> None:
        self._counts: dict[str, Count] = {}
        self._outage_since: datetime | None = None

    def of(self, operation: str) -> Count:
        """Return the counts of an operation, to add to."""
        if (found := self._counts.get(operation)) is None:
            found = self._counts[operation] = Count()
        return found

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.OutageBegan):
            self._outage_since = event.since
        elif isinstance(event, events.OutageEnded):
            self._outage_since = None

    def stats(self) -> events.Stats:
        """Return the counts so far."""
        counts = {
            name: events.Counts(
                each.requests, each.retries, each.refused, each.waits, each.received
            )
            for name, each in self._counts.items()
        }
        total = sum(counts.values(), events.Counts())
        return events.Stats(
            *astuple(total), by_operation=counts, outage_since=self._outage_since
        )


# Seconds. A shorter wait is only the loop's own switching between tasks.
_NOTICEABLE = 0.001
# Seconds of waiting after which observers are first called.
_LONG = 1.0


def _unknown() -> None:
    """Return that the end of a wait is not known."""


@define
class Waits:
    """What announces the waits of a client's requests, and counts them."""

    announce: Announcer
    tally: Tally
    clock: Callable[[], datetime]
    bucket: Bucket

    def of(self, request: Request) -> Wait:
        """Return a context manager for a wait of a request."""
        return Wait(request, self)


class Wait:
    """A wait of a request, as a context manager: announced while it is long, and at its
    end.

    Attributes:
        reason: as `Waiting` has it.
        ends_at: gives the loop time at which that ends at the earliest, if it is known.
    """

    __slots__ = (
        "_began_at",
        "_has_ended",
        "_loop",
        "_request",
        "_timer",
        "_waits",
        "ends_at",
        "reason",
    )

    def __init__(self, request: Request, waits: Waits) -> None:
        self._request, self._waits = request, waits
        self.reason = ""
        self.ends_at: Callable[[], float | None] = _unknown
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def __enter__(self) -> Self:
        if self._waits.announce.is_heard(logging.INFO):
            self._timer = self._loop.call_later(_LONG, self._announce_long)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end()
        elif self._timer is not None:  # one that failed or was cancelled
            self._timer.cancel()

    def end(self) -> None:
        """End the wait before the end of the block."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        seconds = self._loop.time() - self._began_at
        if seconds < _NOTICEABLE:
            return
        request, waits = self._request, self._waits
        waits.tally.of(request.operation).waits += seconds
        if waits.announce.is_heard():
            reason = self.reason if self.reason in ("retry", "outage") else "turn"
            waits.announce(
                events.Waited(request.operation, request.entity_id, reason, seconds)
            )

    def _announce_long(self) -> None:
        now = self._loop.time()
        seconds = now - self._began_at
        # The intervals double: observers learn of a long wait soon, and it does not
        # fill a log.
        self._timer = self._loop.call_later(seconds, self._announce_long)
        reason, ends_at = self.reason, self.ends_at()
        # The end of a pause of the bucket is known, that of the wait in its queue is
        # not.
        if (
            reason == "bucket"
            and (paused_until := self._waits.bucket.stats().paused_until) is not None
        ):
            reason, ends_at = "pause", paused_until
        until = None if ends_at is None else later(self._waits.clock(), ends_at - now)
        request = self._request
        self._waits.announce(
            events.Waiting(request.operation, request.entity_id, reason, seconds, until)
        )
