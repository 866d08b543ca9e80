"""Clients that share one cache: neither another's loop, nor its end, nor its address spoils a question."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor

from asyncfin import Annual, Client, FiscalRange, MemoryCache, Select
from asyncfin.client import ClientOptions
from asyncfin.sandbox import Sandbox
from tests.generate import generate

DATASET = generate(7, series=150, publications=1)
ENTITY = DATASET.entity_id


async def test_threads_share_the_cache() -> None:
    """Each has a separate event loop; equal questions at once are answered in all of them."""
    cache = MemoryCache(account="shared")
    async with Sandbox(DATASET) as sandbox:
        base_url, token = sandbox.base_url, sandbox.token

        async def ask() -> list[list[float | None]]:
            async with Client(base_url, token, cache=cache) as client:
                panel = await client.query(ENTITY, Select(), FiscalRange())
                return [[value and value.number for value in series.values] for series in panel]

        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as threads:
            several = await asyncio.gather(
                *(loop.run_in_executor(threads, lambda: asyncio.run(ask())) for _ in range(4))
            )
    assert all(each == several[0] for each in several)


async def test_address_forms_share_a_part() -> None:
    """A slash at the end changes nothing that is sent."""
    cache = MemoryCache()
    async with Sandbox(DATASET) as sandbox:
        async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
            await client.query(ENTITY, Select(), Annual())
        async with Client(sandbox.base_url + "/", sandbox.token, cache=cache, max_age=60) as client:
            assert (await client.query(ENTITY, Select(), Annual())).requests == 0


def test_client_options_are_its_keywords() -> None:
    """Those who pass options on miss none, and invent none."""
    keywords = {
        name
        for name, parameter in inspect.signature(Client).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert set(ClientOptions.__annotations__) == keywords
