"""A client that is used in a second event loop."""

import asyncio
import threading

from asyncfin import Annual, Client, MemoryCache, Select
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
