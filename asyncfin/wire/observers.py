"""How a client calls its observers, one of which is its log, and announces waits."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Self

import msgspec

from asyncfin import checks, events
from asyncfin.clock import later, utc_text
from asyncfin.errors import printable
from asyncfin.pacing.bucket import Bucket
from asyncfin.wire.protocol import Request
from asyncfin.words import lasting

_log = logging.getLogger("asyncfin")


class Announcer:
    """Calls the log and every observer with each event, in the order in which they were
    given; also counts what requests cost, by operation.

    It needs the clock and the bucket to announce until when a request waits.
    """

    def __init__(
        self,
        observers: Iterable[events.Observer],
        clock: Callable[[], datetime],
        bucket: Bucket,
    ) -> None:
        self.clock, self.bucket = clock, bucket
        self.counts: defaultdict[str, events.Counts] = defaultdict(events.Counts)
        self._observers: tuple[events.Observer, ...] = (log, *observers)
        for observer in self._observers:
            checks.plain_callable("observers", observer)

    def is_heard(self, level: int = logging.DEBUG) -> bool:
        """Return whether an event is to be made that the log has at a level."""
        return len(self._observers) > 1 or _log.isEnabledFor(level)

    def __call__(self, event: events.Event) -> None:
        for observer in self._observers:
            try:
                observer(event)
            except Exception:  # noqa: BLE001  an observer's error must not fail the request
                _log.exception("an observer failed on %s", type(event).__name__)

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
            observers = list(self._observers)
            observers.remove(observer)
            self._observers = tuple(observers)


_INFORMATIVE = (events.Retrying, events.Restarted, events.Waiting)
# Seconds: a question that takes longer is logged at INFO, even if it sent no request.
_SLOW = 1.0


def log(event: events.Event) -> None:
    """Write an event to the logger ``asyncfin``, its fields as extras of the record.

    An outage is also a warning.
    """
    # Checked first: most programs log none of it, and the text of each event would be
    # made for nothing.
    if isinstance(event, events.QuestionFinished):
        is_informative = event.requests > 0 or event.seconds > _SLOW
    else:
        is_informative = isinstance(event, _INFORMATIVE)
    level = logging.INFO if is_informative else logging.DEBUG
    if _log.isEnabledFor(level):
        facts = msgspec.structs.asdict(event)
        text = " ".join(
            f"{name}={value}" for name, value in facts.items() if value is not None
        )
        _log.log(level, "%s %s", type(event).__name__, printable(text), extra=facts)
    if isinstance(event, events.OutageBegan):
        _log.warning(
            "the service fails since %s: %s, %d failures in a row;"
            " one request at a time is sent until it responds",
            utc_text(event.since.replace(microsecond=0)),
            event.failure,
            event.failures,
        )
    elif isinstance(event, events.OutageEnded) and event.recovered:
        _log.warning(
            "the service responds again after %s; %d requests were sent in that time",
            lasting(event.seconds),
            event.probes,
        )


# Seconds. A shorter wait is only the loop's own switching between tasks.
_NOTICEABLE = 0.001
# Seconds of waiting after which observers are first called.
_LONG = 1.0


class Wait(msgspec.Struct, eq=False):
    """A wait of a request, as a context manager: announced while it is long, and at its
    end.
    """

    request: Request
    announce: Announcer
    reason: str = ""  # as `Waiting` has it
    # The loop time at which it ends at the earliest, or None.
    ends_at: Callable[[], float | None] = lambda: None
    loop: asyncio.AbstractEventLoop = msgspec.field(
        default_factory=asyncio.get_running_loop
    )
    began_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    has_ended: bool = False

    def __enter__(self) -> Self:
        self.began_at = self.loop.time()
        if self.announce.is_heard(logging.INFO):
            self.timer = self.loop.call_later(_LONG, self._announce_long)
        return self

    def end(self, *_: object) -> None:
        """End the wait, with the block or before its end."""
        if self.has_ended:
            return
        self.has_ended = True
        if self.timer is not None:
            self.timer.cancel()
        seconds = self.loop.time() - self.began_at
        if seconds < _NOTICEABLE:
            return
        operation, entity_id = self.request.operation, self.request.entity_id
        self.announce.counts[operation].waits += seconds
        reason = self.reason if self.reason in ("retry", "outage") else "turn"
        self.announce(events.Waited(operation, entity_id, reason, seconds))

    __exit__ = end

    def _announce_long(self) -> None:
        now = self.loop.time()
        seconds = now - self.began_at
        # The intervals double: observers learn of a long wait soon, and it does not
        # fill a log.
        self.timer = self.loop.call_later(seconds, self._announce_long)
        reason, ends_at = self.reason, self.ends_at()
        request, announce = self.request, self.announce
        # The end of a pause of the bucket is known, that of the wait in its queue is
        # not.
        if reason == "bucket":
            ends_at = announce.bucket.stats().paused_until
            reason = "bucket" if ends_at is None else "pause"
        until = None if ends_at is None else later(announce.clock(), ends_at - now)
        announce(
            events.Waiting(request.operation, request.entity_id, reason, seconds, until)
        )
