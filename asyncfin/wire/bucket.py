"""Who may send, and when: a token bucket that several clients and tasks share.

Decided here: what a pause and a used-up allowance mean to those who wait, and what a cancelled wait
gives back. Who is next stands in `asyncfin.wire.lanes`; how much a bucket holds and how fast it fills is
arithmetic, and stands in `asyncfin.wire.pace`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from math import isfinite

from attrs import frozen

from asyncfin.errors import AllowanceExhaustedError, SelectionError
from asyncfin.model.query import Lane
from asyncfin.wire.checks import check_lane, checked_rate, checked_size
from asyncfin.wire.lanes import Lanes, Waiter
from asyncfin.wire.pace import Allowance, Learned, Level

# A grant may come this much early: what float arithmetic loses, not what a service could notice.
_EPSILON = 1e-9

_utc_now = partial(datetime.now, UTC)


@frozen
class BucketStats:
    """What a bucket is doing, at one moment.

    Attributes:
        rate: weight per second; None while unpaced.
        burst: how much the bucket can hold.
        learned: whether the rate is learned from the service's refusals.
        level: what the bucket holds; below zero while it is in debt.
        waiting: how many wait, by lane.
        granted: how many grants there were.
        refused: how many refusals (429) were reported.
        paused_until: loop time; None while not paused.
        exhausted_until: when requests are possible again, aware UTC; None while they are.
        spent_today: weight granted since midnight UTC, without what never reached the service.
        daily_budget: how large `spent_today` may become; None: no bound.
    """

    rate: float | None
    burst: float
    learned: bool
    level: float
    waiting: Mapping[str, int]
    granted: int
    refused: int
    paused_until: float | None
    exhausted_until: datetime | None
    spent_today: float
    daily_budget: float | None


class TokenBucket:
    """Paces requests; may be shared by any number of tasks and clients of one event loop.

    In no stretch of time is more than ``burst + rate * seconds`` granted. Each attempt takes from
    the bucket, not each question.

    Args:
        rate: weight per second. None: no pace until the service first refuses (429); from then on
            the rate is learned from its refusals.
        burst: how much may be granted at once after a rest, at least 1.
        daily_budget: how much this bucket may grant between two midnights UTC (spec 8), at least 1,
            without what never reached the service; None: no bound but the service's own.
        clock: gives the wall time, aware UTC. All else runs by the event loop's clock.

    Raises:
        SelectionError: `rate`, `burst` or `daily_budget` is not a number in its range.
    """

    def __init__(
        self,
        rate: float | None = None,
        burst: float = 1,
        *,
        daily_budget: float | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._level = Level(checked_rate(rate), checked_size("burst", burst))
        self._learned = Learned() if rate is None else None
        self._clock = clock
        if daily_budget is not None:
            daily_budget = checked_size("daily_budget", daily_budget)
        self._allowance = Allowance(daily_budget)
        self._lanes = Lanes()
        self._resting: deque[Waiter] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None  # set while somebody waits
        self._granted = 0
        self._refused = 0

    @property
    def rate(self) -> float | None:
        """Weight per second, in force at once when set; None: unpaced until a rate is learned."""
        return self._level.rate if self._learned is None else self._learned.rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        checked = checked_rate(rate)
        self._learned = Learned() if rate is None else None
        self._change(checked, self._level.burst)

    @property
    def burst(self) -> float:
        """How much the bucket can hold. Those who wait with more than that go when it is full."""
        return self._level.burst

    @burst.setter
    def burst(self, burst: float) -> None:
        self._change(self.rate, checked_size("burst", burst))

    async def acquire(self, weight: float = 1, *, lane: Lane = "interactive") -> float:
        """Wait for permission to send, and return the loop time at which it was given.

        Args:
            weight: what the request counts, above 0 and at most the burst.
            lane: ``"interactive"`` goes before ``"bulk"``, which gets every tenth grant while both
                wait.

        Raises:
            SelectionError: there is no such lane, or the weight could never be granted.
            AllowanceExhaustedError: the allowance is used up; at once, also if it happens in the wait.
            RuntimeError: the bucket is in use by another event loop, which is not closed.
        """
        check_lane(lane)
        burst = self._level.burst
        if not isinstance(weight, (int, float)) or not 0 < weight <= burst:
            raise SelectionError(f"weight={weight!r}: must be above 0 and at most the burst, {burst:g}")
        loop = self._bind()
        now, today = loop.time(), self._clock()
        if resume_at := self._allowance.resume_at(weight, today):
            raise self._allowance.refusal(resume_at, today)
        if self._timer is None and self._level.moment(weight) <= now + _EPSILON:
            self._grant(weight, now, today)
            return now
        waiter = Waiter(weight, loop.create_future())
        queue = self._lanes.queues[lane]
        queue.append(waiter)
        self._serve()
        return await self._verdict(waiter, queue)

    async def rest(self, seconds: float) -> None:
        """Wait so long before the next `acquire`, in no lane and for no grant.

        Raises:
            AllowanceExhaustedError, RuntimeError: as `acquire`.
        """
        loop, today = self._bind(), self._clock()
        if resume_at := self._allowance.resume_at(1, today):
            raise self._allowance.refusal(resume_at, today)
        waiter = Waiter(1, loop.create_future())
        self._resting.append(waiter)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._verdict(waiter, self._resting)

    def give_back(self, weight: float = 1) -> None:
        """Undo a grant at once, before anything was sent on it. A learned rate stays as it is."""
        self._level.give_back(weight)
        self._allowance.give_back(weight, self._clock())
        self._granted -= 1
        self._serve()

    def unspend(self, *, sent_at: float) -> None:
        """Leave out of the day's spending a request that never reached the service. Its grant is used up.

        Args:
            sent_at: what `acquire` returned for that request.
        """
        now, age = self._clock(), self._bind().time() - sent_at
        if (now - timedelta(seconds=age)).date() == now.date():
            self._allowance.give_back(1, now)

    def pause_until(self, loop_time: float) -> None:
        """Grant nothing before `loop_time`, to nobody; afterwards requests restart one by one.

        A pause is only ever lengthened, and the bucket does not fill in it.

        Raises:
            SelectionError: `loop_time` is no finite number.
        """
        if not isinstance(loop_time, (int, float)) or not isfinite(loop_time):
            raise SelectionError(f"loop_time={loop_time!r}: must be a finite number of seconds")
        self._level.pause(self._bind().time(), loop_time)
        self._serve()

    def refused(self, *, sent_at: float, retry_after: float) -> None:
        """Take in that the service refused a request (429): pause as long as it asks, and learn.

        One event lowers a learned rate once: a refusal counts if its request was sent after the
        last reduction.

        Args:
            sent_at: what `acquire` returned for that request.
            retry_after: seconds. A wait too long to sit out is for `exhaust`, and teaches nothing.
        """
        now = self._bind().time()
        self._refused += 1
        if self._learned is not None:
            self._learned.refused(sent_at, now, retry_after)
            self._level.change(now, self._learned.rate, self._level.burst)
        self._level.pause(now, now + retry_after)
        self._serve()

    def exhaust(self, until: datetime) -> None:
        """Refuse everybody, those who wait included, until the wall time `until` (aware UTC)."""
        self._allowance.use_up(until)
        self._turn_away(self._clock())
        self._serve()

    def stats(self) -> BucketStats:
        """Return what the bucket is doing now."""
        now, today = self._loop.time() if self._loop else 0.0, self._clock()
        paused_until = self._level.paused_until
        return BucketStats(
            rate=self.rate,
            burst=self.burst,
            learned=self._learned is not None,
            level=self._level.held(now),
            waiting={lane: len(queue) for lane, queue in self._lanes.queues.items()},
            granted=self._granted,
            refused=self._refused,
            paused_until=paused_until if paused_until > now else None,
            exhausted_until=self._allowance.resume_at(1, today),
            spent_today=self._allowance.spent(today),
            daily_budget=self._allowance.budget,
        )

    def _bind(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move(loop)
        return loop

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on in another loop, whose clock may have nothing to do with that of the last."""
        if self._loop is not None:
            if not self._loop.is_closed():
                raise RuntimeError(
                    "this TokenBucket belongs to another event loop, which is not closed: "
                    "use one bucket per loop"
                )
            ahead = loop.time() - self._loop.time()
            self._level.shift(ahead)
            if self._learned is not None:
                self._learned.shift(ahead)
            self._lanes.clear()
            self._resting.clear()
            self._timer = None
        self._loop = loop

    def _change(self, rate: float | None, burst: float) -> None:
        if self._loop is None:
            self._level = Level(rate, burst)
        else:
            self._level.change(self._loop.time(), rate, burst)
            self._serve()

    def _grant(self, weight: float, now: float, today: datetime) -> None:
        self._level.spend(weight, now)
        self._allowance.spend(weight, today)
        self._granted += 1
        if self._learned is not None and self._learned.rate is None:
            self._learned.granted(weight, now)
        if self._allowance.budget is not None:
            self._turn_away(today)

    def _serve(self) -> None:
        """Grant what may be granted now, and set the timer for the head of those who still wait."""
        if self._loop is None or self._loop.is_closed():
            return
        now, today = self._loop.time(), self._clock()
        while (queue := self._lanes.next()) is not None:
            waiter = queue[0]
            moment = self._level.moment(waiter.weight)
            if moment > now + _EPSILON:
                self._arm(moment)
                return
            self._lanes.pop(queue)
            self._grant(waiter.weight, now, today)
            self._climb(waiter.weight, now)
            waiter.verdict.set_result(now)
        self._arm(None)

    def _climb(self, weight: float, now: float) -> None:
        """Let a learned rate rise: somebody waited for it."""
        if self._learned is not None and self._learned.rate is not None:
            self._learned.climb(weight)
            self._level.change(now, self._learned.rate, self._level.burst)

    def _arm(self, moment: float | None) -> None:
        if self._timer is not None:
            if self._timer.when() == moment:
                return
            self._timer.cancel()
            self._timer = None
        if moment is not None and self._loop is not None:
            self._timer = self._loop.call_at(moment, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._serve()

    async def _verdict(self, waiter: Waiter, queue: deque[Waiter]) -> float:
        try:
            verdict = await waiter.verdict
        except BaseException:
            self._withdraw(waiter, queue)
            raise
        if isinstance(verdict, AllowanceExhaustedError):
            raise verdict
        return verdict

    def _withdraw(self, waiter: Waiter, queue: deque[Waiter]) -> None:
        """Leave the queue; or, if the grant came in the turn of the cancellation, give it back."""
        verdict = waiter.verdict
        if waiter in queue:
            queue.remove(waiter)
        elif verdict.done() and not verdict.cancelled() and isinstance(verdict.result(), float):
            self.give_back(waiter.weight)
        self._serve()

    def _turn_away(self, today: datetime) -> None:
        """Tell all who wait or rest for what the allowance has no room for."""
        for queue in (*self._lanes.queues.values(), self._resting):
            for waiter in tuple(queue):
                if resume_at := self._allowance.resume_at(waiter.weight, today):
                    queue.remove(waiter)
                    if not waiter.verdict.cancelled():
                        waiter.verdict.set_result(self._allowance.refusal(resume_at, today))
