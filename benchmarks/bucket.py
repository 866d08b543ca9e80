"""What a grant costs: the bucket beside an asyncio.Lock and a pyrate-limiter bucket, in the same run.

`python -m benchmarks.bucket` prints the table: a free grant, for which nobody waits, and one of a
thousand tasks that all ask at once, at a rate that is never the bottleneck. Each figure is the best of
several rounds that take turns; the ratios, not the microseconds, say something about another machine.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from pyrate_limiter import Limiter, Rate, StateBucket
from pyrate_limiter import TokenBucket as PyrateTokenBucket

from asyncfin.wire.bucket import TokenBucket

GRANTS, TASKS, ROUNDS = 10_000, 1000, 7
PLENTY = 1_000_000_000

Acquire = Callable[[], Awaitable[object]]
Way = Callable[[Acquire], Awaitable[None]]


def lock() -> Acquire:
    """Return what takes and releases one lock."""
    shared = asyncio.Lock()

    async def turn() -> None:
        async with shared:
            pass

    return turn


def pyrate() -> Acquire:
    """Return what acquires from pyrate-limiter's token bucket."""
    rate = Rate(PLENTY, 1000, burst=PLENTY)
    return Limiter(StateBucket([rate], PyrateTokenBucket()), buffer_ms=1).try_acquire_async


CONTESTANTS: Mapping[str, Callable[[], Acquire]] = {
    "asyncio.Lock": lock,
    "TokenBucket(), unpaced": lambda: TokenBucket().acquire,
    "TokenBucket(rate)": lambda: TokenBucket(PLENTY, 10).acquire,
    "TokenBucket(rate), daily budget": lambda: TokenBucket(PLENTY, 10, daily_budget=PLENTY).acquire,
    "pyrate-limiter StateBucket": pyrate,
}


async def one_by_one(acquire: Acquire) -> None:
    """Acquire in one task."""
    for _ in range(GRANTS):
        await acquire()


async def all_at_once(acquire: Acquire) -> None:
    """Acquire in many tasks."""

    async def some() -> None:
        for _ in range(GRANTS // TASKS):
            await acquire()

    await asyncio.gather(*(some() for _ in range(TASKS)))


async def measured(way: Way) -> dict[str, float]:
    """Return microseconds a grant, by contestant."""
    best = dict.fromkeys(CONTESTANTS, float("inf"))
    for _ in range(ROUNDS):
        for name, made in CONTESTANTS.items():
            acquire = made()
            began = perf_counter()
            await way(acquire)
            best[name] = min(best[name], (perf_counter() - began) / GRANTS * 1e6)
    return best


async def table() -> str:
    """Return the results in Markdown."""
    lines = ["| us a grant (against the lock) | one task | a thousand tasks |", "| --- | --- | --- |"]
    alone, together = await measured(one_by_one), await measured(all_at_once)
    for name in CONTESTANTS:
        cells = (f"{each[name]:.2f} ({each[name] / each['asyncio.Lock']:.1f}x)" for each in (alone, together))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def run() -> str:
    return asyncio.run(table())


if __name__ == "__main__":
    print(run())
