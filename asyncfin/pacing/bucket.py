"""When a request may be sent: the protocol of buckets, and the bucket of one event
loop.

Decided here: which waiter is next, what a pause and a used-up allowance mean to the
waiters, and what a cancelled wait gives back. The arithmetic is in
`asyncfin.pacing.pace` and `asyncfin.pacing.learned`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import datetime
from itertools import islice, takewhile
from typing import NamedTuple, Protocol, Self, runtime_checkable

from attrs import define

from asyncfin import checks
from asyncfin.clock import utc_now, wall_time
from asyncfin.errors import ArgumentError
from asyncfin.events import BucketStats
from asyncfin.model.query import Lane, check_lane
from asyncfin.pacing.learned import Pace
from asyncfin.pacing.pace import GCRA, Allowance
from asyncfin.tasks import check_closed, running_loop

# A grant may come this much early: what float arithmetic loses, not what a service
# could notice.
_EPSILON = 1e-9
# While requests wait in both lanes, bulk gets one grant after this many to interactive:
# it is never starved.
_BULK_TURN = 9

check_rate = checks.above(0).optional("to learn it")
check_size = checks.at_least(1)
_check_budget = check_size.optional()


class Parameters(NamedTuple):
    """What a bucket was given: weight per second, weight at once, and weight a day."""

    rate: float | None
    burst: float
    daily_budget: float | None

    @classmethod
    def checked(
        cls, rate: float | None, burst: float, daily_budget: float | None
    ) -> Self:
        """Return them, or raise ArgumentError if one is not a number in its range."""
        return cls(
            check_rate("rate", rate),
            check_size("burst", burst),
            _check_budget("daily_budget", daily_budget),
        )

    def __str__(self) -> str:
        rate = "None" if self.rate is None else f"{self.rate:g}"
        budget = (
            "" if self.daily_budget is None else f", daily_budget={self.daily_budget:g}"
        )
        return f"rate={rate}, burst={self.burst:g}{budget}"


def check_weight(weight: float, burst: float) -> None:
    """Raise ArgumentError for a weight that a bucket of this burst could never
    grant.
    """
    if not checks.is_finite(weight) or not 0 < weight <= burst:
        raise ArgumentError(
            f"weight must be above 0 and at most the burst, {burst:g}, not "
            f"{checks.short_repr(weight)}"
        )


@runtime_checkable
class Bucket(Protocol):
    """What paces the requests of the clients that share it.

    `asyncfin.TokenBucket` is one for a single process. Any object with these methods is
    a bucket.
    """

    async def acquire(
        self, weight: float = 1, *, lane: Lane = "interactive", counts: bool = True
    ) -> float:
        """Wait for permission to send one request, and return the loop time at which it
        was given.

        Args:
            weight: what the request counts, above 0 and at most the burst.
            lane: ``"interactive"`` goes before ``"bulk"``, which gets every tenth grant
                while both wait.
            counts: whether the request counts for the account's allowance (spec 8).
                False (usage and limits): it is exempt from a used-up allowance and the
                daily budget, not from pace and pauses.

        Raises:
            ArgumentError: the lane is unknown, or the weight could never be granted.
            AllowanceExhaustedError: the allowance or the budget is used up, also if
                that happens during the wait.
            BucketUnavailableError: the state is shared and can't be reached, and has no
                fallback.
            RuntimeError: the bucket is closed, or in use by another event loop, which
                is not closed.
        """
        ...

    async def give_back(self, weight: float = 1) -> None:
        """Undo a grant that counts and on which nothing was sent. A learned rate stays
        as it is.

        A shared bucket does so in the background.
        """
        ...

    async def unspend(self, *, sent_at: float) -> None:
        """Take a request that never reached the service off the day's spending; its
        grant stays used.

        Args:
            sent_at: what `acquire` returned for it.
        """
        ...

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
        ...

    async def exhaust(self, seconds: float) -> None:
        """Refuse every request that counts, waiting ones included, in all processes for
        `seconds`.
        """
        ...

    def stats(self) -> BucketStats:
        """Return what the bucket is doing now."""
        ...

    async def aclose(self) -> None:
        """Close files and connections. A shared bucket rejects its waiters, and can't
        be used again.
        """
        ...


@define(eq=False)
class Waiter:
    """One call of `acquire`; `outcome` is the loop time of the grant, or the error that
    rejects it.
    """

    weight: float
    counts: bool
    outcome: asyncio.Future[float | BaseException]


class Lanes:
    """The queues of a bucket: first come, first served within a lane, and the lanes
    take turns.
    """

    def __init__(self) -> None:
        self._interactive: deque[Waiter] = deque()
        self._bulk: deque[Waiter] = deque()
        self.queues: dict[Lane, deque[Waiter]] = {
            "interactive": self._interactive,
            "bulk": self._bulk,
        }
        self._passed = 0  # grants to interactive while bulk waited

    @property
    def waiting(self) -> dict[str, int]:
        """How many wait, by lane."""
        return {lane: len(queue) for lane, queue in self.queues.items()}

    async def wait(
        self,
        waiter: Waiter,
        lane: Lane,
        serve: Callable[[], None],
        give_back: Callable[[float, bool], None],
    ) -> float:
        """Queue until there is a grant, and return its loop time; `serve` grants what
        can be granted now.

        A grant that was given in the turn of the loop that cancels the wait is undone
        by `give_back`, which gets the waiter's weight, and whether it counts.
        """
        queue = self.queues[lane]
        queue.append(waiter)
        serve()
        try:
            outcome = await waiter.outcome
        except BaseException:
            future = waiter.outcome
            if waiter in queue:
                queue.remove(waiter)
            elif (
                future.done()
                and not future.cancelled()
                and isinstance(future.result(), float)
            ):
                give_back(waiter.weight, waiter.counts)
            serve()
            raise
        # A result, not the future's exception: if it is never awaited, the loop would
        # log that as an error.
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def next(self) -> deque[Waiter] | None:
        """Return the queue whose head is next, or None if no request waits."""
        for queue in self.queues.values():
            # A waiter whose task was cancelled in this turn of the loop leaves its
            # queue when the task runs.
            while queue and queue[0].outcome.cancelled():
                queue.popleft()
        if self._bulk and (not self._interactive or self._passed >= _BULK_TURN):
            return self._bulk
        return self._interactive or None

    def pop(self, queue: deque[Waiter]) -> None:
        """Remove the head of the queue that `next` returned."""
        queue.popleft()
        self._passed = (
            self._passed + 1 if self._bulk and queue is self._interactive else 0
        )

    def alike(self, queue: deque[Waiter], most: int) -> int:
        """Return how many requests at the head of the queue that `next` returned are
        alike, at most `most`.

        One if both lanes wait, for they take turns.
        """
        if self._interactive and self._bulk:
            return 1
        head = queue[0]
        run = takewhile(
            lambda waiter: (waiter.weight, waiter.counts) == (head.weight, head.counts),
            queue,
        )
        return len(list(islice(run, most)))

    def reject(self, error_for: Callable[[Waiter], BaseException | None]) -> None:
        """Fail the waiters for which there is an error."""
        for queue in self.queues.values():
            for waiter in tuple(queue):
                if (error := error_for(waiter)) is not None:
                    queue.remove(waiter)
                    if not waiter.outcome.done():
                        waiter.outcome.set_result(error)


class TokenBucket(Bucket):
    """Paces the requests of any number of tasks and clients of one event loop.

    Over any period it grants at most ``burst + rate * seconds``. Every attempt of a
    request takes a grant.

    Args:
        rate: weight per second. None: no pace until the service first refuses (429);
            from then on the rate is learned from its refusals.
        burst: how much may be granted at once after a rest, at least 1.
        daily_budget: how much this bucket may grant between two midnights UTC (spec 8),
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
        Parameters.checked(rate, burst, daily_budget)
        self._pace = Pace(rate, burst)
        self._clock = clock
        self._allowance = Allowance(daily_budget)
        self._lanes = Lanes()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None  # set while requests wait
        self._granted = 0
        self._refused = 0

    def __repr__(self) -> str:
        rate = self._pace.gcra.rate if self._pace.adaptive is None else None
        return f"TokenBucket({Parameters(rate, self.burst, self._allowance.budget)})"

    @property
    def rate(self) -> float | None:
        """Weight per second, in force at once when set; None: unpaced until a rate is
        learned.
        """
        return self._pace.rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        pace = Pace(check_rate("rate", rate), self.burst)
        pace.gcra, self._pace = self._pace.gcra, pace
        self._change(rate, self.burst)

    @property
    def burst(self) -> float:
        """How much the bucket can hold. Waiters of a greater weight are granted when it
        is full.
        """
        return self._pace.gcra.burst

    @burst.setter
    def burst(self, burst: float) -> None:
        self._change(self.rate, check_size("burst", burst))

    async def acquire(
        self, weight: float = 1, *, lane: Lane = "interactive", counts: bool = True
    ) -> float:
        check_lane(lane)
        check_weight(weight, self.burst)
        loop = self._bind()
        now, unix = loop.time(), self._unix_time()
        if counts and (error := self._allowance.error(weight, unix)):
            raise error
        # No request waits and the bucket holds enough: no future, no timer.
        if self._timer is None and self._pace.gcra.moment(weight) <= now + _EPSILON:
            self._grant(weight, counts, now, unix, waited=False)
            return now
        # It queues, also where the bucket holds enough: earlier requests go first.
        waiter = Waiter(weight, counts, loop.create_future())
        return await self._lanes.wait(waiter, lane, self._serve, self._give_back)

    async def give_back(self, weight: float = 1) -> None:
        self._bind()
        self._give_back(weight, True)

    async def unspend(self, *, sent_at: float) -> None:
        self._allowance.unspend(1, self._unix_time(), self._bind().time() - sent_at)

    def pause_until(self, loop_time: float) -> None:
        """Grant nothing before `loop_time`, in any lane; afterwards requests restart
        one by one.

        A pause is only ever lengthened, and the bucket does not fill during it.

        Raises:
            ArgumentError: `loop_time` is not a finite number.
        """
        checks.finite("loop_time", loop_time)
        self._pace.gcra.pause(self._bind().time(), loop_time)
        self._serve()

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        self._refused += 1
        self._pace.refuse(sent_at, self._bind().time(), retry_after)
        self._serve()

    async def exhaust(self, seconds: float) -> None:
        self._bind()
        now = self._unix_time()
        self._allowance.exhaust(now, seconds)
        self._reject_waiting(now)
        self._serve()

    async def resume(self) -> None:
        """End a pause and a used-up allowance at once. The day's spending and the rate
        stay.

        For an operator who knows better than the service's Retry-After. A daily budget
        still applies.
        """
        self._pace.gcra.resume(self._bind().time())
        self._allowance.exhausted_until = 0.0
        self._serve()

    async def aclose(self) -> None:
        """Do nothing: a bucket of one process has no files or connections."""

    async def inspect(self) -> BucketStats:
        """Return what `stats` returns: a bucket of one process knows its whole
        state.
        """
        return self.stats()

    def stats(self) -> BucketStats:
        now, unix = self._loop.time() if self._loop else 0.0, self._unix_time()
        resume_at = self._allowance.resume_at(1, unix)
        paused_until = self._pace.gcra.paused_until
        return BucketStats(
            rate=self.rate,
            burst=self.burst,
            learned=self._pace.adaptive is not None,
            level=self._pace.gcra.held(now),
            waiting=self._lanes.waiting,
            granted=self._granted,
            refused=self._refused,
            paused_until=paused_until if paused_until > now else None,
            exhausted_until=None if resume_at is None else wall_time(resume_at),
            spent_today=self._allowance.spent,
            daily_budget=self._allowance.budget,
        )

    def _bind(self) -> asyncio.AbstractEventLoop:
        """Return the running loop, after moving the bucket there if its last loop is
        closed.
        """
        loop = running_loop()
        if self._loop is not None and self._loop is not loop:
            check_closed(self._loop, "TokenBucket", "bucket")
            # The clock of this loop may have nothing to do with that of the last.
            self._pace.shift(loop.time() - self._loop.time())
            # The waiters ended with the last loop.
            self._lanes = Lanes()
            self._timer = None
        self._loop = loop
        return loop

    def _unix_time(self) -> float:
        return self._clock().timestamp()

    def _change(self, rate: float | None, burst: float) -> None:
        if self._loop is None:
            self._pace.gcra = GCRA(rate, burst)
        else:
            self._pace.gcra.change(self._loop.time(), rate, burst)
            self._serve()

    def _grant(
        self, weight: float, counts: bool, now: float, unix: float, *, waited: bool
    ) -> None:
        self._pace.grant(weight, now, waited=waited)
        self._granted += 1
        if counts:
            self._allowance.spend(weight, unix)
            # The waiters fail as soon as the day's budget is used up, not when they are
            # next.
            if self._allowance.budget is not None:
                self._reject_waiting(unix)

    def _give_back(self, weight: float, counts: bool) -> None:
        self._pace.gcra.give_back(weight)
        if counts:
            self._allowance.unspend(weight, self._unix_time())
        self._granted -= 1
        self._serve()

    def _serve(self) -> None:
        """Grant what can be granted now, and set the timer for the head of the
        remaining waiters.
        """
        if self._loop is None or self._loop.is_closed():
            return
        now, unix = self._loop.time(), self._unix_time()
        while (queue := self._lanes.next()) is not None:
            waiter = queue[0]
            # Only the head has a moment, computed each time: nothing is reserved ahead,
            # so that a new rate, burst or pause takes effect at once.
            moment = self._pace.gcra.moment(waiter.weight)
            if moment > now + _EPSILON:
                self._arm(moment)
                return
            self._lanes.pop(queue)
            self._grant(waiter.weight, waiter.counts, now, unix, waited=True)
            waiter.outcome.set_result(now)
        self._arm(None)

    def _arm(self, moment: float | None) -> None:
        if self._timer is not None:
            # A new waiter behind the same head needs no new timer.
            if self._timer.when() == moment:
                return
            self._timer.cancel()
            self._timer = None
        if moment is not None and self._loop is not None:
            self._timer = self._loop.call_at(moment, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._serve()

    def _reject_waiting(self, unix: float) -> None:
        """Fail the waiters that the allowance has no room for."""
        self._lanes.reject(
            lambda waiter: (
                self._allowance.error(waiter.weight, unix) if waiter.counts else None
            )
        )
