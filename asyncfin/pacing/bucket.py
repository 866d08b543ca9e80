"""When a request may be sent: the protocol of buckets, and the bucket of one event
loop.

Decided here: which waiter is next, what a pause and a used-up allowance mean to the
waiters, and what a cancelled wait gives back. The arithmetic is in
`asyncfin.pacing.pace`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from copy import copy
from datetime import datetime
from functools import partial
from typing import Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from attrs import define
from msgspec.structs import replace

from asyncfin import checks
from asyncfin.clock import utc_now
from asyncfin.errors import AsyncfinError
from asyncfin.events import BucketStats
from asyncfin.pacing.pace import Allowance, Change, Pace
from asyncfin.tasks import check_closed, running_loop

# A grant may come this much early: what float arithmetic loses, not what a service
# could notice.
_EPSILON = 1e-9
# While requests wait in both lanes, bulk gets one grant after this many to interactive:
# it is never starved.
_BULK_TURN = 9

# Which requests a bucket grants first when several wait.
Lane: TypeAlias = Literal["interactive", "bulk"]
check_lane = partial(checks.one_of("interactive", "bulk"), "lane")


class Parameters(NamedTuple):
    """The arguments of a bucket: requests per second, at once, and a day."""

    rate: float | None
    burst: float
    daily_budget: float | None

    @classmethod
    def check(
        cls, rate: float | None, burst: float, daily_budget: float | None
    ) -> Self:
        """Check the arguments: ArgumentError if one is not a number in its range."""
        size = checks.at_least(1)
        return cls(
            checks.above(0).optional("to learn it")("rate", rate),
            size("burst", burst),
            size.optional()("daily_budget", daily_budget),
        )

    def numbers(self) -> list[float]:
        """The arguments as they are stored: 0 is None."""
        return [number or 0.0 for number in self]

    def __str__(self) -> str:
        return "rate={}, burst={}, daily_budget={}".format(*self)


@runtime_checkable
class Bucket(Protocol):
    """What paces the requests of the clients that share it.

    `asyncfin.TokenBucket` is one for a single process. Any object with these methods is
    a bucket.
    """

    async def acquire(
        self, *, lane: Lane = "interactive", counts: bool = True
    ) -> float:
        """Wait for permission to send one request, and return the loop time at which it
        was given.

        Args:
            lane: ``"interactive"`` goes before ``"bulk"``, which gets every tenth grant
                while both wait.
            counts: whether the request counts for the account's allowance (spec 8).
                False (usage and limits): it is exempt from a used-up allowance and the
                daily budget, not from pace and pauses.

        Raises:
            ArgumentError: the lane is unknown.
            AllowanceExhaustedError: the allowance or the budget is used up, also if
                that happens during the wait.
            BucketUnavailableError: the state is shared and can't be reached, and has no
                fallback.
            RuntimeError: the bucket is closed, or in use by another event loop, which
                is not closed.
        """

    async def give_back(self) -> None:
        """Undo a grant that counts and on which nothing was sent. A learned rate stays
        as it is.

        Do so at once: if the bucket has filled up since the grant, one request more
        than `burst` can follow. A shared bucket does so in the background.
        """

    async def unspend(self, *, sent_at: float) -> None:
        """Take a request that never reached the service off the day's spending; its
        grant stays used.

        Args:
            sent_at: what `acquire` returned for it.
        """

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        """Record a 429: pause for `retry_after` seconds, in all processes, and lower a
        learned rate.

        A refusal of a request that was granted before the last reduction is part of the
        same event, and lowers nothing.

        Args:
            sent_at: what `acquire` returned for the request that was refused.
            retry_after: seconds; a longer wait than `Retry.max_retry_after` is for
                `exhaust`.
        """

    async def exhaust(self, seconds: float) -> None:
        """Refuse every request that counts, waiting ones included, in all processes for
        `seconds`.
        """

    def stats(self) -> BucketStats:
        """Describe the current state of the bucket."""

    async def aclose(self) -> None:
        """Close files and connections. A shared bucket rejects its waiters, and can't
        be used again.
        """


@define(eq=False)
class Waiter:
    """One call of `acquire`; `grant` has the loop time of its grant, or an error."""

    lane: Lane
    counts: bool
    grant: asyncio.Future[float]


class LoopBucket(Bucket):
    """A bucket that belongs to one event loop at a time, with a queue for each lane.

    First come, first served within a lane, and the lanes take turns.
    """

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._pace = Pace(parameters.rate, parameters.burst)
        self._granted = 0
        self._refused = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin()

    def _begin(self) -> None:
        """Forget what belongs to an earlier event loop; its waiters ended with it."""
        self._queues: dict[Lane, deque[Waiter]] = {
            "interactive": deque(),
            "bulk": deque(),
        }
        self._passed = 0  # grants to interactive while bulk waited

    @abstractmethod
    def _serve(self) -> None:
        """Grant what can be granted now, and the rest when its moment comes."""

    @abstractmethod
    async def _change(self, change: Change) -> None:
        """Change the state; the learned pace has followed already."""

    @abstractmethod
    def _return_spending(self, counts: bool) -> None:
        """Undo the spending of a grant; `counts` as in `acquire`."""

    def _return(self, counts: bool) -> None:
        self._granted -= 1
        self._pace.give_back()
        self._return_spending(counts)

    async def acquire(
        self, *, lane: Lane = "interactive", counts: bool = True
    ) -> float:
        check_lane(lane)
        waiter = Waiter(lane, counts, self._bind().create_future())
        queue = self._queues[lane]
        queue.append(waiter)
        self._serve()
        try:
            return await waiter.grant
        except BaseException:
            future = waiter.grant
            if waiter in queue:
                queue.remove(waiter)
            elif not future.cancelled() and future.exception() is None:
                # It was granted in the turn of the loop that cancels the wait.
                self._return(counts)
            self._serve()
            raise

    async def give_back(self) -> None:
        self._bind()
        self._return(True)
        self._serve()

    async def unspend(self, *, sent_at: float) -> None:
        age = self._bind().time() - sent_at
        self._pace.forget(sent_at)
        await self._change(Change("unspend", age))

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        now = self._bind().time()
        self._refused += 1
        self._pace.refuse(sent_at, now, retry_after)
        await self._change(Change("pause", retry_after))

    async def exhaust(self, seconds: float) -> None:
        self._bind()
        await self._change(Change("exhaust", seconds))

    async def resume(self) -> None:
        """End a pause and a used-up allowance, for all processes that share the bucket.

        For an operator who knows better than the service's Retry-After. Other processes
        in which requests wait notice it within half a second. A daily budget still
        applies.

        Raises:
            BucketUnavailableError: the shared state can't be changed.
            RuntimeError: the bucket is closed, or in use by another event loop, which
                is not closed.
        """
        self._pace.gcra.resume(self._bind().time())
        await self._change(Change("resume"))

    def _bind(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, after moving the bucket there if its last loop is
        closed.
        """
        loop = running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                check_closed(self._loop, type(self).__name__, "bucket")
                self._begin()
            self._loop = loop
        return loop

    def _find_next(self) -> Waiter | None:
        """Return the waiter that is next, or None if no request waits."""
        for queue in self._queues.values():
            # A waiter whose task was cancelled in this turn of the loop leaves its
            # queue when the task runs.
            while queue and queue[0].grant.cancelled():
                queue.popleft()
        interactive, bulk = self._queues.values()
        if bulk and (not interactive or self._passed >= _BULK_TURN):
            return bulk[0]
        return interactive[0] if interactive else None

    def _give(self, waiter: Waiter, now: float) -> None:
        """Give a grant to the waiter that `_find_next` returned."""
        self._queues[waiter.lane].popleft()
        passes_bulk = waiter.lane == "interactive" and self._queues["bulk"]
        self._passed = self._passed + 1 if passes_bulk else 0
        waiter.grant.set_result(now)

    def _reject(self, error: BaseException, *, only_counting: bool = False) -> None:
        """Fail the waiters, or those that count."""
        for queue in self._queues.values():
            for waiter in tuple(queue):
                if waiter.counts or not only_counting:
                    queue.remove(waiter)
                    if not waiter.grant.done():
                        # One object raised in many tasks would mix their tracebacks,
                        # but others' exceptions need not be such as can be copied.
                        is_ours = isinstance(error, AsyncfinError)
                        waiter.grant.set_exception(copy(error) if is_ours else error)

    def _apply_allowance(self, allowance: Allowance, unix: float) -> None:
        """Fail the waiters that the allowance has no room for."""
        if error := allowance.error(unix):
            self._reject(error, only_counting=True)

    def _describe(self, parameters: Parameters) -> BucketStats:
        """Describe what this process has without the state: its parameters and
        counts.
        """
        return BucketStats(
            rate=parameters.rate or self._pace.rate,
            burst=parameters.burst,
            learned=parameters.rate is None,
            waiting={lane: len(queue) for lane, queue in self._queues.items()},
            granted=self._granted,
            refused=self._refused,
            daily_budget=parameters.daily_budget,
        )


class TokenBucket(LoopBucket):
    """Paces the requests of any number of tasks and clients of one event loop.

    Over any period it grants at most ``burst + rate * seconds``. Every attempt of a
    request takes a grant.

    Args:
        rate: requests per second. None: no pace until the service first rejects one
            (429); from then on the rate is learned from its rejections.
        burst: how many may be granted at once after a rest, at least 1.
        daily_budget: how many this bucket may grant between two midnights UTC (spec 8),
            at least 1. Requests that never reached the service are not counted. None:
            no limit except the service's.
        clock: returns the wall time, aware UTC; for tests. Everything else uses the
            event loop's clock.

    Raises:
        ArgumentError: `rate`, `burst` or `daily_budget` is not a number in its range.
    """

    def __init__(
        self,
        rate: float | None = None,
        burst: float = 1,
        *,
        daily_budget: float | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        parameters = Parameters.check(rate, burst, daily_budget)
        super().__init__(parameters)
        self._clock = clock
        self._allowance = Allowance(daily_budget)

    def _begin(self) -> None:
        super()._begin()
        self._timer: asyncio.TimerHandle | None = None  # set while requests wait

    def __repr__(self) -> str:
        return f"TokenBucket({self._parameters})"

    async def acquire(
        self, *, lane: Lane = "interactive", counts: bool = True
    ) -> float:
        check_lane(lane)
        now, unix = self._bind().time(), self._clock().timestamp()
        if counts and (error := self._allowance.error(unix)):
            raise error
        # No request waits and the bucket holds enough: no future, no timer.
        if self._timer is None and self._pace.gcra.moment() <= now + _EPSILON:
            self._grant(counts, now, unix, has_waited=False)
            return now
        # It queues, also where the bucket holds enough: earlier requests go first.
        return await super().acquire(lane=lane, counts=counts)

    async def aclose(self) -> None:
        """Do nothing: a bucket of one process has no files or connections."""

    def stats(self) -> BucketStats:
        now = self._loop.time() if self._loop else 0.0
        gcra, error = self._pace.gcra, self._allowance.error(self._clock().timestamp())
        return replace(
            self._describe(self._parameters),
            level=gcra.held(now),
            paused_until=gcra.paused_until if gcra.paused_until > now else None,
            exhausted_until=error.resume_at if error else None,
            spent_today=self._allowance.spending,
        )

    def _grant(
        self, counts: bool, now: float, unix: float, *, has_waited: bool
    ) -> None:
        self._pace.grant(now, has_waited=has_waited)
        self._granted += 1
        self._allowance.apply(Change("take", counts), unix)
        # The waiters fail as soon as the day's budget is used up, not when they are
        # next.
        if self._allowance.budget is not None:
            self._apply_allowance(self._allowance, unix)

    async def _change(self, change: Change) -> None:
        unix = self._clock().timestamp()
        self._allowance.apply(change, unix)
        self._apply_allowance(self._allowance, unix)
        self._serve()

    def _return_spending(self, counts: bool) -> None:
        self._allowance.apply(Change("give_back", counts), self._clock().timestamp())

    def _serve(self) -> None:
        """Grant what can be granted now, and set the timer for the next waiter."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now, unix = loop.time(), self._clock().timestamp()
        while (waiter := self._find_next()) is not None:
            # Only the head has a moment, computed each time: nothing is reserved ahead,
            # so that a new rate or pause takes effect at once.
            moment = self._pace.gcra.moment()
            if moment > now + _EPSILON:
                self._timer = loop.call_at(moment, self._serve)
                return
            self._give(waiter, now)
            self._grant(waiter.counts, now, unix, has_waited=True)
