"""What can be observed of a client and a bucket: frozen events, the observer that gets
them, and statistics.

Every event has the `operation`, of a request that is the endpoint, such as ``"query"``
(``"request"`` for `Client.request`); and the `entity_id`, which is None for usage,
limits and runs of `extract`. What begins and ends has a `serial`, which is unique
within the process and the same in both events.
Attempts are numbered within their request, from 1.

No event contains a header, a body or a token. Each request makes several events, so
they are msgspec Structs, the cheapest class to create.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import count
from operator import add, attrgetter
from typing import Protocol, TypeAlias

import msgspec

from asyncfin.words import counted

# One for all clients, so that one observer may watch several.
next_serial = count(1).__next__


class _Question(msgspec.Struct, frozen=True):
    operation: str
    entity_id: str
    serial: int
    lane: str


class _Run(msgspec.Struct, frozen=True):
    operation: str
    entity_id: None
    serial: int
    entities: int


class _Request(msgspec.Struct, frozen=True):
    operation: str
    entity_id: str | None


class _Attempt(_Request, frozen=True):
    serial: int
    attempt: int


class QuestionStarted(_Question, frozen=True):
    """A question begins. Exactly one `QuestionFinished` of the same `serial` follows,
    however it ends.

    A call of `query`, `run` or `read_entity` is a question, and so are a `stream` and
    each entity of `query_many` and `extract`, also where it shares the requests of an
    equal question or sends none.

    Attributes:
        operation: ``"query"``, ``"stream"``, ``"read_entity"`` or ``"extract"``.
        lane: the client's lane.
    """


class QuestionFinished(_Question, frozen=True):
    """A question has its result, has failed, or was cancelled.

    Attributes:
        series: how many series the result contains, once for each value version; of a
            stream, those that were received before it ended. None: no result.
        periods: how many periods it has. None: no result.
        requests: the attempts that were sent for it; 0 if it shared those of an equal
            question.
        cached: how many of the series were cached, and not requested.
        stale: whether the result is of a publication that could not be confirmed
            (`stale_if_error`).
        restarts: how often it started over because the publication changed.
        dataset_id: the publication of the result. None: no result.
        failure: the name of the class of the error that ended it; ``"CancelledError"``
            if the caller has left, ``"TimeoutError"`` if the time of
            `asyncfin.web.unless_gone` was up. None: no error.
        seconds: how long it took.
    """

    series: int | None
    periods: int | None
    requests: int
    cached: int
    stale: bool
    restarts: int
    dataset_id: str | None
    failure: str | None
    seconds: float


class ExtractStarted(_Run, frozen=True):
    """A run of `extract` begins. Exactly one `ExtractFinished` of the same `serial`
    follows.

    With an executor, each chunk is a run of its worker's client.

    Attributes:
        operation: ``"extract"``.
        entities: how many entities it is for.
    """


class ExtractFinished(_Run, frozen=True):
    """A run of `extract` has ended. The entities that it has not reached are counted in
    `entities` only.

    Attributes:
        done: how many files it has written.
        unchanged: how many files were of the current publication already.
        failed: how many entities have failed.
        requests: the attempts that were sent for it.
        failure: the name of the class of the error that ended it. None: no error was
            raised.
        seconds: how long it took.
    """

    done: int
    unchanged: int
    failed: int
    requests: int
    failure: str | None
    seconds: float


class RequestStarted(_Attempt, frozen=True):
    """An attempt is sent. Exactly one `RequestFinished` of the same `serial` follows.

    Attributes:
        method: the HTTP method.
        url: the whole URL.
    """

    method: str
    url: str


class RequestFinished(_Attempt, frozen=True):
    """An attempt has ended: with a complete response of any status, or without one.

    Attributes:
        status: the HTTP status. None: no complete response was received.
        received: bytes of the body, after decompression.
        seconds: from sending to the end.
        request_id: the service's id of the request, where the response is an error that
            names one.
        failure: the name of the error's class where no complete response was received,
            such as ``"RequestTimeoutError"``, also if a time limit has cancelled it;
            ``"CancelledError"`` if the caller has left. None: there is a response.
    """

    status: int | None
    received: int
    seconds: float
    request_id: str | None
    failure: str | None


class Waiting(_Request, frozen=True):
    """A request has been waiting for a second, and still is; again after 2, 4, 8, ...
    seconds.

    Attributes:
        reason: what it waits for. ``"token"``: the token callable; ``"connection"``:
            one of the client's `max_in_flight` slots; ``"bucket"``: the bucket's rate,
            and earlier requests; ``"pause"``: the end of the bucket's pause after a
            429; ``"retry"``: its next attempt; ``"outage"``: that the service responds
            again, or that it is the next request to find out.
        seconds: how long it has waited so far.
        until: when the wait ends at the earliest, aware UTC, in an outage the next
            attempt of any request; None if that is not known.
    """

    reason: str
    seconds: float
    until: datetime | None


class Waited(_Request, frozen=True):
    """A wait of a request has ended.

    Attributes:
        reason: ``"turn"``: for the token, a free connection and the bucket, including
            shared pauses; ``"retry"``: before its next attempt; ``"outage"``: while the
            service failed.
        seconds: how long it waited.
    """

    reason: str
    seconds: float


class Retrying(_Request, frozen=True):
    """An attempt failed, and the request will be retried.

    Attributes:
        attempt: the number of the attempt that failed.
        failure: the name of the error's class.
        wait: the seconds until the next attempt; after a 429, the length of the shared
            pause.
        request_id: the service's id of the failed request, if it gave one.
    """

    attempt: int
    failure: str
    wait: float
    request_id: str | None


class Restarted(_Request, frozen=True):
    """The dataset changed during a whole read, which starts over from the new
    catalogue.

    Attributes:
        restart: its number within the read, from 1.
    """

    restart: int


class _Outage(_Request, frozen=True):
    serial: int


class OutageBegan(_Outage, frozen=True):
    """The service fails: from now on the client sends one request at a time to find out
    when it responds.

    Exactly one `OutageEnded` of the same `serial` follows. The `operation` and the
    `entity_id`, of both, are those of the request that failed last.

    Attributes:
        failure: the name of the class of its error.
        failures: how many attempts have failed in a row.
        since: when the first of them failed, aware UTC.
    """

    failure: str
    failures: int
    since: datetime


class OutageEnded(_Outage, frozen=True):
    """The service responds again, or the client was closed.

    Attributes:
        since: as in `OutageBegan`.
        seconds: how long that is ago.
        probes: how many requests were sent to find out.
        recovered: whether the service responds again. False: the client was closed
            first.
    """

    since: datetime
    seconds: float
    probes: int
    recovered: bool


Event: TypeAlias = (
    QuestionStarted
    | QuestionFinished
    | ExtractStarted
    | ExtractFinished
    | RequestStarted
    | RequestFinished
    | Waiting
    | Waited
    | Retrying
    | Restarted
    | OutageBegan
    | OutageEnded
)


class Observer(Protocol):
    """A function, or an object with ``__call__``, that is called with each event.

    It is called on the event loop and must not block: in the task whose request the
    event is about, and for `Waiting` in that task's context. What it raises is logged,
    and disturbs neither the request nor the other observers.
    """

    def __call__(self, event: Event, /) -> None: ...


class Counts(msgspec.Struct):
    """What requests have cost so far.

    Attributes:
        requests: attempts; those that reached the service count against the account's
            allowance, except for usage and limits.
        retries: attempts beyond the first of their request.
        refused: attempts that received a 429.
        waits: seconds that requests have waited, for their turn and between attempts.
        received: bytes of bodies, after decompression.
    """

    requests: int = 0
    retries: int = 0
    refused: int = 0
    waits: float = 0.0
    received: int = 0

    def __add__(self, counts: Counts) -> Counts:
        return Counts(*map(add, _read_figures(self), _read_figures(counts)))


# Not astuple: those of a client have more fields.
_read_figures = attrgetter(*Counts.__struct_fields__)


class Stats(Counts, kw_only=True):
    """The counts of a client at one moment: of all its requests, and by operation.

    Attributes:
        outage_since: since when the service fails, aware UTC, or None if it does not.
    """

    by_operation: Mapping[str, Counts]
    outage_since: datetime | None = None

    def __str__(self) -> str:
        operations = ", ".join(
            f"{counts.requests} {name}" for name, counts in self.by_operation.items()
        )
        return (
            f"{counted(self.requests, 'request')}{operations and f' ({operations})'}, "
            f"{counted(self.retries, 'retry', 'retries')}, "
            f"{self.received / 1000:,.0f} kB"
        )


class BucketStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a bucket is doing, at one moment.

    Attributes:
        rate: requests per second; None while unpaced.
        burst: how many requests the bucket can hold.
        learned: whether the rate is learned from the service's refusals.
        level: how many requests the bucket holds, or None if it is shared and this
            process never read it.
        waiting: how many wait, by lane.
        granted: how many grants there were.
        refused: how many rejections (429) were reported.
        paused_until: loop time; None while not paused.
        exhausted_until: when requests are possible again, aware UTC, or None if they
            are, or it was never read.
        spent_today: requests granted since midnight UTC, without requests that never
            reached the service, or None if it is shared and this process never read
            it.
        daily_budget: the bound on `spent_today`, or None.
        fallback: whether the fallback paces at the moment, because the server that is
            shared is away.
    """

    rate: float | None
    burst: float
    learned: bool
    level: float | None = None
    waiting: Mapping[str, int]
    granted: int
    refused: int
    paused_until: float | None = None
    exhausted_until: datetime | None = None
    spent_today: float | None = None
    daily_budget: float | None
    fallback: bool = False

    @property
    def left_today(self) -> float | None:
        """How many requests are left today: 0 until `exhausted_until`, otherwise the
        rest of `daily_budget`.

        None: without a budget, or if `spent_today` is unknown.
        """
        # Not only a spent budget: the service's allowance can be smaller.
        if self.exhausted_until is not None:
            return 0.0
        if self.daily_budget is None or self.spent_today is None:
            return None
        return max(0.0, self.daily_budget - self.spent_today)
