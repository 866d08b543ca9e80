"""What reading a large catalogue costs, beside fetching the same bytes and parsing them
with orjson.

The service is a sandbox in a separate process, so that only the reading is measured:
the CPU time of this process, the medians of rounds that take turns.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import process_time
from typing import Any

import aiohttp
import orjson
from attrs import frozen

from asyncfin import Client

SERIES, ROUNDS = 2900, 15
_SERVER = f"""
import asyncio, sys
from asyncfin.sandbox import Sandbox
from tests.generate import generate

async def main():
    async with Sandbox(generate(1, series={SERIES}, publications=1)) as sandbox:
        print(sandbox.base_url, sandbox.token, *sandbox.entities, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@frozen
class Service:
    base_url: str
    token: str
    entity_id: str


@contextmanager
def service() -> Iterator[Service]:
    """Run a sandbox with one large dataset, in a separate process."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        yield Service(*process.stdout.readline().split())
        process.stdin.close()


async def read(at: Service) -> int:
    """Read the catalogue with the client; return how many series it has."""
    async with Client(at.base_url, at.token) as client:
        return len(await client.catalogue(at.entity_id))


async def fetch(at: Service) -> int:
    """Fetch the same answers and parse them; return how many series they hold."""
    url = f"{at.base_url}/v1/entities/{at.entity_id}/dataset"
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {at.token}"}
    ) as session:
        body = await _parsed(session, url, {})
        params, count = {"limit": "100", "expected_dataset_id": body["dataset_id"]}, 0
        while True:
            body = await _parsed(session, f"{url}/catalogue", params)
            count += sum(len(group["series"]) for group in body["groups"])
            if body.get("next_cursor") is None:
                return count
            params["cursor"] = body["next_cursor"]


async def _parsed(
    session: aiohttp.ClientSession, url: str, params: dict[str, str]
) -> Any:
    async with session.get(url, params=params) as answer:
        return orjson.loads(await answer.read())


async def _seconds(way: Callable[[Service], Awaitable[int]], at: Service) -> float:
    began = process_time()
    assert await way(at) == SERIES
    return process_time() - began


async def _medians(at: Service) -> tuple[float, float]:
    for way in (fetch, read):
        await way(at)
    rounds = [
        (await _seconds(fetch, at), await _seconds(read, at)) for _ in range(ROUNDS)
    ]
    floor, ours = (median(each) for each in zip(*rounds, strict=True))
    return floor, ours


def run() -> str:
    """Return a Markdown table: the goal is a ratio below 2."""
    with service() as at:
        floor, ours = asyncio.run(_medians(at))
    return "\n".join(
        [
            f"| a catalogue of {SERIES:,} series | fetch and orjson | client.catalogue "
            "| ratio | goal |",
            "| --- | ---: | ---: | ---: | ---: |",
            f"| CPU time | {floor * 1e3:.0f} ms | {ours * 1e3:.0f} ms | "
            f"{ours / floor:.2f}x | < 2x |",
        ]
    )


if __name__ == "__main__":
    print(run())
