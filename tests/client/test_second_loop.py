"""A client that is used in a second event loop."""

import asyncio
import threading

import pytest

from asyncfin import Annual, Client, MemoryCache, Select
from asyncfin.client import ClientOptions
from asyncfin.events import Event, RequestFinished, RequestStarted
from asyncfin.model.query import VALUE_VERSIONS, ValueVersion
from asyncfin.sandbox import Sandbox, Slow


def test_queries_wait_in_their_own_loop() -> None:
    """Queries of one publication wait for each other, in each loop anew."""
    ready, done = threading.Event(), threading.Event()
    services: list[Sandbox] = []

    async def serve() -> None:
        async with Sandbox.demo() as sandbox:
            sandbox.inject(Slow(operation="query", seconds=0.1))
            services.append(sandbox)
            ready.set()
            await asyncio.to_thread(done.wait, 60)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(30)
        (sandbox,) = services
        client = Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=60)
        for version in VALUE_VERSIONS:  # of the second one nothing is cached

            async def query_all(version: ValueVersion = version) -> list[int]:
                selects = [Select(metric_ids=name) for name in ("Revenue", "NetIncome", "Assets")]
                queries = (
                    client.query(sandbox.entities[0], select, Annual(), value_version=version)
                    for select in selects
                )
                return [len(panel) for panel in await asyncio.gather(*queries)]

            assert all(asyncio.run(query_all()))
    finally:
        done.set()
        thread.join(30)


async def test_rejected_loop_changes_nothing() -> None:
    """A call from another loop is rejected, and the only slot stays that of the first loop's request."""
    kinds: list[type] = []
    started = asyncio.Event()

    def observe(event: Event) -> None:
        if isinstance(event, RequestStarted | RequestFinished):
            kinds.append(type(event))
            started.set()

    options: ClientOptions = {"cache": MemoryCache(), "stale_if_error": 60, "max_in_flight": 1}
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, **options) as client,
    ):
        entity_id = sandbox.entities[0]
        await client.query(entity_id, Select("Revenue"), Annual())
        sandbox.inject(Slow(operation="dataset", seconds=0.2))

        def misuse() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(client.query(entity_id, Select("Revenue"), Annual()))

        with client.observed(observe):
            first = asyncio.ensure_future(client.dataset(entity_id))
            await started.wait()
            await asyncio.to_thread(misuse)
            await asyncio.gather(first, client.dataset(entity_id))
    assert kinds == [RequestStarted, RequestFinished] * 2
