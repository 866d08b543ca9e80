"""What processes share, and how one of them uses it, over a file or a server.

The shared state is read, changed and written back as a whole, under a lock or in a
script. Nothing is reserved in it: the head of a process's lanes asks for a grant when
its moment comes. Where processes compete, one of those that ask then gets it, and the
others learn the next moment.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from attrs import evolve

from asyncfin.errors import BucketUnavailableError
from asyncfin.events import BucketStats
from asyncfin.pacing.bucket import LoopBucket, Parameters, Waiter
from asyncfin.pacing.learned import Pace
from asyncfin.pacing.pace import DAY, GCRA, Allowance
from asyncfin.tasks import cancel_and_wait, finish

# What float arithmetic loses at the size of Unix time.
EPSILON = 1e-6
# Waiters with a distant moment ask this often, in seconds: other processes may have
# changed the state.
_LOOK = 0.5
# Waiters ask up to this many seconds after their moment, at random, and sooner if they
# asked in vain before: so the processes get equal shares.
_SPREAD = 0.002
_SPREAD_OF_INTERVAL = 0.05

# How many numbers the shared state is.
NUMBERS = 8

_log = logging.getLogger("asyncfin")


class Change(NamedTuple):
    """What a process wants of the shared state: requests and seconds."""

    take: float = 0.0  # 1: grant a request if it may be sent now
    counts: float = 0.0  # 1: it counts for the allowance
    pace_return: float = 0.0  # 1: return a grant to the pace
    spending: float = 0.0  # to add to the day's spending, or -1
    age: float = 0.0  # how long ago that was spent
    pause: float = 0.0
    exhaust: float = 0.0
    resume: float = 0.0  # 1: end a pause and a used-up allowance


LOOK = Change()


class SharedState:
    """The shared state at a moment, with the parameters of this process.

    It is stored as `NUMBERS` numbers in Unix time, where 0 is never, or None. The last
    three are the parameters of the process that was granted something last, which count
    if the state is only read.
    """

    def __init__(
        self,
        numbers: Sequence[float],
        parameters: Parameters,
        now: float,
        *,
        is_look: bool = False,
    ) -> None:
        full_at, paused_until, exhausted_until, day, spending, rate, burst, budget = (
            numbers
        )
        self.now = now
        self.stored = Parameters(rate or None, burst, budget or None) if burst else None
        self.parameters = (is_look and self.stored) or parameters
        self.gcra = GCRA(self.parameters.rate, self.parameters.burst)
        self.gcra.full_at, self.gcra.paused_until = full_at, paused_until
        self.allowance = Allowance(self.parameters.daily_budget)
        self.allowance.exhausted_until = exhausted_until
        self.allowance.day, self.allowance.spent = day, spending
        # A clock that was ahead has left ends that nobody would wait for.
        is_paused_too_long = self.gcra.clip(now)
        self.clock_jumped = self.allowance.begin_day(now) or is_paused_too_long

    @property
    def closed_until(self) -> float:
        """The end of a pause, or of a used-up allowance."""
        return max(self.gcra.paused_until, self.allowance.exhausted_until)

    def numbers(self) -> tuple[float, ...]:
        """What to store."""
        gcra, allowance = self.gcra, self.allowance
        return (
            *(gcra.full_at, gcra.paused_until, allowance.exhausted_until),
            *(allowance.day, allowance.spent),
            *(number or 0.0 for number in self.stored or (None, None, None)),
        )

    def apply(self, change: Change) -> bool:
        """Make a change, and return whether a request was granted."""
        gcra, allowance, now = self.gcra, self.allowance, self.now
        if change.pace_return:
            gcra.give_back()
        if change.spending > 0:
            allowance.spend(now, change.spending)
        elif change.spending:
            allowance.unspend(now, change.age)
        if change.pause:
            gcra.pause(now, now + min(change.pause, DAY))
        if change.exhaust:
            allowance.exhaust(now, change.exhaust)
        if change.resume:
            gcra.resume(now)
            allowance.exhausted_until = 0.0
        if not change.take or gcra.moment() > now + EPSILON:
            return False
        if change.counts:
            if allowance.resume_at(now) is not None:
                return False
            allowance.spend(now)
        gcra.spend(now)
        self.stored = self.parameters
        return True


# Whether a request was granted, and the state, or None while a fallback paces.
Outcome: TypeAlias = tuple[bool, SharedState | None]


class SharedBucket(LoopBucket):
    """A bucket whose state other processes share."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        # Without a rate each process learns for itself, behind the shared pauses.
        self._pace = Pace(None, parameters.burst) if parameters.rate is None else None
        self._closed = False
        self._warned: set[str] = set()

    def _begin(self) -> None:
        super()._begin()
        self._seen: SharedState | None = None  # None: this process has not read it
        self._seen_at = 0.0  # the loop time at which it was read
        # Serves the waiters; None while no request waits.
        self._driver: asyncio.Task[None] | None = None
        self._has_waited = False  # for the learned rate, at the head of the lanes
        self._lost = 0  # how often the head has asked in vain
        # Grants that no request took, which return to the shared state, by whether they
        # count.
        self._unused: deque[bool] = deque()

    @abstractmethod
    async def _run(self, change: Change) -> Outcome:
        """Change the shared state; `LOOK` only reads it, with the stored parameters."""

    async def _change(self, change: Change) -> None:
        _, state = await self._run(change)
        self._see(state)

    async def unspend(self, *, sent_at: float) -> None:
        age = self._bind().time() - sent_at
        await self._change(Change(spending=-1.0, age=age))

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        loop = self._bind()
        self._refused += 1
        if self._pace is not None:
            self._pace.refuse(sent_at, loop.time(), retry_after)
        await self._change(Change(pause=retry_after))

    async def exhaust(self, seconds: float) -> None:
        self._bind()
        await self._change(Change(exhaust=seconds))

    async def resume(self) -> None:
        """End a pause and a used-up allowance for all processes.

        For an operator who knows better than the service's Retry-After. Processes in
        which requests wait notice it within half a second. A daily budget still
        applies.

        Raises:
            BucketUnavailableError: the state can't be changed.
            RuntimeError: the bucket is closed, or in use by another event loop, which
                is not closed.
        """
        loop = self._bind()
        if self._pace is not None:
            self._pace.gcra.resume(loop.time())
        await self._change(Change(resume=1.0))

    async def aclose(self) -> None:
        self._closed = True
        if self._loop is not asyncio.get_running_loop():
            return
        # Not by the driver: a task that is cancelled before its first step runs no
        # code.
        self._reject(self._make_closed_error())
        if self._driver is not None:
            await cancel_and_wait([self._driver])
        with suppress(BucketUnavailableError):
            await self._return_unused()

    def stats(self) -> BucketStats:
        """Return what the bucket is doing, as far as this process knows.

        `granted`, `refused` and `waiting` are those of this process. The rest is the
        shared state as this process last read it: `level`, `spent_today` and
        `exhausted_until` are None if it never did.
        """
        state = self._seen
        learned_rate = self._pace.rate if self._pace is not None else None
        if state is None:
            state = SharedState((0.0,) * NUMBERS, self._parameters, 0.0)
        since = self._loop.time() - self._seen_at if self._loop else 0.0
        now = state.now + since
        stats = self._make_stats(
            state.parameters, learned_rate, state.gcra, state.allowance, now, now
        )
        if self._seen is None:
            stats = evolve(stats, level=None, spent_today=None)
        return stats

    async def inspect(self) -> BucketStats:
        """Read the shared state without changing it, and return what `stats` returns.

        Raises:
            BucketUnavailableError: the state can't be read, and no fallback paces.
            RuntimeError: the bucket is closed, or in use by another event loop, which
                is not closed.
        """
        self._bind()
        await self._change(LOOK)
        return self.stats()

    def _see(self, state: SharedState | None) -> None:
        """Note the state, and follow a pause that another process began or ended."""
        if state is None:
            return
        assert self._loop is not None
        now, last = self._loop.time(), self._seen
        self._seen, self._seen_at = state, now
        if self._pace is not None:
            gcra, until = self._pace.gcra, state.gcra.paused_until
            if until <= state.now:
                gcra.resume(now)
            elif last is None or until > last.gcra.paused_until:
                if gcra.paused_until <= now and self._pace.rate is not None:
                    # Of another process: the rate of all has failed, so this one's too.
                    # How long the pause seems to last depends on a clock that may jump.
                    self._pace.refuse(now, now, 0.0)
                gcra.pause(now, now + until - state.now)
        if state.clock_jumped:
            self._warn_once(
                "%r: the clock was set back: waits end within a day, and what was "
                "spent is today's"
            )
        self._apply_allowance(state.allowance, state.now)

    def _warn_once(self, text: str, *details: object) -> None:
        if text not in self._warned:
            self._warned.add(text)
            _log.warning(text, self, *details)

    def _bind(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise self._make_closed_error()
        return super()._bind()

    def _make_closed_error(self) -> RuntimeError:
        return RuntimeError(f"this {type(self).__name__} is closed")

    def _serve(self) -> None:
        if self._driver is None and not self._closed:
            driver = asyncio.get_running_loop().create_task(self._serve_waiters())
            if not driver.done():  # an eager task can have served all waiters
                self._driver = driver

    def _return(self, counts: bool) -> None:
        """Let the driver return a grant: whoever had it may be cancelled."""
        self._granted -= 1
        if self._pace is not None:
            self._pace.gcra.give_back()
        self._unused.append(counts)

    async def _return_unused(self) -> None:
        while self._unused:
            # Removed first: if it is unknown whether the change was made, it is not
            # made again.
            spending = -1.0 if self._unused.popleft() else 0.0
            await finish(self._change(Change(pace_return=1.0, spending=spending)))

    async def _serve_waiters(self) -> None:
        """Grant the waiters of the lanes, one after the other."""
        try:
            while True:
                # First: the next waiter may wait for what is returned here.
                await self._return_unused()
                waiter = self._find_next()
                if waiter is None:
                    # Nothing is awaited from here on: the next waiter finds no driver,
                    # and starts one.
                    return
                await asyncio.sleep(await self._advance(waiter))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the waiters get it, whatever it is
            self._reject(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise  # the loop ends with it
        finally:
            self._driver = None

    async def _advance(self, waiter: Waiter) -> float:
        """Grant what the head of the lanes can have now, and return how long to
        wait.
        """
        wait = self._wait_for_pace()
        if wait > EPSILON:
            self._has_waited = True
            return min(wait, _LOOK)
        counts = waiter.counts
        is_granted, state = await self._run(Change(take=1.0, counts=float(counts)))
        if is_granted:
            self._pass_grant(counts)
        self._see(state)  # last: a log handler may raise
        if is_granted or state is None:
            self._lost = 0
            return 0.0
        wait = max(state.gcra.moment() - state.now, 0.0)
        rate = state.gcra.rate
        spread = _SPREAD if rate is None else min(_SPREAD, _SPREAD_OF_INTERVAL / rate)
        self._lost += 1
        late = random.uniform(0.0, spread / self._lost)  # noqa: S311  no secret
        return min(wait + late, _LOOK)

    def _pass_grant(self, counts: bool) -> None:
        """Give a grant to the head of the lanes, or return it if that has changed."""
        assert self._loop is not None
        waiter = self._find_next()
        if waiter is None or waiter.counts != counts:
            self._unused.append(counts)
            return
        now = self._loop.time()
        self._granted += 1
        if self._pace is not None:
            self._pace.grant(now, has_waited=self._has_waited)
            self._has_waited = False
        self._give(waiter, now)

    def _wait_for_pace(self) -> float:
        """Return for how many seconds the learned rate still demands to wait."""
        if self._pace is None or self._loop is None:
            return 0.0
        gcra, now = self._pace.gcra, self._loop.time()
        # A pause is over when the shared state says so: somebody can have ended it.
        return 0.0 if gcra.paused_until > now else gcra.moment() - now
