"""Let nginx's limit_req judge the bucket, in real time: nothing of ours decides what is too fast.

Three clients meet the same limit, each a fresh nginx: one paced by a bucket just below the limit, one
paced above it, and one with a bucket that has to learn the limit. The first must not be refused once,
the second must be, and the third must get most of the limit with few refusals. Run by `nox -s judge`.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp.test_utils import unused_port

from asyncfin.wire.bucket import TokenBucket

LIMIT, BURST = 50, 5
LEARNING_SECONDS, JUDGED_SECONDS = 20, 60

CONFIGURATION = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log crit;
events {{}}
http {{
    access_log off;
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
            try_files /nothing @served;
        }}
        location @served {{ return 204; }}
        location @refused {{ add_header Retry-After 1 always; return 429; }}
    }}
}}
"""


@asynccontextmanager
async def judge(nginx: str) -> AsyncIterator[str]:
    """Run an nginx that allows the limit, and give its address."""
    port = unused_port()
    with tempfile.TemporaryDirectory() as folder:
        server = await asyncio.create_subprocess_exec(
            nginx, "-p", folder, "-c", configured(folder, port), stderr=subprocess.DEVNULL
        )
        try:
            await answering(port)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.terminate()
            await server.wait()


def configured(folder: str, port: int) -> str:
    """Write the configuration into the folder, and return its path."""
    file = Path(folder, "nginx.conf")
    file.write_text(CONFIGURATION.format(folder=folder, port=port, limit=LIMIT, burst=BURST))
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


async def requests(nginx: str, bucket: TokenBucket, seconds: float) -> list[tuple[float, bool]]:
    """Send through the bucket with eight in flight; return when, and whether it was served."""
    outcomes: list[tuple[float, bool]] = []
    clock = asyncio.get_running_loop().time

    async def without_end(session: aiohttp.ClientSession, address: str, end: float) -> None:
        while clock() < end:
            sent_at = await bucket.acquire()
            async with session.get(address) as response:
                outcomes.append((sent_at - end + seconds, response.status == 204))
            if response.status == 429:
                await bucket.refused(sent_at=sent_at, retry_after=float(response.headers["Retry-After"]))

    async with judge(nginx) as address, aiohttp.ClientSession() as session:
        end = clock() + seconds
        await asyncio.gather(*(without_end(session, address, end) for _ in range(8)))
    return outcomes


def verdict(name: str, outcomes: list[tuple[float, bool]], since: float, passed: bool) -> bool:
    """Print one line about a client, and return whether it passed."""
    judged = [served for at, served in outcomes if at >= since]
    refused = judged.count(False)
    print(f"{'passed' if passed else 'FAILED'}: {name}: {refused} of {len(judged)} refused")
    return passed


async def main(nginx: str) -> bool:
    """Return whether all three verdicts are as they must be."""
    below = await requests(nginx, TokenBucket(LIMIT * 0.96), 5)
    above = await requests(nginx, TokenBucket(LIMIT * 1.6), 5)
    total = LEARNING_SECONDS + JUDGED_SECONDS
    learned = await requests(nginx, TokenBucket(), total)
    judged = [served for at, served in learned if LEARNING_SECONDS <= at < total]
    share = sum(judged) / (LIMIT * JUDGED_SECONDS)
    got_through = share > 0.85 and judged.count(False) < 0.02 * len(judged)
    return all(
        [
            verdict(f"paced at 0.96 of {LIMIT}/s", below, 0, all(served for _, served in below)),
            verdict(f"paced at 1.6 of {LIMIT}/s", above, 0, not all(served for _, served in above)),
            verdict(f"learned, {share:.0%} of {LIMIT}/s", learned, LEARNING_SECONDS, got_through),
        ]
    )


if __name__ == "__main__":
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if found is None:
        print("skipped: nginx is not installed")
    else:
        sys.exit(not asyncio.run(main(found)))
