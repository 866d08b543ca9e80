"""The longest stops of the loop with a company of 24,000 series: rejected queries, the
tools, and reads.

The service runs in another process: `python -m benchmarks.stops` is that process.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from typing import Any

import mcp

from asyncfin import Client, FiscalRange, Select, SelectionError
from asyncfin.mcp import server
from asyncfin.sandbox import Sandbox, load
from benchmarks._gauges import Heartbeat
from tests.handmade import dataset

# Metric ids are made of these, so that thousands are spelt alike.
_WORDS = (
    "Net",
    "Income",
    "Tax",
    "Debt",
    "Asset",
    "Lease",
    "Gain",
    "Segment",
    "Parent",
    "Share",
)
_METRICS, _SCOPES, _ROUNDS = 3_000, 8, 3


def large() -> dict[str, Any]:
    """Return a company of 24,000 series."""
    metrics = [
        "x:"
        + "".join(_WORDS[number // power % 10] for power in (1, 10, 100))
        + str(number)
        for number in range(_METRICS)
    ]
    names = [
        (metric, f"scope{number}") for metric in metrics for number in range(_SCOPES)
    ]
    return dataset(
        {
            name: {"FY2023": number, "FY2024": number + 1}
            for number, name in enumerate(names)
        }
    )


async def _serve() -> None:
    async with Sandbox(load(large())) as sandbox:
        print(sandbox.base_url, sandbox.token, *sandbox.entities, flush=True)
        await asyncio.Event().wait()


async def longest(work: Callable[[], Awaitable[object]]) -> float:
    """Return the longest stop of the loop during some work, in ms of the loop's thread:
    the least of some.
    """
    stops = []
    for _ in range(_ROUNDS):
        heartbeat = Heartbeat()
        await asyncio.sleep(0.01)
        heartbeat.longest = 0.0
        await work()
        await asyncio.sleep(0.01)
        stops.append(heartbeat.longest * 1e3)
    return min(stops)


async def stops() -> dict[str, float]:
    """Return the longest stop of each kind of work, in ms."""
    service = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.stops",
        stdout=PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert service.stdout is not None
    url, token, entity_id = (await service.stdout.readline()).decode().split()
    try:
        async with (
            Client(url, token, max_age=3_600) as client,
            mcp.Client(server(client, [entity_id], max_requests=300)) as session,
        ):
            await client.catalogue(entity_id)

            async def tool(name: str, **arguments: Any) -> None:
                await session.call_tool(name, {"entities": [entity_id], **arguments})

            async def refused() -> None:
                try:
                    await client.query(entity_id, Select("NetIncomTaxx"), FiscalRange())
                except SelectionError:
                    return
                raise AssertionError("the metric is known")

            return {
                "a rejected query": await longest(refused),
                "a tool, unknown metric": await longest(
                    lambda: tool("query", series=["NetIncomTaxx"])
                ),
                "a tool, words without a match": await longest(
                    lambda: tool("find_series", words="incomme qqzz texes")
                ),
                "all series": await longest(
                    lambda: client.query(entity_id, Select(), FiscalRange())
                ),
            }
    finally:
        service.terminate()
        await service.wait()


def run() -> str:
    """Return a Markdown table."""
    rows = [
        f"| {name} | {stop:.2f} ms |" for name, stop in asyncio.run(stops()).items()
    ]
    return "\n".join(["| work | longest stop |", "| --- | --- |", *rows])


if __name__ == "__main__":
    asyncio.run(_serve())
