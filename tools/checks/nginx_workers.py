"""Let nginx's limit_req judge extractions over a process pool, in real time.

Four workers read companies through one nginx, which allows 40 requests a second and
passes them on to the sandbox: with a `TokenBucket` each, with a quarter of the rate
each, and with a `RedisBucket`. nginx's own log says what was refused. Run by `nox -s
nginx`; the number of companies may follow.
"""

import asyncio
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from asyncfin import Annual, Client, Select, extract
from asyncfin.sandbox import Sandbox
from tests.extraction.making import (
    make_client_of_redis,
    make_client_of_share,
    make_client_of_whole,
)
from tests.generate import generate
from tools.checks.nginx_buckets import BURST, judge

LIMIT, WORKERS, SERIES = 40, 4, 20


async def extracted(
    nginx: str, name: str, make_client: Callable[[], Client], sandbox: Sandbox
) -> tuple[float, bool]:
    """Extract all companies, print a row, and return what was refused and whether all
    companies were done.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/judged.log"
        async with judge(
            nginx, LIMIT, f"proxy_pass {sandbox.base_url}", log
        ) as address:
            os.environ["ASYNCFIN_BASE_URL"] = address
            with ProcessPoolExecutor(
                WORKERS, mp_context=multiprocessing.get_context("spawn")
            ) as pool:
                options: dict[str, Any] = {
                    "select": Select(),
                    "periods": Annual(),
                    "executor": pool,
                }
                # What workers import takes longer than all else here.
                first = sandbox.entities[: 4 * WORKERS]
                await extract(
                    make_client, first, **options, chunk=1, to=f"{folder}/before"
                )
                began = time.time()
                report = await extract(
                    make_client,
                    sandbox.entities,
                    **options,
                    chunk=20,
                    to=f"{folder}/night",
                )
        moments, statuses = answers(log, began)
    done, of = len(report.done), len(sandbox.entities)
    seconds, sent = max(moments) - min(moments), len(statuses)
    used, refused = (
        statuses.count("200") / (LIMIT * seconds),
        statuses.count("429") / sent,
    )
    print(
        f"| {name} | {used:.1%} | {refused:.2%} | {done} of {of} | {sent:,} | "
        f"{seconds:.1f} |",
        flush=True,
    )
    return refused, done == of


def answers(log: str, since: float) -> tuple[list[float], list[str]]:
    """Return when nginx answered since then, and with what."""
    lines = [line.split() for line in Path(log).read_text().splitlines()]
    results = [
        (float(moment), status) for moment, status in lines if float(moment) >= since
    ]
    return [moment for moment, _ in results], [status for _, status in results]


async def main(nginx: str, redis_server: str, companies: int) -> bool:
    """Return whether the shared bucket is as it must be."""
    print(
        f"{companies} companies of {SERIES} series, {WORKERS} workers, {LIMIT}/s, "
        f"burst {BURST}:\n"
    )
    print(
        "| bucket | used | refused | done | requests | seconds |\n| --- | --- | --- | "
        "--- | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as folder:
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
            redis_server, *arguments, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            async with Sandbox(
                *(generate(seed, series=SERIES) for seed in range(companies))
            ) as sandbox:
                os.environ |= {
                    "ASYNCFIN_TOKEN": sandbox.token,
                    "ASYNCFIN_REDIS": f"unix://{folder}/socket",
                    "ASYNCFIN_RATE": str(
                        LIMIT * 0.99
                    ),  # nginx counts whole milliseconds
                    "ASYNCFIN_BURST": str(BURST - 2),
                    "ASYNCFIN_WORKERS": str(WORKERS),
                }
                # Of these a company can be refused five times in a row, and so fail.
                alone, _ = await extracted(
                    nginx, f"a TokenBucket({LIMIT}) each", make_client_of_whole, sandbox
                )
                await extracted(
                    nginx,
                    f"a TokenBucket({LIMIT} / 4) each",
                    make_client_of_share,
                    sandbox,
                )
                refused, whole = await extracted(
                    nginx, "RedisBucket", make_client_of_redis, sandbox
                )
        finally:
            redis.terminate()
            await redis.wait()
    # Where a bucket each is not refused either, this machine is too slow to reach the
    # limit.
    passed = whole and refused <= 0.005 < alone
    print(
        "\npassed" if passed else "\nFAILED", "an extraction of four workers", sep=": "
    )
    return passed


if __name__ == "__main__":
    nginx_path, server = (
        shutil.which("nginx") or shutil.which("/usr/sbin/nginx"),
        shutil.which("redis-server"),
    )
    if nginx_path is None or server is None:
        print("skipped: nginx or redis-server is not installed")
    else:
        sys.exit(
            not asyncio.run(
                main(nginx_path, server, int(sys.argv[1]) if sys.argv[1:] else 480)
            )
        )
