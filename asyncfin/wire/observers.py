"""How a client calls its observers. Its log and its statistics are observers like any other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self

import msgspec
from attrs import astuple, define

from asyncfin import checks, events
from asyncfin.clock import later, utc_text
from asyncfin.errors import printable
from asyncfin.model.words import lasting
from asyncfin.pacing.bucket import Bucket
from asyncfin.wire.protocol import Request, has_spec_form

_log = logging.getLogger("asyncfin")


class Announcer:
    """Calls every observer with each event, in the order in which they were given."""

    def __init__(self, *observers: events.Observer) -> None:
        for each in observers:
            checks.plain_callable("observers", each)
        self._observers = observers

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
        """Add an observer for the length of the block; yield this, to announce events."""
        checks.plain_callable("observer", observer)
        # A new tuple each time: an event that is being announced goes to the observers that were there.
        self._observers += (observer,)
        try:
            yield self
        finally:
            # By identity, and the last: observers may be equal, and one may be given twice.
            last = max(at for at, each in enumerate(self._observers) if each is observer)
            self._observers = self._observers[:last] + self._observers[last + 1 :]


# Seconds: a question that takes longer is logged at INFO, even if it sent no request.
_SLOW = 1.0


def log(event: events.Event) -> None:
    """Write an event to the logger ``asyncfin``, its fields as extras of the record."""
    # Checked first: most programs log none of it, and the text of each event would be made for nothing.
    if isinstance(event, events.QuestionFinished):
        is_informative = event.requests > 0 or event.seconds > _SLOW
    else:
        is_informative = isinstance(event, (events.Retrying, events.Restarted, events.Waiting))
    level = logging.INFO if is_informative else logging.DEBUG
    if _log.isEnabledFor(level):
        facts = msgspec.structs.asdict(event)
        text = " ".join(f"{name}={value}" for name, value in facts.items() if value is not None)
        _log.log(level, "%s %s", type(event).__name__, printable(text), extra=facts)


class WarningLog:
    """An observer that warns of outages, of the first deviation at each path, and of an unusual entity id."""

    def __init__(self) -> None:
        self._paths: set[str] = set()
        self._has_unusual_id = False

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.Deviated() if event.path not in self._paths:
                self._paths.add(event.path)
                _log.warning(
                    "responses deviate from the spec and are repaired: %s: %s (see Panel.deviations)",
                    event.path,
                    event.problem,
                )
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
                    "the service responds again after %s; %d requests were sent in that time",
                    lasting(event.seconds),
                    event.probes,
                )
            case events.RequestStarted(entity_id=str(entity_id)) if not (
                self._has_unusual_id or has_spec_form(entity_id)
            ):
                self._has_unusual_id = True
                _log.warning(
                    "%s is sent as an entity id, although it is not O- followed by 32 characters",
                    printable(entity_id),
                )


class Tally:
    """An observer that counts."""

    def __init__(self) -> None:
        self._counts: dict[str, events.Counts] = {}
        self._outage_since: datetime | None = None

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.OutageBegan():
                self._outage_since = event.since
                return
            case events.OutageEnded():
                self._outage_since = None
                return
            case events.RequestStarted():
                counts = events.Counts(requests=1, retries=int(event.attempt > 1))
            case events.RequestAnswered():
                counts = events.Counts(refused=int(event.status == 429), received=event.received)
            case events.Waited():
                counts = events.Counts(waits=event.seconds)
            case _:
                return
        self._counts[event.operation] = self._counts.get(event.operation, events.Counts()) + counts

    def stats(self) -> events.Stats:
        """Return the counts so far."""
        total = sum(self._counts.values(), events.Counts())
        counts = dict(self._counts)
        return events.Stats(*astuple(total), by_operation=counts, outage_since=self._outage_since)


# Seconds. A shorter wait is only the loop's own switching between tasks.
_NOTICEABLE = 0.001
# Seconds of waiting after which observers are first called.
_LONG = 1.0


@define
class Wait:
    """What a request waits for."""

    reason: str = ""  # as `Waiting` has it
    # Gives the loop time at which that ends at the earliest, if it is known.
    ends_at: Callable[[], float | None] = lambda: None


@contextmanager
def announced(
    request: Request, announce: Announcer, clock: Callable[[], datetime], bucket: Bucket
) -> Iterator[Wait]:
    """Announce the wait in the block while it is long, and its end."""
    wait, loop = Wait(), asyncio.get_running_loop()
    began_at = loop.time()
    timer: asyncio.TimerHandle

    def is_long(again: Callable[[Any], None]) -> None:
        nonlocal timer
        now = loop.time()
        seconds = now - began_at
        # The intervals double: observers learn of a long wait soon, and it does not fill a log.
        timer = loop.call_later(seconds, again, again)
        reason, ends_at = wait.reason, wait.ends_at()
        # The end of a pause of the bucket is known, that of the wait in its queue is not.
        if reason == "bucket" and (paused_until := bucket.stats().paused_until) is not None:
            reason, ends_at = "pause", paused_until
        until = None if ends_at is None else later(clock(), ends_at - now)
        announce(events.Waiting(request.operation, request.entity_id, reason, seconds, until))

    # It receives itself as an argument: a closure over itself would be a cycle, which keeps the request until
    # the garbage collector runs.
    timer = loop.call_later(_LONG, is_long, is_long)
    try:
        yield wait
    finally:
        timer.cancel()
    # Not reached by a wait that failed or was cancelled.
    seconds = loop.time() - began_at
    if seconds >= _NOTICEABLE:
        reason = wait.reason if wait.reason in ("retry", "outage") else "turn"
        announce(events.Waited(request.operation, request.entity_id, reason, seconds))
