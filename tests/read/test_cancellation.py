"""Leaving early, at whatever moment, leaves nothing behind, and the client stays usable."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, Panel, Select, TokenBucket, Trailing
from asyncfin.sandbox import Latency, Sandbox
from tests.generate import generate

pytestmark = pytest.mark.virtual

DATASET = generate(11, series=230, publications=1)
ENTITY = DATASET.entity_id
SMALL = generate(13, series=60, publications=1)


@asynccontextmanager
async def session(*, rate: float | None = None) -> AsyncIterator[tuple[Sandbox, Client, TokenBucket]]:
    bucket = TokenBucket(rate)
    async with (
        Sandbox(DATASET, faults=[Latency(seconds=0.05)]) as sandbox,
        Client(sandbox.base_url, sandbox.token, bucket=bucket, max_in_flight=3) as client,
    ):
        yield sandbox, client, bucket


async def nothing_is_left(bucket: TokenBucket, before: set[asyncio.Task[Any]]) -> None:
    """Assert that no task of ours is left, and no request waits in the bucket, after the server's ended."""
    for _ in range(50):
        if asyncio.all_tasks() <= before:
            break
        await asyncio.sleep(0.1)
    assert asyncio.all_tasks() <= before
    assert sum(bucket.stats().waiting.values()) == 0


async def query(client: Client, entity_id: str = SMALL.entity_id) -> Panel:
    return await client.query(entity_id, Select(), FiscalRange())


async def stream(client: Client) -> list[Panel]:
    async with client.stream(SMALL.entity_id, Select(), Trailing(24)) as pieces:
        return [piece async for piece in pieces]


async def usage(client: Client) -> Any:
    return await client.usage("2020-01-01", "2024-12-31")


@pytest.mark.parametrize("read", [query, stream, usage])
async def test_cancelled_read_leaves_nothing(
    read: Callable[[Client], Coroutine[Any, Any, Any]],
) -> None:
    """A read cancelled after any number of turns of the loop leaves nothing behind."""
    ended = False
    turns = 0
    async with Sandbox(SMALL) as sandbox:
        while not ended:
            turns += 1
            bucket = TokenBucket()
            async with Client(sandbox.base_url, sandbox.token, bucket=bucket, max_in_flight=3) as client:
                task = asyncio.ensure_future(read(client))
                for _ in range(turns):
                    await asyncio.sleep(0)
                ended = not task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                assert ended or task.cancelled()
                left = {each for each in asyncio.all_tasks() if not _serving(each)}
                assert left == {asyncio.current_task()}
                assert sum(bucket.stats().waiting.values()) == 0
                if turns % 25 == 1:
                    assert len(await query(client)) == len(await client.catalogue(SMALL.entity_id))
    assert turns > 10  # how many depends on the machine and on eager tasks


def _serving(task: asyncio.Task[Any]) -> bool:
    """Say whether a task is the server's, for a connection of the client's."""
    return any(name in repr(task.get_coro()) for name in ("RequestHandler.start", "_accept_connection"))


@pytest.mark.parametrize("rate", [None, 5.0])
@pytest.mark.parametrize("leave", ["break", "error", "cancel"])
async def test_stream_left_early_leaves_nothing(leave: str, rate: float | None) -> None:
    """Leaving a stream by break, by an error or by cancellation leaves nothing behind, waiting or not."""
    async with session(rate=rate) as (sandbox, client, bucket):
        await client.catalogue(ENTITY)
        before = asyncio.all_tasks()

        async def consume() -> None:
            async with client.stream(ENTITY, Select(), FiscalRange()) as pieces:
                async for _ in pieces:
                    if leave == "break":
                        break
                    if leave == "error":
                        raise ZeroDivisionError
                    task.cancel()
                    await asyncio.sleep(1)

        task = asyncio.ensure_future(consume())
        done, _ = await asyncio.wait([task])
        assert task in done
        if leave == "error":
            assert isinstance(task.exception(), ZeroDivisionError)
        else:
            assert task.cancelled() == (leave == "cancel")
        serving = {each for each in asyncio.all_tasks() if _serving(each)}
        await nothing_is_left(bucket, before | serving)
        assert len(await query(client, ENTITY)) == 230
        assert len(sandbox.log) > 0


async def test_a_stream_obeys_its_consumers_pace() -> None:
    """While the consumer thinks, only `max_in_flight` pages beyond the one taken are asked for."""
    wide = generate(12, series=3000, publications=1)
    async with (
        Sandbox(wide) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=2) as client,
    ):
        plan = await client.plan(wide.entity_id, Select(), FiscalRange())
        spent = len(sandbox.log)
        async with client.stream(wide.entity_id, Select(), FiscalRange()) as pieces:
            async for _ in pieces:
                await asyncio.sleep(1000)
                break
            assert len(sandbox.log) - spent == 1 + 2
    assert plan.requests > 15


async def test_abandoned_wait_loses_no_piece() -> None:
    """A wait that is given up loses no piece, nor does it end the stream, as if all had come."""
    async with (
        Sandbox(SMALL, faults=[Latency(operation="query", seconds=1)]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        came: list[str] = []
        late = 0
        async with client.stream(SMALL.entity_id, Select(), FiscalRange()) as pieces:
            while True:
                try:
                    came += (await asyncio.wait_for(anext(pieces), 0.3)).series_ids
                except TimeoutError:
                    late += 1
                except StopAsyncIteration:
                    break
        assert late
        assert sorted(came) == sorted((await query(client)).series_ids)


async def test_batches_are_in_flight_together() -> None:
    """A question of n batches takes n / max_in_flight round trips and no more."""
    wide = generate(12, series=3000, publications=1)
    async with (
        Sandbox(wide, faults=[Latency(operation="query", seconds=1)]) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=8) as client,
    ):
        plan = await client.plan(wide.entity_id, Select(), FiscalRange())
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await client.run(plan)
        assert loop.time() - begun <= 1.2 * -(-plan.requests // 8)


async def test_small_query_overtakes_large_one() -> None:
    """A fan-out has at most max_in_flight batches waiting: a large one does not block the others."""
    wide = generate(12, series=3000, publications=1)
    async with (
        Sandbox(wide) as sandbox,
        Client(sandbox.base_url, sandbox.token, bucket=TokenBucket(1.0), max_in_flight=4) as client,
    ):
        catalogue = await client.catalogue(wide.entity_id)
        large = asyncio.ensure_future(client.query(catalogue, Select(), FiscalRange()))
        await asyncio.sleep(5)
        small = await client.query(catalogue, Select.of(catalogue.series[0]), FiscalRange())
        assert len(small) == 1
        assert not large.done()
        large.cancel()
        with suppress(asyncio.CancelledError):
            await large


async def test_shared_catalogue_survives_cancelled_reader() -> None:
    """The one who began the reading leaves; the one who joined gets the catalogue, read once."""
    async with session() as (sandbox, client, _):
        leader = asyncio.ensure_future(client.catalogue(ENTITY))
        follower = asyncio.ensure_future(client.catalogue(ENTITY))
        await asyncio.sleep(0.06)
        leader.cancel()
        assert len(await follower) == 230
        assert [served.operation for served in sandbox.log] == ["catalogue"] * 3
        assert leader.cancelled()
