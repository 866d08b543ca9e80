"""What a failed attempt shows reaches the bucket, also if its visitor leaves meanwhile."""

import asyncio
from typing import Any

import pytest

from asyncfin import Client, TokenBucket
from asyncfin.sandbox import Sandbox, Status

pytestmark = pytest.mark.virtual


class SlowBucket(TokenBucket):
    """A bucket whose reports take a second, as over a network."""

    def __init__(self) -> None:
        super().__init__()
        self.reported = asyncio.Event()
        self.done: list[str] = []

    async def refused(self, **facts: Any) -> None:
        self.reported.set()
        await asyncio.sleep(1)
        await super().refused(**facts)
        self.done.append("refused")

    async def exhaust(self, seconds: float) -> None:
        self.reported.set()
        await asyncio.sleep(1)
        await super().exhaust(seconds)
        self.done.append("exhaust")


@pytest.mark.parametrize(("retry_after", "report"), [(30, "refused"), (3600, "exhaust")])
async def test_pause_outlasts_its_visitor(retry_after: int, report: str) -> None:
    """A 429 pauses all clients of the bucket, whoever asked."""
    faults = [Status(status=429, retry_after=retry_after)]
    bucket = SlowBucket()
    async with (
        Sandbox.demo(faults=faults) as sandbox,
        Client(sandbox.base_url, sandbox.token, bucket=bucket) as client,
    ):
        visit = asyncio.ensure_future(client.dataset(sandbox.entities[0]))
        await bucket.reported.wait()
        visit.cancel()
        await asyncio.wait([visit])
        assert visit.cancelled()
        assert bucket.done == [report]
