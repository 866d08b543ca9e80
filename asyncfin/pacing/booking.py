"""A bucket whose state other processes share: how one process uses it.

Requests wait in lanes, as in a `TokenBucket`. While any do, one task books moments from the shared state, one
at a time, and gives each to the head of the lanes when it is due: an interactive request takes the moment of
a bulk one, and the moment of a cancelled request goes to the next waiter. Only moments that are free now are
granted several at a time.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from threading import get_ident

from asyncfin.clock import wall_time
from asyncfin.errors import AllowanceExhaustedError, BucketUnavailableError
from asyncfin.events import BucketStats
from asyncfin.model.query import Lane, check_lane
from asyncfin.pacing.bucket import Bucket, Lanes, Parameters, Waiter, check_weight
from asyncfin.pacing.learned import AdaptiveRate
from asyncfin.pacing.ledger import Booking, State
from asyncfin.pacing.pace import allowance_error
from asyncfin.tasks import cancel_and_wait, check_closed, running_loop

# Waiters with a distant moment check the state this often, in seconds: other processes may have changed it.
_LOOK = 0.5
# How many waiters are granted what is free now in one operation, which to Redis is a round trip. With more, a
# process could take a larger burst before it is the others' turn.
_TOGETHER = 10
# How many grants are remembered by their loop time, to find their moment on the shared clock.
_KNOWN = 10_000


class SharedLedger(ABC):
    """The operations of `Ledger` on a state that processes share, each of them atomic.

    If the state can't be reached they raise BucketUnavailableError, or with a fallback return the last known
    state, marked as stale; a grant with a stale state is the fallback's.
    """

    @abstractmethod
    async def reserve(self, weight: float, counts: bool, most: int) -> tuple[Booking, State]: ...

    @abstractmethod
    async def confirm(self, booked: Booking, weight: float, counts: bool) -> tuple[Booking, State]: ...

    @abstractmethod
    async def cancel(self, booked: Booking, weight: float) -> State: ...

    @abstractmethod
    async def give_back(self, weight: float, counts: bool, moment: float | None) -> State:
        """Undo a grant; a `moment` of None is that of a fallback's grant."""

    @abstractmethod
    async def unspend(self, weight: float, moment: float | None) -> State:
        """Take a grant off the day's spending; a `moment` of None is that of a fallback's grant."""

    @abstractmethod
    async def state(self, *, now: bool = False) -> State:
        """Return the state; `now`: also if the shared one could not be reached a moment ago."""

    @abstractmethod
    async def inspect(self) -> State:
        """Return the state, and change nothing, not even whether it is taken to be reachable.

        If it can't be read, that is a BucketUnavailableError also where there is a fallback.
        """

    @abstractmethod
    async def pause(self, seconds: float) -> State: ...

    @abstractmethod
    async def exhaust(self, seconds: float) -> State: ...

    @abstractmethod
    async def resume(self) -> State:
        """End a pause and a used-up allowance; BucketUnavailableError: as for `inspect`."""

    @abstractmethod
    async def learn(self, known: bytes, learned: bytes, rate: float | None, pause: float) -> State | None:
        """Replace the learned state and rate, and pause; None if the learned state differs from `known`."""

    @abstractmethod
    async def aclose(self) -> None: ...

    def try_reserve(self, weight: float, counts: bool) -> tuple[Booking, State] | None:
        """Reserve without waiting for anything, or return None and change nothing."""
        return None

    def try_look(self) -> State | None:
        """Return the state without waiting for anything, or None."""
        return None

    @property
    def uses_fallback(self) -> bool:
        """Whether a fallback paces at the moment."""
        return False

    def unbooked(self, loop_time: float) -> tuple[float, float]:
        """Return what a fallback has granted and is still to be charged: to the pace, and to the day."""
        return 0.0, 0.0


class SharedBucket(Bucket):
    """The common part of `FileBucket` and `RedisBucket`."""

    def __init__(self, ledger: SharedLedger, parameters: Parameters) -> None:
        self._ledger = ledger
        self._given = parameters
        self._closed = False
        self._granted = 0
        self._refused = 0
        self._pid = os.getpid()
        self._thread = get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seen: State | None = None  # None: this process has not read it
        self._seen_at = 0.0  # the loop time at which it was read
        self._begin()

    def _begin(self) -> None:
        self._lanes = Lanes()
        # Set while requests wait; no other task books moments.
        self._driver: asyncio.Task[None] | None = None
        # A moment for the driver to begin with, and the weight it is for.
        self._booked: tuple[Booking, float] | None = None
        # Grants that no request took, for `give_back`.
        self._surplus: deque[tuple[float, bool, float | None]] = deque()
        # Loop time of a grant -> its moment on the shared clock; None: it was the fallback's.
        self._moments: OrderedDict[float, float | None] = OrderedDict()

    async def acquire(self, weight: float = 1, *, lane: Lane = "interactive", counts: bool = True) -> float:
        check_lane(lane)
        check_weight(weight, self._given.burst if self._seen is None else self._seen.burst)
        loop = self._bind()
        if self._driver is None and (reserved := self._ledger.try_reserve(weight, counts)) is not None:
            booking, state = reserved
            self._see(state)
            if booking.granted:
                return self._note(booking, state)
            if booking.resume_at is not None:
                raise _exhausted(booking.resume_at, state, weight)
            self._booked = booking, weight
        waiter = Waiter(weight, counts, loop.create_future())
        return await self._lanes.wait(waiter, lane, self._serve, self._return)

    async def give_back(self, weight: float = 1) -> None:
        self._bind()
        self._granted -= 1
        now = self._seen.now if self._seen else 0.0
        self._see(await self._ledger.give_back(weight, True, now))

    async def unspend(self, *, sent_at: float) -> None:
        self._bind()
        self._see(await self._ledger.unspend(1, self._moment(sent_at)))

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        loop = self._bind()
        self._refused += 1
        if self._given.rate is not None:
            self._see(await self._ledger.pause(retry_after))
            return

        def lower(rate: AdaptiveRate, now: float) -> float:
            if (sent := self._moment(sent_at)) is None:
                sent = now - (loop.time() - sent_at)
            return rate.refused(sent, now, retry_after)

        if not await self._learn(lower, now=True):
            self._see(await self._ledger.pause(retry_after))

    async def exhaust(self, seconds: float) -> None:
        self._bind()
        state = await self._ledger.exhaust(seconds)
        self._see(state)
        # With a stale state, the waiters are rejected when the fallback has to grant their requests.
        if state.resume_at is not None and not state.stale:
            self._reject_waiting(state.resume_at, state)

    async def resume(self) -> None:
        """End a pause and a used-up allowance for all processes. The day's spending and the rate stay.

        For an operator who knows better than the service's Retry-After. Processes in which requests wait
        notice it within half a second. A daily budget still applies. The parameters of this bucket are not
        applied to the shared state.

        Raises:
            BucketUnavailableError: the state can't be changed.
            RuntimeError: the bucket is closed, or in use by another event loop, which is not closed.
        """
        self._bind()
        self._see(await self._ledger.resume())

    async def aclose(self) -> None:
        self._closed = True
        if self._driver is not None and self._loop is asyncio.get_running_loop():
            await cancel_and_wait([self._driver])
        await self._ledger.aclose()

    def stats(self) -> BucketStats:
        """Return what the bucket is doing now, as far as this process knows.

        `granted`, `refused` and `waiting` are those of this process. The rest is the shared state, as this
        process last read it: `level`, `spent_today` and `exhausted_until` are None if it never did. It is
        read now if that needs no wait, in the thread of the event loop only.
        """
        # Another thread, as of an exporter of metrics, would release the lock that an operation holds.
        if get_ident() == self._thread and (state := self._ledger.try_look()) is not None:
            self._see(state)
        return self._stats()

    async def inspect(self) -> BucketStats:
        """Read the shared state without booking or changing it, and return what `stats` returns.

        Raises:
            BucketUnavailableError: the state can't be read.
            RuntimeError: the bucket is closed, or in use by another event loop, which is not closed.
        """
        self._bind()
        self._see(await self._ledger.inspect())
        return self._stats()

    def _see(self, state: State) -> None:
        """Keep the state, and when it was read: one that is stale was read earlier."""
        assert self._loop is not None
        self._seen = state
        if not state.stale:
            self._seen_at = self._loop.time()

    def _stats(self) -> BucketStats:
        seen = self._seen
        loop_time = self._loop.time() if self._loop is not None else 0.0
        paused_until = resume_at = None
        if seen is not None:
            since = loop_time - self._seen_at
            if seen.paused_until > seen.now + since:
                paused_until = self._seen_at + seen.paused_until - seen.now
            if seen.resume_at is not None and seen.resume_at > seen.wall + since:
                resume_at = wall_time(seen.resume_at)
        debt, owed = self._ledger.unbooked(loop_time)
        return BucketStats(
            rate=self._given.rate if seen is None else seen.rate,
            burst=self._given.burst if seen is None else seen.burst,
            learned=self._given.rate is None if seen is None else seen.learns,
            level=None if seen is None else seen.level - debt,
            waiting=self._lanes.waiting,
            granted=self._granted,
            refused=self._refused,
            paused_until=paused_until,
            exhausted_until=resume_at,
            spent_today=None if seen is None else seen.spent + owed,
            daily_budget=self._given.daily_budget if seen is None else seen.daily_budget,
            fallback=self._ledger.uses_fallback,
        )

    def _bind(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise RuntimeError(f"this {type(self).__name__} is closed")
        loop = running_loop()
        if os.getpid() != self._pid:  # after a fork, the waiters are the parent's
            self._pid, self._loop = os.getpid(), None
        if loop is not self._loop:
            if self._loop is not None:
                check_closed(self._loop, type(self).__name__, "bucket")
            self._loop, self._thread = loop, get_ident()
            self._begin()
        return loop

    def _note(self, booking: Booking, state: State) -> float:
        """Count a grant, and return its loop time."""
        assert self._loop is not None
        at = self._loop.time()
        self._granted += 1
        # The bucket's users identify a grant by the loop's time, and the shared state by its own clock.
        self._moments[at] = None if state.stale else booking.moment
        if len(self._moments) > _KNOWN:
            self._moments.popitem(last=False)
        return at

    def _moment(self, sent_at: float) -> float | None:
        """Return the moment of a grant on the shared clock, or None if it was the fallback's."""
        # A grant that was evicted counts as a new one: at worst, that lowers a rate once too often.
        return self._moments.get(sent_at, self._seen.now if self._seen else 0.0)

    async def _learn(
        self, event: Callable[[AdaptiveRate, float], float | None], *, now: bool = False
    ) -> bool:
        """Record an event in the shared learned rate, and pause for as long as it returns.

        It is recorded again if another process changed the rate in between; False: the state can't be
        reached.
        """
        while not (seen := await self._ledger.state(now=now)).stale:
            rate = AdaptiveRate.load(seen.learned) if seen.learned else AdaptiveRate(measure=seen.measure)
            pause = event(rate, seen.now)
            if rate.rate is None:
                self._see(await self._ledger.pause(pause or 0.0))
                return True
            learned = await self._ledger.learn(seen.learned, rate.dump(), rate.rate, pause or 0.0)
            if learned is not None:
                self._see(learned)
                return not learned.stale
        return False

    def _serve(self) -> None:
        if self._driver is None and not self._closed:
            booking, weight = self._booked or (None, 1.0)
            self._booked = None
            driver = asyncio.get_running_loop().create_task(self._drive(booking, weight))
            if not driver.done():  # an eager task can have served all waiters
                self._driver = driver

    async def _drive(self, booking: Booking | None, weight: float) -> None:
        """Book moments while requests wait, and grant them; `weight` is that of the `booking`."""
        error: BaseException | None = None
        try:
            while True:
                # First: the next waiter may wait for what is given back here.
                while self._surplus:
                    self._see(await self._ledger.give_back(*self._surplus.popleft()))
                queue = self._lanes.next()
                if queue is None and booking is None:
                    # Nothing is awaited from here on: the next waiter finds no driver, and starts one.
                    return
                # A moment is booked for one weight, and the head may have changed.
                if booking is not None and (queue is None or weight != queue[0].weight):
                    left, booking = booking, None
                    self._see(await self._ledger.cancel(left, weight))
                    continue
                assert queue is not None
                weight = queue[0].weight
                booking = await self._advance(booking, queue[0], queue)
        except asyncio.CancelledError:
            error = RuntimeError(f"this {type(self).__name__} is closed")
            raise
        except Exception as failed:  # noqa: BLE001  the waiters get it, whatever it is
            error = failed
        finally:
            self._driver = None
            if error is not None:  # no driver is left to serve the waiters
                # A separate error each: one object raised in many tasks mixes tracebacks.
                copied = isinstance(error, BucketUnavailableError)
                self._lanes.reject(lambda _: type(error)(*error.args) if copied else error)

    async def _advance(self, booking: Booking | None, waiter: Waiter, queue: deque[Waiter]) -> Booking | None:
        """Take the head of the lanes one step further: to its grant, or to the moment that is returned."""
        waited = booking is not None
        if booking is None:
            most = self._lanes.alike(queue, _TOGETHER)
            booking, state = await self._ledger.reserve(waiter.weight, waiter.counts, most)
        else:
            booking, state = await self._ledger.confirm(booking, waiter.weight, waiter.counts)
        self._see(state)
        if booking.resume_at is not None:
            self._reject_waiting(booking.resume_at, state)
            return None
        if not booking.granted:
            await asyncio.sleep(min(max(booking.moment - state.now, 0.0), _LOOK))
            return booking
        for _ in range(booking.granted):
            self._hand_over(booking, state, waiter, queue)
        # Only a grant that was waited for may raise the rate: see `AdaptiveRate.granted`.
        if waited and self._given.rate is None and state.rate is not None and not state.stale:
            await self._learn(lambda rate, now: rate.granted(waiter.weight, now, waited=True))
        return None

    def _hand_over(self, booking: Booking, state: State, waiter: Waiter, queue: deque[Waiter]) -> None:
        """Give a grant to the waiter it was booked for; if that has one or has left, to the next like it."""
        if waiter.outcome.done():
            successor = self._lanes.next()
            if successor is None or (successor[0].weight, successor[0].counts) != (
                waiter.weight,
                waiter.counts,
            ):
                moment = None if state.stale else booking.moment
                self._surplus.append((waiter.weight, waiter.counts, moment))
                return
            queue, waiter = successor, successor[0]
        if queue and queue[0] is waiter:
            self._lanes.pop(queue)
        waiter.outcome.set_result(self._note(booking, state))

    def _return(self, weight: float, counts: bool, granted_at: float) -> None:
        self._granted -= 1
        self._surplus.append((weight, counts, self._moment(granted_at)))

    def _reject_waiting(self, resume_at: float, state: State) -> None:
        """Reject the waiters whose requests count."""
        self._lanes.reject(
            lambda waiter: _exhausted(resume_at, state, waiter.weight) if waiter.counts else None
        )


def _exhausted(resume_at: float, state: State, weight: float) -> AllowanceExhaustedError:
    """Return a new error for a request of this weight that says when requests are possible again."""
    own = state.daily_budget is not None and state.spent + weight > state.daily_budget
    budget = state.daily_budget if own else None
    return allowance_error(budget, wall_time(resume_at), wall_time(state.wall))
