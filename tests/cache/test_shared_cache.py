"""Clients that share one cache: neither another's loop, nor its end, nor its address spoils a question."""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor

import pytest

from asyncfin import Annual, ArgumentError, Client, FiscalRange, MemoryCache, Select, TokenBucket
from asyncfin.client import ClientOptions
from asyncfin.sandbox import Latency, Sandbox
from tests.generate import generate

DATASET = generate(7, series=150, publications=1)
ENTITY = DATASET.entity_id


async def test_clients_of_several_threads_share_what_is_kept() -> None:
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


async def test_a_client_that_closes_half_way_ends_no_question_of_another() -> None:
    """A client that is closed half way leaves other questions for the same series unharmed."""
    cache = MemoryCache()
    async with Sandbox(DATASET, faults=[Latency(seconds=0.2, operation="query")]) as sandbox:
        first = Client(sandbox.base_url, sandbox.token, cache=cache)
        async with Client(sandbox.base_url, sandbox.token, cache=cache) as second:
            await second.catalogue(ENTITY)
            leaving = asyncio.ensure_future(first.query(ENTITY, Select(), FiscalRange()))
            staying = asyncio.ensure_future(second.query(ENTITY, Select(), FiscalRange()))
            while not any(served.operation == "query" for served in sandbox.log):  # noqa: ASYNC110
                await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.wait([leaving])
            await first.aclose()
            assert len(await staying) == 150


async def test_an_address_written_in_another_way_is_the_same_part_of_a_cache() -> None:
    """A slash at the end changes nothing that is sent."""
    cache = MemoryCache()
    async with Sandbox(DATASET) as sandbox:
        async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
            await client.query(ENTITY, Select(), Annual())
        async with Client(sandbox.base_url + "/", sandbox.token, cache=cache, max_age=60) as client:
            assert (await client.query(ENTITY, Select(), Annual())).requests == 0


async def test_a_stream_counts_what_was_at_hand() -> None:
    """A stream counts what was cached, as a query does."""
    cache = MemoryCache()
    async with Sandbox(DATASET) as sandbox, Client(sandbox.base_url, sandbox.token, cache=cache) as client:
        await client.query(ENTITY, Select(), FiscalRange())
        before = cache.stats().hits
        async with client.stream(ENTITY, Select(), FiscalRange()) as pieces:
            assert sum([len(piece) async for piece in pieces]) == 150
    assert cache.stats().hits == before + 150


@pytest.mark.parametrize("options", [{"bucket": TokenBucket}, {"cache": MemoryCache}], ids=str)
def test_a_class_is_not_taken_for_an_instance(options: dict[str, type]) -> None:
    """The parentheses are easily forgotten."""
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Client("https://example.org", "token", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["plan", "query", "catalogue"])
async def test_a_wrong_max_age_is_an_argument_error_wherever_it_is_given(method: str) -> None:
    """A wrong max_age is an argument of the library wherever it is given, not a question."""
    async with Client("https://example.org", "token") as client:
        question = () if method == "catalogue" else (Select(), Annual())
        with pytest.raises(ArgumentError, match="max_age"):
            await getattr(client, method)(ENTITY, *question, max_age=-1)


def test_client_options_are_the_keywords_of_a_client() -> None:
    """Those who pass options on miss none, and invent none."""
    keywords = {
        name
        for name, parameter in inspect.signature(Client).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    assert set(ClientOptions.__annotations__) == keywords
