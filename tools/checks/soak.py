"""A soak: two processes on one file cache and one file bucket, until the service has
got many requests.

`python -m tools.checks.soak 100000 [SEED]`; `nox -s chaos` runs it too. The service
publishes, refuses and fails; questions overlap and are cancelled. Every result is
compared with the oracle's. The memory and the file descriptors of each process must not
grow.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from asyncfin import Client, FileBucket, FileCache
from tests.services.independent import TOKEN, Judge, Service, change, serving
from tests.services.independent_client import QUICK, ask, question, read, written

ROOT = Path(__file__).parents[2]
PROCESSES = 2
RATE, BURST = 5_000.0, 200
REPORTED = (
    "#"  # a line of a child about itself: its memory in KiB, and its file descriptors
)


async def child(base_url: str, folder: str, seed: str) -> None:
    """Ask questions until standard input ends."""
    rng = random.Random(seed)
    entities = [f"O-{n + 1:032x}" for n in range(6)]
    cache, bucket = (
        FileCache(Path(folder) / "cache"),
        FileBucket(Path(folder) / "bucket", RATE, BURST),
    )
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    async with (
        Client(base_url, TOKEN, cache=cache, bucket=bucket, retry=QUICK) as client,
        Client(
            base_url, TOKEN, cache=cache, bucket=bucket, retry=QUICK
        ) as second_client,
    ):
        rounds = 0
        while not ended.done():
            rounds += 1
            queries = [
                question(rng, entities) | {"max_age": rng.choice([0.0, 0.0, 0.0, 0.05])}
                for _ in range(6)
            ]
            work = [
                asyncio.ensure_future(
                    ask(
                        rng.choice([client, second_client]),
                        query,
                        stream=rng.random() < 0.2,
                    )
                )
                for query in queries
            ]
            if rng.random() < 0.3:
                await asyncio.sleep(0)
                work.pop().cancel()
            for task in work:
                print(written(await task), flush=True)
            if rounds % 50 == 1:
                print(REPORTED, memory(), len(os.listdir("/proc/self/fd")), flush=True)
    await bucket.aclose()
    await cache.aclose()


def memory() -> int:
    """Return the resident memory of this process in KiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


async def soak(requests: int, seed: str) -> None:
    """Run until the service has got so many requests, and print what was seen."""
    rng, service = (
        random.Random(seed),
        Service(rng_seed(seed), entities=6, lists_empty=False, faults=0.05),
    )
    judge, resources = Judge(service), [[] for _ in range(PROCESSES)]  # type: ignore[var-annotated]
    began = time.monotonic()
    with TemporaryDirectory() as folder:
        async with serving(service) as base_url:
            command = [
                sys.executable,
                "-m",
                "tools.checks.soak",
                "child",
                base_url,
                folder,
            ]
            processes = [
                await asyncio.create_subprocess_exec(
                    *command, f"{seed}/{number}", cwd=ROOT, limit=1 << 24,
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                )
                for number in range(PROCESSES)
            ]  # fmt: skip
            seen = 0

            async def follow(number: int, process: asyncio.subprocess.Process) -> None:
                nonlocal seen
                assert process.stdout is not None
                assert process.stdin is not None
                async for line in process.stdout:
                    if line.startswith(REPORTED.encode()):
                        resources[number].append(tuple(map(int, line.split()[1:])))
                        continue
                    answer = read(line.decode())
                    problem = judge.problem(answer)
                    assert not problem, (problem, answer)
                    seen += 1
                    if seen % 8 == 0:
                        change(service, rng)
                    if service.requests >= requests and not process.stdin.is_closing():
                        process.stdin.close()
                assert await process.wait() == 0

            try:
                await asyncio.gather(
                    *map(follow, *zip(*enumerate(processes), strict=True))
                )
            finally:
                for process in processes:
                    with suppress(ProcessLookupError):
                        process.kill()
    seconds = time.monotonic() - began
    print(f"{service.requests:,} requests in {seconds:.0f} s, seed {seed}")
    print(f"{judge.right:,} right results, {judge.errors:,} errors, none wrong")
    for number, measured in enumerate(resources):
        sizes, descriptors = zip(*measured, strict=True)
        quarter = max(1, len(sizes) // 4)
        early, late = max(sizes[quarter : 2 * quarter] or sizes), max(sizes[-quarter:])
        print(
            f"process {number}: {early >> 10} -> {late >> 10} MiB, at most "
            f"{max(descriptors)} descriptors"
        )
        assert late < early * 1.15 + 8 * 1024, "memory grows"
        # The connections of both clients' pools are opened as they are needed.
        assert max(descriptors[-quarter:]) <= max(descriptors[: 2 * quarter]) + 16, (
            "descriptors grow"
        )


def rng_seed(seed: str) -> int:
    """Return a seed for the service."""
    return random.Random(seed).randrange(1 << 30)


if __name__ == "__main__":
    if sys.argv[1] == "child":
        asyncio.run(child(*sys.argv[2:]))
    else:
        asyncio.run(soak(int(sys.argv[1]), *(sys.argv[2:] or ["1"])))
