"""No call of a tool, and no refused question, keeps the event loop busy for long: threads do the work.

Measured is the CPU time of the loop's thread, as a share of what the call takes in all: that does not depend
on the machine.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from asyncfin import Client, FiscalRange, Select, SelectionError
from asyncfin.sandbox import Sandbox, load
from tests.handmade import dataset
from tests.mcp.assistant import assistant, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
WORDS = ("Net", "Income", "Tax", "Debt", "Asset", "Lease", "Gain", "Segment", "Parent", "Share")
# What the loop's thread may do without a pause, of the CPU time of the whole call.
SHARE = 0.2


@pytest.fixture
async def large() -> AsyncIterator[Sandbox]:
    """Serve a company of 6,000 series of 1,500 metrics."""
    metrics = [f"x:{WORDS[at % 10]}{WORDS[at // 10 % 10]}{WORDS[at // 100 % 10]}{at}" for at in range(1_500)]
    numbers = {(metric, f"scope{at}"): {"FY2024": 1} for metric in metrics for at in range(4)}
    async with Sandbox(load(dataset(numbers))) as sandbox:
        yield sandbox


async def longest_share(work: Callable[[], Awaitable[object]]) -> float:
    """Return the longest stretch of the loop's thread during some work, as a share of all CPU time."""
    stretches = [0.0]

    async def beat() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.002)
            now = time.thread_time()
            stretches.append(now - last)
            last = now

    beats = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    began = time.process_time()
    await work()
    spent = time.process_time() - began
    await asyncio.sleep(0.01)  # the stretch that ends with the work counts too
    beats.cancel()
    return max(stretches) / spent


async def test_tools_leave_the_loop_to_others(large: Sandbox) -> None:
    """Words without a match, and a metric that no company has, are compared with all names."""
    async with assistant(large, offered=large.entities, max_requests=200, max_age=3_600) as call:
        await call("find_series", entities=large.entities)

        async def unknown() -> None:
            answer = await call("query", entities=large.entities, series=["NetIncomTaxx"])
            assert "has no metric" in text_of(answer)

        async def no_match() -> None:
            answer = await call("find_series", entities=large.entities, words="incomme qqzz texes")
            assert "nothing matches all words" in text_of(answer)

        assert await longest_share(unknown) < SHARE
        assert await longest_share(no_match) < SHARE


async def test_rejection_leaves_the_loop_to_others(large: Sandbox) -> None:
    """Its error names what comes close, which is looked for among all ids."""
    async with Client(large.base_url, large.token, max_age=3_600) as client:
        (entity_id,) = large.entities
        await client.catalogue(entity_id)

        async def refused() -> None:
            with pytest.raises(SelectionError, match="close: x:"):
                await client.query(entity_id, Select("NetIncomTaxx"), FiscalRange())

        assert await longest_share(refused) < SHARE
