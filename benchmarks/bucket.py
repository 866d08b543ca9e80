"""What a grant costs: the buckets beside an asyncio.Lock and pyrate-limiter's, in the
same run.

`python -m benchmarks.bucket` prints the table: a free grant, without other waiters, and
one of a thousand tasks that all ask at once, at a rate that is never the bottleneck.
Each figure is the best of several rounds that take turns; the ratios, not the
microseconds, say something about another machine. The second table is of the shared
buckets, one task, beside pyrate-limiter's SQLite and Redis buckets; those of Redis are
measured where redis-server is installed.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter

from pyrate_limiter import (
    GCRA,
    Limiter,
    Rate,
    RedisStateStore,
    SQLiteBucket,
    StateBucket,
    TokenBucket as PyrateTokenBucket,
)
from redis import Redis

from asyncfin import FileBucket, RedisBucket, TokenBucket

GRANTS, TASKS, ROUNDS = 10_000, 1000, 7
SHARED_GRANTS = 1000
PLENTY = 1_000_000_000

Acquire = Callable[[], Awaitable[object]]
Way = Callable[[Acquire], Awaitable[None]]


def lock() -> Acquire:
    """Return what takes and releases one lock."""
    mutex = asyncio.Lock()

    async def turn() -> None:
        async with mutex:
            pass

    return turn


def pyrate() -> Acquire:
    """Return what acquires from pyrate-limiter's token bucket."""
    rate = Rate(PLENTY, 1000, burst=PLENTY)
    return Limiter(
        StateBucket([rate], PyrateTokenBucket()), buffer_ms=1
    ).try_acquire_async


CONTESTANTS: Mapping[str, Callable[[], Acquire]] = {
    "asyncio.Lock": lock,
    "TokenBucket(), unpaced": lambda: TokenBucket().acquire,
    "TokenBucket(rate)": lambda: TokenBucket(PLENTY, 10).acquire,
    "TokenBucket(rate), daily budget": lambda: (
        TokenBucket(PLENTY, 10, daily_budget=PLENTY).acquire
    ),
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
        for name, bucket in CONTESTANTS.items():
            acquire = bucket()
            began = perf_counter()
            await way(acquire)
            best[name] = min(best[name], (perf_counter() - began) / GRANTS * 1e6)
    return best


async def table() -> str:
    """Return the results in Markdown."""
    lines = [
        "| us a grant (against the lock) | one task | a thousand tasks |",
        "| --- | --- | --- |",
    ]
    alone, concurrent = await measured(one_by_one), await measured(all_at_once)
    for name in CONTESTANTS:
        cells = (
            f"{result[name]:.2f} ({result[name] / result['asyncio.Lock']:.1f}x)"
            for result in (alone, concurrent)
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def shared(folder: str) -> str:
    """Return what a free grant of the shared buckets costs, in microseconds."""
    plenty = Rate(PLENTY, 1000, burst=PLENTY)
    sqlite = SQLiteBucket.init_from_file(
        [Rate(PLENTY, 1000)], db_path=f"{folder}/pyrate.sqlite"
    )
    ways: dict[str, Acquire] = {
        "FileBucket": FileBucket(f"{folder}/bucket", PLENTY, PLENTY).acquire,
        "pyrate-limiter SQLiteBucket": Limiter(sqlite, buffer_ms=1).try_acquire_async,
    }
    server = None
    try:
        if program := shutil.which("redis-server"):
            arguments = [
                "--port",
                "0",
                "--unixsocket",
                f"{folder}/socket",
                "--save",
                "",
                "--dir",
                folder,
            ]
            quiet = asyncio.subprocess.DEVNULL
            server = await asyncio.create_subprocess_exec(
                program, *arguments, stdout=quiet
            )
            await asyncio.sleep(0.5)
            url = f"unix://{folder}/socket"
            bucket = RedisBucket(url, account="bench", rate=PLENTY, burst=PLENTY)
            store = StateBucket(
                [plenty], GCRA(), store=RedisStateStore(Redis.from_url(url), "bench")
            )
            ways["RedisBucket"] = bucket.acquire
            ways["pyrate-limiter RedisStateStore"] = Limiter(
                store, buffer_ms=1
            ).try_acquire_async
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(3):
            for name, acquire in ways.items():
                await acquire()
                began = perf_counter()
                for _ in range(SHARED_GRANTS):
                    await acquire()
                best[name] = min(
                    best[name], (perf_counter() - began) / SHARED_GRANTS * 1e6
                )
        if server is not None:
            await bucket.aclose()
    finally:
        if server is not None:
            server.terminate()
            await server.wait()
    lines = ["| a grant of a shared bucket | us |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {name} | {best[name]:.0f} |" for name in ways)])


def run() -> str:
    with tempfile.TemporaryDirectory() as folder:
        return f"{asyncio.run(table())}\n\n{asyncio.run(shared(folder))}"


if __name__ == "__main__":
    print(run())
