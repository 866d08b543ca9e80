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
from typing import TypeAlias

from msgspec.structs import replace

from asyncfin.errors import BucketUnavailableError
from asyncfin.events import BucketStats
from asyncfin.pacing.bucket import LoopBucket, Parameters, Waiter
from asyncfin.pacing.pace import DAY, GCRA, Allowance, Change
from asyncfin.tasks import cancel_and_wait, finish

# What float arithmetic loses at the size of Unix time.
EPSILON = 1e-6
# Waiters with a distant moment ask this often, in seconds: other processes may have
# changed the state.
_LOOK = 0.5
# Waiters ask up to this many seconds after their moment, at random: so the processes
# get equal shares.
_SPREAD = 0.002
_SPREAD_OF_INTERVAL = 0.05

# How many numbers the shared state is.
NUMBERS = 8

_log = logging.getLogger("asyncfin")


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
        full_at, paused_until, exhausted_until, day, spending, *last_numbers = numbers
        self.now = now
        self.last_numbers = last_numbers
        rate, burst, budget = last_numbers
        if is_look and burst:
            parameters = Parameters(rate or None, burst, budget or None)
        self.parameters = parameters
        # A clock that was ahead has left ends that nobody would wait for.
        self.clock_jumped = (
            max(paused_until, exhausted_until) > now + DAY or day > now // DAY + 1
        )
        self.gcra = GCRA(parameters.rate, parameters.burst, full_at, paused_until)
        self.gcra.clip(now)
        self.allowance = Allowance(
            parameters.daily_budget, exhausted_until, day, spending
        )
        self.allowance.begin_day(now)

    def numbers(self) -> tuple[float, ...]:
        """What to store."""
        gcra, allowance = self.gcra, self.allowance
        ends = gcra.full_at, gcra.paused_until, allowance.exhausted_until
        return (*ends, allowance.day, allowance.spending, *self.last_numbers)

    def apply(self, change: Change) -> bool:
        """Make a change, and return whether a request was granted."""
        gcra, now = self.gcra, self.now
        kind, amount = change
        if kind == "take":
            is_used_up = amount and self.allowance.error(now)
            if is_used_up or gcra.moment() > now + EPSILON:
                return False
            gcra.spend(now)
            self.last_numbers = self.parameters.numbers()
        elif kind == "give_back":
            gcra.give_back()
        elif kind == "pause":
            gcra.pause(now, now + min(amount, DAY))
        elif kind == "resume":
            gcra.resume(now)
        self.allowance.apply(change, now)
        return kind == "take"


# Whether a request was granted, and the state, or None while a fallback paces.
Outcome: TypeAlias = tuple[bool, SharedState | None]


class SharedBucket(LoopBucket):
    """A bucket whose state other processes share."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self._closed = False
        self._warned: set[str] = set()

    def _begin(self) -> None:
        super()._begin()
        self._state: SharedState | None = None  # None: this process has not read it
        self._clock_offset = 0.0  # its Unix time less the loop's
        # Serves the waiters, and is done while no request waits.
        self._driver: asyncio.Task[None] | None = None
        self._has_waited = False  # for the learned rate, at the head of the lanes
        # Grants that no request took, which return to the shared state, by whether they
        # count.
        self._unused: deque[bool] = deque()

    @abstractmethod
    async def _run(self, change: Change) -> Outcome:
        """Change the shared state; a look only reads it, with the stored parameters."""

    async def _change(self, change: Change) -> None:
        _, state = await self._run(change)
        self._see(state)

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
        """Describe the state of the bucket, as this process last read it.

        `granted`, `refused` and `waiting` are those of this process. The rest is the
        shared state as this process last read it: `level`, `spent_today` and
        `exhausted_until` are None if it never did.
        """
        state, loop = self._state, self._loop
        if state is None or loop is None:
            return self._describe(self._parameters)
        now, gcra = loop.time() + self._clock_offset, state.gcra
        pause_end = gcra.paused_until - self._clock_offset
        error = state.allowance.error(now)
        return replace(
            self._describe(state.parameters),
            level=gcra.held(now),
            paused_until=pause_end if gcra.paused_until > now else None,
            exhausted_until=error.resume_at if error else None,
            spent_today=state.allowance.spending,
        )

    async def inspect(self) -> BucketStats:
        """Read the shared state without changing it, and return what `stats` returns.

        Raises:
            BucketUnavailableError: the state can't be read, and no fallback paces.
            RuntimeError: the bucket is closed, or in use by another event loop, which
                is not closed.
        """
        self._bind()
        await self._change(Change("look"))
        return self.stats()

    def _see(self, state: SharedState | None) -> None:
        """Note the state, and follow a pause that another process began or ended."""
        if state is None:
            return
        now = asyncio.get_running_loop().time()
        last = self._state
        self._state = state
        self._clock_offset = state.now - now
        gcra, pause_end = self._pace.gcra, state.gcra.paused_until
        if pause_end <= state.now:
            gcra.resume(now)
        elif last is None or pause_end > last.gcra.paused_until:
            if gcra.paused_until <= now and self._pace.rate is not None:
                # Of another process: the rate of all has failed, so this one's too. How
                # long the pause seems to last depends on a clock that may jump.
                self._pace.refuse(now, now, 0.0)
            gcra.pause(now, now + pause_end - state.now)
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
        if not self._closed and (self._driver is None or self._driver.done()):
            loop = asyncio.get_running_loop()
            self._driver = loop.create_task(self._serve_waiters())

    def _return_spending(self, counts: bool) -> None:
        # The driver returns it: whoever had it may be cancelled.
        self._unused.append(counts)

    async def _return_unused(self) -> None:
        while self._unused:
            # Removed first: if it is unknown whether the change was made, it is not
            # made again.
            change = Change("give_back", self._unused.popleft())
            await finish(self._change(change))

    async def _serve_waiters(self) -> None:
        """Grant the waiters of the lanes, one after the other."""
        try:
            while True:
                # First: the next waiter may wait for what is returned here.
                await self._return_unused()
                waiter = self._find_next()
                if waiter is None:
                    return  # the next waiter starts another driver
                await asyncio.sleep(await self._advance(waiter))
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the waiters get it, whatever it is
            self._reject(error)
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise  # the loop ends with it

    async def _advance(self, waiter: Waiter) -> float:
        """Grant what the head of the lanes can have now, and return how long to
        wait.
        """
        loop = asyncio.get_running_loop()
        pace = self._pace
        counts = waiter.counts
        # Without a rate each process learns for itself, behind the shared pauses. With
        # one, the shared state alone decides. A pause is over when the shared state
        # says so: somebody can have ended it.
        if self._parameters.rate is None and pace.gcra.paused_until <= loop.time():
            wait = pace.gcra.moment() - loop.time()
            if wait > EPSILON:
                self._has_waited = True
                return min(wait, _LOOK)
        is_granted, state = await self._run(Change("take", counts))
        if is_granted:
            now = loop.time()
            pace.gcra.resume(now)  # before it spends: somebody may have ended a pause
            head = self._find_next()
            if head is not None and head.counts == counts:
                pace.grant(now, has_waited=self._has_waited)
                self._granted += 1
                self._has_waited = False
                self._give(head, now)
            else:  # the waiter was cancelled meanwhile
                self._unused.append(counts)
        self._see(state)  # last: a log handler may raise
        if is_granted or state is None:
            return 0.0
        wait = max(state.gcra.moment() - state.now, 0.0)
        rate = state.gcra.rate
        spread = _SPREAD if rate is None else min(_SPREAD, _SPREAD_OF_INTERVAL / rate)
        late = random.uniform(0.0, spread)  # noqa: S311  no secret
        return min(wait + late, _LOOK)
