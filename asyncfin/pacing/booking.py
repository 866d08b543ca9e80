"""A bucket whose state other processes share: how one process uses it.

Requests wait in lanes, as in a `TokenBucket`. While one does, one task books moments from
the shared state, one at a time, and gives each to the head of the lanes when it comes: an interactive
request takes the moment that was booked for a bulk one, and what a cancelled request leaves goes to the next.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import ClassVar, TypeVar

from asyncfin.clock import wall_time
from asyncfin.errors import AllowanceExhaustedError, BucketUnavailableError
from asyncfin.events import BucketStats
from asyncfin.model.query import Lane, check_lane
from asyncfin.pacing.bucket import Lanes, Waiter, check_weight
from asyncfin.pacing.ledger import Booking, Ledger
from asyncfin.pacing.pace import AdaptiveRate, allowance_error
from asyncfin.tasks import cancel_and_wait

T = TypeVar("T")

# Those who wait for a far moment look at the state this often, in seconds: others may have changed it.
_LOOK = 0.5
# How many grants are remembered by their loop time, to find their moment on the shared clock.
_KNOWN = 10_000


class Store(ABC):
    """Where a shared state is kept: the operations of `Ledger`, each of them whole or not at all.

    If the state can't be reached they raise BucketUnavailableError, or return a stale booking where there is
    a fallback; a stale grant is the fallback's.
    """

    @abstractmethod
    async def reserve(self, weight: float, counts: bool) -> Booking: ...

    @abstractmethod
    async def confirm(self, booked: Booking, weight: float, counts: bool) -> Booking: ...

    @abstractmethod
    async def cancel(self, booked: Booking, weight: float) -> Booking: ...

    @abstractmethod
    async def give_back(self, weight: float, counts: bool, granted_at: float) -> Booking: ...

    @abstractmethod
    async def unspend(self, weight: float, granted_at: float) -> Booking: ...

    @abstractmethod
    async def look(self) -> Booking: ...

    @abstractmethod
    async def pause(self, seconds: float) -> Booking: ...

    @abstractmethod
    async def exhaust(self, seconds: float) -> Booking: ...

    @abstractmethod
    async def learn(self, known: bytes, learned: bytes, rate: float | None) -> Booking | None:
        """Replace the learned state and rate, unless it is no longer the one that is `known`: then None."""

    @abstractmethod
    async def aclose(self) -> None: ...

    def try_reserve(self, weight: float, counts: bool) -> Booking | None:
        """Reserve without waiting for anything, or return None and change nothing."""
        return None

    def try_look(self) -> Booking | None:
        """Return the state without waiting for anything, or None."""
        return None


class SharedBucket:
    """What `FileBucket` and `RedisBucket` have in common."""

    _kind: ClassVar[str]

    def __init__(
        self,
        store: Store,
        rate: float | None,
        burst: float,
        daily_budget: float | None,
    ) -> None:
        self._store = store
        self._learns = rate is None
        self._rate, self._burst, self._daily_budget = rate, burst, daily_budget
        self._closed = False
        self._granted = 0
        self._refused = 0
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begin()

    def _begin(self) -> None:
        self._lanes = Lanes()
        # While it is set somebody waits, and it alone talks to the store about bookings.
        self._driver: asyncio.Task[None] | None = None
        self._surplus: deque[tuple[float, bool, float]] = deque()  # grants that nobody took, for `give_back`
        self._moments: OrderedDict[float, float] = OrderedDict()  # loop time of a grant -> shared clock
        self._seen: Booking | None = None
        self._measured = AdaptiveRate()  # of this process alone, until a rate is learned

    async def acquire(self, weight: float = 1, *, lane: Lane = "interactive", counts: bool = True) -> float:
        """Wait for permission to send, and return the loop time at which it was given.

        Args:
            weight: what the request counts, above 0 and at most the burst.
            lane: ``"interactive"`` goes before ``"bulk"`` within this process; processes take turns.
            counts: whether the request counts for the account's allowance (spec 8). False (usage and
                limits): neither a used-up allowance nor the daily budget holds it back; pace and pauses do.

        Raises:
            ArgumentError: there is no such lane, or the weight could never be granted.
            AllowanceExhaustedError: the allowance or the budget is used up, also if that happens during
                the wait.
            BucketUnavailableError: the shared state can't be reached, and there is no fallback.
            RuntimeError: the bucket is closed, or in use by another event loop, which is not closed.
        """
        check_lane(lane)
        check_weight(weight, self._burst if self._seen is None else self._seen.burst)
        loop = self._bind()
        if self._driver is None and (booking := self._store.try_reserve(weight, counts)) is not None:
            self._seen = booking
            if booking.granted:
                return self._note(booking)
            if booking.resume_at is not None:
                raise _exhausted(booking)
            # Its moment is to come: the driver waits for it, and gives it to the head of the lanes by then.
            self._start(booking, weight)
        waiter = Waiter(weight, counts, loop.create_future())
        queue = self._lanes.queues[lane]
        queue.append(waiter)
        if self._driver is None:
            self._start()
        try:
            return await waiter.granted()
        except BaseException:
            self._withdraw(waiter, queue)
            raise

    async def give_back(self, weight: float = 1) -> None:
        """Undo a grant that counts and on which nothing was sent."""
        self._bind()
        self._granted -= 1
        now = self._seen.now if self._seen else 0.0
        self._seen = await self._store.give_back(weight, True, now)

    async def unspend(self, *, sent_at: float) -> None:
        """Take a request that never reached the service off the day's spending; its grant stays used.

        Args:
            sent_at: what `acquire` returned for it.
        """
        self._bind()
        self._seen = await self._store.unspend(1, self._moment(sent_at))

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        """Record a 429: pause all processes for `retry_after` seconds and lower the learned rate.

        Args:
            sent_at: what `acquire` returned for the request that was refused.
            retry_after: seconds.
        """
        self._bind()
        self._refused += 1
        if self._learns:
            learned = await self._learn(
                lambda rate, now: rate.refused(self._moment(sent_at), now, retry_after)
            )
            retry_after = learned or retry_after
        self._seen = await self._store.pause(retry_after)

    async def exhaust(self, seconds: float) -> None:
        """Refuse every request that counts, waiting ones included, in all processes for `seconds`."""
        self._bind()
        booking = self._seen = await self._store.exhaust(seconds)
        # A stale state does not have it: those who wait are turned away when the fallback is asked for them.
        if booking.resume_at is not None:
            self._turn_away(booking)

    async def aclose(self) -> None:
        """Close what the bucket holds open. Those who wait get a RuntimeError; it can't be used again."""
        self._closed = True
        if self._driver is not None and self._loop is asyncio.get_running_loop():
            await cancel_and_wait([self._driver])
        await self._store.aclose()

    def stats(self) -> BucketStats:
        """Return what the bucket is doing now, as far as this process knows.

        `granted`, `refused` and `waiting` are this process's, the rest is the shared state, as last seen.
        """
        seen = self._seen = self._store.try_look() or self._seen
        waiting: dict[str, int] = {lane: len(queue) for lane, queue in self._lanes.queues.items()}
        if seen is None:  # nothing is known yet but the parameters
            unused = Ledger(self._rate, self._burst, self._daily_budget, epoch=0)
            unused.at(0.0, 0.0)
            seen = unused.look()
        paused = seen.paused_until - seen.now
        loop_time = self._loop.time() if self._loop is not None else 0.0
        resume_at = None if seen.resume_at is None else wall_time(seen.resume_at)
        return BucketStats(
            rate=seen.rate,
            burst=seen.burst,
            learned=self._learns,
            level=seen.level,
            waiting=waiting,
            granted=self._granted,
            refused=self._refused,
            paused_until=loop_time + paused if paused > 0 else None,
            exhausted_until=resume_at,
            spent_today=seen.spent,
            daily_budget=seen.daily_budget,
        )

    def _bind(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise RuntimeError(f"this {self._kind} is closed")
        loop = asyncio.get_running_loop()
        if os.getpid() != self._pid:  # a fork: what the parent waits for is not this process's
            self._pid, self._loop = os.getpid(), None
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError(
                    f"this {self._kind} belongs to another event loop, which is not closed: "
                    "use one bucket per loop"
                )
            self._loop = loop
            self._begin()
        return loop

    def _note(self, booking: Booking) -> float:
        """Count a grant, and return its loop time."""
        assert self._loop is not None
        at = self._loop.time()
        self._granted += 1
        if booking.stale:
            return at
        # The bucket's users know a grant by the loop's time, and the shared state by its own clock.
        self._moments[at] = booking.moment
        if len(self._moments) > _KNOWN:
            self._moments.popitem(last=False)
        # Without a rate nothing is shared yet: what this process sends is what it can measure.
        if booking.rate is None:
            self._measured.granted(1, booking.moment, waited=False)
        return at

    def _moment(self, sent_at: float) -> float:
        """Return when a grant was given on the shared clock."""
        # A grant so old that it is forgotten is taken for a new one: that lowers a rate once too often, at
        # worst.
        return self._moments.get(sent_at, self._seen.now if self._seen else 0.0)

    async def _learn(self, event: Callable[[AdaptiveRate, float], T]) -> T | None:
        """Record an event in the shared learned rate; again, if another process has changed it meanwhile.

        Return None, and record nothing, if only a stale state is there.
        """
        while True:
            seen = await self._store.look()
            if seen.stale:
                return None
            rate = AdaptiveRate.load(seen.learned) if seen.learned else self._measured
            outcome = event(rate, seen.now)
            if (booking := await self._store.learn(seen.learned, rate.dump(), rate.rate)) is not None:
                self._seen = booking
                return outcome

    def _start(self, booking: Booking | None = None, weight: float = 1) -> None:
        self._driver = asyncio.get_running_loop().create_task(self._drive(booking, weight))

    async def _drive(self, booking: Booking | None, weight: float) -> None:
        """Book moments while somebody waits, and grant them; `weight` is that of the `booking`."""
        error: BaseException | None = None
        try:
            while True:
                # First of all: what goes back may be what the next one waits for.
                while self._surplus:
                    await self._store.give_back(*self._surplus.popleft())
                if (queue := self._lanes.next()) is None:
                    if booking is not None:
                        left = booking
                        booking = None
                        self._seen = await self._store.cancel(left, weight)
                        continue
                    # No waiter was added during the last await, and there is no await from here to the
                    # end: the next waiter finds no driver, and starts one.
                    if not self._surplus:
                        return
                    continue
                waiter = queue[0]
                # The head has changed. A moment is booked for one weight, and is of no use to another.
                if booking is not None and weight != waiter.weight:
                    left = booking
                    booking = None
                    self._seen = await self._store.cancel(left, weight)
                    continue
                weight = waiter.weight
                waited = booking is not None
                if booking is None:
                    booking = await self._store.reserve(weight, waiter.counts)
                else:
                    booking = await self._store.confirm(booking, weight, waiter.counts)
                self._seen = booking
                if booking.resume_at is not None:
                    self._turn_away(booking)
                    booking = None
                elif booking.granted:
                    granted, booking = booking, None
                    self._hand_over(granted, waiter, queue)
                    # Only a grant that was waited for may raise the rate: see `AdaptiveRate.granted`.
                    if waited and self._learns and granted.rate is not None and not granted.stale:
                        await self._learn(_climb(weight))
                else:
                    await asyncio.sleep(min(max(booking.moment - booking.now, 0.0), _LOOK))
        except asyncio.CancelledError:
            error = RuntimeError(f"this {self._kind} is closed")
            raise
        except Exception as failed:  # noqa: BLE001  whatever it is, those who wait get it
            error = failed
        finally:
            self._driver = None
            if error is not None:  # nobody may wait for a driver that has ended
                for queue in self._lanes.queues.values():
                    for waiter in queue:
                        if not waiter.verdict.done():
                            # Each has an error of its own: one object raised in many tasks mixes tracebacks.
                            own = isinstance(error, BucketUnavailableError)
                            waiter.verdict.set_result(type(error)(*error.args) if own else error)
                    queue.clear()

    def _hand_over(self, booking: Booking, waiter: Waiter, queue: deque[Waiter]) -> None:
        """Give a grant to the one it was booked for, or, if that has left, to the next one like it."""
        # Cancelled while its grant was on the way.
        if waiter.verdict.done():
            successor = self._lanes.next()
            if successor is None or (successor[0].weight, successor[0].counts) != (
                waiter.weight,
                waiter.counts,
            ):
                self._surplus.append((waiter.weight, waiter.counts, booking.moment))
                return
            # The moment is paid for: another request of the same weight may have it.
            queue, waiter = successor, successor[0]
        if queue and queue[0] is waiter:
            self._lanes.pop(queue)
        waiter.verdict.set_result(self._note(booking))

    def _withdraw(self, waiter: Waiter, queue: deque[Waiter]) -> None:
        """Leave the queue, or return a grant that came in the same turn of the loop."""
        verdict = waiter.verdict
        if waiter in queue:
            queue.remove(waiter)
        elif verdict.done() and not verdict.cancelled() and isinstance(at := verdict.result(), float):
            self._granted -= 1
            self._surplus.append((waiter.weight, waiter.counts, self._moment(at)))
            if self._driver is None and not self._closed:
                self._start()

    def _turn_away(self, booking: Booking) -> None:
        """Refuse the waiters that count."""
        for queue in self._lanes.queues.values():
            for waiter in [each for each in queue if each.counts]:
                queue.remove(waiter)
                if not waiter.verdict.done():
                    waiter.verdict.set_result(_exhausted(booking))


def _climb(weight: float) -> Callable[[AdaptiveRate, float], None]:
    return lambda rate, now: rate.granted(weight, now, waited=True)


def _exhausted(booking: Booking) -> AllowanceExhaustedError:
    """Return a new error that says when requests are possible again."""
    assert booking.resume_at is not None
    own = booking.daily_budget is not None and booking.spent + 1 > booking.daily_budget
    resume_at, now = wall_time(booking.resume_at), wall_time(booking.wall)
    return allowance_error(booking.daily_budget if own else None, resume_at, now)
