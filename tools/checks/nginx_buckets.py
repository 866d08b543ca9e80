"""Let nginx's limit_req judge the bucket, in real time: nothing of ours decides what is
too fast.

Three clients meet the same limit, each a fresh nginx: one paced by a bucket just below
the limit, one paced above it, and one with a bucket that has to learn the limit. The
first must not be refused once, the second must be, and the third must get, with few
refusals, most of what one paced as the first gets in the same minute: a busy machine
wakes both late. Then four processes of 1, 4, 16 and 32 workers share a limit: with a
`TokenBucket` each, with a `FileBucket` and with a `RedisBucket`, paced and learning; a
table is printed. Run by `nox -s nginx`; seconds behind `--` say how long each runs.
"""

import asyncio
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import unused_port

from asyncfin import FileBucket, RedisBucket, TokenBucket

LIMIT, BURST = 50, 5
PACED_SHARE = 0.96
LEARNING_SECONDS, JUDGED_SECONDS = 20, 60
SHARED_LIMIT, WORKERS = 25, (1, 4, 16, 32)

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{}}
http {{
    log_format judged '$msec $status';
    access_log {log} judged;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    limit_req_zone all zone=all:1m rate={limit}r/s;
    limit_req_status 429;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            limit_req zone=all burst={burst} nodelay;
            error_page 429 = @refused;
            {content};
        }}
        location @served {{ return 204; }}
        location @refused {{ add_header Retry-After 1 always; return 429; }}
    }}
}}
"""


@asynccontextmanager
async def judge(
    nginx: str,
    limit: int = LIMIT,
    content: str = "try_files /nothing @served",
    log: str = "/dev/null",
) -> AsyncIterator[str]:
    """Run an nginx that allows the limit, and give its address.

    `content` is the directive that makes what it serves; `log` is a file for the time
    and status of each.
    """
    port = unused_port()
    with tempfile.TemporaryDirectory() as folder:
        file = configured(folder, port=port, limit=limit, content=content, log=log)
        server = await asyncio.create_subprocess_exec(
            nginx, "-p", folder, "-c", file, stderr=subprocess.DEVNULL
        )
        try:
            await answering(port)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            await server.wait()


def configured(folder: str, **options: Any) -> str:
    """Write the configuration into the folder, and return its path."""
    file = Path(folder, "nginx.conf")
    file.write_text(CONFIGURATION.format(folder=folder, burst=BURST, **options))
    return str(file)


async def answering(port: int) -> None:
    """Wait until something listens at the port."""
    for _ in range(100):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise RuntimeError("nginx did not start")


async def requests(
    nginx: str, bucket: TokenBucket, seconds: float
) -> list[tuple[float, bool]]:
    """Send through the bucket with eight in flight; return when, and whether it was
    served.
    """
    outcomes: list[tuple[float, bool]] = []
    clock = asyncio.get_running_loop().time

    async def without_end(
        session: aiohttp.ClientSession, address: str, end: float
    ) -> None:
        while clock() < end:
            sent_at = await bucket.acquire()
            async with session.get(address) as response:
                outcomes.append((sent_at - end + seconds, response.status == 204))
            if response.status == 429:
                await bucket.refused(
                    sent_at=sent_at, retry_after=float(response.headers["Retry-After"])
                )

    async with judge(nginx) as address, aiohttp.ClientSession() as session:
        end = clock() + seconds
        await asyncio.gather(*(without_end(session, address, end) for _ in range(8)))
    return outcomes


def verdict(
    name: str, outcomes: list[tuple[float, bool]], since: float, passed: bool
) -> bool:
    """Print one line about a client, and return whether it passed."""
    judged_outcomes = [served for moment, served in outcomes if moment >= since]
    refused = judged_outcomes.count(False)
    count = len(judged_outcomes)
    result = "passed" if passed else "FAILED"
    print(f"{result}: {name}: {refused} of {count} refused")
    return passed


def is_judged(moment: float) -> bool:
    """Return whether a learner must have found the limit by then."""
    return LEARNING_SECONDS <= moment < LEARNING_SECONDS + JUDGED_SECONDS


def share_of_limit(outcomes: list[tuple[float, bool]]) -> float:
    """Return which share of the limit a client was served in the seconds judged."""
    served = sum(is_served for moment, is_served in outcomes if is_judged(moment))
    return served / (LIMIT * JUDGED_SECONDS)


def _work(
    make: Callable[[], Any], workers: int, address: str, seconds: float, results: Any
) -> None:
    """Be one of the processes: send without end, and hand back when, and whether it was
    served.
    """

    async def work() -> list[tuple[float, bool]]:
        bucket, outcomes, clock = (
            make(),
            list[tuple[float, bool]](),
            asyncio.get_running_loop().time,
        )
        end = clock() + seconds

        async def without_end(session: aiohttp.ClientSession) -> None:
            while clock() < end:
                sent_at = await bucket.acquire()
                async with session.get(address) as response:
                    outcomes.append((sent_at - end + seconds, response.status == 204))
                if response.status == 429:
                    await bucket.refused(
                        sent_at=sent_at,
                        retry_after=float(response.headers["Retry-After"]),
                    )

        async with aiohttp.ClientSession() as session:
            tasks = [
                asyncio.ensure_future(without_end(session)) for _ in range(workers)
            ]
            await asyncio.sleep(seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await bucket.aclose()
        return outcomes

    results.put((workers, asyncio.run(work())))


async def processes(
    nginx: str, name: str, make: Callable[[], Any], warm_up: float, seconds: float
) -> tuple[float, float, float]:
    """Let four processes meet one limit, print a row, and return used, refused, and
    Jain's index.
    """
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    async with judge(nginx, SHARED_LIMIT) as address:
        workers = [
            context.Process(
                target=_work, args=(make, count, address, warm_up + seconds, results)
            )
            for count in WORKERS
        ]
        for worker in workers:
            worker.start()
        outcomes_by_count = dict(
            [await asyncio.to_thread(results.get) for _ in workers]
        )
        for worker in workers:
            worker.join()
    judged_outcomes = {
        count: [
            served
            for moment, served in outcomes
            if warm_up <= moment < warm_up + seconds
        ]
        for count, outcomes in outcomes_by_count.items()
    }
    served = {count: sum(outcomes) for count, outcomes in judged_outcomes.items()}
    used = sum(served.values()) / (SHARED_LIMIT * seconds)
    sent = sum(map(len, judged_outcomes.values()))
    refused = (sent - sum(served.values())) / max(1, sent)
    busy = [served[count] for count in WORKERS if count > 1]
    jain = sum(busy) ** 2 / max(1, len(busy) * sum(count**2 for count in busy))
    shares = " ".join(str(served[count]) for count in WORKERS)
    print(
        f"| {name} | {used:.1%} | {refused:.2%} | {jain:.3f} | {shares} |", flush=True
    )
    return used, refused, jain


async def shared(nginx: str, seconds: float) -> bool:
    """Print a table of four processes at one limit, and return whether shared buckets
    are as they must be.
    """
    print(
        f"\n4 processes of {WORKERS} workers at {SHARED_LIMIT}/s, burst {BURST}, "
        f"judged for {seconds:g} s:\n"
    )
    print(
        "| bucket | used | refused | Jain of the busy | served by process |\n| --- | "
        "--- | --- | --- | --- |"
    )
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[..., Any]] = {
            "FileBucket": partial(FileBucket, f"{folder}/paced")
        }
        learning: dict[str, Callable[..., Any]] = {
            "FileBucket": partial(FileBucket, f"{folder}/learning")
        }
        await processes(
            nginx,
            f"a TokenBucket({SHARED_LIMIT}) each",
            partial(TokenBucket, SHARED_LIMIT, BURST),
            2,
            seconds,
        )
        async with AsyncExitStack() as stack:
            if server := shutil.which("redis-server"):
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
                redis = await asyncio.create_subprocess_exec(
                    server, *arguments, stdout=subprocess.DEVNULL
                )
                stack.push_async_callback(redis.wait)
                stack.callback(redis.terminate)
                url = f"unix://{folder}/socket"
                kinds["RedisBucket"] = partial(RedisBucket, url, account="paced")
                learning["RedisBucket"] = partial(RedisBucket, url, account="learning")
            else:
                print("(no RedisBucket: redis-server is not installed)")
            for name, make in kinds.items():
                used, refused, jain = await processes(
                    nginx,
                    name,
                    partial(make, rate=SHARED_LIMIT, burst=BURST),
                    2,
                    seconds,
                )
                passed &= used >= 0.97 and refused <= 0.005 and jain >= 0.98
            await processes(
                nginx, "a learning TokenBucket() each", TokenBucket, 60, seconds
            )
            for name, make in learning.items():
                # Each process learns for itself.
                _, refused, _ = await processes(
                    nginx, f"{name}, learning", make, 60, seconds
                )
                passed &= refused <= 0.05
    print("\npassed" if passed else "\nFAILED", "four processes at one limit", sep=": ")
    return passed


async def main(nginx: str, seconds: float) -> bool:
    """Return whether all verdicts are as they must be."""
    below = await requests(nginx, TokenBucket(LIMIT * PACED_SHARE), 5)
    above = await requests(nginx, TokenBucket(LIMIT * 1.6), 5)
    total = LEARNING_SECONDS + JUDGED_SECONDS
    paced, learned = await asyncio.gather(
        requests(nginx, TokenBucket(LIMIT * PACED_SHARE), total),
        requests(nginx, TokenBucket(), total),
    )
    paced_share, learned_share = share_of_limit(paced), share_of_limit(learned)
    learned_statuses = [served for moment, served in learned if is_judged(moment)]
    refused = learned_statuses.count(False)
    got_through = learned_share > 0.88 * paced_share
    return all(
        [
            verdict(
                f"paced at {PACED_SHARE} of {LIMIT}/s",
                below,
                0,
                all(served for _, served in below),
            ),
            verdict(
                f"paced at 1.6 of {LIMIT}/s",
                above,
                0,
                not all(served for _, served in above),
            ),
            verdict(
                f"learned, {learned_share:.0%} of {LIMIT}/s, where a client paced at "
                f"{PACED_SHARE:.0%} got {paced_share:.0%}",
                learned,
                LEARNING_SECONDS,
                got_through and refused < 0.02 * len(learned_statuses),
            ),
            await shared(nginx, seconds),
        ]
    )


if __name__ == "__main__":
    nginx_path = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if nginx_path is None:
        print("skipped: nginx is not installed")
    else:
        sys.exit(
            not asyncio.run(
                main(nginx_path, float(sys.argv[1]) if sys.argv[1:] else 60.0)
            )
        )
