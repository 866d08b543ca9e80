"""Closing rejects all that wait, and the next event loop starts without them."""

import asyncio
from typing import Any

import pytest

from asyncfin.errors import ServerFailureError
from asyncfin.events import OutageEnded, RequestFinished
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.protocol import Request, Response
from asyncfin.wire.retry import Retry
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.conftest import VirtualTimeLoop
from tests.services.raw import answer, hanging, refusal, scripted
from tests.wire.sending import NOON, READ, of_kind, sending


async def turned_away(transport: Transport, waiting: list[asyncio.Task[Response]]) -> list[str]:
    """Close, and return the errors of those who waited, which come at once and without context."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await transport.aclose()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert loop.time() - began < 0.01
    closed = [end for end in ends if isinstance(end, RuntimeError)]
    assert all(end.__context__ is None for end in closed)
    return [str(end) for end in closed]


@pytest.mark.virtual
async def test_closing_ends_waits_for_the_bucket() -> None:
    """Of ten requests one was granted, three waited for a grant, the rest for a slot; others go on."""
    bucket = TokenBucket(rate=0.1, clock=lambda: NOON)
    async with (
        sending(answer(), bucket=bucket, max_in_flight=3) as (server, sender, _),
        sending(answer(), bucket=bucket) as (_other, neighbour, _events),
    ):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(10)]
        await asyncio.sleep(1)
        assert await turned_away(sender.transport, waiting) == ["the client is closed"] * 9
        assert sum(bucket.stats().waiting.values()) == 0
        await neighbour.send(READ)
        assert bucket.stats().granted == 2
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.1)
    assert len(server.requests) == 1


@pytest.mark.virtual
@pytest.mark.parametrize("step", [refusal(503, retry_after="50"), refusal(429, retry_after="50"), hanging()])
async def test_closing_ends_retries_and_requests(step: Any) -> None:
    """Closing ends requests that wait for a retry, for a pause, and for a response."""
    before = asyncio.all_tasks()
    async with sending(step, retry=Retry(attempts=3)) as (server, sender, _):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(4)]
        await server.arrived(4)
        await asyncio.sleep(1)
        assert await turned_away(sender.transport, waiting) == ["the client is closed"] * 4
    assert len(server.requests) == 4
    assert asyncio.all_tasks() == before


@pytest.mark.virtual
async def test_closing_ends_waits_for_tokens() -> None:
    """Closing ends the call for a token and all who wait for it; no task is left."""
    before = asyncio.all_tasks()

    async def token() -> str:
        await asyncio.sleep(100)
        return "late"

    transport = Transport("http://127.0.0.1:1")
    sender = Sender(transport, token, bucket=TokenBucket())
    waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(4)]
    await asyncio.sleep(1)
    assert await turned_away(transport, waiting) == ["the client is closed"] * 4
    assert asyncio.all_tasks() == before


def test_waiting_client_moves_to_next_loop() -> None:
    """Its slots and its waits before a retry belong to one loop, and are made again in another."""
    transport = Transport("http://127.0.0.1:1", max_in_flight=1)
    sender = Sender(transport, "t", bucket=TokenBucket(rate=1e6, burst=9), retry=Retry(wait_initial=1))

    async def twice() -> list[int]:
        async with scripted(refusal(503), answer()) as server:
            transport.base_url = server.base_url
            return [each.status for each in await asyncio.gather(sender.send(READ), sender.send(READ))]

    for _ in range(2):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            assert runner.run(twice()) == [200, 200]


@pytest.mark.virtual
async def test_closing_gives_back_the_grant() -> None:
    """Nothing is sent on it, so the day's spending does not count it."""
    closing: list[asyncio.Task[None]] = []

    class Bucket(TokenBucket):
        async def acquire(self, *args: Any, **options: Any) -> float:
            granted = await super().acquire(*args, **options)
            closing.append(asyncio.ensure_future(sender.aclose()))
            await asyncio.sleep(0)  # it begins, and would end this request in the next step
            return granted

    bucket = Bucket(clock=lambda: NOON)
    async with sending(answer(), bucket=bucket) as (server, sender, _):
        with pytest.raises(RuntimeError, match="the client is closed"):
            await sender.send(READ)
        await asyncio.gather(*closing)
        assert (bucket.stats().granted, bucket.stats().spent_today) == (0, 0)
    assert not server.requests


@pytest.mark.virtual
async def test_cancellation_as_it_closes() -> None:
    """A caller that is cancelled in the same turn of the loop sees its cancellation."""
    async with sending(hanging()) as (server, sender, _):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(2)]
        await server.arrived(2)
        waiting[0].cancel()
        assert await turned_away(sender.transport, waiting) == ["the client is closed"]
        assert waiting[0].cancelled()


@pytest.mark.virtual
async def test_outage_ends_after_its_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends the request that is tried, however long that takes, and then announces the end, once."""
    async with sending(*[refusal(503)] * 8, hanging(), retry=Retry(attempts=1)) as (server, sender, events):
        for number in range(8):
            with pytest.raises(ServerFailureError):
                await sender.send(Request("dataset", "GET", "/", entity_id=f"O-{number:032}"))
        await asyncio.sleep(2)
        send = sender.transport.send

        async def send_and_linger(*args: Any, **options: Any) -> Any:
            try:
                return await send(*args, **options)
            finally:
                await asyncio.sleep(1)

        monkeypatch.setattr(sender.transport, "send", send_and_linger)
        sender.lane = "bulk"
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(3)]
        await server.arrived(9)
        await sender.aclose()
        await sender.aclose()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(end) for end in ends] == ["the client is closed"] * 3
        assert sender.stats().outage_since is None
    assert [type(event) for event in events[-2:]] == [RequestFinished, OutageEnded]
    assert [event.recovered for event in of_kind(events, OutageEnded)] == [False]
