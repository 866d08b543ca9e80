"""Services with different limits, and a client whose requests they serve or refuse."""

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol

from attrs import Factory, define, frozen

from asyncfin.pacing.bucket import Bucket, TokenBucket


class Service(Protocol):
    """What a request meets."""

    def refusal(self, now: float) -> int | None:
        """Return None for a request that is served, else the seconds of its Retry-After."""


@define
class Refilling(Service):
    """A token bucket."""

    rate: float
    burst: float
    level: float = Factory(lambda self: self.burst, takes_self=True)
    at: float = 0.0

    def refusal(self, now: float) -> int | None:
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level < 1 - 1e-6:
            return math.ceil((1 - self.level) / self.rate)
        self.level -= 1
        return None


@define
class FixedWindow(Service):
    """Up to `count` requests in each window of the clock."""

    count: int
    seconds: float = 1.0
    window: float = -1.0
    served: int = 0

    def refusal(self, now: float) -> int | None:
        if now // self.seconds != self.window:
            self.window, self.served = now // self.seconds, 0
        if self.served < self.count:
            self.served += 1
            return None
        return max(1, math.ceil((self.window + 1) * self.seconds - now))


@define
class SlidingWindow(Service):
    """Up to `count` requests in any span of `seconds`."""

    count: int
    seconds: float = 1.0
    served: deque[float] = Factory(deque)

    def refusal(self, now: float) -> int | None:
        while self.served and self.served[0] <= now - self.seconds:
            self.served.popleft()
        if len(self.served) < self.count:
            self.served.append(now)
            return None
        return max(1, math.ceil(self.served[0] + self.seconds - now))


@define
class LeakingExcess(Service):
    """What nginx's limit_req does: whole milliseconds, and an excess that leaks."""

    rate: float
    burst: int
    excess: int = 0
    at: int | None = None

    def refusal(self, now: float) -> int | None:
        stamp = int(now * 1000 + 1e-6)
        leaked = 0 if self.at is None else int(self.rate * (stamp - self.at))
        excess = 0 if self.at is None else max(0, self.excess - leaked + 1000)
        if excess > self.burst * 1000:
            return 1
        self.excess, self.at = excess, stamp
        return None


@define
class Changing(Service):
    """A service whose limit changes."""

    first: Service
    then: Service
    at: float

    def refusal(self, now: float) -> int | None:
        return (self.first if now < self.at else self.then).refusal(now)


@define
class Returning(Service):
    """A service that serves a few requests, refuses all others until a moment, and then has no limit."""

    left: int
    at: float

    def refusal(self, now: float) -> int | None:
        if now >= self.at:
            return None
        self.left -= 1
        return None if self.left >= 0 else math.ceil(self.at - now)


@define
class Broken(Service):
    """A service that refuses everything for a while."""

    inner: Service
    begin: float
    end: float

    def refusal(self, now: float) -> int | None:
        return 1 if self.begin <= now < self.end else self.inner.refusal(now)


@define
class Record:
    """When requests reached the service, and whether they were served."""

    arrivals: list[tuple[float, bool]] = Factory(list)

    def between(self, begin: float, end: float) -> "Outcome":
        served = [ok for at, ok in self.arrivals if begin <= at < end]
        return Outcome(sum(served) / (end - begin), 1 - sum(served) / max(1, len(served)))


@frozen
class Outcome:
    """Served requests per second, and the share of requests that were refused."""

    rate: float
    refused: float


@define
class Client:
    """Requests without end through a bucket, at most `in_flight` at a time."""

    service: Service
    in_flight: int
    latency: float
    jitter: float = 0.0
    begin: float = 0.0
    bucket: Bucket = Factory(TokenBucket)
    record: Record = Factory(Record)

    async def run(self, end: float) -> None:
        await asyncio.sleep(self.begin)
        chance = random.Random(self.begin)
        await asyncio.gather(*(self._requests(end, chance) for _ in range(self.in_flight)))

    async def _requests(self, end: float, chance: random.Random) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < end:
            sent_at = await self.bucket.acquire()
            way = self.latency / 2 * (1 + self.jitter * chance.uniform(-1, 1))
            await asyncio.sleep(way)
            wait = self.service.refusal(clock())
            self.record.arrivals.append((clock(), wait is None))
            await asyncio.sleep(way)
            if wait is not None:
                await self.bucket.refused(sent_at=sent_at, retry_after=wait)


async def use_by_others(service: Service, gap: Callable[[], float], end: float) -> None:
    """Send requests that heed no refusal, with these gaps between them."""
    clock = asyncio.get_running_loop().time
    while clock() < end:
        await asyncio.sleep(gap())
        service.refusal(clock())


class _Simulation(asyncio.BaseEventLoop):
    """A loop without sockets to poll, whose clock jumps over every wait."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self._selector = self

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> tuple[()]:
        """Wait for the next timer, as a selector would."""
        assert timeout is not None, "nothing is left to wait for"
        self._now += timeout + 1e-9  # a timer re-armed for "now" by float rounding must not spin for ever
        return ()

    def _process_events(self, events: tuple[()]) -> None:
        """There are none."""


def simulate(*users: Awaitable[None], loop: Callable[[], asyncio.AbstractEventLoop] = _Simulation) -> None:
    """Let all of them run to their end, in virtual time."""

    async def together() -> None:
        await asyncio.gather(*users)

    # Without the debugging that -X dev turns on: it keeps the stack of every wait, at ten times the cost.
    with asyncio.Runner(debug=False, loop_factory=loop) as runner:
        runner.run(together())
